//! Detects the intent of queries. Rules recognize queries that state it outright ([`phrases`]), and a linear model
//! estimates it for all others ([`model`]).

mod keywords;
pub mod model;
pub mod phrases;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::keywords::keywords;
use self::model::{CLASSES, Model, Values};
use super::terms::terms;

/// The number of characters of a query that count. Only pasted files are longer.
pub const LONGEST_QUERY: u16 = 6_000;
/// The weight of each query relative to the next one.
const DECAY: f64 = 0.5;
/// The probability of an intent that a query states outright. The other intents share the rest.
const STATED: f64 = 0.9;
/// The confidence in [`IntentType::Unknown`] for queries that have keywords.
const UNKNOWN: f64 = 0.2;

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

/// Detects the intent of queries, the oldest first. Of each query, the first [`LONGEST_QUERY`] characters count.
#[must_use]
pub fn detect<Q: AsRef<str>>(queries: &[Q]) -> DetectedIntent {
    let queries = &queries.iter().map(|query| beginning(query.as_ref())).collect::<Vec<_>>();
    let keywords = keywords(queries);
    if queries.iter().all(|query| terms(query).next().is_none()) {
        let intent_type = IntentType::Unknown;
        return DetectedIntent { intent_type, keywords, confidence: 0.0, search_query: String::new() };
    }
    let (intent_type, confidence) = intent(Model::in_force(), queries);
    DetectedIntent { intent_type, search_query: keywords.join(" "), keywords, confidence }
}

/// Returns what counts of a query.
fn beginning(query: &str) -> &str {
    let end = query.char_indices().nth(LONGEST_QUERY.into()).map_or(query.len(), |(at, _)| at);
    &query[..end]
}

/// Returns the most probable intent of queries, the oldest first, and its probability.
#[must_use]
pub fn intent(model: &Model, queries: &[&str]) -> (IntentType, f64) {
    let mut shares = Values::default();
    let mut weight = 1.0;
    let mut total = 0.0;
    // Whether all queries after the present one ask for examples.
    let mut wants_examples = true;
    for (age, query) in queries.iter().rev().enumerate() {
        let prose = prose(query);
        let stated = phrases::stated(&prose);
        let Some(probabilities) = stated.map(certain).or_else(|| model.probabilities(&prose)) else {
            continue;
        };
        // People who ask for examples of what they have just asked about are still learning it.
        if age > 0 && wants_examples && stated == Some(IntentType::Learning) {
            return (IntentType::Learning, STATED);
        }
        wants_examples &= stated == Some(IntentType::ExampleSeeking);
        for (share, probability) in shares.iter_mut().zip(probabilities) {
            *share += weight * probability;
        }
        total += weight;
        weight *= DECAY;
    }
    let best = (0..CLASSES.len()).max_by(|&a, &b| shares[a].total_cmp(&shares[b]).then(b.cmp(&a)));
    best.filter(|_| total > 0.0)
        .map_or((IntentType::Unknown, UNKNOWN), |best| (CLASSES[best], shares[best] / total))
}

/// Returns the probabilities for a query that states its intent.
fn certain(intent: IntentType) -> Values {
    let rest = (1.0 - STATED) / (CLASSES.len() - 1) as f64;
    CLASSES.map(|class| if class == intent { STATED } else { rest })
}

/// Returns what a person has written in a query, in lower case: without blocks of code.
#[must_use]
pub fn prose(query: &str) -> String {
    let parts: Vec<_> = query.split("```").step_by(2).collect();
    parts.join(" codeblock ").to_lowercase().replace('’', "'")
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
            ("I need to implement a queue", IntentType::Implementation),
            ("How do I sort a list?", IntentType::Learning),
            ("How do I use the linter?", IntentType::Learning),
            ("Why does the cache expire?", IntentType::Explanation),
            ("Why does this happen?", IntentType::Explanation),
            ("Fix the login", IntentType::Debugging),
            ("Debug the scheduler", IntentType::Debugging),
            ("Show me examples of macros", IntentType::ExampleSeeking),
            ("the of", IntentType::Unknown),
            ("", IntentType::Unknown),
        ] {
            assert_eq!(told(&[query]).0, expected, "{query}");
        }
        assert_eq!(detect::<&str>(&[]).confidence.to_string(), "0");
    }

    #[test]
    fn a_query_in_unknown_words_has_an_unknown_intent() {
        assert_eq!(told(&["基金"]).0, IntentType::Unknown);
    }

    #[test]
    fn code_is_no_prose() {
        assert_eq!(prose("Why?\n```rust\nfn fix() {}\n```\nIt’s odd"), "why?\n codeblock \nit's odd");
        assert_eq!(prose("Look: ```fix me"), "look: ");
    }
}
