//! Settings: every one is an option and an environment variable; `--help` lists them all.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::exports::stream::Limits;
use crate::privacy::capture::Capture;

/// Where the database is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Database")]
pub struct Database {
    /// Postgres 14 or newer to use; without it, a private one is run in the data folder.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, global = true, value_name = "URL")]
    pub database_url: Option<String>,

    /// File that holds the database URL.
    #[arg(long, env = "DATABASE_URL_FILE", global = true, value_name = "FILE")]
    pub database_url_file: Option<PathBuf>,

    /// Folder of the private Postgres; by default ./data, or as root /var/lib/gleaner where the user that Postgres
    /// runs as cannot reach ./data.
    #[arg(long, env = "GLEANER_DATA_DIR", global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Folder of the Postgres programs, where they are not found by themselves.
    #[arg(long, env = "PG_BINDIR", global = true, value_name = "DIR")]
    pub pg_bindir: Option<PathBuf>,

    /// The most connections for reading; writing uses two more, and each export one.
    #[arg(long, env = "GLEANER_DB_CONNECTIONS", default_value_t = crate::server::Settings::default().connections, global = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub db_connections: u32,
}

impl Database {
    /// The URL, from wherever it is given.
    pub fn url(&self) -> anyhow::Result<Option<String>> {
        secret(self.database_url.as_deref(), self.database_url_file.as_deref())
    }
}

/// What is kept.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Privacy")]
pub struct Privacy {
    /// How much is kept of what is posted, where a project's settings do not say.
    #[arg(long, env = "GLEANER_CAPTURE", default_value = "full", global = true, value_name = "HOW")]
    pub capture: Capture,
}

/// How the service is reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Serving")]
pub struct Serve {
    /// Address to listen on. Other than loopback needs a key.
    #[arg(
        long,
        env = "GLEANER_BIND",
        default_value = "127.0.0.1:8080",
        global = true,
        value_name = "ADDRESS"
    )]
    pub bind: SocketAddr,

    /// First key, with every scope: for compose and CI. At least 32 characters. Another one given at a later start
    /// takes its place.
    #[arg(long, env = "GLEANER_ADMIN_KEY", hide_env_values = true, global = true, value_name = "KEY")]
    pub admin_key: Option<String>,

    /// File that holds the first key.
    #[arg(long, env = "GLEANER_ADMIN_KEY_FILE", global = true, value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,

    /// What exports may take.
    #[command(flatten)]
    pub exports: Limits,
}

impl Serve {
    /// The first key, from wherever it is given.
    pub fn key(&self) -> anyhow::Result<Option<String>> {
        secret(self.admin_key.as_deref(), self.admin_key_file.as_deref())
    }
}

/// What is logged, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct Logging {
    /// What is logged: a level, or directives such as gleaner=debug,sqlx=warn.
    #[arg(long, env = "GLEANER_LOG", default_value = "info,sqlx=warn", global = true, value_name = "FILTER")]
    pub log: String,

    /// How a log line looks.
    #[arg(long, env = "GLEANER_LOG_FORMAT", default_value = "pretty", global = true)]
    pub log_format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// A secret given directly or by a file, without the newline that files end with. An empty one is none: compose passes
/// unset variables on as empty.
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
