//! What is known of a coding agent.

use std::path::Path;

use super::entry::Entry;
use super::json::NotAnObject;
use super::known::{Known, LineKind};
use super::tool::ToolPatterns;

/// A coding agent whose transcripts and hooks are supported.
#[derive(Debug)]
pub struct Agent {
    /// The agent's name in paths, parameters and on the command line.
    pub name: &'static str,
    /// The agent's name in sentences.
    pub title: &'static str,
    /// Reads one line of a transcript. The patterns say which tools search.
    pub parse_line: fn(&str, &ToolPatterns) -> Result<Entry, NotAnObject>,
    /// Reads the payload of a hook. Returns none if the text is not one. The patterns say which tools search.
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
    /// The files in which the agent's MCP servers are configured.
    pub servers: Servers,
}

/// The files in which an agent's MCP servers are configured.
#[derive(Debug)]
pub struct Servers {
    /// The folder of the user's file. With an empty name, it is the user's home.
    pub home: Home,
    /// The name of the user's file.
    pub file: &'static str,
    /// The path of a project's file within the project's folder.
    pub of_project: &'static str,
    /// The format of the files.
    pub format: ServersFormat,
}

/// The format of a file that configures MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServersFormat {
    /// JSON, with the servers in the member `mcpServers`.
    Json,
    /// TOML, with the servers in the table `mcp_servers`.
    Toml,
}

/// The folder in which an agent keeps its files.
#[derive(Debug)]
pub struct Home {
    /// The environment variable that names the folder.
    pub variable: &'static str,
    /// The folder in the user's home, if the variable is not set. The folder in a project has the same name.
    pub folder: &'static str,
}

/// Where an agent's transcripts are, and how they are distinguished from those of other agents.
#[derive(Debug)]
pub struct Transcripts {
    /// The folder of transcripts within the agent's home.
    pub folder: &'static str,
    /// The beginning of the names of the agent's transcripts. A file belongs to the agent with the longest matching
    /// prefix.
    pub prefix: &'static str,
}

/// How an agent is made to report what it does.
#[derive(Debug)]
pub struct Hooks {
    /// The file in the agent's home that configures hooks.
    pub settings: &'static str,
    /// The events that the agent is to report.
    pub events: &'static [HookEvent],
    /// The events whose responses the agent passes on to its model, and for which there may be help.
    pub answerable: &'static [&'static str],
    /// How the agent reports an event.
    pub reporting: Reporting,
    /// The time in seconds after which the agent continues without waiting for the hook.
    pub timeout: u8,
    /// What a user must know or do after the installation.
    pub advice: Option<&'static str>,
}

/// An event for which an agent has hooks.
#[derive(Debug)]
pub struct HookEvent {
    /// The name of the event in the agent's settings.
    pub name: &'static str,
    /// Whether the event concerns a tool, so that its hooks can be limited to some tools.
    pub of_tools: bool,
}

impl HookEvent {
    /// An event of a session or turn.
    pub(super) const fn plain(name: &'static str) -> Self {
        Self { name, of_tools: false }
    }

    /// An event that concerns a tool.
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
    /// Returns the path to which the agent's hooks report.
    #[must_use]
    pub fn hook_path(&self) -> String {
        format!("/v1/hooks/{}", self.name)
    }

    /// Returns whether `path` has a name that this agent gives to transcripts.
    pub(super) fn names_so(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(self.transcripts.prefix))
    }
}
