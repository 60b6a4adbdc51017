//! The database in the private cluster, and how to connect to it.

use std::path::Path;

use anyhow::Result;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::PORT;

/// The name of the database.
const DATABASE: &str = "gleaner";

/// Returns options that connect through the socket in this folder.
pub(super) fn connect_options(socket: &Path) -> PgConnectOptions {
    // Environment variables about other servers must have no effect.
    PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .port(PORT)
        .socket(socket)
        .username("postgres")
        .password("")
        .database(DATABASE)
        .ssl_mode(PgSslMode::Disable)
        .application_name("gleaner")
}

/// Makes the database `gleaner` if the cluster does not have it yet.
pub(super) async fn make_database(options: &PgConnectOptions) -> Result<()> {
    let mut connection = options.clone().database("postgres").connect().await?;
    let known = sqlx::query("select 1 from pg_database where datname = $1").bind(DATABASE);
    if known.fetch_optional(&mut connection).await?.is_none() {
        adjust(&mut connection).await?;
        // The database is made last, because its existence says that everything else is done.
        let create = format!("create database {DATABASE} template template0 encoding 'UTF8'");
        sqlx::query(AssertSqlSafe(create)).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}

/// Changes those settings of a new cluster whose defaults do not fit. They go to `postgresql.auto.conf`,
/// where operators can change them.
async fn adjust(connection: &mut PgConnection) -> Result<()> {
    // The service sends many small statements, none of which is worth compiling, and disks that seek slowly
    // have become rare. Shared buffers take only as much memory as is used.
    let mut settings = vec![("jit", "off"), ("random_page_cost", "1.1"), ("shared_buffers", "512MB")];
    let lz4 = "select enumvals @> '{lz4}' from pg_settings where name = $1";
    for name in ["wal_compression", "default_toast_compression"] {
        if sqlx::query_scalar::<_, Option<bool>>(lz4).bind(name).fetch_one(&mut *connection).await?
            == Some(true)
        {
            settings.push((name, "lz4"));
        }
    }
    for (name, value) in settings {
        let set = format!("alter system set {name} = '{value}'");
        sqlx::query(AssertSqlSafe(set)).execute(&mut *connection).await?;
    }
    sqlx::query("select pg_reload_conf()").execute(&mut *connection).await?;
    Ok(())
}
