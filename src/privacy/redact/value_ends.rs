//! Where a value ends that begins behind a name.

use std::iter::once;
use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::random::{is_random, is_varied};

/// The maximum number of bytes of a value with characters that also end values.
pub(super) const LONGEST: usize = 256;

/// Punctuation marks of Chinese and Japanese, before which there is no blank. Passwords have none of them.
pub(super) const WIDE_MARKS: &str = "，。、；：！？”’」』）】》";

/// Returns the beginning of a text, of about this many bytes.
pub(super) fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.ceil_char_boundary(bytes.min(text.len()))]
}

/// Returns the end of a text, of about this many bytes.
pub(super) fn ending(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Returns where the content begins of an element of XML in whose attributes a position is.
pub(super) fn content(text: &str, at: usize) -> Option<usize> {
    let before = ending(&text[..at], LONGEST);
    before.rfind(['<', '>']).filter(|tag| before[*tag..].starts_with('<'))?;
    let rest = beginning(&text[at..], LONGEST);
    let end = rest.find(['<', '>', '\n']).filter(|end| rest[*end..].starts_with('>'))?;
    let content = rest[end + 1..].trim_start();
    let content = content.strip_prefix("<value>").unwrap_or(content);
    Some(at + rest.len() - content.len())
}

/// Returns the value behind a quotation mark if it looks random, or the end of its first word.
pub(super) fn quoted(text: &str, at: usize, mark: &str) -> Result<Range<usize>, usize> {
    let rest = &text[at..];
    let word = rest.find(|c: char| c.is_whitespace() || r#""'`\<>&"#.contains(c)).unwrap_or(rest.len());
    let line = beginning(rest, word.max(LONGEST)).lines().next().unwrap_or_default();
    // A text with the codes of characters is no password, unless it has those of random bytes.
    let is_code = |length: &usize| [r"\x", r"\u", r"\U"].iter().any(|code| line[..*length].contains(code));
    let closing = closing(line, mark);
    if let Some(length) = closing.filter(|length| are_bytes(&line[..*length])) {
        return Ok(at..at + length);
    }
    let whole = closing.filter(|length| !is_code(length));
    longest(rest, whole.into_iter().chain([word])).map(|length| at..at + length).ok_or(at + word)
}

/// Returns whether a text is that of random bytes, as languages write it: codes of many bytes, and hardly any words.
fn are_bytes(text: &str) -> bool {
    const CODE: &str = r"\x";
    const LEAST: usize = 4;
    const LONGEST_WORD: usize = 4;
    let codes = text.matches(CODE).count();
    let mut parts = text.split(CODE);
    let first = parts.next().unwrap_or_default();
    let others = parts.map(|part| part.get(2..).unwrap_or_default());
    let mut words = once(first).chain(others).flat_map(|part| part.split(|c: char| !c.is_ascii_alphabetic()));
    codes >= LEAST && is_varied(text) && words.all(|word| word.len() <= LONGEST_WORD)
}

/// Returns the longest of some beginnings of a text if it looks random, or if a shorter one does that would leave a rest of
/// the same word.
fn longest(text: &str, lengths: impl IntoIterator<Item = usize>) -> Option<usize> {
    let mut whole = None;
    lengths.into_iter().find_map(|length| {
        let is_word = !text[..length].contains(char::is_whitespace);
        whole = whole.or(is_word.then_some(length));
        is_random(&text[..length]).then(|| whole.unwrap_or(length).max(length))
    })
}

/// Returns where the quotation mark is that belongs to the one before a text. Each JSON text within a string of another one
/// has twice as many backslashes, and one more before each mark.
fn closing(text: &str, mark: &str) -> Option<usize> {
    let plain = mark.trim_start_matches('\\');
    let escapes = mark.len() - plain.len();
    let backslashes = |at: usize| at - text[..at].trim_end_matches('\\').len();
    let mut marks = text.match_indices(plain).map(|(at, _)| at);
    marks.find(|at| backslashes(*at) % (2 * escapes + 2) == escapes).map(|at| at - escapes)
}

/// The characters that end a value without quotes where a name, a blank or the end is behind them.
const ENDS: [char; 11] = ['&', '(', ')', ',', ';', '?', '{', '}', '[', ']', '|'];

/// Returns the value without quotes that begins at `at` if it looks random, or the end of its first word.
pub(super) fn bare(text: &str, at: usize) -> Result<Range<usize>, usize> {
    let rest = &text[at..];
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || "_+/=~!@#$%^*.:-".contains(c);
    let word = rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
    // A name before parentheses is that of a function.
    let arguments = beginning(&rest[word..], LONGEST).lines().next().unwrap_or_default();
    let is_call = arguments.starts_with('(') && (arguments == "(" || arguments.contains(')'));
    let others = run(rest).into_iter().chain([word]).filter(|_| !is_call);
    let value = longest(rest, line(text, at).into_iter().chain(others));
    value.map(|length| at..at + length).ok_or(at + word)
}

/// Returns whether a text ends with the number of a line.
fn is_place(text: &str) -> bool {
    const MOST_DIGITS: usize = 7;
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (1..=MOST_DIGITS).contains(&digits)
}

/// Returns the length of the value that begins at `at`, if its name and itself are all of a line, besides what a listing, a
/// comparison or a command has before them, or all of what is between two quotation marks.
fn line(text: &str, at: usize) -> Option<usize> {
    const COMMANDS: [&str; 6] = ["export", "set", "env", "-e", "Environment=", "-"];
    let before = ending(&text[..at], LONGEST);
    let before = before.rsplit('\n').next()?.trim_end().strip_suffix(['=', ':'])?.trim_end();
    let name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let before = before.strip_suffix(|c: char| name(c))?.trim_end_matches(name);
    let value = before_end_of_element(beginning(&text[at..], LONGEST).lines().next()?).trim_end();
    if let Some(mark) = before.chars().next_back().filter(|c| r#""'"#.contains(*c)) {
        let escapes = before.len() - 1 - before[..before.len() - 1].trim_end_matches('\\').len();
        let value = &value[..closing(value, &before[before.len() - 1 - escapes..])?];
        let length = line_end(value, escapes).unwrap_or(value.len());
        return Some(length).filter(|length| !value[..*length].contains([' ', '\t', mark]));
    }
    let listed = before.trim();
    let is_listed = listed.is_empty()
        || listed.ends_with(['→', '|', '>', '+', '#'])
        || listed.strip_suffix(':').is_some_and(is_place)
        || COMMANDS.iter().any(|command| listed.ends_with(command));
    let is_alone = is_listed && value.len() < LONGEST && !value.contains(char::is_whitespace);
    is_alone.then(|| before_end_of_string(value.trim_end_matches([',', ';'])))
}

/// Returns the last line of an element of XML, of the part of a chat or of a sentence in Chinese without what ends that.
pub(super) fn before_end_of_element(line: &str) -> &str {
    static END: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(
            r"<(?:/[A-Za-z][A-Za-z0-9_:.-]*|/?[a-z]+(?:_[a-z]+)+|br ?/?|[|｜][^|｜<>]+[|｜])>|<br$|\[/[A-Z_]+\]|[{WIDE_MARKS}]"
        ))
    });
    END.find(line).map_or(line, |end| &line[..end.start()])
}

