//! Suggestions of memories: the requests, the responses, and what is stored of them.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use utoipa::ToSchema;
use uuid::Uuid;

use super::finding::{Factors, Found};
use super::rules::intent::DetectedIntent;
use super::settings::{MemorySettings, check_count, check_threshold};
use super::{ConversationQuery, SourceType, Verdict};
use crate::http::{Check, Checks};
use crate::types::{Timestamp, names_it};

/// A request for memories that are relevant to a conversation. Fields that are left out have the values of the
/// project's settings.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewSuggest {
    /// The request's id. Sending the request again with the same id returns the same suggestions. By default, the
    /// server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The maximum number of suggestions. The default is 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 50)]
    pub max_suggestions: Option<usize>,
    /// The minimum confidence of a suggestion. The default is 0.85.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub confidence_threshold: Option<f64>,
    /// Whether memories of the kind `code` are suggested. The default is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_code: Option<bool>,
    /// The number of recent queries that suggestions are based on. The default is 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 50)]
    pub context_window: Option<usize>,
    /// The preference for code over other memories, from 0 (no code) to 1 (only code). The default is 0.5, which
    /// treats both alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub balance: Option<f64>,
    /// The time at which the suggestions are made. Memories created later are not found. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether this is only a preview: the suggestions are not stored and do not count as shown. The default is
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peek: Option<bool>,
    /// Whether the response includes solved examples for the last query. The default is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_examples: Option<bool>,
    /// Whether the response includes files that answered searches similar to the last query. The default is false.
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

/// The settings of one request: its own fields, or else the project's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InForce {
    /// Whether anything is suggested.
    pub enabled: bool,
    /// The maximum number of suggestions.
    pub most: usize,
    /// The minimum confidence of a suggestion.
    pub threshold: f64,
    /// The number of recent queries that suggestions are based on.
    pub window: usize,
    /// The preference for code over other memories, from 0 to 1.
    pub balance: f64,
}

impl NewSuggest {
    /// Returns whether the request wants more than memories.
    #[must_use]
    pub fn includes_more(&self) -> bool {
        [self.include_examples, self.include_files].contains(&Some(true))
    }

    /// Combines the request with a project's settings.
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

    /// Returns the log odds by which a kind of memories is preferred when there is no room for all.
    #[must_use]
    pub fn preference(&self, source_type: SourceType) -> f64 {
        let odds = (self.balance / (1.0 - self.balance)).ln().clamp(-20.0, 20.0);
        match source_type {
            SourceType::Code => odds,
            SourceType::Memory => 0.0,
        }
    }
}

/// A memory that is likely relevant to the conversation.
#[derive(Debug, Serialize, ToSchema, FromRow)]
pub struct MemorySuggestion {
    /// The memory.
    pub memory_id: Uuid,
    /// The memory's content.
    pub content: String,
    /// The probability that the memory is relevant: about 85 % of the suggestions with a confidence around 0.85 are.
    pub confidence: f64,
    /// Why the memory is suggested.
    pub reason: String,
    /// The kind of text in the memory.
    pub source_type: SourceType,
    /// The four relevance factors.
    #[sqlx(flatten)]
    pub factors: Factors,
    /// The weighted sum of the factors, from 0 to 1. It is not a probability.
    pub score: f64,
}

/// The memories that are relevant to a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct SuggestionResponse {
    /// The memories, ordered by confidence. None of them is suggested in the conversation again.
    pub suggestions: Vec<MemorySuggestion>,
    /// The detected intent.
    pub detected_intent: DetectedIntent,
    /// The minimum confidence of a suggestion.
    pub confidence_threshold: f64,
    /// The number of suggestions.
    pub total_suggestions: usize,
    /// The id under which the suggestions are stored. Null if they are not stored, so that nothing counts as shown.
    pub suggest_id: Option<Uuid>,
}

impl SuggestionResponse {
    /// Sorts suggestions and makes the response.
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

/// A memory that was suggested in a conversation, with its verdict.
#[derive(Debug, Serialize, ToSchema, FromRow)]
pub struct SuggestedMemory {
    /// The memory.
    pub memory_id: Uuid,
    /// The id of the response that it was part of.
    pub suggest_id: Uuid,
    /// The confidence of the suggestion.
    pub confidence: f64,
    /// The reason of the suggestion. Null if the memory or a query before it was erased, if it was
    /// suggested for a search, or if the project stores no text.
    pub reason: Option<String>,
    /// The kind of text in the memory.
    pub source_type: SourceType,
    /// The four relevance factors.
    #[sqlx(flatten)]
    pub factors: Factors,
    /// The weighted sum of the factors, from 0 to 1. It is not a probability.
    pub score: f64,
    /// The verdict.
    pub verdict: Option<Verdict>,
    /// When the memory was suggested.
    pub shown_at: Timestamp,
}

/// A query of a conversation and, if the client asked for suggestions, the members of a `SuggestionResponse`.
#[derive(Debug, Serialize, ToSchema)]
pub struct AnsweredQuery {
    /// The query.
    #[serde(flatten)]
    pub query: ConversationQuery,
    /// The memories, ordered by confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestions: Option<Vec<MemorySuggestion>>,
    /// The detected intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detected_intent: Option<DetectedIntent>,
    /// The minimum confidence of a suggestion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence_threshold: Option<f64>,
    /// The number of suggestions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_suggestions: Option<usize>,
    /// The id under which the suggestions are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggest_id: Option<Uuid>,
}

impl AnsweredQuery {
    /// Makes the response to a query, with suggestions if they were requested.
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

/// A memory that is suggested.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The memory.
    pub memory: Uuid,
    /// The kind of text in the memory.
    pub source_type: SourceType,
    /// The probability that the memory is relevant to the conversation.
    pub confidence: f64,
    /// The log odds of this probability before the project's verdicts corrected them.
    pub log_odds: f64,
    /// The four relevance factors.
    pub factors: Factors,
    /// Why the memory is suggested.
    pub reason: String,
}

impl From<Found> for Shown {
    fn from(found: Found) -> Self {
        let Found { id: memory, source_type, log_odds, confidence, factors, reason } = found;
        Self { memory, source_type, confidence, log_odds, factors, reason }
    }
}
