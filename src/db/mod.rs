//! The database: how to reach it and keep its schema up to date ([`pool`], [`kept`], [`wait`], [`migrate()`]), the
//! private Postgres ([`embedded`]), and how batches of events are written ([`steps`], [`insert`], [`replays`],
//! [`retry`], [`receipt`]), read ([`rows`]) and erased ([`aged`], [`erased`]), what serves a connection ([`process`]), and
//! what becomes of those who wait for a connection that is dead ([`silence`]).

pub mod aged;
pub mod embedded;
pub mod erased;
pub mod gin;
pub mod insert;
pub mod kept;
pub mod made;
pub mod process;
pub mod receipt;
pub mod replays;
pub mod retry;
pub mod rows;
pub mod silence;
pub mod steps;

use std::time::Duration;

use anyhow::{anyhow, bail};
use sqlx::error::DatabaseError;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgPool, Postgres, SqlSafeStr, Transaction};

use crate::error::{Error, Result};
use crate::outage::Outage;
use crate::sharing::joined;
use crate::types::{Timestamp, derived_id};

/// The migrations of the schema, embedded in the program.
pub static MIGRATOR: Migrator = sqlx::migrate!();

/// The application name of connections that write, as long as they do not have the [`writer_name`] of a project.
pub const WRITER_NAME: &str = "gleaner-writer";

/// Returns the application name of a connection that writes in a project. Exports of the project wait until its writes in
/// progress have ended, and not for those of other projects.
#[must_use]
pub fn writer_name(project: &str) -> String {
    format!("{WRITER_NAME} {}", derived_id(&[project.as_bytes()]).simple())
}

/// The application name of connections that export. The names of those that build a snapshot begin with it.
pub const EXPORT_NAME: &str = "gleaner-export";

/// The application name of the connections with which late reports of hooks are marked.
pub const LATE_NAME: &str = "gleaner-late";

/// The SQLSTATE of a statement that would have written in a transaction that is read-only.
const READ_ONLY: &str = "25006";

/// How long a connection of a pool may have been idle without being tested before its next use. The test costs a round
/// trip.
const REST: Duration = Duration::from_secs(1);

/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Returns the time by the clock of this server, or of the database if that is earlier. What is due by one of them alone is not
/// erased: a clock may be wrong.
pub async fn earlier_now(db: &PgPool) -> sqlx::Result<Timestamp> {
    let now: Timestamp = sqlx::query_scalar("select clock_timestamp()").fetch_one(db).await?;
    Ok(now.min(Timestamp::now()))
}

/// Makes a pool of at most `size` connections with the application name `name`. It connects when first used, or at once if there
/// is no time for that later.
#[must_use]
pub fn pool(options: &PgConnectOptions, name: &str, size: u32) -> PgPool {
    // The writer repeats the same few statements, and planning one takes longer than writing a row. Reading
    // is different: a plan made for every project and filter would be a bad one for most.
    let plans = if name == WRITER_NAME { "force_generic_plan" } else { "force_custom_plan" };
    // A plan that was made when a table was small would otherwise read all of it for each row, also when it is large.
    let scans = if name == WRITER_NAME { "off" } else { "on" };
    let mut options = options.clone();
    if name.starts_with(EXPORT_NAME) {
        // Reading a page takes less time than starting parallel workers, and an export should cost one
        // process.
        options = options.options([("max_parallel_workers_per_gather", "0")]);
    }
    // The locks of late reports are those of a connection, and outlast a transaction that does not end in order.
    let has_locks = name == LATE_NAME;
    let idle = match name {
        WRITER_NAME => "10s",
        // As long as a statement may take that stores a report.
        LATE_NAME => "10min",
        _ => "1min",
    };
    let options = options
        .application_name(name)
        .options([("timezone", "UTC"), ("jit", "off"), ("plan_cache_mode", plans), ("enable_seqscan", scans)])
        // A server that is frozen or cut off must not keep the locks of a transaction for long.
        .options([("idle_in_transaction_session_timeout", idle), ("tcp_keepalives_idle", "30")])
        .options([("tcp_keepalives_interval", "10"), ("tcp_keepalives_count", "3")])
        .log_slow_statements(log::LevelFilter::Warn, Duration::from_secs(1));
    let pool = PgPoolOptions::new();
    // The connections that requests need are kept (see `kept`). Those of exports are made when they are needed.
    let pool = if name.starts_with(EXPORT_NAME) { pool } else { pool.idle_timeout(None).max_lifetime(None) };
    pool.max_connections(size)
        .min_connections(u32::from(name == LATE_NAME))
        .acquire_timeout(Duration::from_secs(5))
        .test_before_acquire(false)
        .before_acquire(|connection, state| {
            Box::pin(async move { Ok(state.idle_for < REST || silence::answers(connection).await) })
        })
        // A connection keeps the room for the longest row that it has read and the longest statement that it has sent.
        .after_release(move |connection, _| {
            connection.shrink_buffers();
            Box::pin(async move {
                silence::expect_end(connection).await?;
                if has_locks {
                    connection.execute("select pg_advisory_unlock_all()").await?;
                }
                Ok(true)
            })
        })
        // Every request waits while the database is away, and what becomes of it is told elsewhere.
        .acquire_slow_level(log::LevelFilter::Debug)
        .connect_lazy_with(options)
}

/// Begins a transaction.
pub async fn begin(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    begin_with(db, "begin").await
}

/// Begins a transaction that only reads, and whose statements all see the same state of the data.
pub async fn begin_snapshot(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    begin_with(db, "begin isolation level repeatable read read only").await
}

