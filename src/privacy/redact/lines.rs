//! What programs write before each line of a text: numbers and paths in listings, signs in comparisons, names of containers and
//! times in logs, and marks of quotations and comments. It separates a name at the end of a line from its value on the next one.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::{Captures, Expression};
use super::other_forms::ARN;
use super::plain::Plain;

/// The end of a line and what stands before the next one. The end may be the escape of a language, in whose texts are lines.
static BEFORE: LazyLock<Expression> = LazyLock::new(|| {
    const COMMENT: &str = r"(?:#|//[/!]?) ?";
    const LISTED: [&str; 9] = [
        // A time, as container engines and the journal write it.
        r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,Z+-]+\]? (?:std(?:out|err) [FP] )?",
        r"[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} \S+ \S+: ",
        // A path with the number of a line, or of a file with an extension, as `grep` writes them before a match or beside one. What
        // has a separator of files before it is rather the date in a row.
        r#"[^\s|\\<>="',;]*?[:-][0-9]+[:-]"#,
        r#"[^\s|\\<>="':]+\.[a-z]{1,5}[:-]"#,
        // The name of a container, as `docker compose logs` and `kubectl logs` write it.
        r#"[^\s|\\<>="':]+[ \t]+\|[ \t]"#,
        r"\[[^\]\s\\]+\] ",
        // A commit, its author and time, and the number of a line, as `git blame` writes them.
        r"\^?[0-9a-f]{7,40}(?:[ \t]|\\+t)+(?:[^()\s\\]+ +)?(?:\([^()\n]*?(?: |\t|\\+t))?[0-9]+\) ?",
        r"[<>│┃] ",
        COMMENT,
    ];
    // A line's number, as `cat -n`, Claude Code and compilers write it, or OpenCode, which writes the first one behind a tag. A second
    // one is a cell of the line.
    const NUMBER: &str = r"L?[0-9]+(?:→|\t|\\+t|: ?|[-|] ?)";
    const BLANKS: &str = r"(?:[ \t]|\\+t)*";
    // A comparison may be one of lines that are commented out.
    const SIGN: &str = r"\+{1,2}(?:-- )?|~|(?<old>-(?:-- |-)?)";
    let listed = LISTED.join("|");
    Expression::builtin(&format!(
        r"(?:\A|(?<end>\n|(?:\\+r)?\\+n(?:\\+t)*))(?:{BLANKS}(?:{listed}))?(?:{BLANKS}(?:<[a-z_-]+>)?{NUMBER})?(?<more>{BLANKS}(?:{listed}))?(?:(?:[ \t]+[0-9]+[ \t]+)?(?:{SIGN})(?<comment>[ \t]*(?:{COMMENT}|> ?))?)?(?:(?<item>[ \t]+- )|[ \t]+[+~] )?(?:\\+t)*"
    ))
});

/// The number of lines that are read without what stands before them. What is kept of each would otherwise take many times as
/// much memory as a text of short lines.
pub(super) const MOST_LINES: usize = 100_000;

/// The beginning of a line.
struct Head {
    /// Where the end of the line before it is, and what stands before the line.
    range: Range<usize>,
    /// Where something begins that stands behind something else, and may be the first cell of a row.
    more: Option<usize>,
    /// Where the mark of a comment or a quotation begins behind the sign of a comparison.
    comment: Option<usize>,
    /// Where the sign begins of an element of a list, or of what a plan removes, if that is the last of what stands there.
    item: Option<usize>,
    /// How many bytes the end of the line before it has, if there is one, with the escapes of tabs behind one that is escaped.
    bytes_of_end: usize,
    /// Whether the line is a comment.
    is_comment: bool,
    /// Whether the line is of the older version of a comparison.
    is_old: bool,
}

impl Head {
    /// Returns where what stands before the line is, without the mark of a comment.
    fn before_comment(&self) -> Range<usize> {
        self.range.start..self.comment.unwrap_or(self.range.end)
    }

