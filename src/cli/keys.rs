//! `gleaner keys`.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use serde::Deserialize;
use ureq::http::Method;
use uuid::Uuid;

use super::client::Client;
use super::target::{Found, Missing, Target};
use super::words;
use crate::auth::keys::{self, ApiKey, NewKey, Rotation, Scope, Secret};
use crate::auth::{Actor, audit_entries};
use crate::db;
use crate::http::Checks;
use crate::projects;
use crate::types::Timestamp;

#[derive(Debug, Args)]
pub(super) struct Keys {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a key and print its secret. The secret is not stored.
    #[command(after_help = "Examples:
  gleaner keys create --scope operator
  gleaner keys create --name laptop --scope write --scope read --expires-at 2027-01-01T00:00:00Z")]
    Create {
        /// The name of the key, which lists show.
        #[arg(long, default_value = "cli")]
        name: String,
        /// The project that the new key is for. The default is the project of the key in use, or `default` without a
        /// key.
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
        /// A scope that the key grants. Repeat the option to grant several.
        #[arg(long = "scope", required = true)]
        scopes: Vec<Scope>,
        /// When the key expires, as RFC 3339 or Unix seconds. Without this option, the key never expires.
        #[arg(long, value_name = "TIME")]
        expires_at: Option<Timestamp>,
        /// The number of requests per second that the key may send. Without this option there is no limit.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
        requests_per_second: Option<i32>,
    },
    /// List keys, without their secrets.
    #[command(after_help = "Example:
  gleaner keys list --project my-project")]
    List {
        /// List only keys of this project. A server lists the keys of one project: by default, the project of the key
        /// in use.
        #[arg(long, value_name = "NAME")]
        project: Option<String>,
    },
    /// Replace a key with a new one that has the same name, project and scopes, and print the new secret.
    #[command(after_help = "Examples:
  gleaner keys rotate 01946983-4c40-7a1c-9d3e-5b0f6c2e8a71
  gleaner keys rotate 01946983-4c40-7a1c-9d3e-5b0f6c2e8a71 --old-expires-at 2027-01-01T00:00:00Z")]
    Rotate {
        /// The id of the key, as `list` shows it.
        id: Uuid,
        /// When the old key stops working, as RFC 3339 or Unix seconds. Without this option, the old key is revoked
        /// at once.
        #[arg(long, value_name = "TIME")]
        old_expires_at: Option<Timestamp>,
        /// When the new key expires. Without this option, the new key expires when the old one would have.
        #[arg(long, value_name = "TIME")]
        expires_at: Option<Timestamp>,
    },
    /// Revoke a key. Running servers reject it within five seconds.
    #[command(after_help = "Example:
  gleaner keys revoke 01946983-4c40-7a1c-9d3e-5b0f6c2e8a71")]
    Revoke {
        /// The id of the key, as `list` shows it.
        #[arg(value_parser = id)]
        id: Uuid,
    },
}

fn id(text: &str) -> Result<Uuid, &'static str> {
    text.parse().map_err(|_| "it is not the id of a key, which `gleaner keys list` shows")
}

/// A key that a server has just made.
#[derive(Deserialize)]
struct Made {
    key: String,
    #[serde(flatten)]
    row: ApiKey,
}

/// A page of the list of keys.
#[derive(Deserialize)]
struct Page {
    data: Vec<ApiKey>,
    next_cursor: Option<String>,
}

