//! The lines of a file from an offset on, in pieces.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;

use serde::de::IgnoredAny;

use super::mark::Mark;
use crate::http::NDJSON_LIMIT;

/// How many bytes are sent at a time, or one line if that is longer.
const PIECE: usize = 4 << 20;

/// A file from an offset on.
pub(super) struct Lines {
    file: File,
    offset: u64,
    mark: Mark,
    /// The number of lines skipped since the last call because they are too long for any server.
    too_long: u64,
}

impl Lines {
    /// Reads the lines after the first `offset` bytes, of which `mark` is the mark.
    pub(super) fn new(file: File, offset: u64, mark: Mark) -> Self {
        Self { file, offset, mark, too_long: 0 }
    }

    /// Returns the number of lines skipped since the last call because they are too long.
    pub(super) fn take_too_long(&mut self) -> u64 {
        mem::take(&mut self.too_long)
    }

    /// The mark of everything up to the end of the lines that were given.
    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The offset at which the lines that were given end.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Gives the next whole lines; none when there are no more. A last line without a newline is whole if it is an object of
    /// JSON: nothing can follow in it.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut piece = Vec::new();
        let mut size = PIECE;
        loop {
            let more = self.fill(&mut piece, size)?;
            if let Some(newline) = piece.iter().rposition(|&byte| byte == b'\n') {
                piece.truncate(newline + 1);
                break;
            }
            if !more {
                if !is_object(&piece) {
                    return Ok(None);
                }
                break;
            }
            if size >= NDJSON_LIMIT {
                // No server takes a line of that length; what follows it is sent.
                self.skip_line(size as u64)?;
                self.too_long += 1;
                self.mark = Mark::of(&self.file, self.offset)?;
                piece.clear();
                size = PIECE;
                continue;
            }
            size = (size * 2).min(NDJSON_LIMIT);
        }
        self.offset += piece.len() as u64;
        self.mark.extend(&piece);
        Ok(Some(piece))
    }

    /// Fills `piece` up to `size` bytes; returns whether there may be more.
    fn fill(&self, piece: &mut Vec<u8>, size: usize) -> io::Result<bool> {
        let mut filled = piece.len();
        piece.resize(size, 0);
        while filled < size {
            match self.file.read_at(&mut piece[filled..], self.offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        piece.truncate(filled);
        Ok(filled == size)
    }

    /// Skips a line that has at least `known` bytes; goes to where the file ends, if the line has not ended.
    fn skip_line(&mut self, known: u64) -> io::Result<()> {
        self.offset += known;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = self.file.read_at(&mut buffer, self.offset)?;
            if let Some(newline) = buffer[..read].iter().position(|&byte| byte == b'\n') {
                self.offset += newline as u64 + 1;
                return Ok(());
            }
            self.offset += read as u64;
            if read == 0 {
                return Ok(());
            }
        }
    }
}

fn is_object(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.starts_with(b"{") && text.ends_with(b"}") && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn pieces(lines: &mut Lines) -> Vec<String> {
        std::iter::from_fn(|| lines.next().expect("reads"))
            .map(|piece| String::from_utf8(piece).expect("text"))
            .collect()
    }

    #[test]
    fn only_whole_lines_are_given() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut lines = Lines::new(file.try_clone().expect("a file"), 0, Mark::default());
        let mut write = |text: &str| file.write_all(text.as_bytes()).expect("writes");
        write("{\"a\": 1}\n{\"b\"");
        assert_eq!(pieces(&mut lines), ["{\"a\": 1}\n"]);
        assert_eq!(pieces(&mut lines), [""; 0]);
        write(": {}");
        assert_eq!(pieces(&mut lines), [""; 0]);
        write("}");
        assert_eq!(pieces(&mut lines), ["{\"b\": {}}"]);
        write("\n\n{}\n");
        assert_eq!(pieces(&mut lines), ["\n\n{}\n"]);
        assert_eq!(lines.offset(), 23);
    }

    #[test]
    fn long_files_come_in_pieces_and_long_lines_whole() {
        let mut file = tempfile::tempfile().expect("a file");
        let short = format!("{}\n", "x".repeat(999)).repeat(6_000);
        let long = format!("{}\n", "y".repeat(9 << 20));
        file.write_all(format!("{short}{long}{short}").as_bytes()).expect("writes");
        let pieces = pieces(&mut Lines::new(file, 0, Mark::default()));
        assert!(pieces.iter().all(|piece| piece.ends_with('\n')));
        assert_eq!(pieces.concat(), format!("{short}{long}{short}"));
        assert!(pieces.len() >= 3, "{}", pieces.len());
    }

    #[test]
    fn a_line_that_no_server_takes_is_left_out() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"{}\n").expect("writes");
        file.write_all(&vec![b'x'; NDJSON_LIMIT + 5]).expect("writes");
        file.write_all(b"\n{\"a\": 1}\n").expect("writes");
        let mut lines = Lines::new(file, 0, Mark::default());
        assert_eq!(pieces(&mut lines), ["{}\n", "{\"a\": 1}\n"]);
        assert_eq!((lines.take_too_long(), lines.take_too_long()), (1, 0), "it is counted once");
    }
}
