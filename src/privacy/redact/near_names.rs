//! Tokens that are near the name of a secret, without a sign between them.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::{Expression, Match};
use super::named::{MORE, OTHER_NAME, WORDS, keys};
use super::other_forms::{is_checksum, is_in_arn, is_of_other_form, is_tag};
use super::random::{is_long_number, is_very_random};
use super::replacements::is_in_replacement;
use super::value_ends::{beginning, ending};

/// The number of bytes behind a name in which a token is probably its value, and the maximum number of bytes of the token.
const NEAR: usize = 80;
const LONGEST_TOKEN: usize = 200;
/// The number of bytes behind a name in which its value is, if that is the next line behind a sentence, and rulers.
const FAR: usize = 400;
/// The number of digits of a hexadecimal number that names a commit.
const COMMIT: usize = 40;
/// The maximum number of bytes of [`OTHER_NAME`].
const LONGEST_OTHER: usize = 24;

/// Adds the tokens that hardly anything but secrets looks like, and strings of hexadecimal digits, wherever they are behind a
/// name in the same line.
pub(super) fn near(text: &str, values: &mut Vec<Range<usize>>) {
    static NAME: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(r"(?i-u)(?:(?:(?:{WORDS})s?|[_-]pass){MORE}|{})\b", keys()))
    });
    static OTHER: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!("(?i-u){OTHER_NAME}$")));
    let is_secret = |name: &Match<'_>| {
        !OTHER.is_match(ending(&text[..name.end()], LONGEST_OTHER))
            && !is_counted(&text[..name.start()], name.as_str())
            && !is_in_replacement(text, name.start())
    };
    let mut names = NAME.find_iter(text).filter(is_secret).peekable();
    let mut read = 0;
    while let Some(name) = names.next() {
        let line = name.end() + reach(beginning(&text[name.end()..], FAR));
        // What is behind the next name belongs to that.
        let end = names.peek().map_or(line, |next| next.start().min(line));
        let mut at = read.max(name.end());
        while at < end {
            let rest = &text[at..];
            let token = rest.find(|c: char| !is_of_token(c)).unwrap_or(rest.len());
            let padding = rest[token..].bytes().take_while(|byte| *byte == b'=').count();
            if token <= LONGEST_TOKEN
                && (is_very_random(&rest[..token])
                    || is_string_of_digits(text, at..at + token)
                    || token != COMMIT && is_next(&text[name.end()..at]) && is_long_number(&rest[..token]))
                && !is_of_other_form(&rest[..token])
                && !is_tag(&text[..at], &rest[..token])
                && !is_in_arn(&text[..at])
                && !is_other(&text[name.end()..at], rest)
                && !is_checksum(&text[..name.start()], &text[name.start()..at], &rest[..token])
                && !is_in_head(text, name.start())
            {
                values.push(at..at + token + padding);
            }
            // The letter of an escape is not part of a token.
            let gap = if rest[token..].starts_with('\\') { 2 } else { 1 };
            at += token + rest[token..].chars().take(gap).map(char::len_utf8).sum::<usize>();
        }
        read = at.max(read);
    }
}

/// Returns whether a name is what a model has read or written, as in "1,234 input tokens". `before` is the text up to it.
fn is_counted(before: &str, name: &str) -> bool {
    static COUNT: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r"(?i-u)(?:(?:[0-9][0-9,]*[0-9]{3}|[0-9]{3}|[0-9]k|[0-9]m) (?:[a-z]+ )?|[0-9] (?:cached|completion|input|output|prompt|reasoning|thinking|total) )$",
        )
    });
    const LONGEST: usize = 40;
    name.eq_ignore_ascii_case("tokens") && COUNT.is_match(ending(before, LONGEST))
}

/// Returns whether the name at a position is a part of what a program writes before the message in a line of a log, which names
/// nothing in the message: a place in code, a process, a container, a label in brackets, or the module beside a level.
fn is_in_head(text: &str, at: usize) -> bool {
    static HEAD: LazyLock<Expression> = LazyLock::new(|| {
        const WORD: &str = "[A-Za-z0-9_./-]+";
        const LEVEL: &str = "(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)";
        let module = format!("{WORD}(?: ?:| -)");
        Expression::builtin(&format!(
            r"(?m-u)(?:^|[ \t])(?:{WORD}(?:(?::[A-Za-z_]+)?(?::[0-9]+){{1,2}}(?:[:\]]| -) |\[[0-9]+\]: |-[0-9]+[ \t]+\| )|\[{WORD}\] |{WORD}(?: -)? +{LEVEL}\b(?:[ :]+{module})?)|\b{LEVEL}[ :]+{module}"
        ))
    });
    let start = text.floor_char_boundary(at.saturating_sub(NEAR));
    let mut heads = HEAD.find_iter(beginning(&text[start..], 2 * NEAR));
    heads.any(|head| head.range().contains(&(at - start)))
}

/// Returns whether there is nothing but blanks and the bar of a table between a name and a token.
fn is_next(between: &str) -> bool {
    !between.is_empty() && between.chars().all(|c| " \t|│".contains(c))
}

