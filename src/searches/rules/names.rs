//! Names in texts, by which hints are found: identifiers of code, file names, and the words of paths and queries.
//! Only hashes of them are stored.

use std::collections::BTreeSet;

use crate::retrieval::keys::{Key, Space};

/// The minimum and maximum number of characters of an identifier that distinguishes files.
const IDENTIFIER: std::ops::RangeInclusive<usize> = 3..=64;
/// The maximum number of bytes of a file name that is recognized in a text.
const MOST_NAME: usize = 100;
/// The maximum number of characters of a file name extension that is recognized in a text.
const MOST_EXTENSION: usize = 6;
/// The number of characters that distinguish a word, so that `configure` and `configuration` are the same.
const STEM: usize = 6;
/// The maximum number of identifiers that are stored for what was seen of a file.
pub const MOST_IDENTIFIERS: usize = 1_024;

/// Computes the keys of names in a repository. The same name has another key in another repository or project.
#[derive(Debug, Clone)]
pub struct Names(Space);

impl Names {
    /// Makes the keys for a repository of a project.
    #[must_use]
    pub fn of(project: &str, repository: &str) -> Self {
        Self(Space::new(project, "name", repository))
    }

    /// Returns the keys of the identifiers in a text, each once.
    #[must_use]
    pub fn identifiers(&self, text: &str) -> BTreeSet<Key> {
        identifiers(text).map(|identifier| self.0.key(identifier)).collect()
    }

    /// Returns the keys of the file names in a text, each once.
    #[must_use]
    pub fn files(&self, text: &str) -> BTreeSet<Key> {
        files(text).map(|name| self.0.key(name)).collect()
    }

    /// Returns the key of the name of the file at a path.
    #[must_use]
    pub fn file(&self, path: &str) -> Key {
        self.0.key(path.rsplit('/').next().unwrap_or(path))
    }

    /// Returns the keys of the project, which no name has.
    #[must_use]
    pub fn of_project(&self) -> [Key; 2] {
        self.0.of_project()
    }

    /// Returns the keys of the words in a path or query, each once.
    #[must_use]
    pub fn words(&self, text: &str) -> BTreeSet<Key> {
        words(text).iter().map(|word| self.0.key(word)).collect()
    }
}

/// Returns keys in the form in which the database stores them: ascending, four bytes each. If there are too many, the
/// smallest are kept, so that the result does not depend on the order in which they were seen.
#[must_use]
pub fn packed(keys: &BTreeSet<Key>) -> Vec<u8> {
    keys.iter().take(MOST_IDENTIFIERS).flat_map(|key| key.to_be_bytes()).collect()
}

/// Returns the keys that [`packed`] has written.
pub fn unpacked(bytes: &[u8]) -> impl Iterator<Item = Key> + '_ {
    bytes.as_chunks().0.iter().map(|bytes| Key::from_be_bytes(*bytes))
}

/// Returns whether a key is among those that [`packed`] has written.
#[must_use]
pub fn is_among(key: Key, bytes: &[u8]) -> bool {
    bytes.as_chunks().0.binary_search_by_key(&key, |bytes| Key::from_be_bytes(*bytes)).is_ok()
}

/// Returns the identifiers in a text, as they are written.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let runs = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    runs.filter(|run| {
        IDENTIFIER.contains(&run.chars().count()) && !run.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Returns the words of a text that look like file names because they have an extension.
fn files(text: &str) -> impl Iterator<Item = &str> {
    let runs = text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
    let names = runs.map(|run| run.trim_end_matches(['.', '-']));
    names.filter(|name| {
        let Some((stem, extension)) = name.rsplit_once('.') else { return false };
        name.len() <= MOST_NAME
            && stem.contains(char::is_alphanumeric)
            && extension.len() <= MOST_EXTENSION
            && extension.starts_with(|c: char| c.is_ascii_alphabetic())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Returns the stems of the words of a text, also within identifiers: `parseHTTPUrl` contains `parse`, `http` and
/// `url`.
fn words(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let (mut word, mut before) = (String::new(), ' ');
    let mut characters = text.chars().peekable();
    let mut end = |word: &mut String| {
        if word.chars().count() > 1 {
            words.insert(word.chars().take(STEM).collect::<String>().to_lowercase());
        }
        word.clear();
    };
    while let Some(c) = characters.next() {
        let next_is_lower = characters.peek().is_some_and(|next| next.is_lowercase());
        let begins = !c.is_alphanumeric()
            || before.is_numeric() != c.is_numeric()
            || c.is_uppercase() && (!before.is_uppercase() || next_is_lower);
        if begins {
            end(&mut word);
        }
        if c.is_alphanumeric() {
            word.push(c);
        }
        before = c;
    }
    end(&mut word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identifiers_are_what_code_has_names_for() {
        let found: Vec<_> = identifiers("fn draw_login(x: u8, größe: Size) -> 12ab 0x1F {}").collect();
        assert_eq!(found, ["draw_login", "größe", "Size"]);
    }

    #[test]
    fn names_of_files_are_noticed_in_whatever_a_tool_prints() {
        let text = "src/ui/login.rs:12: see Button.test.tsx, .env.local and a.b.\n3.5 seconds, e.g. v1.2-rc.1 x.jsonlines";
        assert_eq!(
            files(text).collect::<Vec<_>>(),
            ["login.rs", "Button.test.tsx", ".env.local", "a.b", "e.g"]
        );
    }

    #[test]
    fn words_are_taken_out_of_identifiers_and_cut_to_their_stems() {
        let found: Vec<_> = words("src/LoginButton.created parseHTTPUrl2 x v10").into_iter().collect();
        assert_eq!(found, ["10", "button", "create", "http", "login", "parse", "src", "url"]);
        assert_eq!(words("configuration"), words("configured"));
    }

    #[test]
    fn a_name_has_another_key_in_another_repository() {
        let [one, other] = ["app", "web"].map(|repository| Names::of("p", repository).file("src/a.rs"));
        assert_ne!(one, other);
        assert_eq!(Names::of("p", "app").files("see a.rs"), BTreeSet::from([one]));
    }

    proptest! {
        #[test]
        fn what_was_packed_is_found_again(keys: BTreeSet<Key>, other: Key) {
            let bytes = packed(&keys);
            prop_assert_eq!(unpacked(&bytes).collect::<BTreeSet<_>>(), keys.clone());
            prop_assert_eq!(is_among(other, &bytes), keys.contains(&other));
            prop_assert!(keys.iter().all(|key| is_among(*key, &bytes)));
        }

        #[test]
        fn any_text_has_short_words(text in ".{0,200}") {
            prop_assert!(words(&text).iter().all(|word| word.chars().count() > 0));
            prop_assert!(identifiers(&text).all(|identifier| text.contains(identifier)));
            prop_assert!(files(&text).all(|name| text.contains(name)));
        }
    }
}
