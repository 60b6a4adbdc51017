//! The data sets of generation logs: what a model should have answered, and how mistakes were put right.

mod corrections;
mod training;

use sqlx::{Postgres, QueryBuilder};

use crate::exports::split::Source;
use crate::generations::Rating;

pub use corrections::CorrectionPairs;
pub use training::TrainingPairs;

/// The intents of logs, and all their programs.
static TEXTS: Source = Source {
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
        from generations g
        where g.project = $1 and g.success and g.user_intent is not null and g.completed_at < $4
            and (g.completed_at, g.id) >
                (coalesce($2, '-infinity'), coalesce($3, '00000000-0000-0000-0000-000000000000'))
        order by g.completed_at, g.id limit $5",
};

/// What decides in which part of a split the log `g` stands that has no session.
const SESSION: &str = "coalesce(g.session_id, g.id::text)";

/// Adds the conditions on the log `g` that both data sets have.
fn push_log_conditions(
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

/// Adds the condition that a reviewer rated the log `g` so or better.
fn push_min_rating(query: &mut QueryBuilder<Postgres>, least: Option<Rating>) {
    query.push(match least {
        None => "",
        Some(Rating::Poor) => " and g.rating is not null",
        Some(Rating::Acceptable) => " and g.rating in ('good', 'acceptable')",
        Some(Rating::Good) => " and g.rating = 'good'",
    });
}
