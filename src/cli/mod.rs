//! The command line.

mod client;
mod door;
mod edit;
mod erase;
mod export;
mod files;
mod hook;
mod import;
mod index;
mod keys;
mod mcp;
mod serve;
mod snapshots;
mod target;
mod watch;
mod words;

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgAction, Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use sqlx::postgres::PgConnectOptions;
use tracing_subscriber::EnvFilter;

use self::target::{Missing, Target};
use self::words::NobodyReads;
use crate::config::{self, Database, LogFormat, Logging, Privacy, from_environment};
use crate::db::embedded;
use crate::error::Error;
use crate::http::Checks;
use crate::projects::Defaults;
use crate::searches::settings::SearchSettings;
use crate::{router, telemetry};

/// The exit status when the reader of standard output has gone: 128 plus the number of SIGPIPE, as shells report it.
const NOBODY_READS: u8 = 141;

/// Records what coding agents do and serves what can be learned from it.
///
/// Without a command, gleaner runs the server. Each option can also be set with the environment variable shown next
/// to it.
#[derive(Debug, Parser)]
#[command(
    name = "gleaner",
    version,
    max_term_width = 100,
    disable_help_flag = true,
    disable_help_subcommand = true,
    after_help = "Examples:
  gleaner serve                                  serve on http://127.0.0.1:8080, data in ./data
  gleaner hook install claude-code               make Claude Code report what it does
  gleaner watch                                  learn from the transcripts that agents have written
  gleaner export training-pairs -o train.jsonl   write a data set to a file"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print help.
    #[arg(short, long, global = true, action = ArgAction::HelpShort)]
    help: Option<bool>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve HTTP until SIGINT or SIGTERM. This is the default command.
    #[command(after_help = "Examples:
  gleaner serve
  gleaner serve --bind 127.0.0.1:9000 --data-dir ~/gleaner
  DATABASE_URL=postgres://gleaner@db.example/gleaner gleaner serve --log-format json --log-requests")]
    Serve(Box<serve::Options>),
    /// Bring the database's schema up to date and exit. `serve` also does this when it starts.
    #[command(after_help = "Example:
  DATABASE_URL=postgres://gleaner@db.example/gleaner gleaner migrate")]
    Migrate {
        #[command(flatten)]
        database: Database,
    },
    /// Store events from NDJSON files, as POST /v1/events does. Importing a file again is harmless.
    #[command(after_help = format!("{}\n\nExamples:
  gleaner import events.jsonl more.jsonl.gz
  cat */*/suggestion_history.jsonl | gleaner import -
  gleaner import --url https://gleaner.example --key-file ~/.gleaner-key events.jsonl", target::RULE))]
    Import(import::Import),
    /// Write a data set to a file or to standard output, as GET /v1/exports/{dataset} does.
    #[command(after_help = format!("{}\n\nExamples:
  gleaner export training-pairs | head -3
  gleaner export correction-pairs --format trl-preference --split train -o train.jsonl.gz
  gleaner export training-pairs --snapshot parquet -o train.parquet
  gleaner export training-pairs --help   the options of that data set", target::RULE))]
    Export(Box<export::Export>),
    /// List, download and delete snapshots: exports that are kept as files.
    #[command(after_help = format!("{}\n\nExamples:
  gleaner export training-pairs --split train --snapshot   makes one
  gleaner snapshots
  gleaner snapshots download 01946983-4c40-7a1c-9d3e-5b0f6c2e8a71 -o train.parquet", target::RULE))]
    Snapshots(snapshots::Snapshots),
    /// Follow the transcripts that agents write, and learn from them.
    #[command(after_help = format!("{}\n\nExamples:
  gleaner watch
  gleaner watch --once ~/.claude/projects
  gleaner watch --url https://gleaner.example --key-file ~/.gleaner-key", target::RULE))]
    Watch(watch::Watch),
    /// Store the functions and texts of a folder as memories, and keep them up to date.
    #[command(after_help = format!("{}\n\nExamples:
  gleaner index
  gleaner index ~/my-project --watch
  gleaner index --url https://gleaner.example --key-file ~/.gleaner-key", target::RULE))]
    Index(index::Index),
    /// Make agents report what they do.
    #[command(subcommand)]
    Hook(hook::Hook),
    /// Serve tools for a model on standard input and output (MCP), and make agents use them.
    #[command(after_help = format!("{}\n\nExamples:
  gleaner mcp install claude-code
  gleaner mcp --url https://gleaner.example --key-file ~/.gleaner-key", target::RULE))]
    Mcp(mcp::Mcp),
    /// Erase records by session, age or id, and print how many were erased.
    #[command(after_help = format!("{}\n\nExamples:
  gleaner erase --session ann-2026-11-20
  gleaner erase --before 2026-01-01T00:00:00Z --domain generations
  gleaner erase --id 01946984-36a0-7b2e-8f41-c07d9e35a6b2 --project my-project", target::RULE))]
    Erase(erase::Erase),
    /// Create, list, rotate and revoke API keys.
    #[command(after_help = format!("{}", target::RULE))]
    Keys(keys::Keys),
    /// Check whether a server on this machine is ready. The exit status is 0 if it is.
    #[command(after_help = "Example:
  gleaner healthcheck && curl -s http://127.0.0.1:8080/v1/exports")]
    Healthcheck {
        /// The address that the server listens on.
        #[arg(long, env = "GLEANER_BIND", default_value_t = config::ADDRESS, value_name = "ADDRESS",
            value_parser = config::address)]
        bind: SocketAddr,
    },
    /// Print the OpenAPI document as YAML.
    #[command(after_help = "Example:
  gleaner openapi > openapi.yaml")]
    Openapi,
    /// Run as the private Postgres. `serve` uses this command internally.
    #[command(hide = true, name = embedded::COMMAND)]
    PostgresChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

impl Command {
    /// What the command talks to, where there is a choice.
    fn target(&mut self) -> Option<&mut Target> {
        match self {
            Self::Import(import) => Some(&mut import.target),
            Self::Export(export) => Some(&mut export.target),
            Self::Snapshots(snapshots) => Some(&mut snapshots.target),
            Self::Watch(watch) => Some(&mut watch.target),
            Self::Mcp(mcp) => Some(&mut mcp.target),
            Self::Index(index) => Some(&mut index.target),
            Self::Erase(erase) => Some(&mut erase.target),
            Self::Keys(keys) => Some(&mut keys.target),
            _ => None,
        }
    }

    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Serve(options) => options.run(),
            Self::Migrate { database } => block_on(async {
                let local = target::open(&database, Missing::Make, None).await?;
                words::note(format_args!("{} has the current schema", crate::db::name(&local.options)));
                Ok(ExitCode::SUCCESS)
            }),
            Self::Import(import) => block_on(import.run()),
            Self::Export(export) => block_on(export.run()),
            Self::Snapshots(snapshots) => block_on(snapshots.run()),
            Self::Watch(watch) => block_on(watch.run()),
            Self::Hook(hook) => hook.run(),
            Self::Mcp(mcp) => mcp.run(),
            Self::Index(index) => block_on(index.run()),
            Self::Erase(erase) => block_on(erase.run()),
            Self::Keys(keys) => block_on(keys.run()),
            Self::Healthcheck { bind } => serve::healthcheck(bind),
            Self::Openapi => {
                words::write_out(router::openapi().to_yaml()?.as_bytes())?;
                Ok(ExitCode::SUCCESS)
            }
            Self::PostgresChild { args } => Err(embedded::child_main(args)),
        }
    }
}

/// Runs the command. Errors are printed as one sentence with their causes, or logged where the log is JSON.
#[must_use]
pub fn run() -> ExitCode {
    let matches = Cli::command().get_matches_from(with_default(env::args_os().collect()));
    let Cli { mut command, .. } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Some(target) = command.target() {
        target.note_sources(&matches);
    }
    let logging = match &command {
        Command::Serve(options) => options.logging.clone(),
        _ => from_environment().unwrap_or_else(|error| error.exit()),
    };
    start_logging(&logging);
    command.run().unwrap_or_else(|error| {
        if error.is::<NobodyReads>() {
            return ExitCode::from(NOBODY_READS);
        }
        match logging.log_format {
            LogFormat::Json => tracing::error!("{}", words::describe(&error)),
            LogFormat::Pretty => words::note(format_args!("gleaner: {}", words::describe(&error))),
        }
        ExitCode::FAILURE
    })
}

/// Adds the default command, if there is none: nothing, or only options, asks for a server.
fn with_default(mut args: Vec<OsString>) -> Vec<OsString> {
    let first = args.get(1).map(|first| first.to_string_lossy().into_owned());
    let is_about_all = |first: &str| ["-h", "--help", "-V", "--version"].contains(&first);
    if first.is_none_or(|first| first.starts_with('-') && !is_about_all(&first)) {
        args.insert(args.len().min(1), "serve".into());
    }
    args
}

fn start_logging(logging: &Logging) {
    let (filter, wrong) = match EnvFilter::try_new(&logging.log) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let requests = format!("{}={}", telemetry::REQUESTS, if logging.log_requests { "info" } else { "off" });
    // The libraries of MCP and HTTP/2 log what clients send to them, and how much of that is up to them. Those with which the
    // commands send requests log each of them, with the key.
    let filter = [requests.as_str(), "rmcp=off", "h2=error", "ureq=warn", "ureq_proto=warn"]
        .iter()
        .fold(filter, |filter, rule| filter.add_directive(rule.parse().expect("a target and a level")));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A reader of standard error may go away, and the server goes on.
        .log_internal_errors(false);
    match logging.log_format {
        LogFormat::Json => subscriber.json().flatten_event(true).with_span_list(false).init(),
        LogFormat::Pretty => subscriber.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
    if let Some(error) = wrong {
        tracing::warn!("GLEANER_LOG is not a filter ({error}); using info");
    }
}

/// Returns the server's settings for what is kept and learned, for commands that write to a database themselves.
fn defaults() -> anyhow::Result<Defaults> {
    let Privacy { capture } = from_environment()?;
    Ok(Defaults { capture, searches: checked(from_environment()?)?, ..Defaults::default() })
}

/// Checks the settings of searches. Those that are wrong are named as their options are.
fn checked(settings: SearchSettings) -> anyhow::Result<SearchSettings> {
    let Err(error) = Checks::of(settings.clone()) else { return Ok(settings) };
    let Error::Invalid(mut errors) = error else { return Err(error.into()) };
    let options = SearchSettings::augment_args(clap::Command::new("gleaner"));
    for error in &mut errors {
        let field = error.pointer.split('/').nth(1).unwrap_or_default();
        let option = options.get_arguments().find(|option| option.get_id().as_str() == field);
        if let Some(name) = option.and_then(Arg::get_long) {
            error.pointer = format!("/{name}");
        }
    }
    Err(Error::Invalid(errors).into())
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

    #[test]
    fn without_a_command_it_serves() {
        let with_default = |line: &str| {
            let args = super::with_default(line.split(' ').map(Into::into).collect());
            args.join(std::ffi::OsStr::new(" ")).into_string().expect("text")
        };
        assert_eq!(with_default("gleaner"), "gleaner serve");
        assert_eq!(with_default("gleaner --bind 127.0.0.1:1"), "gleaner serve --bind 127.0.0.1:1");
        for same in ["gleaner --help", "gleaner -V", "gleaner export --help"] {
            assert_eq!(with_default(same), same);
        }
    }
}
