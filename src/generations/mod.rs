//! Generation logs (seed 001): an intent is started, attempts to turn it into a program are appended, and the log is
//! finalized as a success or a failure. What was finalized is evidence: training pairs, correction pairs, similar examples.
//!
//! Here is what a log is, in `attempt` what an attempt is, in `event` what can happen to a log; [`store`] and [`write`](mod@write)
//! are how it is kept, [`routes`] how it is reached, [`analytics`], [`similar`] and [`templates`] what it serves besides.

pub mod analytics;
mod attempt;
pub mod event;
pub mod exports;
pub mod routes;
pub mod similar;
pub mod store;
mod tables;
pub mod templates;
pub mod write;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use attempt::{Attempt, CompileResult, LintResult, NewAttempt, ParseResult, Verdict};
pub use event::{Action, Append, Event, Start};

use crate::http::{Check, Checks, null_as_default};
use crate::types::{FreeForm, Timestamp, names_it};

/// A generation log: an intent, and how the effort to satisfy it went.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Generation {
    /// Names the log in its project.
    pub id: Uuid,
    /// What the user wanted, in natural language; null where no text is kept.
    pub user_intent: Option<String>,
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
    /// The program that passed; null unless it succeeded, and where no text is kept.
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

/// Finalizes a log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GenerationOutcome)]
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
