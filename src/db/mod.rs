//! The database: how to reach it and keep its schema up to date ([`pool`], [`wait`], [`migrate()`]), the
//! private Postgres ([`embedded`]), and how batches of events are written ([`steps`], [`insert`], [`replays`],
//! [`retry`], [`receipt`]).

pub mod embedded;
pub mod gin;
pub mod insert;
pub mod receipt;
pub mod replays;
pub mod retry;
pub mod steps;

use std::time::Duration;

use anyhow::Context as _;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, PgPool};

use crate::error::{Error, Result};

/// The migrations of the schema, embedded in the program.
pub static MIGRATOR: Migrator = sqlx::migrate!();

/// The application name of connections that write. An export waits until their writes in progress have ended.
pub const WRITER_NAME: &str = "gleaner-writer";

/// The application name of connections that export.
pub const EXPORT_NAME: &str = "gleaner-export";

/// Makes a pool of at most `size` connections with the application name `name`. It connects when first used.
#[must_use]
pub fn pool(options: &PgConnectOptions, name: &str, size: u32) -> PgPool {
    // The writer repeats the same few statements, and planning one takes longer than writing a row. Reading
    // is different: a plan made for every project and filter would be a bad one for most.
    let plans = if name == WRITER_NAME { "force_generic_plan" } else { "force_custom_plan" };
    let mut options = options.clone();
    if name == EXPORT_NAME {
        // Reading a page takes less time than starting parallel workers, and an export should cost one
        // process.
        options = options.options([("max_parallel_workers_per_gather", "0")]);
    }
    let options = options
        .application_name(name)
        .options([("timezone", "UTC"), ("jit", "off"), ("plan_cache_mode", plans)])
        .log_slow_statements(log::LevelFilter::Warn, Duration::from_secs(1));
    PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(Duration::from_secs(5))
        .connect_lazy_with(options)
}

/// Waits until the database answers, for at most a minute, because with compose it may start later than the
/// service.
pub async fn wait(db: &PgPool) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    let mut pause = Duration::from_millis(10);
    loop {
        match db.acquire().await {
            Ok(_) => return Ok(()),
            Err(error) if !crate::error::is_connection_lost(&error) => return Err(error.into()),
            Err(error) if tokio::time::Instant::now() + pause > deadline => {
                return Err(error).context("the database did not answer within a minute");
            }
            Err(error) => {
                tracing::info!(%error, "waiting for the database");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
}

/// Brings the schema up to date. Several servers may do so at the same time.
pub async fn migrate(db: &PgPool) -> anyhow::Result<()> {
    MIGRATOR.run(db).await.context("migrating the database")?;
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
        return Err(Error::Unavailable("the database is read-only"));
    }
    let newest = MIGRATOR.iter().map(|migration| migration.version).max();
    if newest.is_none_or(|newest| version < newest) {
        return Err(Error::Unavailable("the database has an older schema; `gleaner migrate` updates it"));
    }
    Ok(())
}
