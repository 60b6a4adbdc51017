//! What agents report, in one form for all of them.

use chrono::TimeDelta;

use super::action::ToolAction;
use super::search_output::SearchOutput;
use crate::types::Timestamp;

/// What one line of a transcript, or one hook, says.
///
/// An entry without activities still shows that the agent was at work at that time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// When the entry was written; hooks do not say.
    pub at: Option<Timestamp>,
    /// The agent session. Without one, the entry belongs to the session of the previous entry of the same source.
    pub session: Option<String>,
    /// The subagent at work; none for the main agent.
    pub agent: Option<String>,
    /// The turn, where the agent names its turns. Without one, it is unknown, or that of the entry before.
    pub turn: Option<String>,
    /// The folder that the agent works in. Without one, it is that of the entry before.
    pub root: Option<String>,
    /// How long the tool ran that has just answered, if the agent says so.
    pub lasted: Option<TimeDelta>,
    /// What happened, in order.
    pub activities: Vec<Activity>,
    /// What tools have answered, and what the agent has written to files.
    pub passages: Vec<Passage>,
    /// What a person has said, if the entry is a prompt with a text.
    pub prompt: Option<String>,
    /// The name of the hook's event, if the entry is one of a hook.
    pub event: Option<String>,
    /// What the agent has written itself, as far as a hook tells: the input of a tool, or its last words in a turn.
    pub written: Option<String>,
}

/// A text that a tool has told an agent, or that an agent has written to a file. It is looked at for what it names,
/// and is not kept itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Where the text comes from.
    pub source: PassageSource,
    /// The text, or its beginning if it is long.
    pub text: String,
}

/// Where a text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassageSource {
    /// The agent has written it by the call with this id.
    Written(String),
    /// The call with this id was answered with it.
    Answer(String),
}

/// How many bytes of a text are looked at.
const MOST_TEXT: usize = 64 << 10;

impl Passage {
    /// A passage of this text, if there is anything in it.
    pub(super) fn new(source: PassageSource, mut text: String) -> Option<Self> {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
        (!text.trim().is_empty()).then_some(Self { source, text })
    }
}

/// One thing that happened while an agent was at work.
#[derive(Debug, Clone, PartialEq)]
pub enum Activity {
    /// A person says something: the turn before ends, another begins.
    Prompt,
    /// A person says, and plainly, that what the agent has come to is not what they meant. This is a prompt as well.
    Correction,
    /// The agent uses a tool.
    ToolUse {
        /// The id by which the result refers to the use.
        id: Option<String>,
        /// What the tool does, in order; often nothing that concerns searching.
        actions: Vec<ToolAction>,
    },
    /// A tool has answered.
    ToolResult {
        /// The id of the use that is answered.
        id: Option<String>,
        /// Whether the tool worked. A search that found nothing did.
        ok: bool,
        /// What the tool found, where that can be told: of use if it answers a search.
        output: Option<SearchOutput>,
    },
    /// The agent is done with what it was asked, or was stopped.
    TurnEnd,
    /// The agent's session is over.
    SessionEnd,
}

impl Activity {
    /// A tool's result. A shell's search that found nothing is reported as an error and is none.
    pub(super) fn result(id: Option<String>, ok: bool, output: Option<SearchOutput>) -> Self {
        let nothing = output.as_ref().is_some_and(SearchOutput::is_empty);
        Self::ToolResult { id, ok: ok || nothing, output }
    }
}
