//! Correction pairs: a failed attempt with its error, and the program that repaired it, from logs that succeeded. The
//! write that finalizes a log stores which attempts form pairs.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{
    COMPARISON, CompletionOf, INTENT, PromptOf, SESSION, TEXTS, check_texts, push_log_conditions,
    push_min_rating,
};
use crate::exports::format::{Example, Shape};
use crate::exports::groups::Comparison;
use crate::exports::params::Common;
use crate::exports::schema;
use crate::exports::selection::Selection;
use crate::exports::split::{Contents, Sides, Split, Texts};
use crate::exports::text::{QuestionAndAnswer, Text};
use crate::exports::{Dataset, Described, Description, Lines, RowKey, Told};
use crate::generations::Rating;
use crate::http::Checks;
use crate::http::line::LONGEST_PART;
use crate::types::{FreeForm, Timestamp};

/// The parameters of correction pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct CorrectionPairs {
    /// Only logs with these domain names, separated by commas.
    #[arg(long, value_name = "NAME")]
    #[param(example = "cbu")]
    domain_name: Option<String>,
    /// Only logs of these models, separated by commas.
    #[arg(long, value_name = "NAME")]
    model_used: Option<String>,
    /// The pairing rule. The default is fix. It does not apply to the format trl-stepwise, whose rows are logs with
    /// all their attempts.
    #[arg(long)]
    #[param(inline)]
    pairing: Option<Pairing>,
    /// Only logs with at least this rating by a reviewer.
    #[arg(long)]
    #[param(inline)]
    min_rating: Option<Rating>,
    /// What the question of a row consists of. The default is the intent.
    #[arg(long)]
    #[param(inline)]
    prompt: Option<PromptOf>,
    /// What the answer of a row consists of. The default is the program.
    #[arg(long)]
    #[param(inline)]
    completion: Option<CompletionOf>,
}

/// The pairing rule of correction pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Pairing {
    /// One pair per log: the first attempt that passed, and the last attempt before it that failed with an error.
    #[default]
    Fix,
    /// Each failed attempt, and the next attempt that has a program. If that one also failed, or was never checked and its
    /// program is not the log's final one, the row is only in the format raw, where `fixed_passed` is false.
    Next,
    /// Each failed attempt, and the log's final program.
    Final,
}

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    user_intent: &'a str,
    bad_dsl: &'a str,
    error_message: Option<&'a str>,
    error_stage: Option<&'a str>,
    fixed_dsl: &'a str,
    /// Whether the next program passed. With pairing=next, it may have failed.
    fixed_passed: bool,
    bad_attempt: i32,
    fixed_attempt: Option<i32>,
    generation_id: Uuid,
}

#[derive(Serialize, ToSchema)]
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

impl Described for CorrectionPairs {
    const DESCRIPTION: Description = Description {
        name: "correction-pairs",
        summary: "Failed attempts with their errors, and the programs that repaired them.",
        notes: "The data set contains only logs that succeeded. A program that a reviewer rated `poor` is never the target. A \
            reviewer's `corrected_dsl` replaces it, and both form a pair under every pairing rule.",
        shapes: &[Shape::Correction, Shape::Preference, Shape::Steps, Shape::Raw],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata<'_>>),
        split: Split::ByTexts(&TEXTS),
        tables: &["generations", "attempts", "correction_pairs"],
        count: Some(
            "from generations g
            join correction_pairs p on p.project = $1 and p.kind = 'fix' and p.completed_at = g.completed_at
                and p.generation_id = g.id
            where g.project = $1 and g.success",
        ),
        skipped: Some(
            "from generations g
                where g.project = $1 and g.success
                    and exists (select from attempts a where a.project = $1 and a.generation_id = g.id and not a.passed)
                    and (g.user_intent is null or exists (select from attempts a where a.project = $1
                        and a.generation_id = g.id and a.passed is not null and a.extracted_dsl is null))",
        ),
    };
}

/// The SQL of the wrong program of a row.
const WRONG: &str = "case when p.is_review then g.final_valid_dsl else b.extracted_dsl end";

/// The SQL of the right program of a row.
const RIGHT: &str = "coalesce(f.extracted_dsl, g.corrected_dsl, g.final_valid_dsl)";

/// The SQL of the responses of a row's two attempts.
const RESPONSES: [&str; 2] = ["b.raw_response", "f.raw_response"];

/// The names of their columns, unless they are the texts of the row themselves.
const RESPONSE_NAMES: [&str; 2] = ["bad_raw_response", "fixed_raw_response"];

/// The SQL of what was wrong with the wrong program.
const MESSAGE: &str = "case when p.is_review then g.review_note else b.error_message end";

