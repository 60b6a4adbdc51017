//! Events of memories and conversations, as the writer takes them: validated, with their ids, times and hashes.

use uuid::Uuid;

use super::code::{Code, NewCode};
use super::help::{Help, Traces};
use super::rules::intent::DetectedIntent;
use super::suggestion::Shown;
use super::{BySession, Memory, MemoryChange, NewFeedback, NewMemory, NewQuery, Verdict};
use crate::db::made::Made;
use crate::error::Result;
use crate::http::Checks;
use crate::http::line::{Line, Record};
use crate::privacy::redact::{GroupName as _, Redaction, Texts as _};
use crate::types::{OptionalName, Timestamp, derived_id, request_hash};

/// Something that happens to a memory or in a conversation. It is validated, and has its id and times.
#[derive(Debug)]
pub struct Event {
    /// The id of the memory. For an event of a conversation, an id that is derived from the session's name.
    pub id: Uuid,
    /// What happens.
    pub action: Action,
}

/// The kinds of events, as named in batches and metrics. Changes of memories, suggestions, and help without a request
/// cannot be sent in batches.
pub const KINDS: [&str; 8] = [
    "memory",
    "memory_code",
    "conversation_query",
    "memory_feedback",
    "memory_change",
    "memory_suggest",
    "unasked_help",
    "unasked_help_use",
];

/// What happens to a memory or in a conversation.
#[derive(Debug)]
pub enum Action {
    /// A memory is stored.
    Start(Box<Start>),
    /// A memory is changed.
    Change(Box<Change>),
    /// The memories of a source file are replaced.
    Replace(Box<Code>),
    /// A query is added to a conversation.
    Ask(Box<Ask>),
    /// Memories are suggested in a conversation.
    Suggest(Box<Suggest>),
    /// A verdict on a memory is given in a conversation.
    Judge(Judge),
    /// An agent gets help without a request, or it is withheld.
    Help(Box<Help>),
    /// An agent has written or opened something, which may be a use of help.
    Traces(Traces),
}

/// A memory that is stored.
#[derive(Debug)]
pub struct Start {
    /// The client's request.
    pub new: NewMemory,
    /// The source file that the memory is a piece of, if it was stored with the whole file.
    pub code_file: Option<Uuid>,
    /// Whether the content is stored.
    pub keeps_text: bool,
    /// When the memory was created.
    pub created_at: Timestamp,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

/// A change of a memory.
#[derive(Debug)]
pub struct Change {
    /// The client's request.
    pub change: MemoryChange,
    /// Whether the content is deleted, because the request has a new one and the project stores no text.
    pub drops_content: bool,
}

/// A query of a conversation.
#[derive(Debug)]
pub struct Ask {
    /// The query's id.
    pub id: Uuid,
    /// The name of the conversation's agent session.
    pub session: String,
    /// The client's request.
    pub new: NewQuery,
    /// The key with which the query was sent. It is nil on a server without keys, and none if the key does not
    /// identify the session.
    pub asked_by: Option<Uuid>,
    /// Whether the text of the query is stored.
    pub keeps_text: bool,
    /// When the query was asked.
    pub at: Timestamp,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

/// A response with suggestions for a conversation.
#[derive(Debug, Clone)]
pub struct Suggest {
    /// The response's id.
    pub id: Uuid,
    /// The name of the conversation's agent session.
    pub session: String,
    /// The last queries of the conversation, of which the response has words, the newest first.
    pub queries: Vec<Uuid>,
    /// The detected intent.
    pub intent: DetectedIntent,
    /// The minimum confidence of a suggestion.
    pub threshold: f64,
    /// The time that it took to find the suggestions, in milliseconds.
    pub took_ms: f64,
    /// The memories, the most likely first.
    pub shown: Vec<Shown>,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

impl Suggest {
    /// Returns the last query of the conversation.
    #[must_use]
    pub fn query(&self) -> Option<Uuid> {
        self.queries.first().copied()
    }
}

/// A verdict on a memory in a conversation.
#[derive(Debug)]
pub struct Judge {
    /// The name of the conversation's agent session.
    pub session: String,
    /// The memory.
    pub memory: Uuid,
    /// The verdict.
    pub verdict: Verdict,
}

impl Event {
    /// Returns the file whose pieces the event stores, if it is one.
    #[must_use]
    pub fn pieces(&self) -> Option<&Code> {
        if let Action::Replace(code) = &self.action { Some(code) } else { None }
    }

    /// Returns the records that the event makes, if it makes any. Those of a file replace its former ones.
    #[must_use]
    pub fn made(&self) -> Option<Made> {
        match &self.action {
            Action::Start(start) => Some(Made::one("memories", self.id, start.new.id)),
            Action::Ask(ask) => Some(Made::one("conversation_queries", ask.id, ask.new.id)),
            Action::Replace(code) => {
                Some(Made { records: code.chunks.len(), found: vec![(("memories", "code_file"), code.file)] })
            }
            _ => None,
        }
    }

