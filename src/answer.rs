//! What handlers answer to requests that write something.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::openapi::{RefOr, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses};

use crate::db::writer::Receipt;
use crate::error::{Error, Result};
use crate::projects::Capture;

/// How much of an answer the client wants (RFC 7240): the record, or no more than that it is written.
#[derive(Debug, Clone, Copy, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct Prefer {
    /// `return=minimal` leaves the record out of the answer.
    #[param(rename = "Prefer", value_type = Option<String>, required = false)]
    minimal: bool,
}

impl<S: Sync> FromRequestParts<S> for Prefer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let values = parts.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        let mut preferences = values.flat_map(|value| value.split([',', ';'])).map(str::trim);
        let wanted = preferences.find(|preference| preference.starts_with("return="));
        Ok(Self { minimal: wanted == Some("return=minimal") })
    }
}

impl Prefer {
    /// Whether the record need not be got ready.
    pub fn minimal(self) -> bool {
        self.minimal
    }

    /// The answer to what made something of the record at `address`: 201 and where it is, or 200 when it was there; with
    /// what `body` gets, if it is wanted. Nothing, where the project keeps nothing.
    pub async fn created<T: Serialize>(
        self,
        receipt: Receipt,
        address: String,
        body: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<Response> {
        let mut response = self.changed(receipt, body).await?;
        if !receipt.replayed && receipt.kept != Capture::Off {
            *response.status_mut() = StatusCode::CREATED;
            let address = HeaderValue::try_from(address).map_err(anyhow::Error::from)?;
            response.headers_mut().insert(header::LOCATION, address);
        }
        Ok(response)
    }

    /// The answer to what changed a record: 200, with what `body` gets, if it is wanted. Nothing, where the project keeps
    /// nothing.
    pub async fn changed<T: Serialize>(
        self,
        receipt: Receipt,
        body: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<Response> {
        const APPLIED: HeaderName = HeaderName::from_static("preference-applied");
        if receipt.kept == Capture::Off {
            return Ok(not_kept());
        }
        if self.minimal {
            let mut response = StatusCode::OK.into_response();
            response.headers_mut().insert(APPLIED, HeaderValue::from_static("return=minimal"));
            return Ok(response);
        }
        json(&body().await?)
    }
}

/// A value as JSON. Written at once: most records fit the first piece of memory.
fn json(body: &impl Serialize) -> Result<Response> {
    let mut text = Vec::with_capacity(4 << 10);
    serde_json::to_writer(&mut text, body).map_err(|error| Error::Internal(error.into()))?;
    let media_type = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, media_type)], Body::from(text)).into_response())
}

/// The answer where a project keeps nothing of what was posted.
pub fn not_kept() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// What [`not_kept`] answers, for the OpenAPI document.
pub struct NotKept;

impl IntoResponses for NotKept {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let description = "The project keeps nothing of what is posted here (`capture`)";
        let response = ResponseBuilder::new().description(description).build();
        [("204".to_owned(), RefOr::T(response))].into()
    }
}