    /// Returns where what stands before the line is, without the mark of a comment or the sign of an element.
    fn before_item(&self) -> Range<usize> {
        self.range.start..self.comment.or(self.item).unwrap_or(self.range.end)
    }

    /// Returns where the first of what stands before the line is.
    fn before_more(&self) -> Range<usize> {
        self.range.start..self.more.unwrap_or(self.before_comment().end)
    }

    /// Returns where what stands before the line is, with the mark of a comment, without the sign of an element.
    fn with_comment(&self) -> Range<usize> {
        self.range.start..self.item.unwrap_or(self.range.end)
    }

    /// Returns where the end of the line before it is.
    fn end_of_line(&self) -> Range<usize> {
        self.range.start..self.range.start + self.bytes_of_end
    }

    /// Returns whether the end of the line before it is an escape.
    fn is_escaped(&self) -> bool {
        self.bytes_of_end > 1
    }

    /// Returns whether a part of this is more than a line feed, which an escape is.
    fn is_more(&self, part: &Range<usize>) -> bool {
        part.len() > self.bytes_of_end.min(1)
    }
}

/// Returns the text without what stands before its lines, in all ways in which something does. Each view is a copy of the text, so
/// that they are made one after the other.
pub(super) fn views(text: &str) -> impl Iterator<Item = Plain> {
    let others: [fn(&str) -> Option<Plain>; 2] = [repeated, headed];
    listed(text).chain(others.into_iter().filter_map(move |view| view(text)))
}

/// A view that is made if it is needed for one of the lines. Of each line, it leaves out the part of the text that the second function
/// returns, to which the end of the line is given.
type View = (fn(&Head) -> bool, fn(&Head, usize) -> Range<usize>);

/// The views without what is of a known form before lines.
const LISTED: [View; 6] = [
    (|head| head.is_more(&head.before_item()), |head, _| head.before_item()),
    (|head| head.item.is_some() && head.comment.is_none(), |head, _| head.before_comment()),
    (|head| head.more.is_some(), |head, _| head.before_more()),
    // In a list that is compared, comments stand between the elements, so that this is not the only view.
    (|head| head.comment.is_some(), |head, _| head.with_comment()),
    // Comments stand between the elements of lists, and these may be in strings.
    (|head| head.is_comment && head.is_escaped(), |head, _| head.end_of_line()),
    // The new version of a comparison, because an old value stands between a name and the new one.
    (|head| head.is_old, |head, end| if head.is_old { head.range.start..end } else { head.before_comment() }),
];

/// Returns the text without what is of a known form before its lines.
fn listed(text: &str) -> impl Iterator<Item = Plain> {
    let is_comparison = text.starts_with("@@ -") || text.contains("\n@@ -");
    let head = |found: Captures<'_>| {
        let before = found.get_match();
        // The region and the account in the name of a resource of AWS look like the numbers of lines.
        let length = before.as_str().find(ARN).unwrap_or(before.range().len());
        // What both versions have is behind a blank in a comparison. A number behind that is the first cell of a row.
        let head = before.as_str().trim_start_matches('\n');
        let is_cell = || head.ends_with('\t') && head.trim().bytes().all(|byte| byte.is_ascii_digit());
        let is_unchanged =
            is_comparison && text[before.start()..].starts_with("\n ") && (head.is_empty() || is_cell());
        let length = if is_unchanged { 2 } else { length };
        let range = before.start()..before.start() + length;
        let start = |name| found.name(name).map(|part| part.start()).filter(|start| range.contains(start));
        Head {
            bytes_of_end: found.name("end").map_or(0, |end| end.range().len()),
            is_comment: text[range.clone()].trim_end().ends_with(['#', '/', '!']),
            more: start("more"),
            comment: start("comment"),
            item: start("item"),
            range,
            is_old: found.name("old").is_some(),
        }
    };
    let heads: Vec<Head> = BEFORE.captures_iter(text).take(MOST_LINES).map(head).collect();
    let is_needed = |view: &View| heads.iter().any(view.0);
    let needed: Vec<_> = LISTED.into_iter().filter(is_needed).collect();
    needed.into_iter().map(move |(_, before)| {
        let ends = heads.iter().skip(1).map(|next| next.range.start).chain([text.len()]);
        let parts = heads
            .iter()
            .zip(ends)
            .map(|(head, end)| (before(head, end), (head.bytes_of_end > 0).then_some('\n')));
        Plain::without(text, parts)
    })
}

