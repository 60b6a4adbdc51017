//! Generation logs (seed 001). A log starts with an intent, attempts to turn it into a program are appended,
//! and the log is finalized as a success or a failure. Finalized logs are evidence: training pairs,
//! correction pairs and similar examples are made of them.
//!
//! This file says what a log is, `attempt` what an attempt is, and `event` what can happen to a log.
//! [`write`](mod@write) and [`store`] write and read logs, and [`routes`] has the endpoints. [`analytics`],
//! [`exports`], [`similar`] and [`templates`] serve what is made of them.

pub mod analytics;
mod append;
mod attempt;
pub mod event;
pub mod exports;
mod pairs;
pub mod routes;
pub mod rules;
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
use crate::types::{FreeForm, OptionalName, Timestamp, names_it};

/// A generation log: an intent, the attempts to satisfy it, and the outcome.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Generation {
    /// The log's id, unique within its project.
    pub id: Uuid,
    /// What the user wanted, in natural language. Null if the project stores no text.
    pub user_intent: Option<String>,
    /// The area that the program belongs to, such as `cbu`, `entity` or `document`.
    pub domain_name: String,
    /// The name of the agent session that the log belongs to.
    pub session_id: Option<String>,
    /// The id of the business unit that the program is about.
    pub cbu_id: Option<String>,
    /// The id of the instance in which the program was persisted.
    pub instance_id: Option<String>,
    /// The model that was called.
    pub model_used: Option<String>,
    /// The client's own data about the log.
    pub metadata: FreeForm,
    /// When the log began.
    pub created_at: Timestamp,
    /// Whether a program satisfied the intent. Null while the log is open.
    pub success: Option<bool>,
    /// The program that satisfied the intent. Null if the log did not succeed, or if the project stores no text.
    pub final_valid_dsl: Option<String>,
    /// Why the client gave up, if it gave a reason.
    pub error: Option<String>,
    /// When the log was finalized.
    pub completed_at: Option<Timestamp>,
    /// The number of attempts.
    pub total_attempts: i64,
    /// The total latency of all attempts, in milliseconds.
    pub total_latency_ms: i64,
    /// The total number of prompt tokens of all attempts.
    pub total_input_tokens: i64,
    /// The total number of response tokens of all attempts.
    pub total_output_tokens: i64,
    /// The latest review of the log.
    #[sqlx(json(nullable))]
    pub review: Option<Review>,
    /// The attempts, ordered by number. Lists leave them out.
    #[sqlx(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<Vec<Attempt>>,
}

/// A review of a log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Review {
    /// The reviewer's verdict.
    pub rating: Rating,
    /// Who reviewed the log.
    pub reviewer: Option<String>,
    /// The reviewer's remarks.
    pub note: Option<String>,
    /// The corrected program. Training pairs use it instead of the log's own program.
    pub corrected_dsl: Option<String>,
    /// When the review was received.
    pub reviewed_at: Timestamp,
}

/// A reviewer's rating.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum Rating {
    /// The log is a good example to learn from.
    Good,
    /// The log is not wrong.
    Acceptable,
    /// The log should not be learned from.
    Poor,
}

/// Starts a generation log. A body with `success` is a log that is already finished.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGeneration {
    /// The log's id, which makes it safe to send the request again. By default, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// What the user wanted, in natural language. This is not the whole prompt.
    #[schema(min_length = 1)]
    pub user_intent: String,
    /// The area that the program belongs to, such as `cbu`, `entity` or `document`.
    #[schema(min_length = 1, max_length = 50)]
    pub domain_name: String,
    /// The name of the agent session that the log belongs to. Erasing the session erases the log.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub session_id: OptionalName,
    /// The id of the business unit that the program is about.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub cbu_id: OptionalName,
    /// The model that was called.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub model_used: OptionalName,
    /// The client's own data about the log. The default is an empty object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FreeForm>,
    /// When the log began. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// The attempts already made.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<NewAttempt>,
    /// Whether a program satisfied the intent. Only a log that is already finished has this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// The program that satisfied the intent. The default is that of the last attempt that passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_valid_dsl: Option<String>,
    /// The id of the instance in which the program was persisted.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub instance_id: OptionalName,
}

/// The maximum number of attempts of a log, of which its pairs are made in one statement: as many as the arrays of a body may
/// have. Those that are added together may go a little beyond it.
const MOST_ATTEMPTS: usize = 20_000;

