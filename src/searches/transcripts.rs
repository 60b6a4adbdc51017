//! Transcripts: lines that an agent writes about its work. They may be sent any number of times, and are learned from
//! once.
//!
//! Malformed lines are not stored. Only their number and descriptions of the last ones are, so that they cannot fill
//! the disk.
//!
//! # How lines are read
//!
//! Lines are read in pieces of 2 MiB, of 4,096 lines, or of 512 that may be uses of tools, each stored in one transaction, so
//! that a transcript may be of any size. Clients that send lines of the same source take turns. Lines are parsed and redacted
//! before the transaction begins, because that may take long; if another server has stored lines of the source meanwhile, they
//! are read again. A line counts once within its source, by a hash of
//! its bytes, because real files repeat lines, and simple clients send whole files again. The use of a tool and its
//! result are connected by their id, in whatever order and in whichever requests they arrive. An action counts when
//! its result has arrived, because only then it is known whether it succeeded. Searches and fallbacks get ids that
//! are derived from the agent's own, so that what both a hook and a transcript report is learned once.

mod pieces;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use utoipa::IntoParams;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use self::pieces::{Parsed, ParsedLine, Piece, pieces};
use super::intake_errors::{self, Fault};
use super::intake_pool::IntakePool;
use super::limits::{MOST_NAME, MOST_PATH, cut};
use super::write::{self, Half, ToolCall, ToolCalls, TranscriptCounts, call_ids};
use crate::agents::{Agent, Entry};
use crate::db::retry::Losses;
use crate::domain::Domain;
use crate::error::Result;
use crate::http::{Check, Checks, boolean};
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::privacy::policy::Private;
use crate::privacy::redact::{Redaction, Texts as _};
use crate::projects::Tenant;
use crate::sharing::apart;
use crate::types::{Timestamp, derived_id};

/// The source of lines.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Origin {
    /// The agent that writes the transcript.
    #[param(inline, value_type = Agent, example = "claude-code")]
    pub agent: &'static Agent,
    /// The name of the transcript. A line counts only once for each name.
    #[param(min_length = 1, max_length = 1000, example = "my-session.jsonl")]
    pub source: String,
    /// Whether Gleaner learns from the lines. The default is true. With false, lines are only counted, and a later
    /// request with true still learns from them.
    #[serde(default, deserialize_with = "boolean")]
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

    fn redact(&mut self, redaction: &mut Redaction<'_>) {
        self.source.texts(redaction);
    }
}

impl Origin {
    /// Whether searches are tracked and learned from.
    fn learns(&self) -> bool {
        self.learn != Some(false)
    }

    /// The id under which lines and calls are stored. Lines that were only counted have another id, so that they can
    /// still be learned from later.
    fn id(&self) -> Uuid {
        if self.learns() {
            source_id(&self.source)
        } else {
            derived_id(&[b"counted", self.source.as_bytes()])
        }
    }

    /// Returns the session with whose id the name of the transcript ends, for lines that do not name it. The line that does
    /// may have been erased, or sent while nothing was stored.
    fn session(&self) -> Option<&str> {
        let file = self.source.rsplit(['/', '\\']).next()?;
        let (name, _) = file.split_once('.').unwrap_or((file, ""));
        let id = name.get(name.len().checked_sub(Hyphenated::LENGTH)?..)?;
        Uuid::try_parse(id).is_ok().then_some(id)
    }
}

/// Returns the id of a source, derived from its name, which may be too long for an index.
pub(super) fn source_id(name: &str) -> Uuid {
    derived_id(&[b"source", name.as_bytes()])
}

/// What an entry may leave out, because an earlier entry of the same source contains it.
#[derive(Debug, Default, Clone, PartialEq, sqlx::FromRow)]
pub(super) struct Context {
    session: Option<String>,
    /// The subagent that all entries of the source are of.
    agent: Option<String>,
    turn: Option<String>,
    root: Option<String>,
    last_at: Option<Timestamp>,
}

/// What is stored about a source.
#[derive(Debug, Default, PartialEq, sqlx::FromRow)]
struct Source {
    /// The properties of its latest line.
    #[sqlx(flatten)]
    context: Context,
    /// The keyed hashes of its latest malformed lines.
    error_lines: Vec<Uuid>,
}