/// The right program of a row, as an answer.
const ANSWER: Text<'_> = Text { kind: "program", sql: RIGHT };

/// The rows, with the log `g`, the failed attempt `b`, and the attempt `f` that repaired it.
///
/// Because of `offset`, a log is found by its id. The planner expects a single log of a domain or model that is not in its
/// statistics, and might otherwise read all logs of it for each row.
const FROM: &str = "correction_pairs p
    cross join lateral (select * from generations g where g.project = $1 and g.id = p.generation_id offset 0) g
    left join attempts b on b.project = $1 and b.generation_id = p.generation_id and b.attempt = p.bad_attempt
    left join attempts f on f.project = $1 and f.generation_id = p.generation_id and f.attempt = p.fixed_attempt";

impl Dataset for CorrectionPairs {
    fn check(&self, shape: Shape, checks: &mut Checks) {
        let fits = shape != Shape::Steps || self.pairing.is_none();
        checks.require(fits, "pairing", "the format trl-stepwise has no pairs");
        let has_response = self.pairing != Some(Pairing::Final) || !self.is_raw();
        checks.require(has_response, "completion", "with pairing=final, the programs are no attempt's");
        check_texts(self.prompt, self.completion, shape, checks);
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        let rows = Selection {
            from: FROM,
            table: "correction_pairs",
            alias: "p",
            key: &["completed_at", "generation_id", "bad_attempt"],
            equal: "older.kind = p.kind and older.row_hash = p.row_hash",
            answer: Some(ANSWER),
            comparison: self.comparison(),
        };
        common.push_selection(query, &rows, |query| self.push_conditions(query, common, shape));
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["p.completed_at", "p.generation_id", "p.bad_attempt"]
    }

    fn columns(&self, common: &Common, shape: Shape) -> String {
        let mut columns =
            "g.user_intent, case when p.is_review then 'review' else b.error_stage end as error_stage,
            p.fixed_attempt"
                .to_owned();
        let texts = if shape == Shape::Steps {
            ", (select array_agg(a.extracted_dsl order by a.attempt) from attempts a where a.project = $1
                and a.generation_id = p.generation_id and a.passed is not null and has_text(a.extracted_dsl)) as programs,
            (select array_agg(a.passed order by a.attempt) from attempts a where a.project = $1
                and a.generation_id = p.generation_id and a.passed is not null and has_text(a.extracted_dsl)) as passed"
                .to_owned()
        } else {
            ", coalesce(f.passed, p.fixed_attempt is null) as fixed_passed".to_owned()
        };
        columns.push_str(&texts);
        for (sql, name) in self.long_texts(common, shape) {
            columns.extend([", ", sql, " as ", name]);
        }
        if common.with_metadata() {
            columns.push_str(
                ", g.domain_name, g.model_used, g.session_id, g.cbu_id, g.instance_id, g.created_at, g.metadata",
            );
        }
        columns
    }

    fn told(&self, _: Shape) -> Told {
        if self.prompt == Some(PromptOf::Sent) { Told::Request } else { Told::Intent }
    }

    fn texts(&self, shape: Shape) -> Option<QuestionAndAnswer> {
        let has_answer = shape != Shape::Steps && !self.is_raw();
        Some([(INTENT, Some("user_intent")), (ANSWER, has_answer.then_some("right_text"))])
    }

    fn comparison(&self) -> Option<&'static Comparison> {
        Some(&COMPARISON)
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let task = row.try_get("user_intent")?;
        let error_stage: Option<&str> = row.try_get("error_stage")?;
        let fixed_attempt = row.try_get("fixed_attempt")?;
        let [bad, fixed] = if self.is_raw() { ["wrong_text", "right_text"] } else { RESPONSE_NAMES };
        let metadata = common.with_metadata().then(|| -> sqlx::Result<_> {
            Ok(Metadata {
                generation_id: key.record_id,
                domain_name: row.try_get("domain_name")?,
                model_used: row.try_get("model_used")?,
                session_id: row.try_get("session_id")?,
                cbu_id: row.try_get("cbu_id")?,
                instance_id: row.try_get("instance_id")?,
                created_at: row.try_get("created_at")?,
                completed_at: key.completed_at,
                error_stage,
                bad_attempt: (key.row > 0).then_some(key.row),
                fixed_attempt,
                bad_raw_response: row.try_get(bad)?,
                fixed_raw_response: row.try_get(fixed)?,
                metadata: row.try_get::<FreeForm, _>("metadata")?.as_str().to_owned(),
            })
        });
        let metadata = metadata.transpose()?;
        if lines.shape() == Shape::Steps {
            let (steps, right) = (row.try_get("programs")?, row.try_get("passed")?);
            return lines.write::<()>(Example::Steps { task, steps, right }, metadata);
        }
        let (wrong, right) = (row.try_get("wrong_text")?, row.try_get("right_text")?);
        let prompt = || -> sqlx::Result<_> {
            let prompt = self.prompt.unwrap_or_default();
            let sent = if prompt == PromptOf::Sent { row.try_get("prompt_text")? } else { None };
            Ok(prompt.prompt(task, sent, common.system.as_deref()))
        };
        let error_message: Option<&str> = row.try_get("error_message")?;
        let example = match lines.shape() {
            Shape::Raw => Example::Raw(Raw {
                user_intent: task,
                bad_dsl: wrong,
                error_message,
                error_stage,
                fixed_dsl: right,
                fixed_passed: row.try_get("fixed_passed")?,
                bad_attempt: key.row,
                fixed_attempt,
                generation_id: key.record_id,
            }),
            Shape::Preference => Example::Preference { prompt: prompt()?, chosen: right, rejected: wrong },
            _ => {
                let silent = || match error_stage {
                    Some("review") => "A reviewer corrected that.".to_owned(),
                    stage => format!("That failed ({}).", stage.unwrap_or("no stage said why")),
                };
                let feedback = error_message.map_or_else(|| silent().into(), Into::into);
                Example::Correction { prompt: prompt()?, wrong, feedback, right }
            }
        };
        lines.write(example, metadata)
    }
}

