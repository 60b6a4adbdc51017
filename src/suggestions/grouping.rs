//! The properties by which figures of suggestion records are grouped.

use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer};
use sqlx::{Postgres, QueryBuilder};
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// What stands before the name of a parameter of the model.
const PARAMETER: &str = "llm:";

/// What statistics are grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupBy {
    /// A property that every record can have.
    Property(Property),
    /// A member of the request to the model, such as `max_tokens` or `top_p`.
    Parameter(String),
}

/// A property that every record can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Property {
    /// The version of the prompt or node.
    Version,
    /// The model that answered.
    Model,
    /// The model's temperature.
    Temperature,
    /// The number of blocks in the context.
    ContextBlockCount,
    /// The agent session.
    Session,
    /// The server that the session runs on.
    Server,
    /// The number of tokens of the prompt.
    PromptTokens,
    /// The number of tokens of the response.
    CompletionTokens,
}

impl Property {
    fn column(self) -> &'static str {
        match self {
            Self::Version => "s.suggestion_node_version",
            Self::Model => "s.model",
            Self::Temperature => "s.temperature",
            Self::ContextBlockCount => "s.context_block_count",
            Self::Session => "s.session_name",
            Self::Server => "s.server_name",
            Self::PromptTokens => "s.prompt_tokens",
            Self::CompletionTokens => "s.completion_tokens",
        }
    }
}

impl GroupBy {
    /// Adds the expression of the value that the record `s` has, as `jsonb`. A parameter whose value is long counts as one
    /// that was not given: a value such as all messages would make each record a group of its own.
    pub(super) fn push_value(&self, query: &mut QueryBuilder<Postgres>) {
        match self {
            Self::Property(property) => {
                query.push(format_args!("to_jsonb({})", property.column()));
            }
            Self::Parameter(name) => {
                query.push("(select nullif(own::jsonb, 'null') from (select s.llm_request -> ");
                query.push_bind(name.clone()).push("::text as own) given where length(own::text) <= 200)");
            }
        }
    }
}

impl<'de> Deserialize<'de> for GroupBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.strip_prefix(PARAMETER) {
            Some("") => Err(serde::de::Error::custom("llm: must be followed by the name of a parameter")),
            Some(name) => Ok(Self::Parameter(name.to_owned())),
            None => Property::deserialize(text.into_deserializer()).map(Self::Property),
        }
    }
}

impl PartialSchema for GroupBy {
    fn schema() -> RefOr<Schema> {
        let parameter = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some(format!("^{PARAMETER}.+$")))
            .description(Some("A parameter of the request to the model, such as `llm:max_tokens`."));
        AnyOfBuilder::new().item(Property::schema()).item(parameter).into()
    }
}

impl ToSchema for GroupBy {}
