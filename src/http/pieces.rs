//! The bytes of a body that comes.

use super::memory::Memory;
use crate::error::Result;

/// The number of bytes that a piece has at most.
const MOST: usize = 64 << 10;

/// The bytes of a body that have come so far.
///
/// They are in pieces, most of which are equally large, until all have come. A vector that grows moves again and again, and
/// leaves free memory behind in which what follows often does not fit, so that many bodies that come at once would take
/// much more of it than they hold.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: Vec<Vec<u8>>,
    length: usize,
    /// The number of bytes that there is room for.
    room: usize,
}

impl Pieces {
    /// Returns how many bytes have come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether nothing has come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds bytes, for which memory is asked before it is taken: for so many copies of them. Fails if there is none.
    pub async fn add(&mut self, mut bytes: &[u8], memory: &Memory, copies: usize) -> Result<()> {
        while !bytes.is_empty() {
            if self.length == self.room {
                // At most as much room again is taken as there is, so that a short body takes little.
                let room = bytes.len().max(self.length).min(MOST);
                // Memory is held for twice as much.
                memory.hold((self.room + room) * copies / 2).await?;
                self.room += room;
                self.pieces.push(Vec::with_capacity(room));
            }
            let (fitting, rest) = bytes.split_at(bytes.len().min(self.room - self.length));
            self.pieces.last_mut().expect("there is room in it").extend_from_slice(fitting);
            self.length += fitting.len();
            bytes = rest;
        }
        Ok(())
    }

    /// Returns all bytes as one.
    #[must_use]
    pub fn join(mut self) -> Vec<u8> {
        if self.pieces.len() <= 1 {
            return self.pieces.pop().unwrap_or_default();
        }
        let mut joined = Vec::with_capacity(self.length);
        // Each piece is given back as soon as it is copied.
        for piece in self.pieces {
            joined.extend_from_slice(&piece);
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_came_is_joined_in_its_order_and_takes_at_most_twice_its_length(
            sizes in prop::collection::vec(0..200_000_usize, 0..8),
        ) {
            let whole: Vec<u8> = (0..=250).cycle().take(sizes.iter().sum()).collect();
            let mut pieces = Pieces::default();
            let mut rest = &whole[..];
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            for size in sizes {
                let (bytes, others) = rest.split_at(size);
                runtime.block_on(pieces.add(bytes, &Memory::unbounded(), 2)).expect("there is enough");
                rest = others;
            }
            prop_assert_eq!(pieces.len(), whole.len());
            prop_assert!(pieces.room <= (2 * whole.len()).min(whole.len() + MOST));
            prop_assert!(pieces.pieces.iter().all(|piece| (1..=MOST).contains(&piece.capacity())));
            prop_assert_eq!(pieces.join(), whole);
        }
    }
}
