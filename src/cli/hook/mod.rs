//! `gleaner hook`: agents told to report what they do, and the command that reports for those that cannot themselves.

mod settings;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, io};

use anyhow::Context as _;
use clap::Subcommand;
use serde::de::IgnoredAny;
use serde_json::json;

use self::settings::Group;
use super::client::{Presence, Remote, default_url, expect_address, presence_at};
use super::files;
use crate::agents::{Agent, HookEvent, Reporting};

/// How long an agent is kept waiting: with the start of this program, less than a second.
const PATIENCE: Duration = Duration::from_millis(800);

/// What an agent may be told that has not asked.
const SUGGEST: &str = "memories,files,examples";

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
        /// Have the responses to the agent's hooks contain help: what is probably relevant to a prompt, or to a
        /// search without results. The key then needs the scope `read` besides `write`.
        #[arg(long)]
        suggest: bool,
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
    /// Send a hook's input from standard input to a server and print the response. Agents run this command, and it
    /// always succeeds.
    Send {
        /// The agent.
        agent: &'static Agent,
        /// Ask for help that is probably relevant.
        #[arg(long)]
        suggest: bool,
        #[command(flatten)]
        remote: Remote,
    },
}

impl Hook {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Install { agent, project, suggest, remote } => {
                install(agent, project, &remote.url_or_default(), suggest)?;
            }
            Self::Uninstall { agent, project } => {
                let path = settings_file(agent, project)?;
                change(agent, &path, &files::read_settings(&path)?, &[])?;
            }
            Self::Send { agent, suggest, remote } => {
                // An error here must not keep the agent from its work.
                let answer = send(agent, &remote, suggest).unwrap_or_else(|error| {
                    super::words::note(format_args!("gleaner: {error:#}"));
                    "{}".to_owned()
                });
                println!("{}", answer.trim_end());
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

/// Makes an agent report to the server at `url`, and prints what was done and what a person has to know.
fn install(agent: &Agent, project: bool, url: &str, suggest: bool) -> anyhow::Result<()> {
    expect_address(url)?;
    let path = settings_file(agent, project)?;
    let text = files::read_settings(&path)?;
    let own =
        settings::own_hooks(&text, |hook| is_ours(agent, hook)).with_context(|| files::untouched(&path))?;
    let before = own.into_iter().find(|hook| !hook["headers"]["Authorization"].is_null());
    let text = change(agent, &path, &text, &groups(agent, url, suggest, before.as_ref())?)?;
    println!("New sessions of {} report to {url}.", agent.title);
    if suggest {
        println!(
            "After each prompt, and after a search without results, they receive what is likely to help."
        );
    }
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
fn groups(
    agent: &Agent,
    url: &str,
    suggest: bool,
    before: Option<&serde_json::Value>,
) -> anyhow::Result<Vec<Group>> {
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
    let asking = settings::Hook {
        url: hook.url.as_ref().map(|url| format!("{url}?suggest={SUGGEST}")),
        command: hook.command.as_ref().map(|command| format!("{command} --suggest")),
        ..hook.clone()
    };
    let group = |event: &HookEvent| {
        let asks = suggest && agent.hooks.answerable.contains(&event.name);
        let hook = if asks { asking.clone() } else { hook.clone() };
        Group { event: event.name, of_tools: event.of_tools, hook }
    };
    Ok(agent.hooks.events.iter().map(group).collect())
}

/// Whether a hook is one of ours: it posts to the agent's path or runs this program.
fn is_ours(agent: &Agent, hook: &serde_json::Value) -> bool {
    let address = |url: &str| url.split('?').next().is_some_and(|url| url.ends_with(&agent.hook_path()));
    let posts = hook["url"].as_str().is_some_and(address);
    let send = format!(" hook send {}", agent.name);
    let runs = |command: &str| command.contains("gleaner") && command.contains(&send);
    posts || hook["command"].as_str().is_some_and(runs)
}

/// Whether a key is set that the agent can send.
fn has_key() -> bool {
    env::var_os("GLEANER_KEY").is_some_and(|key| !key.is_empty())
}

/// Gives an agent's settings these hooks, prints what was done, and returns the settings as they are now.
fn change(agent: &Agent, path: &Path, text: &str, groups: &[Group]) -> anyhow::Result<String> {
    let (text, changes) = settings::change(text, groups, |hook| is_ours(agent, hook))
        .with_context(|| files::untouched(path))?;
    files::write_settings(path, &text, &changes)?;
    Ok(text)
}

/// Sends what standard input holds to the path of an agent's hooks, and returns the answer.
fn send(agent: &Agent, remote: &Remote, suggest: bool) -> anyhow::Result<String> {
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body).context("reading standard input")?;
    let client = remote.client(&remote.url_or_default(), PATIENCE)?;
    let query = if suggest { format!("?suggest={SUGGEST}") } else { String::new() };
    let answer = client.post(&format!("{}{query}", agent.hook_path()), "application/json", None, &body);
    client.accepted(answer).map(|answer| answer.body)
}

/// The command line that runs this program for a hook.
fn command(agent: &Agent, url: &str) -> anyhow::Result<String> {
    let program = env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    let words = [program, "hook", "send", agent.name, "--url", url];
    shlex::try_join(words).context("the path of this program cannot be written for a shell")
}
