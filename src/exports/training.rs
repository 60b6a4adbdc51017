//! Training pairs: intent and program of every log that succeeded. A reviewer's correction replaces the program; what a
//! reviewer found poor and did not correct is left out.

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::IntoParams;
use uuid::Uuid;

use super::format::{Example, Format, Message};
use super::{Key, Records};
use crate::exports::params::Common;
use crate::generations::Rating;
use crate::http::{Check, Checks};
use crate::types::{FreeForm, Timestamp};

/// Which training pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct TrainingPairs {
    /// Area of the language.
    #[arg(long, value_name = "NAME")]
    domain_name: Option<String>,
    /// The model asked.
    #[arg(long, value_name = "NAME")]
    model_used: Option<String>,
    /// Only what a reviewer rated so or better.
    #[arg(long)]
    #[param(inline)]
    min_rating: Option<Rating>,
    /// A system message that every row begins with.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

impl Check for TrainingPairs {
    fn check(&self, _: &mut Checks) {}
}

/// The program that is exported.
const PROGRAM: &str = "coalesce(g.corrected_dsl, g.final_valid_dsl)";

#[derive(Serialize)]
struct Raw<'a> {
    user_intent: &'a str,
    valid_dsl: &'a str,
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
    rating: Option<&'a str>,
    total_attempts: i64,
    raw_response: Option<&'a str>,
    metadata: String,
}

impl Records for TrainingPairs {
    const NAME: &'static str = "training-pairs";
    const FORMATS: &'static [Format] =
        &[Format::Openai, Format::TrlPromptCompletion, Format::Alpaca, Format::Rft, Format::Raw];

    const SKIPPED: Option<&'static str> = Some(
        "select count(*) from generations
        where project = $1 and success and (user_intent is null or coalesce(corrected_dsl, final_valid_dsl) is null)
            and rating is distinct from 'poor'",
    );

    fn check(&self, _: Format, checks: &mut Checks) {
        checks.require(self.system.as_deref() != Some(""), "system", "must not be empty");
    }

    fn from(&self, query: &mut QueryBuilder<Postgres>, project: &str, common: &Common, _: Format) {
        query.push(" from generations g where g.project = ").push_bind(project.to_owned());
        self.push_conditions(query, common);
        if common.is_exact() {
            query.push(" and not exists (select from (select g.* from generations g where g.project = ");
            query.push_bind(project.to_owned());
            self.push_conditions(query, common);
            query.push(") older where older.pair_hash = g.pair_hash");
            query.push(" and (older.completed_at, older.id) < (g.completed_at, g.id))");
        }
    }

    fn key(&self) -> [&'static str; 3] {
        ["g.completed_at", "g.id", "0"]
    }

    fn columns(&self, common: &Common, _: Format) -> String {
        let mut columns = format!("g.user_intent, {PROGRAM} as program");
        if common.with_metadata() {
            columns.push_str(
                ", g.domain_name, g.model_used, g.session_id, g.cbu_id, g.instance_id, g.created_at, g.rating, g.metadata,
                (select count(*) from attempts a where a.project = g.project and a.generation_id = g.id) as total_attempts,
                (select a.raw_response from attempts a where a.project = g.project and a.generation_id = g.id
                    and a.passed order by a.attempt desc limit 1) as raw_response",
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
        let (user, chosen): (&str, _) = (row.try_get("user_intent")?, row.try_get("program")?);
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
                rating: row.try_get("rating")?,
                total_attempts: row.try_get("total_attempts")?,
                raw_response: row.try_get("raw_response")?,
                metadata: row.try_get::<FreeForm, _>("metadata")?.as_str().to_owned(),
            })
        });
        let system = self.system.as_deref().map(|text| Message::new("system", text));
        let prompt = system.into_iter().chain([Message::new("user", user)]).collect();
        let example = Example { prompt, rejected: None, chosen };
        Ok(example.write(out, format, metadata.transpose()?, Raw { user_intent: user, valid_dsl: chosen })?)
    }
}

impl TrainingPairs {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common) {
        query.push(format_args!(" and g.user_intent is not null and {PROGRAM} is not null"));
        query.push(" and g.success and (g.rating is distinct from 'poor' or g.corrected_dsl is not null)");
        push_log_conditions(query, self.domain_name.as_deref(), self.model_used.as_deref());
        match self.min_rating {
            None | Some(Rating::Poor) => {}
            Some(Rating::Acceptable) => drop(query.push(" and g.rating in ('good', 'acceptable')")),
            Some(Rating::Good) => drop(query.push(" and g.rating = 'good'")),
        }
        if self.min_rating == Some(Rating::Poor) {
            query.push(" and g.rating is not null");
        }
        common.push(query, "g.created_at", PROGRAM);
    }
}

/// Adds the conditions on the log `g` that the data sets of this domain share.
pub(super) fn push_log_conditions(
    query: &mut QueryBuilder<Postgres>,
    domain_name: Option<&str>,
    model_used: Option<&str>,
) {
    for (column, value) in [("domain_name", domain_name), ("model_used", model_used)] {
        if let Some(value) = value {
            query.push(format_args!(" and g.{column} = ")).push_bind(value.to_owned());
        }
    }
}