/// Returns the length of the last line of a string in code without the mark that ends the string, and what is closed behind it.
fn before_end_of_string(line: &str) -> usize {
    let is_closing = |c: char| r#""'`\)]}"#.contains(c);
    let closed = line.trim_end_matches(is_closing);
    match line[closed.len()..].find(['"', '\'', '`']) {
        Some(mark) if !closed.contains(['"', '\'', '`']) => {
            line[..closed.len() + mark].trim_end_matches('\\').len()
        }
        _ => line.len(),
    }
}

/// Returns where the first line ends of what is between quotation marks with so many backslashes. The next line is none or has a name,
/// because a password may also have a backslash.
fn line_end(text: &str, escapes: usize) -> Option<usize> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let is_line = |text: &str| {
        let behind = text.trim_start_matches(is_name);
        text.is_empty()
            || text.starts_with('\\')
            || behind.len() < text.len() && behind.starts_with(['=', ':'])
    };
    let ends = text.match_indices(['n', 'r']).filter(|(at, _)| {
        let backslashes = at - text[..*at].trim_end_matches('\\').len();
        backslashes % (2 * escapes + 2) == escapes + 1
    });
    ends.map(|(at, _)| at).find(|at| is_line(&text[at + 1..])).map(|at| at - escapes - 1)
}

/// Returns the length of the characters with which a text begins that are neither blanks nor marks of strings and elements,
/// up to one that ends a value, unless they are too many.
fn run(text: &str) -> Option<usize> {
    let text = beginning(text, LONGEST);
    let run = text.find(|c: char| !c.is_ascii_graphic() || r#""'`\<>"#.contains(c)).unwrap_or(text.len());
    let ends = |at: &usize| {
        let next = text[*at..run].trim_start_matches(ENDS);
        let sign = next.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_.-".contains(c));
        next.is_empty() || sign.len() < next.len() && sign.starts_with(['=', ':'])
    };
    let end = text[..run].match_indices(ENDS).map(|(at, _)| at).find(ends);
    end.or((run < LONGEST).then_some(run))
}
