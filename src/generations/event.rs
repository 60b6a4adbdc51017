//! Events of generation logs, as the writer takes them: validated, with their ids, times, verdicts and
//! hashes.

use uuid::Uuid;

use super::{
    Amendment, Attempt, Generation, NewAttempt, NewGeneration, NewReview, Outcome, Verdict, numbers,
};
use crate::db::made::Made;
use crate::error::Result;
use crate::http::line::{Line, Record};
use crate::privacy::redact::{Redaction, Texts as _};
use crate::types::{OptionalName, Timestamp, request_hash};

/// Something that happens to a generation log. It is validated, and has its id and times.
#[derive(Debug)]
pub struct Event {
    /// The id of the log.
    pub generation_id: Uuid,
    /// What happens to the log.
    pub action: Action,
}

/// What happens to a generation log.
#[derive(Debug)]
pub enum Action {
    /// The log begins.
    Start(Box<Start>),
    /// An attempt is added to the log.
    Append(Box<Append>),
    /// The log is finalized.
    Finalize {
        /// How the log ended.
        outcome: Outcome,
        /// The hash of the request, which distinguishes a repeated request from a conflicting one.
        hash: Vec<u8>,
    },
    /// The log is reviewed.
    Review {
        /// The review.
        review: NewReview,
        /// When the review was received.
        at: Timestamp,
    },
    /// Something is added to the log that became known later.
    Amend(Amendment),
}

/// The beginning of a log.
#[derive(Debug)]
pub struct Start {
    /// The client's request.
    pub new: NewGeneration,
    /// When the log began.
    pub created_at: Timestamp,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
    /// The hash of an equivalent request to finalize, if the log is finished already. A client that sends
    /// such a request later is repeating itself.
    pub outcome_hash: Option<Vec<u8>>,
    /// The log's attempts, numbered.
    pub attempts: Vec<Append>,
}

/// An attempt to add to a log.
#[derive(Debug)]
pub struct Append {
    /// The attempt's id within its log.
    pub id: Uuid,
    /// Whether the client chose the id, so that it may be in use already.
    pub id_given: bool,
    /// The attempt's number. Without one it gets the next.
    pub number: Option<i32>,
    /// When the model was called.
    pub timestamp: Timestamp,
    /// The client's request.
    pub new: NewAttempt,
    /// The verdict on the attempt.
    pub verdict: Verdict,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

/// The kinds of this domain's events, as metrics name them.
pub const KINDS: [&str; 5] =
    ["generation", "attempt", "generation_outcome", "review", "generation_amendment"];

impl Event {
    /// Returns the event's kind, one of [`KINDS`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        KINDS[match &self.action {
            Action::Start(_) => 0,
            Action::Append(_) => 1,
            Action::Finalize { .. } => 2,
            Action::Review { .. } => 3,
            Action::Amend(_) => 4,
        }]
    }

    /// Returns the record that the event makes, if it makes one.
    #[must_use]
    pub fn made(&self) -> Option<Made> {
        let Action::Start(start) = &self.action else { return None };
        Some(Made::one("generations", self.generation_id, start.new.id))
    }

    /// Returns the number of attempts that a log begins with.
    #[must_use]
    pub fn attempts(&self) -> usize {
        if let Action::Start(start) = &self.action { start.attempts.len() } else { 0 }
    }

    /// Makes the event that a log begins. `id` is used if the request has no id of its own; without either
    /// the server makes one.
    #[must_use]
    pub fn start(mut new: NewGeneration, id: Option<Uuid>) -> Self {
        let hash = request_hash(&new);
        let outcome_hash = new.outcome().map(|outcome| request_hash(&outcome));
        let created_at = new.created_at.unwrap_or_else(Timestamp::now);
        new.final_valid_dsl = if new.success == Some(true) { new.program().map(str::to_owned) } else { None };
        let attempts = numbers(&new.iterations)
            .into_iter()
            .zip(std::mem::take(&mut new.iterations))
            .map(|(number, attempt)| {
                let timestamp = attempt.timestamp.unwrap_or(created_at);
                Append { number: Some(number), timestamp, ..Append::new(attempt, None) }
            })
            .collect();
        Self {
            generation_id: new.id.or(id).unwrap_or_else(Uuid::now_v7),
            action: Action::Start(Box::new(Start { new, created_at, hash, outcome_hash, attempts })),
        }
    }

    /// Makes the event that an attempt is added. `id` is used as in [`Event::start`].
    #[must_use]
    pub fn append(generation_id: Uuid, new: NewAttempt, id: Option<Uuid>) -> Self {
        Self { generation_id, action: Action::Append(Box::new(Append::new(new, id))) }
    }

    /// Makes the event that a log is finalized.
    #[must_use]
    pub fn finalize(generation_id: Uuid, outcome: Outcome) -> Self {
        let hash = request_hash(&outcome);
        Self { generation_id, action: Action::Finalize { outcome, hash } }
    }

    /// Makes the event that a log is reviewed.
    #[must_use]
    pub fn review(generation_id: Uuid, review: NewReview) -> Self {
        Self { generation_id, action: Action::Review { review, at: Timestamp::now() } }
    }

    /// Makes the event that something is added to a log which became known later.
    #[must_use]
    pub fn amend(generation_id: Uuid, amendment: Amendment) -> Self {
        Self { generation_id, action: Action::Amend(amendment) }
    }
}