    /// Makes the event that stores a memory. `id` is used if the request has no id of its own. Without either, a new
    /// id is made.
    #[must_use]
    pub fn start(new: NewMemory, id: Option<Uuid>) -> Self {
        let start = Start {
            keeps_text: true,
            created_at: new.created_at.unwrap_or_else(Timestamp::now),
            hash: request_hash(&new),
            code_file: None,
            new,
        };
        let id = start.new.id.or(id).unwrap_or_else(Uuid::now_v7);
        Self { id, action: Action::Start(Box::new(start)) }
    }

    /// Makes the event that changes a memory.
    #[must_use]
    pub fn change(memory: Uuid, change: MemoryChange) -> Self {
        Self { id: memory, action: Action::Change(Box::new(Change { change, drops_content: false })) }
    }

    /// Makes the event that replaces the memories of a source file.
    #[must_use]
    pub fn replace(new: NewCode) -> Self {
        let code = Code::of(new);
        Self { id: code.file, action: Action::Replace(Box::new(code)) }
    }

    /// Makes the event that adds a query to a conversation. `id` is used as in [`Event::start`].
    #[must_use]
    pub fn ask(session: String, new: NewQuery, id: Option<Uuid>) -> Self {
        let ask = Ask {
            id: new.id.or(id).unwrap_or_else(Uuid::now_v7),
            asked_by: None,
            keeps_text: true,
            at: new.at.unwrap_or_else(Timestamp::now),
            hash: request_hash(&(&session, &new)),
            session,
            new,
        };
        Self { id: conversation(&ask.session), action: Action::Ask(Box::new(ask)) }
    }

    /// Adds the key with which a query was sent, if a key was needed. The session is then the one in which this key
    /// was last used.
    #[must_use]
    pub fn by(mut self, key: Option<Uuid>) -> Self {
        if let Action::Ask(ask) = &mut self.action {
            ask.asked_by = Some(key.unwrap_or_default());
        }
        self
    }

    /// Makes the event that records suggestions.
    #[must_use]
    pub fn suggest(suggest: Suggest) -> Self {
        Self { id: conversation(&suggest.session), action: Action::Suggest(Box::new(suggest)) }
    }

    /// Makes the event that records a verdict on a memory in a conversation.
    #[must_use]
    pub fn judge(session: String, feedback: &NewFeedback) -> Self {
        let judge = Judge { memory: feedback.memory_id, verdict: feedback.verdict, session };
        Self { id: conversation(&judge.session), action: Action::Judge(judge) }
    }

    /// Makes the event that an agent gets help without a request, or that it is withheld.
    #[must_use]
    pub fn help(help: Help) -> Self {
        Self { id: conversation(&help.session), action: Action::Help(Box::new(help)) }
    }

    /// Makes the event that an agent has written or opened something.
    #[must_use]
    pub fn traces(traces: Traces) -> Self {
        Self { id: conversation(&traces.session), action: Action::Traces(traces) }
    }

    /// Returns the memory's id and content, if the event stores a memory.
    pub(super) fn as_start(&self) -> Option<(Uuid, &Start)> {
        match &self.action {
            Action::Start(start) => Some((self.id, start)),
            _ => None,
        }
    }

    /// Returns the query, if the event adds one.
    pub(super) fn as_ask(&self) -> Option<&Ask> {
        match &self.action {
            Action::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// Returns the suggestions, if the event records some.
    pub(super) fn as_suggest(&self) -> Option<&Suggest> {
        match &self.action {
            Action::Suggest(suggest) => Some(suggest),
            _ => None,
        }
    }

    /// Returns the verdict on a memory, if the event records one.
    pub(super) fn as_judge(&self) -> Option<&Judge> {
        match &self.action {
            Action::Judge(judge) => Some(judge),
            _ => None,
        }
    }

    /// Returns the help that an agent got without a request, if this is that event.
    pub(super) fn as_help(&self) -> Option<&Help> {
        match &self.action {
            Action::Help(help) => Some(help),
            _ => None,
        }
    }

    /// Returns the id of the query, if the event adds one.
    #[must_use]
    pub fn query_id(&self) -> Option<Uuid> {
        self.as_ask().map(|ask| ask.id)
    }

    /// Returns the event's kind, one of [`KINDS`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.action {
            Action::Start(_) => "memory",
            Action::Ask(_) => "conversation_query",
            Action::Judge(_) => "memory_feedback",
            Action::Change(_) => "memory_change",
            Action::Replace(_) => "memory_code",
            Action::Suggest(_) => "memory_suggest",
            Action::Help(_) => "unasked_help",
            Action::Traces(_) => "unasked_help_use",
        }
    }

