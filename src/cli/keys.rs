//! `gleaner keys`.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Subcommand;
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::auth::keys::{self, NewKey, Scope, Secret};
use crate::db;
use crate::projects;
use crate::types::Timestamp;

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Make a key and print its secret, which is not stored.
    Create {
        /// Name of the key, for people.
        #[arg(long, default_value = "cli")]
        name: String,
        /// Project that the key belongs to.
        #[arg(long, default_value = "default")]
        project: String,
        /// Scope that the key grants. Repeat the option for several.
        #[arg(long = "scope", required = true)]
        scopes: Vec<Scope>,
        /// When the key expires, as RFC 3339 or Unix seconds. Without it the key never does.
        #[arg(long, value_name = "TIME")]
        expires_at: Option<Timestamp>,
    },
    /// List keys, without their secrets.
    List {
        /// Only keys of this project.
        #[arg(long)]
        project: Option<String>,
    },
    /// Revoke a key. Running servers refuse it within five seconds.
    Revoke {
        /// Id of the key, as `list` shows it.
        id: Uuid,
    },
}

impl Keys {
    pub(super) async fn run(self, options: &PgConnectOptions) -> anyhow::Result<ExitCode> {
        let db = db::pool(options, "gleaner", 1);
        match self {
            Self::Create { name, project, scopes, expires_at } => {
                ensure!(projects::store::exists(&db, &project).await?, "there is no project {project}");
                ensure!((1..=200).contains(&name.chars().count()), "the name must have 1 to 200 characters");
                let secret = Secret::random()?;
                let new = NewKey { id: None, project: None, name, scopes, expires_at };
                let row = keys::insert(&db, &project, &new, &secret).await?;
                eprintln!(
                    "made the key {} for the project {project}; this is the only time it is shown:",
                    row.id
                );
                println!("{}", secret.text);
            }
            Self::List { project } => {
                for key in keys::list(&db, project.as_deref()).await? {
                    let state = match (key.revoked_at, key.expires_at) {
                        (Some(at), _) => format!("revoked {at}"),
                        (None, Some(at)) if at <= Timestamp::now() => format!("expired {at}"),
                        (None, Some(at)) => format!("expires {at}"),
                        (None, None) => "in use".to_owned(),
                    };
                    println!(
                        "{}  {}…  {}  {}  {}  made {}  {state}",
                        key.id,
                        key.prefix,
                        key.project,
                        key.name,
                        key.scopes.join(","),
                        key.created_at
                    );
                }
            }
            Self::Revoke { id } => {
                if !keys::revoke(&db, id).await? {
                    bail!("there is no key {id}");
                }
                eprintln!("revoked {id}");
            }
        }
        db.close().await;
        Ok(ExitCode::SUCCESS)
    }
}
