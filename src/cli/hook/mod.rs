//! `gleaner hook`: agents told to report what they do, and the command that reports for those that cannot themselves.

mod settings;

use std::io::Read as _;
use std::path::{Path, PathBuf};
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
use crate::searches::transcript::Agent;

/// How long an agent is kept waiting.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Subcommand)]
pub(super) enum Hook {
    /// Have an agent report what it does: adds hooks to its settings, where all else stays as it is.
    Install {
        /// The agent.
        agent: Agent,
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
        agent: Agent,
        /// From the settings of the project in the current folder.
        #[arg(long)]
        project: bool,
    },
    /// Send what an agent gives a hook on standard input to a server; run by the agent. It always succeeds.
    Send {
        /// The agent.
        agent: Agent,
        #[command(flatten)]
        remote: Remote,
    },
}

impl Hook {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Install { agent, project, url } => {
                let groups = agent.groups(url.trim_end_matches('/'))?;
                agent.change(project, &groups)?;
                println!("{}", agent.advice());
            }
            Self::Uninstall { agent, project } => agent.change(project, &[])?,
            Self::Send { agent, remote } => {
                // An agent is not to be kept from its work by what goes wrong here.
                if let Err(error) = agent.send(&remote) {
                    eprintln!("gleaner: {error:#}");
                }
                println!("{{}}");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How each agent is told to report.
impl Agent {
    /// The file of its settings that holds hooks.
    fn file(self, project: bool) -> anyhow::Result<PathBuf> {
        let (variable, folder, file) = match self {
            Self::ClaudeCode => ("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
            Self::Codex => ("CODEX_HOME", ".codex", "hooks.json"),
        };
        if project {
            return Ok(Path::new(folder).join(file));
        }
        Ok(home(variable, folder)?.join(file))
    }

    /// The hooks it is to have.
    fn groups(self, url: &str) -> anyhow::Result<Vec<Group>> {
        let (events, hook): (&[_], _) = match self {
            Self::ClaudeCode => (
                &[
                    ("UserPromptSubmit", false),
                    ("PostToolUse", true),
                    ("PostToolUseFailure", true),
                    ("Stop", false),
                    ("SubagentStop", false),
                    ("SessionEnd", false),
                ],
                request(&format!("{url}/v1/hooks/claude-code")),
            ),
            Self::Codex => (
                &[("UserPromptSubmit", false), ("PostToolUse", true), ("Stop", false), ("SessionEnd", false)],
                command(url)?,
            ),
        };
        let group = |&(event, of_tools): &(&'static str, bool)| Group { event, of_tools, hook: hook.clone() };
        Ok(events.iter().map(group).collect())
    }

    /// Whether a hook is one of ours: it asks for this path or runs this command.
    fn owns(self, hook: &serde_json::Value) -> bool {
        let ends = |member: &str, end: &str| hook[member].as_str().is_some_and(|text| text.ends_with(end));
        let command = |text: &str| text.contains("gleaner") && text.contains(" hook send codex");
        match self {
            Self::ClaudeCode => ends("url", "/v1/hooks/claude-code"),
            Self::Codex => hook["command"].as_str().is_some_and(command),
        }
    }

    /// Gives its settings these hooks, and says what was done.
    fn change(self, project: bool, groups: &[Group]) -> anyhow::Result<()> {
        let path = self.file(project)?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let (text, changes) = settings::change(&text, groups, |hook| self.owns(hook))
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

    /// What else is to be done after hooks were installed.
    fn advice(self) -> &'static str {
        match self {
            Self::ClaudeCode => {
                "Sessions that begin from now on report. If the server wants a key, set GLEANER_KEY where Claude Code runs \
                 and install again."
            }
            Self::Codex => {
                "Codex asks once whether the new hooks are to be trusted. If the server wants a key, set GLEANER_KEY where \
                 Codex runs."
            }
        }
    }

    fn send(self, remote: &Remote) -> anyhow::Result<()> {
        let mut body = Vec::new();
        io::stdin().read_to_end(&mut body).context("reading standard input")?;
        let url = remote.url().unwrap_or(LOCAL);
        let path = format!("/v1/hooks/{}", self.as_str());
        let answer = remote.client(url, PATIENCE)?.post(&path, "application/json", None, &body)?;
        anyhow::ensure!(answer.status < 400, "{url} answered {}: {}", answer.status, answer.body.trim());
        Ok(())
    }
}

/// An agent's own folder: what `variable` says, else `folder` in the user's.
pub(super) fn home(variable: &str, folder: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let home = env::home_dir().filter(|home| !home.as_os_str().is_empty());
    Ok(home.with_context(|| format!("neither HOME nor {variable} is set"))?.join(folder))
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
fn command(url: &str) -> anyhow::Result<CstInputValue> {
    let program = env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    let words = [program, "hook", "send", "codex", "--url", url];
    let line = shlex::try_join(words).context("the path of this program cannot be written for a shell")?;
    Ok(json!({ "type": "command", "command": line, "timeout": 5usize }))
}
