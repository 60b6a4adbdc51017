//! What handlers answer to requests that make something.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

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
