//! An attempt: one call of the model for a generation log, and whether it is evidence to learn from.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::names_it;
use crate::http::{Check, Checks, null_as_default};
use crate::types::{FreeForm, OptionalName, Timestamp};

/// One call of the model, and the results of the parser, linter and compiler for its program.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Attempt {
    /// The attempt's id, unique within its log.
    pub id: Uuid,
    /// The attempt's number within the log, from 1.
    pub attempt: i32,
    /// When the model was called.
    pub timestamp: Timestamp,
    /// The name of the prompt template used.
    pub prompt_template: Option<String>,
    /// The version of the prompt template used.
    pub prompt_template_version: Option<i32>,
    /// The whole prompt as it was sent.
    pub prompt_text: Option<String>,
    /// The model's whole response.
    pub raw_response: Option<String>,
    /// The program found in the response.
    pub extracted_dsl: Option<String>,
    /// The parser's result. Null if it did not run.
    #[sqlx(json(nullable))]
    pub parse_result: Option<ParseResult>,
    /// The linter's result. Null if it did not run.
    #[sqlx(json(nullable))]
    pub lint_result: Option<LintResult>,
    /// The compiler's result. Null if it did not run.
    #[sqlx(json(nullable))]
    pub compile_result: Option<CompileResult>,
    /// How long the model took, in milliseconds.
    pub latency_ms: Option<i32>,
    /// The number of tokens in the prompt.
    pub input_tokens: Option<i32>,
    /// The number of tokens in the response.
    pub output_tokens: Option<i32>,
    /// The client's own data about the attempt.
    pub metadata: FreeForm,
}

/// The parser's result.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseResult {
    /// Whether the program parsed.
    pub success: bool,
    /// Why the program did not parse.
    #[serde(default)]
    pub error: Option<String>,
}

/// The linter's result.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LintResult {
    /// Whether the program has no lint errors, so that it may be compiled.
    pub valid: bool,
    /// The errors because of which the program must not be compiled.
    #[serde(default, deserialize_with = "null_as_default")]
    pub errors: Vec<String>,
    /// Warnings that do not prevent compilation.
    #[serde(default, deserialize_with = "null_as_default")]
    pub warnings: Vec<String>,
}

/// The compiler's result.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompileResult {
    /// Whether the program compiled.
    pub success: bool,
    /// Why the program did not compile.
    #[serde(default)]
    pub error: Option<String>,
    /// The number of steps of the compiled plan.
    #[serde(default, deserialize_with = "null_as_default")]
    pub step_count: i32,
}

/// An attempt to append to a log. Every field is optional.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAttempt {
    /// The attempt's id. It makes it safe to send a request without an attempt number again.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The attempt's number within the log, from 1. The default is the next number.
    #[serde(skip_serializing_if = "names_it")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub attempt: Option<i32>,
    /// When the model was called. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// The name of the prompt template used.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub prompt_template: OptionalName,
    /// The version of the prompt template used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub prompt_template_version: Option<i32>,
    /// The whole prompt as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
    /// The model's whole response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_response: Option<String>,
    /// The program found in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extracted_dsl: Option<String>,
    /// The parser's result. Null if it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parse_result: Option<ParseResult>,
    /// The linter's result. Null if it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lint_result: Option<LintResult>,
    /// The compiler's result. Null if it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_result: Option<CompileResult>,
    /// How long the model took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub latency_ms: Option<i32>,
    /// The number of tokens in the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub input_tokens: Option<i32>,
    /// The number of tokens in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub output_tokens: Option<i32>,
    /// The client's own data about the attempt. The default is an empty object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FreeForm>,
}

/// The greatest number that a client may give an attempt. It leaves room for a thousand million more after
/// it.
const GREATEST_NUMBER: i32 = 1_000_000_000;

impl Check for NewAttempt {
    fn check(&self, checks: &mut Checks) {
        checks.require(
            self.attempt.is_none_or(|number| (1..=GREATEST_NUMBER).contains(&number)),
            "attempt",
            "must be from 1 to 1000000000",
        );
        checks.name("prompt_template", self.prompt_template.as_deref());
        checks.count("prompt_template_version", self.prompt_template_version);
        checks.count("latency_ms", self.latency_ms);
        checks.count("input_tokens", self.input_tokens);
        checks.count("output_tokens", self.output_tokens);
    }
}

/// Whether an attempt passed or failed, and why it failed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// True if the attempt has a program, at least one stage ran, and every stage that ran succeeded. False
    /// if it has a program and a stage failed. None otherwise: the attempt teaches nothing.
    pub passed: Option<bool>,
    /// The first stage that failed.
    pub error_stage: Option<&'static str>,
    /// The message of the first stage that failed, if it gave one.
    pub error_message: Option<String>,
}

impl NewAttempt {
    /// Judges the attempt by its program and by what parser, linter and compiler said.
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

crate::texts! {
    NewAttempt: prompt_template, prompt_text, raw_response, extracted_dsl, parse_result, lint_result, compile_result, metadata;
    ParseResult: error;
    LintResult: errors, warnings;
    CompileResult: error;
}
