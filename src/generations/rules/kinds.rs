//! Texts that differ only in names, numbers and addresses, made equal.

use std::net::IpAddr;

use uuid::Uuid;

/// How much of a text is looked at, in bytes.
const LOOKED_AT: usize = 2_000;
/// The maximum number of characters of the result.
const LONGEST: usize = 200;

/// What quotes a name, and what ends it.
const QUOTES: [(char, char); 6] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('‘', '’'), ('«', '»')];

/// What separates tokens, besides blanks.
const SEPARATORS: &str = "\"'`“”‘’«»()[]{}<>,;";

/// Returns the first line of a message with its quoted names, numbers, ids, paths and addresses replaced by placeholders.
/// Messages that are equal then are of one kind.
pub fn kind_of(message: &str) -> String {
    let line = message.trim().lines().next().unwrap_or_default().trim_end();
    let mut left = Left { text: &line[..line.floor_char_boundary(LOOKED_AT)], ..Left::default() };
    let mut kind = String::with_capacity(left.text.len());
    let mut follows_word = false;
    while let Some(next) = left.text.chars().next() {
        let rest = left.text;
        let (length, text) = match (!follows_word).then(|| left.placeholder(next)).flatten() {
            Some((length, placeholder)) => (length, placeholder),
            None if next.is_whitespace() => (rest.len() - rest.trim_start().len(), " "),
            None => {
                let length = word(rest).max(next.len_utf8());
                (length, &rest[..length])
            }
        };
        kind.push_str(text);
        follows_word = rest[..length].ends_with(is_of_word);
        left.text = &rest[length..];
    }
    if let Some((end, _)) = kind.char_indices().nth(LONGEST) {
        kind.truncate(end);
        kind.push('…');
    }
    // Many kinds are kept, and few are as long as their messages.
    kind.shrink_to_fit();
    kind
}

/// The part of a message that is still to be read, and what is known of it, so that no part is searched again for each of its
/// characters.
#[derive(Default)]
struct Left<'a> {
    text: &'a str,
    /// The quotation marks that end nothing any more.
    unclosed: String,
    /// How many bytes there are behind the current token, and behind that without the marks at its end.
    behind: Option<(usize, usize)>,
}

impl<'a> Left<'a> {
    /// Returns the length of what the text begins with, and what stands for it, if it is something to be replaced.
    fn placeholder(&mut self, first: char) -> Option<(usize, &'static str)> {
        if let Some(&(_, end)) = QUOTES.iter().find(|(begin, _)| *begin == first) {
            return Some((first.len_utf8() + self.quoted(&self.text[first.len_utf8()..], end)?, "<name>"));
        }
        let token = self.token();
        if token.get(..36).is_some_and(|id| Uuid::try_parse(id).is_ok())
            && !token[36..].starts_with(is_of_word)
        {
            return Some((36, "<id>"));
        }
        let has_host = |(user, host): (&str, &str)| !user.is_empty() && host.contains('.');
        if token.contains("://") || token.split_once('@').is_some_and(has_host) {
            return Some((token.len(), "<address>"));
        }
        // What comes behind a colon is a port, a line or a column.
        let token = token.split(':').next().unwrap_or_default();
        let hexadecimal = token.strip_prefix("0x").unwrap_or_default();
        let is_hexadecimal =
            !hexadecimal.is_empty() && hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hexadecimal || token.parse::<IpAddr>().is_ok() {
            return Some((token.len(), "<address>"));
        }
        let is_path = |token: &str| {
            let (folder, file) = token.rsplit_once('/').unwrap_or_default();
            token.len() > 1 && token.starts_with('/') || !folder.is_empty() && file.contains('.')
        };
        if is_path(token) {
            return Some((token.len(), "<path>"));
        }
        let is_digit = |c: char| c.is_ascii_digit();
        let digits = token.find(|c: char| !is_digit(c) && c != '.').unwrap_or(token.len());
        token.starts_with(is_digit).then(|| (token[..digits].trim_end_matches('.').len(), "<number>"))
    }

