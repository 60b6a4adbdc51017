//! What agents report, in one form for all of them.

use chrono::TimeDelta;

use super::action::{Room, ToolAction};
use super::search_output::SearchOutput;
use crate::types::Timestamp;

/// What one line of a transcript, or one hook, says.
///
/// An entry without activities still shows that the agent was at work at that time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The time at which the entry was written. Hooks do not report it.
    pub at: Option<Timestamp>,
    /// The agent session. Without one, the entry belongs to the session of the previous entry of the same source.
    pub session: Option<String>,
    /// Whether the session and its folder may be those of another session, from which this one was copied. They count only
    /// if the source has named no session before.
    pub may_be_copied: bool,
    /// The subagent that works. It is none for the main agent.
    pub agent: Option<String>,
    /// Whether the entry is the head of a source: the agent that it names is that of all entries after it.
    pub is_head: bool,
    /// The turn, if the agent names its turns. Without one, it is unknown, or that of the previous entry.
    pub turn: Option<String>,
    /// The folder in which the agent works. Without one, it is that of the previous entry.
    pub root: Option<String>,
    /// The duration of the tool call that has just ended, if the agent reports it.
    pub lasted: Option<TimeDelta>,
    /// What happened, in order.
    pub activities: Vec<Activity>,
    /// The results of tools, and the texts that the agent has written to files.
    pub passages: Vec<Passage>,
    /// The text of a prompt that a person has written, if the entry is one.
    pub prompt: Option<String>,
    /// The name of the hook's event, if the entry is from a hook.
    pub event: Option<String>,
    /// The text that the agent has written, as reported by a hook: the input of a tool, or the last message of a
    /// turn.
    pub written: Option<String>,
}

/// A text that a tool has returned to an agent, or that an agent has written to a file. Only the names in it are
/// used, and the text is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Where the text comes from.
    pub source: PassageSource,
    /// The text, or its beginning if it is long.
    pub text: String,
}

/// The source of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassageSource {
    /// The agent wrote the text with the call of this id.
    Written(String),
    /// A tool returned the text to the call with this id.
    Answer(String),
}

/// The maximum number of bytes of a text that are used.
pub(super) const MOST_TEXT: usize = 64 << 10;

impl Passage {
    /// Makes a passage of this text, unless the text is empty.
    pub(super) fn new(source: PassageSource, mut text: String) -> Option<Self> {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
        text.shrink_to_fit();
        (!text.trim().is_empty()).then_some(Self { source, text })
    }
}

/// One thing that happened while an agent was at work.
#[derive(Debug, Clone, PartialEq)]
pub enum Activity {
    /// A person writes a prompt, which ends the turn and begins another.
    Prompt,
    /// A person writes a prompt that clearly rejects what the agent has found. It also counts as a prompt.
    Correction,
    /// The agent uses a tool.
    ToolUse {
        /// The id by which the result refers to the use.
        id: Option<String>,
        /// What the tool does, in order. This often has nothing to do with searching.
        actions: Vec<ToolAction>,
    },
    /// A tool has ended.
    ToolResult {
        /// The id of the use of the tool.
        id: Option<String>,
        /// Whether the tool succeeded. A search without results succeeded.
        ok: bool,
        /// What the tool found, if that is known. It matters if the tool has searched.
        output: Option<SearchOutput>,
    },
    /// The agent has ended its turn, or was stopped.
    TurnEnd,
    /// The agent's session has ended.
    SessionEnd,
}

impl Activity {
    /// Makes the use of a tool. Of many actions, only the first are kept.
    pub(super) fn used(id: Option<String>, actions: Vec<ToolAction>) -> Self {
        Self::ToolUse { id, actions: Room::of_stored().first(actions) }
    }

    /// Makes the result of a tool. Of many hits, only the first are kept. A shell's search without results is reported as an
    /// error, but is not one.
    pub(super) fn result(id: Option<String>, ok: bool, output: Option<SearchOutput>) -> Self {
        let nothing = output.as_ref().is_some_and(SearchOutput::is_empty);
        Self::ToolResult { id, ok: ok || nothing, output: output.map(SearchOutput::bounded) }
    }
}
