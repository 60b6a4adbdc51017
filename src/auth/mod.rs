//! Who may do what: [`Caller`] is an extractor that exists only for a request that is allowed.

pub mod keyring;
pub mod keys;
pub mod routes;

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use crate::error::{Error, Result};
use crate::projects::Tenant;
use keyring::Keyring;
use keys::{ApiKey, Scope};

/// A scope as a type, so that a handler's signature says what it needs.
pub trait Needs: Send + Sync {
    /// The scope.
    const SCOPE: Scope;
}

/// The handler needs [`Scope::Write`].
#[derive(Debug)]
pub struct Write;
/// The handler needs [`Scope::Read`].
#[derive(Debug)]
pub struct Read;
/// The handler needs [`Scope::Admin`].
#[derive(Debug)]
pub struct Admin;

impl Needs for Write {
    const SCOPE: Scope = Scope::Write;
}
impl Needs for Read {
    const SCOPE: Scope = Scope::Read;
}
impl Needs for Admin {
    const SCOPE: Scope = Scope::Admin;
}

/// A caller who has the scope `S` in the project that the request is about.
#[derive(Debug)]
pub struct Caller<S> {
    /// The name of the project that the request is about; the project exists.
    pub project: Arc<str>,
    /// That project.
    pub tenant: Arc<Tenant>,
    /// The caller's key; none on an open server.
    key: Option<Arc<ApiKey>>,
    scope: PhantomData<S>,
}

impl<S> Caller<S> {
    /// Whether the caller may act on every project.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.key.as_ref().is_none_or(|key| key.has(Scope::Operator))
    }

    /// Refuses a caller who may act neither for `project` nor for all.
    pub fn expect_project(&self, project: &str) -> Result<()> {
        if *self.project == *project { Ok(()) } else { self.expect(Scope::Operator) }
    }

    /// Refuses a caller without `scope`: nobody gives what they do not have.
    pub fn expect(&self, scope: Scope) -> Result<()> {
        match &self.key {
            Some(key) => expect_scope(key, scope),
            None => Ok(()),
        }
    }
}

impl<N: Needs, S: Send + Sync> FromRequestParts<S> for Caller<N>
where
    Arc<Keyring>: FromRef<S>,
{
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let keyring = Arc::<Keyring>::from_ref(state);
        let key = keyring.authenticate(&parts.headers).await?;
        if let Some(key) = &key {
            expect_scope(key, N::SCOPE)?;
        }
        let tenant = keyring.project(key.as_deref(), &parts.headers).await?;
        Ok(Self { project: Arc::clone(&tenant.name), tenant, key, scope: PhantomData })
    }
}

fn expect_scope(key: &ApiKey, scope: Scope) -> Result<()> {
    if key.has(scope) || key.has(Scope::Operator) {
        return Ok(());
    }
    Err(Error::Forbidden(format!("this key lacks the scope {}", scope.as_str())))
}

/// Guards an open server against web pages: only this machine's own names are answered, and no request that a browser
/// sends on behalf of another site.
pub async fn guard_open(keyring: &Keyring, headers: &HeaderMap) -> Result<()> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    let cross_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
        || headers
            .get(header::ORIGIN)
            .is_some_and(|origin| origin.to_str().map_or(true, |origin| !is_local_origin(origin)));
    // Asking whether the server is open may need the database; most requests need no answer.
    if (cross_site || !is_local(host)) && keyring.is_open().await? {
        return Err(Error::Forbidden(
            "this server has no key yet, so it answers only requests of this machine to localhost; \
             `gleaner keys create` makes one"
                .to_owned(),
        ));
    }
    Ok(())
}

fn is_local_origin(origin: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, host)| is_local(host))
}

/// Whether a host, with or without port, is one of this machine's own names.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name.to_ascii_lowercase().as_str())
}

/// A caller who may see the metrics: anyone on this machine, and any key.
pub struct MayMeasure;

impl<S: Send + Sync> FromRequestParts<S> for MayMeasure
where
    Arc<Keyring>: FromRef<S>,
{
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        if peer.is_none_or(|ConnectInfo(address)| !address.ip().is_loopback()) {
            Arc::<Keyring>::from_ref(state).authenticate(&parts.headers).await?;
        }
        Ok(Self)
    }
}
