//! The endpoints that compute something and store nothing: predictions and the classification of errors.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::db::rows;
use crate::error::{Refusals, Result};
use crate::http::memory::Memory;
use crate::http::{Check, Checks, Json};
use crate::messages::candidates::{self, Candidate};
use crate::messages::payload::{self, Message};
use crate::messages::prediction::{self, Asked, Predicted};
use crate::messages::rules::errors::{self, Meaning, Said};
use crate::messages::rules::estimate::Length;
use crate::messages::rules::quota::{Quota, Use};
use crate::messages::settings::SendSettings;
use crate::messages::visible::Visible;
use crate::messages::{GivenPair, Reported, SendBudget, check_given, check_names, check_tokens, named};
use crate::state::App;
use crate::types::OptionalName;

/// Returns these endpoints.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(predict_context)).routes(routes!(classify_error))
}

/// A request to predict which pairs fit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPrediction {
    /// The visible pairs, the oldest first.
    #[schema(max_items = 10_000)]
    pairs: Option<Vec<GivenPair>>,
    /// The stored pairs that are visible, instead of `pairs`.
    visible: Option<Visible>,
    /// The model. Its limits must be known.
    #[serde(default)]
    model: OptionalName,
    /// The limit in tokens, instead of a model.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_i64)]
    model_limit: Option<i64>,
    /// The new message.
    user_text: Option<String>,
    /// A system message that every call begins with.
    system: Option<String>,
    /// Settings of this prediction.
    settings: Option<SendSettings>,
}

impl Check for NewPrediction {
    fn check(&self, checks: &mut Checks) {
        checks.require(
            self.pairs.is_none() || self.visible.is_none(),
            "visible",
            "must not be given with pairs",
        );
        check_given(checks, self.pairs.as_deref().unwrap_or_default());
        check_names(checks, [("model", self.model.as_deref())]);
        let fits = self.model_limit.is_none_or(|limit| (1..=1_000_000_000_000).contains(&limit));
        checks.require(fits, "model_limit", "must be from 1 to 1000000000000");
        checks.require(
            self.model_limit.is_none() || named(self.model.as_deref()).is_none(),
            "model_limit",
            "must not be given with model",
        );
        check_tokens(checks, "model_limit", None);
        if let Some(visible) = &self.visible {
            checks.nested("visible", visible);
        }
        if let Some(settings) = &self.settings {
            checks.nested("settings", settings);
        }
    }
}

/// The message pairs that fit into a model's context.
#[derive(Debug, Serialize, ToSchema)]
struct Prediction<'a> {
    /// The model. Null if only its limit was given.
    model: Option<String>,
    /// The pairs that fit, the oldest first. They do not depend on the new message.
    included: Vec<String>,
    /// The pairs that do not fit, the oldest first.
    excluded: Vec<String>,
    /// The sizes of the pairs that fit, in tokens, in the same order.
    included_tokens: Vec<i64>,
    /// The messages of the first call.
    #[schema(value_type = Vec<crate::types::FreeForm>)]
    messages: Vec<Message<'a>>,
    /// The limits that the prediction used.
    budget: SendBudget,
    /// The model's limit in tokens: the smaller of its context window and its tokens per minute.
    max_context: i64,
    /// The number of visible pairs.
    visible_count: usize,
    /// The number of pairs that fit.
    predicted_message_count: usize,
    /// The size of the pairs that fit, in tokens.
    predicted_history_tokens: i64,
    /// The size of the pairs that fit plus the allowance for the new message, in tokens.
    predicted_total_tokens: i64,
    /// The size of the new message, in tokens (`aut` stands for actual user tokens).
    aut: i64,
    /// The size of the system message, in tokens, which is not included in the other sizes.
    system_tokens: i64,
    /// The number of pairs that would be dropped before the first call.
    preflight_count: usize,
    /// The model's limit minus the history and the new message, in tokens. It may be negative.
    remaining_reserve: i64,
    /// A short text for users: `12 / 34` means that 12 of 34 visible pairs fit.
    counter: String,
    /// The number of characters per token, either as given or as an average over these texts. Null if there are no
    /// texts.
    chars_per_token: Option<f64>,
    /// The quotas of the model.
    #[schema(value_type = std::collections::BTreeMap<String, Use>)]
    quota: Quota,
}

