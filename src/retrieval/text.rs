//! Tokens of texts, for keys and for ranking. There is no stemmer and there are no stop words, because these would
//! not work for code and for languages other than English.

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// A run of letters and digits, or a single character in scripts without spaces between words.
    Word(&'a str),
    /// Any other character except white space.
    Mark(&'a str),
}

impl<'a> Token<'a> {
    /// Returns the characters of the token.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Mark(text) => text,
        }
    }
}

/// Returns the tokens of a text in lower case.
pub fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let inside = |c: char| c.is_alphanumeric() && !stands_alone(c);
        let end =
            if inside(first) { rest.find(|c| !inside(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (token, after) = rest.split_at(end);
        rest = after;
        Some(if first.is_alphanumeric() { Token::Word(token) } else { Token::Mark(token) })
    })
}

/// Returns the words of a text in lower case.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    tokens(text).filter_map(|token| match token {
        Token::Word(word) => Some(word),
        Token::Mark(_) => None,
    })
}

/// Separates the words of identifiers with spaces: `parseHTTP2` becomes `parse HTTP2`, and `login_button` becomes
/// `login button`.
#[must_use]
pub fn with_identifiers_split(text: &str) -> String {
    let mut split = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    for c in text.chars() {
        if before.is_lowercase() && c.is_uppercase() {
            split.push(' ');
        }
        split.push(if c == '_' { ' ' } else { c });
        before = c;
    }
    split
}

/// Returns the trigrams of a word as `pg_trgm` does: of the word with two spaces before it and one after it.
pub fn trigrams(word: &str) -> impl Iterator<Item = [char; 3]> {
    let mut window = [' '; 3];
    word.chars().chain([' ']).map(move |next| {
        window = [window[1], window[2], next];
        window
    })
}

/// Returns whether a character belongs to a script that is written without spaces (Thai to Khmer, Chinese and
/// Japanese).
fn stands_alone(c: char) -> bool {
    !c.is_ascii()
        && matches!(u32::from(c), 0x0E00..=0x109F | 0x1780..=0x17FF | 0x2E80..=0xA4CF | 0xF900..=0xFAFF | 0x2_0000..=0x3_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_languages_without_spaces_are_taken_apart() {
        let pieces = |text| tokens(text).map(Token::as_str).collect::<Vec<_>>();
        assert_eq!(pieces(" find *.rs | wc -l"), ["find", "*", ".", "rs", "|", "wc", "-", "l"]);
        assert_eq!(pieces("x86_64 größe"), ["x86", "_", "64", "größe"]);
        assert_eq!(pieces("基金を作る a"), ["基", "金", "を", "作", "る", "a"]);
        assert_eq!(pieces("  "), Vec::<&str>::new());
        assert_eq!(words("a-b").collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn identifiers_are_split_into_their_words() {
        assert_eq!(with_identifiers_split("func.*parseHTTP2"), "func.*parse HTTP2");
        assert_eq!(with_identifiers_split("LoginButton login_button"), "Login Button login button");
    }

    #[test]
    fn the_trigrams_of_a_word_are_those_of_pg_trgm() {
        let trigrams: Vec<String> = trigrams("cat").map(String::from_iter).collect();
        assert_eq!(trigrams, ["  c", " ca", "cat", "at "]);
    }
}
