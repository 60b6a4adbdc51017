//! How many rows a data set has.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use sqlx::{PgPool, Postgres, QueryBuilder};
use utoipa::ToSchema;

use super::datasets::{self, Entry};
use super::format::Format;
use super::params::Common;
use super::stream::query_of_project;
use crate::error::Result;

/// How many data sets are counted at once, each over two connections at most.
const COUNTED_AT_ONCE: usize = 3;

/// A data set, its formats, and how many rows it has.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Dataset)]
pub struct Summary {
    /// The name of the data set, which is the last part of its path.
    pub dataset: &'static str,
    /// The formats that it offers, the default first.
    pub formats: Vec<Format>,
    /// How many rows it has with default parameters.
    pub rows: i64,
    /// How many records it leaves out because their text was not kept.
    pub skipped: i64,
}

/// Counts what every data set has of a project.
pub async fn summaries(db: &PgPool, project: &str) -> Result<Vec<Summary>> {
    let counted: Vec<_> = datasets::ALL.iter().map(|entry| summary(db, project, entry)).collect();
    stream::iter(counted).buffered(COUNTED_AT_ONCE).try_collect().await
}

async fn summary(db: &PgPool, project: &str, entry: &Entry) -> Result<Summary> {
    let description = &entry.description;
    let rows = count(db, project, |query| {
        let shape = description.shapes[0];
        (entry.default)().push_from(query, &Common::default(), shape);
    });
    let skipped = async {
        match &description.skipped {
            Some(skipped) => {
                count(db, project, |query| {
                    query.push(skipped.from);
                })
                .await
            }
            None => Ok(0),
        }
    };
    let (rows, skipped) = tokio::try_join!(rows, skipped)?;
    Ok(Summary { dataset: description.name, formats: entry.formats().collect(), rows, skipped })
}

/// Counts what a query finds that begins with `from`.
async fn count(
    db: &PgPool,
    project: &str,
    push_from: impl FnOnce(&mut QueryBuilder<Postgres>),
) -> Result<i64> {
    let mut query = query_of_project("select count(*) ", project)?;
    push_from(&mut query);
    Ok(query.build_query_scalar().fetch_one(db).await?)
}
