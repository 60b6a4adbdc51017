//! The colors of terminals (ECMA-48), which programs write around a name, around a value, and around a part of either.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::builtin;

/// A color or another code of a terminal. Its escape character is itself, or what languages, XML, rsyslog and `cat` write.
macro_rules! color {
    () => {
        r"(?:\x1b|\\+(?:u001[bB]|u\{1[bB]\}|x1[bB]|[eE]|033)|&#(?:27|[xX]1[bB]);|#033|\^\[|␛)(?:\[[0-?]*[A-Za-z]|\([A-Z0-9])"
    };
}
pub(super) use color;

/// The texts of which each color has one, in upper or lower case. Other codes do not come alone.
pub(super) const ANCHORS: [&str; 10] =
    ["\u{1b}[", r"\u001b[", r"\u{1b}[", r"\x1b[", r"\e[", "033[", "&#27;[", "&#x1b;[", "^[[", "␛["];

/// A text without its colors.
pub(super) struct Plain {
    pub(super) text: String,
    /// The places in the text where colors were, and how many bytes were left out up to there.
    gaps: Vec<(usize, usize)>,
}

impl Plain {
    pub(super) fn of(colored: &str) -> Self {
        static COLOR: LazyLock<Regex> = LazyLock::new(|| builtin(color!()));
        let mut plain = Self { text: String::with_capacity(colored.len()), gaps: Vec::new() };
        let mut end = 0;
        for color in COLOR.find_iter(colored) {
            plain.text.push_str(&colored[end..color.start()]);
            end = color.end();
            plain.gaps.push((plain.text.len(), end - plain.text.len()));
        }
        plain.text.push_str(&colored[end..]);
        plain
    }

    /// Returns where a span of the text, which is not empty, is in the one with colors. Those around it do not belong to it.
    pub(super) fn in_colored(&self, span: Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let gaps = self.gaps.partition_point(|(gap, _)| *gap <= at);
            at + gaps.checked_sub(1).map_or(0, |last| self.gaps[last].1)
        };
        place(span.start)..place(span.end - 1) + 1
    }
}
