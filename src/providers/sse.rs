//! Server-sent events (WHATWG HTML, section 9.2), as providers stream answers.

use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

/// How long a provider may keep a stream open after its answer has ended.
const AFTER_END: Duration = Duration::from_secs(5);

/// The pieces of a streamed answer, as they arrive.
#[derive(Debug)]
pub struct Pieces<'a> {
    response: &'a mut reqwest::Response,
    /// When the answer has ended, although the stream has not.
    ended_at: Option<Instant>,
}

impl<'a> Pieces<'a> {
    /// Takes a response of which nothing is read elsewhere from now on.
    pub fn of(response: &'a mut reqwest::Response) -> Self {
        Self { response, ended_at: None }
    }

    /// Returns the next piece, or none at the end. `has_ended` says whether the answer has ended with the pieces so far. The
    /// provider may then send a little more, but not for long, whatever it sends.
    pub async fn next(&mut self, has_ended: bool) -> reqwest::Result<Option<Bytes>> {
        self.ended_at = has_ended.then(|| self.ended_at.unwrap_or_else(Instant::now));
        let Some(ended_at) = self.ended_at else { return self.response.chunk().await };
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(ended_at + AFTER_END) => Ok(None),
            next = self.response.chunk() => next,
        }
    }
}

/// Takes a stream of bytes apart into the data of its events.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Option<String>,
    /// Whether the last line ended with a carriage return, to which a line feed that follows belongs.
    has_returned: bool,
    /// Whether the first line is over, which may begin with a byte order mark.
    has_begun: bool,
}

/// The most bytes of an event that are kept; what has more is no event of a provider.
const LONGEST: usize = 8 << 20;

impl Events {
    /// Takes further bytes. Returns the data of the events that they complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let is_rest_of_end = end == 0 && bytes[0] == b'\n' && self.has_returned;
            self.has_returned = bytes[end] == b'\r';
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if !is_rest_of_end {
                events.extend(self.end_of_line());
            }
        }
        self.has_returned &= bytes.is_empty();
        if self.size() + bytes.len() <= LONGEST {
            self.line.extend_from_slice(bytes);
        }
        events
    }

    /// Returns the number of bytes that are kept of an event that is not complete.
    #[must_use]
    pub fn size(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, String::len)
    }

    /// Forgets the event that is not complete.
    pub fn clear(&mut self) {
        *self = Self { has_begun: self.has_begun, ..Self::default() };
    }

    /// Ends the stream. Returns the data of an event that was complete but for the empty line after it.
    pub fn finish(&mut self) -> Option<String> {
        let before = self.end_of_line();
        before.or_else(|| self.data.take())
    }

    fn end_of_line(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = line.strip_prefix('\u{feff}').filter(|_| is_first).unwrap_or(&line);
        if line.is_empty() {
            return self.data.take();
        }
        if let Some(data) = line.strip_prefix("data:") {
            let data = data.strip_prefix(' ').unwrap_or(data);
            match &mut self.data {
                Some(before) if before.len() + data.len() > LONGEST => {}
                Some(before) => {
                    before.push('\n');
                    before.push_str(data);
                }
                None => self.data = Some(data.to_owned()),
            }
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::time::Duration;

    use futures_util::{StreamExt as _, stream};
    use proptest::prelude::*;

    use super::*;

    /// Makes a response that streams these events, and that the provider then keeps open by a comment each second.
    pub(crate) fn kept_open(events: &'static str) -> reqwest::Response {
        let comments = stream::repeat(": ping\n\n").then(|comment| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            comment
        });
        let pieces = stream::iter([events]).chain(comments).map(Ok::<_, io::Error>);
        axum::http::Response::new(reqwest::Body::wrap_stream(pieces)).into()
    }

    #[test]
    fn events_are_told_apart_and_comments_passed_over() {
        let mut events = Events::default();
        let stream = ": ping\n\nevent: x\ndata: {\"a\": 1}\r\n\r\ndata:one\ndata: two\n\ndata: [DONE]";
        assert_eq!(events.push(stream.as_bytes()), ["{\"a\": 1}", "one\ntwo"]);
        assert_eq!(events.finish().as_deref(), Some("[DONE]"));
    }

    #[test]
    fn a_stream_may_begin_with_a_byte_order_mark_and_end_lines_in_three_ways() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = "\u{feff}data: one||data: two|data: three||data: \u{feff}||".replace('|', end);
            let expected = ["one", "two\nthree", "\u{feff}"];
            assert_eq!(Events::default().push(stream.as_bytes()), expected, "{end:?}");
            let mut events = Events::default();
            let by_byte: Vec<_> = stream.bytes().flat_map(|byte| events.push(&[byte])).collect();
            assert_eq!(by_byte, expected, "{end:?}");
        }
    }

    #[test]
    fn an_event_without_an_end_takes_bounded_memory() {
        let piece = vec![b'x'; 1 << 20];
        let mut events = Events::default();
        for _ in 0..5 {
            events.push(b"data: ");
            for _ in 0..20 {
                events.push(&piece);
            }
            events.push(b"\n");
        }
        assert!(events.size() <= LONGEST, "{} bytes", events.size());
        events.clear();
        assert_eq!(events.push(b"data: next\n\n"), ["next"]);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_stream_is_cut(texts in proptest::collection::vec("[^\r\n]{0,12}", 0..6), cut in 0..80_usize) {
            let events: Vec<_> = texts.iter().map(|text| format!("data: {text}\n\n")).collect();
            let stream = events.concat();
            let bytes = stream.as_bytes();
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let mut events = Events::default();
            let mut found = events.push(a);
            found.extend(events.push(b));
            prop_assert_eq!(found, texts);
        }
    }
}
