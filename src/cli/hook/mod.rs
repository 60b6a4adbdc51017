//! `gleaner hook`: agents told to report what they do, and the command that reports for those that cannot themselves.

mod settings;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io};

use anyhow::Context as _;
use clap::Subcommand;
use serde::de::IgnoredAny;
use serde_json::json;

use self::settings::{Change, Group};
use super::client::{Presence, Remote, default_url, expect_address, presence_at};
use super::files;
use crate::agents::{Agent, HookEvent, Reporting};

/// How long an agent is kept waiting: with the start of this program, less than a second.
const PATIENCE: Duration = Duration::from_millis(800);

#[derive(Debug, Subcommand)]
pub(super) enum Hook {
    /// Add hooks to an agent's settings so that it reports what it does. All other settings stay as they are.
    #[command(
        after_help = "The agent reports to --url, or to the server at http://127.0.0.1:8080 (or GLEANER_BIND).

Examples:
  gleaner hook install claude-code
  gleaner hook install codex --here --url https://gleaner.example"
    )]
    Install {
        /// The agent.
        agent: &'static Agent,
        /// Change the agent's settings for the current folder instead of the user's settings.
        #[arg(long = "here")]
        project: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Remove Gleaner's hooks from an agent's settings.
    #[command(after_help = "Example:
  gleaner hook uninstall claude-code")]
    Uninstall {
        /// The agent.
        agent: &'static Agent,
        /// Change the agent's settings for the current folder instead of the user's settings.
        #[arg(long = "here")]
        project: bool,
    },
    /// Send a hook's input from standard input to a server. Agents run this command, and it always succeeds.
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
            Self::Install { agent, project, remote } => install(agent, project, &remote.url_or_default())?,
            Self::Uninstall { agent, project } => {
                let path = settings_file(agent, project)?;
                change(agent, &path, &read(&path)?, &[])?;
            }
            Self::Send { agent, remote } => {
                // An error here must not keep the agent from its work.
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

/// Has an agent report to the server at `url`, and prints what was done and what a person has to know.
fn install(agent: &Agent, project: bool, url: &str) -> anyhow::Result<()> {
    expect_address(url)?;
    let path = settings_file(agent, project)?;
    let text = read(&path)?;
    let own = settings::own_hooks(&text, |hook| is_ours(agent, hook)).with_context(|| untouched(&path))?;
    let before = own.into_iter().find(|hook| !hook["headers"]["Authorization"].is_null());
    let text = change(agent, &path, &text, &groups(agent, url, before.as_ref())?)?;
    println!("Sessions of {} that begin from now on report to {url}.", agent.title);
    if let Some(advice) = agent.hooks.advice {
        println!("{advice}");
    }
    println!("{}", about_key(agent, has_key() || before.is_some()));
    if url == default_url() {
        match presence_at(url) {
            Presence::Nobody => println!("No server answers there yet: `gleaner serve` starts one."),
            Presence::Closed if !has_key() => println!("The server there requires a key."),
            _ => {}
        }
    }
    if before.is_some() && !has_key() {
        println!(
            "The hooks keep the Authorization header that they had, although GLEANER_KEY is not set here. Uninstall them first \
             if the server wants no key."
        );
    }
    if serde_json::from_str::<IgnoredAny>(&text).is_err() {
        eprintln!(
            "warning: {} has comments or commas at the end of a list. {} takes plain JSON only, and passes over the whole file \
             without a word until they are gone.",
            path.display(),
            agent.title,
        );
    }
    Ok(())
}

/// Says what a person has to do about the key, which is never written into the settings.
fn about_key(agent: &Agent, sends: bool) -> String {
    let title = agent.title;
    match agent.hooks.reporting {
        Reporting::Request if !sends => {
            "They send no key. If the server requires one, set GLEANER_KEY and install again.".to_owned()
        }
        _ => format!(
            "If the server requires a key, {title} reads it from GLEANER_KEY. Set that variable where {title} runs."
        ),
    }
}

/// The hooks that an agent is to have. `before` is one that it has, with a key.
fn groups(agent: &Agent, url: &str, before: Option<&serde_json::Value>) -> anyhow::Result<Vec<Group>> {
    let mut hook = settings::Hook {
        kind: "command",
        url: None,
        command: None,
        timeout: agent.hooks.timeout,
        headers: None,
        allowed_env_vars: None,
    };
    match agent.hooks.reporting {
        Reporting::Request => {
            (hook.kind, hook.url) = ("http", Some(format!("{url}{}", agent.hook_path())));
            // Without a key there is nothing for the agent to fill in, and an empty key is a wrong one.
            if has_key() {
                hook.headers = Some(json!({ "Authorization": "Bearer $GLEANER_KEY" }));
                hook.allowed_env_vars = Some(json!(["GLEANER_KEY"]));
            } else if let Some(before) = before {
                hook.headers = Some(before["headers"].clone());
                hook.allowed_env_vars = before.get("allowedEnvVars").cloned();
            }
        }
        Reporting::Command => hook.command = Some(command(agent, url)?),
    }
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

/// Whether a key is set that the agent can send.
fn has_key() -> bool {
    env::var_os("GLEANER_KEY").is_some_and(|key| !key.is_empty())
}

/// What a file of settings holds; nothing, if it is not there.
fn read(path: &Path) -> anyhow::Result<String> {
    match files::read_text(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

fn untouched(path: &Path) -> String {
    format!("{} was left as it is", path.display())
}

/// Gives an agent's settings these hooks, prints what was done, and returns the settings as they are now.
fn change(agent: &Agent, path: &Path, text: &str, groups: &[Group]) -> anyhow::Result<String> {
    let (text, changes) =
        settings::change(text, groups, |hook| is_ours(agent, hook)).with_context(|| untouched(path))?;
    let different = changes.iter().any(|(_, change)| *change != Change::Kept);
    if text.is_empty() && different {
        fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    } else if different {
        files::replace(path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("{}:", path.display());
    for (event, change) in &changes {
        println!("  {event}: {change}");
    }
    if !different {
        println!("  nothing to change");
    } else if text.is_empty() {
        println!("  the file held nothing else and was removed");
    }
    Ok(text)
}

/// Sends what standard input holds to the path of an agent's hooks.
fn send(agent: &Agent, remote: &Remote) -> anyhow::Result<()> {
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body).context("reading standard input")?;
    let client = remote.client(&remote.url_or_default(), PATIENCE)?;
    let answer = client.post(&agent.hook_path(), "application/json", None, &body);
    client.accepted(answer).map(|_| ())
}

/// The command line that runs this program for a hook.
fn command(agent: &Agent, url: &str) -> anyhow::Result<String> {
    let program = env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    let words = [program, "hook", "send", agent.name, "--url", url];
    shlex::try_join(words).context("the path of this program cannot be written for a shell")
}
