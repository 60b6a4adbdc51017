//! A request as tests send it, and the answer with what is asserted of every one.

use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use serde_json::Value;

/// A request of this machine to this machine.
pub(crate) fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header(header::HOST, "localhost:8080")
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body, after a look at the status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The body of a refusal: a problem of this status whose `errors` point to these fields.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, pointers: &[&str]) -> Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        let problem = self.expect(status);
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let named: Vec<_> = errors.iter().filter_map(|error| error["pointer"].as_str()).collect();
        assert_eq!(named, pointers, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem
    }

    /// Nothing, because it is gone.
    #[track_caller]
    pub(crate) fn gone(self) {
        assert_eq!((self.status.as_u16(), self.text()), (204, String::new()));
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The rows of NDJSON.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        self.text().lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// The address of the next page.
    pub(crate) fn next(&self) -> Option<String> {
        let link = self.header("link")?;
        let address = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\""));
        Some(address.expect("a link to the next page").to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }
}