impl CorrectionPairs {
    fn is_raw(&self) -> bool {
        self.completion == Some(CompletionOf::Raw)
    }

    /// Returns the SQL of the texts of attempts and reviews in a row, each with the name of its column. They may be long, so that none
    /// is read twice. The programs of steps are in an array.
    fn long_texts(&self, common: &Common, shape: Shape) -> Vec<(&'static str, &'static str)> {
        let [wrong, right] = if self.is_raw() { RESPONSES } else { [WRONG, RIGHT] };
        let mut texts = Vec::new();
        if shape != Shape::Steps {
            texts.extend([(wrong, "wrong_text"), (MESSAGE, "error_message"), (right, "right_text")]);
        }
        if self.prompt == Some(PromptOf::Sent) {
            texts.push(("b.prompt_text", "prompt_text"));
        }
        if common.with_metadata() && !self.is_raw() {
            texts.extend(RESPONSES.into_iter().zip(RESPONSE_NAMES));
        }
        texts
    }

    /// Adds the condition that what may be long in a row, which is of three records, is not too long together. The programs of steps
    /// are limited where they are stored.
    fn push_length(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        query.push(" and octet_length(g.user_intent)");
        for (sql, _) in self.long_texts(common, shape) {
            query.push(format_args!(" + coalesce(octet_length({sql}), 0)"));
        }
        if common.with_metadata() {
            query.push(" + octet_length(g.metadata::text)");
        }
        query.push(format_args!(" <= {LONGEST_PART}"));
    }

    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        query.push(match (shape, self.pairing.unwrap_or_default()) {
            (Shape::Steps, _) => " and p.kind = 'steps'",
            (_, Pairing::Fix) => " and p.kind = 'fix'",
            // Only the format raw can say that nothing is known to be right about the next attempt.
            (Shape::Raw, Pairing::Next) => " and p.kind = 'next'",
            (_, Pairing::Next) => {
                " and p.kind = 'next' and (p.fixed_attempt is null or f.passed
                    or f.passed is null and p.fixed_is_final)"
            }
            (_, Pairing::Final) => " and p.kind = 'final'",
        });
        push_log_conditions(query, self.domain_name.as_deref(), self.model_used.as_deref());
        push_min_rating(query, self.min_rating);
        if self.prompt == Some(PromptOf::Sent) {
            query.push(" and has_text(b.prompt_text)");
        }
        if self.is_raw() {
            query.push(" and has_text(b.raw_response) and has_text(f.raw_response)");
        }
        self.push_length(query, common, shape);
        let others = match shape {
            Shape::Steps => "] || array(select split_hash('program', a.extracted_dsl) from attempts a where a.project = $1
                and a.generation_id = p.generation_id and a.extracted_dsl is not null)::bigint[] || array[null::bigint".to_owned(),
            _ => format!(", split_hash('program', {WRONG})"),
        };
        let texts = Texts {
            domain: TEXTS.domain,
            record: "g.id",
            question: INTENT,
            answer: ANSWER,
            exported: if self.is_raw() { "f.raw_response" } else { RIGHT },
            completed_at: "p.completed_at",
            others: &others,
        };
        common.push(query, "g.created_at", &Sides { session: SESSION, contents: Contents::Texts(texts) });
    }
}
