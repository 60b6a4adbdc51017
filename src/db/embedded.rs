//! stand-in
use sqlx::postgres::PgConnectOptions;
use std::path::{Path, PathBuf};
/// x
#[derive(Debug)]
pub struct Settings {
    /// x
    pub data_dir: Option<PathBuf>,
    /// x
    pub pg_bindir: Option<PathBuf>,
    /// x
    pub durable: bool,
    /// x
    pub launcher: PathBuf,
}
/// x
#[derive(Debug)]
pub struct Cluster;
/// x
#[derive(Debug, clap::Args)]
pub struct Child {}
impl Child {
    /// x
    pub fn run(self) -> anyhow::Error {
        anyhow::anyhow!("no")
    }
}
impl Cluster {
    /// x
    pub fn start(_: &Settings) -> anyhow::Result<Self> {
        anyhow::bail!("not yet")
    }
    /// x
    pub fn options(&self) -> PgConnectOptions {
        PgConnectOptions::new()
    }
    /// x
    pub fn data_dir(&self) -> &Path {
        Path::new("")
    }
    /// x
    pub fn stop(self) {}
}
/// x
pub fn attach(_: &Settings) -> anyhow::Result<Option<PgConnectOptions>> {
    Ok(None)
}
