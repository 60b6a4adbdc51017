//! The change between a program that failed and the program that repaired it.

use super::kinds::kind_of;

/// A change of a program, with placeholders for names and numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// The text that was removed. Empty if the change only added something.
    pub removed: String,
    /// The text that was added. Empty if the change only removed something.
    pub added: String,
}

impl Change {
    /// Returns the change from one program to another: everything from the first difference to the last. Returns none
    /// if they differ only in white space.
    pub fn between(before: &str, after: &str) -> Option<Self> {
        let (before, after): (Vec<_>, Vec<_>) = (tokens(before).collect(), tokens(after).collect());
        let same = |(a, b): &(&&str, &&str)| a == b;
        let begin = before.iter().zip(&after).take_while(same).count();
        let (before, after) = (&before[begin..], &after[begin..]);
        let end = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
        let told = |tokens: &[&str]| kind_of(&tokens[..tokens.len() - end].join(" "));
        let change = Self { removed: told(before), added: told(after) };
        (before.len() > end || after.len() > end).then_some(change)
    }
}

/// Divides a program into words, strings and other characters.
fn tokens(program: &str) -> impl Iterator<Item = &str> {
    let mut rest = program.trim_start();
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = match first {
            '"' | '\'' => rest[1..].find(first).map_or(1, |end| end + 2),
            _ if is_of_word(first) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let token = &rest[..length];
        rest = rest[length..].trim_start();
        Some(token)
    })
}

/// Returns whether a character belongs to a word, such as `:name`, `cbu.create` or `is-valid?`.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || "_.:-?!/@".contains(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_change_is_what_differs_without_names_and_numbers() {
        for (before, after, expected) in [
            ("(cbu.créate :name \"A\")", "(cbu.create :name \"A\")", Some(("cbu.créate", "cbu.create"))),
            ("(cbu.create)", "(cbu.create :kind \"B\")", Some(("", ":kind <name>"))),
            ("(a (b) (b))", "(a (b))", Some(("( b )", ""))),
            (
                "select a from t limit 5",
                "select a, b from t limit 7",
                Some(("from t limit <number>", ", b from t limit <number>")),
            ),
            ("(a  b)", "(a\n b )", None),
            ("\"open", "'open", Some(("\"", "'"))),
            ("", "x", Some(("", "x"))),
        ] {
            let change = Change::between(before, after);
            let told = change.as_ref().map(|change| (change.removed.as_str(), change.added.as_str()));
            assert_eq!(told, expected, "{before} {after}");
        }
    }

    proptest! {
        #[test]
        fn equal_programs_are_not_changed_and_others_are(a in "\\PC{0,40}", b in "\\PC{0,40}") {
            let is_same = tokens(&a).eq(tokens(&b));
            prop_assert_eq!(Change::between(&a, &b).is_none(), is_same);
            prop_assert_eq!(Change::between(&a, &a), None);
        }
    }
}
