//! What a command talks to: a server, or a database on this machine. One rule applies to all commands.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use super::client::{self, Client, Presence, Remote};
use super::{embedded_settings, parse_url};
use crate::config::Database;
use crate::db::embedded::{self, Cluster};
use crate::db::{self, Schema};

/// How long a database may take to answer a command that may make one, because with compose it may start later.
const PATIENCE: Duration = Duration::from_mins(1);

/// The options that say what a command talks to.
#[derive(Debug, Clone, Args)]
pub(super) struct Target {
    #[command(flatten)]
    pub(super) remote: Remote,
    #[command(flatten)]
    database: Database,
    /// Whether an option of the command line names a database, which the environment does not.
    #[arg(skip)]
    names_database: bool,
}

/// The rule, for the help of commands.
pub(super) const RULE: &str = "Without --url, --database-url or --data-dir the command talks to the server at \
    http://127.0.0.1:8080 (or GLEANER_BIND) if one answers there, else to the database that DATABASE_URL names, else to \
    the one in ./data.";

/// What a command does if there is no database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// It makes one.
    Make,
    /// It says where it looked.
    Say,
}

/// What a command talks to.
pub(super) enum Found {
    /// A server that runs.
    Server(Client),
    /// A database, to which no server is needed.
    Database(Box<Local>),
}

/// A database that can be used, with its schema up to date.
pub(super) struct Local {
    /// How to connect.
    pub(super) options: PgConnectOptions,
    /// The private Postgres, if this command has started it. It stops when this is dropped.
    _cluster: Option<Cluster>,
}

impl Target {
    /// Notes which options the command line has. The environment's are weaker: `DATABASE_URL` may be meant for
    /// another program.
    pub(super) fn note_sources(&mut self, matches: &ArgMatches) {
        let mut deepest = matches;
        while let Some((_, matches)) = deepest.subcommand() {
            deepest = matches;
        }
        let given = |id| {
            deepest.ids().any(|own| own.as_str() == id)
                && deepest.value_source(id) == Some(ValueSource::CommandLine)
        };
        self.names_database = ["database_url", "database_url_file", "data_dir"].into_iter().any(given);
    }

    /// Finds what the command talks to, as [`RULE`] says.
    pub(super) async fn find(&self, missing: Missing) -> anyhow::Result<Found> {
        if let Some(url) = self.remote.url() {
            return Ok(Found::Server(self.remote.client(url, client::PATIENCE)?));
        }
        if self.names_database {
            return self.local(missing, None).await.map(Found::Database);
        }
        let server = self.remote.client(&client::default_url(), client::PATIENCE)?;
        match server.presence() {
            Presence::Open => Ok(Found::Server(server)),
            // Whoever can open the database needs no key.
            Presence::Closed => match self.local(Missing::Say, Some(&server.url())).await {
                Ok(local) => Ok(Found::Database(local)),
                Err(_) => Ok(Found::Server(server)),
            },
            Presence::Nobody => self.local(missing, Some(&server.url())).await.map(Found::Database),
        }
    }

    /// Opens the database of this machine. `asked` is the server that does not answer.
    async fn local(&self, missing: Missing, asked: Option<&str>) -> anyhow::Result<Box<Local>> {
        open(&self.database, missing, asked).await.map(Box::new)
    }
}

/// Opens the database configured, or the private Postgres, which a running server may already have started.
pub(super) async fn open(
    database: &Database,
    missing: Missing,
    asked: Option<&str>,
) -> anyhow::Result<Local> {
    let local = match database.url()? {
        Some(url) => Local { options: parse_url(&url)?, _cluster: None },
        None => private(database, missing, asked)?,
    };
    let patience = if missing == Missing::Make { PATIENCE } else { Duration::ZERO };
    db::wait(&local.options, patience, |reason| tracing::info!("waiting for {reason}")).await?;
    let pool = db::pool(&local.options, "gleaner", 1);
    let ready = prepare(&pool, &local.options, missing).await;
    pool.close().await;
    ready.map(|()| local)
}

/// Attaches to the private Postgres or starts it.
fn private(database: &Database, missing: Missing, asked: Option<&str>) -> anyhow::Result<Local> {
    let settings = embedded_settings(database);
    if let Some(options) = tokio::task::block_in_place(|| embedded::attach(&settings))? {
        return Ok(Local { options, _cluster: None });
    }
    let (folder, exists) = embedded::find(&settings)?;
    if !exists && missing == Missing::Say {
        let server = asked.map_or(Cow::Borrowed(""), |url| format!("no server answers at {url}, ").into());
        bail!(
            "there is no database: {server}DATABASE_URL is not set, and there is nothing in {}; start a server with \
             `gleaner serve`, or name one with --url, --database-url or --data-dir",
            folder.display()
        );
    }
    let cluster = tokio::task::block_in_place(|| Cluster::start(&settings))?;
    Ok(Local { options: cluster.options(), _cluster: Some(cluster) })
}

async fn prepare(pool: &PgPool, options: &PgConnectOptions, missing: Missing) -> anyhow::Result<()> {
    if missing == Missing::Make {
        return db::migrate(pool).await;
    }
    let name = db::name(options);
    match db::schema(pool).await.with_context(|| format!("asking {name}"))? {
        Schema::Current => Ok(()),
        Schema::Older => {
            bail!("{name} has the schema of an older Gleaner; `gleaner migrate` brings it up to date")
        }
        Schema::None => bail!(
            "{name} has no tables of Gleaner; `gleaner serve` or `gleaner migrate` makes them, if this is the database \
             that you mean"
        ),
    }
}