/// Begins a transaction with this statement.
///
/// A request is dropped when its client hangs up, wherever it is. If that is while the database answers the statement, the
/// library (0.9) gives the connection back with the transaction open, and the next statements of other requests would be
/// part of it. The statement is therefore sent by a task that is never dropped, once there is a connection.
pub async fn begin_with(
    db: &PgPool,
    statement: impl SqlSafeStr,
) -> sqlx::Result<Transaction<'static, Postgres>> {
    let connection = db.acquire().await?;
    joined(tokio::spawn(Transaction::begin(connection, Some(statement.into_sql_str())))).await
}

/// Names the database in messages: where it is, and never the user or the password.
#[must_use]
pub fn name(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or("postgres");
    match options.get_socket() {
        Some(socket) => format!("the database {database} at the socket {}", socket.display()),
        None => format!("the database {database} at {}:{}", options.get_host(), options.get_port()),
    }
}

/// Says in words why a connection or a statement failed, without what the library adds.
#[must_use]
pub fn reason(error: &sqlx::Error) -> String {
    let text = match error {
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Database(error) => error.message().to_owned(),
        other => other.to_string(),
    };
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// Waits until the database answers, for at most `patience`. Each new reason why it does not is passed to
/// `report`. A refusal that waiting will not change, such as a wrong password, is an error at once.
pub async fn wait(
    options: &PgConnectOptions,
    patience: Duration,
    mut report: impl FnMut(&str),
) -> anyhow::Result<()> {
    let name = name(options);
    let begun = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(10);
    let mut reported = String::new();
    loop {
        let connection = tokio::time::timeout(CONNECT, options.connect()).await;
        let reason = match connection {
            Ok(Ok(connection)) => {
                let _ = connection.close().await;
                return Ok(());
            }
            Ok(Err(error)) if Outage::of(&error).is_none() => {
                bail!("{name} refuses the connection: {}", reason(&error))
            }
            Ok(Err(error)) => reason(&error),
            Err(_) => format!("it does not answer within {} seconds", CONNECT.as_secs()),
        };
        let said = format!("{name} cannot be reached: {reason}");
        if begun.elapsed() + pause > patience {
            bail!(
                "{said}; check that Postgres runs there and that this machine can reach it, or correct DATABASE_URL"
            );
        }
        if said != reported {
            report(&said);
            reported = said;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Brings the schema up to date. Several servers may do so at the same time.
pub async fn migrate(db: &PgPool) -> anyhow::Result<()> {
    MIGRATOR.run(db).await.map_err(|error| match error {
        MigrateError::VersionMismatch(version) => anyhow!(
            "{} was made by another unreleased build of Gleaner (migration {version} has changed since), and before 0.1.0 \
             there is no update from one to the next. Either begin with an empty database, or take the data along: save it \
             with `pg_dump --data-only --exclude-table=_sqlx_migrations`, run `gleaner migrate` on the empty database, and \
             there, with psql, `truncate projects cascade` and then the file",
            name(&db.connect_options())
        ),
        MigrateError::VersionMissing(version) => anyhow!(
            "{} has the schema of a newer Gleaner (migration {version}): use that or a later one",
            name(&db.connect_options())
        ),
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)
            if error.as_database_error().and_then(DatabaseError::code).as_deref() == Some(READ_ONLY) =>
        {
            anyhow!(
                "{} is read-only, because it is a standby or because default_transaction_read_only is on; point \
                 DATABASE_URL at the primary, or switch writing on",
                name(&db.connect_options())
            )
        }
        error => anyhow::Error::new(error).context(format!("migrating {}", name(&db.connect_options()))),
    })?;
    let (ctype, encoding): (String, String) = sqlx::query_as(
        "select datctype::text, pg_encoding_to_char(encoding)::text from pg_database where datname = current_database()",
    )
    .fetch_one(db)
    .await?;
    if encoding != "UTF8" || ["C", "POSIX"].contains(&ctype.as_str()) {
        tracing::warn!(
            %ctype, %encoding,
            "the database should have encoding UTF8 and a UTF-8 aware LC_CTYPE such as C.UTF-8: \
             searches will miss text that is not ASCII"
        );
    }
    Ok(())
}

/// Checks that the database answers, takes writes, and has at least the schema that this program expects.
/// Otherwise the error says what is missing.
pub async fn expect_ready(db: &PgPool) -> Result<()> {
    let sql = "select coalesce(max(version), 0), current_setting('transaction_read_only')::bool
               from _sqlx_migrations where success";
    let (version, is_read_only): (i64, bool) = sqlx::query_as(sql).fetch_one(db).await?;
    if is_read_only {
        return Err(Error::Unavailable(Outage::ReadOnly.state()));
    }
    if version < newest() {
        return Err(Error::Unavailable("the database has an older schema; `gleaner migrate` updates it"));
    }
    Ok(())
}

/// The schema that a database has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// It was never made.
    None,
    /// It is that of an older program.
    Older,
    /// It is the one that this program expects, or a newer one.
    Current,
}

/// Looks up which schema the database has, and changes nothing.
pub async fn schema(db: &PgPool) -> Result<Schema> {
    let sql = "select to_regclass('_sqlx_migrations') is not null";
    if !sqlx::query_scalar::<_, bool>(sql).fetch_one(db).await? {
        return Ok(Schema::None);
    }
    let sql = "select coalesce(max(version), 0) from _sqlx_migrations where success";
    let version: i64 = sqlx::query_scalar(sql).fetch_one(db).await?;
    Ok(if version < newest() { Schema::Older } else { Schema::Current })
}

/// Returns the number of the newest migration that this program has.
fn newest() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Returns how many bytes the database has on disk, without the write-ahead log.
pub async fn size(db: &PgPool) -> Result<i64> {
    Ok(sqlx::query_scalar("select pg_database_size(current_database())").fetch_one(db).await?)
}
