//! Responses to requests that write: [`Created`] and [`Changed`], which document themselves, and [`Prefer`],
//! by which a client says whether it wants to see the record.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::Type;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, ToSchema};

/// How much of a record the client wants in the response (RFC 7240): all of it, or only the confirmation of
/// the write.
#[derive(Debug, Clone, Copy, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct Prefer {
    /// `return=minimal` leaves the record out of the response (RFC 7240, section 4.2). Otherwise, it is left out only if it
    /// is too large to be returned, or if other requests keep the server from reading it.
    #[param(rename = "Prefer", value_type = Option<String>, required = false)]
    minimal: bool,
}

impl<S: Sync> FromRequestParts<S> for Prefer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let values = parts.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        // Parameters of a preference follow a semicolon.
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
    /// Returns whether the client does not want to see the record.
    pub fn minimal(self) -> bool {
        self.minimal
    }
}

/// How much of a record a response to a write shows.
#[derive(Debug)]
pub enum Shown<T> {
    /// The project keeps nothing of what was sent; the status is 204.
    NotKept,
    /// The write is committed, and the client did not ask for the record.
    Minimal,
    /// The record as it is after the write.
    Record(T),
}

/// The response to a request that makes a record: 201 with its address, or 200 if it had been sent before.
#[derive(Debug)]
pub struct Created<T> {
    /// The record, as far as the client wants it.
    pub shown: Shown<T>,
    /// The record's address, if this request has made it.
    pub address: Option<String>,
}

/// The response to a request that changes a record: 200.
#[derive(Debug)]
pub struct Changed<T>(pub Shown<T>);

impl<T: Serialize> IntoResponse for Shown<T> {
    fn into_response(self) -> Response {
        const APPLIED: HeaderName = HeaderName::from_static("preference-applied");
        match self {
            Self::NotKept => StatusCode::NO_CONTENT.into_response(),
            Self::Minimal => [(APPLIED, HeaderValue::from_static("return=minimal"))].into_response(),
            Self::Record(record) => axum::Json(record).into_response(),
        }
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        match self.address {
            Some(address) => (StatusCode::CREATED, [(header::LOCATION, address)], self.shown).into_response(),
            None => self.shown.into_response(),
        }
    }
}

impl<T: Serialize> IntoResponse for Changed<T> {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl<T: ToSchema> IntoResponses for Created<T> {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let address = HeaderBuilder::new()
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .description(Some("The record's address"));
        let made = record::<T>("The record was created").header("Location", address.build());
        let mut responses = NotKept::responses();
        responses.insert("201".to_owned(), RefOr::T(made.build()));
        let known = record::<T>("The request had been sent before; this is the record as it is now");
        responses.insert("200".to_owned(), RefOr::T(known.build()));
        responses
    }
}

impl<T: ToSchema> IntoResponses for Changed<T> {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut responses = NotKept::responses();
        responses.insert("200".to_owned(), RefOr::T(record::<T>("The record after the change").build()));
        responses
    }
}

/// Describes a response whose body is a `T`. The operations that read the record back add the schema itself.
fn record<T: ToSchema>(description: &str) -> ResponseBuilder {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(T::name())));
    ResponseBuilder::new().description(description).content("application/json", content.build())
}

/// The response for a project that keeps nothing of what was posted, 204, in the OpenAPI document.
pub struct NotKept;

impl IntoResponses for NotKept {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let description = "The project's `capture` setting stores nothing of this request";
        let response = ResponseBuilder::new().description(description).build();
        [("204".to_owned(), RefOr::T(response))].into()
    }
}
