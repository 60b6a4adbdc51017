//! RFC 9457 problem documents, which repeat little of what a client has sent.

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// The field's JSON Pointer (RFC 6901) in the body. For a query or path parameter, it is a slash and the
    /// parameter's name.
    pub pointer: String,
    /// What is wrong with the field.
    pub detail: String,
}

/// An RFC 9457 problem document.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A stable reference that identifies the kind of problem, such as `/problems/not-found`.
    pub r#type: String,
    /// The kind of problem as text.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong with this request.
    pub detail: String,
    /// The request's id, the same as in the `x-request-id` header.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// The invalid fields, if the input was invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// What else problems of this type say.
    #[serde(flatten)]
    #[schema(ignore)]
    pub members: serde_json::Map<String, serde_json::Value>,
}

impl FieldError {
    /// Returns the error with what it repeats of the input cut short.
    #[must_use]
    pub fn brief(&self) -> Self {
        Self { pointer: cut(&self.pointer).into_owned(), detail: brief(&self.detail) }
    }
}

/// The maximum number of invalid fields that one problem names.
pub const MOST_ERRORS: usize = 100;
/// The maximum number of characters of the client's input that a problem repeats in one place.
const MOST_QUOTED: usize = 200;
/// The maximum number of characters of a message.
const MOST_SAID: usize = 1_000;

/// Cuts a text that a client has sent to its first 200 characters.
#[must_use]
pub fn cut(text: &str) -> Cow<'_, str> {
    shorten(text, MOST_QUOTED)
}

fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Cuts what a message quotes of the input, so that a refusal stays small however large the request was.
pub(super) fn brief(message: &str) -> String {
    if message.len() <= MOST_QUOTED {
        return message.to_owned();
    }
    let mut brief = String::new();
    let mut rest = message;
    while let Some(start) = rest.find(['`', '"']).filter(|_| brief.len() < MOST_SAID) {
        let (before, quoted) = rest.split_at(start);
        let end = quoted[1..].find(&quoted[..1]).map_or(quoted.len(), |length| length + 1);
        brief.push_str(before);
        brief.push_str(&quoted[..1]);
        brief.push_str(&cut(&quoted[1..end]));
        rest = &quoted[end..];
        // The closing mark belongs to the quotation, and does not open another one.
        if !rest.is_empty() {
            brief.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    brief.push_str(rest);
    shorten(&brief, MOST_SAID).into_owned()
}

impl Problem {
    /// Makes a problem of a status alone, for refusals by layers and the router.
    pub(super) fn of(status: StatusCode, detail: String) -> Self {
        Self {
            r#type: format!("/problems/{}", kind(status)),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail,
            instance: String::new(),
            errors: vec![],
            members: serde_json::Map::new(),
        }
    }
}

/// Returns the name of a status in the types of problems, such as `not-found`.
pub(super) fn kind(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or("Error").to_ascii_lowercase().replace(' ', "-")
}

pub(super) fn describe(errors: &[FieldError]) -> String {
    let mut text = String::new();
    for FieldError { pointer, detail } in errors {
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{separator}{}{}{detail}", pointer, if pointer.is_empty() { "" } else { ": " });
    }
    text
}
