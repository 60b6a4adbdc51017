//! The client by which the program's commands reach a running server.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fmt};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use ureq::Body;
use ureq::config::ConfigBuilder;
use ureq::http::{Method, Request, Response};
use ureq::typestate::AgentScope;

use super::words;
use crate::auth::keyring::PROJECT;
use crate::config::{self, secret};
use crate::error::Problem;

/// How long an answer is waited for, unless a command says otherwise.
pub(super) const PATIENCE: Duration = Duration::from_mins(5);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How many characters are shown of a refusal that is not Gleaner's, which may be a page of HTML.
const QUOTED: usize = 200;
/// How long a server on this machine may take to say that it is there.
const PROBE: Duration = Duration::from_secs(1);

/// The server that a command talks to, and the key for it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Remote {
    /// The address of the server, such as `https://gleaner.example`.
    #[arg(long, env = "GLEANER_URL", global = true, value_name = "URL")]
    url: Option<String>,
    /// The API key for the server.
    #[arg(long, env = "GLEANER_KEY", hide_env_values = true, global = true, value_name = "KEY")]
    key: Option<String>,
    /// The file that contains the API key.
    #[arg(long, env = "GLEANER_KEY_FILE", global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl Remote {
    /// Returns the address without a slash at its end. Returns none if it was not given or is empty.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref().map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty())
    }

    /// Returns the address that was given, or else the one that a server on this machine has.
    pub(super) fn url_or_default(&self) -> String {
        self.url().map_or_else(default_url, ToOwned::to_owned)
    }

    /// Returns the key, given directly or in a file.
    pub(super) fn key(&self) -> anyhow::Result<Option<String>> {
        secret(self.key.as_deref(), self.key_file.as_deref())
    }

    /// Makes a client of the server at `url`. It waits `patience` for each response, however long the body of
    /// that takes.
    pub(super) fn client(&self, url: &str, patience: Duration) -> anyhow::Result<Client> {
        expect_address(url)?;
        let mut settings = config(patience);
        if url == default_url() {
            settings = settings.proxy(None);
        }
        Ok(Client { agent: settings.build().into(), url: url.to_owned(), key: self.key()? })
    }
}

/// Checks that `url` can be the address of a server.
pub(super) fn expect_address(url: &str) -> anyhow::Result<()> {
    if ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(());
    }
    bail!("{} is not the address of a server; an address begins with http:// or https://", shown(url))
}

/// Returns an address as messages show it: without a user and a password.
fn shown(url: &str) -> Cow<'_, str> {
    let server = url.find("://").map_or(0, |scheme| scheme + "://".len());
    let end = url[server..].find(['/', '?', '#']).map_or(url.len(), |path| server + path);
    match url[server..end].rfind('@') {
        Some(at) => [&url[..server], &url[server + at + 1..]].concat().into(),
        None => url.into(),
    }
}

/// Returns the address of a server on this machine: where `serve` listens with this environment.
pub(super) fn default_url() -> String {
    let address = env::var("GLEANER_BIND").ok().and_then(|text| text.parse().ok());
    format!("http://{}", reachable(address.unwrap_or(config::ADDRESS)))
}

/// Returns the address by which this machine reaches a server that listens on `bind`. An unspecified address
/// (0.0.0.0) is reached on loopback.
pub(super) fn reachable(bind: SocketAddr) -> SocketAddr {
    let ip = if bind.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { bind.ip() };
    SocketAddr::new(ip, bind.port())
}

/// Asks whether a server is at `url`, with no key.
pub(super) fn presence_at(url: &str) -> Presence {
    Client { agent: config(PROBE).build().into(), url: url.to_owned(), key: None }.presence()
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
    /// How many characters of the request the server had to replace.
    pub(super) replaced: usize,
    /// The body.
    pub(super) body: String,
}

/// Whether a server answers, and whether it takes the key, or needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Nothing answers, or something else than Gleaner.
    Nobody,
    /// A server answers that wants another key, or any.
    Closed,
    /// A server answers that takes requests like this client's.
    Open,
}