impl Keys {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self.target.find(Missing::Say).await? {
            Found::Server(client) => tokio::task::block_in_place(|| self.action.on_server(&client))?,
            Found::Database(local) => self.action.on_database(db::pool(&local.options, "gleaner", 1)).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Action {
    fn on_server(self, client: &Client) -> anyhow::Result<()> {
        match self {
            Self::Create { name, project, scopes, expires_at, requests_per_second } => {
                let new = NewKey { id: None, project, name, scopes, expires_at, requests_per_second };
                let body = serde_json::to_vec(&new)?;
                let answer = client.post("/v1/keys", "application/json", None, &body);
                let Made { key, row } = client.json(&client.accepted(answer)?)?;
                show(&key, &row)
            }
            Self::List { project } => {
                let (mut all, mut cursor) = (Vec::new(), String::new());
                loop {
                    let path = format!("/v1/keys?limit=500{cursor}");
                    let answer = client.accepted(client.call(Method::GET, &path, project.as_deref()))?;
                    let Page { data, next_cursor } = client.json(&answer)?;
                    all.extend(data);
                    match next_cursor {
                        Some(next) => cursor = format!("&cursor={next}"),
                        None => return list(&all),
                    }
                }
            }
            Self::Rotate { id, old_expires_at, expires_at } => {
                let body = serde_json::to_vec(&Rotation { old_expires_at, expires_at })?;
                let answer = client.post(&format!("/v1/keys/{id}/rotate"), "application/json", None, &body);
                let Made { key, row } = client.json(&client.accepted(answer)?)?;
                show(&key, &row)
            }
            Self::Revoke { id } => {
                client.accepted(client.call(Method::DELETE, &format!("/v1/keys/{id}"), None))?;
                words::note(format_args!("revoked {id}"));
                Ok(())
            }
        }
    }

    async fn on_database(self, db: sqlx::PgPool) -> anyhow::Result<()> {
        match self {
            Self::Create { name, project, scopes, expires_at, requests_per_second } => {
                let project = project.unwrap_or_else(|| "default".to_owned());
                ensure!(
                    projects::store::exists(&db, &project).await?,
                    "there is no project {project}; PUT /v1/projects/{project} creates it"
                );
                let secret = Secret::random()?;
                let new = Checks::of(NewKey {
                    id: None,
                    project: None,
                    name,
                    scopes,
                    expires_at,
                    requests_per_second,
                })?;
                let mut transaction = db::begin(&db).await?;
                let row = keys::insert(&mut transaction, &project, &new, &secret).await?;
                audit_entries::made(&mut transaction, &row, &Actor::COMMAND_LINE).await?;
                transaction.commit().await?;
                show(&secret.text, &row)?;
            }
            Self::List { project } => list(&keys::all(&db, project.as_deref()).await?)?,
            Self::Rotate { id, old_expires_at, expires_at } => {
                let secret = Secret::random()?;
                let mut transaction = db::begin(&db).await?;
                let rotation = Rotation { old_expires_at, expires_at };
                let row = keys::rotate(&mut transaction, id, &rotation, &secret).await?;
                audit_entries::rotated(&mut transaction, &row, (id, &rotation), &Actor::COMMAND_LINE).await?;
                transaction.commit().await?;
                show(&secret.text, &row)?;
            }
            Self::Revoke { id } => {
                let mut transaction = db::begin(&db).await?;
                let Some(row) = keys::get(&mut *transaction, id).await? else {
                    bail!("there is no key {id}");
                };
                keys::revoke(&mut *transaction, id).await?;
                let revoked = (id, row.name.as_str());
                audit_entries::revoked(&mut transaction, &row.project, revoked, &Actor::COMMAND_LINE).await?;
                transaction.commit().await?;
                words::note(format_args!("revoked {id}"));
            }
        }
        db.close().await;
        Ok(())
    }
}

/// Prints a key that was just made: the secret alone on standard output.
fn show(secret: &str, row: &ApiKey) -> anyhow::Result<()> {
    words::note(format_args!(
        "created the key {} for the project {}; this is the only time it is shown:",
        row.id, row.project
    ));
    words::print(secret)
}

fn list(keys: &[ApiKey]) -> anyhow::Result<()> {
    if keys.is_empty() {
        words::note("there are no keys");
    }
    for key in keys {
        let state = match (key.revoked_at, key.expires_at) {
            (Some(at), _) => format!("revoked {at}"),
            (None, Some(at)) if at <= Timestamp::now() => format!("expired {at}"),
            (None, Some(at)) => format!("expires {at}"),
            (None, None) => "active".to_owned(),
        };
        let scopes = key.scopes.join(",");
        let used = key.last_used_on.map_or("never used".to_owned(), |day| format!("last used {day}"));
        words::print(format_args!(
            "{}  {}…  {}  {}  {scopes}  created {}  {used}  {state}",
            key.id, key.prefix, key.project, key.name, key.created_at
        ))?;
    }
    Ok(())
}
