//! Who may do what: keys, their scopes, and [`Caller`], an extractor that exists only for a request that is allowed.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{Error, Result};
use crate::projects::{self, KeyRow};
use crate::value::Timestamp;

/// How long another server's change to keys and projects may go unnoticed.
const FRESH: Duration = Duration::from_secs(5);
/// Length of the part of a key that finds it in the table.
const PREFIX: usize = 12;
/// The shortest text taken as a key chosen by the operator.
const SHORTEST: usize = 32;

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Post events.
    Write,
    /// Read records, lists, figures and exports.
    Read,
    /// Change its project's settings and keys, and erase.
    Admin,
    /// All of these, in every project.
    Operator,
}

impl Scope {
    /// As stored and sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }
}

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
    /// The project that the request is about; it exists.
    pub project: Arc<str>,
    /// The caller's key; none on an open server.
    key: Option<Arc<KeyRow>>,
    scope: PhantomData<S>,
}

impl<S> Caller<S> {
    /// Whether the caller may act on every project.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.key.as_ref().is_none_or(|key| key.has(Scope::Operator))
    }

    /// Refuses a caller without `scope`: nobody gives what he does not have.
    pub fn expect(&self, scope: Scope) -> Result<()> {
        match &self.key {
            Some(key) => expect_scope(key, scope),
            None => Ok(()),
        }
    }
}

impl<N: Needs> FromRequestParts<App> for Caller<N> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let key = app.keyring.authenticate(&parts.headers).await?;
        if let Some(key) = &key {
            expect_scope(key, N::SCOPE)?;
        }
        let project = app.keyring.project(key.as_deref(), &parts.headers).await?;
        Ok(Self { project, key, scope: PhantomData })
    }
}

fn expect_scope(key: &KeyRow, scope: Scope) -> Result<()> {
    if key.has(scope) || key.has(Scope::Operator) {
        return Ok(());
    }
    Err(Error::Forbidden(format!("this key lacks the scope {}", scope.as_str())))
}

/// A secret that was just made, and what is stored of it.
pub struct Secret {
    /// The key itself, to be shown once.
    pub text: String,
    /// Its beginning, which finds it.
    pub prefix: String,
    /// SHA-256 of it.
    pub hash: Vec<u8>,
}

