//! Events of suggestion records, as the writer takes them: validated, with their ids, times, outcomes and
//! hashes.

use uuid::Uuid;

use super::activity::Activity;
use super::rules::prompt::Facts;
use super::rules::views::resolve;
use super::{
    Amendment, Conclusion, HistoryLine, Names, NewPartialInputs, NewSuggestion, NewViews, Outcome, Reported,
    Slate, State, Suggestion, Whole, is_history_line,
};
use crate::db::made::Made;
use crate::error::Result;
use crate::http::line::{Line, Record};
use crate::privacy::hash_key::{HASH, HashKey};
use crate::privacy::redact::{Redaction, Texts as _};
use crate::types::ids::line_id;
use crate::types::{Timestamp, request_hash};

/// Something that happens to a suggestion record. It is validated, and has its id and times.
#[derive(Debug)]
pub struct Event {
    /// The id of the record.
    pub suggestion_id: Uuid,
    /// What happens to the record.
    pub action: Action,
}

/// What happens to a suggestion record.
#[derive(Debug)]
pub enum Action {
    /// The record begins.
    Start(Box<Start>),
    /// The user looks at suggestions, or types.
    Append {
        /// What the user does.
        activities: Vec<Activity>,
        /// When the server received the request.
        received_at: Timestamp,
    },
    /// The record is finalized or discarded.
    Finalize {
        /// What the user submitted, and when.
        outcome: Outcome,
        /// The hash of the request, which distinguishes a repeated request from a conflicting one.
        hash: Vec<u8>,
        /// The keyed hash of the text submitted, if the project stores no text.
        input_hash: Option<[u8; HASH]>,
    },
    /// Something is added to the record.
    Amend(Amendment),
}

/// The beginning of a record.
#[derive(Debug)]
pub struct Start {
    /// The client's request.
    pub new: NewSuggestion,
    /// When the slate was created.
    pub created_at: Timestamp,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
    /// The properties by which analytics group the record.
    pub facts: Facts,
    /// What the client reported of the outcome.
    pub reported: Option<Reported>,
    /// The outcome, if the record is finished already.
    pub conclusion: Option<Conclusion>,
    /// The hash of an equivalent request to finalize, if the record is finished already. A client that sends
    /// such a request later is repeating itself.
    pub outcome_hash: Option<Vec<u8>>,
    /// The hashes that replace the texts, if the project stores no text.
    pub hashes: Option<Hashes>,
}

/// The keyed hashes that replace texts.
#[derive(Debug)]
pub struct Hashes {
    /// The hash of each suggestion, one after the other.
    pub suggestions: Vec<u8>,
    /// The hash of the text submitted.
    pub input: Option<[u8; HASH]>,
}

/// Returns the keyed hashes of texts, one after the other.
pub(super) fn hash_all(key: &HashKey, texts: &[String]) -> Vec<u8> {
    texts.iter().flat_map(|text| key.hash(text.as_bytes())).collect()
}

/// The kinds of this domain's events, as metrics name them. A partial input counts as a view.
pub const KINDS: [&str; 4] = ["suggestion", "view", "suggestion_outcome", "suggestion_amendment"];

impl Event {
    /// Returns how many things that the user does the event adds.
    #[must_use]
    pub fn activities(&self) -> usize {
        match &self.action {
            Action::Append { activities, .. } => activities.len(),
            _ => 0,
        }
    }

    /// Returns the record that the event makes, if it makes one.
    #[must_use]
    pub fn made(&self) -> Option<Made> {
        let Action::Start(start) = &self.action else { return None };
        Some(Made::one("suggestions", self.suggestion_id, start.new.id))
    }

