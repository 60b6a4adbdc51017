//! How a call of a tool becomes a request, and the response becomes the result of the call.

use std::net::SocketAddr;

use super::tools::{Part, Tool};
use super::{Door, Place};
use crate::auth::keyring::PROJECT;
use crate::error::Error;
use crate::http::memory::Memory;
use crate::types::value;
use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::{Map, Value, json};

/// The text that a model gets if it asks for suggestions and no conversation is known.
const NO_SESSION: &str = "No conversation is known here, so nothing can be suggested. Pass its name as the argument session_id: \
    the name under which the agent's hooks report the session, or under which its queries are posted.";

/// The headers of a client's request that are copied to the requests of its calls.
const TAKEN_ALONG: [&str; 3] = ["authorization", "host", PROJECT];

/// Calls a tool. An error in the call becomes an error in the result, which the model reads.
pub(super) async fn call(
    tool: &Tool,
    mut arguments: JsonObject,
    place: Place,
    door: &Door,
    parts: Option<&Parts>,
) -> CallToolResult {
    arguments.retain(|_, value| !value.is_null());
    if let Some(unknown) = arguments.keys().find(|name| !tool.takes(name)) {
        return refusal(&Error::invalid(format!("/{unknown}"), "there is no such argument"));
    }
    let known =
        [("session_id", place.session.clone()), ("agent_session_id", place.session), ("root", place.root)];
    for (name, value) in known {
        if let Some(value) = value.filter(|_| tool.takes(name)) {
            arguments.entry(name).or_insert(Value::String(value));
        }
    }
    let session = arguments.get("session_id").is_some();
    if !session && tool.parts.get("session_id") == Some(&Part::Path) {
        return match &*tool.definition.name {
            "suggest_memories" => nothing(&arguments),
            _ => refusal(&Error::invalid("/session_id", "must be given, because no conversation is known")),
        };
    }
    let request = match request(tool, arguments, parts) {
        Ok(request) => request,
        Err(error) => return refusal(&error),
    };
    match door.pass(request).await {
        Ok(response) => result(&response),
        Err(error) => failed(format!("{error:#}"), None),
    }
}

/// The maximum number of characters of the arguments that become a query, as they are encoded there.
const MOST_QUERY: usize = 60_000;

/// Makes the request of a call.
fn request(tool: &Tool, arguments: JsonObject, parts: Option<&Parts>) -> Result<Request<Bytes>, Error> {
    let mut path = tool.path.clone();
    let (mut query, mut body) = (form_urlencoded::Serializer::new(String::new()), Map::new());
    for (name, value) in arguments {
        match tool.parts.get(&name) {
            Some(Part::Body) | None => {
                body.insert(name, value);
            }
            Some(Part::Query) => {
                query.append_pair(&name, &text(&name, &value)?);
            }
            Some(Part::Path) => {
                let value = text(&name, &value)?;
                if value.is_empty() {
                    return Err(Error::invalid(format!("/{name}"), "must not be empty"));
                }
                let value = utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string();
                path = path.replace(&format!("{{{name}}}"), &value);
            }
        }
    }
    let query = query.finish();
    if query.len() > MOST_QUERY {
        return Err(Error::TooLarge(format!("the arguments have more than {MOST_QUERY} characters")));
    }
    let separator = if query.is_empty() { "" } else { "?" };
    let mut request = Request::builder().method(tool.method.clone()).uri(format!("{path}{separator}{query}"));
    let none = HeaderMap::new();
    let headers = parts.map_or(&none, |parts| &parts.headers);
    for name in TAKEN_ALONG {
        // A header that is there twice is refused as it is for other requests.
        for value in headers.get_all(name) {
            request = request.header(name, value);
        }
    }
    // HTTP/2 names the host in the address.
    let authority = parts.and_then(|parts| parts.uri.authority());
    if let Some(authority) = authority.filter(|_| !headers.contains_key(header::HOST)) {
        request = request.header(header::HOST, authority.as_str());
    }
    if let Some(peer) = parts.and_then(|parts| parts.extensions.get::<ConnectInfo<SocketAddr>>()) {
        request = request.extension(*peer);
    }
    if let Some(memory) = parts.and_then(|parts| parts.extensions.get::<Memory>()) {
        request = request.extension(memory.clone());
    }
    let body = if tool.method == Method::GET {
        Bytes::new()
    } else {
        let body = Bytes::from(Value::Object(body).to_string());
        request = request.header(header::CONTENT_TYPE, "application/json");
        request = request.header(header::CONTENT_LENGTH, body.len());
        body
    };
    request.body(body).map_err(|error| Error::Internal(error.into()))
}

/// Writes an argument as text for a URL.
fn text(name: &str, value: &Value) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => Err(Error::invalid(format!("/{name}"), "must be a text, a number or a truth value")),
    }
}

/// Makes the result of a call from a response: the body, as JSON and as text.
fn result(response: &Response<Bytes>) -> CallToolResult {
    let text = String::from_utf8_lossy(response.body()).trim_end().to_owned();
    let status = response.status();
    if status == StatusCode::NO_CONTENT {
        return success("The project stores nothing of this.".to_owned(), json!({}));
    }
    if status.is_success() && text.is_empty() {
        return success("It is stored, and cannot be shown here.".to_owned(), json!({}));
    }
    match value::parse(&text) {
        Ok(body @ Value::Object(_)) if status.is_success() => success(text, body),
        Ok(problem @ Value::Object(_)) => failed(describe(&problem), Some(problem)),
        _ => failed(format!("the server answered {status}, which is not a response of Gleaner"), None),
    }
}

/// Returns the text of a problem document: what is wrong, and with which arguments.
fn describe(problem: &Value) -> String {
    let field = |error: &Value| {
        let pointer = error["pointer"].as_str()?.trim_start_matches('/');
        Some(format!("{pointer}: {}", error["detail"].as_str()?))
    };
    let fields: Vec<_> = problem["errors"].as_array().into_iter().flatten().filter_map(field).collect();
    match problem["detail"].as_str() {
        _ if !fields.is_empty() => fields.join("; "),
        Some(detail) => detail.to_owned(),
        None => problem.to_string(),
    }
}

/// Makes the result of a call that is rejected before it is sent, in the form of a rejection by the API.
fn refusal(error: &Error) -> CallToolResult {
    let problem = serde_json::to_value(error.problem()).unwrap_or_default();
    failed(describe(&problem), Some(problem))
}

fn success(text: String, body: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(body);
    result
}

fn failed(text: String, problem: Option<Value>) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = problem;
    result
}

/// Returns a result without suggestions, because no conversation is known.
fn nothing(arguments: &JsonObject) -> CallToolResult {
    let body = json!({
        "suggestions": [],
        "detected_intent": {"intent_type": "unknown", "keywords": [], "confidence": 0.0, "search_query": ""},
        "confidence_threshold": arguments.get("confidence_threshold").cloned().unwrap_or_else(|| json!(0.85)),
        "total_suggestions": 0,
    });
    success(NO_SESSION.to_owned(), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_stored_and_not_shown_is_no_failure() {
        let of = |status: u16| {
            result(&Response::builder().status(status).body(Bytes::new()).expect("a response")).is_error
        };
        assert_eq!([200, 201, 204, 500].map(of), [false, false, false, true].map(Some));
    }
}