/// Returns whether a part of a text is a string that is a long hexadecimal number, between quotation marks, and no name of a member.
fn is_string_of_digits(text: &str, part: Range<usize>) -> bool {
    const MARKS: [char; 3] = ['"', '\'', '`'];
    let digits = &text[part.clone()];
    let behind = text[part.end..].trim_start_matches('\\').strip_prefix(MARKS);
    is_long_number(digits)
        && text[..part.start].ends_with(MARKS)
        && behind.is_some_and(|behind| !behind.starts_with(':'))
}

/// Returns how much of what is behind a name belongs to it: the rest of the line, and the next members of an object in JSON, or the
/// only word of the next line if this one is the end of a sentence before it, which may be below a ruler or the first of a block of
/// code.
fn reach(text: &str) -> usize {
    let mut lines = text.split(r"\n").next().unwrap_or_default().split_inclusive('\n');
    let rest = lines.next().unwrap_or_default();
    if rest.len() <= NEAR && rest.trim_end().trim_end_matches('*').ends_with([':', '：']) {
        let is_ruler = |line: &str| line.trim().chars().all(|c| "=-_*~#─━═".contains(c));
        let is_before = |line: &&str| {
            is_ruler(line) || ["```", "~~~"].iter().any(|mark| line.trim_start().starts_with(mark))
        };
        let mut below = lines.peekable();
        let before: usize = std::iter::from_fn(|| below.next_if(is_before)).map(str::len).sum();
        let alone = below.next().filter(|line| !line.trim().contains(char::is_whitespace));
        return rest.len() + before + alone.map_or(0, str::len);
    }
    let is_member =
        |line: &&str| line.trim_start().split_once("\":").is_some_and(|(name, _)| name.starts_with('"'));
    let members = lines.take(2).take_while(is_member).map(str::len).sum::<usize>();
    beginning(text, NEAR).len().min(rest.len() + members)
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_+/~.-".contains(c)
}

/// Returns whether a token has a name of its own, rather than the last word of a sentence about it, or is a checksum in a lock
/// file, before which is the name of its algorithm.
fn is_other(before: &str, token: &str) -> bool {
    let open = |c: char| c == ' ' || r#""'`\["#.contains(c);
    let named =
        before.trim_end_matches(open).strip_suffix([':', '=']).unwrap_or_default().trim_end_matches(open);
    let (named, sign) = before.split_at(named.len());
    let (said, name) =
        named.split_at(named.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len());
    let is_said = (sign.ends_with(": ") || sign.ends_with(" = "))
        && !sign.contains(['"', '\'', '`'])
        && !said.trim_end_matches(' ').ends_with([',', ';', '{', '(', '[', '|', '&', '"', '\'', '\n']);
    // What is before a colon may also be the first of two values of which one is chosen.
    let is_choice = sign.contains(':')
        && said
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_.".contains(c))
            .trim_end()
            .ends_with('?');
    let name = name.to_ascii_lowercase();
    // DynamoDB names the type of each value, which is `S` for a string.
    let is_value = is_choice
        || ["", "s"].contains(&name.as_str())
        || ["value", "default"].iter().any(|end| name.ends_with(end));
    token.starts_with("sha") || !is_value && !is_said && !is_said_in_quotes(before, &name)
}

/// Returns whether the words between the name of a secret and a token are the rest of a sentence, because the token is between
/// quotation marks, as in "the password of the database: `…`", or one of the words is. `last` is the last one.
fn is_said_in_quotes(between: &str, last: &str) -> bool {
    static SENTENCE: LazyLock<Expression> = LazyLock::new(|| {
        const WORD: &str = "[a-z0-9_.'/@-]+";
        Expression::builtin(&format!(
            r#"^(?i-u)\*{{0,2}}(?: (?:{WORD}|["'`]{WORD}["'`]|\({WORD}(?: {WORD})*\)))+\*{{0,2}}(?::| =) \*{{0,2}}(?:\\?["'`])?$"#
        ))
    });
    // The last words of names of what belongs to a secret, or is beside one, and is none.
    const OTHERS: [&str; 16] = [
        "branch",
        "checksum",
        "commit",
        "digest",
        "etag",
        "fingerprint",
        "hash",
        "id",
        "ids",
        "image",
        "md5",
        "request",
        "revision",
        "sha",
        "sha256",
        "trace",
    ];
    // Those that a sentence also has for what the secret is for, or is in.
    const WHERE: [&str; 8] = ["build", "email", "file", "path", "session", "url", "user", "version"];
    const IN: [&str; 6] = [" at ", " for ", " in ", " of ", " on ", " with "];
    let is_one = |others: &[&str]| last.rsplit('_').next().is_some_and(|word| others.contains(&word));
    let is_where = || IN.iter().any(|word| between.contains(word));
    SENTENCE.is_match(between) && !is_one(&OTHERS) && (!is_one(&WHERE) || is_where())
}
