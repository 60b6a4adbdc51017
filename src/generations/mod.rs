//! Generation logs (seed 001): an intent is started, attempts to turn it into a program are appended, and the log is
//! finalized as a success or a failure. What was finalized is evidence: training pairs, correction pairs, similar examples.
//!
//! Here is what a log is; [`store`] and [`write`] are how it is kept, [`routes`] how it is reached, [`analytics`], [`similar`] and
//! [`templates`] what it serves besides.

pub mod analytics;
pub mod routes;
pub mod similar;
pub mod store;
pub mod templates;
pub mod write;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::extract::{Check, Checks, null_as_default};
use crate::value::{FreeForm, Timestamp, request_hash};

/// A generation log: an intent, and how the effort to satisfy it went.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Generation {
    /// Names the log in its project.
    pub id: Uuid,
    /// What the user wanted, in natural language.
    pub user_intent: String,
    /// Area of the language, such as `cbu`, `entity`, `document`.
    pub domain_name: String,
    /// The agent session it belongs to.
    pub session_id: Option<String>,
    /// The business unit the program is about.
    pub cbu_id: Option<String>,
    /// Where the program was persisted.
    pub instance_id: Option<String>,
    /// The model asked.
    pub model_used: Option<String>,
    /// The client's own object.
    pub metadata: FreeForm,
    /// When the effort began.
    pub created_at: Timestamp,
    /// Null while the log is open.
    pub success: Option<bool>,
    /// The program that passed; null unless it succeeded.
    pub final_valid_dsl: Option<String>,
    /// Why it was given up, where the client said so.
    pub error: Option<String>,
    /// When it was finalized.
    pub completed_at: Option<Timestamp>,
    /// How many attempts there are.
    pub total_attempts: i64,
    /// Sum over the attempts, in milliseconds.
    pub total_latency_ms: i64,
    /// Sum over the attempts.
    pub total_input_tokens: i64,
    /// Sum over the attempts.
    pub total_output_tokens: i64,
    /// What a reviewer said.
    #[sqlx(json(nullable))]
    pub review: Option<Review>,
    /// The attempts by number; lists leave them out.
    #[sqlx(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<Vec<Attempt>>,
}

/// One call of the model, and what parser, linter and compiler said of its program.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Attempt {
    /// Names the attempt in its log.
    pub id: Uuid,
    /// Number within the log, from 1.
    pub attempt: i32,
    /// When the model was asked.
    pub timestamp: Timestamp,
    /// Name of the prompt template used.
    pub prompt_template: Option<String>,
    /// Version of the template used.
    pub prompt_template_version: Option<i32>,
    /// The whole prompt as sent.
    pub prompt_text: Option<String>,
    /// The whole response.
    pub raw_response: Option<String>,
    /// The program found in the response.
    pub extracted_dsl: Option<String>,
    /// What the parser said; null: it did not run.
    #[sqlx(json(nullable))]
    pub parse_result: Option<ParseResult>,
    /// What the linter said; null: it did not run.
    #[sqlx(json(nullable))]
    pub lint_result: Option<LintResult>,
    /// What the compiler said; null: it did not run.
    #[sqlx(json(nullable))]
    pub compile_result: Option<CompileResult>,
    /// Time the model took, in milliseconds.
    pub latency_ms: Option<i32>,
    /// Tokens of the prompt.
    pub input_tokens: Option<i32>,
    /// Tokens of the response.
    pub output_tokens: Option<i32>,
    /// The client's own object.
    pub metadata: FreeForm,
}

/// What the parser said.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseResult {
    /// Whether the program parsed.
    pub success: bool,
    /// Why not.
    #[serde(default)]
    pub error: Option<String>,
}

/// What the linter said.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LintResult {
    /// Whether the program may be compiled.
    pub valid: bool,
    /// Why not.
    #[serde(default, deserialize_with = "null_as_default")]
    pub errors: Vec<String>,
    /// What it may be compiled in spite of.
    #[serde(default, deserialize_with = "null_as_default")]
    pub warnings: Vec<String>,
}

