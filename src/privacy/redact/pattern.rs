//! Patterns: what is looked for in a text that has one of some anchors, and how it is found there.

use std::ops::Range;
use std::sync::LazyLock;

use super::Span;
use super::colors::color;
use super::expression::Expression;
use super::random::{is_random, is_very_random};
use super::value_ends::{before_end_of_element, ending};

/// What is looked for in a text that has one of some anchors, in upper or lower case.
pub(super) struct Pattern {
    /// The number of its rule.
    pub(super) rule: usize,
    pub(super) anchors: Vec<&'static str>,
    finds: Finds,
    /// Whether what is looked for may be on two lines of the text.
    pub(super) spans_lines: bool,
}

/// How private spans are found. The functions decide whether one is replaced.
enum Finds {
    /// One begins with the anchor, which must not be inside a word.
    Token(Expression, Accepts),
    /// One is the first group that is part of a match, or the whole match.
    Matches(Expression, Accepts),
    /// A function finds them.
    Values(fn(&str) -> Vec<Range<usize>>),
}

pub(super) type Accepts = fn(&str) -> bool;

pub(super) fn always(_: &str) -> bool {
    true
}

impl Pattern {
    pub(super) fn token(anchor: &'static str, regex: &str, accepts: Accepts) -> Self {
        Self::of(&[anchor], Finds::Token(Expression::builtin(regex), accepts))
    }

    pub(super) fn matches(anchors: &[&'static str], regex: &str, accepts: Accepts) -> Self {
        Self::of(anchors, Finds::Matches(Expression::builtin(regex), accepts))
    }

    pub(super) fn values(anchors: &[&'static str], values: fn(&str) -> Vec<Range<usize>>) -> Self {
        Self::of(anchors, Finds::Values(values))
    }

    fn of(anchors: &[&'static str], finds: Finds) -> Self {
        Self { rule: 0, anchors: anchors.to_vec(), finds, spans_lines: false }
    }

    pub(super) fn of_rule(self, rule: usize) -> Self {
        Self { rule, ..self }
    }

    pub(super) fn on_two_lines(self) -> Self {
        Self { spans_lines: true, ..self }
    }

    /// Adds the spans of a text that has an anchor at `at`. Returns up to where the text need not be searched again.
    pub(super) fn collect(&self, text: &str, at: usize, spans: &mut Vec<Span>) -> usize {
        let mut add =
            |found: Range<usize>| spans.push(Span { start: found.start, end: found.end, rule: self.rule });
        match &self.finds {
            Finds::Token(regex, accepts) => {
                let Some(token) = token_at(text, at, regex) else { return at };
                // What is behind an underscore is often the rest of a name.
                if accepts(token) && (!text[..at].ends_with('_') || is_random(token)) {
                    add(at..at + token.len());
                }
                return at + token.len();
            }
            Finds::Matches(regex, accepts) => {
                let mut from = 0;
                // What is behind a span may also be the beginning of the next match.
                while let Some(found) = regex.captures_at(text, from).and_then(|found| found.meant()) {
                    // What ends the element or the message around a value may be directly behind it.
                    let within = before_end_of_element(found.as_str());
                    if within.len() < found.as_str().len() && accepts(within) {
                        add(found.start()..found.start() + within.len());
                    } else if accepts(found.as_str()) {
                        add(found.range());
                    }
                    from = found.end();
                }
            }
            Finds::Values(values) => values(text).into_iter().for_each(add),
        }
        text.len()
    }
}

/// Returns the token that begins at an anchor. A text inside a word, such as the `sk-` of `task-…`, or inside base64 is not
/// an anchor.
fn token_at<'a>(text: &'a str, at: usize, expression: &Expression) -> Option<&'a str> {
    let before = &text[..at];
    let is_within_word = before.ends_with(|c: char| c.is_ascii_alphanumeric()) && !ends_with_code(before);
    if is_within_word {
        return None;
    }
    let token = expression.find(&text[at..])?.as_str();
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    // A random part of an address before a slash looks like base64, too, so the token tells.
    let is_within_base64 = token.chars().all(is_base64) && ends_with_base64(before);
    (!is_within_base64).then_some(token)
}

/// A code for other characters: a color of a terminal, also without its escape character, an escape of a language, JSON,
/// rsyslog or `cat`, a percent code of an address, also of one inside another one, or a code of an e-mail (RFC 2045). Its
/// last letter is not part of a word.
pub(super) const CODE: &str = concat!(
    "(?:",
    color!(),
    r"|\[[0-9;]{1,12}m|\\(?:[abefnrtv]|[0-3]?[0-7]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2})|#0[0-3][0-7]|\^[A-Z]|%(?:(?:25)*[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})|=(?:0[9AD]|2[027]|3D|A0))"
);

/// A sign of base64 as JSON or an address may write it, also one inside another one.
pub(super) const BASE64_CODE: &str = r"(?:\\+/|(?:\\+u00|%(?:25)*)(?:2[BbFf]|3[Dd]))";

/// The maximum number of bytes of a [`CODE`] that is looked for.
const LONGEST_CODE: usize = 32;

/// Returns whether a text ends with such a code.
fn ends_with_code(text: &str) -> bool {
    static END: LazyLock<Expression> = LazyLock::new(|| Expression::builtin(&format!("{CODE}$")));
    END.is_match(ending(text, LONGEST_CODE))
}

/// The number of characters before a token that tell whether it is inside base64.
const BASE64: usize = 64;

/// Returns whether a text ends with base64, rather than with a path or an address.
fn ends_with_base64(text: &str) -> bool {
    if !text.ends_with(['+', '/']) {
        return false;
    }
    let end = ending(text, BASE64);
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '+' && c != '/';
    let base64 = end.rsplit(is_other).next().unwrap_or(end);
    is_very_random(base64)
}
