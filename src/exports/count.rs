//! The number of rows of a data set, in milliseconds whatever its size: small data sets are counted exactly, and the
//! size of large ones is estimated from a sample of the table's pages.

use serde::Serialize;
use sqlx::{AssertSqlSafe, PgPool, Postgres, QueryBuilder};
use utoipa::ToSchema;

use super::datasets::{self, Entry};
use super::export::query_of_project;
use super::format::Format;
use super::params::Common;
use crate::error::Result;

/// The maximum number of a project's records in a table that are counted one by one.
const MOST_COUNTED: i64 = 5_000;
/// The approximate number of rows in the sample of a larger table.
const SAMPLED: f64 = 2_000.0;
/// The assumed number of rows per page if the database has no statistics yet.
const ROWS_OF_PAGE: f64 = 30.0;

/// A data set with its formats and its number of rows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Dataset)]
pub struct Summary {
    /// The name of the data set, which is the last segment of its path.
    pub dataset: &'static str,
    /// The formats of the data set, the default first.
    pub formats: Vec<Format>,
    /// The number of rows that an export with default parameters has.
    pub rows: i64,
    /// Whether `rows` is an estimate from a sample. It is for large data sets.
    pub rows_estimated: bool,
    /// The number of records that the data set leaves out because their text was not stored.
    pub skipped: i64,
    /// Whether `skipped` is an estimate from a sample.
    pub skipped_estimated: bool,
}

/// Counts the rows of every data set of a project, one after the other, because a request has a place for one connection.
pub async fn summaries(db: &PgPool, project: &str) -> Result<Vec<Summary>> {
    let mut summaries = Vec::new();
    for entry in &datasets::ALL {
        summaries.push(summary(db, project, entry).await?);
    }
    Ok(summaries)
}

async fn summary(db: &PgPool, project: &str, entry: &Entry) -> Result<Summary> {
    let description = &entry.description;
    let sample = Sample::of(db, project, description.tables[0]).await?;
    let rows = sample.count(|query| match description.count {
        Some(sql) => {
            query.push(sql);
        }
        None => (entry.default)().push_from(query, &Common::default(), description.shapes[0]),
    });
    let rows = rows.await?;
    let skipped = match description.skipped {
        Some(sql) => {
            let skipped = sample.count(|query| {
                query.push(sql);
            });
            skipped.await?
        }
        None => 0,
    };
    Ok(Summary {
        dataset: description.name,
        formats: entry.formats().collect(),
        rows,
        rows_estimated: sample.part.is_some(),
        skipped,
        skipped_estimated: sample.part.is_some() && description.skipped.is_some(),
    })
}

/// The records that are counted: all of a project in a table, or a sample of the table.
struct Sample<'a> {
    db: &'a PgPool,
    project: &'a str,
    table: &'a str,
    part: Option<Part>,
}

/// A sample of some of a table's pages, which is the same each time as long as the table does not grow.
struct Part {
    /// The share of the pages, in percent.
    percent: f64,
    /// The number of rows of the table that each sampled row stands for.
    weight: f64,
}

impl<'a> Sample<'a> {
    /// Chooses all records if the project has few, and a sample otherwise.
    async fn of(db: &'a PgPool, project: &'a str, table: &'a str) -> Result<Self> {
        let sql = format!(
            "select (select count(*) from (select from {table} where project = $1 limit {MOST_COUNTED} + 1) record),
                (pg_relation_size(oid) / current_setting('block_size')::int)::float8,
                case when reltuples > 0 and relpages > 0 then reltuples::float8 / relpages end
            from pg_class where oid = '{table}'::regclass"
        );
        let (records, pages, rows_of_page): (i64, f64, Option<f64>) =
            sqlx::query_as(AssertSqlSafe(sql)).bind(project).fetch_one(db).await?;
        let share = SAMPLED / (rows_of_page.unwrap_or(ROWS_OF_PAGE) * pages);
        if records <= MOST_COUNTED || share >= 1.0 {
            return Ok(Self { db, project, table, part: None });
        }
        let percent = share * 100.0;
        let sql = format!("select count(*) from {table} tablesample system ($1) repeatable (0)");
        let sampled: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).bind(percent).fetch_one(db).await?;
        // The number of pages in a sample varies more than the number of rows in a page.
        let weight =
            rows_of_page.map_or(1.0 / share, |rows_of_page| rows_of_page * pages / sampled.max(1) as f64);
        Ok(Self { db, project, table, part: Some(Part { percent, weight }) })
    }

    /// Counts the results of a query that begins with `from`. For a sample, the query is preceded by a subquery that
    /// has the table's name and returns only the sample.
    async fn count(&self, push_from: impl FnOnce(&mut QueryBuilder<Postgres>)) -> Result<i64> {
        let Self { db, project, table, part } = self;
        let Some(Part { percent, weight }) = part else {
            let mut query = query_of_project("select count(*) ", project)?;
            push_from(&mut query);
            return Ok(query.build_query_scalar().fetch_one(*db).await?);
        };
        let beginning = format!("with {table} as (select * from {table} tablesample system (");
        let mut query = query_of_project(&beginning, project)?;
        query.push_bind(*percent).push(") repeatable (0)) select count(*) ");
        push_from(&mut query);
        let found: i64 = query.build_query_scalar().fetch_one(*db).await?;
        #[expect(clippy::cast_possible_truncation, reason = "no table has 2^63 rows")]
        let estimate = (found as f64 * weight).round() as i64;
        Ok(estimate)
    }
}