/// What the compiler said.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompileResult {
    /// Whether the program compiled.
    pub success: bool,
    /// Why not.
    #[serde(default)]
    pub error: Option<String>,
    /// Steps of the compiled plan.
    #[serde(default, deserialize_with = "null_as_default")]
    pub step_count: i32,
}

/// What a reviewer said of a log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Review {
    /// The verdict.
    pub rating: Rating,
    /// Who gave it.
    pub reviewer: Option<String>,
    /// In the reviewer's words.
    pub note: Option<String>,
    /// What the program should have been: training pairs take it instead of the log's own.
    pub corrected_dsl: Option<String>,
    /// When.
    pub reviewed_at: Timestamp,
}

/// A reviewer's verdict.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum Rating {
    /// To be learned from.
    Good,
    /// Not wrong.
    Acceptable,
    /// Not to be learned from.
    Poor,
}

/// For fields that name a record: the hash of a request leaves them out, while the OpenAPI document does not.
fn names_it<T>(_: &T) -> bool {
    true
}

/// Starts a log; with `success`, one that is finished already.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGeneration {
    /// Makes sending it again harmless; the server makes one if not given.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// What the user wanted, in natural language; not the whole prompt.
    #[schema(min_length = 1)]
    pub user_intent: String,
    /// Area of the language, such as `cbu`, `entity`, `document`.
    #[schema(min_length = 1, max_length = 50)]
    pub domain_name: String,
    /// The agent session it belongs to: erasing the session erases it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub session_id: Option<String>,
    /// The business unit the program is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub cbu_id: Option<String>,
    /// The model asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub model_used: Option<String>,
    /// The client's own object; empty if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FreeForm>,
    /// When the effort began; now, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Attempts already made.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<NewAttempt>,
    /// How it ended, for a log that is finished already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// The program that passed; that of the last attempt that passed, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_valid_dsl: Option<String>,
    /// Where the program was persisted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub instance_id: Option<String>,
}

impl NewGeneration {
    /// The program of a log that succeeded: the one given, else that of its last attempt that passed.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        let last_passed = || {
            let numbered = numbers(&self.iterations).into_iter().zip(&self.iterations);
            let passed = numbered.filter(|(_, attempt)| attempt.verdict().passed == Some(true));
            passed.max_by_key(|(number, _)| *number)?.1.extracted_dsl.as_deref()
        };
        self.final_valid_dsl.as_deref().or_else(last_passed).filter(|program| !program.is_empty())
    }

    /// How it ended, if it has, in the words of [`Outcome`].
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        Some(Outcome {
            success: self.success?,
            final_valid_dsl: self.final_valid_dsl.clone(),
            instance_id: self.instance_id.clone(),
            error: None,
        })
    }
}

impl Check for NewGeneration {
    fn check(&self, checks: &mut Checks) {
        checks.require(!self.user_intent.is_empty(), "user_intent", "must not be empty");
        checks.text("domain_name", &self.domain_name, 50);
        checks.name("session_id", self.session_id.as_deref());
        checks.name("cbu_id", self.cbu_id.as_deref());
        checks.name("model_used", self.model_used.as_deref());
        checks.name("instance_id", self.instance_id.as_deref());
        let (mut taken, mut ids) = (HashSet::new(), HashSet::new());
        let numbered = numbers(&self.iterations).into_iter().zip(&self.iterations);
        for (index, (number, attempt)) in numbered.enumerate() {
            checks.nested(&format!("iterations/{index}"), attempt);
            if !taken.insert(number) {
                checks.fail(&format!("iterations/{index}/attempt"), "an iteration before it has this number");
            }
            if attempt.id.is_some_and(|id| !ids.insert(id)) {
                checks.fail(&format!("iterations/{index}/id"), "an iteration before it has this id");
            }
        }
        match self.success {
            Some(true) => checks.require(self.program().is_some(), "final_valid_dsl", NO_PROGRAM),
            Some(false) | None => {
                checks.require(self.final_valid_dsl.is_none(), "final_valid_dsl", NOT_A_SUCCESS);
            }
        }
    }
}

