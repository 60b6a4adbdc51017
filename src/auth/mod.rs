//! Authentication and authorization. A handler with a [`Caller`] among its arguments runs only for requests that are
//! allowed.

pub mod audit_entries;
pub mod failures;
pub mod keyring;
pub mod keys;
pub mod last_used;
pub mod rates;
pub mod routes;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRef, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Version, header};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::http::json::Recheck;
use crate::http::memory::Memory;
use crate::projects::Tenant;
use keyring::Keyring;
use keys::{ApiKey, Scope};

/// What a handler does with the database, which decides how its requests are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It hands events to the writer.
    Writes,
    /// It reads.
    Reads,
    /// It changes what is not an event, which takes a moment.
    Changes,
    /// It may take long or wait for locks, as erasures do.
    Administers,
}

/// A scope as a type, so that a handler's signature says which scope it needs, and what it does.
pub trait Needs: Send + Sync {
    /// The scope that the handler needs.
    const SCOPE: Scope;
    /// What the handler does.
    const KIND: Kind;
}

/// Marks handlers that need [`Scope::Write`] for events.
#[derive(Debug)]
pub struct Write;
/// Marks handlers that need [`Scope::Write`] for what is not an event.
#[derive(Debug)]
pub struct Change;
/// Marks handlers that need [`Scope::Read`].
#[derive(Debug)]
pub struct Read;
/// Marks handlers that need [`Scope::Admin`].
#[derive(Debug)]
pub struct Admin;

impl Needs for Write {
    const SCOPE: Scope = Scope::Write;
    const KIND: Kind = Kind::Writes;
}
impl Needs for Change {
    const SCOPE: Scope = Scope::Write;
    const KIND: Kind = Kind::Changes;
}
impl Needs for Read {
    const SCOPE: Scope = Scope::Read;
    const KIND: Kind = Kind::Reads;
}
impl Needs for Admin {
    const SCOPE: Scope = Scope::Admin;
    const KIND: Kind = Kind::Administers;
}

/// A caller who has the scope `S` in the project that the request is about.
#[derive(Debug)]
pub struct Caller<S> {
    /// The name of the project that the request is about. The project exists.
    pub project: Arc<str>,
    /// The project that the request is about, with the settings that writing needs.
    pub tenant: Arc<Tenant>,
    /// The caller's key; none on an open server.
    key: Option<Arc<ApiKey>>,
    scope: PhantomData<S>,
}

/// Who performed an action, for the audit log.
#[derive(Debug, Clone)]
pub struct Actor {
    /// Their key, if one was needed.
    pub key: Option<Uuid>,
    /// The key's name, or how the action was performed without a key.
    pub name: Cow<'static, str>,
}

impl Actor {
    /// A user of the command line who uses the database directly.
    pub const COMMAND_LINE: Self = Self { key: None, name: Cow::Borrowed("command line") };
}

impl<S> Caller<S> {
    /// Returns who is calling.
    #[must_use]
    pub fn actor(&self) -> Actor {
        match &self.key {
            Some(key) => Actor { key: Some(key.id), name: key.name.clone().into() },
            None => Actor { key: None, name: "open server".into() },
        }
    }

    /// Returns the id of the caller's key; none on an open server.
    #[must_use]
    pub fn key(&self) -> Option<Uuid> {
        self.key.as_ref().map(|key| key.id)
    }

    /// Returns whether the caller may act on every project.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.key.as_ref().is_none_or(|key| key.has(Scope::Operator))
    }

    /// Returns whether the caller may read what others have posted.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.expect(Scope::Read).is_ok()
    }

    /// Returns whether the caller may record something.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.expect(Scope::Write).is_ok()
    }

    /// Answers 403 to a caller who may act neither on `project` nor on every project.
    pub fn expect_project(&self, project: &str) -> Result<()> {
        if *self.project == *project { Ok(()) } else { self.expect(Scope::Operator) }
    }

    /// Answers 403 to a caller without `scope`. It keeps callers from granting scopes that they do not have.
    pub fn expect(&self, scope: Scope) -> Result<()> {
        match &self.key {
            Some(key) => expect_scope(key, scope),
            None => Ok(()),
        }
    }
}

