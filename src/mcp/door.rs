//! [`Door`], through which calls of tools send their requests.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::response::Parts;
use axum::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower::ServiceExt as _;

use super::MOST_VALUES;
use crate::http::memory::{Memory, VALUE};
use crate::types::value;

/// The maximum number of bytes of a response that becomes the result of a call.
const MOST: usize = 4 << 20;
/// The number of times that a response is in memory until the result of the call is sent.
const COPIES: usize = 6;

type Passed = BoxFuture<'static, anyhow::Result<Response<Bytes>>>;

/// The service that answers requests, in this process or on a server elsewhere.
#[derive(Clone)]
pub struct Door(Arc<dyn Fn(Request<Bytes>) -> Passed + Send + Sync>);

impl Door {
    /// Makes a door that sends requests with `pass`. An error says why there is no response.
    pub fn new(pass: impl Fn(Request<Bytes>) -> Passed + Send + Sync + 'static) -> Self {
        Self(Arc::new(pass))
    }

    /// Makes a door to the service in this process.
    #[must_use]
    pub fn of(service: Router) -> Self {
        Self::new(move |request| {
            let service = service.clone();
            Box::pin(async move {
                let memory = Memory::of(request.extensions());
                let Ok(response) = service.oneshot(request.map(Body::from)).await;
                let (parts, body) = response.into_parts();
                match shown(&parts, body, &memory).await {
                    // Who is told of a failure would store it again.
                    Err(_) if parts.status == StatusCode::CREATED => {
                        Ok(Response::from_parts(parts, Bytes::new()))
                    }
                    shown => Ok(Response::from_parts(parts, shown?)),
                }
            })
        })
    }

    /// Makes a door that changes requests before it passes them on.
    #[must_use]
    pub fn with(self, change: impl Fn(&mut Request<Bytes>) + Send + Sync + 'static) -> Self {
        Self::new(move |mut request| {
            change(&mut request);
            (self.0)(request)
        })
    }

    /// Sends a request and waits for the whole response.
    pub async fn pass(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
        (self.0)(request).await
    }
}

/// Reads a response that is not too long for a model, and holds memory for the result of the call.
async fn shown(parts: &Parts, body: Body, memory: &Memory) -> anyhow::Result<Bytes> {
    let too_long = || anyhow::anyhow!("the answer has more than {MOST} bytes; ask for less");
    let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse().ok());
    let size = length.or(body.size_hint().exact()).and_then(|size| usize::try_from(size).ok());
    anyhow::ensure!(size.is_none_or(|size| size <= MOST), too_long());
    memory.hold(COPIES / 2 * size.unwrap_or(MOST)).await?;
    let body = Limited::new(body, MOST).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() { too_long() } else { anyhow::Error::from_boxed(error) }
    })?;
    let body = body.to_bytes();
    let values = value::count(&body);
    anyhow::ensure!(
        values <= MOST_VALUES,
        "the answer has more than {MOST_VALUES} JSON values; ask for less"
    );
    // The response is parsed, and written into another one, as text and as JSON, which is made of values again.
    memory.hold(COPIES / 2 * body.len() + values * VALUE).await?;
    Ok(body)
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}