/// The numbers of a log's iterations: their own, else the next one.
fn numbers(iterations: &[NewAttempt]) -> Vec<i32> {
    let next = |greatest: &mut i32, attempt: &NewAttempt| {
        let number = attempt.attempt.unwrap_or_else(|| greatest.saturating_add(1));
        *greatest = number.max(*greatest);
        Some(number)
    };
    iterations.iter().scan(0, next).collect()
}

/// Why a success without a program is refused.
pub const NO_PROGRAM: &str = "a success needs a program: no attempt passed and none is given";
const NOT_A_SUCCESS: &str = "only a success has a program that passed";

/// Appends an attempt. Every field may be left out.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAttempt {
    /// Makes sending it again harmless where it has no number.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// Number within the log, from 1; the next one if not given.
    #[serde(skip_serializing_if = "names_it")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub attempt: Option<i32>,
    /// When the model was asked; now, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// Name of the prompt template used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub prompt_template: Option<String>,
    /// Version of the template used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub prompt_template_version: Option<i32>,
    /// The whole prompt as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
    /// The whole response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_response: Option<String>,
    /// The program found in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extracted_dsl: Option<String>,
    /// What the parser said; null: it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parse_result: Option<ParseResult>,
    /// What the linter said; null: it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lint_result: Option<LintResult>,
    /// What the compiler said; null: it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_result: Option<CompileResult>,
    /// Time the model took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub latency_ms: Option<i32>,
    /// Tokens of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub input_tokens: Option<i32>,
    /// Tokens of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub output_tokens: Option<i32>,
    /// The client's own object; empty if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FreeForm>,
}

/// The greatest number that a client may give an attempt: behind it there is room for a thousand million next ones.
const GREATEST_NUMBER: i32 = 1_000_000_000;

impl Check for NewAttempt {
    fn check(&self, checks: &mut Checks) {
        checks.require(
            self.attempt.is_none_or(|number| (1..=GREATEST_NUMBER).contains(&number)),
            "attempt",
            "must be 1 to 1000000000",
        );
        checks.name("prompt_template", self.prompt_template.as_deref());
        checks.count("prompt_template_version", self.prompt_template_version);
        checks.count("latency_ms", self.latency_ms);
        checks.count("input_tokens", self.input_tokens);
        checks.count("output_tokens", self.output_tokens);
    }
}

/// Whether an attempt is one to learn from, and what was wrong with it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// True: it has a program, at least one stage ran and all that ran succeeded. False: it has one and a stage failed.
    pub passed: Option<bool>,
    /// Of a failed attempt: the first stage that failed.
    pub error_stage: Option<&'static str>,
    /// Of a failed attempt: what that stage said, if it said anything.
    pub error_message: Option<String>,
}

impl NewAttempt {
    /// Whether it passed, failed or neither, and the error of its first failing stage.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.extracted_dsl.as_deref().unwrap_or("").is_empty() {
            return Verdict::default();
        }
        let stages = [
            self.parse_result.as_ref().map(|parse| ("parse", parse.success, parse.error.clone())),
            self.lint_result.as_ref().map(|lint| ("lint", lint.valid, Some(lint.errors.join("\n")))),
            self.compile_result.as_ref().map(|compile| ("compile", compile.success, compile.error.clone())),
        ];
        let mut ran = stages.into_iter().flatten().peekable();
        if ran.peek().is_none() {
            return Verdict::default();
        }
        match ran.find(|(_, succeeded, _)| !succeeded) {
            None => Verdict { passed: Some(true), ..Verdict::default() },
            Some((stage, _, said)) => Verdict {
                passed: Some(false),
                error_stage: Some(stage),
                error_message: said.filter(|said| !said.is_empty()),
            },
        }
    }
}

/// Finalizes a log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Whether a program satisfied the intent.
    pub success: bool,
    /// That program; of the last attempt that passed, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_valid_dsl: Option<String>,
    /// Where it was persisted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub instance_id: Option<String>,
    /// Why the effort was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Check for Outcome {
    fn check(&self, checks: &mut Checks) {
        checks.name("instance_id", self.instance_id.as_deref());
        if self.success {
            checks.require(self.final_valid_dsl.as_deref() != Some(""), "final_valid_dsl", NO_PROGRAM);
        } else {
            checks.require(self.final_valid_dsl.is_none(), "final_valid_dsl", NOT_A_SUCCESS);
        }
    }
}