impl Event {
    /// Returns the log's id and beginning, if this is that event.
    pub(super) fn as_start(&self) -> Option<(Uuid, &Start)> {
        match &self.action {
            Action::Start(start) => Some((self.generation_id, start)),
            _ => None,
        }
    }

    /// Returns the log's id and the attempt, if an attempt is added.
    pub(super) fn as_append(&self) -> Option<(Uuid, &Append)> {
        match &self.action {
            Action::Append(append) => Some((self.generation_id, append)),
            _ => None,
        }
    }

    /// Returns the log's id, its outcome and the hash of the request, if the log is finalized.
    pub(super) fn as_outcome(&self) -> Option<(Uuid, &Outcome, &[u8])> {
        match &self.action {
            Action::Finalize { outcome, hash } => Some((self.generation_id, outcome, hash)),
            _ => None,
        }
    }

    /// Returns the log's id and the amendment, if the log is amended.
    pub(super) fn as_amendment(&self) -> Option<(Uuid, &Amendment)> {
        match &self.action {
            Action::Amend(amendment) => Some((self.generation_id, amendment)),
            _ => None,
        }
    }

    /// Replaces in every text what the project's rules say, also in what was derived from it. The hashes by which a
    /// request is recognized are those of what was sent.
    pub fn redact(&mut self, redaction: &mut Redaction<'_>) {
        match &mut self.action {
            Action::Start(start) => {
                start.new.texts(redaction);
                redaction.hide(&mut start.hash);
                start.outcome_hash.iter_mut().for_each(|hash| redaction.hide(hash));
                start.attempts.iter_mut().for_each(|attempt| attempt.redact(redaction));
            }
            Action::Append(append) => append.redact(redaction),
            Action::Finalize { outcome, hash } => {
                outcome.texts(redaction);
                redaction.hide(hash);
            }
            Action::Review { review, .. } => review.texts(redaction),
            Action::Amend(amendment) => amendment.texts(redaction),
        }
    }

    /// Removes every text. Numbers, verdicts, names and times stay, as does what was derived from the texts.
    pub fn reduce(&mut self) {
        match &mut self.action {
            Action::Start(start) => {
                start.new.user_intent.clear();
                start.new.final_valid_dsl = None;
                start.new.metadata = None;
                start.attempts.iter_mut().for_each(Append::reduce);
            }
            Action::Append(append) => append.reduce(),
            Action::Finalize { outcome, .. } => {
                // An empty program still says that there was one.
                outcome.final_valid_dsl.iter_mut().for_each(String::clear);
                outcome.error = None;
            }
            Action::Review { review, .. } => {
                review.reviewer = OptionalName::default();
                review.note = None;
                review.corrected_dsl = None;
            }
            Action::Amend(amendment) => amendment.metadata = None,
        }
    }
}

impl Append {
    fn redact(&mut self, redaction: &mut Redaction<'_>) {
        let before = redaction.spans();
        self.new.texts(redaction);
        // The verdict on a program that is not kept stays as it is.
        if redaction.spans() > before && self.new.extracted_dsl.is_some() {
            self.verdict = self.new.verdict();
        }
        redaction.hide(&mut self.hash);
    }

