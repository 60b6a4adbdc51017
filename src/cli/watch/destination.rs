//! Where lines are sent: a server, or the database itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use sqlx::postgres::PgConnectOptions;

use crate::cli::client::Client;
use crate::config::from_environment;
use crate::error::Error;
use crate::intake::transcript;
use crate::projects::{self, Defaults};
use crate::searches::transcripts::Origin;
use crate::searches::write::TranscriptCounts;
use crate::server::{Running, Settings};

/// The most connections for reading from the database.
const CONNECTIONS: u32 = 2;

/// Why lines were not taken.
pub(super) enum Refusal {
    /// Nobody answered, or not in time. The lines are to be sent again, after `after` if the server gave a time.
    Away { reason: String, after: Option<Duration> },
    /// These lines make the server fail. Others may not.
    Failed(String),
    /// The lines were refused for good.
    Final(anyhow::Error),
}

/// Where lines are sent.
pub(super) enum Destination {
    /// A server, and the project if it is not the key's own.
    Server { client: Client, project: Option<String> },
    /// A database, its name and the project.
    Database { running: Box<Running>, name: String, project: Arc<str> },
}

impl Destination {
    /// Connects to the database that `options` name. With `upkeep`, it also looks after the database.
    pub(super) async fn database(
        options: &PgConnectOptions,
        project: Option<&str>,
        defaults: Defaults,
        upkeep: bool,
    ) -> anyhow::Result<Self> {
        let project = Arc::<str>::from(project.unwrap_or("default"));
        let exports = from_environment()?;
        let settings =
            Settings { connections: CONNECTIONS, defaults, upkeep, exports, ..Settings::default() };
        let running = Box::new(Running::start(options, settings));
        let exists = projects::store::exists(&running.app.db, &project).await?;
        ensure!(exists, "there is no project {project}; PUT /v1/projects/{project} creates it");
        let host =
            options.get_socket().map_or_else(|| options.get_host().into(), |socket| socket.to_string_lossy());
        let name = format!("{}:{}/{}", host, options.get_port(), options.get_database().unwrap_or(""));
        Ok(Self::Database { running, name, project })
    }

    /// The name that tells this destination from others.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Server { client, project: None } => client.url().into_owned(),
            Self::Server { client, project: Some(project) } => format!("{project} at {}", client.url()),
            Self::Database { name, project, .. } => format!("{project} at {name}"),
        }
    }

    /// Sends lines of `origin`. Returns their outcome once they are stored.
    pub(super) async fn send(&self, origin: &Origin, lines: Bytes) -> Result<TranscriptCounts, Refusal> {
        match self {
            Self::Server { client, project } => {
                let (client, project, origin) = (client.clone(), project.clone(), origin.clone());
                let post = move || to_server(&client, project.as_deref(), &origin, &lines);
                tokio::task::spawn_blocking(post).await.map_err(|error| Refusal::Final(error.into()))?
            }
            Self::Database { running, project, .. } => {
                let app = &running.app;
                let taken = async {
                    let tenant = app.keyring.tenant(project).await?;
                    transcript::take(app, &tenant, origin.clone(), lines.into()).await
                };
                taken.await.map_err(|error| match error {
                    Error::Unavailable(_) => Refusal::Away {
                        reason: format!("the database does not answer: {error}"),
                        after: None,
                    },
                    Error::Internal(cause) => Refusal::Failed(format!("{cause:#}")),
                    error => Refusal::Final(error.into()),
                })
            }
        }
    }

    /// Closes the connections to the database.
    pub(super) async fn close(self) {
        if let Self::Database { running, .. } = self {
            running.finish().await;
        }
    }
}

fn to_server(
    client: &Client,
    project: Option<&str>,
    origin: &Origin,
    lines: &[u8],
) -> Result<TranscriptCounts, Refusal> {
    let query = serde_urlencoded::to_string(origin).map_err(|error| Refusal::Final(error.into()))?;
    let path = format!("/v1/transcripts?{query}");
    let url = client.url();
    let away = |reason, after: Option<u64>| Refusal::Away { reason, after: after.map(Duration::from_secs) };
    let answer = client
        .post(&path, "application/x-ndjson", project, lines)
        .map_err(|error| away(client.unanswered(&error).to_string(), None))?;
    match answer.status {
        // The project stores nothing of this.
        204 => Ok(TranscriptCounts::default()),
        200..300 => serde_json::from_str(&answer.body)
            .map_err(|error| Refusal::Final(anyhow!("{url} answered something else: {error}"))),
        500 => Err(Refusal::Failed(client.refusal(&answer).to_string())),
        429 | 501.. => Err(away(format!("{url} answered {}", answer.status), answer.retry_after)),
        _ => Err(Refusal::Final(anyhow!("{}", client.refusal(&answer)))),
    }
}
