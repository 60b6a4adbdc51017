//! The colors of terminals (ECMA-48), which programs write around a name, around a value, and around a part of either.

use std::sync::LazyLock;

use super::expression::Expression;
use super::plain::Plain;

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

/// Returns a text without its colors.
pub(super) fn plain(colored: &str) -> Plain {
    static COLOR: LazyLock<Expression> = LazyLock::new(|| Expression::builtin(color!()));
    Plain::without(colored, COLOR.find_iter(colored).map(|color| (color.range(), None)))
}
