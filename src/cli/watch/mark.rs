//! Marks, which tell by some bytes of a file whether it is still the one that was read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};

use crate::cli::files;

/// How many bytes a mark has of the beginning, and as many before the offset that was reached.
const BYTES: usize = 4_096;

/// The first and the last bytes of what was read of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mark {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Mark {
    /// Reads the mark of the first `length` bytes of `file`, as it is now.
    pub(super) fn of(file: &File, length: u64) -> io::Result<Self> {
        let part = usize::try_from(length).unwrap_or(BYTES).min(BYTES);
        let mut mark = Self { head: vec![0; part], tail: vec![0; part] };
        file.read_exact_at(&mut mark.head, 0)?;
        file.read_exact_at(&mut mark.tail, length - part as u64)?;
        Ok(mark)
    }

    /// Adds the bytes that come next.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let room = BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(BYTES));
    }

    /// The hash of the mark, as it is written down.
    pub(super) fn hash(&self) -> String {
        let digest = Sha256::new().chain_update(&self.head).chain_update(&self.tail).finalize();
        files::hex(&digest[..8])
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mark_is_the_same_in_however_many_pieces_the_file_is_read(
            pieces in prop::collection::vec(0_usize..6_000, 0..6),
        ) {
            let mut file = tempfile::tempfile().expect("a file");
            let (mut mark, mut length) = (Mark::default(), 0);
            for (piece, size) in pieces.into_iter().enumerate() {
                let bytes = format!("{piece} {size} ").repeat(size).into_bytes();
                let bytes = &bytes[..size];
                file.write_all(bytes).expect("writes");
                mark.extend(bytes);
                length += size as u64;
                prop_assert_eq!(&mark, &Mark::of(&file, length).expect("reads"));
            }
        }
    }
}
