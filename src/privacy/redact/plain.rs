//! What a text says besides what is written around it or in it: the colors of terminals, and what stands before each line.

use std::ops::Range;

/// A text without some of its parts.
pub(super) struct Plain {
    pub(super) text: String,
    /// The places in this text where parts were, and how many bytes were left out up to there.
    gaps: Vec<(usize, usize)>,
}

impl Plain {
    /// Returns a text without these parts of it, which are in their order and apart from each other. In place of one, there is
    /// a character, which is no longer than the part.
    pub(super) fn without(
        whole: &str,
        parts: impl IntoIterator<Item = (Range<usize>, Option<char>)>,
    ) -> Self {
        let mut plain = Self { text: String::with_capacity(whole.len()), gaps: Vec::new() };
        let mut end = 0;
        for (part, instead) in parts {
            plain.text.push_str(&whole[end..part.start]);
            plain.text.extend(instead);
            end = part.end;
            plain.gaps.push((plain.text.len(), end - plain.text.len()));
        }
        plain.text.push_str(&whole[end..]);
        plain
    }

    /// Returns where a span of this text, which is not empty, is in the whole one. The parts around it do not belong to it.
    pub(super) fn in_whole(&self, span: Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let gaps = self.gaps.partition_point(|(gap, _)| *gap <= at);
            at + gaps.checked_sub(1).map_or(0, |last| self.gaps[last].1)
        };
        place(span.start)..place(span.end - 1) + 1
    }
}
