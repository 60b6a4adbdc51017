//! The data sets of generation logs: right programs, and corrections of wrong ones.

mod corrections;
mod training;

use clap::ValueEnum;
use serde::Deserialize;
use sqlx::{Postgres, QueryBuilder};
use utoipa::ToSchema;

use crate::exports::chat::Prompt;
use crate::exports::format::Shape;
use crate::exports::groups::{Comparison, Source};
use crate::exports::text::Text;
use crate::exports::{Described as _, Description};
use crate::generations::Rating;
use crate::http::Checks;

pub use corrections::CorrectionPairs;
pub use training::TrainingPairs;

/// The data sets with texts of generation logs.
pub(crate) const DATASETS: [&Description; 2] = [&TrainingPairs::DESCRIPTION, &CorrectionPairs::DESCRIPTION];

/// The source of the texts of logs: their intents, and all their programs.
pub(super) static TEXTS: Source = Source {
    domain: "generations",
    sql: "
        select g.id as record, g.completed_at, split_hash('intent', g.user_intent) as question,
            array(
                select split_hash('program', program.text)
                from (
                    select g.final_valid_dsl as text
                    union all select g.corrected_dsl
                    union all select a.extracted_dsl from attempts a where a.project = $1 and a.generation_id = g.id
                ) program
                where program.text is not null
            ) as answers
        from (
            select g.*, sum(own.effort) over (order by g.completed_at, g.id) - own.effort as before
            from (
                select * from generations g
                where g.project = $1 and g.success and g.user_intent is not null and g.completed_at < $4
                    and (g.completed_at, g.id) >
                        (coalesce($2, '-infinity'), coalesce($3, '00000000-0000-0000-0000-000000000000'))
                order by g.completed_at, g.id limit $5
            ) g cross join lateral (
                select count(*) + (
                        coalesce(sum(octet_length(a.extracted_dsl)), 0) + octet_length(g.user_intent)
                        + coalesce(octet_length(g.final_valid_dsl), 0) + coalesce(octet_length(g.corrected_dsl), 0)
                    ) / 1024 as effort
                from attempts a where a.project = $1 and a.generation_id = g.id
            ) own
        ) g
        where g.before < 20000 order by g.completed_at, g.id",
    comparisons: &[&COMPARISON],
};

/// The comparison of logs by their intents and the programs that they teach.
static COMPARISON: Comparison = Comparison {
    work: "near generations",
    sql: "
        select g.id as record, g.completed_at,
            left(g.user_intent, 16384) || E'\n' || left(coalesce(g.corrected_dsl, g.final_valid_dsl), 16384) as text
        from generations g
        where g.project = $1 and g.success and g.user_intent is not null and g.completed_at < $4
            and (g.completed_at, g.id) >
                (coalesce($2, '-infinity'), coalesce($3, '00000000-0000-0000-0000-000000000000'))
        order by g.completed_at, g.id limit $5",
};

/// The intent of the log `g`, as a question.
const INTENT: Text<'_> = Text { kind: "intent", sql: "g.user_intent" };

/// The SQL of what decides on the part of a split, if texts do not: the session of the log `g`, or the log itself.
const SESSION: &str = "coalesce(g.session_id, g.id::text)";

/// Adds the conditions on the log `g` that both data sets share.
fn push_log_conditions(
    query: &mut QueryBuilder<Postgres>,
    domain_names: Option<&str>,
    models_used: Option<&str>,
) {
    for (column, values) in [("domain_name", domain_names), ("model_used", models_used)] {
        if let Some(values) = values {
            let values: Vec<_> = values.split(',').map(ToOwned::to_owned).collect();
            query.push(format_args!(" and g.{column} = any(")).push_bind(values).push(")");
        }
    }
}

/// What the question of a row consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PromptOf {
    /// The intent, as one message of the user.
    #[default]
    Intent,
    /// The messages and tools in `prompt_text` of the attempt, or one message of the user if `prompt_text` is neither
    /// a request nor a list of messages. Rows of attempts without `prompt_text` are left out, and so are programs that no
    /// attempt had.
    Sent,
}

/// What the answer of a row consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CompletionOf {
    /// The program.
    #[default]
    Program,
    /// `raw_response` of the attempt, which contains the program. Rows of attempts without `raw_response` are left
    /// out, and so are programs that no attempt had.
    Raw,
}

impl PromptOf {
    /// Returns the prompt of a row with this intent, for whose attempt `sent` was sent to the model.
    fn prompt<'a>(self, intent: &'a str, sent: Option<&'a str>, system: Option<&'a str>) -> Prompt<'a> {
        let sent = sent.filter(|_| self == Self::Sent);
        let prompt = sent.map_or_else(
            || Prompt::of(intent),
            |sent| Prompt::read(sent).unwrap_or_else(|| Prompt::of(sent)),
        );
        prompt.with_system(system)
    }
}

/// Rejects parameters about the prompt and the answer if rows are not chats.
fn check_texts(
    prompt: Option<PromptOf>,
    completion: Option<CompletionOf>,
    shape: Shape,
    checks: &mut Checks,
) {
    let chats = !matches!(shape, Shape::Raw | Shape::Steps | Shape::Pair);
    checks.require(prompt.is_none() || chats, "prompt", "the rows of this format are not chats");
    checks.require(completion.is_none() || chats, "completion", "the rows of this format are not chats");
}

/// Adds the condition that the log `g` has at least this rating.
fn push_min_rating(query: &mut QueryBuilder<Postgres>, least: Option<Rating>) {
    query.push(match least {
        None => "",
        Some(Rating::Poor) => " and g.rating is not null",
        Some(Rating::Acceptable) => " and g.rating in ('good', 'acceptable')",
        Some(Rating::Good) => " and g.rating = 'good'",
    });
}