impl Client {
    /// Returns the server's address, for messages.
    pub(super) fn url(&self) -> Cow<'_, str> {
        shown(&self.url)
    }

    /// Sends a request without a body and reads the whole response.
    pub(super) fn call(
        &self,
        method: Method,
        path: &str,
        project: Option<&str>,
    ) -> Result<Answer, ureq::Error> {
        Answer::read(self.agent.run(self.request(method, path, project).body(())?)?)
    }

    /// Passes a request of any method on, with a JSON body unless that is empty, and reads the whole response.
    pub(super) fn pass(
        &self,
        method: Method,
        path: &str,
        project: Option<&str>,
        body: &[u8],
    ) -> Result<Answer, ureq::Error> {
        if body.is_empty() {
            return self.call(method, path, project);
        }
        let request = self.request(method, path, project).header("content-type", "application/json");
        Answer::read(self.agent.run(request.body(body)?)?)
    }

    /// Gets `path`. The response's body is still to be read, and may be refused like any other.
    pub(super) fn stream(&self, path: &str, project: Option<&str>) -> Result<Response<Body>, ureq::Error> {
        self.agent.run(self.request(Method::GET, path, project).body(())?)
    }

    /// Gets `path` from a byte on, as [`Client::stream`] does.
    pub(super) fn stream_from(
        &self,
        path: &str,
        project: Option<&str>,
        from: u64,
    ) -> Result<Response<Body>, ureq::Error> {
        let request = self.request(Method::GET, path, project).header("range", format!("bytes={from}-"));
        self.agent.run(request.body(())?)
    }

    /// Posts `body` to `path`.
    pub(super) fn post(
        &self,
        path: &str,
        media_type: &str,
        project: Option<&str>,
        body: &[u8],
    ) -> Result<Answer, ureq::Error> {
        let request = self.request(Method::POST, path, project).header("content-type", media_type);
        Answer::read(self.agent.run(request.body(body)?)?)
    }

    fn request(&self, method: Method, path: &str, project: Option<&str>) -> ureq::http::request::Builder {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if let Some(project) = project {
            request = request.header(PROJECT, project);
        }
        request
    }

    /// Asks whether a server is there. It is not waited for.
    pub(super) fn presence(&self) -> Presence {
        let agent = ureq::Agent::from(config(PROBE).timeout_global(Some(PROBE)).proxy(None).build());
        let client = Self { agent, ..self.clone() };
        match client.call(Method::GET, "/version", None) {
            Ok(answer) if answer.status == 200 && answer.body.contains("\"gleaner\"") => {}
            _ => return Presence::Nobody,
        }
        match client.call(Method::GET, "/v1/projects/default", None) {
            Ok(answer) if answer.status == 401 => Presence::Closed,
            _ => Presence::Open,
        }
    }

    /// Says in words that a request could not be sent or its response not be read.
    pub(super) fn unanswered(&self, error: &ureq::Error) -> anyhow::Error {
        let reason = match error {
            ureq::Error::Io(error) => words::without_number(&error.to_string()),
            ureq::Error::HostNotFound => "the host name is unknown".to_owned(),
            ureq::Error::Timeout(_) => "the answer took too long".to_owned(),
            other => words::without_number(&other.to_string()),
        };
        // What rustls calls an answer that is no TLS.
        if reason.contains("InvalidContentType") {
            let plain = self.url().replacen("https://", "http://", 1);
            return anyhow::anyhow!("{} does not speak TLS; is its address {plain}?", self.url());
        }
        anyhow::anyhow!("{} does not answer: {reason}", self.url())
    }

    /// Returns the body of a response that is no refusal, and otherwise what the server said about it.
    pub(super) fn accepted(&self, answer: Result<Answer, ureq::Error>) -> anyhow::Result<Answer> {
        let answer = answer.map_err(|error| self.unanswered(&error))?;
        if answer.status < 400 {
            return Ok(answer);
        }
        bail!("{}", self.refusal(&answer))
    }

    /// Says in words why the server refused a request.
    pub(super) fn refusal(&self, answer: &Answer) -> impl fmt::Display {
        let said = match serde_json::from_str::<Problem>(&answer.body) {
            Ok(problem) if problem.errors.is_empty() => format!(": {}", problem.detail),
            Ok(problem) => format!(": {}", words::fields(&problem.errors)),
            Err(_) => {
                let beginning: String = answer.body.trim().chars().take(QUOTED).collect();
                format!(", which is not a response of Gleaner; check the address: {beginning}")
            }
        };
        let advice = match (answer.status, &self.key) {
            (401, None) => "; give one with --key, --key-file or GLEANER_KEY",
            _ => "",
        };
        format!("{} answered {}{said}{advice}", self.url(), answer.status)
    }

    /// Reads a response's body as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self, answer: &Answer) -> anyhow::Result<T> {
        serde_json::from_str(&answer.body)
            .with_context(|| format!("{} did not answer as Gleaner does", self.url()))
    }
}

impl Answer {
    /// Reads a response to its end.
    pub(super) fn read(mut response: Response<Body>) -> Result<Self, ureq::Error> {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| header(name).and_then(|text| text.parse().ok());
        let (retry_after, replaced) = (number("retry-after"), number("gleaner-replaced"));
        let status = response.status().as_u16();
        let body = response.body_mut().read_to_string()?;
        let replaced = replaced.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        Ok(Self { status, retry_after, replaced, body })
    }
}

/// Gets `path` of a server on this machine, which answers to `localhost` also while it is open. No proxy is asked.
pub(super) fn get_local(address: SocketAddr, path: &str, patience: Duration) -> Result<Answer, ureq::Error> {
    let agent = ureq::Agent::from(config(patience).timeout_global(Some(patience)).proxy(None).build());
    Answer::read(agent.get(format!("http://{address}{path}")).header("host", "localhost").call()?)
}

/// A client's settings: a status is an answer like any other.
fn config(patience: Duration) -> ConfigBuilder<AgentScope> {
    ureq::Agent::config_builder()
        .timeout_recv_response(Some(patience))
        .timeout_connect(Some(patience.min(CONNECT)))
        .http_status_as_error(false)
        .user_agent(concat!("gleaner/", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_a_user_and_a_password() {
        for (url, expected) in [
            ("https://ann:k9@x.io:8080/a@b", "https://x.io:8080/a@b"),
            ("http://a@b:c@x.io", "http://x.io"),
            ("ann:k9@x.io", "x.io"),
            ("http://127.0.0.1:8080?a@b", "http://127.0.0.1:8080?a@b"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
