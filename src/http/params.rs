//! Parameters of paths and query strings. [`Path`] and [`Query`] read, clean and check them, and
//! [`KnownParameters`] refuses query parameters that an endpoint does not have.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::Method;
use axum::http::request::Parts;
use serde::de::{self, DeserializeOwned, Unexpected};
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::{OpenApi, RefOr};
use uuid::Uuid;

use super::check::{Check, Checks};
use super::clean::{Replaced, clean_text};
use super::json::field_error;
use crate::error::{Error, FieldError, Result};

/// The query string, parsed and checked.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// The path's parameters, parsed and checked: one value, or a struct with a field for each parameter.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Check> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Checks::of(from_pairs(&query_pairs(parts))?).map(Self)
    }
}

/// Returns the query string's names and values, decoded and cleaned. Empty values are left out.
pub fn query_pairs(parts: &Parts) -> Vec<(String, String)> {
    let replaced = parts.extensions.get::<Replaced>().cloned().unwrap_or_default();
    form_urlencoded::parse(parts.uri.query().unwrap_or("").as_bytes())
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (clean_text(&name, &replaced), clean_text(&value, &replaced)))
        .collect()
}

/// Parses names and values as a struct with fields of these names.
pub fn from_pairs<T: DeserializeOwned>(pairs: &[(String, String)]) -> Result<T> {
    let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let deserializer = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().clone();
        field_error(&path, &error.into_inner().to_string())
    })
}

/// Reads a parameter that is true or false, which may be written as 1 or 0, yes or no, on or off as well.
pub fn boolean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let value = match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => true,
        "false" | "0" | "no" | "off" => false,
        _ => return Err(de::Error::invalid_value(Unexpected::Str(&text), &"true or false")),
    };
    Ok(Some(value))
}

/// Reads a parameter as [`boolean`] does; it is false if not given.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    boolean(deserializer).map(Option::unwrap_or_default)
}

impl<S: Send + Sync, T: DeserializeOwned + Check> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let replaced = parts.extensions.get::<Replaced>().cloned().unwrap_or_default();
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Error::Malformed("the path is not UTF-8 once decoded".to_owned()))?;
        let pairs: Vec<_> =
            params.iter().map(|(name, value)| (name.to_owned(), clean_text(value, &replaced))).collect();
        Checks::of(from_pairs(&pairs)?).map(Self)
    }
}

/// The path parameter of an endpoint about one record.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct ById {
    /// The record's id.
    #[param(example = "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71")]
    pub id: Uuid,
}

impl Check for ById {}

/// The query parameters of each endpoint according to the OpenAPI document, and whether each may be empty.
pub struct KnownParameters(HashMap<(Method, String), HashMap<String, bool>>);

impl KnownParameters {
    /// Reads the parameters from the OpenAPI document.
    #[must_use]
    pub fn of(document: &OpenApi) -> Self {
        let operations = document.paths.paths.iter().flat_map(|(path, item)| {
            let methods = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
                (Method::PATCH, &item.patch),
            ];
            methods.map(|(method, operation)| ((method, path.clone()), operation))
        });
        let known = operations.filter_map(|(endpoint, operation)| {
            let parameters = operation.as_ref()?.parameters.iter().flatten();
            let names = parameters.filter_map(|parameter| match parameter {
                RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
                    Some((parameter.name.clone(), parameter.schema.as_ref().is_some_and(may_be_empty)))
                }
                _ => None,
            });
            Some((endpoint, names.collect()))
        });
        Self(known.collect())
    }

    /// Answers 422 to a query parameter that the document does not name for the endpoint, so that a misspelled
    /// filter is not ignored, and to an empty value of a parameter that is not free text.
    pub fn expect(&self, request: &Request) -> Result<()> {
        let Some(query) = request.uri().query() else {
            return Ok(());
        };
        let endpoint = request
            .extensions()
            .get::<MatchedPath>()
            .map(|path| (request.method().clone(), path.as_str().to_owned()));
        let Some(known) = endpoint.and_then(|endpoint| self.0.get(&endpoint)) else {
            return Ok(());
        };
        let wrong = form_urlencoded::parse(query.as_bytes()).filter_map(|(name, value)| {
            let detail = match known.get(name.as_ref()) {
                None => "this endpoint has no such parameter",
                Some(false) if value.is_empty() => "must not be empty",
                Some(_) => return None,
            };
            Some(FieldError { pointer: format!("/{name}"), detail: detail.to_owned() })
        });
        let errors: Vec<_> = wrong.collect();
        if errors.is_empty() { Ok(()) } else { Err(Error::Invalid(errors)) }
    }
}

/// Returns whether an empty text fits a schema, as it does only for free text.
fn may_be_empty(schema: &RefOr<Schema>) -> bool {
    let RefOr::T(Schema::Object(object)) = schema else {
        return false;
    };
    object.schema_type == SchemaType::Type(Type::String)
        && object.format.is_none()
        && object.enum_values.is_none()
        && object.min_length.is_none()
}
