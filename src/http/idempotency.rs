//! The `Idempotency-Key` header, by which a client can safely repeat a request without making an id itself.

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::request::Parts;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::types::derived_id;

/// The request's `Idempotency-Key` header, if it has one.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IdempotencyKey {
    /// Identifies the request if the client does not choose ids itself. The server derives the record's id from the
    /// key, so repeating the request does not create a second record.
    #[param(rename = "Idempotency-Key", value_type = Option<String>, required = false, min_length = 1, max_length = 255)]
    key: Option<HeaderValue>,
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let key = parts.headers.get("idempotency-key").cloned();
        if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 255) {
            return Err(Error::invalid("/Idempotency-Key", "must have 1 to 255 characters"));
        }
        Ok(Self { key })
    }
}

impl IdempotencyKey {
    /// Returns the id that the key stands for, derived from the project, the route, the parent record and the
    /// key. Whoever guesses the key can compute it, so it is not used as it is.
    pub(crate) fn id(&self, project: &str, route: &str, parent: Option<Uuid>) -> Option<Uuid> {
        let key = self.key.as_ref()?;
        let parent = parent.unwrap_or_default();
        let parts =
            [b"idempotency-key", project.as_bytes(), route.as_bytes(), parent.as_bytes(), key.as_bytes()];
        Some(derived_id(&parts))
    }
}
