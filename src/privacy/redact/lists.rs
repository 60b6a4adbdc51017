//! The elements of lists behind the names of secrets, also with comments and blank lines between them.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::other_forms::is_no_secret;
use super::replacements::end_of_replacement;
use super::value_ends::{LONGEST, bare, beginning, quoted};

/// What may be before a value or the first element of a list: a bracket, or the beginning of the argument of a call, which may make
/// an array, a vector or another list of a type.
pub(super) const OPENS: &str = r"(?:(?:&|\|\|[ \t]*)?(?:vec!)?(?:new\s+)?(?:(?:\[[0-9.]*\])*[a-z_][a-z0-9_.:]*(?:\([a-z0-9_., ]*\)[a-z0-9_.:?]*){0,3})?(?:<[a-z0-9_., ]+>\s*)?(?:(?:\[[0-9]*\]|\(\))\s*)?[(\[{]|-|<!\[cdata\[)";

/// What is between two elements of a list, which may be on lines of their own. The group is the quotation mark of the next one, if
/// it has one.
static NEXT: LazyLock<Expression> = LazyLock::new(|| {
    const COMMENT: &str = r"(?:(?:\#|//)(?u:[^\n\\])*)?";
    const END: &str = r"(?:\\+r)?(?:\r?\n|\\+n)";
    const MARK: &str = r#"\\*["'`]"#;
    Expression::builtin(&format!(
        r"^(?-u)(?:{MARK}(?: -> (?:null|\(known after apply\)))?)?(?:\s*,\s*({MARK})|,?[ \t]*{COMMENT}(?:{END}[ \t]*{COMMENT})+(?:(?:[*~+-]|[0-9]{{1,2}}[.)])[ \t]+)?({MARK})?)"
    ))
});

/// What follows in a list.
struct Next<'a> {
    /// Where it begins, and what separates it from what is before.
    at: usize,
    between: &'a str,
    /// The value, or the end of the first word if it looks like none.
    read: Result<Range<usize>, usize>,
}

/// Reads what follows in a list from a position on. What is far away is not looked at.
fn next(text: &str, from: usize) -> Option<Next<'_>> {
    let next = NEXT.captures_at(beginning(&text[from..], LONGEST), 0)?;
    let at = from + next.get_match().end();
    let mark = next.groups().next().map(|mark| mark.range().len());
    let read = mark.map_or_else(|| bare(text, at), |mark| quoted(text, at, &text[at - mark..at]));
    Some(Next { at, between: &text[from..at], read })
}

/// Returns the value behind a quoted one that begins at a position and becomes another one, as in a plan of Terraform.
pub(super) fn changed(text: &str, at: usize) -> Option<Range<usize>> {
    const SIGN: &str = "\" -> \"";
    let old = beginning(&text[at..], LONGEST).find('"').filter(|_| text[..at].ends_with('"'))?;
    let new = text[at + old..].strip_prefix(SIGN).map(|new| text.len() - new.len())?;
    quoted(text, new, "\"").ok().filter(|value| !is_no_secret(text, value.clone()))
}

/// Returns the further elements of a list whose first one is a value. The text before the value ends at `at`.
pub(super) fn elements(text: &str, at: usize, first: &Range<usize>) -> Vec<Range<usize>> {
    let before = text[..at].trim_end_matches(['"', '\'', '`', '\\']);
    let name = before.trim_end();
    let is_list = name.ends_with(['[', '{', '(', '-', '*', '.']) || before[name.len()..].contains('\n');
    let mut elements = Vec::new();
    let mut end = changed(text, first.start).map_or(first.end, |new| new.end);
    while is_list && let Some(Next { at, between, read }) = next(text, end) {
        // One that was replaced before was an element, too.
        if let Some(replaced) = end_of_replacement(text, at) {
            end = replaced;
            continue;
        }
        let Ok(next) = read else { break };
        if is_no_secret(text, next.clone()) || is_of_next_line(between, &text[next.end..]) {
            break;
        }
        let new = changed(text, next.start);
        elements.extend([next].into_iter().chain(new));
        end = elements.last().map_or(end, |last| last.end);
    }
    elements
}

