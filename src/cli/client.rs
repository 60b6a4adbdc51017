//! The client by which the program's commands reach a running server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ureq::Body;
use ureq::config::ConfigBuilder;
use ureq::http::Response;
use ureq::typestate::AgentScope;

use crate::auth::keyring::PROJECT;
use crate::config::secret;

/// The address of a server if none is given, which is where `serve` listens.
pub(super) const LOCAL: &str = "http://127.0.0.1:8080";

/// The server that a command uses, and the key for it.
#[derive(Debug, Clone, Args)]
pub(super) struct Remote {
    /// Address of the server.
    #[arg(long, env = "GLEANER_URL", value_name = "URL")]
    pub(super) url: Option<String>,
    /// API key for the server.
    #[arg(long, env = "GLEANER_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<String>,
    /// File that holds the API key.
    #[arg(long, env = "GLEANER_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl Remote {
    /// Returns the address without a slash at its end. Returns none if it was not given or is empty.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref().map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty())
    }

    /// Makes a client of the server at `url`. It waits `patience` for each response.
    pub(super) fn client(&self, url: &str, patience: Duration) -> anyhow::Result<Client> {
        let key = secret(self.key.as_deref(), self.key_file.as_deref())?;
        Ok(Client { agent: config(patience).build().into(), url: url.to_owned(), key })
    }
}

/// A blocking client of a server. Clones share connections.
#[derive(Debug, Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    key: Option<String>,
}

/// A server's response.
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) status: u16,
    /// When to try again, in seconds, if the server says so.
    pub(super) retry_after: Option<u64>,
    /// The body.
    pub(super) body: String,
}

impl Client {
    /// Returns the server's address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Posts `body` to `path`.
    pub(super) fn post(
        &self,
        path: &str,
        media_type: &str,
        project: Option<&str>,
        body: &[u8],
    ) -> Result<Answer, ureq::Error> {
        let mut request = self.agent.post(format!("{}{path}", self.url)).content_type(media_type);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if let Some(project) = project {
            request = request.header(PROJECT, project);
        }
        Answer::read(request.send(body)?)
    }
}

impl Answer {
    fn read(mut response: Response<Body>) -> Result<Self, ureq::Error> {
        let retry_after =
            response.headers().get("retry-after").and_then(|after| after.to_str().ok()?.parse().ok());
        let status = response.status().as_u16();
        Ok(Self { status, retry_after, body: response.body_mut().read_to_string()? })
    }
}

/// Gets `path` of a server on this machine, which answers to `localhost` also while it is open. No proxy is asked.
pub(super) fn get_local(address: SocketAddr, path: &str, patience: Duration) -> Result<Answer, ureq::Error> {
    let agent = ureq::Agent::from(config(patience).proxy(None).build());
    Answer::read(agent.get(format!("http://{address}{path}")).header("host", "localhost").call()?)
}

/// A client's settings: a status is an answer like any other.
fn config(patience: Duration) -> ConfigBuilder<AgentScope> {
    ureq::Agent::config_builder()
        .timeout_global(Some(patience))
        .timeout_connect(Some(patience.min(Duration::from_secs(10))))
        .http_status_as_error(false)
        .user_agent(concat!("gleaner/", env!("CARGO_PKG_VERSION")))
}