impl NewGeneration {
    /// Returns the program of a log that succeeded: the one given, or that of the last attempt that passed.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        let last_passed = || {
            let numbered = numbers(&self.iterations).into_iter().zip(&self.iterations);
            let passed = numbered.filter(|(_, attempt)| attempt.verdict().passed == Some(true));
            passed.max_by_key(|(number, _)| *number)?.1.extracted_dsl.as_deref()
        };
        self.final_valid_dsl.as_deref().or_else(last_passed).filter(|program| !program.trim().is_empty())
    }

    /// Returns how the log ended, if it has, as a request to finalize it would say it.
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
                checks
                    .fail(&format!("iterations/{index}/attempt"), "an earlier iteration has the same number");
            }
            if attempt.id.is_some_and(|id| !ids.insert(id)) {
                checks.fail(&format!("iterations/{index}/id"), "an earlier iteration has the same id");
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

/// Returns the numbers of a log's attempts: the ones given, or the next one each.
fn numbers(iterations: &[NewAttempt]) -> Vec<i32> {
    let next = |greatest: &mut i32, attempt: &NewAttempt| {
        let number = attempt.attempt.unwrap_or_else(|| greatest.saturating_add(1));
        *greatest = number.max(*greatest);
        Some(number)
    };
    iterations.iter().scan(0, next).collect()
}

/// The error message for a success without a program.
pub const NO_PROGRAM: &str = "a success needs a program: no attempt passed and none is given";
const NOT_A_SUCCESS: &str = "only a success has a program that passed";

/// Finalizes a generation log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GenerationOutcome)]
pub struct Outcome {
    /// Whether a program satisfied the intent.
    pub success: bool,
    /// The program that satisfied the intent. The default is that of the last attempt that passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_valid_dsl: Option<String>,
    /// The id of the instance in which the program was persisted.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub instance_id: OptionalName,
    /// Why the client gave up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Check for Outcome {
    fn check(&self, checks: &mut Checks) {
        checks.name("instance_id", self.instance_id.as_deref());
        if self.success {
            let is_blank = self.final_valid_dsl.as_deref().is_some_and(|program| program.trim().is_empty());
            checks.require(!is_blank, "final_valid_dsl", NO_PROGRAM);
        } else {
            checks.require(self.final_valid_dsl.is_none(), "final_valid_dsl", NOT_A_SUCCESS);
        }
    }
}

/// Reviews a generation log. A later review replaces an earlier one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewReview {
    /// The reviewer's verdict.
    pub rating: Rating,
    /// Who reviews the log.
    #[serde(default)]
    pub reviewer: OptionalName,
    /// The reviewer's remarks.
    pub note: Option<String>,
    /// The corrected program.
    #[schema(min_length = 1)]
    pub corrected_dsl: Option<String>,
}

impl Check for NewReview {
    fn check(&self, checks: &mut Checks) {
        checks.name("reviewer", self.reviewer.as_deref());
        let is_blank = self.corrected_dsl.as_deref().is_some_and(|program| program.trim().is_empty());
        checks.require(!is_blank, "corrected_dsl", "must not be blank");
    }
}

/// Sets fields of an open or finalized log that became known later. At least one field must be given. A field in the
/// body replaces the log's value, and `metadata` is replaced as a whole. Other fields stay as they are.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GenerationAmendment)]
pub struct Amendment {
    /// The id of the instance in which the program was persisted.
    #[serde(default)]
    pub instance_id: OptionalName,
    /// The id of the business unit that the program is about.
    #[serde(default)]
    pub cbu_id: OptionalName,
    /// The client's own data about the log.
    pub metadata: Option<FreeForm>,
}

impl Check for Amendment {
    fn check(&self, checks: &mut Checks) {
        checks.name("instance_id", self.instance_id.as_deref());
        checks.name("cbu_id", self.cbu_id.as_deref());
        let says_something = self.instance_id.is_some() || self.cbu_id.is_some() || self.metadata.is_some();
        checks.require(says_something, "instance_id", "must be given unless cbu_id or metadata is");
    }
}

crate::texts! {
    NewGeneration: user_intent, domain_name, cbu_id, model_used, metadata, iterations, final_valid_dsl,
        instance_id | session_id;
    Outcome: final_valid_dsl, instance_id, error;
    NewReview: reviewer, note, corrected_dsl;
    Amendment: instance_id, cbu_id, metadata;
}
