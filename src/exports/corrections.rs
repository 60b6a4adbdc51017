//! Correction pairs: a failed attempt with its error, and the program that fixed it; only of logs that succeeded.
//! The write that finalizes a log has noted which attempts make pairs; here they are only read.

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::IntoParams;
use uuid::Uuid;

use super::format::{self, Example, Format, Message, Rejected};
use super::params::{Common, Pairing};
use super::training::push_log_conditions;
use super::{Key, Records};
use crate::http::{Check, Checks};
use crate::types::{FreeForm, Timestamp};

/// Which correction pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct CorrectionPairs {
    /// Area of the language.
    #[arg(long, value_name = "NAME")]
    domain_name: Option<String>,
    /// The model asked.
    #[arg(long, value_name = "NAME")]
    model_used: Option<String>,
    /// The pairing rule; fix if not given. The format trl-stepwise has none: a row is a log with all its attempts.
    #[arg(long)]
    #[param(inline)]
    pairing: Option<Pairing>,
}

impl Check for CorrectionPairs {
    fn check(&self, _: &mut Checks) {}
}

#[derive(Serialize)]
struct Raw<'a> {
    user_intent: &'a str,
    bad_dsl: &'a str,
    error_message: Option<&'a str>,
    error_stage: Option<&'a str>,
    fixed_dsl: &'a str,
    bad_attempt: i32,
    fixed_attempt: Option<i32>,
    generation_id: Uuid,
}

#[derive(Serialize)]
struct Stepwise<'a> {
    prompt: &'a str,
    completions: Vec<String>,
    labels: Vec<bool>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    generation_id: Uuid,
    domain_name: &'a str,
    model_used: Option<&'a str>,
    session_id: Option<&'a str>,
    cbu_id: Option<&'a str>,
    instance_id: Option<&'a str>,
    created_at: Timestamp,
    completed_at: Timestamp,
    error_stage: Option<&'a str>,
    bad_attempt: Option<i32>,
    fixed_attempt: Option<i32>,
    bad_raw_response: Option<&'a str>,
    fixed_raw_response: Option<&'a str>,
    metadata: String,
}