/// Reviews a log; a later review replaces it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewReview {
    /// The verdict.
    pub rating: Rating,
    /// Who gives it.
    #[schema(min_length = 1, max_length = 200)]
    pub reviewer: Option<String>,
    /// In the reviewer's words.
    pub note: Option<String>,
    /// What the program should have been.
    #[schema(min_length = 1)]
    pub corrected_dsl: Option<String>,
}

impl Check for NewReview {
    fn check(&self, checks: &mut Checks) {
        checks.name("reviewer", self.reviewer.as_deref());
        checks.require(self.corrected_dsl.as_deref() != Some(""), "corrected_dsl", "must not be empty");
    }
}

/// Something that happens to a log, as the writer takes it: validated, with its id and times made.
#[derive(Debug)]
pub struct Event {
    /// The log.
    pub generation_id: Uuid,
    /// What happens to it.
    pub action: Action,
}

/// What happens to a log.
#[derive(Debug)]
pub enum Action {
    /// It begins.
    Start(Box<Start>),
    /// An attempt is made.
    Append(Box<Append>),
    /// It ends.
    Finalize {
        /// How.
        outcome: Outcome,
        /// Of the request.
        hash: Vec<u8>,
    },
    /// Somebody judges it.
    Review {
        /// The judgement.
        review: NewReview,
        /// When.
        at: Timestamp,
    },
}

/// A log that begins.
#[derive(Debug)]
pub struct Start {
    /// The request.
    pub new: NewGeneration,
    /// When it began.
    pub created_at: Timestamp,
    /// Of the request.
    pub hash: Vec<u8>,
    /// Of the request to finalize it that the request stands for.
    pub outcome_hash: Option<Vec<u8>>,
    /// Its iterations, numbered.
    pub attempts: Vec<Append>,
}

/// An attempt that is made.
#[derive(Debug)]
pub struct Append {
    /// Names it in its log.
    pub id: Uuid,
    /// Whether the client chose the id, so that it may be there already.
    pub id_given: bool,
    /// Its number; the next one if none.
    pub number: Option<i32>,
    /// When the model was asked.
    pub timestamp: Timestamp,
    /// The request.
    pub new: NewAttempt,
    /// What the request says of itself.
    pub verdict: Verdict,
    /// Of the request.
    pub hash: Vec<u8>,
}

impl Event {
    /// A log begins. `id` is the request's own or one derived for it; without either the server makes one.
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

    /// An attempt is made. `id` as for [`Event::start`].
    #[must_use]
    pub fn append(generation_id: Uuid, new: NewAttempt, id: Option<Uuid>) -> Self {
        Self { generation_id, action: Action::Append(Box::new(Append::new(new, id))) }
    }

    /// A log ends.
    #[must_use]
    pub fn finalize(generation_id: Uuid, outcome: Outcome) -> Self {
        let hash = request_hash(&outcome);
        Self { generation_id, action: Action::Finalize { outcome, hash } }
    }

    /// Somebody judges a log.
    #[must_use]
    pub fn review(generation_id: Uuid, review: NewReview) -> Self {
        Self { generation_id, action: Action::Review { review, at: Timestamp::now() } }
    }
}

impl Start {
    /// The open log `id` as it is once stored.
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
            user_intent: new.user_intent.clone(),
            domain_name: new.domain_name.clone(),
            session_id: new.session_id.clone(),
            cbu_id: new.cbu_id.clone(),
            instance_id: new.instance_id.clone(),
            model_used: new.model_used.clone(),
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
    /// The attempt as it is once stored under `number`.
    #[must_use]
    pub fn stored(&self, number: i32) -> Attempt {
        let new = &self.new;
        Attempt {
            id: self.id,
            attempt: number,
            timestamp: self.timestamp,
            prompt_template: new.prompt_template.clone(),
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
