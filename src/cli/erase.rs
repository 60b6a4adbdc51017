//! `gleaner erase`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use ureq::http::Method;
use uuid::Uuid;

use super::client::Client;
use super::target::{Found, Missing, Target};
use super::{defaults, words};
use crate::auth::Actor;
use crate::db;
use crate::domain::{Domain, SessionName};
use crate::erasure::{self, Erased};
use crate::projects;
use crate::searches::late_reports;
use crate::types::Timestamp;

#[derive(Debug, Args)]
pub(super) struct Erase {
    #[command(flatten)]
    what: What,
    /// With --session, erase only what was recorded under that name on this server.
    #[arg(long, value_name = "NAME", requires = "session")]
    session_server: Option<String>,
    /// Erase only records of this domain.
    #[arg(long, requires = "before")]
    domain: Option<Domain>,
    /// The project whose records are erased. The default is the key's project, or `default` without a key.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

/// What is erased: one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Erase everything that was recorded under this session name.
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Erase records that were finalized before this time, as RFC 3339 or Unix seconds. A record that was never
    /// finalized is erased if it was created before this time.
    #[arg(long, value_name = "TIME")]
    before: Option<Timestamp>,
    /// Erase the record with this id.
    #[arg(long)]
    id: Option<Uuid>,
}

/// The number of records erased of each kind.
type Counts = BTreeMap<String, u64>;

/// What a server says about an erasure by age.
#[derive(Deserialize)]
struct ByAge {
    erased: Counts,
    more: bool,
}

impl Erase {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let counts = match self.target.find(Missing::Say).await? {
            Found::Server(client) => tokio::task::block_in_place(|| self.on_server(&client))?,
            Found::Database(local) => {
                let pool = db::pool(&local.options, "gleaner", 1);
                let erased = self.on_database(&pool).await?;
                pool.close().await;
                erased.iter().map(|(kind, count)| (kind.to_owned(), count)).collect()
            }
        };
        for (kind, count) in counts {
            words::print(format_args!("{kind} {count}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn on_server(&self, client: &Client) -> anyhow::Result<Counts> {
        let erase = |path: &str| client.accepted(client.call(Method::DELETE, path, self.project.as_deref()));
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        match &self.what {
            What { session: Some(session), .. } => {
                let server =
                    self.session_server.as_deref().map(|server| format!("?server={}", encode(server)));
                let path = format!("/v1/sessions/{}{}", encode(session), server.unwrap_or_default());
                client.json(&erase(&path)?)
            }
            What { before: Some(time), .. } => {
                let domain = self.domain.map(|domain| format!("&domain={}", domain.name()));
                let path = format!("/v1/records?before={time}{}", domain.unwrap_or_default());
                let mut counts = Counts::new();
                loop {
                    let ByAge { erased, more } = client.json(&erase(&path)?)?;
                    for (kind, count) in erased {
                        *counts.entry(kind).or_default() += count;
                    }
                    if !more {
                        return Ok(counts);
                    }
                }
            }
            What { id, .. } => {
                let id = id.context("one of --session, --before and --id is needed")?;
                client.json(&erase(&format!("/v1/records/{id}"))?)
            }
        }
    }

    async fn on_database(&self, db: &sqlx::PgPool) -> anyhow::Result<Erased> {
        let project = self.project.as_deref().unwrap_or("default");
        let tenant = projects::store::tenant(db, project, &defaults()?).await?;
        let tenant = Arc::new(tenant.with_context(|| format!("there is no project {project}"))?);
        let domains = self.domain.map_or(Domain::ALL.to_vec(), |domain| vec![domain]);
        late_reports::earlier(db, project).await?;
        Ok(match &self.what {
            What { session: Some(session), .. } => {
                let name = SessionName { session, server: self.session_server.as_deref() };
                erasure::session(db, &tenant, &Actor::COMMAND_LINE, name).await?
            }
            What { before: Some(time), .. } => {
                erasure::before(db, &tenant, &Actor::COMMAND_LINE, &domains, *time, Duration::MAX)
                    .await?
                    .erased
            }
            What { id, .. } => {
                let id = id.context("one of --session, --before and --id is needed")?;
                let erased = erasure::record(db, &tenant, &Actor::COMMAND_LINE, &domains, id).await?;
                anyhow::ensure!(!erased.is_nothing(), "there is no record {id} in the project {project}");
                erased
            }
        })
    }
}
