//! An attempt: one call of the model for a log, and whether what came of it is to be learned from.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::names_it;
use crate::http::{Check, Checks, null_as_default};
use crate::types::{FreeForm, Timestamp};

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
