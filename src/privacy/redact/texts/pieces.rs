//! The pieces of a longer text, such as those of a file, which are read as if it were not divided.

use super::{Redaction, effort};
use crate::privacy::redact::{Span, merge};

/// The maximum number of bytes of pieces of a text that are read together.
const MOST_TOGETHER: usize = 2 << 20;

impl Redaction<'_> {
    /// Applies the built-in rules to the pieces of a longer text, in order, as if it were not divided: a key may be in several of them,
    /// and the head of a table in another one than its rows. The pieces are texts of their own besides. Returns of each whether it was
    /// changed.
    pub fn together(&mut self, mut pieces: &mut [&mut String]) -> Vec<bool> {
        let total = pieces.len();
        let mut changed = Vec::with_capacity(total);
        while !pieces.is_empty() {
            let mut bytes = 0;
            let few = pieces.iter().take_while(|piece| {
                bytes += piece.len() + 1;
                bytes <= MOST_TOGETHER
            });
            let (few, others) = pieces.split_at_mut(few.count().max(1));
            if few.len() > 1 {
                self.joined(few, &mut changed);
            }
            changed.resize(total - others.len(), false);
            pieces = others;
        }
        changed
    }

    fn joined(&mut self, pieces: &mut [&mut String], changed: &mut Vec<bool>) {
        let mut whole = String::new();
        let mut starts = Vec::with_capacity(pieces.len());
        for piece in &*pieces {
            if !whole.is_empty() && !whole.ends_with('\n') {
                whole.push('\n');
            }
            starts.push(whole.len());
            whole.push_str(piece);
        }
        if let Some(bytes) = &mut self.counted {
            *bytes += effort(&whole);
            return;
        }
        if !self.redactor.may_match(&whole) {
            return;
        }
        let mut spans = self.redactor.of_builtin(&whole);
        spans.retain(|span| !self.redactor.is_replaced(&whole, span));
        merge(&mut spans);
        // Each piece makes room for what is replaced in it when it is shown by itself.
        let room = whole.len() / 2;
        self.room += room;
        for (piece, start) in pieces.iter_mut().zip(starts) {
            let end = start + piece.len();
            let first = spans.partition_point(|span| span.end <= start);
            let inside = spans[first..].iter().take_while(|span| span.start < end).map(|span| Span {
                start: span.start.max(start) - start,
                end: span.end.min(end) - start,
                ..*span
            });
            let inside: Vec<_> = inside.collect();
            let new = self.replaced(piece, 0, &inside, self.redactor.tags.as_ref());
            changed.push(new.is_some());
            if let Some(new) = new {
                **piece = new;
            }
        }
        self.owed += room.saturating_sub(self.room);
        self.room = self.room.saturating_sub(room);
    }
}