/// What is stored of a source, and of the lines that were sent.
struct Seen {
    source: Source,
    /// The keyed hashes of the lines that are stored.
    known: HashSet<Uuid>,
}

/// What lines say, with what the project keeps of it.
struct Read {
    /// How many lines there are, and how many of them are duplicates and malformed.
    counts: TranscriptCounts,
    /// The number of replaced characters.
    replaced: usize,
    /// The number of redacted spans.
    redacted: u32,
    /// What later lines may leave out.
    context: Context,
    entries: Vec<Kept<Entry>>,
    /// The hashes of the lines, with their sessions.
    taken: Vec<(Uuid, Option<String>)>,
    /// The entries with a prompt, whose texts are redacted.
    prompts: Vec<Entry>,
    /// The last malformed lines.
    faults: VecDeque<Fault>,
}

impl Context {
    /// Adds what the entry leaves out, and stores what it contains. Names that are too long are cut.
    pub(super) fn complete(&mut self, entry: &mut Entry) {
        // A subagent may begin with what was said in the session of the agent that has started it.
        let is_copied = entry.may_be_copied || entry.is_head && self.agent.is_some();
        if is_copied && self.session.is_some() {
            (entry.session, entry.root, entry.is_head) = (None, None, false);
        }
        if entry.session.is_some() && entry.session != self.session {
            *self = Self::default();
        }
        if entry.is_head {
            self.agent.clone_from(&entry.agent);
        }
        entry.agent = entry.agent.take().or_else(|| self.agent.clone());
        for (said, known, most) in [
            (&mut entry.session, &mut self.session, MOST_NAME),
            (&mut entry.turn, &mut self.turn, MOST_NAME),
            (&mut entry.root, &mut self.root, MOST_PATH),
        ] {
            match said {
                Some(text) => {
                    cut(text, most);
                    known.clone_from(said);
                }
                None => said.clone_from(known),
            }
        }
        if let Some(agent) = &mut entry.agent {
            cut(agent, MOST_NAME);
        }
        self.last_at = entry.at.or(self.last_at);
        entry.at = self.last_at;
    }
}

/// Completes an entry without a predecessor, such as that of a hook. Names that are too long are cut.
pub fn complete_alone(entry: &mut Entry) {
    Context::default().complete(entry);
}

/// Another receiver of the prompts in transcripts.
pub trait Listener: Send + Sync {
    /// Receives the entries with a prompt, whose texts are redacted, in the transaction that stores their lines. Returns how many
    /// records it makes of them.
    fn hear(
        &self,
        connection: &mut PgConnection,
        tenant: &Arc<Tenant>,
        entries: &[Entry],
    ) -> impl Future<Output = sqlx::Result<usize>> + Send;
}

/// The intake of one source's lines.
pub struct Intake<'a, L> {
    pool: &'a IntakePool,
    tenant: &'a Arc<Tenant>,
    origin: Kept<Origin>,
    listener: L,
    /// The id under which lines and calls are stored.
    id: Uuid,
}

impl<'a, L: Listener> Intake<'a, L> {
    /// Makes the intake of lines that a request sends.
    pub fn new(pool: &'a IntakePool, tenant: &'a Arc<Tenant>, origin: Kept<Origin>, listener: L) -> Self {
        let id = origin.id();
        Self { pool, tenant, origin, listener, id }
    }

    /// Stores whole lines, a limited number in one transaction. Returns the outcome, the number of replaced
    /// characters, and the number of redacted spans.
    pub async fn take(&self, lines: Bytes) -> Result<(TranscriptCounts, usize, u32)> {
        let (mut counts, mut replaced, mut redacted) = (TranscriptCounts::default(), 0, 0);
        for piece in pieces(lines) {
            let (counts_of_piece, characters, spans) = self.take_piece(piece).await?;
            counts.add(counts_of_piece);
            replaced += characters;
            redacted += spans;
        }
        Ok((counts, replaced, redacted))
    }

