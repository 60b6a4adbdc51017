//! Transcripts: lines that an agent writes of itself, as often as they come, learned from once.
//!
//! Lines are taken in pieces of some megabytes, each one transaction, so memory does not grow with the transcript. Senders of
//! one source take turns. A line counts once within its source, by its bytes; a use of a tool and a result once, by their id.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::OwnedMutexGuard;
use utoipa::IntoParams;
use uuid::Uuid;

use super::Searches;
pub use super::intake::Counts;
use super::intake::{self, Call, Calls, Carried, Pending};
use super::write::Desk;
use crate::agents::{Agent, Entry, NotAnObject, ToolPatterns};
use crate::db::retry::Losses;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::http::{Check, Checks, clean_json, utf8};
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::privacy::policy::Private;
use crate::projects::Tenant;
use crate::types::{Timestamp, derived_id};

/// Where lines come from.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Origin {
    /// The agent that writes the transcript.
    #[param(inline, value_type = Agent, example = "claude-code")]
    pub agent: &'static Agent,
    /// The name of the transcript: a line counts once under it.
    #[param(min_length = 1, max_length = 1000, example = "my-session.jsonl")]
    pub source: String,
    /// Whether searches are followed and learned from; true if not given. Otherwise lines are only counted.
    pub learn: Option<bool>,
}

impl Check for Origin {
    fn check(&self, checks: &mut Checks) {
        checks.text("source", &self.source, 1_000);
    }
}

impl Private for Origin {
    fn domain(&self) -> Domain {
        Domain::Searches
    }

    fn reduce(self, _: &HashKey) -> Option<Self> {
        None
    }
}

/// Takes lines as the endpoint does, from within the program: at most a few megabytes, or one line.
pub async fn take(searches: &Searches, tenant: &Tenant, origin: Origin, lines: Vec<u8>) -> Result<Counts> {
    let Some(origin) = tenant.policy.keep(origin) else { return Ok(Counts::default()) };
    let (counts, _) = Intake::begin(searches, tenant, origin).await.take(lines).await?;
    Ok(counts)
}

/// The intake of one source's lines; others who send lines of the same source wait until it is dropped.
pub struct Intake<'a> {
    db: &'a PgPool,
    tenant: &'a Tenant,
    origin: Kept<Origin>,
    _turn: OwnedMutexGuard<()>,
}

/// A line, as its range in a piece and the hash of its bytes.
type Line = (std::ops::Range<usize>, Uuid);

impl<'a> Intake<'a> {
    /// Begins once nobody else sends lines of this source.
    pub async fn begin(searches: &'a Searches, tenant: &'a Tenant, origin: Kept<Origin>) -> Self {
        let turn = searches.turn(&tenant.name, &origin.source).await;
        Self { db: &searches.db, tenant, origin, _turn: turn }
    }

    /// Takes a piece of whole lines, in one transaction; returns what became of it, and how many characters had to be replaced.
    pub async fn take(&self, piece: Vec<u8>) -> Result<(Counts, usize)> {
        let mut connection = self.db.acquire().await?;
        let (piece, lines) = blocking(move || {
            let lines = split(&piece);
            (piece, lines)
        })
        .await?;
        let (agent, tools) = (self.origin.agent, self.tenant.rules.tools.clone());
        let mut seen = self.known(&mut connection, &lines).await?;
        let count = lines.len();

        let new: Vec<_> = lines.into_iter().filter(|(_, hash)| seen.insert(*hash)).collect();
        let duplicates = count - new.len();
        let (parsed, characters) = blocking(move || parse(piece, new, agent, &tools)).await?;
        let mut losses = Losses::default();
        loop {
            match self.store(&mut connection, &parsed).await {
                Err(error) if losses.again(&error).await => {}
                counts => return Ok((Counts { lines: count, duplicates, ..counts? }, characters)),
            }
        }
    }

    /// Which of these lines were taken before.
    async fn known(&self, connection: &mut PgConnection, lines: &[Line]) -> sqlx::Result<HashSet<Uuid>> {
        let sql = "select line from transcript_lines where project = $1 and source = $2 and line = any($3)";
        let hashes: Vec<_> = lines.iter().map(|(_, hash)| *hash).collect();
        let query = sqlx::query_scalar(sql).bind(&*self.tenant.name).bind(&self.origin.source).bind(hashes);
        Ok(query.fetch_all(connection).await?.into_iter().collect())
    }

    async fn store(&self, connection: &mut PgConnection, parsed: &[Parsed]) -> sqlx::Result<Counts> {
        let source = &self.origin.source;
        let mut transaction = connection.begin().await?;
        let mut carried = self.lock(&mut transaction).await?;
        let mut bad_lines = 0;
        let (mut entries, mut hashes) = (Vec::with_capacity(parsed.len()), Vec::with_capacity(parsed.len()));
        for (hash, entry) in parsed {
            if let Ok(entry) = entry {
                let mut entry = entry.clone();
                carried.complete(&mut entry);
                hashes.push((*hash, entry.session.clone()));
                entries.extend(self.tenant.policy.keep(entry));
            } else {
                bad_lines += 1;
                hashes.push((*hash, carried.session.clone()));
            }
        }
        self.insert_lines(&mut transaction, &hashes).await?;
        let ids = intake::call_ids(&entries);
        let mut calls = self.read_calls(&mut transaction, &ids).await?;
        let mut counts = if self.origin.learn == Some(false) {
            intake::play(None, &mut calls, &entries, source)
        } else {
            let trails = intake::trails(&entries, source);
            let searches = intake::searches(&entries, &calls, source);
            let mut desk =
                Desk::open(&mut transaction, &self.tenant.name, &self.tenant.rules, &trails, &searches)
                    .await?;
            let mut counts = intake::play(Some(&mut desk), &mut calls, &entries, source);
            counts.saved(desk.save(&mut transaction, Timestamp::now()).await?);
            counts
        };
        counts.bad_lines = bad_lines;
        self.write_calls(&mut transaction, &calls).await?;
        self.carry(&mut transaction, &carried, bad_lines).await?;
        transaction.commit().await?;
        Ok(counts)
    }