    /// Returns the event's kind, one of [`KINDS`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        KINDS[match &self.action {
            Action::Start(_) => 0,
            Action::Append { .. } => 1,
            Action::Finalize { .. } => 2,
            Action::Amend(_) => 3,
        }]
    }

    /// Makes the event that a record begins. `id` is used if the request has no id of its own; without either
    /// the server makes one.
    #[must_use]
    pub fn start(new: NewSuggestion, id: Option<Uuid>) -> Self {
        let hash = request_hash(&new);
        let reports = new.match_type.is_some() || new.accepted_index.is_some();
        let reported = reports.then(|| Reported {
            match_type: new.match_type,
            accepted_index: new.accepted_index,
            ..Reported::default()
        });
        let id = new.id.or(id).unwrap_or_else(Uuid::now_v7);
        Self { suggestion_id: id, action: Action::Start(Box::new(Start::new(new, hash, reported))) }
    }

    /// Makes the event that a record begins from a line of the seed's history.
    #[must_use]
    pub fn line(line: HistoryLine, id: Uuid) -> Self {
        let hash = request_hash(&line);
        let (new, reported) = line.split(id);
        Self { suggestion_id: id, action: Action::Start(Box::new(Start::new(new, hash, Some(reported)))) }
    }

    /// Makes the event that the user looks at suggestions.
    #[must_use]
    pub fn view(suggestion_id: Uuid, views: NewViews, names: Names) -> Self {
        Self::append(suggestion_id, views.into_activities(suggestion_id, names))
    }

    /// Makes the event that the user types.
    #[must_use]
    pub fn partial_inputs(suggestion_id: Uuid, inputs: NewPartialInputs, names: Names) -> Self {
        Self::append(suggestion_id, inputs.into_activities(suggestion_id, names))
    }

    fn append(suggestion_id: Uuid, activities: Vec<Activity>) -> Self {
        Self { suggestion_id, action: Action::Append { activities, received_at: Timestamp::now() } }
    }

    /// Makes the event that a record is finalized.
    #[must_use]
    pub fn finalize(suggestion_id: Uuid, outcome: Outcome) -> Self {
        let hash = request_hash(&outcome);
        Self { suggestion_id, action: Action::Finalize { outcome, hash, input_hash: None } }
    }

    /// Makes the event that something is added to a record.
    #[must_use]
    pub fn amend(suggestion_id: Uuid, amendment: Amendment) -> Self {
        Self { suggestion_id, action: Action::Amend(amendment) }
    }

    /// Returns the record's id and beginning, if this is that event.
    pub(super) fn as_start(&self) -> Option<(Uuid, &Start)> {
        match &self.action {
            Action::Start(start) => Some((self.suggestion_id, start)),
            _ => None,
        }
    }

    /// Returns the record's id, what the user did and when the server received it, if this is that event.
    pub(super) fn as_append(&self) -> Option<(Uuid, &[Activity], Timestamp)> {
        match &self.action {
            Action::Append { activities, received_at } => {
                Some((self.suggestion_id, activities, *received_at))
            }
            _ => None,
        }
    }

    /// Returns how the record ends, if this is that event.
    pub(super) fn as_ending(&self) -> Option<Ending<'_>> {
        match &self.action {
            Action::Finalize { outcome, hash, input_hash } => {
                Some(Ending { id: self.suggestion_id, outcome, hash, input_hash: *input_hash })
            }
            _ => None,
        }
    }

    /// Replaces in every text what the project's rules say, also in what was derived from it. The hashes by which a
    /// request is recognized are those of what was sent.
    pub fn redact(&mut self, redaction: &mut Redaction<'_>) {
        match &mut self.action {
            Action::Start(start) => {
                let before = redaction.spans();
                start.new.texts(redaction);
                if start.hashes.is_some() {
                    // The texts that the rest was derived from are not kept.
                    start.facts.model.texts(redaction);
                } else if redaction.spans() > before {
                    start.derive();
                }
                redaction.hide(&mut start.hash);
                start.outcome_hash.iter_mut().for_each(|hash| redaction.hide(hash));
            }
            Action::Append { activities, .. } => {
                for activity in activities {
                    activity.redact(redaction);
                }
            }
            Action::Finalize { outcome, hash, input_hash } => {
                // Texts that are not kept are only compared with hashes, which are of what was sent.
                if input_hash.is_none() {
                    outcome.texts(redaction);
                }
                redaction.hide(hash);
            }
            Action::Amend(_) => {}
        }
    }

    /// Removes every text. Numbers, verdicts, names and times stay, as does what was derived from the texts,
    /// and keyed hashes replace the texts. What is yet to be derived from the text submitted at the end needs it, so
    /// that text is removed when the record is written.
    pub fn reduce(&mut self, key: &HashKey) {
        match &mut self.action {
            Action::Start(start) => {
                start.hashes = Some(Hashes {
                    suggestions: hash_all(key, &start.new.suggestions),
                    input: start.new.actual_input.as_ref().map(|input| key.hash(input.as_bytes())),
                });
                start.conclusion = start.conclusion.take().map(Conclusion::without_text);
                start.new.forget();
            }
            Action::Append { activities, .. } => {
                for activity in activities {
                    activity.reduce();
                }
            }
            Action::Finalize { outcome, input_hash, .. } => {
                *input_hash = Some(key.hash(outcome.actual_input.as_bytes()));
            }
            Action::Amend(_) => {}
        }
    }

    /// Returns the record's id and what is added, if this is that event.
    pub(super) fn as_amendment(&self) -> Option<(Uuid, &Amendment)> {
        match &self.action {
            Action::Amend(amendment) => Some((self.suggestion_id, amendment)),
            _ => None,
        }
    }
}

/// The end of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending<'a> {
    pub(super) id: Uuid,
    pub(super) outcome: &'a Outcome,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub(super) hash: &'a [u8],
    /// The keyed hash of the text submitted, if the project stores no text.
    pub(super) input_hash: Option<[u8; HASH]>,
}

impl<'a> Ending<'a> {
    /// Returns the text submitted, if it is kept.
    pub(super) fn kept_input(&self) -> Option<&'a str> {
        let kept = self.input_hash.is_none() && !self.outcome.discards();
        kept.then_some(self.outcome.actual_input.as_str())
    }
}

impl Start {
    fn new(new: NewSuggestion, hash: Vec<u8>, reported: Option<Reported>) -> Self {
        let mut start = Self {
            created_at: new.created_at.unwrap_or_else(Timestamp::now),
            outcome_hash: new.outcome().as_ref().map(request_hash),
            facts: Facts::of(&new),
            new,
            hash,
            reported,
            conclusion: None,
            hashes: None,
        };
        start.conclude();
        start
    }

