//! Preference pairs: what a user submitted, over suggestions that he had seen and passed over. The write that finalizes a
//! record has noted which texts these are; here they are only read.

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::IntoParams;
use uuid::Uuid;

use super::format::{self, Example, Format, Message, Rejected};
use super::params::Common;
use super::slates::{METADATA, MatchTypes, Metadata, TEXTS, Texts, kinds, push_conditions};
use super::{Key, Records};
use crate::http::{Check, Checks};
use crate::suggestions::MatchType;

/// Which preference pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct PreferencePairs {
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

impl Check for PreferencePairs {
    fn check(&self, checks: &mut Checks) {
        MatchTypes::check_typed(self.match_type.as_ref(), self.include_typed, checks);
    }
}

#[derive(Serialize)]
struct Raw<'a> {
    prompt: &'a [Message<'a>],
    chosen: &'a str,
    rejected: &'a str,
    chosen_index: Option<i32>,
    rejected_index: i32,
    match_type: MatchType,
    suggestion_id: Uuid,
}

impl Records for PreferencePairs {
    const NAME: &'static str = "preference-pairs";
    const FORMATS: &'static [Format] =
        &[Format::TrlPreference, Format::OpenaiPreference, Format::TrlKto, Format::Raw];

    const SKIPPED: Option<&'static str> = Some(
        "select count(*) from suggestions
        where project = $1 and state = 'finalized' and slate_hash is null and (match_type = 'exact' or match_type is null)",
    );

    fn check(&self, _: Format, _: &mut Checks) {}

    fn from(&self, query: &mut QueryBuilder<Postgres>, project: &str, common: &Common, format: Format) {
        const FROM: &str = "from preference_labels l
            join suggestions s on s.project = l.project and s.id = l.suggestion_id where l.project = ";
        let hash = if format == Format::TrlKto { "label_hash" } else { "pair_hash" };
        query.push(format_args!(" {FROM}")).push_bind(project.to_owned());
        self.push_conditions(query, common, hash);
        if common.is_exact() {
            query.push(format_args!(" and not exists (select from (select l.* {FROM}"));
            query.push_bind(project.to_owned());
            self.push_conditions(query, common, hash);
            query.push(format_args!(
                ") older where older.{hash} = l.{hash} and (older.completed_at, older.suggestion_id, older.rejected_index)
                    < (l.completed_at, l.suggestion_id, l.rejected_index))"
            ));
        }
    }

    fn key(&self) -> [&'static str; 3] {
        ["l.completed_at", "l.suggestion_id", "l.rejected_index"]
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
        let rejected = texts.suggestion(key.part);
        if format == Format::TrlKto {
            let text = rejected.unwrap_or(texts.input);
            return Ok(format::write_label(out, texts.prompt(), text, rejected.is_none(), metadata)?);
        }
        let rejected = rejected.unwrap_or_default();
        let example = Example {
            prompt: texts.prompt(),
            rejected: Some(Rejected { text: rejected, feedback: None }),
            chosen: texts.input,
        };
        let raw = Raw {
            prompt: &example.prompt,
            chosen: texts.input,
            rejected,
            chosen_index: row.try_get("accepted_index")?,
            rejected_index: key.part,
            match_type: row.try_get("match_type")?,
            suggestion_id: key.id,
        };
        Ok(example.write(out, format, metadata, raw)?)
    }
}

impl PreferencePairs {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common, hash: &str) {
        query.push(format_args!(" and l.{hash} is not null"));
        let kinds = kinds(self.match_type.as_ref(), self.include_typed);
        push_conditions(query, Some(&kinds), self.suggestion_node_version.as_deref(), common);
    }
}
