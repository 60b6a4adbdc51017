//! Compression of exports. Compressing takes milliseconds of CPU time, so it does not run on the threads that answer
//! requests.

use std::io::{self, Write as _};

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use zstd::stream::write::Encoder as ZstdEncoder;

use crate::http::pace::STALL;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Zstd,
}

impl Coding {
    /// The name of the coding in `Accept-Encoding` and `Content-Encoding`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the coding that a client prefers, if it accepts any. If it accepts both equally, this is zstd.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let named = values.flat_map(|value| value.split(',')).filter_map(|item| {
            let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
            let coding = [Self::Gzip, Self::Zstd]
                .into_iter()
                .find(|coding| name.trim().eq_ignore_ascii_case(coding.name()));
            let quality = parameters.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            Some((quality.ok().filter(|quality| *quality > 0.0)?, coding?))
        });
        named
            .max_by(|a, b| a.0.total_cmp(&b.0).then((a.1 == Self::Zstd).cmp(&(b.1 == Self::Zstd))))
            .map(|(_, coding)| coding)
    }
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            Coding::Zstd => Self::Zstd(ZstdEncoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?),
        })
    }

    /// Compresses more bytes. Returns the bytes that are ready to be sent, if any.
    fn take(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(bytes).map(|()| std::mem::take(encoder.get_mut())),
            Self::Zstd(encoder) => encoder.write_all(bytes).map(|()| std::mem::take(encoder.get_mut())),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// Compresses a stream of chunks. As in the input, an empty chunk marks the end, and a stream that closes without one
/// has failed.
pub(super) fn compress(coding: Coding, mut chunks: mpsc::Receiver<Bytes>) -> mpsc::Receiver<Bytes> {
    let (sender, packed) = mpsc::channel(4);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let send = |bytes: Vec<u8>| {
            let sent = runtime.block_on(tokio::time::timeout(STALL, sender.send(bytes.into())));
            matches!(sent, Ok(Ok(())))
        };
        let Ok(mut encoder) = Encoder::new(coding) else { return };
        // A reader that is gone ends the export even if it has no rows yet.
        let mut next = || {
            runtime.block_on(async {
                tokio::select! {
                    chunk = chunks.recv() => chunk,
                    () = sender.closed() => None,
                }
            })
        };
        while let Some(chunk) = next() {
            if chunk.is_empty() {
                if encoder.finish().is_ok_and(send) {
                    send(Vec::new());
                }
                return;
            }
            let Ok(ready) = encoder.take(&chunk) else { return };
            // A reader that stops reading must not keep this thread busy.
            if !ready.is_empty() && !send(ready) {
                return;
            }
        }
    });
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_coding_that_it_prefers() {
        let accepted = |value: &str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.parse().expect("a header"))]);
            Coding::accepted(&headers)
        };
        for (value, coding) in [
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip", Some(Coding::Gzip)),
            ("zstd;q=0.5, GZIP; q=0.8", Some(Coding::Gzip)),
            ("gzip;q=0, br", None),
            ("identity", None),
            ("gzip;q=x", None),
        ] {
            assert_eq!(accepted(value), coding, "{value}");
        }
    }
}
