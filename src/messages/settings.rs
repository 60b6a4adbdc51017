//! The settings of sends: a project's own settings, and the limits of models.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::models::{Catalog, Ratios};
use crate::http::{Check, Checks};
use crate::types::OptionalName;

/// The settings of sends. A send's own settings take precedence. A change does not affect sends in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessageSettings {
    /// The number of characters per token. By default, sizes are estimated from the kind of text and the usage that
    /// the provider reported for the model.
    #[schema(minimum = 0.1, maximum = 100)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chars_per_token: Option<f64>,
    /// The number of tokens that a prediction reserves for the new message. The default is 100.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_request_allowance: Option<i64>,
    /// The maximum number of pairs that are dropped because the context is too long. The default is 10.
    #[schema(minimum = 0, maximum = 10_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_trim_attempts: Option<i32>,
    /// Whether pairs are dropped before the first call if the new message would not fit beside them. The default is
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preflight_trim: Option<bool>,
    /// The model of sends that name no model and whose visible pairs name none either.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub default_model: OptionalName,
    /// Whether the gateway forwards requests without recording them while the database is unavailable. The default is
    /// false: such requests are rejected before the provider is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_without_database: Option<bool>,
}

impl Check for MessageSettings {
    fn check(&self, checks: &mut Checks) {
        check_common(checks, self.chars_per_token, self.user_request_allowance, self.max_trim_attempts);
        checks.name("default_model", self.default_model.as_deref());
    }
}

/// The settings of one send or prediction. A setting that is left out has the project's value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendSettings {
    /// The number of characters per token. By default, sizes are estimated from the kind of text and the usage that
    /// the provider reported for the model.
    #[schema(minimum = 0.1, maximum = 100)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chars_per_token: Option<f64>,
    /// The number of tokens that the prediction reserves for the new message.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_request_allowance: Option<i64>,
    /// The maximum number of pairs that are dropped because the context is too long.
    #[schema(minimum = 0, maximum = 10_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_trim_attempts: Option<i32>,
    /// Whether pairs are dropped before the first call if the new message would not fit beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preflight_trim: Option<bool>,
    /// Whether the send is made even if it exceeds a quota of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_quota: Option<bool>,
}

impl Check for SendSettings {
    fn check(&self, checks: &mut Checks) {
        check_common(checks, self.chars_per_token, self.user_request_allowance, self.max_trim_attempts);
    }
}

fn check_common(checks: &mut Checks, chars: Option<f64>, allowance: Option<i64>, trims: Option<i32>) {
    let fits = chars.is_none_or(|chars| (0.1..=100.0).contains(&chars));
    checks.require(fits, "chars_per_token", "must be from 0.1 to 100");
    super::check_tokens(checks, "user_request_allowance", allowance);
    let fits = trims.is_none_or(|trims| (0..=10_000).contains(&trims));
    checks.require(fits, "max_trim_attempts", "must be from 0 to 10000");
}

/// What applies to a project: its settings, and the models that the server knows.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The project's settings.
    pub settings: MessageSettings,
    /// The models in the providers file.
    pub catalog: Arc<Catalog>,
    /// The learned ratios of models that were read lately.
    pub ratios: Arc<Ratios>,
}

impl Rules {
    /// Returns whether the gateway forwards requests that it cannot record.
    #[must_use]
    pub fn passes_without_database(&self) -> bool {
        self.settings.gateway_without_database == Some(true)
    }
}

/// The settings that a send or prediction goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InForce {
    /// The number of characters per token, if it is set.
    pub chars_per_token: Option<f64>,
    /// The number of tokens reserved for the new message.
    pub user_request_allowance: i64,
    /// The maximum number of pairs that are dropped because the context is too long.
    pub max_trim_attempts: i32,
    /// Whether pairs are dropped before the first call.
    pub preflight_trim: bool,
    /// Whether quotas are ignored.
    pub ignore_quota: bool,
}

impl MessageSettings {
    /// Combines a send's own settings with the project's.
    #[must_use]
    pub fn with(&self, own: &SendSettings) -> InForce {
        InForce {
            chars_per_token: own.chars_per_token.or(self.chars_per_token),
            user_request_allowance: own.user_request_allowance.or(self.user_request_allowance).unwrap_or(100),
            max_trim_attempts: own.max_trim_attempts.or(self.max_trim_attempts).unwrap_or(10),
            preflight_trim: own.preflight_trim.or(self.preflight_trim).unwrap_or(false),
            ignore_quota: own.ignore_quota.unwrap_or(false),
        }
    }
}