/// Returns where the first element of a list begins behind comments, and what is read there. The list is open at a position, or
/// the comments begin at it.
pub(super) fn behind_words(text: &str, at: usize) -> Option<(usize, Result<Range<usize>, usize>)> {
    static OPEN: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!(r"^(?i-u)(?:{OPENS}[ \t]*){{1,3}}")));
    let open = OPEN.find(beginning(&text[at..], LONGEST)).map(|open| at + open.as_str().trim_end().len());
    let from = open.unwrap_or_else(|| text[..at].trim_end().len());
    let words = text[from..].trim_start();
    // A value may begin with such a sign, too.
    let are_words = (words.starts_with('#') || words.starts_with("//")) && words.len() < text[from..].len();
    if !are_words {
        return None;
    }
    next(text, from).map(|next| (next.at, next.read))
}

/// Returns whether what looks like a value below its name is none: it is of the line that it stands in.
pub(super) fn is_of_lines_below(text: &str, name: Range<usize>, value: &Range<usize>) -> bool {
    let behind = &text[value.end..];
    is_before_lines(text, name.start, value)
        || is_of_next_line(&text[name.clone()], behind)
        || is_of_next_item(&text[name.clone()], behind)
        || text[name].contains('\n') && is_variable(&text[value.clone()])
}

/// Returns whether what looks like a value is a variable with its own value, behind what a listing or a comparison has before it: the
/// name above has none.
fn is_variable(text: &str) -> bool {
    static VARIABLE: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(r"^(?:[^\s=]*[+:>#-])?(?:[A-Z_][A-Z0-9_]{2,}|[a-z_.]{3,})=[^=]")
    });
    VARIABLE.is_match(text)
}

/// Returns whether what looks like a value is the first word of the line below its name, as what stands before the lines of a log.
/// `name` ends where the value begins, and `behind` begins where it ends. A value is alone in its line, or the line before goes on.
fn is_of_next_line(name: &str, behind: &str) -> bool {
    let before = name.trim_end_matches(|c: char| c.is_whitespace() || "[({".contains(c));
    let is_below = name[before.len()..].contains('\n') && !before.ends_with('\\');
    let rest = behind.trim_start_matches([']', ')']);
    let next = rest.trim_start_matches([' ', '\t']);
    // Only a comment or what closes something is behind a value.
    let goes_on = |c: char| c.is_alphanumeric() || "[({\"'`|$@_.&".contains(c);
    is_below && next.len() < rest.len() && next.starts_with(goes_on)
}

/// Returns whether what looks like a value below the line of its name is of what stands before all lines, such as the commit before a
/// line of code: the name's line begins in the same way, but for the digits of hexadecimal numbers.
fn is_before_lines(text: &str, name: usize, value: &Range<usize>) -> bool {
    let is_alike =
        |(one, other): (&u8, &u8)| one == other || [one, other].iter().all(|c| c.is_ascii_hexdigit());
    let Some(end) = text[name..value.start].rfind('\n') else { return false };
    let head = &text.as_bytes()[name + end + 1..value.end];
    let begin = text[..name].rfind('\n').map_or(0, |end| end + 1);
    let above = text.as_bytes()[begin..name].get(..head.len());
    above.is_some_and(|above| above.iter().zip(head).all(is_alike))
}

/// Returns whether what looks like a value between quotation marks is the id with which an item of a list begins, behind an item whose
/// last word is a name. A value is alone in its line, besides a comment.
fn is_of_next_item(name: &str, behind: &str) -> bool {
    const MARKS: [char; 4] = ['"', '\'', '`', '\\'];
    let outside = name.trim_end_matches(MARKS);
    let before = outside.trim_end_matches(|c: char| c.is_whitespace() || "-*".contains(c));
    let is_below = outside[before.len()..].contains('\n') && before.ends_with(char::is_alphanumeric);
    if outside.len() == name.len() || !is_below {
        return false;
    }
    let rest = beginning(behind, LONGEST).lines().next().unwrap_or_default().trim_start_matches(MARKS);
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ",;.)]}".contains(c));
    !rest.is_empty() && !rest.starts_with('#') && !rest.starts_with("//")
}
