//! `gleaner hook`: agents told to report what they do, and the command that reports for those that cannot themselves.

mod settings;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io};

use anyhow::Context as _;
use clap::Subcommand;
use jsonc_parser::cst::CstInputValue;
use jsonc_parser::json;

use self::settings::{Change, Group};
use super::client::{LOCAL, Remote};
use super::files;
use crate::agents::{Agent, HookEvent, Reporting};

/// How long an agent is kept waiting.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Subcommand)]
pub(super) enum Hook {
    /// Have an agent report what it does: adds hooks to its settings, where all else stays as it is.
    Install {
        /// The agent.
        agent: &'static Agent,
        /// Only in this folder: in the settings of the project in the current folder, not in the user's.
        #[arg(long)]
        project: bool,
        /// Address of the server to report to.
        #[arg(long, env = "GLEANER_URL", default_value = LOCAL, value_name = "URL")]
        url: String,
    },
    /// Take the hooks out of an agent's settings again.
    Uninstall {
        /// The agent.
        agent: &'static Agent,
        /// From the settings of the project in the current folder.
        #[arg(long)]
        project: bool,
    },
    /// Send what an agent gives a hook on standard input to a server; run by the agent. It always succeeds.
    Send {
        /// The agent.
        agent: &'static Agent,
        #[command(flatten)]
        remote: Remote,
    },
}

impl Hook {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Install { agent, project, url } => {
                change(agent, project, &groups(agent, url.trim_end_matches('/'))?)?;
                println!("{}", agent.hooks.advice);
            }
            Self::Uninstall { agent, project } => change(agent, project, &[])?,
            Self::Send { agent, remote } => {
                // An agent is not to be kept from its work by what goes wrong here.
                if let Err(error) = send(agent, &remote) {
                    eprintln!("gleaner: {error:#}");
                }
                println!("{{}}");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The file of an agent's settings that holds hooks: the user's, or that of the project in the current folder.
fn settings_file(agent: &Agent, project: bool) -> anyhow::Result<PathBuf> {
    let home =
        if project { agent.home.folder.into() } else { files::home(agent.home.variable, agent.home.folder)? };
    Ok(home.join(agent.hooks.settings))
}

/// The hooks that an agent is to have.
fn groups(agent: &Agent, url: &str) -> anyhow::Result<Vec<Group>> {
    let hook = match agent.hooks.reporting {
        Reporting::Request => request(&format!("{url}{}", agent.hook_path())),
        Reporting::Command => command(agent, url)?,
    };
    let group = |event: &HookEvent| Group { event: event.name, of_tools: event.of_tools, hook: hook.clone() };
    Ok(agent.hooks.events.iter().map(group).collect())
}

/// Whether a hook is one of ours: it posts to the agent's path or runs this program.
fn is_ours(agent: &Agent, hook: &serde_json::Value) -> bool {
    let posts = hook["url"].as_str().is_some_and(|url| url.ends_with(&agent.hook_path()));
    let send = format!(" hook send {}", agent.name);
    let runs = |command: &str| command.contains("gleaner") && command.contains(&send);
    posts || hook["command"].as_str().is_some_and(runs)
}

/// Gives an agent's settings these hooks, and prints what was done.
fn change(agent: &Agent, project: bool, groups: &[Group]) -> anyhow::Result<()> {
    let path = settings_file(agent, project)?;
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let (text, changes) = settings::change(&text, groups, |hook| is_ours(agent, hook))
        .with_context(|| format!("{} was left as it is", path.display()))?;
    let different = changes.iter().any(|(_, change)| *change != Change::Kept);
    if different {
        files::replace(&path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("{}:", path.display());
    for (event, change) in &changes {
        println!("  {event}: {change}");
    }
    if !different {
        println!("  nothing was to be done");
    }
    Ok(())
}

/// Sends what standard input holds to the path of an agent's hooks.
fn send(agent: &Agent, remote: &Remote) -> anyhow::Result<()> {
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body).context("reading standard input")?;
    let url = remote.url().unwrap_or(LOCAL);
    let answer = remote.client(url, PATIENCE)?.post(&agent.hook_path(), "application/json", None, &body)?;
    anyhow::ensure!(answer.status < 400, "{url} answered {}: {}", answer.status, answer.body.trim());
    Ok(())
}

/// A hook that the agent itself posts.
fn request(url: &str) -> CstInputValue {
    let timeout = 3usize;
    // Without a key there is nothing for the agent to fill in, and an empty key is a wrong one.
    if env::var_os("GLEANER_KEY").is_none_or(|key| key.is_empty()) {
        return json!({ "type": "http", "url": url, "timeout": timeout });
    }
    json!({
        "type": "http", "url": url, "timeout": timeout,
        "headers": { "Authorization": "Bearer $GLEANER_KEY" }, "allowedEnvVars": ["GLEANER_KEY"],
    })
}

/// A hook that runs this program.
fn command(agent: &Agent, url: &str) -> anyhow::Result<CstInputValue> {
    let program = env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    let words = [program, "hook", "send", agent.name, "--url", url];
    let line = shlex::try_join(words).context("the path of this program cannot be written for a shell")?;
    Ok(json!({ "type": "command", "command": line, "timeout": 5usize }))
}