    /// Applies the project's redaction rules to every text. The hashes that recognize a repeated request are those of
    /// the original text.
    pub fn redact(&mut self, redaction: &mut Redaction<'_>) {
        match &mut self.action {
            Action::Start(start) => start.redact(redaction),
            Action::Replace(code) => {
                let pieces = code.chunks.iter_mut().map(|(_, start)| &mut start.new.content);
                let changed = redaction.together(&mut pieces.collect::<Vec<_>>());
                for ((_, start), changed) in code.chunks.iter_mut().zip(changed) {
                    if changed {
                        // The piece is another one if it hides something else because of those before it.
                        start.hash.extend(request_hash(&start.new.content));
                    }
                    start.redact(redaction);
                }
            }
            Action::Change(change) => change.change.texts(redaction),
            Action::Ask(ask) => {
                ask.session.group_name(redaction);
                ask.new.texts(redaction);
                redaction.hide(&mut ask.hash);
            }
            Action::Suggest(suggest) => {
                suggest.session.group_name(redaction);
                suggest.intent.keywords.texts(redaction);
                suggest.intent.search_query.texts(redaction);
                suggest.shown.iter_mut().for_each(|shown| shown.reason.texts(redaction));
                redaction.hide(&mut suggest.hash);
            }
            Action::Judge(judge) => judge.session.group_name(redaction),
            Action::Help(help) => help.session.group_name(redaction),
            Action::Traces(traces) => traces.session.group_name(redaction),
        }
    }

    /// Removes every text, and also tags, paths and symbols, which name its subject. Numbers, verdicts, names of
    /// sessions and times stay.
    pub fn reduce(&mut self) {
        match &mut self.action {
            Action::Start(start) => start.reduce(),
            Action::Replace(code) => {
                for (_, start) in &mut code.chunks {
                    start.reduce();
                    // The piece is another one once its text is kept.
                    start.hash.push(0);
                }
            }
            Action::Change(change) => {
                let new = &mut change.change;
                change.drops_content = new.content.is_some();
                forget(&mut new.content);
                new.tags.iter_mut().for_each(Vec::clear);
                [&mut new.file_path, &mut new.symbol, &mut new.root].into_iter().for_each(forget);
                new.metadata = None;
            }
            Action::Ask(ask) => {
                ask.keeps_text = false;
                ask.new.query.clear();
                forget(&mut ask.new.root);
            }
            Action::Suggest(suggest) => {
                suggest.intent.keywords.clear();
                suggest.intent.search_query.clear();
                suggest.shown.iter_mut().for_each(|shown| shown.reason.clear());
            }
            Action::Judge(_) | Action::Help(_) | Action::Traces(_) => {}
        }
    }
}

impl Start {
    fn redact(&mut self, redaction: &mut Redaction<'_>) {
        self.new.texts(redaction);
        redaction.hide(&mut self.hash);
    }

    fn reduce(&mut self) {
        self.keeps_text = false;
        let new = &mut self.new;
        new.content.clear();
        new.tags.clear();
        [&mut new.file_path, &mut new.symbol, &mut new.root].into_iter().for_each(forget);
        new.metadata = None;
    }
}

fn forget(name: &mut OptionalName) {
    *name = OptionalName::default();
}

/// Returns the id that keeps the events of a conversation in order.
#[must_use]
pub fn conversation(session: &str) -> Uuid {
    derived_id(&[b"conversation", session.as_bytes()])
}

impl Record for Memory {
    type Id = Uuid;

    const MEMBER: &'static str = "memory_id";
    const NAME: &'static str = "memory";
}

/// A conversation, which lines of a batch name by its session.
struct Conversation;

impl Record for Conversation {
    type Id = String;

    const MEMBER: &'static str = "session_id";
    const NAME: &'static str = "session";
}

/// Reads a line of a batch if its kind is one of this domain's. Returns none for another domain's kind.
pub fn read(kind: Option<&str>, line: &Line<'_>) -> Option<Result<Event>> {
    Some(match kind? {
        "memory" => line.start::<_, Memory>().map(|new| Event::start(new, line.id)),
        "memory_code" => line.start::<_, Memory>().map(Event::replace),
        "conversation_query" => line
            .child::<_, Conversation>()
            .and_then(|(session, new)| Ok(Event::ask(named(session)?, new, line.id))),
        "memory_feedback" => line
            .child::<NewFeedback, Conversation>()
            .and_then(|(session, feedback)| Ok(Event::judge(named(session)?, &feedback))),
        _ => return None,
    })
}

/// Returns the name of a session, or an error if it is not a valid one.
fn named(session_id: String) -> Result<String> {
    Checks::of(BySession { session_id }).map(|named| named.session_id)
}
