//! What handlers answer to requests that make something.

use std::collections::BTreeMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, ResponseBuilder};

/// The answer to a request that made something of the record at `address`: 201 and where it is, or 200 when it was there.
pub fn created(replayed: bool, address: &str, body: impl Serialize) -> Response {
    if replayed {
        return axum::Json(body).into_response();
    }
    (StatusCode::CREATED, [(header::LOCATION, address.to_owned())], axum::Json(body)).into_response()
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
