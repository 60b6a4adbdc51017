//! Statistics of searches: how many failed and were learned from, and whether what was learned is useful.

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::intake_errors;
use super::settings::Rules;
use crate::error::Result;
use crate::exports::progress::renew_outdated_statistics;

/// Statistics of the searches of a project.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = SearchFigures)]
pub struct Figures {
    /// Whether associations are being learned.
    #[sqlx(skip)]
    pub enabled: bool,
    /// The number of weak searches that were tracked.
    pub sessions_started: i64,
    /// The number of weak searches that led to a file.
    pub sessions_resolved: i64,
    /// The number of weak searches whose turn ended before enough files were read.
    pub sessions_unresolved: i64,
    /// The number of weak searches that ended because the agent was silent for too long before it had read enough
    /// files.
    pub sessions_timeout: i64,
    /// The number of weak searches that are still tracked.
    pub active_sessions: i64,
    /// The number of searches with results good enough not to be tracked.
    pub strong_searches: i64,
    /// The number of files that answered at least one query.
    pub files_learned: i64,
    /// The number of associations, each of which is a pair of a query and a file.
    pub associations_created: i64,
    /// Descriptions of the last twenty malformed lines and hook reports, the latest last. They do not quote any text.
    #[sqlx(skip)]
    #[schema(max_items = 20)]
    pub errors: Vec<String>,
    /// The number of malformed lines and hook reports that were skipped.
    pub error_count: i64,
    /// How often hints were shown and read.
    #[sqlx(flatten)]
    pub hints: HintFigures,
}

/// Statistics of hints: how often they were shown and read.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct HintFigures {
    /// The number of ended weak searches that got hints.
    pub searches_hinted: i64,
    /// The number of weak searches in which the agent read at least one hint.
    pub searches_helped: i64,
    /// The share of ended weak searches that got hints. Null if there are none.
    pub hint_rate: Option<f64>,
    /// The share of searches with hints in which at least one hint was read. Null if there are none.
    pub read_rate: Option<f64>,
    /// The number of hints that were shown.
    pub hints_shown: i64,
    /// The number of hints that were read.
    pub hints_read: i64,
}

/// Computes the statistics of a project.
pub async fn figures(db: &PgPool, project: &str, rules: &Rules) -> Result<Figures> {
    const SQL: &str = "
        select sessions.*, learned.*, errors.*, hinted.*,
            hinted.searches_hinted::float8 / nullif(sessions.over, 0) as hint_rate,
            hinted.searches_helped::float8 / nullif(hinted.searches_hinted, 0) as read_rate
        from (
            select count(*) filter (where state <> 'strong') as sessions_started,
                count(*) filter (where state = 'resolved') as sessions_resolved,
                count(*) filter (where state = 'unresolved') as sessions_unresolved,
                count(*) filter (where state = 'timed_out') as sessions_timeout,
                count(*) filter (where state = 'tracking') as active_sessions,
                count(*) filter (where state = 'strong') as strong_searches,
                count(*) filter (where state in ('resolved', 'unresolved', 'timed_out')) as over
            from searches where project = $1
        ) sessions,
        (
            select count(*) as associations_created, count(distinct (q.root, a.path)) as files_learned
            from associations a join association_queries q on q.project = $1 and q.id = a.query_id
            where a.project = $1
        ) learned,
        (
            select coalesce(sum(bad_lines), 0)::bigint as error_count from transcripts where project = $1
        ) errors,
        (
            select count(distinct search_id) as searches_hinted,
                count(distinct search_id) filter (where read) as searches_helped,
                count(*) as hints_shown, count(*) filter (where read) as hints_read
            from search_hints where project = $1 and read is not null
        ) hinted";
    for table in ["associations", "association_queries"] {
        renew_outdated_statistics(db, project, table).await?;
    }
    let mut figures: Figures = sqlx::query_as(SQL).bind(project).fetch_one(db).await?;
    figures.enabled = rules.learn;
    figures.errors = intake_errors::latest(db, project).await?;
    Ok(figures)
}
