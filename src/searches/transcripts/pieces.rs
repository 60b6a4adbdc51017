//! The lines of a transcript in pieces: how many are read together, which of them are new, and what they say.

use std::collections::HashSet;
use std::ops::Range;

use axum::body::Bytes;
use uuid::Uuid;

use crate::agents::{Agent, Entry, NotAnObject, ToolPatterns};
use crate::error::Result;
use crate::http::{clean_json, utf8};
use crate::privacy::hash_key::HashKey;
use crate::types::derived_id;

/// The maximum number of lines in one transaction. A short line needs some hundred times its size in memory.
const LINES: usize = 4_096;
/// The maximum number of lines in one transaction that may be uses of tools. Each may take milliseconds, for which other projects
/// wait.
const USES: usize = 512;
/// The number of bytes that the use of a tool has at least.
const SHORTEST_USE: usize = 64;

/// Divides lines into pieces, which share their bytes.
pub(super) fn pieces(mut lines: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let (mut begun, mut count, mut uses) = (0, 0, 0);
        let is_last = |newline: &usize| {
            count += 1;
            uses += usize::from(newline - begun >= SHORTEST_USE);
            begun = newline + 1;
            count == LINES || uses == USES
        };
        let end = memchr::memchr_iter(b'\n', &lines).find(is_last).map_or(lines.len(), |newline| newline + 1);
        let piece = lines.split_to(end);
        (!piece.is_empty()).then_some(piece)
    })
}

/// Lines, which are clean and may be read again. Clones share their bytes.
#[derive(Clone)]
pub(super) struct Piece {
    bytes: Bytes,
    pub(super) lines: Vec<Line>,
}

/// A line of a piece.
#[derive(Clone)]
pub(super) struct Line {
    range: Range<usize>,
    /// A keyed hash of its bytes as they came.
    pub(super) hash: Uuid,
    /// The number of characters that were replaced, unless it cannot be cleaned.
    replaced: Option<usize>,
}

/// A parsed line, with the keyed hash of its bytes.
pub(super) struct ParsedLine {
    pub(super) hash: Uuid,
    pub(super) bytes: usize,
    pub(super) entry: Result<Entry, NotAnObject>,
}

/// Parsed lines.
pub(super) struct Parsed {
    pub(super) lines: Vec<ParsedLine>,
    /// The number of characters that were replaced.
    pub(super) replaced: usize,
}

impl Piece {
    /// Returns the lines that are not blank. What their texts say is not all stored, and a plain hash would confirm a guess
    /// at the rest.
    pub(super) fn new(bytes: Bytes, key: &HashKey) -> Self {
        // Nothing is copied, unless the bytes are also those of other pieces.
        let mut bytes = Vec::from(bytes);
        let mut lines = Vec::new();
        let mut start = 0;
        for line in bytes.split_mut(|&byte| byte == b'\n') {
            let end = start + line.len();
            if !line.trim_ascii().is_empty() {
                let hash = key.id(derived_id(&[b"line", &*line]));
                lines.push(Line { range: start..end, hash, replaced: clean_json(line).ok() });
            }
            start = end + 1;
        }
        Self { bytes: bytes.into(), lines }
    }

    /// Returns the lines that are not `known`, each once.
    pub(super) fn without(mut self, mut known: HashSet<Uuid>) -> Self {
        self.lines.retain(|line| known.insert(line.hash));
        self
    }

    /// Parses the lines.
    pub(super) fn parse(self, agent: &Agent, tools: &ToolPatterns) -> Parsed {
        let mut replaced = 0;
        let mut read = |line: &[u8], replaced_of_line: Option<usize>| {
            replaced += replaced_of_line.ok_or(NotAnObject)?;
            (agent.parse_line)(utf8(line).map_err(|_| NotAnObject)?.trim(), tools)
        };
        let parse = |line: Line| {
            let text = &self.bytes[line.range];
            ParsedLine { hash: line.hash, bytes: text.len(), entry: read(text, line.replaced) }
        };
        let lines = self.lines.into_iter().map(parse).collect();
        Parsed { lines, replaced }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_4096_lines_of_which_512_may_be_uses_of_tools() {
        let count = |bytes: Bytes| memchr::memchr_iter(b'\n', &bytes).count();
        let counts =
            |line: &str, times: usize| pieces(Bytes::from(line.repeat(times))).map(count).collect::<Vec<_>>();
        assert_eq!(counts("{}\n", 5_000), [4_096, 904]);
        assert_eq!(counts(&format!("{}\n", "x".repeat(SHORTEST_USE)), 1_100), [512, 512, 76]);
    }

    #[test]
    fn the_hash_of_a_line_is_that_of_the_project() {
        let hashes = |key: u8| {
            let piece = Piece::new(Bytes::from_static(b"{}\n\n{\"a\":1}\n{}"), &HashKey::new(vec![key; 32]));
            piece.lines.into_iter().map(|line| line.hash).collect::<Vec<_>>()
        };
        let (one, other) = (hashes(1), hashes(2));
        assert_eq!((one.len(), one[0], &one), (3, one[2], &hashes(1)));
        assert!(one.iter().all(|hash| !other.contains(hash) && *hash != derived_id(&[b"line", b"{}"])));
    }
}
