//! The records of a file to import.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::http::NDJSON_LIMIT;

/// How many lines are handed to the writer at a time.
const LINES: usize = 2_000;
/// How many bytes of lines are held at a time, even if that is fewer lines. One record may have more.
const BYTES: usize = 8 << 20;

/// A record of a file: the number of the line that it begins on, and its text.
pub(super) type NumberedLine = (usize, Vec<u8>);

/// The records of a file, each with the number of the line that it begins on. A record is a line that is not blank, or an
/// object that is laid out over several lines, as `jq` and other printers do it.
pub(super) struct Lines {
    reader: Box<dyn BufRead + Send>,
    number: usize,
    /// A line that was read and turned out not to belong to the record before it.
    ahead: Option<Vec<u8>>,
    /// A record that was read and was too long to come with those before it.
    held: Option<NumberedLine>,
    /// The file's size in bytes, if it tells how much there is to read.
    pub(super) size: Option<u64>,
}

impl Lines {
    pub(super) fn open(file: &Path) -> std::io::Result<Self> {
        let (input, size): (Box<dyn Read + Send>, _) = if file == Path::new("-") {
            (Box::new(std::io::stdin()), None)
        } else {
            let file = File::open(file)?;
            let size = file.metadata()?.len();
            (Box::new(file), Some(size))
        };
        let mut input = BufReader::with_capacity(1 << 20, input);
        if input.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            let reader = BufReader::with_capacity(1 << 20, MultiGzDecoder::new(input));
            return Ok(Self::new(Box::new(reader), None));
        }
        Ok(Self::new(Box::new(input), size))
    }

    fn new(reader: Box<dyn BufRead + Send>, size: Option<u64>) -> Self {
        Self { reader, number: 0, ahead: None, held: None, size }
    }

    /// Returns the next records, or none at the end of the file.
    pub(super) fn chunk(&mut self) -> std::io::Result<Vec<NumberedLine>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < LINES {
            let Some(record) = self.record()? else { break };
            bytes += record.1.len();
            if bytes > BYTES && !records.is_empty() {
                self.held = Some(record);
                break;
            }
            records.push(record);
        }
        Ok(records)
    }

    /// Returns the next record, or none at the end of the file.
    fn record(&mut self) -> std::io::Result<Option<NumberedLine>> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        while let Some(line) = self.line()? {
            let number = self.number;
            let text = line.trim_ascii();
            if text == b"{" {
                let record = self.rest_of_object(line)?;
                return Ok(Some((number, record.trim_ascii().to_vec())));
            }
            if !text.is_empty() {
                return Ok(Some((number, text.to_vec())));
            }
        }
        Ok(None)
    }

    /// Returns the next line with its line break, or none at the end of the file.
    fn line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = self.ahead.take().unwrap_or_default();
        if line.is_empty()
            && self.reader.by_ref().take(NDJSON_LIMIT as u64).read_until(b'\n', &mut line)? == 0
        {
            return Ok(None);
        }
        self.number += 1;
        if line.len() == NDJSON_LIMIT && !line.ends_with(b"\n") {
            return Err(too_long(self.number));
        }
        Ok(Some(line))
    }

    /// Returns the whole text of an object whose first line holds only its brace. It ends where that brace is closed. A line
    /// that begins with a brace while no other is open cannot belong to it, because members have names: it begins the next
    /// record, so that a stray brace costs no other record.
    fn rest_of_object(&mut self, mut text: Vec<u8>) -> std::io::Result<Vec<u8>> {
        let (first, mut open) = (self.number, 1);
        while open > 0 {
            let Some(line) = self.line()? else { break };
            if open == 1 && line.trim_ascii_start().starts_with(b"{") {
                self.number -= 1;
                self.ahead = Some(line);
                break;
            }
            open += levels(&line);
            text.extend(line);
            if text.len() > NDJSON_LIMIT {
                return Err(too_long(first));
            }
        }
        Ok(text)
    }
}

fn too_long(number: usize) -> std::io::Error {
    std::io::Error::other(format!("the record on line {number} has more than {NDJSON_LIMIT} bytes"))
}

/// Returns how many more brackets and braces a line of JSON opens than it closes. No text of JSON goes over several lines.
fn levels(line: &[u8]) -> i64 {
    let (mut levels, mut in_text, mut escaped) = (0, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => levels += 1,
            b'}' | b']' if !in_text => levels -= 1,
            _ => {}
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn records(text: &str) -> Vec<(usize, String)> {
        let mut lines = Lines::new(Box::new(Cursor::new(text.to_owned())), None);
        let records = lines.chunk().expect("reads").into_iter();
        records.map(|(number, record)| (number, String::from_utf8(record).expect("text"))).collect()
    }

    #[test]
    fn a_stray_brace_is_a_record_of_its_own_and_costs_no_other() {
        let text = "{\"a\": 1}\n{\n{\"b\": 2}\n\n{\n  \"c\": 3\n}\n{\n{\n}\n{\n";
        let expected = [
            (1, "{\"a\": 1}"),
            (2, "{"),
            (3, "{\"b\": 2}"),
            (5, "{\n  \"c\": 3\n}"),
            (8, "{"),
            (9, "{\n}"),
            (11, "{"),
        ];
        assert_eq!(records(text), expected.map(|(number, record)| (number, record.to_owned())));
    }

    #[test]
    fn a_long_record_does_not_come_with_others_and_blank_lines_end_nothing() {
        let long = "x".repeat(BYTES);
        let text = format!("1\n2\n{long}\n{}3\n", " \n".repeat(BYTES));
        let mut lines = Lines::new(Box::new(Cursor::new(text)), None);
        let mut chunk = || {
            let records = lines.chunk().expect("reads").into_iter();
            records.map(|(number, record)| (number, record.len())).collect::<Vec<_>>()
        };
        assert_eq!(chunk(), [(1, 1), (2, 1)]);
        assert_eq!(chunk(), [(3, BYTES)]);
        assert_eq!(chunk(), [(BYTES + 4, 1)]);
        assert_eq!(chunk(), []);
    }

    proptest! {
        #[test]
        fn an_object_on_several_lines_is_the_same_record_as_on_one(
            objects in proptest::collection::vec((object(), any::<bool>(), any::<bool>()), 0..6),
        ) {
            let mut text = String::new();
            let mut expected = Vec::new();
            for (object, laid_out, blank) in objects {
                let number = text.matches('\n').count() + 1;
                let record = if laid_out { format!("{object:#}") } else { object.to_string() };
                text.push_str(&record.replace('\n', "\r\n"));
                text.push_str(if blank { "\n\n" } else { "\n" });
                expected.push((number, object));
            }
            let read = records(&text).into_iter();
            let read: Vec<(usize, Value)> = read.map(|(number, record)| (number, record.parse().expect("JSON"))).collect();
            prop_assert_eq!(read, expected);
        }
    }

    /// Objects whose texts hold what could be taken for their structure.
    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!([])),
            "[{}\\[\\]\"\\\\\n,: a]{0,8}".prop_map(Value::from)
        ];
        let value = leaf.prop_recursive(3, 12, 3, |inner| {
            let pairs = proptest::collection::hash_map("[{}\"\\\\ a]{0,3}", inner.clone(), 0..3);
            prop_oneof![
                proptest::collection::vec(inner, 0..3).prop_map(Value::from),
                pairs.prop_map(|pairs| pairs.into_iter().collect()),
            ]
        });
        proptest::collection::hash_map("[{}\"\\\\ a]{0,3}", value, 0..4)
            .prop_map(|pairs| pairs.into_iter().collect())
    }
}