impl<N: Needs> Caller<N> {
    /// Finds the caller of a request within `patience`, in which a refusal's delay is not included. If the database does not
    /// answer, it is a caller whose key and project are cached, however long ago they were read, if `may_pass` says so of
    /// their project. The second value is whether the caller is known only so.
    pub async fn within(
        patience: Duration,
        keyring: &Arc<Keyring>,
        parts: &mut Parts,
        may_pass: impl Fn(&Tenant) -> bool,
    ) -> Result<(Self, bool)> {
        let remembered = Self::remembered(keyring, &parts.headers)?;
        let end = Instant::now() + patience;
        let found = match remembered.filter(|caller| may_pass(&caller.tenant)) {
            None => Self::find(keyring, parts).await,
            Some(remembered) => match timeout_at(end, Self::known(keyring, parts)).await {
                Err(_) => return Ok((remembered, true)),
                Ok(Err(error)) if error.is_transient() => return Ok((remembered, true)),
                Ok(Err(error)) => Err(error),
                // The settings in force are known, even if it takes too long to let the request in.
                Ok(Ok(caller)) => match timeout_at(end, caller.let_in(keyring, parts)).await {
                    Ok(Err(error)) if !error.is_transient() => Err(error),
                    _ => Ok(caller),
                },
            },
        };
        keyring.hold_back(&found, parts).await;
        Ok((found?, false))
    }

    /// Returns the caller if the key and the project are cached.
    fn remembered(keyring: &Keyring, headers: &HeaderMap) -> Result<Option<Self>> {
        let Some((key, tenant)) = keyring.remembered(headers)? else { return Ok(None) };
        if let Some(key) = &key {
            expect_scope(key, N::SCOPE)?;
        }
        Ok(Some(Self { project: Arc::clone(&tenant.name), tenant, key, scope: PhantomData }))
    }

    /// Finds the caller of a request, and lets the request in.
    async fn find(keyring: &Arc<Keyring>, parts: &mut Parts) -> Result<Self> {
        let caller = Self::known(keyring, parts).await?;
        caller.let_in(keyring, parts).await?;
        Ok(caller)
    }

    /// Finds the caller of a request.
    async fn known(keyring: &Keyring, parts: &Parts) -> Result<Self> {
        let key = keyring.key_of(&parts.headers).await?;
        if let Some(key) = &key {
            expect_scope(key, N::SCOPE)?;
        }
        let tenant = keyring.project(key.as_deref(), &parts.headers).await?;
        Ok(Self { project: Arc::clone(&tenant.name), tenant, key, scope: PhantomData })
    }

    /// Lets the request of the caller in.
    async fn let_in(&self, keyring: &Arc<Keyring>, parts: &mut Parts) -> Result<()> {
        let Self { tenant, key, .. } = self;
        keyring.admit(key.as_deref(), tenant, N::SCOPE == Scope::Write, parts).await?;
        parts.extensions.insert(recheck(keyring, key.as_ref(), tenant));
        let memory = Memory::of(&parts.extensions);
        memory.set_project(&tenant.name);
        memory.is_served(keyring.serve(&tenant.name));
        memory.takes_turns(keyring.work());
        match keyring.entry(&tenant.name, N::KIND) {
            Some(entry) => memory.enter(entry).await,
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
        let found = Self::find(&keyring, parts).await;
        keyring.hold_back(&found, parts).await;
        found
    }
}

/// A caller whose key is known, whatever its scopes. A [`Caller`] then decides whether the request is allowed.
#[derive(Debug)]
pub struct Known {
    /// The name of the project that their requests are about. The project exists.
    pub project: Arc<str>,
    /// Their key; none on an open server.
    pub key: Option<Uuid>,
}

impl<S: Send + Sync> FromRequestParts<S> for Known
where
    Arc<Keyring>: FromRef<S>,
{
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let keyring = Arc::<Keyring>::from_ref(state);
        let key = keyring.authenticate(parts).await?;
        let tenant = keyring.project(key.as_deref(), &parts.headers).await?;
        Memory::of(&parts.extensions).set_project(&tenant.name);
        Ok(Self { project: Arc::clone(&tenant.name), key: key.map(|key| key.id) })
    }
}

