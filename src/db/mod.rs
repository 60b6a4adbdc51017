//! The database: how it is reached and kept up to date ([`pool`], [`wait`], [`migrate()`]), the private one ([`embedded`]), and the
//! group commit ([`writer`]).

pub mod embedded;
pub mod gin;
pub mod insert;
pub mod receipt;
pub mod retry;
pub mod steps;

use std::time::Duration;

use anyhow::Context as _;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, PgPool};

/// The schema's history, embedded in the program.
pub static MIGRATOR: Migrator = sqlx::migrate!();

/// What connections of the writer call themselves: an export waits for the writes of these that are in flight.
pub const WRITER_NAME: &str = "gleaner-writer";

/// What connections of exports call themselves.
pub const EXPORT_NAME: &str = "gleaner-export";

/// A pool of at most `size` connections that call themselves `name`. Connects when first used.
#[must_use]
pub fn pool(options: &PgConnectOptions, name: &str, size: u32) -> PgPool {
    // The writer's statements are always alike, and planning one takes longer than writing a row. What is read, and by which
    // filters, is not: a plan made for any project and any filter would be a bad one for most.
    let plans = if name == WRITER_NAME { "force_generic_plan" } else { "force_custom_plan" };
    let mut options = options.clone();
    if name == EXPORT_NAME {
        // A page is read sooner than processes to share it with are started, and a reader costs one connection.
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

/// Waits until the database answers, for a minute at most: with compose it may start later than the service.
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

/// Brings the schema up to date; several servers may do so at once.
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

/// Whether the database answers and has the schema that this program expects.
pub async fn is_ready(db: &PgPool) -> crate::error::Result<bool> {
    let sql = "select coalesce(max(version), 0) from _sqlx_migrations where success";
    let version: i64 = sqlx::query_scalar(sql).fetch_one(db).await?;
    Ok(MIGRATOR.iter().map(|migration| migration.version).max().is_some_and(|newest| version >= newest))
}
