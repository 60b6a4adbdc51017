//! The keyring: keys and projects as they were last seen in the database.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use subtle::ConstantTimeEq;

use super::keys::{self, ApiKey, PREFIX, Scope};
use crate::error::{Error, Result};
use crate::privacy::capture::Capture;
use crate::projects::{self, Defaults, Tenant};
use crate::types::Timestamp;

/// The header that names the project that a request is about.
pub const PROJECT: &str = "Gleaner-Project";
/// How long another server's change to keys and projects may go unnoticed.
const FRESH: Duration = Duration::from_secs(5);

/// Keys by their hash, and when each was seen.
type KnownKeys = HashMap<[u8; 32], (Instant, Arc<ApiKey>)>;
/// Projects by their name, and when each was seen.
type KnownProjects = HashMap<Arc<str>, (Instant, Arc<Tenant>)>;

/// Keys and projects as last seen in the database.
#[derive(Debug)]
pub struct Keyring {
    db: PgPool,
    closed: AtomicBool,
    open_until: Mutex<Option<Instant>>,
    /// How many changes this server has made: what was read before one is not kept after it.
    changes: AtomicU64,
    keys: Mutex<KnownKeys>,
    projects: Mutex<KnownProjects>,
    /// What holds where projects do not say.
    defaults: Defaults,
}

impl Keyring {
    /// A keyring that has seen nothing yet, on a server with these defaults.
    #[must_use]
    pub fn new(db: PgPool, defaults: Defaults) -> Self {
        Self {
            db,
            closed: AtomicBool::new(false),
            open_until: Mutex::new(None),
            changes: AtomicU64::new(0),
            keys: Mutex::default(),
            projects: Mutex::default(),
            defaults,
        }
    }

    /// What is kept where projects do not say.
    #[must_use]
    pub fn capture(&self) -> Capture {
        self.defaults.capture
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
        let open = !keys::any(&self.db).await?;
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
    pub(super) async fn authenticate(&self, headers: &HeaderMap) -> Result<Option<Arc<ApiKey>>> {
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

    async fn find(&self, secret: &str) -> Result<Arc<ApiKey>> {
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
        let candidates = keys::by_prefix(&self.db, prefix).await?;
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
    pub(super) async fn project(&self, key: Option<&ApiKey>, headers: &HeaderMap) -> Result<Arc<Tenant>> {
        let named = match headers.get(PROJECT) {
            Some(value) => Some(value.to_str().map_err(|_| {
                Error::Malformed(format!("the header {PROJECT} holds other characters than ASCII"))
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
        self.tenant(name).await
    }

    /// A project as its events are taken, if it exists.
    pub async fn tenant(&self, name: &str) -> Result<Arc<Tenant>> {
        if let Some((seen, tenant)) = self.projects.lock().expect("never poisoned").get(name)
            && seen.elapsed() < FRESH
        {
            return Ok(Arc::clone(tenant));
        }
        let changes = self.changes.load(Ordering::SeqCst);
        let tenant = projects::store::tenant(&self.db, name, &self.defaults).await?;
        let tenant = Arc::new(tenant.ok_or(Error::NotFound("project"))?);
        let mut projects = self.projects.lock().expect("never poisoned");
        if changes == self.changes.load(Ordering::SeqCst) {
            projects.insert(Arc::clone(&tenant.name), (Instant::now(), Arc::clone(&tenant)));
        }
        drop(projects);
        Ok(tenant)
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
