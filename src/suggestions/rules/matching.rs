//! How the text that a user submitted relates to the suggestions offered to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a submitted text matches a slate.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, sqlx::Type,
)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum MatchType {
    /// The text is a suggestion, word for word.
    Exact,
    /// The text begins with a suggestion and continues.
    Partial,
    /// The text is the beginning of a suggestion.
    Prefix,
    /// The text is none of these.
    None,
}

impl MatchType {
    /// Returns the value that is stored and sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Partial => "partial",
            Self::Prefix => "prefix",
            Self::None => "none",
        }
    }
}

impl std::str::FromStr for MatchType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Exact, Self::Partial, Self::Prefix, Self::None]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("{text:?} is none of exact, partial, prefix and none"))
    }
}

/// How a submitted text relates to a slate, and to which suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// How the text relates to the slate.
    pub kind: MatchType,
    /// The index of the suggestion that the text relates to, or none.
    pub index: Option<usize>,
}

/// Finds the best match of `input`: an exact one before a partial one, and that before a prefix. Of equal
/// suggestions, and of those that the input is the beginning of, the one `displayed` is preferred, then the
/// first. Of those that the input begins with, the longest is preferred. Empty texts match nothing, and
/// nothing is trimmed.
pub fn classify(input: &str, suggestions: &[impl AsRef<str>], displayed: Option<usize>) -> Match {
    let best = |fits: &dyn Fn(&str) -> bool| {
        let fitting = suggestions.iter().map(AsRef::as_ref).enumerate().filter(|(_, text)| fits(text));
        fitting.max_by_key(|(index, text)| (text.len(), displayed == Some(*index), std::cmp::Reverse(*index)))
    };
    let first = |fits: &dyn Fn(&str) -> bool| {
        let fits_at = |index: &usize| suggestions.get(*index).is_some_and(|text| fits(text.as_ref()));
        displayed.filter(fits_at).or_else(|| (0..suggestions.len()).find(fits_at))
    };
    let none = Match { kind: MatchType::None, index: None };
    if input.is_empty() {
        return none;
    }
    let found = |kind| move |index| Match { kind, index: Some(index) };
    first(&|text| text == input)
        .map(found(MatchType::Exact))
        .or_else(|| {
            let begun_with = best(&|text| !text.is_empty() && input.starts_with(text));
            begun_with.map(|(index, _)| index).map(found(MatchType::Partial))
        })
        .or_else(|| first(&|text| text.starts_with(input)).map(found(MatchType::Prefix)))
        .unwrap_or(none)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matched(input: &str, suggestions: &[&str], displayed: Option<usize>) -> (&'static str, Option<usize>) {
        let Match { kind, index } = classify(input, suggestions, displayed);
        (kind.as_str(), index)
    }

    #[test]
    fn the_best_match_wins_wherever_it_stands() {
        for (input, suggestions, displayed, expected) in [
            ("ls -l", &["ls", "ls -l"][..], None, ("exact", Some(1))),
            ("ls", &["ls -l", "ls", "ls"], Some(2), ("exact", Some(2))),
            ("ls", &["ls", "ls"], Some(7), ("exact", Some(0))),
            ("ls -la", &["l", "ls -l", "ls"], Some(0), ("partial", Some(1))),
            ("ls -la", &["ls", "ls"], Some(1), ("partial", Some(1))),
            ("ls -la", &["ls -la /", "ls"], Some(0), ("partial", Some(1))),
            ("l", &["cd", "ls -l", "ls"], None, ("prefix", Some(1))),
            ("l", &["ls -l", "ls"], Some(1), ("prefix", Some(1))),
            ("l", &["ls -l", "cd"], Some(1), ("prefix", Some(0))),
            ("pwd", &["ls", ""], None, ("none", None)),
            ("", &["ls", ""], Some(1), ("none", None)),
            ("ls ", &[" ls"], None, ("none", None)),
            ("ls", &[], Some(0), ("none", None)),
        ] {
            assert_eq!(matched(input, suggestions, displayed), expected, "{input:?} of {suggestions:?}");
        }
    }

    proptest! {
        #[test]
        fn a_match_is_what_it_says_and_no_better_one_exists(
            input in "[ab]{0,4}", suggestions in proptest::collection::vec("[ab]{0,4}", 0..6), displayed in proptest::option::of(0..7_usize),
        ) {
            let Match { kind, index } = classify(&input, &suggestions, displayed);
            let usable = || suggestions.iter().filter(|text| !text.is_empty() && !input.is_empty());
            let exact = || usable().filter(|text| **text == input);
            let partial = || usable().filter(|text| input.starts_with(text.as_str()) && **text != input);
            let prefix = || usable().filter(|text| text.starts_with(&input) && **text != input);
            let expected = if exact().count() > 0 {
                MatchType::Exact
            } else if partial().count() > 0 {
                MatchType::Partial
            } else if prefix().count() > 0 {
                MatchType::Prefix
            } else {
                MatchType::None
            };
            prop_assert_eq!(kind, expected);
            prop_assert_eq!(index.is_none(), kind == MatchType::None);
            let Some(index) = index else { return Ok(()) };
            let text = &suggestions[index];
            let of_kind = |text: &String| match kind {
                MatchType::Exact => exact().any(|other| other == text),
                MatchType::Partial => partial().any(|other| other == text),
                MatchType::Prefix | MatchType::None => prefix().any(|other| other == text),
            };
            prop_assert!(of_kind(text));
            if kind == MatchType::Partial {
                prop_assert!(partial().all(|other| other.len() <= text.len()));
            }
            if let Some(shown) = displayed.and_then(|shown| suggestions.get(shown).map(|text| (shown, text)))
                && of_kind(shown.1) && (kind != MatchType::Partial || shown.1.len() == text.len())
            {
                prop_assert_eq!(index, shown.0);
            } else {
                let first = suggestions.iter().position(|other| {
                    of_kind(other) && (kind != MatchType::Partial || other.len() == text.len())
                });
                prop_assert_eq!(Some(index), first);
            }
        }
    }
}
