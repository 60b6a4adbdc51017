//! The page at `/docs/` that shows the OpenAPI document and sends requests. It is Swagger UI, with nothing from
//! elsewhere.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use utoipa_swagger_ui::Config;

use crate::http::send::Shared;

/// Returns the page and its files.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let config = Arc::new(Config::from("/openapi.json"));
    let page = Arc::clone(&config);
    Router::new()
        .route("/docs", get(|| async { Redirect::permanent("/docs/") }))
        .route("/docs/", get(|| async move { file("index.html", page) }))
        .route(
            "/docs/{*file}",
            get(|uri: Uri| async move { file(uri.path().trim_start_matches("/docs/"), config) }),
        )
}

/// Returns a response with a document that is the same for everybody.
pub fn shared(content_type: &str, bytes: Bytes) -> Response {
    let mut response = ([(header::CONTENT_TYPE, content_type)], bytes).into_response();
    response.extensions_mut().insert(Shared);
    response
}

fn file(path: &str, config: Arc<Config<'static>>) -> Response {
    match utoipa_swagger_ui::serve(path, config) {
        Ok(Some(file)) => {
            let bytes = match (path, file.bytes) {
                ("index.html", page) => String::from_utf8_lossy(&page)
                    .replace("<title>Swagger UI</title>", "<title>Gleaner</title>")
                    .into(),
                (_, Cow::Borrowed(bytes)) => return shared(&file.content_type, Bytes::from_static(bytes)),
                (_, Cow::Owned(bytes)) => Bytes::from(bytes),
            };
            ([(header::CONTENT_TYPE, file.content_type)], bytes).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