    /// Locks the source, and reads what its last line said of itself.
    async fn lock(&self, connection: &mut PgConnection) -> sqlx::Result<Carried> {
        const SQL: &str = "
            insert into transcripts as t (project, source, received_at) values ($1, $2, $3)
            on conflict (project, source) do update set received_at = excluded.received_at
            returning session, turn, root, last_at";
        sqlx::query_as(SQL)
            .bind(&*self.tenant.name)
            .bind(&self.origin.source)
            .bind(Timestamp::now())
            .fetch_one(connection)
            .await
    }

    async fn carry(
        &self,
        connection: &mut PgConnection,
        carried: &Carried,
        bad_lines: usize,
    ) -> sqlx::Result<()> {
        const SQL: &str = "
            update transcripts
            set session = $3, turn = $4, root = $5, last_at = $6, bad_lines = bad_lines + $7
            where project = $1 and source = $2";
        sqlx::query(SQL)
            .bind(&*self.tenant.name)
            .bind(&self.origin.source)
            .bind(&carried.session)
            .bind(&carried.turn)
            .bind(&carried.root)
            .bind(carried.last_at)
            .bind(i64::try_from(bad_lines).unwrap_or(i64::MAX))
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn insert_lines(
        &self,
        connection: &mut PgConnection,
        lines: &[(Uuid, Option<String>)],
    ) -> sqlx::Result<()> {
        const SQL: &str = "
            insert into transcript_lines (project, source, line, session)
            select $1, $2, new.* from unnest($3::uuid[], $4::text[]) as new on conflict do nothing";
        sqlx::query(SQL)
            .bind(&*self.tenant.name)
            .bind(&self.origin.source)
            .bind(lines.iter().map(|(hash, _)| *hash).collect::<Vec<_>>())
            .bind(lines.iter().map(|(_, session)| session.as_deref()).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn read_calls(&self, connection: &mut PgConnection, ids: &[String]) -> sqlx::Result<Calls> {
        const SQL: &str = "
            select call, session, used, answered, pending from tool_calls
            where project = $1 and source = $2 and call = any($3)";
        type Row = (String, Option<String>, bool, bool, Option<Json<Pending>>);
        let query = sqlx::query_as(SQL).bind(&*self.tenant.name).bind(&self.origin.source).bind(ids);
        let rows: Vec<Row> = query.fetch_all(connection).await?;
        let call = |(id, session, used, answered, pending): Row| {
            let pending = pending.map(|Json(pending)| pending);
            (id, Call { session, used, answered, pending, changed: false })
        };
        Ok(rows.into_iter().map(call).collect())
    }

    async fn write_calls(&self, connection: &mut PgConnection, calls: &Calls) -> sqlx::Result<()> {
        const SQL: &str = "
            insert into tool_calls as c (project, source, call, session, used, answered, pending)
            select $1, $2, new.* from unnest($3::text[], $4::text[], $5::bool[], $6::bool[], $7::jsonb[]) as new
            on conflict (project, source, call) do update
            set used = excluded.used, answered = excluded.answered, pending = excluded.pending";
        let changed: Vec<_> = calls.iter().filter(|(_, call)| call.changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        sqlx::query(SQL)
            .bind(&*self.tenant.name)
            .bind(&self.origin.source)
            .bind(changed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.session.as_deref()).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.used).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.answered).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.pending.as_ref().map(Json)).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// A line by its hash, and what it says.
type Parsed = (Uuid, Result<Entry, NotAnObject>);

/// Runs what keeps the processor busy for milliseconds where it keeps no request waiting.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.into()))
}

/// The lines of a piece that are not blank.
fn split(piece: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in piece.split(|&byte| byte == b'\n') {
        let end = start + line.len();
        if !line.trim_ascii().is_empty() {
            lines.push((start..end, derived_id(&[b"line", line])));
        }
        start = end + 1;
    }
    lines
}

/// Reads lines; also how many characters had to be replaced.
fn parse(mut piece: Vec<u8>, lines: Vec<Line>, agent: &Agent, tools: &ToolPatterns) -> (Vec<Parsed>, usize) {
    let mut characters = 0;
    let mut read = |line: &mut [u8]| {
        characters += clean_json(line).map_err(|_| NotAnObject)?;
        (agent.parse_line)(utf8(line).map_err(|_| NotAnObject)?.trim(), tools)
    };
    let parsed = lines.into_iter().map(|(range, hash)| (hash, read(&mut piece[range]))).collect();
    (parsed, characters)
}
