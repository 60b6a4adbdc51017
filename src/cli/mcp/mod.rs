//! `gleaner mcp` serves tools for a model on standard input and output, and configures agents to use them.

mod settings;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use rmcp::ServiceExt as _;

use self::settings::Server;
use super::client::expect_address;
use super::door::open;
use super::target::{Missing, Target};
use super::{block_on, files};
use crate::agents::Agent;
use crate::mcp::{self, Place, Tools};
use crate::router;

#[derive(Debug, Args)]
pub(super) struct Mcp {
    #[command(subcommand)]
    command: Option<Command>,
    /// The project that the tools use. The default is the key's project, or `default` without a key.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add this program to an agent's settings as an MCP server. All other settings stay as they are.
    #[command(
        after_help = "The tools are those of --url, or of the server at http://127.0.0.1:8080 (or GLEANER_BIND).

Examples:
  gleaner mcp install claude-code
  gleaner mcp install codex --here --url https://gleaner.example"
    )]
    Install {
        /// The agent.
        agent: &'static Agent,
        /// Change the agent's settings for the current folder instead of the user's settings.
        #[arg(long)]
        here: bool,
    },
    /// Remove this program from an agent's settings.
    #[command(after_help = "Example:
  gleaner mcp uninstall claude-code")]
    Uninstall {
        /// The agent.
        agent: &'static Agent,
        /// Change the agent's settings for the current folder instead of the user's settings.
        #[arg(long)]
        here: bool,
    },
}

impl Mcp {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Some(Command::Install { agent, here }) => {
                install(agent, *here, &self.target.remote.url_or_default())?;
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
            // A client that disconnects before its first message needs no answer.
            let Ok(service) = service else { return Ok(()) };
            service.waiting().await.context("serving tools").map(|_| ())
        };
        let opened = open(&self.target, Missing::Say, self.project.as_deref(), true).await?;
        let end = served(opened.door.clone()).await;
        opened.close().await;
        end
    }
}

/// Returns the session and the folder that the client's environment names, or else the folder in which it has started
/// this program.
fn place() -> Place {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let folder = || env::current_dir().ok().and_then(|folder| folder.to_str().map(str::to_owned));
    Place {
        session: variable("CLAUDE_CODE_SESSION_ID"),
        root: variable("CLAUDE_PROJECT_DIR").or_else(folder),
    }
}

/// Configures an agent to use the tools of the server at `url`, and prints what was done and what a person has to
/// know.
fn install(agent: &Agent, here: bool, url: &str) -> anyhow::Result<()> {
    expect_address(url)?;
    let program = env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?.to_owned();
    change(agent, here, Some(&Server { program, url: url.to_owned() }))?;
    let title = agent.title;
    println!("New sessions of {title} have the tools of {url}.");
    println!(
        "If the server requires a key, {title} passes on GLEANER_KEY. Set that variable where {title} runs."
    );
    Ok(())
}

/// Adds this program as a server to an agent's settings, or removes it.
fn change(agent: &Agent, here: bool, server: Option<&Server>) -> anyhow::Result<()> {
    let path = settings_file(agent, here)?;
    let text = files::read_settings(&path)?;
    let (text, change) =
        settings::change(agent.servers.format, &text, server).with_context(|| files::untouched(&path))?;
    files::write_settings(&path, &text, &[(settings::NAME.to_owned(), change)])
}

/// Returns the file of an agent's settings for MCP servers: the user's, or that of the project in the current folder.
fn settings_file(agent: &Agent, here: bool) -> anyhow::Result<PathBuf> {
    let servers = &agent.servers;
    if here {
        return Ok(servers.of_project.into());
    }
    Ok(files::home(servers.home.variable, servers.home.folder)?.join(servers.file))
}
