//! Cutting of texts that are redacted afterwards.

/// Returns the beginning of a text, of at most so many bytes. A word that would be cut is left out, because redaction
/// recognizes a secret only if it is whole.
#[must_use]
pub fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let cut = &text[..text.floor_char_boundary(most)];
    let is_part = |character: char| character.is_alphanumeric() || "_-.~+/=%:@".contains(character);
    let continues = text[cut.len()..].chars().next().is_some_and(is_part);
    if continues { cut.trim_end_matches(is_part) } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_cut() {
        for (text, most, expected) in [
            ("a token", 7, "a token"),
            ("a token", 6, "a "),
            ("a token, b", 7, "a token"),
            (r#"{"key":"abc"}"#, 10, r#"{"key":""#),
            ("tokens", 5, ""),
            ("é", 1, ""),
        ] {
            assert_eq!(beginning(text, most), expected, "{text} {most}");
        }
    }
}
