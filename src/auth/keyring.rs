//! The keyring: a cache of the keys and projects in the database.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::NaiveDate;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use uuid::Uuid;

use super::Kind;
use super::failures::Failures;
use super::keys::{self, ApiKey, PREFIX, Scope};
use super::rates::{self, Rates};
use crate::error::{Error, Result};
use crate::privacy::capture::Capture;
use crate::projects::{self, Defaults, FRESH, Tenant};
use crate::sharing::{Entry, Served, Shares, Work, while_wanted};
use crate::types::Timestamp;

/// The header that names the project that a request is about.
pub const PROJECT: &str = "Gleaner-Project";

/// Keys by their SHA-256, and when each was read.
type KnownKeys = HashMap<[u8; 32], (Instant, Arc<ApiKey>)>;
/// The key and the project of a request. On an open server, there is no key.
type Remembered = (Option<Arc<ApiKey>>, Arc<Tenant>);
/// Projects by their name, and when each was read, unless this server has made a change since.
type KnownProjects = HashMap<Arc<str>, (Option<Instant>, Arc<Tenant>)>;

/// The number of known projects above which those that were not read recently are forgotten.
const MANY_PROJECTS: usize = 1_000;

/// The number of bytes that the compiled rules of all known projects may take together. With more, some are forgotten, and
/// compiled again when they are needed.
const MOST_RULES: usize = 64 << 20;

/// A cache of the keys and projects in the database.
#[derive(Debug)]
pub struct Keyring {
    db: PgPool,
    closed: AtomicBool,
    open_until: Mutex<Option<Instant>>,
    /// How many changes this server has made to keys and projects. What was read before a change is not
    /// cached after it.
    changes: AtomicU64,
    keys: Mutex<KnownKeys>,
    /// The keys that were used today, if that is not stored yet.
    used: Mutex<HashSet<Uuid>>,
    failures: Failures,
    rates: Rates,
    /// The places of projects at reading, and at changing what is not an event.
    reading: Shares,
    /// The places of projects at administering, such as at erasures, which wait for locks.
    administering: Shares,
    work: Arc<Work>,
    /// The places at looking up keys in the database: those that anybody may make up, and those that were known lately.
    looking_up: [Semaphore; 2],
    projects: Mutex<KnownProjects>,
    /// The places of projects at being read, one for each, so that requests that come together read it once.
    reading_projects: Shares,
    /// The settings that apply where a project has none of its own.
    defaults: Defaults,
    /// Whether every caller is trusted, because only the user who has opened the database sends requests.
    trusts: bool,
}

impl Keyring {
    /// Makes an empty keyring for a server with these defaults, of whose connections `db` requests that read may take so
    /// many. It tells `work` of all requests.
    #[must_use]
    pub fn new(db: PgPool, connections: u32, defaults: Defaults, work: Arc<Work>) -> Self {
        let connections = connections as usize;
        Self {
            db,
            closed: AtomicBool::new(false),
            open_until: Mutex::new(None),
            changes: AtomicU64::new(0),
            keys: Mutex::default(),
            used: Mutex::default(),
            failures: Failures::default(),
            rates: Rates::default(),
            reading: Shares::with_total(connections.div_ceil(2), connections),
            administering: Shares::with_total(connections.div_ceil(8), connections.div_ceil(4)),
            work,
            looking_up: [(); 2].map(|()| Semaphore::new(connections.div_ceil(8))),
            projects: Mutex::default(),
            reading_projects: Shares::with_total(1, Semaphore::MAX_PERMITS),
            defaults,
            trusts: false,
        }
    }

    /// Makes the keyring allow everything to everyone, whatever keys exist. This is for a program that serves only
    /// the user who runs it and who can open the database.
    #[must_use]
    pub fn trusting(self) -> Self {
        Self { trusts: true, ..self }
    }

    /// Notes that a project sends a request, so that others leave a part of the machine to it.
    pub(super) fn serve(&self, project: &Arc<str>) -> Served {
        self.work.serve(project)
    }

    /// Returns the turns of projects at working.
    pub(super) fn work(&self) -> &Arc<Work> {
        &self.work
    }

    /// Returns the places of projects at reading.
    #[must_use]
    pub fn reading(&self) -> &Shares {
        &self.reading
    }

    /// Returns how a request of a project is let in. The work of writing is that of the writer, which takes turns for it,
    /// as a request does that has a large body.
    pub(super) fn entry(&self, project: &Arc<str>, kind: Kind) -> Option<Entry> {
        match kind {
            Kind::Writes => None,
            Kind::Reads => Some(Entry::to_read(project, &self.reading, &self.work)),
            Kind::Changes => Some(Entry::without_turn(project, &self.reading)),
            // All projects together leave most connections to readers.
            Kind::Administers => Some(Entry::without_turn(project, &self.administering)),
        }
    }

