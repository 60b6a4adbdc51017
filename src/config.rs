//! The server's settings. Each is an option of the command line and an environment variable, and
//! `gleaner serve --help` lists them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, Command, FromArgMatches, ValueEnum};

use crate::embeddings::Embedder;
use crate::exports::places::Limits;
use crate::privacy::capture::Capture;

/// The address that `serve` listens on if none is given.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Reads the address that a server listens on.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "it must be an IP address and a port, such as 127.0.0.1:8080")
}

/// Reads settings from the environment alone, for commands that do not take them as options.
pub fn from_environment<T: Args + FromArgMatches>() -> Result<T, clap::Error> {
    let matches = T::augment_args(Command::new("gleaner")).try_get_matches_from(["gleaner"])?;
    T::from_arg_matches(&matches)
}

/// Which database is used.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Database")]
pub struct Database {
    /// The URL of a Postgres database, version 14 or newer. The default is a private Postgres in the data folder.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, global = true, value_name = "URL")]
    pub database_url: Option<String>,

    /// The file that contains the database URL.
    #[arg(long, env = "DATABASE_URL_FILE", global = true, value_name = "FILE")]
    pub database_url_file: Option<PathBuf>,

    /// The folder of the private Postgres. The default is ./data. For root it is /var/lib/gleaner if the user that
    /// Postgres runs as cannot reach ./data.
    #[arg(long, env = "GLEANER_DATA_DIR", global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// The folder of initdb and postgres, if they are not found automatically.
    #[arg(long, env = "PG_BINDIR", global = true, value_name = "DIR")]
    pub pg_bindir: Option<PathBuf>,
}

impl Database {
    /// Returns the database URL, given directly or in a file.
    pub fn url(&self) -> anyhow::Result<Option<String>> {
        secret(self.database_url.as_deref(), self.database_url_file.as_deref())
    }
}

/// How much is kept.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Privacy")]
pub struct Privacy {
    /// How much of each event is stored: full, metadata or off. A project's own setting takes precedence.
    #[arg(long, env = "GLEANER_CAPTURE", default_value = "full", value_name = "HOW")]
    pub capture: Capture,
}

/// How the service is reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Serving")]
pub struct Serve {
    /// The address to listen on. The server listens on an address that other machines can reach only if an API key
    /// exists.
    #[arg(long, env = "GLEANER_BIND", default_value_t = ADDRESS, value_name = "ADDRESS", value_parser = address)]
    pub bind: SocketAddr,

    /// The first API key, of at least 32 characters, with every scope (for compose and CI). If a later start is given
    /// a different key, it replaces this one.
    #[arg(long, env = "GLEANER_ADMIN_KEY", hide_env_values = true, value_name = "KEY")]
    pub admin_key: Option<String>,

    /// The file that contains the first API key.
    #[arg(long, env = "GLEANER_ADMIN_KEY_FILE", value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,

    /// The maximum number of client connections. Health probes are answered even beyond it. The limit is lower if the
    /// system allows the process fewer open files.
    #[arg(long, env = "GLEANER_MOST_CONNECTIONS", default_value_t = crate::server::Settings::default().most_connections,
        value_name = "N")]
    pub most_connections: usize,

    /// The memory for the bodies of all requests together, in MiB. A request that finds none free waits briefly and
    /// is then rejected.
    #[arg(long, env = "GLEANER_BODY_MEMORY", default_value_t = crate::server::BODY_MEMORY, value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(128..=1 << 20))]
    pub body_memory: u32,

    /// The TOML file that lists the model providers.
    #[arg(long, env = "GLEANER_PROVIDERS_FILE", value_name = "FILE")]
    pub providers_file: Option<PathBuf>,

    /// The number of database connections for reading, which are opened at the start and kept. Writing
    /// uses three more, two more are used while the database is slow, and each export uses one.
    #[arg(long, env = "GLEANER_DB_CONNECTIONS", default_value_t = crate::server::Settings::default().connections, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub db_connections: u32,

    /// Limits on exports.
    #[command(flatten)]
    pub exports: Limits,

    /// The model of embeddings.
    #[command(flatten)]
    pub embeddings: Embeddings,
}

impl Serve {
    /// Returns the first key, given directly or in a file.
    pub fn key(&self) -> anyhow::Result<Option<String>> {
        secret(self.admin_key.as_deref(), self.admin_key_file.as_deref())
    }
}

/// Which model computes what memories mean.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Embeddings")]
pub struct Embeddings {
    /// The base URL, with /v1, of an OpenAI-compatible API of embeddings. Memories and queries are sent to it.
    #[arg(long, env = "GLEANER_EMBEDDINGS_URL", value_name = "URL")]
    pub embeddings_url: Option<String>,

    /// The name of the model of embeddings.
    #[arg(
        long,
        env = "GLEANER_EMBEDDINGS_MODEL",
        default_value = "text-embedding-3-small",
        value_name = "NAME"
    )]
    pub embeddings_model: String,

    /// The key of the API of embeddings.
    #[arg(long, env = "GLEANER_EMBEDDINGS_KEY", hide_env_values = true, value_name = "KEY")]
    pub embeddings_key: Option<String>,

    /// The file that contains the key of the API of embeddings.
    #[arg(long, env = "GLEANER_EMBEDDINGS_KEY_FILE", value_name = "FILE")]
    pub embeddings_key_file: Option<PathBuf>,
}

impl Embeddings {
    /// Returns the model of embeddings, if there is one.
    pub fn embedder(&self) -> anyhow::Result<Option<Embedder>> {
        let Some(url) = self.embeddings_url.as_deref().filter(|url| !url.is_empty()) else { return Ok(None) };
        let key = secret(self.embeddings_key.as_deref(), self.embeddings_key_file.as_deref())?;
        let embedder = Embedder::new(url, &self.embeddings_model, key.as_deref());
        embedder.context("GLEANER_EMBEDDINGS_URL or its key cannot be used").map(Some)
    }
}

/// What is logged, and in which format.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct Logging {
    /// What to log: a level, or directives such as gleaner=debug,sqlx=warn.
    #[arg(long, env = "GLEANER_LOG", default_value = "info,sqlx=warn", value_name = "FILTER")]
    pub log: String,

    /// The format of log lines.
    #[arg(long, env = "GLEANER_LOG_FORMAT", default_value = "pretty")]
    pub log_format: LogFormat,

    /// Log every request when it has been answered: method, path, status, duration and id, but never its content.
    #[arg(long, env = "GLEANER_LOG_REQUESTS", default_value_t = false, value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub log_requests: bool,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Pretty,
    /// One JSON object on each line.
    Json,
}

/// Returns a secret that is given directly or in a file, without the file's final newline. An empty value
/// counts as not given, because compose passes unset variables on as empty ones.
pub(crate) fn secret(direct: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let text =
        match (direct.filter(|text| !text.is_empty()), file.filter(|file| !file.as_os_str().is_empty())) {
            (Some(text), _) => text.to_owned(),
            (None, Some(file)) => {
                std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?
            }
            (None, None) => return Ok(None),
        };
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}