    fn reduce(&mut self) {
        let new = &mut self.new;
        new.prompt_text = None;
        new.raw_response = None;
        new.extracted_dsl = None;
        new.metadata = None;
        if let Some(parse) = &mut new.parse_result {
            parse.error = None;
        }
        if let Some(lint) = &mut new.lint_result {
            lint.errors.clear();
            lint.warnings.clear();
        }
        if let Some(compile) = &mut new.compile_result {
            compile.error = None;
        }
        self.verdict.error_message = None;
    }
}

impl Start {
    /// Returns the open log as it will be stored under `id`.
    #[must_use]
    pub fn stored(&self, id: Uuid) -> Generation {
        let new = &self.new;
        let sum = |part: fn(&NewAttempt) -> Option<i32>| {
            self.attempts.iter().filter_map(|attempt| part(&attempt.new)).map(i64::from).sum()
        };
        let mut iterations: Vec<_> =
            self.attempts.iter().map(|attempt| attempt.stored(attempt.number.unwrap_or_default())).collect();
        iterations.sort_unstable_by_key(|attempt| attempt.attempt);
        Generation {
            id,
            user_intent: Some(new.user_intent.clone()),
            domain_name: new.domain_name.clone(),
            session_id: new.session_id.clone().into(),
            cbu_id: new.cbu_id.clone().into(),
            instance_id: new.instance_id.clone().into(),
            model_used: new.model_used.clone().into(),
            metadata: new.metadata.clone().unwrap_or_default(),
            created_at: self.created_at,
            success: None,
            final_valid_dsl: None,
            error: None,
            completed_at: None,
            total_attempts: i64::try_from(self.attempts.len()).unwrap_or(i64::MAX),
            total_latency_ms: sum(|attempt| attempt.latency_ms),
            total_input_tokens: sum(|attempt| attempt.input_tokens),
            total_output_tokens: sum(|attempt| attempt.output_tokens),
            review: None,
            iterations: Some(iterations),
        }
    }
}

impl Append {
    /// Returns the attempt as it will be stored under `number`.
    #[must_use]
    pub fn stored(&self, number: i32) -> Attempt {
        let new = &self.new;
        Attempt {
            id: self.id,
            attempt: number,
            timestamp: self.timestamp,
            prompt_template: new.prompt_template.clone().into(),
            prompt_template_version: new.prompt_template_version,
            prompt_text: new.prompt_text.clone(),
            raw_response: new.raw_response.clone(),
            extracted_dsl: new.extracted_dsl.clone(),
            parse_result: new.parse_result.clone(),
            lint_result: new.lint_result.clone(),
            compile_result: new.compile_result.clone(),
            latency_ms: new.latency_ms,
            input_tokens: new.input_tokens,
            output_tokens: new.output_tokens,
            metadata: new.metadata.clone().unwrap_or_default(),
        }
    }

    fn new(new: NewAttempt, id: Option<Uuid>) -> Self {
        let given = new.id.or(id);
        Self {
            id: given.unwrap_or_else(Uuid::now_v7),
            id_given: given.is_some(),
            number: new.attempt,
            timestamp: new.timestamp.unwrap_or_else(Timestamp::now),
            verdict: new.verdict(),
            hash: request_hash(&new),
            new,
        }
    }
}

impl Record for Generation {
    type Id = Uuid;

    const MEMBER: &'static str = "generation_id";
    const NAME: &'static str = "generation";
}

/// Reads a line of a batch if its kind is one of this domain's. Returns none for another domain's kind.
pub fn read(kind: Option<&str>, line: &Line<'_>) -> Option<Result<Event>> {
    Some(match kind? {
        "generation" => line.start::<_, Generation>().map(|new| Event::start(new, line.id)),
        "attempt" => line.child::<_, Generation>().map(|(log, new)| Event::append(log, new, line.id)),
        "generation_outcome" => {
            line.change::<_, Generation>().map(|(log, outcome)| Event::finalize(log, outcome))
        }
        "review" => line.change::<_, Generation>().map(|(log, review)| Event::review(log, review)),
        "generation_amendment" => {
            line.change::<_, Generation>().map(|(log, amendment)| Event::amend(log, amendment))
        }
        _ => return None,
    })
}