    /// Returns the server's default of the capture setting.
    #[must_use]
    pub fn capture(&self) -> Capture {
        self.defaults.capture
    }

    /// Returns whether the server is open: as long as no key was ever made, everyone on this machine may do
    /// everything. A revoked key counts as made.
    pub async fn is_open(&self) -> Result<bool> {
        if self.trusts {
            return Ok(true);
        }
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

    /// Makes the keyring read everything again, after this server has changed keys or projects.
    pub fn refresh(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        *self.open_until.lock().expect("never poisoned") = None;
        self.keys.lock().expect("never poisoned").clear();
        // What was compiled of the settings is used again if they have not changed.
        self.projects.lock().expect("never poisoned").values_mut().for_each(|(read, _)| *read = None);
    }

    /// Finds the key that a request carries; none on an open server. A key that is missing, unknown, expired or
    /// revoked is a 401, which is delayed for an address that has sent many wrong keys.
    pub(super) async fn authenticate(&self, parts: &Parts) -> Result<Option<Arc<ApiKey>>> {
        let found = self.key_of(&parts.headers).await;
        self.hold_back(&found, parts).await;
        found
    }

    /// Waits if a request is refused because of its key and its address has sent many wrong keys.
    pub(super) async fn hold_back<T>(&self, found: &Result<T>, parts: &Parts) {
        if matches!(found, Err(Error::Unauthorized(_))) && parts.headers.contains_key(header::AUTHORIZATION) {
            let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
            let delay = self.failures.note(peer.map(|ConnectInfo(address)| address.ip()));
            while_wanted(tokio::time::sleep(delay)).await;
        }
    }

    /// Finds the key that a request carries, as [`Keyring::authenticate`] does, but without a delay.
    pub(super) async fn key_of(&self, headers: &HeaderMap) -> Result<Option<Arc<ApiKey>>> {
        let Some(secret) = credential(headers)? else {
            if self.is_open().await? {
                return Ok(None);
            }
            return Err(Error::Unauthorized(NEEDED));
        };
        if self.is_open().await? {
            return Ok(None);
        }
        let key = usable(self.find(&secret).await?)?;
        if key.last_used_on != Some(today()) {
            self.used.lock().expect("never poisoned").insert(key.id);
        }
        Ok(Some(key))
    }

    /// Answers 401 if a key is no longer usable, and 503 if the settings of a project have changed, since a request came. While
    /// the database is unavailable, nobody knows of a change.
    pub(super) async fn expect_unchanged(&self, key: Option<&ApiKey>, tenant: &Tenant) -> Result<()> {
        const CHANGED: &str = "the project's settings have changed while the body arrived; send it again";
        match self.is_unchanged(key, tenant).await {
            Ok(false) | Err(Error::Unavailable(LATE)) => Err(Error::Unavailable(CHANGED)),
            Err(error) if !error.is_transient() => Err(error),
            _ => Ok(()),
        }
    }

    async fn is_unchanged(&self, key: Option<&ApiKey>, tenant: &Tenant) -> Result<bool> {
        match key {
            Some(key) => {
                usable(self.again(key).await?)?;
            }
            None if self.is_open().await? => {}
            None => return Err(Error::Unauthorized(NEEDED)),
        }
        Ok(self.tenant(&tenant.name).await?.version == tenant.version)
    }

    /// Finds a key that was found before.
    async fn again(&self, key: &ApiKey) -> Result<Arc<ApiKey>> {
        let known = <[u8; 32]>::try_from(key.hash.as_slice())
            .ok()
            .and_then(|hash| self.keys.lock().expect("never poisoned").get(&hash).cloned());
        if let Some((seen, key)) = known
            && seen.elapsed() < FRESH
        {
            return Ok(key);
        }
        let unknown = || Error::Unauthorized("the key is not known to this server");
        Ok(Arc::new(keys::get(&self.db, key.id).await?.ok_or_else(unknown)?))
    }

    /// Returns the cached key and project of a request, however old they are.
    pub(super) fn remembered(&self, headers: &HeaderMap) -> Result<Option<Remembered>> {
        let was_open = self.open_until.lock().expect("never poisoned").is_some();
        let key = if was_open && !self.closed.load(Ordering::Relaxed) {
            None
        } else {
            let Some(secret) = credential(headers)? else { return Ok(None) };
            let hash: [u8; 32] = Sha256::digest(secret).into();
            let known = self.keys.lock().expect("never poisoned").get(&hash).map(|(_, key)| Arc::clone(key));
            let Some(key) = known else { return Ok(None) };
            Some(usable(key)?)
        };
        let name = project_of(key.as_deref(), headers)?;
        let projects = self.projects.lock().expect("never poisoned");
        let tenant = projects.get(name).filter(|(read, _)| read.is_some());
        Ok(tenant.map(|(_, tenant)| (key, Arc::clone(tenant))))
    }

    /// Admits a request, or refuses it because a rate or quota of its key or project is used up.
    pub(super) async fn admit(
        &self,
        key: Option<&ApiKey>,
        tenant: &Tenant,
        writes: bool,
        parts: &Parts,
    ) -> Result<()> {
        self.rates.admit(&self.db, key, tenant, writes, parts).await
    }

    /// Counts the records of a project, for a request that reads and nevertheless adds one.
    pub async fn count_records(&self, tenant: &Tenant) -> Result<()> {
        rates::count_records(&self.db, tenant).await
    }

    /// Stores which keys were used since the last call.
    pub async fn write_used(&self) -> Result<()> {
        let used: Vec<_> = self.used.lock().expect("never poisoned").drain().collect();
        if used.is_empty() {
            return Ok(());
        }
        let written = keys::mark_used(&self.db, &used, today()).await;
        if written.is_err() {
            self.used.lock().expect("never poisoned").extend(used);
        }
        written
    }

    async fn find(&self, secret: &str) -> Result<Arc<ApiKey>> {
        let hash: [u8; 32] = Sha256::digest(secret).into();
        if let Some(key) = self.fresh_key(&hash) {
            return Ok(key);
        }
        let unknown = Error::Unauthorized("the key is not known to this server");
        // Keys are printable. Basic allows a NUL, but Postgres refuses it in a comparison.
        let Some(prefix) =
            secret.get(..PREFIX).filter(|prefix| prefix.bytes().all(|byte| byte.is_ascii_graphic()))
        else {
            return Err(unknown);
        };
        // Strangers do not keep connections from others, and whoever hangs up waits for none.
        let is_known = self.keys.lock().expect("never poisoned").contains_key(&hash);
        let place = timeout(PATIENCE, self.looking_up[usize::from(is_known)].acquire());
        let place = while_wanted(place).await;
        let _place =
            place.map_err(|_| Error::Unavailable("the key could not be looked up in time; try again"))?;
        // Of those who send the same key, the first looks it up for all.
        if let Some(key) = self.fresh_key(&hash) {
            return Ok(key);
        }
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

    /// Returns a key that was looked up recently.
    fn fresh_key(&self, hash: &[u8; 32]) -> Option<Arc<ApiKey>> {
        let keys = self.keys.lock().expect("never poisoned");
        keys.get(hash).filter(|(seen, _)| seen.elapsed() < FRESH).map(|(_, key)| Arc::clone(key))
    }

    /// Finds the project that a request is about.
    pub(super) async fn project(&self, key: Option<&ApiKey>, headers: &HeaderMap) -> Result<Arc<Tenant>> {
        self.tenant(project_of(key, headers)?).await
    }

    /// Finds the project `name` with the settings that writing needs. An unknown project is a 404.
    pub async fn tenant(&self, name: &str) -> Result<Arc<Tenant>> {
        if let Some(tenant) = self.fresh(name) {
            return Ok(tenant);
        }
        let project = name.into();
        let place = timeout(PATIENCE, self.reading_projects.take(&project, 1)).await;
        let _place = place.map_err(|_| Error::Unavailable(LATE))?;
        if let Some(tenant) = self.fresh(name) {
            return Ok(tenant);
        }
        let changes = self.changes.load(Ordering::SeqCst);
        let stored = projects::store::stored(&self.db, name).await?.ok_or(Error::NotFound("project"))?;
        let known =
            self.projects.lock().expect("never poisoned").get(name).map(|(_, known)| Arc::clone(known));
        let tenant = if let Some(known) = known.filter(|known| known.version == stored.version) {
            known.policy.rest();
            known
        } else {
            let mut tenant = stored.tenant(&self.defaults).await?;
            if tenant.quotas.rows.is_some() {
                tenant.room = self.rates.room(&tenant.name);
            }
            Arc::new(tenant)
        };
        let mut projects = self.projects.lock().expect("never poisoned");
        if changes == self.changes.load(Ordering::SeqCst) {
            if projects.len() >= MANY_PROJECTS {
                projects.retain(|_, (read, _)| read.is_some_and(|read| read.elapsed() < FRESH));
            }
            projects.insert(Arc::clone(&tenant.name), (Some(Instant::now()), Arc::clone(&tenant)));
            forget_large(&mut projects, MOST_RULES, |tenant| tenant.policy.memory());
        }
        drop(projects);
        Ok(tenant)
    }

    /// Returns a project that was read recently.
    fn fresh(&self, name: &str) -> Option<Arc<Tenant>> {
        let projects = self.projects.lock().expect("never poisoned");
        let (read, tenant) = projects.get(name)?;
        read.is_some_and(|read| read.elapsed() < FRESH).then(|| Arc::clone(tenant))
    }
}

/// If what is known takes more than `most` bytes, forgets the largest, and of equal ones the older, until half of that is left.
/// What one project takes is then no reason to forget others.
fn forget_large<T>(
    known: &mut HashMap<Arc<str>, (Option<Instant>, T)>,
    most: usize,
    memory: impl Fn(&T) -> usize,
) {
    let mut total: usize = known.values().map(|(_, value)| memory(value)).sum();
    if total <= most {
        return;
    }
    let mut taken: Vec<_> =
        known.iter().map(|(name, (read, value))| (Reverse(memory(value)), *read, Arc::clone(name))).collect();
    taken.sort_unstable();
    for (Reverse(bytes), _, name) in taken {
        if total <= most / 2 {
            break;
        }
        known.remove(&name);
        // Searches may have begun to take more meanwhile.
        total = total.saturating_sub(bytes);
    }
}

/// How long a request waits for another one that reads its project.
const PATIENCE: Duration = Duration::from_secs(5);
/// The refusal of a request that has waited for that.
const LATE: &str = "the project's settings could not be read in time; try again";

/// The refusal of a request without a key.
const NEEDED: &str = "a key is needed: Authorization: Bearer <key>";

/// Returns the key, unless it has expired or was revoked, which is a 401.
fn usable(key: Arc<ApiKey>) -> Result<Arc<ApiKey>> {
    if key.revoked_at.is_some() || key.expires_at.is_some_and(|at| at <= Timestamp::now()) {
        return Err(Error::Unauthorized("the key has expired or was revoked"));
    }
    Ok(key)
}

/// Returns the name of the project that a request is about. That is the key's own project, or the one named by the header
/// `Gleaner-Project` if the caller may choose. Naming another project with an ordinary key is a 403.
fn project_of<'a>(key: Option<&'a ApiKey>, headers: &'a HeaderMap) -> Result<&'a str> {
    let named = match headers.get(PROJECT) {
        Some(value) => Some(value.to_str().map_err(|_| {
            Error::Malformed(format!("the header {PROJECT} has characters that are not ASCII"))
        })?),
        None => None,
    };
    let own = key.map_or("default", |key| &key.project);
    let may_choose = key.is_none_or(|key| key.has(Scope::Operator));
    match named {
        Some(named) if named != own && !may_choose => {
            Err(Error::Forbidden(format!("this key belongs to the project {own}")))
        }
        Some(named) => Ok(named),
        None if may_choose => Ok("default"),
        None => Ok(own),
    }
}

fn today() -> NaiveDate {
    Timestamp::now().0.date_naive()
}

/// Reads the key of a request: a bearer token, or the user name of Basic (RFC 7617), which is what clients
/// make of `https://KEY@host/`.
fn credential(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Error::Unauthorized("the request has several Authorization headers"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_much_is_forgotten_the_largest_and_oldest_first() {
        let now = Instant::now();
        let at = |seconds| Some(now + Duration::from_secs(seconds));
        let mut known: HashMap<Arc<str>, (Option<Instant>, usize)> = [
            ("changed", (None, 10)),
            ("old", (at(1), 30)),
            ("small", (at(0), 0)),
            ("newer", (at(2), 30)),
            ("newest", (at(3), 40)),
        ]
        .map(|(name, value)| (name.into(), value))
        .into();
        let names = |known: &HashMap<Arc<str>, (Option<Instant>, usize)>| {
            let mut names: Vec<_> = known.keys().map(ToString::to_string).collect();
            names.sort_unstable();
            names
        };
        forget_large(&mut known, 110, |bytes| *bytes);
        assert_eq!(known.len(), 5);
        forget_large(&mut known, 109, |bytes| *bytes);
        assert_eq!(names(&known), ["changed", "newer", "small"]);
        forget_large(&mut known, 9, |bytes| *bytes);
        assert_eq!(names(&known), ["small"]);
    }
}