/// Returns a text in which the strings of a language, such as those of JSON in a log, are lines of their own, and so are the lines
/// that are escaped in them. Tables may be in strings, whose rows are lines.
pub(super) fn strings(text: &str) -> Option<Plain> {
    static SIGN: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(r#"(?<line>(?:\\+r)?\\+n|["'`])|(?<tab>\\+t)|\\+["'`]"#));
    let instead = |found: Captures<'_>| {
        let names = [("line", '\n'), ("tab", '\t')];
        let sign =
            names.into_iter().find(|(name, _)| found.name(name).is_some()).map_or('"', |(_, sign)| sign);
        (found.get_match().range(), Some(sign))
    };
    let has_lines = text.contains(r"\n") && text.contains(['"', '\'', '`']);
    has_lines.then(|| Plain::without(text, SIGN.captures_iter(text).take(MOST_LINES).map(instead)))
}

/// The number of bytes that stand before a line at most if the line before it begins in the same way.
const LONGEST: usize = 200;

/// Returns the text without that with which a line begins in the same way as the one before it, apart from digits: the time, the
/// name of the program and the like, as logs have before each line.
fn repeated(text: &str) -> Option<Plain> {
    let (mut start, mut before) = (0, text.split('\n').nth(1)?);
    let mut parts = Vec::new();
    for line in text.split('\n').take(MOST_LINES) {
        let length = in_common(before, line);
        if length > 0 {
            parts.push((start..start + length, None));
        }
        start += line.len() + 1;
        before = line;
    }
    (!parts.is_empty()).then(|| Plain::without(text, parts))
}

/// Returns the text without that with which several lines begin in the same way, of all of which as many bytes are left out. The
/// cells of a table may be alike in some rows, too, but not in its head.
fn headed(text: &str) -> Option<Plain> {
    let (mut start, mut first, mut length) = (0, "", 0);
    let mut lines = text.split('\n').take(MOST_LINES).peekable();
    let mut parts = Vec::new();
    while let Some(line) = lines.next() {
        if length == 0 || in_common(first, line) < length {
            (first, length) = (line, lines.peek().map_or(0, |next| in_common(line, next)));
        }
        if length > 0 {
            parts.push((start..start + length, None));
        }
        start += line.len() + 1;
    }
    (!parts.is_empty()).then(|| Plain::without(text, parts))
}

/// Returns the number of bytes with which two lines begin in the same way, apart from digits, up to a blank or a colon, if there is
/// more than words in them.
fn in_common(one: &str, other: &str) -> usize {
    let is_same = |(one, other): &(u8, u8)| one == other || one.is_ascii_digit() && other.is_ascii_digit();
    let pairs = one.bytes().zip(other.bytes()).take(LONGEST);
    let same = &other[..other.floor_char_boundary(pairs.take_while(is_same).count())];
    // The names in an object belong to the values behind them.
    let same = same.split('{').next().unwrap_or_default();
    let end = same.rfind([' ', '\t', ':']).map_or(0, |end| end + 1);
    let head = &same[..end];
    // The level of a message is before a colon, and a path in code has two of them.
    let is_level = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_logged = head.contains(|c: char| c.is_ascii_digit() || "|│┃>@\t".contains(c))
        || head.contains(": ")
        || head.split_once(':').is_some_and(|(level, _)| is_level(level));
    // A word with several blanks behind it is a cell, without which the other columns would be below other names, or a time.
    let word = head.trim_end_matches(' ');
    let is_cell = head.len() > word.len() + 2 && !word.contains([' ', '\t', ':']);
    if is_logged && !is_cell { end } else { 0 }
}
