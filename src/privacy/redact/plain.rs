//! What a text says besides what is written around it or in it: the colors of terminals, and what stands before each line.

use std::ops::Range;

/// A text without some of its parts.
pub(super) struct Plain {
    pub(super) text: String,
    /// The places in this text where parts were, and how many bytes were left out up to there. They are short, because a text may
    /// have a color every few bytes.
    gaps: Vec<(u32, u32)>,
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
            let [place, left_out] = [plain.text.len(), end - plain.text.len()].map(short);
            match plain.gaps.last_mut() {
                Some(last) if last.0 == place => last.1 = left_out,
                _ => plain.gaps.push((place, left_out)),
            }
        }
        plain.text.push_str(&whole[end..]);
        plain
    }

    /// Returns where a span of this text, which is not empty, is in the whole one. The parts around it do not belong to it.
    pub(super) fn in_whole(&self, span: Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let gaps = self.gaps.partition_point(|(gap, _)| *gap <= short(at));
            at + gaps.checked_sub(1).map_or(0, |last| self.gaps[last].1 as usize)
        };
        place(span.start)..place(span.end - 1) + 1
    }
}

/// Returns a place in a text, none of which has four gigabytes.
fn short(place: usize) -> u32 {
    u32::try_from(place).expect("no text is so long")
}