impl Records for CorrectionPairs {
    const NAME: &'static str = "correction-pairs";
    const FORMATS: &'static [Format] = &[
        Format::Openai,
        Format::TrlPromptCompletion,
        Format::TrlPreference,
        Format::OpenaiPreference,
        Format::TrlStepwise,
        Format::Raw,
    ];

    const SKIPPED: Option<&'static str> = Some(
        "select count(*) from generations g
        where g.project = $1 and g.success
            and exists (select from attempts a where a.project = $1 and a.generation_id = g.id and not a.passed)
            and (g.user_intent is null or exists (select from attempts a where a.project = $1 and a.generation_id = g.id
                and a.passed is not null and a.extracted_dsl is null))",
    );

    fn check(&self, format: Format, checks: &mut Checks) {
        let fits = format != Format::TrlStepwise || self.pairing.is_none();
        checks.require(fits, "pairing", "the format trl-stepwise has none");
    }

    fn from(&self, query: &mut QueryBuilder<Postgres>, project: &str, common: &Common, format: Format) {
        query.push(
            " from correction_pairs p
            join generations g on g.project = p.project and g.id = p.generation_id
            left join attempts b on b.project = p.project and b.generation_id = p.generation_id and b.attempt = p.bad_attempt
            left join attempts f on f.project = p.project and f.generation_id = p.generation_id and f.attempt = p.fixed_attempt
            where p.project = ",
        );
        query.push_bind(project.to_owned());
        self.push_conditions(query, common, format);
        if common.is_exact() {
            query.push(
                " and not exists (select from (
                    select p.* from correction_pairs p
                    join generations g on g.project = p.project and g.id = p.generation_id
                    where p.project = ",
            );
            query.push_bind(project.to_owned());
            self.push_conditions(query, common, format);
            query.push(
                ") older where older.row_hash = p.row_hash and (older.completed_at, older.generation_id, older.bad_attempt)
                    < (p.completed_at, p.generation_id, p.bad_attempt))",
            );
        }
    }

    fn key(&self) -> [&'static str; 3] {
        ["p.completed_at", "p.generation_id", "p.bad_attempt"]
    }

    fn columns(&self, common: &Common, format: Format) -> String {
        let mut columns = "g.user_intent".to_owned();
        if format == Format::TrlStepwise {
            columns.push_str(
                ", (select array_agg(a.extracted_dsl order by a.attempt) from attempts a where a.project = p.project
                    and a.generation_id = p.generation_id and a.passed is not null) as programs,
                (select array_agg(a.passed order by a.attempt) from attempts a where a.project = p.project
                    and a.generation_id = p.generation_id and a.passed is not null) as passed",
            );
        } else {
            columns.push_str(
                ", b.extracted_dsl as bad, b.error_message, coalesce(f.extracted_dsl, g.final_valid_dsl) as fixed",
            );
        }
        columns.push_str(", b.error_stage, p.fixed_attempt");
        if common.with_metadata() {
            columns.push_str(
                ", g.domain_name, g.model_used, g.session_id, g.cbu_id, g.instance_id, g.created_at, g.metadata,
                b.raw_response as bad_raw_response, f.raw_response as fixed_raw_response",
            );
        }
        columns
    }

    fn write(
        &self,
        row: &PgRow,
        key: Key,
        common: &Common,
        format: Format,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let user_intent = row.try_get("user_intent")?;
        let error_stage: Option<&str> = row.try_get("error_stage")?;
        let fixed_attempt = row.try_get("fixed_attempt")?;
        let metadata = common.with_metadata().then(|| -> sqlx::Result<_> {
            Ok(Metadata {
                generation_id: key.id,
                domain_name: row.try_get("domain_name")?,
                model_used: row.try_get("model_used")?,
                session_id: row.try_get("session_id")?,
                cbu_id: row.try_get("cbu_id")?,
                instance_id: row.try_get("instance_id")?,
                created_at: row.try_get("created_at")?,
                completed_at: key.at,
                error_stage,
                bad_attempt: (key.part > 0).then_some(key.part),
                fixed_attempt,
                bad_raw_response: row.try_get("bad_raw_response")?,
                fixed_raw_response: row.try_get("fixed_raw_response")?,
                metadata: row.try_get::<FreeForm, _>("metadata")?.as_str().to_owned(),
            })
        });
        let metadata = metadata.transpose()?;
        if format == Format::TrlStepwise {
            let (completions, labels) = (row.try_get("programs")?, row.try_get("passed")?);
            return Ok(format::write(out, Stepwise { prompt: user_intent, completions, labels }, metadata)?);
        }
        let (bad_dsl, fixed_dsl) = (row.try_get("bad")?, row.try_get("fixed")?);
        let error_message: Option<&str> = row.try_get("error_message")?;
        let silent = format!("That failed ({}).", error_stage.unwrap_or("no stage said why"));
        let rejected = Rejected { text: bad_dsl, feedback: Some(error_message.unwrap_or(&silent)) };
        let prompt = vec![Message::new("user", user_intent)];
        let example = Example { prompt, rejected: Some(rejected), chosen: fixed_dsl };
        let (bad_attempt, generation_id) = (key.part, key.id);
        let raw = Raw {
            user_intent,
            bad_dsl,
            error_message,
            error_stage,
            fixed_dsl,
            bad_attempt,
            fixed_attempt,
            generation_id,
        };
        Ok(example.write(out, format, metadata, raw)?)
    }
}

impl CorrectionPairs {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common, format: Format) {
        query.push(match (format, self.pairing.unwrap_or_default()) {
            (Format::TrlStepwise, _) => " and p.kind = 'steps'",
            (_, Pairing::Fix) => " and p.kind = 'fix'",
            (_, Pairing::Next) => " and p.kind = 'next'",
            (_, Pairing::Final) => " and p.kind = 'final'",
        });
        push_log_conditions(query, self.domain_name.as_deref(), self.model_used.as_deref());
        common.push(query, "g.created_at", "g.final_valid_dsl");
    }
}