impl Secret {
    /// A new random key: 304 random bits, of which 262 stay secret once the prefix is known.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 38];
        getrandom::fill(&mut bytes).map_err(anyhow::Error::from)?;
        Ok(Self::of(format!("glnr_{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// A key chosen by the operator.
    pub fn chosen(text: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(
            text.len() >= SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic()),
            "the admin key must have at least {SHORTEST} printable ASCII characters; `openssl rand -hex 32` makes one"
        );
        Ok(Self::of(text.to_owned()))
    }

    fn of(text: String) -> Self {
        Self { prefix: text[..PREFIX].to_owned(), hash: Sha256::digest(&text).to_vec(), text }
    }
}

/// Keys by their hash, and when each was seen.
type KnownKeys = HashMap<[u8; 32], (Instant, Arc<KeyRow>)>;

/// Keys and projects as last seen in the database.
#[derive(Debug)]
pub struct Keyring {
    db: PgPool,
    closed: AtomicBool,
    open_until: Mutex<Option<Instant>>,
    /// How many changes this server has made: what was read before one is not kept after it.
    changes: AtomicU64,
    keys: Mutex<KnownKeys>,
    projects: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Keyring {
    /// A keyring that knows nothing yet.
    #[must_use]
    pub fn new(db: PgPool) -> Self {
        Self {
            db,
            closed: AtomicBool::new(false),
            open_until: Mutex::new(None),
            changes: AtomicU64::new(0),
            keys: Mutex::default(),
            projects: Mutex::default(),
        }
    }

    /// Whether there has never been a key: then everyone on this machine may do everything. A revoked key still counts.
    pub async fn is_open(&self) -> Result<bool> {
        if self.closed.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let known = *self.open_until.lock().expect("never poisoned");
        if known.is_some_and(|until| Instant::now() < until) {
            return Ok(true);
        }
        let changes = self.changes.load(Ordering::SeqCst);
        let open = !projects::any_key(&self.db).await?;
        self.closed.fetch_or(!open, Ordering::Relaxed);
        let mut open_until = self.open_until.lock().expect("never poisoned");
        if changes == self.changes.load(Ordering::SeqCst) {
            *open_until = Some(Instant::now() + FRESH);
        }
        Ok(open)
    }

    /// Forgets what is cached, after a change made by this server.
    pub fn refresh(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        *self.open_until.lock().expect("never poisoned") = None;
        self.keys.lock().expect("never poisoned").clear();
        self.projects.lock().expect("never poisoned").clear();
    }

    /// The caller's key; none on an open server.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Option<Arc<KeyRow>>> {
        let Some(secret) = credential(headers)? else {
            if self.is_open().await? {
                return Ok(None);
            }
            return Err(Error::Unauthorized("a key is needed: Authorization: Bearer <key>"));
        };
        if self.is_open().await? {
            return Ok(None);
        }
        let key = self.find(&secret).await?;
        if key.revoked_at.is_some() || key.expires_at.is_some_and(|at| at <= Timestamp::now()) {
            return Err(Error::Unauthorized("the key has expired or was revoked"));
        }
        Ok(Some(key))
    }

    async fn find(&self, secret: &str) -> Result<Arc<KeyRow>> {
        let hash: [u8; 32] = Sha256::digest(secret).into();
        if let Some((seen, key)) = self.keys.lock().expect("never poisoned").get(&hash)
            && seen.elapsed() < FRESH
        {
            return Ok(Arc::clone(key));
        }
        let unknown = Error::Unauthorized("the key is not known here");
        // Keys are printable; a NUL, which Basic lets through, Postgres would not even compare.
        let Some(prefix) =
            secret.get(..PREFIX).filter(|prefix| prefix.bytes().all(|byte| byte.is_ascii_graphic()))
        else {
            return Err(unknown);
        };
        let changes = self.changes.load(Ordering::SeqCst);
        let candidates = projects::keys_by_prefix(&self.db, prefix).await?;
        let found = candidates.into_iter().find(|key| bool::from(key.hash.as_slice().ct_eq(&hash)));
        let key = Arc::new(found.ok_or(unknown)?);
        let mut keys = self.keys.lock().expect("never poisoned");
        if changes == self.changes.load(Ordering::SeqCst) {
            keys.insert(hash, (Instant::now(), Arc::clone(&key)));
        }
        drop(keys);
        Ok(key)
    }

    /// The project that a request is about: the key's own, or for those who may choose the one named by the header.
    async fn project(&self, key: Option<&KeyRow>, headers: &HeaderMap) -> Result<Arc<str>> {
        let named = match headers.get("gleaner-project") {
            Some(value) => Some(value.to_str().map_err(|_| {
                Error::Malformed("the header Gleaner-Project holds other characters than ASCII".to_owned())
            })?),
            None => None,
        };
        let own = key.map_or("default", |key| &key.project);
        let may_choose = key.is_none_or(|key| key.has(Scope::Operator));
        let name = match named {
            Some(named) if named != own && !may_choose => {
                return Err(Error::Forbidden(format!("this key belongs to the project {own}")));
            }
            Some(named) => named,
            None if may_choose => "default",
            None => own,
        };
        if let Some((known, seen)) = self.projects.lock().expect("never poisoned").get_key_value(name)
            && seen.elapsed() < FRESH
        {
            return Ok(Arc::clone(known));
        }
        if !projects::exists(&self.db, name).await? {
            return Err(Error::NotFound("project"));
        }
        let name = Arc::<str>::from(name);
        self.projects.lock().expect("never poisoned").insert(Arc::clone(&name), Instant::now());
        Ok(name)
    }
}

/// The key of a request: a bearer token, or the user name of Basic, which is what a URL with a user becomes.
fn credential(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let malformed = Error::Unauthorized("the Authorization header is neither Bearer <key> nor Basic");
    let Ok(value) = value.to_str() else {
        return Err(malformed);
    };
    let Some((scheme, credentials)) = value.split_once(' ') else {
        return Err(malformed);
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(credentials.trim().to_owned()));
    }
    let decoded = STANDARD.decode(credentials.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded {
        Some(user) if scheme.eq_ignore_ascii_case("basic") => {
            Ok(Some(user.split_once(':').map_or(user.as_str(), |(name, _)| name).to_owned()))
        }
        _ => Err(malformed),
    }
}

/// Guards an open server against web pages: only this machine's own names are answered, and no request that a browser
/// sends on behalf of another site.
pub async fn guard_open(app: &App, headers: &HeaderMap) -> Result<()> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    let cross_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
        || headers
            .get(header::ORIGIN)
            .is_some_and(|origin| origin.to_str().map_or(true, |origin| !is_local_origin(origin)));
    // Asking whether the server is open may need the database; most requests need no answer.
    if (cross_site || !is_local(host)) && app.keyring.is_open().await? {
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

impl FromRequestParts<App> for MayMeasure {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        if peer.is_none_or(|ConnectInfo(address)| !address.ip().is_loopback()) {
            app.keyring.authenticate(&parts.headers).await?;
        }
        Ok(Self)
    }
}
