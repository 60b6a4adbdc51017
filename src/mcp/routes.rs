//! The endpoint of MCP: Streamable HTTP, in which every request is independent, so that any server can answer it.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use http_body_util::Full;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use utoipa::openapi::OpenApi;

use super::{Door, MOST_VALUES, Mcp, Place, Tools};
use crate::auth::{Known, is_of_other_page};
use crate::error::{Error, PassedOn, Result};
use crate::http::clean::clean_json;
use crate::http::json::{self, JSON_LIMIT};
use crate::http::memory::Memory;
use crate::memories::conversations;
use crate::state::App;
use crate::types::value;

/// The maximum size of a message in bytes. The arguments of a call are at most as large as the body that they become.
const LIMIT: usize = JSON_LIMIT + (64 << 10);

/// The number of bytes that a call takes besides its message: those of the library, and of the request that it becomes.
const CALL: usize = 40 << 10;

type Service = StreamableHttpService<Mcp, NeverSessionManager>;

/// Returns the endpoint. Calls go through `door`, and the tools follow from the OpenAPI document.
pub fn routes(door: &Door, document: &OpenApi) -> Router<App> {
    let tools = Arc::new(Tools::of(document));
    let door = door.clone();
    // Our own rules check `Host` and `Origin`, because they know whether the server is open.
    let settings = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(LIMIT)
        .disable_allowed_hosts();
    let serve = move || Ok(Mcp::new(Arc::clone(&tools), door.clone(), Place::default()));
    let service = Service::new(serve, Arc::new(NeverSessionManager::default()), settings);
    Router::new().route(
        "/mcp",
        any(move |State(app): State<App>, request: Request| answer(app, service.clone(), request)),
    )
}

/// Answers a message. The caller needs a key, and a browser may send messages only for pages of this server. What a
/// call may do is decided by the endpoint that it reaches.
async fn answer(app: App, service: Service, request: Request) -> Response {
    match admit(app, request).await {
        Ok(request) => {
            let mut response = service.handle(request).await.map(Body::new);
            response.extensions_mut().insert(PassedOn);
            response
        }
        Err(error) => error.into_response(),
    }
}

async fn admit(app: App, request: Request) -> Result<axum::http::Request<Full<bytes::Bytes>>> {
    if is_of_other_page(&request)? {
        return Err(Error::Forbidden("pages of other sites may not call tools".to_owned()));
    }
    let (mut parts, body) = request.into_parts();
    let known = Known::from_request_parts(&mut parts, &app).await?;
    let mut body = json::body(Request::from_parts(parts.clone(), body), LIMIT).await?;
    body.replaced.add(clean_json(&mut body.bytes)?);
    let values = value::count(&body.bytes);
    if values > MOST_VALUES {
        return Err(Error::TooLarge(format!("the message has more than {MOST_VALUES} JSON values")));
    }
    Memory::of(&parts.extensions).hold_values(CALL + body.bytes.len(), values).await?;
    parts.extensions.insert(LastActive { app, known: Arc::new(known) });
    Ok(axum::http::Request::from_parts(parts, Full::new(body.bytes.into())))
}

/// The session in which a caller's key was last used. It is looked up only for calls that name no session.
#[derive(Clone)]
pub(super) struct LastActive {
    app: App,
    known: Arc<Known>,
}

impl LastActive {
    /// Finds the session and its folder. If the database does not answer, both are unknown, and the endpoint that the
    /// call reaches reports the error.
    pub(super) async fn find(&self) -> Place {
        let Known { project, key } = &*self.known;
        let found = conversations::last_active(&self.app.db, project, *key).await;
        let (session, root) = found.ok().flatten().unzip();
        Place { session, root: root.flatten() }
    }
}

impl fmt::Debug for LastActive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LastActive").field(&self.known).finish()
    }
}
