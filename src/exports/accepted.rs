//! Accepted suggestions: what the model was told, and what the user made of the slate.

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::IntoParams;
use uuid::Uuid;

use super::format::{self, Alpaca, Example, Format, Message};
use super::params::Common;
use super::slates::{METADATA, MatchTypes, Metadata, TEXTS, Texts, kinds, push_conditions};
use super::{Key, Records};
use crate::http::{Check, Checks};
use crate::suggestions::MatchType;

/// Which accepted suggestions.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct AcceptedSuggestions {
    /// How what was submitted relates to the slate: exact, partial, prefix or none, separated by commas; exact if not
    /// given.
    #[arg(long, value_name = "KINDS")]
    #[param(value_type = Option<String>)]
    match_type: Option<MatchTypes>,
    /// Version of the prompt or node that made the slate.
    #[arg(long, value_name = "NAME")]
    suggestion_node_version: Option<String>,
    /// Whether what a user typed himself is learned from too: partial and none, if match_type is not given.
    #[arg(long)]
    include_typed: bool,
}

impl Check for AcceptedSuggestions {
    fn check(&self, checks: &mut Checks) {
        MatchTypes::check_typed(self.match_type.as_ref(), self.include_typed, checks);
    }
}

#[derive(Serialize)]
struct Raw<'a> {
    prompt: &'a [Message<'a>],
    accepted: &'a str,
    accepted_index: Option<i32>,
    match_type: MatchType,
    suggestion_id: Uuid,
}

impl Records for AcceptedSuggestions {
    const NAME: &'static str = "accepted-suggestions";
    const FORMATS: &'static [Format] =
        &[Format::Openai, Format::TrlPromptCompletion, Format::Alpaca, Format::Raw];

    const SKIPPED: Option<&'static str> = Some(
        "select count(*) from suggestions
        where project = $1 and state = 'finalized' and slate_hash is null and (match_type = 'exact' or match_type is null)",
    );

    fn check(&self, _: Format, _: &mut Checks) {}

    fn from(&self, query: &mut QueryBuilder<Postgres>, project: &str, common: &Common, _: Format) {
        query.push(" from suggestions s where s.project = ").push_bind(project.to_owned());
        self.push_conditions(query, common);
        if common.is_exact() {
            query.push(" and not exists (select from (select s.* from suggestions s where s.project = ");
            query.push_bind(project.to_owned());
            self.push_conditions(query, common);
            query.push(") older where older.example_hash = s.example_hash");
            query.push(" and (older.completed_at, older.id) < (s.completed_at, s.id))");
        }
    }

    fn key(&self) -> [&'static str; 3] {
        ["s.completed_at", "s.id", "0"]
    }

    fn columns(&self, common: &Common, _: Format) -> String {
        let metadata = if common.with_metadata() { METADATA } else { ", s.match_type, s.accepted_index" };
        format!("{TEXTS}{metadata}")
    }

    fn write(
        &self,
        row: &PgRow,
        key: Key,
        common: &Common,
        format: Format,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let texts = Texts::of(row)?;
        let metadata = Metadata::of(row, key, common)?;
        let example = Example { prompt: texts.prompt(), rejected: None, chosen: texts.input };
        if format == Format::Alpaca {
            // Some slates have a system message and others none: the same keys on every row.
            let alpaca = example.alpaca();
            let system = Some(alpaca.system.unwrap_or_default());
            return Ok(format::write(out, Alpaca { system, ..alpaca }, metadata)?);
        }
        let raw = Raw {
            prompt: &example.prompt,
            accepted: texts.input,
            accepted_index: row.try_get("accepted_index")?,
            match_type: row.try_get("match_type")?,
            suggestion_id: key.id,
        };
        Ok(example.write(out, format, metadata, raw)?)
    }
}

impl AcceptedSuggestions {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common) {
        query.push(" and s.example_hash is not null");
        let kinds = kinds(self.match_type.as_ref(), self.include_typed);
        push_conditions(query, Some(&kinds), self.suggestion_node_version.as_deref(), common);
    }
}
