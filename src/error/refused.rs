//! The body of every refusal, which the middleware around all requests writes.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use tower_http::request_id::RequestId;

use super::Problem;
use super::problem::cut;

/// Marks a response of a provider. Its body is forwarded unchanged, whatever the status.
#[derive(Debug, Clone, Copy)]
pub struct PassedOn;

/// The parts of a request that its refusal mentions.
#[derive(Debug, Clone)]
pub struct Refused {
    method: Method,
    uri: Uri,
    id: Option<HeaderValue>,
}

impl Refused {
    /// Remembers what a refusal of `request` will mention, because the handler consumes the request.
    pub fn of(request: &Request) -> Self {
        let id = request.extensions().get::<RequestId>().map(|id| id.header_value().clone());
        Self { method: request.method().clone(), uri: request.uri().clone(), id }
    }

    /// Takes the problem that a refusal is about: that of an [`Error`](super::Error), or one made of the status when a layer or the router
    /// refused (404 of an unknown path, 405, a panic). A response with any other status has none, nor has one that is
    /// [`PassedOn`].
    #[must_use]
    pub fn problem(&self, response: &mut Response) -> Option<Problem> {
        let status = response.status();
        let refuses = status.is_client_error() || status.is_server_error();
        if !refuses || response.extensions().get::<PassedOn>().is_some() {
            return None;
        }
        let mut problem = response.extensions_mut().remove::<Problem>().unwrap_or_else(|| {
            let (method, path) = (cut(self.method.as_str()), cut(self.uri.path()));
            let detail = match status {
                StatusCode::NOT_FOUND => format!("there is nothing at {path}"),
                StatusCode::METHOD_NOT_ALLOWED => format!("{path} does not support {method}"),
                _ => status.canonical_reason().unwrap_or("error").to_lowercase(),
            };
            Problem::of(status, detail)
        });
        let id = self.id.as_ref().and_then(|id| id.to_str().ok());
        id.unwrap_or_default().clone_into(&mut problem.instance);
        Some(problem)
    }

    /// Writes the body of a refusal. Any other response stays as it is.
    pub fn render(&self, response: &mut Response) {
        let Some(problem) = self.problem(response) else { return };
        let mut body = serde_json::to_vec(&problem).unwrap_or_default();
        body.push(b'\n');
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
}
