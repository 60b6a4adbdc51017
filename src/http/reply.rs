//! What handlers answer to requests that write something.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::openapi::{RefOr, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses};

use crate::db::receipt::Receipt;
use crate::error::Result;
use crate::privacy::capture::Capture;

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
        // What follows a semicolon are parameters of the preference before it.
        let preferences =
            values.flat_map(|value| value.split(',')).filter_map(|value| value.split(';').next());
        let mut pairs = preferences.filter_map(|preference| preference.split_once('='));
        let wanted = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("return"));
        let minimal =
            wanted.is_some_and(|(_, value)| value.trim().trim_matches('"').eq_ignore_ascii_case("minimal"));
        Ok(Self { minimal })
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
        Ok(axum::Json(body().await?).into_response())
    }
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
