//! Signs: names in a text that are unlikely to appear elsewhere by chance. If they appear in what an agent does
//! later, the text was used.

use std::collections::BTreeSet;

/// The maximum number of signs of a text.
const MOST: usize = 16;
/// The maximum length of a sign in bytes.
const LONGEST: usize = 200;
/// The minimum length of a sign of letters, and of a number, in bytes.
const SHORTEST: usize = 4;

/// Returns the names in a text that are not among the `known` ones: identifiers, paths, codes and long numbers, each once, in
/// order. Ordinary words are not names.
pub fn signs<'a>(text: &'a str, known: &BTreeSet<&str>) -> Vec<&'a str> {
    let mut signs: Vec<&str> = Vec::new();
    for token in tokens(text).filter(|token| is_sign(token)) {
        if signs.len() == MOST {
            break;
        }
        if !signs.contains(&token) && !known.contains(token) {
            signs.push(token);
        }
    }
    signs
}

/// Returns the signs in what a person or an agent has written: each token, and the parts of paths and calls, because a name is
/// usually written with more around it.
pub fn written(text: &str) -> impl Iterator<Item = &str> {
    tokens(text).flat_map(|token| std::iter::once(token).chain(parts(token))).filter(|token| is_sign(token))
}

/// Returns the runs of characters that names consist of, without the punctuation of the sentence.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || ['_', '.', '/', ':', '-'].contains(&c);
    let runs = text.split(move |c| !is_part(c)).map(|run| run.trim_matches(['.', '/', ':', '-']));
    runs.filter(|run| !run.is_empty() && run.len() <= LONGEST)
}

/// Returns the parts of a path or a qualified name: `src`, `auth.py`, `auth` and `py` for `src/auth.py`.
fn parts(token: &str) -> impl Iterator<Item = &str> {
    let names = token.split(['/', ':']);
    names.flat_map(|name| std::iter::once(name).chain(name.split('.'))).filter(|part| !part.is_empty())
}

/// Returns whether a token is a name that is unlikely to appear by chance.
fn is_sign(token: &str) -> bool {
    if token.len() < SHORTEST {
        return false;
    }
    if token.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let bytes = token.as_bytes();
    let has_letter = token.chars().any(char::is_alphabetic);
    let joins = |pair: &[u8]| pair[0].is_ascii_alphanumeric() && pair[1] == b'_';
    let humps = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    let has_number = token.bytes().any(|byte| byte.is_ascii_digit()) && !token.contains(':');
    let is_path = token.trim_start_matches('/').contains('/') || has_extension(token);
    has_letter && (bytes.windows(2).any(|pair| joins(pair) || humps(pair)) || has_number || is_path)
}

/// Returns whether a token ends like a file name or a member: `auth.rs`, `cbu.create`.
fn has_extension(token: &str) -> bool {
    token.rsplit_once('.').is_some_and(|(name, extension)| {
        name.len() > 1 && extension.len() > 1 && extension.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identifiers_paths_codes_and_numbers_are_signs_and_words_are_none() {
        let text = "AuthMiddleware in src/auth.py refuses verify_jwt with E0308 on port 5433. Deploys happen on Tuesdays, at 401; \
                    see cbu.create.";
        assert_eq!(
            signs(text, &BTreeSet::new()),
            ["AuthMiddleware", "src/auth.py", "verify_jwt", "E0308", "5433", "cbu.create"]
        );
        assert_eq!(
            signs(
                text,
                &written("why does AuthMiddleware fail, on 5433, in crate::auth::verify_jwt?").collect()
            ),
            ["src/auth.py", "E0308", "cbu.create"]
        );
        assert!(signs("Deploys happen on Tuesdays. It is 2 p.m.", &BTreeSet::new()).is_empty());
    }

    #[test]
    fn a_sign_is_found_in_what_is_written_around_it() {
        let written: Vec<_> =
            written(r#"{"command": "grep -n verify_jwt( /srv/app/src/auth.py; db.example:5433"}"#).collect();
        for sign in ["verify_jwt", "auth.py", "5433"] {
            assert!(written.contains(&sign), "{sign}: {written:?}");
        }
    }

    proptest! {
        #[test]
        fn the_signs_of_any_text_are_few_and_stand_in_it(text in any::<String>()) {
            let signs = signs(&text, &BTreeSet::new());
            prop_assert!(signs.len() <= MOST);
            for sign in signs {
                prop_assert!(text.contains(sign));
                prop_assert!(written(&text).any(|written| written == sign));
            }
        }
    }
}
