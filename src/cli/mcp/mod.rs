//! `gleaner mcp`: tools for a model on standard input and output, and agents told to use them.

mod settings;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use clap::{Args, Subcommand};
use rmcp::ServiceExt as _;

use self::settings::Server;
use super::client::{Client, expect_address};
use super::target::{Found, Local, Missing, Target};
use super::{block_on, defaults, files};
use crate::agents::Agent;
use crate::auth::keyring::PROJECT;
use crate::mcp::{self, Door, Place, Tools};
use crate::router;
use crate::server::{Running, Settings};

/// The most connections for reading from the database.
const CONNECTIONS: u32 = 4;

#[derive(Debug, Args)]
pub(super) struct Mcp {
    #[command(subcommand)]
    command: Option<Command>,
    /// The project that the tools are about. The default is that of the key, or `default` without a key.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Name this program in an agent's settings as a server of tools. Everything else there stays as it is.
    #[command(
        after_help = "The tools are those of --url, or of the server at http://127.0.0.1:8080 (or GLEANER_BIND).

Examples:
  gleaner mcp install claude-code
  gleaner mcp install codex --here --url https://gleaner.example"
    )]
    Install {
        /// The agent.
        agent: &'static Agent,
        /// Change the agent's settings for the current folder, not those of the user.
        #[arg(long)]
        here: bool,
    },
    /// Take this program out of an agent's settings again.
    #[command(after_help = "Example:
  gleaner mcp uninstall claude-code")]
    Uninstall {
        /// The agent.
        agent: &'static Agent,
        /// Change the agent's settings for the current folder, not those of the user.
        #[arg(long)]
        here: bool,
    },
}

impl Mcp {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Some(Command::Install { agent, here }) => {
                install(agent, *here, &self.target.remote.url_or_default())?
            }
            Some(Command::Uninstall { agent, here }) => {
                change(agent, *here, None)?;
            }
            None => block_on(self.serve())?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Serves until standard input ends.
    async fn serve(self) -> anyhow::Result<()> {
        let tools = Arc::new(Tools::of(&router::openapi()));
        let served = async |door| {
            let service = mcp::Mcp::new(tools, door, place()).serve(rmcp::transport::stdio()).await;
            // A client that goes before it has said anything has nothing to be told.
            let Ok(service) = service else { return Ok(()) };
            service.waiting().await.context("serving tools").map(|_| ())
        };
        match self.target.find(Missing::Say).await? {
            Found::Server(client) => served(to_server(client, self.project)).await,
            Found::Database(local) => {
                let Local { options, .. } = &*local;
                let settings = Settings {
                    connections: CONNECTIONS,
                    defaults: defaults()?,
                    trusts: true,
                    ..Settings::default()
                };
                let running = Running::start(options, settings);
                let end = served(to_service(&running, self.project)?).await;
                running.finish().await;
                end
            }
        }
    }
}

/// Where the client works: what its environment says, and the folder in which it has started this program.
fn place() -> Place {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let folder = || env::current_dir().ok().and_then(|folder| folder.to_str().map(str::to_owned));
    Place {
        session: variable("CLAUDE_CODE_SESSION_ID"),
        root: variable("CLAUDE_PROJECT_DIR").or_else(folder),
    }
}

/// Passes calls on to a server.
fn to_server(client: Client, project: Option<String>) -> Door {
    Door::new(move |request| {
        let (client, project) = (client.clone(), project.clone());
        let pass = move || {
            let path = request.uri().to_string();
            let answer = client.pass(request.method().clone(), &path, project.as_deref(), request.body());
            let answer = answer.map_err(|error| client.unanswered(&error))?;
            Ok(Response::builder().status(answer.status).body(Bytes::from(answer.body))?)
        };
        Box::pin(async move { tokio::task::spawn_blocking(pass).await? })
    })
}

/// Passes calls on to the service in this process.
fn to_service(running: &Running, project: Option<String>) -> anyhow::Result<Door> {
    let project =
        project.map(|name| HeaderValue::from_str(&name)).transpose().context("the name of the project")?;
    Ok(Door::of(router::router(running.app.clone())).with(move |request| {
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        if let Some(project) = &project {
            headers.insert(PROJECT, project.clone());
        }
    }))
}

/// Has an agent use the tools of the server at `url`, and prints what was done and what a person has to know.
fn install(agent: &Agent, here: bool, url: &str) -> anyhow::Result<()> {
    expect_address(url)?;
    let program = env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?.to_owned();
    change(agent, here, Some(&Server { program, url: url.to_owned() }))?;
    let title = agent.title;
    println!("Sessions of {title} that begin from now on have the tools of {url}.");
    println!("If the server wants a key, {title} hands on GLEANER_KEY: set that where {title} runs.");
    Ok(())
}

/// Names this program as a server in an agent's settings, or takes it out of them.
fn change(agent: &Agent, here: bool, server: Option<&Server>) -> anyhow::Result<()> {
    let path = settings_file(agent, here)?;
    let text = files::read_settings(&path)?;
    let (text, change) =
        settings::change(agent.servers.format, &text, server).with_context(|| files::untouched(&path))?;
    files::write_settings(&path, &text, &[(settings::NAME.to_owned(), change)])
}

/// The file in which an agent finds its servers: the user's, or that of the project in the current folder.
fn settings_file(agent: &Agent, here: bool) -> anyhow::Result<PathBuf> {
    let servers = &agent.servers;
    if here {
        return Ok(servers.of_project.into());
    }
    Ok(files::home(servers.home.variable, servers.home.folder)?.join(servers.file))
}
