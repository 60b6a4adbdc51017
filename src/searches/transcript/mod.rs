//! What coding agents write about their work, read as one kind of event whatever the agent.
//!
//! A line of a transcript, or the payload of a hook, becomes an [`Entry`]: where and when, and the [`Event`]s in it. Reading
//! knows no state: each line is read by itself, and what belongs together (a use and its result, a session and its
//! folder) is put together by whoever keeps the entries.

mod claude_code;
mod codex;
mod found;
mod hook;
mod json;
mod tool;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::Timestamp;

/// What one line of a transcript, or one hook, says.
///
/// An entry without events still shows that the agent was at work at that time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// When it was written; hooks do not say.
    pub at: Option<Timestamp>,
    /// The agent's session. None: that of the entry before it in the same source.
    pub session: Option<String>,
    /// The subagent at work; none for the main one.
    pub agent: Option<String>,
    /// The turn, where the agent names its turns. None: unknown, or that of the entry before it.
    pub turn: Option<String>,
    /// The folder the agent works in. None: that of the entry before it.
    pub root: Option<String>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A person says something: the turn before ends, another begins.
    Prompt,
    /// The agent uses a tool, which does so much; other uses (no action) are told as well, to be counted.
    ToolUse {
        /// By which the result refers to it.
        id: Option<String>,
        /// What it does, in order; often nothing that concerns searching.
        actions: Vec<Action>,
    },
    /// A tool has answered.
    ToolResult {
        /// The use it answers.
        id: Option<String>,
        /// Whether it worked. A search that found nothing did.
        ok: bool,
        /// What it found, where it can be told: of use if it answers a search.
        found: Option<Found>,
    },
    /// The agent is done with what it was asked, or was stopped.
    TurnEnd,
    /// The agent's session is over.
    SessionEnd,
}

impl Event {
    /// A result. That a shell's search found nothing is told as an error, but is none.
    fn answer(id: Option<String>, ok: bool, found: Option<Found>) -> Self {
        let nothing = found.as_ref().is_some_and(Found::is_empty);
        Self::ToolResult { id, ok: ok || nothing, found }
    }
}

/// What a use of a tool does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Looks for something.
    Search {
        /// With what.
        tool: SearchTool,
        /// For what: the words of a question, a pattern, or a pattern of file names.
        query: String,
        /// In which file or folder.
        path: Option<String>,
    },
    /// Reads a file.
    Read {
        /// As the agent wrote it: absolute, or relative to the folder it works in.
        path: String,
    },
    /// Writes or changes a file.
    Edit {
        /// As the agent wrote it.
        path: String,
    },
}

/// What is searched with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchTool {
    /// One of the search tools of the settings: it ranks what it finds.
    Index,
    /// Looks through contents: Grep, `rg`, `grep`, `git grep`.
    Grep,
    /// Looks through names: Glob, `find`, `fd`.
    Glob,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The best score, where results have one.
    pub best_score: Option<f64>,
    /// How many results there are, where that is told.
    pub count: Option<u64>,
    /// The results that name a file.
    pub results: Vec<Hit>,
}

impl Found {
    /// Whether the search came back with nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == Some(0)
    }
}

/// A file that a search offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// As the search wrote it.
    pub path: String,
    /// How well it fits, where that is told.
    pub score: Option<f64>,
}

/// An agent whose transcripts and hooks are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Agent {
    /// Claude Code.
    ClaudeCode,
    /// Codex CLI.
    Codex,
}

impl Agent {
    /// As stored and sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
        }
    }
}

/// A line that is no line of a transcript: not JSON, cut off, or not an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a line of a transcript")]
pub struct BadLine;

/// Which tools search: names, in which `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPatterns(Vec<String>);

impl ToolPatterns {
    /// Tools whose name fits one of `patterns`.
    #[must_use]
    pub fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        Self(patterns.into_iter().collect())
    }

    /// Whether the tool called `name` searches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern, name))
    }
}

impl Default for ToolPatterns {
    /// That of the feedback loop's first user, and whatever a server of tools calls a search.
    fn default() -> Self {
        Self::new(["mcp__ultrasync__jit_search", "mcp__*search*"].map(str::to_owned))
    }
}

/// Whether `name` is what `pattern` says, with any characters where it has a `*`.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        match name.split_once(part) {
            Some((_, after)) => name = after,
            None => return false,
        }
    }
    name.ends_with(tail)
}

/// Reads one line of a transcript. `tools` says which tools search.
pub fn parse(agent: Agent, line: &str, tools: &ToolPatterns) -> Result<Entry, BadLine> {
    match agent {
        Agent::ClaudeCode => claude_code::parse(line, tools),
        Agent::Codex => codex::parse(line, tools),
    }
}

/// Reads a hook's payload. None: it is not one.
#[must_use]
pub fn parse_hook(agent: Agent, body: &str, tools: &ToolPatterns) -> Option<Entry> {
    hook::parse(agent, body, tools)
}

#[cfg(test)]
mod tests;
