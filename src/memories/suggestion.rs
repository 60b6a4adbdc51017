//! Suggestions: how they are asked for, and how they are answered.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::finding::Factors;
use super::rules::intent::DetectedIntent;
use super::settings::{MemorySettings, check_count, check_threshold};
use super::{ConversationQuery, SourceType, Verdict};
use crate::http::{Check, Checks};
use crate::types::{Timestamp, names_it};

/// Asks for the memories that belong to a conversation. What is left out is the project's setting.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewSuggest {
    /// The request's id: sent again, it has the same answer. The server makes one if none is given.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The most suggestions. The default is 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 50)]
    pub max_suggestions: Option<usize>,
    /// The least confidence of a suggestion. The default is 0.85.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub confidence_threshold: Option<f64>,
    /// Whether code is suggested. The default is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_code: Option<bool>,
    /// How many of the last queries the suggestions follow from. The default is 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 50)]
    pub context_window: Option<usize>,
    /// How code is preferred to other memories: 0 for none of it, 1 for nothing else. The default is 0.5, for both alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub balance: Option<f64>,
    /// The moment from which ages count. Later memories are not found. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether the answer is only looked at, so that nothing counts as shown. The default is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peek: Option<bool>,
    /// Whether the answer has solved examples for the last query too. The default is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_examples: Option<bool>,
    /// Whether the answer has files too that searches like the last query led to. The default is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_files: Option<bool>,
}

impl Check for NewSuggest {
    fn check(&self, checks: &mut Checks) {
        check_count(checks, "max_suggestions", self.max_suggestions);
        check_threshold(checks, "confidence_threshold", self.confidence_threshold);
        check_count(checks, "context_window", self.context_window);
        check_threshold(checks, "balance", self.balance);
    }
}

/// What holds for one request: its own fields over the project's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InForce {
    /// Whether anything is suggested.
    pub enabled: bool,
    /// The most suggestions.
    pub most: usize,
    /// The least confidence of a suggestion.
    pub threshold: f64,
    /// How many of the last queries the suggestions follow from.
    pub window: usize,
    /// How code is preferred to other memories, 0 to 1.
    pub balance: f64,
}

impl NewSuggest {
    /// Returns whether more is asked for than memories.
    #[must_use]
    pub fn includes_more(&self) -> bool {
        [self.include_examples, self.include_files].contains(&Some(true))
    }

    /// Lays the request over a project's settings.
    #[must_use]
    pub fn over(&self, settings: &MemorySettings) -> InForce {
        let include_code = self.include_code.or(settings.suggestion_include_code).unwrap_or(true);
        InForce {
            enabled: settings.proactive_suggestions_enabled.unwrap_or(true),
            most: self.max_suggestions.or(settings.suggestion_max_results).unwrap_or(5),
            threshold: self.confidence_threshold.or(settings.suggestion_confidence_threshold).unwrap_or(0.85),
            window: self.context_window.or(settings.suggestion_context_window).unwrap_or(5),
            balance: if include_code { self.balance.unwrap_or(0.5) } else { 0.0 },
        }
    }
}

impl InForce {
    /// The only kind of memories that may be suggested, if there is only one.
    #[must_use]
    pub fn only(&self) -> Option<SourceType> {
        match self.balance {
            balance if balance <= 0.0 => Some(SourceType::Memory),
            balance if balance >= 1.0 => Some(SourceType::Code),
            _ => None,
        }
    }

    /// Returns the log odds by which a kind of memories is preferred where there is no room for all.
    #[must_use]
    pub fn preference(&self, source_type: SourceType) -> f64 {
        let odds = (self.balance / (1.0 - self.balance)).ln().clamp(-20.0, 20.0);
        match source_type {
            SourceType::Code => odds,
            SourceType::Memory => 0.0,
        }
    }
}

/// A memory that likely belongs to the conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemorySuggestion {
    /// The memory.
    pub memory_id: Uuid,
    /// What it says.
    pub content: String,
    /// The probability that it belongs there: of suggestions with a confidence of about p, about the share p does.
    pub confidence: f64,
    /// Why it is suggested.
    pub reason: String,
    /// What kind of text it is.
    pub source_type: SourceType,
    /// The seed's four factors.
    pub factors: Factors,
    /// The seed's weighted sum of the factors, 0 to 1.
    pub score: f64,
}

/// The memories that belong to a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct SuggestionResponse {
    /// The memories, by confidence. None of them comes in the conversation again.
    pub suggestions: Vec<MemorySuggestion>,
    /// What the person seems to want.
    pub detected_intent: DetectedIntent,
    /// The least confidence of a suggestion.
    pub confidence_threshold: f64,
    /// How many suggestions there are.
    pub total_suggestions: usize,
    /// The id under which the answer is kept. Null if nothing is kept of it, so that nothing counts as shown.
    pub suggest_id: Option<Uuid>,
}

impl SuggestionResponse {
    /// Makes the response of suggestions, which are brought into their order.
    #[must_use]
    pub fn new(
        mut suggestions: Vec<MemorySuggestion>,
        detected_intent: DetectedIntent,
        confidence_threshold: f64,
        suggest_id: Option<Uuid>,
    ) -> Self {
        suggestions.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        let total_suggestions = suggestions.len();
        Self { suggestions, detected_intent, confidence_threshold, total_suggestions, suggest_id }
    }
}

/// A memory that was suggested in a conversation, and what it was worth.
#[derive(Debug, Serialize, ToSchema)]
pub struct SuggestedMemory {
    /// The memory.
    pub memory_id: Uuid,
    /// The answer that it was part of.
    pub suggest_id: Uuid,
    /// The probability that was told.
    pub confidence: f64,
    /// The reason that was told. Null if the memory is erased, or the project keeps no text.
    pub reason: Option<String>,
    /// What kind of text it is.
    pub source_type: SourceType,
    /// The seed's four factors.
    pub factors: Factors,
    /// The seed's weighted sum of the factors.
    pub score: f64,
    /// What it was worth.
    pub verdict: Option<Verdict>,
    /// When it was suggested.
    pub shown_at: Timestamp,
}

/// A query of a conversation and, if the client asks for that, what is suggested: the members of a response of suggestions.
#[derive(Debug, Serialize, ToSchema)]
pub struct AnsweredQuery {
    /// The query.
    #[serde(flatten)]
    pub query: ConversationQuery,
    /// The memories, by confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestions: Option<Vec<MemorySuggestion>>,
    /// What the person seems to want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detected_intent: Option<DetectedIntent>,
    /// The least confidence of a suggestion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence_threshold: Option<f64>,
    /// How many suggestions there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_suggestions: Option<usize>,
    /// The id under which the answer is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggest_id: Option<Uuid>,
}

impl AnsweredQuery {
    /// Makes the response to a query, with what is suggested if anything was asked.
    #[must_use]
    pub fn new(query: ConversationQuery, answer: Option<SuggestionResponse>) -> Self {
        let suggest_id = answer.as_ref().and_then(|answer| answer.suggest_id);
        let confidence_threshold = answer.as_ref().map(|answer| answer.confidence_threshold);
        let total_suggestions = answer.as_ref().map(|answer| answer.total_suggestions);
        let (suggestions, detected_intent) =
            answer.map(|answer| (answer.suggestions, answer.detected_intent)).unzip();
        Self { query, suggestions, detected_intent, confidence_threshold, total_suggestions, suggest_id }
    }
}
