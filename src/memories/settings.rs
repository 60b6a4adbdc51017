//! A project's settings of suggestions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::{Check, Checks};

/// The settings of suggestions. Fields of a request take precedence over them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySettings {
    /// Whether memories are suggested. The default is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive_suggestions_enabled: Option<bool>,
    /// The minimum confidence of a suggestion. The default is 0.85.
    #[schema(minimum = 0, maximum = 1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion_confidence_threshold: Option<f64>,
    /// The maximum number of suggestions in a response. The default is 5.
    #[schema(minimum = 1, maximum = 50)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion_max_results: Option<usize>,
    /// The number of recent queries that suggestions are based on. The default is 5.
    #[schema(minimum = 1, maximum = 50)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion_context_window: Option<usize>,
    /// Whether memories of the kind `code` are suggested. The default is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion_include_code: Option<bool>,
    /// The share of sessions from which help without a request is withheld, so that its use can be measured by
    /// comparison. The default is 0.
    #[schema(minimum = 0, maximum = 1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holdout: Option<f64>,
}

impl Check for MemorySettings {
    fn check(&self, checks: &mut Checks) {
        check_threshold(checks, "suggestion_confidence_threshold", self.suggestion_confidence_threshold);
        check_threshold(checks, "holdout", self.holdout);
        check_count(checks, "suggestion_max_results", self.suggestion_max_results);
        check_count(checks, "suggestion_context_window", self.suggestion_context_window);
    }
}

/// Reports a number of suggestions or queries that is out of bounds.
pub(super) fn check_count(checks: &mut Checks, field: &str, count: Option<usize>) {
    checks.require(count.is_none_or(|count| (1..=50).contains(&count)), field, "must be 1 to 50");
}

/// Reports a share that is out of bounds.
pub(super) fn check_threshold(checks: &mut Checks, field: &str, share: Option<f64>) {
    checks.require(share.is_none_or(|share| (0.0..=1.0).contains(&share)), field, "must be 0 to 1");
}
