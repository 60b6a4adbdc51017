//! The command line.

mod client;
mod export;
mod files;
mod hook;
mod import;
mod keys;
mod serve;
mod watch;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use sqlx::postgres::PgConnectOptions;
use tracing_subscriber::EnvFilter;

use crate::config::{Database, LogFormat, Logging, Privacy, Serve};
use crate::db::embedded::{self, Cluster};
use crate::http::Checks;
use crate::projects::Defaults;
use crate::searches::settings::SearchSettings;
use crate::{db, router};

/// Keeps what coding agents do and gives back what can be learned from it.
///
/// Without a command it serves. Every option can be given by the environment variable named beside it.
#[derive(Debug, Parser)]
#[command(name = "gleaner", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    privacy: Privacy,
    #[command(flatten)]
    searches: SearchSettings,
    #[command(flatten)]
    logging: Logging,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve HTTP until told to stop (the default).
    Serve,
    /// Bring the database's schema up to date and exit. `serve` does this by itself.
    Migrate,
    /// Print the OpenAPI document as YAML.
    Openapi,
    /// Ask a running server whether it is ready. The exit status is 0 if it is.
    Healthcheck,
    /// Make, list and revoke API keys.
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Store events from NDJSON files, as POST /v1/events does. It is safe to repeat.
    Import(import::Import),
    /// Write a data set to a file or to standard output, as GET /v1/exports/{dataset} does.
    Export(export::Export),
    /// Follow the transcripts that agents write, and learn from them.
    Watch(watch::Watch),
    /// Have agents report what they do.
    #[command(subcommand)]
    Hook(hook::Hook),
    /// Become the private Postgres. `serve` uses this command; it is not for people.
    #[command(hide = true, name = embedded::COMMAND)]
    PostgresChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Runs the command. Errors are printed as one sentence with their causes.
#[must_use]
pub fn run() -> ExitCode {
    let Cli { command, serve, database, privacy, searches, logging } = Cli::parse();
    start_logging(&logging);
    let defaults = match Checks::of(searches) {
        Ok(searches) => Defaults { capture: privacy.capture, searches, ..Defaults::default() },
        Err(error) => {
            eprintln!("gleaner: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match command.unwrap_or(Command::Serve) {
        Command::Openapi => router::openapi().to_yaml().map_err(anyhow::Error::from).map(|yaml| {
            print!("{yaml}");
            ExitCode::SUCCESS
        }),
        Command::Watch(watch) => watch.run(&database, defaults),
        Command::Hook(hook) => hook.run(),
        Command::PostgresChild { args } => Err(embedded::child_main(args)),
        Command::Healthcheck => serve::healthcheck(serve.bind),
        Command::Serve => serve::run(&serve, &database, defaults),
        Command::Migrate => with_database(&database, async |_| Ok(ExitCode::SUCCESS)),
        Command::Keys(keys) => with_database(&database, async |options| keys.run(&options).await),
        Command::Import(import) => {
            with_database(&database, async |options| import.run(&options, defaults).await)
        }
        Command::Export(export) => with_database(&database, async |options| export.run(&options).await),
    };
    result.unwrap_or_else(|error| {
        eprintln!("gleaner: {error:#}");
        ExitCode::FAILURE
    })
}

fn start_logging(logging: &Logging) {
    let filter = EnvFilter::try_new(&logging.log).unwrap_or_else(|error| {
        eprintln!("gleaner: GLEANER_LOG is not a filter ({error}); using info");
        EnvFilter::new("info")
    });
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A reader of standard error may go away, and the server goes on.
        .log_internal_errors(false);
    match logging.log_format {
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
        LogFormat::Pretty => subscriber.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
}

fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // Tasks for clients that do not read their responses must not delay the exit any longer.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Returns the settings of the private Postgres.
fn embedded_settings(database: &Database) -> embedded::Settings {
    embedded::Settings {
        data_dir: database.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty()),
        pg_bindir: database.pg_bindir.clone().filter(|dir| !dir.as_os_str().is_empty()),
        ..embedded::Settings::default()
    }
}

/// Runs a command on the database, after bringing its schema up to date. That is the database configured, or
/// the private Postgres, which a running server may already have started.
fn with_database(
    database: &Database,
    command: impl AsyncFnOnce(PgConnectOptions) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let mut own = None;
    let options = if let Some(url) = database.url()? {
        parse_url(&url)?
    } else {
        let settings = embedded_settings(database);
        match embedded::attach(&settings)? {
            Some(options) => options,
            None => own.insert(Cluster::start(&settings)?).options(),
        }
    };
    let result = block_on(async {
        let pool = db::pool(&options, "gleaner", 1);
        db::wait(&pool).await?;
        db::migrate(&pool).await?;
        pool.close().await;
        command(options).await
    });
    if let Some(cluster) = own {
        cluster.stop();
    }
    result
}

fn parse_url(url: &str) -> anyhow::Result<PgConnectOptions> {
    let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    // The parser's error is not shown, because it contains the URL, which may hold a password.
    url.parse()
        .ok()
        .filter(|_| is_postgres)
        .context("DATABASE_URL is not a Postgres URL (postgres://user:password@host/database)")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
