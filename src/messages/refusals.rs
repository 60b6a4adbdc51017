//! The errors that prevent a prediction or a send.

use uuid::Uuid;

use super::PairState;
use super::rules::quota::{Name, Quota};
use crate::error::{Error, FieldError, Special};

/// Why there is no prediction.
#[derive(Debug)]
pub enum Failed {
    /// The database failed.
    Database(sqlx::Error),
    /// The request is refused.
    Refused(Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Database(error) => error.into(),
            Failed::Refused(error) => error,
        }
    }
}

/// Refuses to ask a pair again that does not exist, or whose send has not failed.
pub(super) fn expect_failed(pair: Uuid, state: Option<PairState>) -> Result<(), Error> {
    match state {
        None => Err(Error::NotFound("message pair to send again")),
        Some(PairState::Error) => Ok(()),
        Some(_) => {
            let detail = format!("the pair {pair} is not in the state error, so it cannot be sent again");
            Err(Error::Conflict(detail))
        }
    }
}

/// The error for a model without a known limit.
pub(super) fn unknown_model(model: &str) -> Error {
    Error::Special(Box::new(Special {
        status: 422,
        kind: "model-unknown",
        title: "Model unknown",
        detail: format!("the context window of {model:?} is not known; set it with PUT /v1/models/{{model}}"),
        errors: Vec::new(),
        members: [("model".to_owned(), model.into())].into_iter().collect(),
        retry_after_s: None,
        headers: Vec::new(),
    }))
}

/// The error for a new message that alone exceeds the model's limit.
pub(super) fn prompt_too_large(aut: i64, max_context: i64) -> Error {
    let detail = "the new message and the system message alone exceed the model's limit";
    Error::Special(Box::new(Special {
        status: 422,
        kind: "user-prompt-too-large",
        title: "User prompt too large",
        detail: format!("{detail}: {aut} of {max_context} tokens"),
        errors: vec![FieldError { pointer: "/user_text".to_owned(), detail: detail.to_owned() }],
        members: [
            ("kind".to_owned(), "user_prompt_too_large".into()),
            ("aut".to_owned(), aut.into()),
            ("max_context".to_owned(), max_context.into()),
        ]
        .into_iter()
        .collect(),
        retry_after_s: None,
        headers: Vec::new(),
    }))
}

/// The error for a send that would exceed a quota.
pub(super) fn quota_broken(model: &str, name: Name, quota: &Quota) -> Error {
    let resets_in_s = quota.get(&name).map_or(1, |quota| quota.resets_in_s);
    Error::Special(Box::new(Special {
        status: 429,
        kind: "quota",
        title: "Quota",
        detail: format!(
            "this send would exceed the {name} quota of {model:?}; try again in {resets_in_s} seconds"
        ),
        errors: Vec::new(),
        members: [("quota".to_owned(), serde_json::to_value(quota).unwrap_or_default())]
            .into_iter()
            .collect(),
        retry_after_s: Some(resets_in_s),
        headers: Vec::new(),
    }))
}
