//! Training pairs: the intent and the program of every log that succeeded. A reviewer's correction replaces the
//! program. Logs that are rated poor and not corrected are left out.

use clap::Args;
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

/// The parameters of training pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct TrainingPairs {
    /// Only logs with these domain names, separated by commas.
    #[arg(long, value_name = "NAME")]
    #[param(example = "cbu")]
    domain_name: Option<String>,
    /// Only logs of these models, separated by commas.
    #[arg(long, value_name = "NAME")]
    model_used: Option<String>,
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

/// The SQL of the program that is exported.
const PROGRAM: &str = "coalesce(g.corrected_dsl, g.final_valid_dsl)";

/// The program that is exported, as an answer.
const ANSWER: Text<'_> = Text { kind: "program", sql: PROGRAM };

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    user_intent: &'a str,
    valid_dsl: &'a str,
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
    rating: Option<&'a str>,
    total_attempts: i64,
    raw_response: Option<&'a str>,
    metadata: String,
}

impl Described for TrainingPairs {
    const DESCRIPTION: Description = Description {
        name: "training-pairs",
        summary: "The intent and program of each log that succeeded.",
        notes: "A reviewer's `corrected_dsl` replaces the program. Logs rated `poor` without a correction are left out.",
        shapes: &[Shape::Solution, Shape::Pair, Shape::Raw],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata<'_>>),
        split: Split::ByTexts(&TEXTS),
        tables: &["generations"],
        count: None,
        skipped: Some(
            "from generations
                where project = $1 and success and (user_intent is null or coalesce(corrected_dsl, final_valid_dsl) is null)
                    and rating is distinct from 'poor'",
        ),
    };
}

impl Dataset for TrainingPairs {
    fn check(&self, shape: Shape, checks: &mut Checks) {
        check_texts(self.prompt, self.completion, shape, checks);
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, _: Shape) {
        let rows = Selection {
            from: "generations g",
            table: "generations",
            alias: "g",
            key: &["completed_at", "id"],
            equal: "older.success and older.pair_hash = g.pair_hash",
            answer: Some(ANSWER),
            comparison: self.comparison(),
        };
        common.push_selection(query, &rows, |query| self.push_conditions(query, common));
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["g.completed_at", "g.id", "0"]
    }

    fn columns(&self, common: &Common, _: Shape) -> String {
        let mut columns = format!("g.user_intent, {PROGRAM} as program");
        if self.is_sent() {
            columns = format!("{columns}, {} as prompt_text", of_attempt("prompt_text"));
        }
        if self.is_raw() || common.with_metadata() {
            columns = format!("{columns}, {} as raw_response", of_attempt("raw_response"));
        }
        if common.with_metadata() {
            columns.push_str(
                ", g.domain_name, g.model_used, g.session_id, g.cbu_id, g.instance_id, g.created_at, g.rating, g.metadata,
                (select count(*) from attempts a where a.project = $1 and a.generation_id = g.id) as total_attempts",
            );
        }
        columns
    }

    fn told(&self, _: Shape) -> Told {
        if self.is_sent() { Told::Request } else { Told::Intent }
    }

    fn texts(&self, _: Shape) -> Option<QuestionAndAnswer> {
        Some([(INTENT, Some("user_intent")), (ANSWER, Some("program"))])
    }

    fn comparison(&self) -> Option<&'static Comparison> {
        Some(&COMPARISON)
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let task = row.try_get("user_intent")?;
        let solution = row.try_get(if self.is_raw() { "raw_response" } else { "program" })?;
        let sent = if self.is_sent() { row.try_get("prompt_text")? } else { None };
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
                rating: row.try_get("rating")?,
                total_attempts: row.try_get("total_attempts")?,
                raw_response: row.try_get("raw_response")?,
                metadata: row.try_get::<FreeForm, _>("metadata")?.as_str().to_owned(),
            })
        });
        let example = match lines.shape() {
            Shape::Raw => Example::Raw(Raw { user_intent: task, valid_dsl: solution }),
            Shape::Pair => Example::Pair { anchor: task, positive: solution },
            _ => {
                let prompt = self.prompt.unwrap_or_default().prompt(task, sent, common.system.as_deref());
                Example::Solution { prompt, solution }
            }
        };
        lines.write(example, metadata.transpose()?)
    }
}

/// Returns the SQL of a text of the attempt from which the log `g` has its program: the last one that passed with that program.
/// As elsewhere, white space makes no difference.
fn of_attempt(column: &str) -> String {
    format!(
        "(select a.{column} from attempts a where a.project = $1 and a.generation_id = g.id and a.passed
            and (a.extracted_dsl = g.final_valid_dsl or bare_hash(a.extracted_dsl) = bare_hash(g.final_valid_dsl))
            order by a.attempt desc limit 1)"
    )
}

impl TrainingPairs {
    fn is_sent(&self) -> bool {
        self.prompt == Some(PromptOf::Sent)
    }

    fn is_raw(&self) -> bool {
        self.completion == Some(CompletionOf::Raw)
    }

    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common) {
        query.push(format_args!(" and has_text(g.user_intent) and has_text({PROGRAM})"));
        // A row may have the texts of an attempt besides, which are a part of a line.
        query.push(format_args!(
            " and octet_length(g.user_intent) + octet_length({PROGRAM}) <= {LONGEST_PART}"
        ));
        query.push(" and g.success and (g.rating is distinct from 'poor' or g.corrected_dsl is not null)");
        push_log_conditions(query, self.domain_name.as_deref(), self.model_used.as_deref());
        push_min_rating(query, self.min_rating);
        if self.is_sent() {
            query.push(format_args!(" and has_text({})", of_attempt("prompt_text")));
        }
        if self.is_raw() {
            query.push(format_args!(
                " and g.corrected_dsl is null and has_text({})",
                of_attempt("raw_response")
            ));
        }
        let exported = if self.is_raw() { of_attempt("raw_response") } else { PROGRAM.to_owned() };
        let texts = Texts {
            domain: TEXTS.domain,
            record: "g.id",
            question: INTENT,
            answer: ANSWER,
            exported: &exported,
            completed_at: "g.completed_at",
            others: "",
        };
        common.push(query, "g.created_at", &Sides { session: SESSION, contents: Contents::Texts(texts) });
    }
}