/// Makes the check whether a key is still usable and a project's settings are still the same.
fn recheck(keyring: &Arc<Keyring>, key: Option<&Arc<ApiKey>>, tenant: &Arc<Tenant>) -> Recheck {
    let (keyring, key, tenant) = (Arc::clone(keyring), key.cloned(), Arc::clone(tenant));
    Recheck::new(move || {
        let (keyring, key, tenant) = (Arc::clone(&keyring), key.clone(), Arc::clone(&tenant));
        async move { keyring.expect_unchanged(key.as_deref(), &tenant).await }
    })
}

fn expect_scope(key: &ApiKey, scope: Scope) -> Result<()> {
    if key.has(scope) || key.has(Scope::Operator) {
        return Ok(());
    }
    Err(Error::Forbidden(format!("this key lacks the scope {}", scope.as_str())))
}

/// Returns whether a request is addressed to a name that is not this machine's own (as after DNS rebinding), comes through a
/// proxy, or is sent by a browser on behalf of another page, also of one that another port of this machine serves.
pub fn is_foreign(request: &Request) -> Result<bool> {
    Ok(is_of_other_page(request)? || !is_local(host(request)?) || is_forwarded(request.headers()))
}

/// Returns whether a browser sends a request on behalf of another page than this server's own.
pub fn is_of_other_page(request: &Request) -> Result<bool> {
    let host = host(request)?;
    let headers = request.headers();
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    Ok(text("sec-fetch-site").is_some_and(|site| ["cross-site", "same-site"].contains(&site))
        || text("origin").is_some_and(|origin| {
            origin.split_once("://").is_none_or(|(_, from)| !from.eq_ignore_ascii_case(host))
        }))
}

/// Protects a server without keys from web pages: it answers no request that [`is_foreign`].
pub async fn guard_open(keyring: &Keyring, is_foreign: bool) -> Result<()> {
    // Finding out whether the server is open may take a query, and most requests do not depend on it.
    if is_foreign && keyring.is_open().await? {
        return Err(Error::Forbidden(
            "this server has no key yet, so it answers only requests of this machine to localhost; \
             `gleaner keys create --scope operator` makes one"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns the host that a request names: the authority of its address, as in HTTP/2, or the header `Host`. A
/// request that names none, or several, is a 400 (RFC 9112, section 3.2).
fn host(request: &Request) -> Result<&str> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (request.uri().authority(), hosts.next(), hosts.next()) {
        (_, _, Some(_)) => Err(Error::Malformed("the request has several Host headers".to_owned())),
        (Some(authority), ..) => Ok(authority.as_str()),
        (None, Some(host), None) => Ok(host.to_str().unwrap_or_default()),
        (None, None, None) if request.version() == Version::HTTP_11 => {
            Err(Error::Malformed("the request has no Host header".to_owned()))
        }
        (None, None, None) => Ok(""),
    }
}

/// Returns whether a host, with or without a port, is one of this machine's own names.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name.to_ascii_lowercase().as_str())
}

/// A caller who may read the metrics: anyone on this machine, and elsewhere the holder of any key. A caller who comes
/// through a proxy on this machine counts as one from elsewhere.
pub struct MayMeasure;

/// The headers by which proxies say that they pass a request on (RFC 7239 and what came before it).
const FORWARDED: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

/// Returns whether a proxy says that it passes a request on. Whoever sent it may be on another machine.
fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(*name))
}

impl<S: Send + Sync> FromRequestParts<S> for MayMeasure
where
    Arc<Keyring>: FromRef<S>,
{
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let is_local = peer.is_some_and(|ConnectInfo(address)| address.ip().is_loopback());
        let is_forwarded = is_forwarded(&parts.headers);
        if !is_local || is_forwarded {
            Arc::<Keyring>::from_ref(state).authenticate(parts).await?;
        }
        Ok(Self)
    }
}
