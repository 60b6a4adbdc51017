//! Prompts that people write to agents.

use super::entry::Activity;
use crate::privacy::cut::beginning;

/// Beginnings of prompts which say that the agent has chosen the wrong file.
const OBJECTIONS: [&str; 16] = [
    "that's not it",
    "that is not it",
    "that's not the file",
    "that is not the file",
    "that's not the one",
    "that's the wrong",
    "that is the wrong",
    "this is the wrong",
    "not that file",
    "not that one",
    "not this file",
    "not this one",
    "wrong file",
    "the other file",
    "the other one",
    "i meant the",
];
/// Words that reject something if punctuation follows them.
const NO: [&str; 5] = ["no", "nope", "nah", "wrong", "nein"];
/// Words of which one must follow such a word, because a mere "no" may answer a question.
const INSTEAD: [&str; 6] = ["file", "instead", "meant", "one", "other", "wrong"];
/// The number of bytes of a prompt that are examined.
const HEAD: usize = 120;
/// The number of bytes of a prompt that are read. A query has at most a quarter as many characters.
const LONGEST: usize = 1 << 20;

/// Returns the beginning of a prompt that is read of it. A longer one would take long to redact.
pub(super) fn read(text: &str) -> String {
    beginning(text.trim(), LONGEST).to_owned()
}

/// Returns the activity of a prompt: a correction if it clearly says that the agent has chosen the wrong file, and
/// otherwise a prompt.
pub(super) fn activity(text: &str) -> Activity {
    if objects(text) { Activity::Correction } else { Activity::Prompt }
}

/// Returns whether a text begins with a rejection. "No tests yet" is not one, because no punctuation follows the
/// word.
fn objects(text: &str) -> bool {
    let text = text.trim_start();
    let head = text[..text.floor_char_boundary(HEAD)].to_lowercase().replace('\u{2019}', "'");
    if OBJECTIONS.iter().any(|words| head.starts_with(words)) {
        return true;
    }
    let end = head.find(|letter: char| !letter.is_alphabetic()).unwrap_or(head.len());
    let (word, rest) = head.split_at(end);
    let has_break = rest.starts_with([',', '.', '!', ';', ':', '\u{2014}']) || rest.starts_with(" - ");
    let mut words = rest.split(|letter: char| !letter.is_alphanumeric());
    NO.contains(&word) && has_break && words.any(|word| INSTEAD.contains(&word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prompt_corrects_where_it_begins_with_a_plain_objection() {
        for (text, expected) in [
            ("No, the other file.", true),
            ("Nope! I meant the parser", true),
            ("  that\u{2019}s the wrong file", true),
            ("Wrong file, look in src/ui", true),
            ("the other one please", true),
            ("no", false),
            ("No, thanks.", false),
            ("no tests yet, write one", false),
            ("no-op the other handler", false),
            ("Now, the other file", false),
            ("great, now update the styling", false),
            ("wrong results are shown for one input", false),
            ("", false),
        ] {
            assert_eq!(activity(text) == Activity::Correction, expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_prompt(text in any::<String>()) {
            prop_assert!(matches!(activity(&text), Activity::Prompt | Activity::Correction));
        }
    }
}