    /// Stores a piece of lines when no other request of this server is storing lines of the source.
    async fn take_piece(&self, piece: Bytes) -> Result<(TranscriptCounts, usize, u32)> {
        let _turn = self.pool.turn(&self.tenant.name, self.id).await;
        let _place = self.pool.begin_piece(&self.tenant.name).await;
        let key = self.tenant.policy.key().clone();
        let piece = apart(&self.tenant.name, move || Piece::new(piece, &key)).await;
        if piece.lines.is_empty() {
            return Ok((TranscriptCounts::default(), 0, 0));
        }
        let mut losses = Losses::default();
        loop {
            let stored = self.seen(&piece).await?;
            let read = self.read(&stored, piece.clone()).await;
            let (replaced, redacted) = (read.replaced, read.redacted);
            match self.store(&piece, &stored, read).await {
                Ok(Some(counts)) => return Ok((counts, replaced, redacted)),
                // Another server has stored lines of this source meanwhile.
                Ok(None) => {}
                Err(error) if error.is_lost_race() && losses.once_more().await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what is stored of the source and of these lines.
    async fn seen(&self, piece: &Piece) -> sqlx::Result<Seen> {
        const SQL: &str = "
            select session, agent, turn, root, last_at, error_lines from transcripts where project = $1 and source = $2";
        let (_place, mut transaction) = self.pool.begin(&self.tenant.name).await?;
        let query = sqlx::query_as(SQL).bind(&*self.tenant.name).bind(self.id);
        let source = query.fetch_optional(&mut *transaction).await?.unwrap_or_default();
        let known = self.known(&mut transaction, piece).await?;
        transaction.commit().await?;
        Ok(Seen { source, known })
    }

    /// Parses and redacts the lines that are not stored yet. It may take long, and no connection waits for it.
    async fn read(&self, stored: &Seen, piece: Piece) -> Read {
        let known = stored.known.iter().chain(&stored.source.error_lines).copied().collect();
        let (lines, new) = (piece.lines.len(), piece.without(known));
        let duplicates = lines - new.lines.len();
        let (agent, tools) = (self.origin.agent, self.tenant.rules.tools.clone());
        let Parsed { lines: parsed, replaced } =
            apart(&self.tenant.name, move || new.parse(agent, &tools)).await;
        let mut read = Read {
            counts: TranscriptCounts { lines, duplicates, ..TranscriptCounts::default() },
            replaced,
            redacted: 0,
            context: stored.source.context.clone(),
            entries: Vec::with_capacity(parsed.len()),
            taken: Vec::with_capacity(parsed.len()),
            prompts: Vec::new(),
            faults: VecDeque::new(),
        };
        let received = Timestamp::now();
        for (number, ParsedLine { hash, bytes, entry }) in (1..).zip(parsed) {
            if let Ok(entry) = entry {
                // What later lines may leave out is stored in its redacted form.
                let (mut entry, spans) = self.tenant.redacted(entry).await;
                read.redacted += spans;
                read.context.complete(&mut entry);
                if entry.session.is_none() {
                    // An erasure of the session finds the source by it.
                    entry.session = self.origin.session().map(str::to_owned);
                    read.context.session.clone_from(&entry.session);
                }
                if entry.prompt.is_some() && self.origin.learns() {
                    read.prompts.push(entry.clone());
                }
                read.taken.push((hash, entry.session.clone()));
                read.entries.extend(self.tenant.keep(entry).await);
            } else {
                read.counts.bad_lines += 1;
                read.faults.push_back(Fault::of_line(agent, number, bytes, hash, received));
                if read.faults.len() > intake_errors::KEPT {
                    read.faults.pop_front();
                }
            }
        }
        read
    }

    /// Stores the lines, and learns from them, if a quota has room for all the records that they make. Returns none if what is
    /// stored of the source is not what they were read with.
    async fn store(&self, piece: &Piece, stored: &Seen, read: Read) -> Result<Option<TranscriptCounts>> {
        let (_place, mut transaction) = self.pool.begin(&self.tenant.name).await?;
        let source = self.lock(&mut transaction).await?;
        if source != stored.source || self.known(&mut transaction, piece).await? != stored.known {
            return Ok(None);
        }
        let Read { counts, context, entries, taken, prompts, mut faults, .. } = read;
        self.insert_lines(&mut transaction, &taken).await?;
        let mut learned = TranscriptCounts::default();
        if !prompts.is_empty() {
            learned.records = self.listener.hear(&mut transaction, self.tenant, &prompts).await?;
        }
        let source = &self.origin.source;
        let groups = write::groups(&entries, source);
        if groups.len() > 1 && self.origin.learns() {
            write::lock_threads(&mut transaction, self.tenant, source, &entries).await?;
        }
        for entries in groups {
            let mut calls = self.read_calls(&mut transaction, &call_ids(entries)).await?;
            learned.add(if self.origin.learns() {
                write::replay(&mut transaction, self.tenant, source, &mut calls, entries).await?
            } else {
                write::count(&mut calls, entries)
            });
            self.write_calls(&mut transaction, &calls).await?;
        }
        self.update_context(&mut transaction, &context).await?;
        let faults = faults.make_contiguous();
        intake_errors::note(&mut transaction, &self.tenant.name, self.id, faults, counts.bad_lines).await?;
        self.tenant.room.take(learned.records, self.tenant.quotas.rows)?;
        transaction.commit().await?;
        let TranscriptCounts { lines, duplicates, bad_lines, .. } = counts;
        Ok(Some(TranscriptCounts { lines, duplicates, bad_lines, ..learned }))
    }

    /// Returns which of these lines were stored before.
    async fn known(&self, connection: &mut PgConnection, piece: &Piece) -> sqlx::Result<HashSet<Uuid>> {
        // Lines that were learned from need not be counted again either.
        let sql =
            "select line from transcript_lines where project = $1 and source in ($2, $4) and line = any($3)";
        let hashes: Vec<_> = piece.lines.iter().map(|line| line.hash).collect();
        let query = sqlx::query_scalar(sql).bind(&*self.tenant.name).bind(self.id).bind(hashes);
        let query = query.bind(source_id(&self.origin.source));
        Ok(query.fetch_all(connection).await?.into_iter().collect())
    }

    /// Locks the source, and reads what is stored about it.
    async fn lock(&self, connection: &mut PgConnection) -> sqlx::Result<Source> {
        const SQL: &str = "
            insert into transcripts as t (project, source, received_at) values ($1, $2, $3)
            on conflict (project, source) do update set received_at = excluded.received_at
            returning session, agent, turn, root, last_at, error_lines";
        sqlx::query_as(SQL)
            .bind(&*self.tenant.name)
            .bind(self.id)
            .bind(Timestamp::now())
            .fetch_one(connection)
            .await
    }

    async fn update_context(&self, connection: &mut PgConnection, context: &Context) -> sqlx::Result<()> {
        const SQL: &str = "
            update transcripts set session = $3, turn = $4, root = $5, last_at = $6, agent = $7
            where project = $1 and source = $2";
        sqlx::query(SQL)
            .bind(&*self.tenant.name)
            .bind(self.id)
            .bind(&context.session)
            .bind(&context.turn)
            .bind(&context.root)
            .bind(context.last_at)
            .bind(&context.agent)
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
            .bind(self.id)
            .bind(lines.iter().map(|(hash, _)| *hash).collect::<Vec<_>>())
            .bind(lines.iter().map(|(_, session)| session.as_deref()).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn read_calls(&self, connection: &mut PgConnection, ids: &[Uuid]) -> sqlx::Result<ToolCalls> {
        const SQL: &str = "
            select call, session, used, answered, pending from tool_calls
            where project = $1 and source = $2 and call = any($3)";
        type Row = (Uuid, Option<String>, bool, bool, Option<Json<Half>>);
        let query = sqlx::query_as(SQL).bind(&*self.tenant.name).bind(self.id).bind(ids);
        let rows: Vec<Row> = query.fetch_all(connection).await?;
        let call = |(id, session, used, answered, pending): Row| {
            let pending = pending.map(|Json(pending)| pending);
            (id, ToolCall { session, used, answered, pending, changed: false })
        };
        Ok(rows.into_iter().map(call).collect())
    }

    async fn write_calls(&self, connection: &mut PgConnection, calls: &ToolCalls) -> sqlx::Result<()> {
        const SQL: &str = "
            insert into tool_calls as c (project, source, call, session, used, answered, pending)
            select $1, $2, new.* from unnest($3::uuid[], $4::text[], $5::bool[], $6::bool[], $7::jsonb[]) as new
            on conflict (project, source, call) do update
            set session = excluded.session, used = excluded.used, answered = excluded.answered,
                pending = excluded.pending";
        let changed: Vec<_> = calls.iter().filter(|(_, call)| call.changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        sqlx::query(SQL)
            .bind(&*self.tenant.name)
            .bind(self.id)
            .bind(changed.iter().map(|(id, _)| **id).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.session.as_deref()).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.used).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.answered).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, call)| call.pending.as_ref().map(Json)).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }
}
