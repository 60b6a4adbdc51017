//! What is known of a coding agent.

use std::path::Path;

use super::entry::Entry;
use super::json::NotAnObject;
use super::known::{Known, LineKind};
use super::tool::ToolPatterns;

/// A coding agent whose transcripts and hooks are understood.
#[derive(Debug)]
pub struct Agent {
    /// The agent's name in paths, parameters and on the command line.
    pub name: &'static str,
    /// The agent's name in sentences.
    pub title: &'static str,
    /// Reads one line of a transcript. The patterns say which tools search.
    pub parse_line: fn(&str, &ToolPatterns) -> Result<Entry, NotAnObject>,
    /// Reads the payload of a hook; none if the text is not one. The patterns say which tools search.
    pub parse_hook: fn(&str, &ToolPatterns) -> Option<Entry>,
    /// Reads only the kind of a transcript's line, and the version of the agent that wrote it.
    pub kind_of_line: fn(&str) -> LineKind,
    /// The kinds of lines and the versions of the agent that the program was written for.
    pub known: Known,
    /// The folder in which the agent keeps its settings and transcripts.
    pub home: Home,
    /// Where the agent's transcripts are.
    pub transcripts: Transcripts,
    /// How the agent is made to report what it does.
    pub hooks: Hooks,
    /// Where the agent is told which servers of MCP there are.
    pub servers: Servers,
}

/// Where an agent is told which servers of MCP there are.
#[derive(Debug)]
pub struct Servers {
    /// The folder that the user's file is in. With an empty name, it is the user's home itself.
    pub home: Home,
    /// The name of the user's file.
    pub file: &'static str,
    /// The path of a project's file in the folder of the project.
    pub of_project: &'static str,
    /// How the files are written.
    pub format: ServersFormat,
}

/// How a file is written that names servers of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServersFormat {
    /// JSON, with the servers in the member `mcpServers`.
    Json,
    /// TOML, with the servers in the table `mcp_servers`.
    Toml,
}

/// The folder in which an agent keeps what is its own.
#[derive(Debug)]
pub struct Home {
    /// The environment variable that names the folder.
    pub variable: &'static str,
    /// The folder in the user's home, where the variable is not set. The folder of a project has one of the same
    /// name.
    pub folder: &'static str,
}

/// Where an agent's transcripts lie, and how they are told from those of others.
#[derive(Debug)]
pub struct Transcripts {
    /// The folder of transcripts within the agent's home.
    pub folder: &'static str,
    /// How the names of the agent's transcripts begin. The agent with the longest prefix that fits has written the file.
    pub prefix: &'static str,
}

/// How an agent is made to report what it does.
#[derive(Debug)]
pub struct Hooks {
    /// The file of settings within the agent's home that holds hooks.
    pub settings: &'static str,
    /// The events that the agent is to report.
    pub events: &'static [HookEvent],
    /// The events whose answers the agent hands on to its model, of those where there may be something to say.
    pub answerable: &'static [&'static str],
    /// How the agent reports an event.
    pub reporting: Reporting,
    /// How long the agent waits for a hook before it goes on without, in seconds.
    pub timeout: u8,
    /// What else a user who has installed the hooks has to know or do.
    pub advice: Option<&'static str>,
}

/// An event for which an agent has hooks.
#[derive(Debug)]
pub struct HookEvent {
    /// The name of the event in the agent's settings.
    pub name: &'static str,
    /// Whether the event comes with a tool, so that its hooks may be for some tools only.
    pub of_tools: bool,
}

impl HookEvent {
    /// An event of a session or turn.
    pub(super) const fn plain(name: &'static str) -> Self {
        Self { name, of_tools: false }
    }

    /// An event that comes with a tool.
    pub(super) const fn of_tools(name: &'static str) -> Self {
        Self { name, of_tools: true }
    }
}

/// How an agent reports an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reporting {
    /// The agent posts the event itself.
    Request,
    /// The agent runs `gleaner hook send`, which posts the event.
    Command,
}

impl Agent {
    /// The path to which the agent's hooks report.
    #[must_use]
    pub fn hook_path(&self) -> String {
        format!("/v1/hooks/{}", self.name)
    }

    /// Whether `path` is named as this agent names its transcripts.
    pub(super) fn names_so(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(self.transcripts.prefix))
    }
}
