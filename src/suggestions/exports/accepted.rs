//! Accepted suggestions: the prompt, and what the user chose from the slate.

use std::borrow::Cow;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::slates::{
    BY_CONTEXT, BY_REQUEST, CONTEXT, INPUT, METADATA, MatchTypes, Metadata, REQUEST, SLATES, SOURCE, TEXTS,
    Texts, WITHOUT_TEXT, kinds, object, on_one_line, push_conditions,
};
use crate::exports::chat::Message;
use crate::exports::format::{Example, Shape};
use crate::exports::groups::Comparison;
use crate::exports::params::Common;
use crate::exports::schema;
use crate::exports::selection::Selection;
use crate::exports::split::{self, Contents, Split};
use crate::exports::text::{QuestionAndAnswer, Text};
use crate::exports::{Dataset, Described, Description, Lines, RowKey, Told};
use crate::http::{Checks, flag};
use crate::suggestions::MatchType;

/// The parameters of accepted suggestions.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct AcceptedSuggestions {
    /// How the submitted text relates to the slate: exact, partial, prefix or none, or several of these separated by
    /// commas. The default is exact.
    #[arg(long, value_name = "KINDS")]
    #[param(value_type = Option<String>, pattern = r"^(exact|partial|prefix|none)(,(exact|partial|prefix|none))*$",
        example = "exact,partial")]
    match_type: Option<MatchTypes>,
    /// Only records whose slate was made by this version of the prompt or node.
    #[arg(long, value_name = "NAME")]
    suggestion_node_version: Option<String>,
    /// Whether texts that users typed themselves are exported too. If match_type is not given, this adds texts that
    /// match in part or not at all.
    #[arg(long)]
    #[serde(deserialize_with = "flag")]
    include_typed: bool,
    /// What the question of a row consists of. The default is the request.
    #[arg(long)]
    #[param(inline)]
    prompt: Option<Prompt>,
}

/// What the question of a row consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Prompt {
    /// The messages of `llm_request`. Without `llm_request`, the context.
    #[default]
    Request,
    /// The context, as one message of the user.
    Context,
}

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    #[schema(value_type = Option<Object>)]
    context: Option<Cow<'a, RawValue>>,
    prompt: Vec<Message<'a>>,
    accepted: &'a str,
    accepted_index: Option<i32>,
    match_type: MatchType,
    suggestion_id: Uuid,
}

impl Described for AcceptedSuggestions {
    const DESCRIPTION: Description = Description {
        name: "accepted-suggestions",
        summary: "The prompts of slates, and the suggestions that users accepted.",
        notes: "By default, only exact matches are exported; for other match types, the answer is what the user typed. With \
            `prompt=context`, the question is the context instead of the request. `raw` always has the context.",
        shapes: &[Shape::Answer, Shape::Raw],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata>),
        split: Split::ByTexts(&SOURCE),
        tables: &["suggestions"],
        count: None,
        skipped: Some(WITHOUT_TEXT),
    };
}

impl Dataset for AcceptedSuggestions {
    fn check(&self, _: Shape, checks: &mut Checks) {
        MatchTypes::check_typed(self.match_type.as_ref(), self.include_typed, checks);
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, _: Shape) {
        let equal = match self.prompt.unwrap_or_default() {
            Prompt::Request => "older.state = 'finalized' and older.example_hash = s.example_hash",
            Prompt::Context => {
                "older.state = 'finalized' and older.context_example_hash = s.context_example_hash"
            }
        };
        let rows = Selection { equal, answer: Some(INPUT), comparison: self.comparison(), ..SLATES };
        common.push_selection(query, &rows, |query| self.push_conditions(query, common));
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["s.completed_at", "s.id", "0"]
    }

    fn columns(&self, common: &Common, _: Shape) -> String {
        let metadata = if common.with_metadata() { METADATA } else { ", s.match_type, s.accepted_index" };
        format!("{TEXTS}{metadata}")
    }

    fn told(&self, _: Shape) -> Told {
        match self.prompt.unwrap_or_default() {
            Prompt::Request => Told::Request,
            Prompt::Context => Told::Intent,
        }
    }

    fn texts(&self, _: Shape) -> Option<QuestionAndAnswer> {
        Some([(self.question(), None), (INPUT, Some("actual_input"))])
    }

    fn comparison(&self) -> Option<&'static Comparison> {
        Some(match self.prompt.unwrap_or_default() {
            Prompt::Request => &BY_REQUEST,
            Prompt::Context => &BY_CONTEXT,
        })
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let texts = Texts::of(row)?;
        let prompt = match self.prompt.unwrap_or_default() {
            Prompt::Request => texts.prompt(),
            Prompt::Context => texts.context_as_prompt(),
        }
        .with_system(common.system.as_deref());
        let answer = texts.input;
        let example = match lines.shape() {
            Shape::Raw => Example::Raw(Raw {
                context: on_one_line(object(row, "context")?)?,
                prompt: prompt.messages,
                accepted: answer,
                accepted_index: row.try_get("accepted_index")?,
                match_type: row.try_get("match_type")?,
                suggestion_id: key.record_id,
            }),
            _ => Example::Answer { prompt, answer },
        };
        lines.write(example, Metadata::of(row, key, common)?)
    }
}

impl AcceptedSuggestions {
    fn question(&self) -> Text<'static> {
        match self.prompt.unwrap_or_default() {
            Prompt::Request => REQUEST,
            Prompt::Context => CONTEXT,
        }
    }

    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common) {
        query.push(" and s.example_hash is not null");
        let kinds = kinds(self.match_type.as_ref(), self.include_typed);
        let texts = split::Texts {
            domain: SOURCE.domain,
            record: "s.id",
            question: self.question(),
            answer: INPUT,
            exported: INPUT.sql,
            completed_at: "s.completed_at",
            others: "",
        };
        let version = self.suggestion_node_version.as_deref();
        push_conditions(query, Some(&kinds), version, common, Contents::Texts(texts));
    }
}
