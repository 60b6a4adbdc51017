//! What happens to a record, as the writer takes it: validated, with its id, times, verdict and hashes made.

use uuid::Uuid;

use super::prompt::Facts;
use super::viewing::resolve;
use super::{
    Amendment, Conclusion, HistoryLine, Move, Names, NewPartialInputs, NewSuggestion, NewViews, Outcome,
    Reported, Slate, State, Suggestion, Whole,
};
use crate::value::{Timestamp, request_hash};

/// Something that happens to a record, as the writer takes it: validated, with its id and times made.
#[derive(Debug)]
pub struct Event {
    /// The record.
    pub suggestion_id: Uuid,
    /// What happens to it.
    pub action: Action,
}

/// What happens to a record.
#[derive(Debug)]
pub enum Action {
    /// It begins.
    Start(Box<Start>),
    /// The user looks at suggestions, or types.
    Append {
        /// What he does.
        moves: Vec<Move>,
        /// When we heard of it.
        received_at: Timestamp,
    },
    /// It ends.
    Finalize {
        /// How.
        outcome: Outcome,
        /// Of the request.
        hash: Vec<u8>,
    },
    /// Something is added to it.
    Amend(Amendment),
}

/// A record that begins.
#[derive(Debug)]
pub struct Start {
    /// The request.
    pub new: NewSuggestion,
    /// When the slate was made.
    pub created_at: Timestamp,
    /// Of the request.
    pub hash: Vec<u8>,
    /// What figures group it by.
    pub facts: Facts,
    /// What the client reported of the outcome.
    pub reported: Option<Reported>,
    /// What follows from its end, for one that is finished already.
    pub conclusion: Option<Conclusion>,
    /// Of the request to finalize it that the request stands for.
    pub outcome_hash: Option<Vec<u8>>,
}

impl Event {
    /// A record begins. `id` is one derived for a request that has none of its own; without either the server makes one.
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

    /// A record is told of by the seed's own line.
    #[must_use]
    pub fn line(line: HistoryLine, id: Uuid) -> Self {
        let hash = request_hash(&line);
        let (new, reported) = line.split(id);
        Self { suggestion_id: id, action: Action::Start(Box::new(Start::new(new, hash, Some(reported)))) }
    }

    /// The user looks at suggestions.
    #[must_use]
    pub fn view(suggestion_id: Uuid, views: NewViews, names: Names) -> Self {
        Self::append(suggestion_id, views.into_moves(suggestion_id, names))
    }

    /// The user types.
    #[must_use]
    pub fn partial_inputs(suggestion_id: Uuid, inputs: NewPartialInputs, names: Names) -> Self {
        Self::append(suggestion_id, inputs.into_moves(suggestion_id, names))
    }

    fn append(suggestion_id: Uuid, moves: Vec<Move>) -> Self {
        Self { suggestion_id, action: Action::Append { moves, received_at: Timestamp::now() } }
    }

    /// A record ends.
    #[must_use]
    pub fn finalize(suggestion_id: Uuid, outcome: Outcome) -> Self {
        let hash = request_hash(&outcome);
        Self { suggestion_id, action: Action::Finalize { outcome, hash } }
    }

    /// Something is added to a record.
    #[must_use]
    pub fn amend(suggestion_id: Uuid, amendment: Amendment) -> Self {
        Self { suggestion_id, action: Action::Amend(amendment) }
    }

    /// The record that begins.
    pub(super) fn as_start(&self) -> Option<(Uuid, &Start)> {
        match &self.action {
            Action::Start(start) => Some((self.suggestion_id, start)),
            _ => None,
        }
    }

    /// The moves that are made, and when we heard of them.
    pub(super) fn as_append(&self) -> Option<(Uuid, &[Move], Timestamp)> {
        match &self.action {
            Action::Append { moves, received_at } => Some((self.suggestion_id, moves, *received_at)),
            _ => None,
        }
    }

    /// How the record ends.
    pub(super) fn as_outcome(&self) -> Option<(Uuid, &Outcome, &[u8])> {
        match &self.action {
            Action::Finalize { outcome, hash } => Some((self.suggestion_id, outcome, hash)),
            _ => None,
        }
    }

    /// What is added.
    pub(super) fn as_amendment(&self) -> Option<(Uuid, &Amendment)> {
        match &self.action {
            Action::Amend(amendment) => Some((self.suggestion_id, amendment)),
            _ => None,
        }
    }
}

impl Start {
    fn new(new: NewSuggestion, hash: Vec<u8>, reported: Option<Reported>) -> Self {
        let facts = Facts::of(&new);
        let outcome = new.outcome();
        let conclusion = outcome.as_ref().map(|outcome| {
            let slate = Slate {
                suggestions: &new.suggestions,
                fetch_end_ts: new.fetch_end_ts,
                prompt_hash: facts.prompt_hash,
            };
            let shown = || resolve(new.suggestions.len(), []).iter().map(|view| view.index).collect();
            Conclusion::of(&slate, new.viewed_indices.clone().unwrap_or_else(shown), new.cycle_count, outcome)
        });
        Self {
            created_at: new.created_at.unwrap_or_else(Timestamp::now),
            outcome_hash: outcome.as_ref().map(request_hash),
            new,
            hash,
            facts,
            reported,
            conclusion,
        }
    }

    /// The pending record `id` as it is once stored.
    #[must_use]
    pub fn stored(&self, id: Uuid) -> Suggestion {
        let new = &self.new;
        let views = resolve(new.suggestions.len(), []);
        Suggestion {
            id,
            state: State::Pending,
            suggestions: Some(new.suggestions.clone()),
            suggestion_count: count(&new.suggestions),
            suggestion_node_version: new.suggestion_node_version.clone(),
            session_name: new.session_name.clone(),
            server_name: new.server_name.clone(),
            trigger_block_number: new.trigger_block_number,
            result_block_number: None,
            policy_id: new.policy_id.clone(),
            propensities: new.propensities.clone(),
            context_block_count: self.facts.context_block_count,
            model: self.facts.model.clone(),
            temperature: self.facts.temperature,
            total_tokens: self.facts.total_tokens,
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

/// How many texts there are, as a column.
pub(super) fn count(texts: &[String]) -> i32 {
    i32::try_from(texts.len()).unwrap_or(i32::MAX)
}
