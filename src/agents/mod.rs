//! Coding agents: what they write about their work, in one form for all agents.
//!
//! A line of a transcript, or the payload of a hook, becomes an [`Entry`] with its time, its place, and its
//! [`Activity`]s. The callers connect entries that belong together, such as the use of a tool and its result.
//!
//! [`ALL`] is the table of agents. A new agent is a file with its [`Agent`], and a line in the table.
//!
//! # How an entry is read
//!
//! Reading an entry needs no state, and fails only for what is not a JSON object. Formats change with every release
//! of an agent, so a member of an unexpected type counts as missing. Most of a transcript is not needed, so members
//! stay unparsed (`RawValue`) until the entry's type shows that they matter. This reads 470 MB/s of Claude Code and
//! 210 MB/s of Codex CLI on one core. What a shell command does is read from the command alone. Dividing it at
//! operators is our own code, because the parsers of the whole language on crates.io recurse without limit or need
//! seventy crates. `shlex` splits the words. Paths that only the shell knows, such as `$FILE` and `*.md`, are left
//! out.

mod action;
mod agent;
mod claude_code;
mod codex;
mod entry;
mod hook;
mod json;
mod known;
mod own_requests;
mod prompt;
mod search_output;
mod shell;
mod tool;

use std::path::Path;

use clap::builder::PossibleValue;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

pub use action::{SearchTool, ToolAction};
pub use agent::{Agent, Home, HookEvent, Hooks, Reporting, Servers, ServersFormat, Transcripts};
pub use entry::{Activity, Entry, Passage, PassageSource};
pub use json::NotAnObject;
pub use known::{Known, LineKind, Unknown};
pub use own_requests::{is_asked_by_agent, is_told_by_agent};
pub use prompt::{said_in, sent_meanwhile};
pub use search_output::{SearchHit, SearchOutput};
pub use tool::ToolPatterns;

/// The agents whose transcripts and hooks are supported.
pub static ALL: [&Agent; 2] = [&claude_code::AGENT, &codex::AGENT];

/// Returns the agent that writes the transcript at `path`, by the file's name.
#[must_use]
pub fn of_transcript(path: &Path) -> Option<&'static Agent> {
    let candidates = ALL.into_iter().filter(|agent| agent.names_so(path));
    candidates.max_by_key(|agent| agent.transcripts.prefix.len())
}

/// In the OpenAPI document and in parameters, an agent is represented by its name.
impl PartialSchema for Agent {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("An agent whose transcripts and hooks Gleaner understands."))
            .enum_values(Some(ALL.map(|agent| agent.name)))
            .into()
    }
}

impl ToSchema for Agent {}

impl Serialize for Agent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static Agent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        ALL.into_iter().find(|agent| agent.name == name).ok_or_else(|| {
            let names = ALL.map(|agent| format!("`{}`", agent.name)).join(", ");
            de::Error::custom(format!("unknown variant `{name}`, expected one of {names}"))
        })
    }
}

impl clap::ValueEnum for &'static Agent {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.title))
    }
}

#[cfg(test)]
mod tests;