/// Predicts which message pairs fit into a model's context. Nothing is stored.
///
/// Pairs are selected from the newest to the oldest while they fit into the model's limit together with the system
/// message and the allowance for the new message. A pair's `tokens` is its measured size; without it, the size is
/// estimated. If the new message alone exceeds the limit, the response is a 422 problem with the members `aut` and
/// `max_context`.
#[utoipa::path(post, path = "/v1/context/predict", tag = "messages",
    request_body(content = NewPrediction, example = json!({
        "pairs": [
            {"id": "p1", "user_text": "How do I list files?", "assistant_text": "With `ls`.", "tokens": 24},
            {"id": "p2", "user_text": "And hidden ones?", "assistant_text": "With `ls -a`."},
        ],
        "model_limit": 8_192,
        "user_text": "By date?",
        "settings": {"user_request_allowance": 100},
    })),
    responses((status = 200, description = "The prediction", body = Prediction), Refusals))]
async fn predict_context(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Json(mut new): Json<NewPrediction>,
) -> Result<Response> {
    // The names in a filter are compared with stored ones.
    (new.visible, _) = caller.tenant.redacted(new.visible).await;
    let mut connection = app.db.acquire().await?;
    let project = &*caller.project;
    let pairs = match (new.pairs, &new.visible) {
        (Some(pairs), _) => pairs.into_iter().map(Candidate::given).collect(),
        (None, Some(visible)) => candidates::visible(&mut connection, project, visible, None).await?,
        (None, None) => Vec::new(),
    };
    let rules = &caller.tenant.messages;
    let mut settings = rules.settings.with(&new.settings.unwrap_or_default());
    settings.ignore_quota = true;
    let asked = Asked {
        model: new.model.as_deref(),
        model_limit: new.model_limit,
        pairs,
        user: new.user_text.as_deref().map_or_else(Length::default, Length::of),
        system: new.system.as_deref().map_or_else(Length::default, Length::of),
        settings,
    };
    let predicted = prediction::predict(&mut connection, project, rules, asked).await?;
    let sent = &predicted.included()[predicted.preflight..];
    let keys: Vec<_> =
        sent.iter().filter(|pair| pair.given.is_none()).map(|pair| (pair.key, pair.revision)).collect();
    drop(connection);
    let reading = memory.reading(rows::MOST);
    let read = async || payload::texts(&mut *app.db.acquire().await?, project, &keys, &reading).await;
    let texts = reading.by(read).await?;
    let pairs = sent.iter().filter_map(|pair| {
        let given = pair.given.as_ref().map(|given| (&given.user_text, &given.assistant_text));
        let stored = || texts.get(&(pair.key, pair.revision)).map(|(user, answer)| (user, answer));
        given.or_else(stored).map(|(user, answer)| (user.as_str(), answer.as_deref()))
    });
    let messages = payload::messages(new.system.as_deref(), pairs, new.user_text.as_deref());
    Ok(axum::Json(Prediction::of(&predicted, messages)).into_response())
}

impl<'a> Prediction<'a> {
    fn of(predicted: &Predicted, messages: Vec<Message<'a>>) -> Self {
        let boundary = predicted.boundary();
        let ids = |pairs: &[Candidate]| pairs.iter().map(|pair| pair.id.clone()).collect();
        let budget = predicted.budget;
        let history = predicted.prediction.history;
        let count = predicted.prediction.count;
        Self {
            model: predicted.model.clone(),
            included: ids(predicted.included()),
            excluded: ids(&predicted.pairs[..boundary]),
            included_tokens: predicted.sizes[boundary..].to_vec(),
            messages,
            budget: SendBudget {
                max_context: budget.max_context,
                max_usable_raw: (budget.max_context - budget.allowance - budget.system).max(0),
            },
            max_context: budget.max_context,
            visible_count: predicted.pairs.len(),
            predicted_message_count: count,
            predicted_history_tokens: history,
            predicted_total_tokens: history + budget.allowance,
            aut: predicted.aut,
            system_tokens: budget.system,
            preflight_count: predicted.preflight,
            remaining_reserve: budget.max_context - history - predicted.aut,
            counter: format!("{count} / {}", predicted.pairs.len()),
            chars_per_token: predicted.chars_per_token,
            quota: predicted.quota.clone(),
        }
    }
}

/// Classifies an error of a model provider. Nothing is stored.
///
/// `overflow` is true if the context was too long, so that a shorter history would help.
#[utoipa::path(post, path = "/v1/errors/classify", tag = "messages",
    request_body(content = Reported, example = json!({
        "provider": "openai",
        "status": 400,
        "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9120 tokens.",
    })),
    responses((status = 200, description = "The meaning of the error", body = Meaning), Refusals))]
async fn classify_error(_: Caller<Read>, Json(error): Json<Reported>) -> axum::Json<Meaning> {
    let said = Said { status: error.status, code: error.code.as_deref(), message: &error.message };
    axum::Json(errors::classify(&said, None))
}