    /// Returns the length of what stands in quotation marks, with the one that ends it.
    fn quoted(&mut self, quoted: &str, end: char) -> Option<usize> {
        if self.unclosed.contains(end) {
            return None;
        }
        // An apostrophe within a word ends nothing.
        let mut ends = quoted.match_indices(end).map(|(place, quote)| place + quote.len());
        let length = ends.find(|&place| !quoted[place..].starts_with(is_of_word));
        if length.is_none() {
            self.unclosed.push(end);
        }
        length
    }

    /// Returns the rest of the current token.
    fn token(&mut self) -> &'a str {
        let left = self.text.len();
        let (_, behind) = match self.behind {
            Some(behind) if behind.0 < left => behind,
            _ => {
                let ends = |c: char| c.is_whitespace() || SEPARATORS.contains(c);
                let token = self.text.split(ends).next().unwrap_or_default();
                let word = token.trim_end_matches(['.', ':', '!', '?']);
                *self.behind.insert((left - token.len(), left - word.len()))
            }
        };
        &self.text[..left.saturating_sub(behind)]
    }
}

/// Returns the length of the word that a text begins with. A word holds points, as `cbu.create` does, but does not end with one.
fn word(text: &str) -> usize {
    let end = text.find(|c: char| !is_of_word(c) && c != '.').unwrap_or(text.len());
    text[..end].trim_end_matches('.').len()
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_numbers_and_addresses_make_no_difference() {
        for (message, kind) in [
            ("Unknown verb: cbu.créate", "Unknown verb: cbu.créate"),
            ("no such column: \"T1.name\" in 'flights'", "no such column: <name> in <name>"),
            ("can't open `a b`: it doesn't exist", "can't open <name>: it doesn't exist"),
            ("‘x’ is not “y” but «z»", "<name> is not <name> but <name>"),
            (
                "line 12, column 3.5: 7ms at v2 of T1",
                "line <number>, column <number>: <number>ms at v2 of T1",
            ),
            ("timeout after 30.", "timeout after <number>."),
            ("refused by 10.0.0.1:5432 (http://a.b/c?d=1)", "refused by <address>:<number> (<address>)"),
            ("panic at 0x7f3a: jane@example.com", "panic at <address>: <address>"),
            (
                "/tmp/a b.dsl:3:14: src/x.rs and/or 1/2",
                "<path> b.dsl:<number>:<number>: <path> and/or <number>/<number>",
            ),
            ("log 01946983-4c40-7a1c-9d3e-5b0f6c2e8a71 failed", "log <id> failed"),
            ("  the first line  \nand the second", "the first line"),
            ("an \"unclosed quote", "an \"unclosed quote"),
            ("", ""),
        ] {
            assert_eq!(kind_of(message), kind, "{message}");
        }
        assert_eq!(kind_of(&"x ".repeat(5_000)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn a_message_is_not_searched_again_for_each_of_its_characters() {
        let count = |message: &str| {
            let mut left = Left { text: message, ..Left::default() };
            let mut searches = 0;
            while let Some(next) = left.text.chars().next() {
                let before = (left.behind, left.unclosed.len());
                assert_eq!(left.placeholder(next), None);
                searches += usize::from(before != (left.behind, left.unclosed.len()));
                left.text = &left.text[next.len_utf8()..];
            }
            searches
        };
        assert_eq!(count(&"-!".repeat(500)), 1);
        assert_eq!(count(&"'a".repeat(500)), 1 + 500, "each apostrophe separates two tokens");
    }

    proptest! {
        #[test]
        fn what_stands_in_quotes_and_numbers_decides_nothing(
            before in "[a-z ]{0,20}", names in ["[a-z0-9 ./:]{1,10}", "[a-z0-9 ./:]{1,10}"], numbers in any::<[u32; 2]>(),
        ) {
            let message = |place: usize| format!("{before} '{}' on line {}", names[place], numbers[place]);
            prop_assert_eq!(kind_of(&message(0)), kind_of(&message(1)));
        }

        #[test]
        fn any_message_has_a_short_kind_of_one_line(message in "\\PC{0,300}(\n\\PC{0,20})?") {
            let kind = kind_of(&message);
            prop_assert!(kind.chars().count() <= LONGEST + 1 && !kind.contains('\n'));
            prop_assert_eq!(kind.is_empty(), message.trim().is_empty());
        }
    }
}
