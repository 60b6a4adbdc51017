//! The arguments of a program, parsed like getopt does.

/// The options of a program that take a value.
pub(super) struct Takes {
    /// Letters whose value is the rest of the word, or else the next word.
    pub(super) short: &'static str,
    /// A letter whose value, if it has one, is the rest of the word.
    pub(super) attached: Option<char>,
    /// Long options whose value may be the next word.
    pub(super) long: &'static [&'static str],
}

/// Options by letter or long name with their values, and the other arguments.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Arguments<'a> {
    options: Vec<(&'a str, &'a str)>,
    pub(super) rest: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Parses the arguments `words`.
    pub(super) fn new(words: &'a [String], takes: &Takes) -> Self {
        let mut arguments = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if word == "--" {
                arguments.rest.extend(words);
                break;
            } else if let Some(long) = word.strip_prefix("--") {
                let option = match long.split_once('=') {
                    Some(option) => option,
                    None if takes.long.contains(&long) => (long, words.next().unwrap_or("")),
                    None => (long, ""),
                };
                arguments.options.push(option);
            } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                for (at, letter) in letters.char_indices() {
                    let (name, value) = letters[at..].split_at(letter.len_utf8());
                    if takes.short.contains(letter) {
                        let value = if value.is_empty() { words.next().unwrap_or("") } else { value };
                        arguments.options.push((name, value));
                        break;
                    }
                    if takes.attached == Some(letter) {
                        arguments.options.push((name, value));
                        break;
                    }
                    arguments.options.push((name, ""));
                }
            } else {
                arguments.rest.push(word);
            }
        }
        arguments
    }

    /// Returns whether one of `names` is given.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(name, _)| names.contains(name))
    }

    /// Returns the values of `names`.
    pub(super) fn values(&self, names: &[&str]) -> Vec<&'a str> {
        self.options.iter().filter(|(name, _)| names.contains(name)).map(|(_, value)| *value).collect()
    }
}
