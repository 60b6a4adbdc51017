//! The data sets of generation logs: what a model should have answered, and how mistakes were put right.

mod corrections;
mod training;

use sqlx::{Postgres, QueryBuilder};

pub use corrections::CorrectionPairs;
pub use training::TrainingPairs;

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