    /// Derives anew what follows from the request's texts.
    fn derive(&mut self) {
        self.facts = Facts::of(&self.new);
        self.conclude();
    }

    /// Works out the end of a record that is finished already.
    fn conclude(&mut self) {
        let new = &self.new;
        self.conclusion = new.outcome().map(|outcome| {
            let slate = Slate {
                suggestions: &new.suggestions,
                fetch_end_ts: new.fetch_end_ts,
                prompt_hash: self.facts.prompt_hash,
                context_hash: self.facts.context_hash,
            };
            let shown = || resolve(new.suggestions.len(), []).iter().map(|view| view.index).collect();
            Conclusion::of(
                &slate,
                new.viewed_indices.clone().unwrap_or_else(shown),
                new.cycle_count,
                &outcome,
            )
        });
    }

    /// Returns the state of the record when it begins.
    pub(super) fn state(&self) -> State {
        self.conclusion.as_ref().map_or(State::Pending, |conclusion| conclusion.state)
    }

    /// Returns whether more than the id is kept. It is not if the text submitted is a command, which discards
    /// the record.
    pub(super) fn is_kept(&self) -> bool {
        self.state() != State::Discarded
    }

    /// Returns whether the texts are kept.
    pub(super) fn keeps_text(&self) -> bool {
        self.is_kept() && self.hashes.is_none()
    }

    /// Returns the hashes that replace the texts, if the record is kept without text.
    pub(super) fn hashes(&self) -> Option<&Hashes> {
        self.hashes.as_ref().filter(|_| self.is_kept())
    }

    /// Returns the pending record as it will be stored under `id`.
    #[must_use]
    pub fn stored(&self, id: Uuid) -> Suggestion {
        let new = &self.new;
        let views = resolve(new.suggestions.len(), []);
        Suggestion {
            id,
            state: State::Pending,
            suggestions: Some(new.suggestions.clone()),
            suggestion_count: count(&new.suggestions),
            suggestion_node_version: new.suggestion_node_version.clone().into(),
            session_name: new.session_name.clone().into(),
            server_name: new.server_name.clone().into(),
            trigger_block_number: new.trigger_block_number,
            result_block_number: None,
            policy_id: new.policy_id.clone().into(),
            propensities: new.propensities.clone(),
            context_block_count: self.facts.context_block_count,
            model: self.facts.model.clone(),
            temperature: self.facts.temperature,
            total_tokens: self.facts.tokens.total,
            prompt_tokens: self.facts.tokens.prompt,
            completion_tokens: self.facts.tokens.completion,
            failed: self.facts.failed,
            error: new.failure().map(str::to_owned),
            fetch_start_ts: new.fetch_start_ts,
            fetch_end_ts: new.fetch_end_ts,
            submit_ts: None,
            created_at: self.created_at,
            completed_at: None,
            viewed_indices: views.iter().map(|view| view.index).collect(),
            cycle_count: 0,
            displayed_index_at_submit: None,
            actual_input: None,
            match_type: None,
            accepted_index: None,
            time_to_action_ms: None,
            whole: Some(Whole {
                context: Some(new.context.clone()),
                llm_request: new.llm_request.clone(),
                llm_response: new.llm_response.clone(),
                views,
                ..Whole::default()
            }),
        }
    }
}

/// Returns the number of texts.
pub(super) fn count(texts: &[String]) -> i32 {
    i32::try_from(texts.len()).unwrap_or(i32::MAX)
}

impl Record for Suggestion {
    type Id = Uuid;

    const MEMBER: &'static str = "suggestion_id";
    const NAME: &'static str = "suggestion";
}

/// Reads a line of a batch if its kind is one of this domain's or if it is a line of the seed's history.
/// Returns none for another domain's kind.
pub fn read(kind: Option<&str>, line: &Line<'_>) -> Option<Result<Event>> {
    let names = || Names::of_line(line.id);
    Some(match kind {
        None | Some("suggestion") if is_history_line(line.text) => {
            let id = line.id.unwrap_or_else(|| line_id(line.text.trim_ascii().as_bytes(), 1));
            line.start::<_, Suggestion>().map(|history| Event::line(history, id))
        }
        Some("suggestion") => line.start::<_, Suggestion>().map(|new| Event::start(new, line.id)),
        Some("view") => {
            line.child::<_, Suggestion>().map(|(slate, views)| Event::view(slate, views, names()))
        }
        Some("partial_inputs") => {
            line.child::<_, Suggestion>().map(|(slate, inputs)| Event::partial_inputs(slate, inputs, names()))
        }
        Some("suggestion_outcome") => {
            line.change::<_, Suggestion>().map(|(slate, outcome)| Event::finalize(slate, outcome))
        }
        Some("suggestion_amendment") => {
            line.change::<_, Suggestion>().map(|(slate, amendment)| Event::amend(slate, amendment))
        }
        _ => return None,
    })
}
