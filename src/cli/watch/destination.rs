//! Where lines are sent: a server, or the database itself.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use sqlx::postgres::PgConnectOptions;

use crate::cli::client::Client;

/// How long an answer is waited for.
pub(super) const PATIENCE: Duration = Duration::from_mins(5);

/// An agent that writes transcripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    ClaudeCode,
    Codex,
}

impl Agent {
    fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
        }
    }
}

/// A transcript as the destination knows it.
#[derive(Debug, Clone)]
pub(super) struct Transcript {
    pub(super) agent: Agent,
    pub(super) source: String,
}

/// What became of lines.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) duplicates: u64,
    pub(super) bad_lines: u64,
    pub(super) tool_uses: u64,
    pub(super) human_turns: u64,
    pub(super) searches_started: u64,
    pub(super) searches_resolved: u64,
    pub(super) associations_created: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: &Self) {
        self.lines += more.lines;
        self.duplicates += more.duplicates;
        self.bad_lines += more.bad_lines;
        self.tool_uses += more.tool_uses;
        self.human_turns += more.human_turns;
        self.searches_started += more.searches_started;
        self.searches_resolved += more.searches_resolved;
        self.associations_created += more.associations_created;
    }
}

/// Why lines were not taken.
pub(super) enum Refusal {
    /// For now: nobody answers, or not in time. To be tried again, `after` so long if that was said.
    Away { reason: String, after: Option<Duration> },
    /// For good.
    Final(anyhow::Error),
}

/// Where lines are sent.
pub(super) enum Destination {
    Server { client: Client, url: String, project: Option<String> },
}

impl Destination {
    #[expect(clippy::unused_async, reason = "not yet")]
    pub(super) async fn database(_: &PgConnectOptions, _: Option<&str>) -> anyhow::Result<Self> {
        anyhow::bail!("give --url")
    }

    /// What tells this destination from others.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Server { url, project: None, .. } => url.clone(),
            Self::Server { url, project: Some(project), .. } => format!("{project} at {url}"),
        }
    }

    /// Sends lines; what became of them, once they are kept.
    pub(super) async fn send(
        &self,
        transcript: &Transcript,
        learn: bool,
        lines: Bytes,
    ) -> Result<Counts, Refusal> {
        match self {
            Self::Server { client, url, project } => {
                let path = form_urlencoded::Serializer::new("/v1/transcripts?".to_owned())
                    .append_pair("agent", transcript.agent.name())
                    .append_pair("source", &transcript.source)
                    .extend_pairs((!learn).then_some(("learn", "false")))
                    .finish();
                let (client, url, project) = (client.clone(), url.clone(), project.clone());
                let post = move || server(&client, &url, &path, project.as_deref(), &lines);
                let sent = tokio::task::spawn_blocking(post).await;
                sent.map_err(|error| Refusal::Final(error.into()))?
            }
        }
    }

    /// Lets go of the database.
    #[expect(clippy::unused_async, reason = "not yet")]
    pub(super) async fn close(self) {}
}

fn server(
    client: &Client,
    url: &str,
    path: &str,
    project: Option<&str>,
    lines: &[u8],
) -> Result<Counts, Refusal> {
    let away =
        |reason: String, after: Option<u64>| Refusal::Away { reason, after: after.map(Duration::from_secs) };
    let answer = client
        .post(path, "application/x-ndjson", project, lines)
        .map_err(|error| away(format!("{url} does not answer: {error}"), None))?;
    match answer.status {
        200..300 => serde_json::from_str(&answer.body)
            .map_err(|error| Refusal::Final(anyhow::anyhow!("{url} answered something else: {error}"))),
        429 | 500.. => Err(away(format!("{url} answered {}", answer.status), answer.retry_after)),
        status => Err(Refusal::Final(anyhow::anyhow!("{url} answered {status}: {}", answer.body.trim()))),
    }
}
