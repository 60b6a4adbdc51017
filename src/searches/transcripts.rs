//! `POST /v1/transcripts`: lines of an agent's transcript, as often as they come, learned from once.
//!
//! The body is taken in pieces of some megabytes, each one transaction, so memory does not grow with it. Calls for one
//! source take turns. A line counts once within its source, by its bytes; a use of a tool and a result once, by their id.

use std::collections::HashSet;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use sqlx::{Connection as _, PgConnection};
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub use super::intake::Counts;
use super::intake::{self, Call, Calls, Carried, Pending};
use super::transcript::{self, Agent, BadLine, Entry};
use super::write::Desk;
use crate::auth::{Caller, Write};
use crate::db::retry::Losses;
use crate::domain::Domain;
use crate::error::{Error, Refusals, Result};
use crate::http::json::{self, expect_media_type};
use crate::http::reply::{NotKept, not_kept};
use crate::http::{Check, Checks, NDJSON_LIMIT, Query, clean_json, utf8};
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::state::App;
use crate::types::{Timestamp, derived_id};

/// How many bytes of lines one transaction takes, or one line if that is longer.
const PIECE: usize = 2 << 20;
/// How long a sender may send nothing: others of the same source are waiting.
const STALL: Duration = Duration::from_mins(1);

/// The path of transcripts.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(post))
}

/// Whose transcript it is.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Origin {
    /// The agent that writes it.
    #[param(inline)]
    pub agent: Agent,
    /// What the transcript is called: a line counts once under it.
    #[param(min_length = 1, max_length = 1000)]
    pub source: String,
    /// Whether searches are followed and learned from; true if not given. Otherwise lines are only counted.
    pub learn: Option<bool>,
}

impl Check for Origin {
    fn check(&self, checks: &mut Checks) {
        checks.text("source", &self.source, 1_000);
    }
}

/// Takes lines of a transcript, in order, in any number of calls; lines already sent may be sent again.
///
/// What was taken before a failure stays taken: sending all again does the rest. A last line without a newline counts as
/// a line; should it have been cut off, it is a bad one, and the whole one is new when it comes.
#[utoipa::path(post, path = "/v1/transcripts", tag = "searches", params(Origin),
    request_body(content((String = "application/x-ndjson"), (String = "application/jsonl"))),
    responses(
        (status = 200, description = "What became of the lines", body = Counts),
        NotKept,
        Refusals,
    ))]
async fn post(
    State(app): State<App>,
    caller: Caller<Write>,
    Query(origin): Query<Origin>,
    request: Request,
) -> Result<Response> {
    expect_media_type(request.headers(), &["application/x-ndjson", "application/jsonl"])?;
    let replaced = request.extensions().get::<crate::http::Replaced>().cloned().unwrap_or_default();
    if caller.tenant.policy.capture(Domain::Searches) == Capture::Off {
        return Ok(not_kept());
    }
    let _turn = app.searches.turn(&caller.project, &origin.source).await;
    let reader = Reader { tenant: &caller.tenant, origin: &origin };
    let mut chunks = request.into_body().into_data_stream();
    let mut counts = Counts::default();
    let mut lines = Lines::default();
    loop {
        let chunk = tokio::time::timeout(STALL, chunks.next())
            .await
            .map_err(|_| Error::Malformed("nothing was sent for a minute".to_owned()))?;
        let chunk = chunk.transpose().map_err(|error| json::unreadable(&error))?;
        let last = chunk.is_none();
        if let Some(piece) = lines.push(chunk)? {
            let mut connection = app.searches.db.acquire().await?;
            let (piece, characters) = reader.take(&mut connection, piece).await?;
            counts.add(piece);
            replaced.add(characters);
        }
        if last {
            return Ok(axum::Json(counts).into_response());
        }
    }
}

/// Takes lines as the endpoint does, from within the program: at most a few megabytes, or one line.
pub async fn take(app: &App, project: &str, origin: &Origin, lines: Vec<u8>) -> Result<Counts> {
    let tenant = app.keyring.tenant(project).await?;
    if tenant.policy.capture(Domain::Searches) == Capture::Off {
        return Ok(Counts::default());
    }
    let _turn = app.searches.turn(project, &origin.source).await;
    let mut connection = app.searches.db.acquire().await?;
    let (counts, _) = Reader { tenant: &tenant, origin }.take(&mut connection, lines).await?;
    Ok(counts)
}

/// Bytes that have come in, until there is a piece of whole lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Adds a chunk, or the end; a piece of whole lines, once there is one large enough.
    fn push(&mut self, chunk: Option<Bytes>) -> Result<Option<Vec<u8>>> {
        let Some(chunk) = chunk else {
            return Ok(Some(std::mem::take(&mut self.0)).filter(|piece| !piece.is_empty()));
        };
        let newline = chunk.iter().rposition(|&byte| byte == b'\n').map(|place| self.0.len() + place + 1);
        self.0.extend_from_slice(&chunk);
        if let Some(end) = newline.filter(|_| self.0.len() >= PIECE) {
            let rest = self.0.split_off(end);
            return Ok(Some(std::mem::replace(&mut self.0, rest)));
        }
        if newline.is_none() && self.0.len() > NDJSON_LIMIT {
            return Err(Error::TooLarge(format!("a line has more than {NDJSON_LIMIT} bytes")));
        }
        Ok(None)
    }
}

/// A line by its place in a piece and the hash of its bytes.
type Line = (std::ops::Range<usize>, Uuid);

/// Takes pieces of one source.
struct Reader<'a> {
    tenant: &'a Tenant,
    origin: &'a Origin,
}

impl Reader<'_> {
    /// Takes a piece, in one transaction; what became of it, and how many characters had to be replaced.
    async fn take(&self, connection: &mut PgConnection, piece: Vec<u8>) -> Result<(Counts, usize)> {
        let (piece, lines) = blocking(move || {
            let lines = split(&piece);
            (piece, lines)
        })
        .await?;
        let (agent, tools) = (self.origin.agent, self.tenant.rules.tools.clone());
        let mut seen = self.known(connection, &lines).await?;
        let count = lines.len();

        let new: Vec<_> = lines.into_iter().filter(|(_, hash)| seen.insert(*hash)).collect();
        let duplicates = count - new.len();
        let (parsed, characters) = blocking(move || parse(piece, new, agent, &tools)).await?;
        let mut losses = Losses::default();
        loop {
            match self.store(connection, &parsed).await {
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
type Parsed = (Uuid, Result<Entry, BadLine>);

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
fn parse(
    mut piece: Vec<u8>,
    lines: Vec<Line>,
    agent: Agent,
    tools: &transcript::ToolPatterns,
) -> (Vec<Parsed>, usize) {
    let mut characters = 0;
    let mut read = |line: &mut [u8]| {
        characters += clean_json(line).map_err(|_| BadLine)?;
        transcript::parse(agent, utf8(line).map_err(|_| BadLine)?.trim(), tools)
    };
    let parsed = lines.into_iter().map(|(range, hash)| (hash, read(&mut piece[range]))).collect();
    (parsed, characters)
}
