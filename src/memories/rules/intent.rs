//! Detects the intent of queries with a table of patterns: the first type with a matching pattern.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::terms::written_terms;

/// The maximum number of keywords of a conversation.
const MOST_KEYWORDS: usize = 20;

/// The intent type of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum IntentType {
    /// To build something.
    Implementation,
    /// To learn how something is done, or what it is.
    Learning,
    /// To understand why something is as it is.
    Explanation,
    /// To find out why something does not work.
    Debugging,
    /// To see examples.
    ExampleSeeking,
    /// Nothing that can be told.
    Unknown,
}

impl IntentType {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Implementation,
        Self::Learning,
        Self::Explanation,
        Self::Debugging,
        Self::ExampleSeeking,
        Self::Unknown,
    ];
}

/// The detected intent of queries, and their keywords.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DetectedIntent {
    /// The intent type.
    pub intent_type: IntentType,
    /// The keywords as they were written, in the order of their first appearance.
    pub keywords: Vec<String>,
    /// The confidence in the intent type, from 0 to 1.
    pub confidence: f64,
    /// The text to search for.
    pub search_query: String,
}

/// The patterns of each type, in the order in which they are tried.
static PATTERNS: LazyLock<[(IntentType, Regex); 5]> = LazyLock::new(|| {
    [
        (
            IntentType::Debugging,
            r"\b(fix|debug\w*|errors?|exceptions?|crash\w*|fail\w*|broken|bugs?)\b|not work|doesn't work",
        ),
        (IntentType::Implementation, r"\b(implement\w*|add|adding|build|create|write|integrate)\b"),
        (IntentType::Learning, r"\bhow (do|can|to)\b|\bwhat('s| is| are)\b|\blearn\b"),
        (IntentType::Explanation, r"\bwhy\b|\bexplain\b"),
        (IntentType::ExampleSeeking, r"\bshow me\b|\bexamples?\b"),
    ]
    .map(|(kind, pattern)| (kind, Regex::new(&format!("(?i){pattern}")).expect("the pattern is valid")))
});

/// Words of questions that are not keywords.
const NO_KEYWORDS: [&str; 31] = [
    "add",
    "best",
    "build",
    "create",
    "debug",
    "explain",
    "find",
    "fix",
    "get",
    "give",
    "handl",
    "happen",
    "help",
    "implement",
    "know",
    "learn",
    "like",
    "make",
    "mean",
    "need",
    "return",
    "see",
    "show",
    "tell",
    "thing",
    "try",
    "understand",
    "use",
    "want",
    "way",
    "work",
];

/// Detects the intent of queries, the oldest first.
#[must_use]
pub fn detect(queries: &[&str]) -> DetectedIntent {
    let mut stems = HashSet::new();
    let mut keywords = Vec::new();
    for query in queries {
        for (place, (stem, written)) in written_terms(query).enumerate() {
            if NO_KEYWORDS.contains(&stem.as_str()) || keywords.len() == MOST_KEYWORDS || !stems.insert(stem)
            {
                continue;
            }
            // The capital letter of the first word of a sentence has no meaning.
            let rest = written.char_indices().nth(1).map_or("", |(at, _)| &written[at..]);
            let is_first = place == 0 && query.trim_start().starts_with(written);
            let is_plain = is_first && rest.len() > 2 && rest.chars().all(char::is_lowercase);
            keywords.push(if is_plain { written.to_lowercase() } else { written.to_owned() });
        }
    }
    if keywords.is_empty() {
        let intent_type = IntentType::Unknown;
        return DetectedIntent { intent_type, keywords, confidence: 0.0, search_query: String::new() };
    }
    let found = PATTERNS.iter().find_map(|(kind, pattern)| {
        let age = queries.iter().rev().position(|query| pattern.is_match(query))?;
        Some((*kind, if age == 0 { 0.8 } else { 0.6 }))
    });
    let (intent_type, confidence) = found.unwrap_or((IntentType::Unknown, 0.2));
    DetectedIntent { intent_type, search_query: keywords.join(" "), keywords, confidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(queries: &[&str]) -> (IntentType, Vec<String>) {
        let intent = detect(queries);
        (intent.intent_type, intent.keywords)
    }

    #[test]
    fn the_seeds_scenarios_have_its_intents_and_keywords() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            told(&["How do I implement authentication?", "What's the best way to handle JWT tokens?"]),
            (IntentType::Implementation, words(&["authentication", "JWT", "tokens"]))
        );
        assert_eq!(
            told(&["Why is my API returning 401?", "Authentication middleware not working"]),
            (IntentType::Debugging, words(&["API", "401", "authentication", "middleware"]))
        );
        assert_eq!(
            told(&["What are Python decorators?", "Show me decorator examples"]),
            (IntentType::Learning, words(&["Python", "decorators", "examples"]))
        );
    }

    #[test]
    fn the_seeds_patterns_have_their_intents() {
        for (query, expected) in [
            ("I need to add caching", IntentType::Implementation),
            ("How do I sort a list?", IntentType::Learning),
            ("Why does the cache expire?", IntentType::Explanation),
            ("Fix the login", IntentType::Debugging),
            ("Show me examples of macros", IntentType::ExampleSeeking),
            ("the of", IntentType::Unknown),
            ("", IntentType::Unknown),
        ] {
            assert_eq!(told(&[query]).0, expected, "{query}");
        }
        assert_eq!(detect(&[]).confidence.to_string(), "0");
    }
}
