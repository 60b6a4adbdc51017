//! The redaction settings of a project.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};

use super::builtin::{BUILTIN, SECRETS};
use super::expression::Expression;
use super::{Redactor, processor_time};
use crate::error::{Error, Result};
use crate::http::{Check, Checks, null_as_default};
use crate::privacy::hash_key::HashKey;
use crate::sharing::apart;

/// The processor time within which a project's expressions must be compiled. Most take less than a millisecond each, but one
/// that combines large sets of characters may take seconds, however small its result is.
const COMPILING: Duration = Duration::from_secs(1);

/// The reason why expressions are refused that take longer.
const LATE: &str = "it takes too long to compile, with those before it";

/// The maximum number of custom rules that a project may have.
const MOST_RULES: usize = 50;

/// The redaction rules, which replace parts of texts before anything is stored: built-in rules and the project's own
/// rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RedactRules {
    /// The built-in rules that apply: `secrets` (keys, tokens and passwords), `emails`, `ips` and `home-paths` (the names of
    /// users in paths). The default is `secrets` alone, and an empty list turns all of them off.
    #[serde(deserialize_with = "some_or_default")]
    #[schema(schema_with = builtin_schema)]
    pub builtin: Vec<String>,
    /// The project's own rules, at most 50.
    #[serde(deserialize_with = "null_as_default")]
    #[schema(max_items = 50)]
    pub custom: Vec<CustomRule>,
    /// Whether a replacement ends in a keyed hash of what it replaces, such as `[redacted:secrets:1f0c22aa]`, so that equal
    /// secrets can be recognized.
    #[serde(deserialize_with = "null_as_default")]
    pub tag: bool,
}

/// A redaction rule of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomRule {
    /// The name that replacements show. It consists of lowercase letters, digits and `-`.
    #[schema(min_length = 1, max_length = 50, pattern = "^[a-z0-9-]+$", example = "ticket")]
    pub name: String,
    /// A regular expression in the syntax of the Rust crate `regex`, which matches in linear time. If it has groups,
    /// only the first group is replaced. It has at most three groups.
    #[schema(min_length = 1, max_length = 1000, example = "ACME-[0-9]+")]
    pub regex: String,
}

impl Default for RedactRules {
    fn default() -> Self {
        Self { builtin: vec![SECRETS.to_owned()], custom: Vec::new(), tag: false }
    }
}

/// Describes [`RedactRules::builtin`] with the names of the built-in rules.
fn builtin_schema() -> Schema {
    let name = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(BUILTIN));
    let description = "The built-in rules that apply: `secrets` (keys, tokens and passwords), `emails`, `ips` and `home-paths` (the \
        names of users in paths). The default is `secrets` alone, and an empty list turns all of them off.";
    let names = ArrayBuilder::new().items(name).description(Some(description));
    let default = serde_json::json!(RedactRules::default().builtin);
    names.examples([serde_json::json!(["secrets", "emails"])]).default(Some(default)).into()
}

fn some_or_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(|| RedactRules::default().builtin))
}

impl RedactRules {
    /// Makes a redactor of the rules. `key` makes tags. Fails with the number of a custom rule whose expression is
    /// invalid, and the reason.
    fn redactor(&self, key: &HashKey) -> Result<Redactor, (usize, String)> {
        let builtin: Vec<_> = self.builtin.iter().map(String::as_str).collect();
        let custom: Vec<_> =
            self.custom.iter().map(|rule| (rule.name.as_str(), rule.regex.as_str())).collect();
        Redactor::new(&builtin, &custom, self.tag.then(|| key.clone()))
    }

    /// Makes a redactor of the rules on a thread that serves no requests, because expressions take milliseconds each. `key`
    /// makes tags. Fails with the number of a custom rule whose expression is invalid, and the reason.
    pub async fn redactor_apart(
        &self,
        project: &Arc<str>,
        key: &HashKey,
    ) -> Result<Redactor, (usize, String)> {
        if self.custom.is_empty() {
            return self.redactor(key);
        }
        let (rules, key) = (self.clone(), key.clone());
        apart(project, move || rules.redactor(&key)).await
    }

    /// Checks that the expressions are valid, and that they do not take long to compile together, which a server does again
    /// when it starts.
    pub async fn check_expressions(&self, project: &Arc<str>) -> Result<()> {
        if self.custom.is_empty() {
            return Ok(());
        }
        let rules = self.clone();
        let checked = apart(project, move || rules.compile_within(COMPILING));
        checked.await.map_err(|(number, detail)| {
            let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
            Error::invalid(
                format!("/redact/custom/{number}/regex"),
                format!("is not a valid expression: {detail}"),
            )
        })
    }

    /// Compiles the expressions to see whether they can be used. Fails with the number of the first that is invalid, or with
    /// which they have taken more processor time than `limit` together, and the reason.
    pub(super) fn compile_within(&self, limit: Duration) -> Result<(), (usize, String)> {
        let begun = processor_time();
        self.custom.iter().enumerate().try_for_each(|(number, rule)| {
            let detail = match Expression::custom(&rule.regex) {
                Err(detail) => detail,
                Ok(_) if processor_time().saturating_sub(begun) > limit => LATE.to_owned(),
                Ok(_) => return Ok(()),
            };
            Err((number, detail))
        })
    }
}

impl Check for RedactRules {
    fn check(&self, checks: &mut Checks) {
        for (number, name) in self.builtin.iter().enumerate() {
            let known = BUILTIN.contains(&name.as_str());
            checks.require(known, &format!("builtin/{number}"), "must be secrets, emails, ips or home-paths");
        }
        checks.require(self.custom.len() <= MOST_RULES, "custom", "has more than 50 rules");
        for (number, rule) in self.custom.iter().enumerate() {
            let fits = (1..=50).contains(&rule.name.len())
                && rule
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            checks.require(
                fits,
                &format!("custom/{number}/name"),
                "must have 1 to 50 characters, each one of a-z, 0-9 and '-'",
            );
            checks.text(&format!("custom/{number}/regex"), &rule.regex, 1000);
        }
    }
}
