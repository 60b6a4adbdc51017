//! Figures of the feedback loop: how many searches failed and were learned from, and whether what was learned is of use.

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::settings::Rules;
use crate::error::Result;

/// What the loop has done in a project.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = SearchFigures)]
pub struct Figures {
    /// Whether associations are being learned.
    #[sqlx(skip)]
    pub enabled: bool,
    /// Weak searches that were followed.
    pub sessions_started: i64,
    /// Those that led to a file.
    pub sessions_resolved: i64,
    /// Those whose turn ended without enough reads.
    pub sessions_unresolved: i64,
    /// Those whose agent fell silent without enough reads.
    pub sessions_timeout: i64,
    /// Those that are still followed.
    pub active_sessions: i64,
    /// Searches that were good enough.
    pub strong_searches: i64,
    /// Files that were the answer to some query.
    pub files_learned: i64,
    /// Pairs of a query and a file.
    pub associations_created: i64,
    /// Malformed lines and hooks, which were passed over.
    pub errors: i64,
    /// Whether hints get read.
    #[sqlx(flatten)]
    pub hints: HintFigures,
}

/// Whether hints get read: what the loop is worth.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct HintFigures {
    /// Weak searches that are over and were answered with hints.
    pub searches_hinted: i64,
    /// Those of which the agent then read at least one hint.
    pub searches_helped: i64,
    /// Share of weak searches that are over which were answered with hints; null without any.
    pub hint_rate: Option<f64>,
    /// Share of those answered with hints of which one was read; null without any.
    pub read_rate: Option<f64>,
    /// Hints given to these searches.
    pub hints_shown: i64,
    /// Hints that were then read.
    pub hints_read: i64,
}

/// The figures of a project.
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
            select coalesce(sum(bad_lines), 0)::bigint as errors from transcripts where project = $1
        ) errors,
        (
            select count(distinct search_id) as searches_hinted,
                count(distinct search_id) filter (where read) as searches_helped,
                count(*) as hints_shown, count(*) filter (where read) as hints_read
            from search_hints where project = $1 and read is not null
        ) hinted";
    let mut figures: Figures = sqlx::query_as(SQL).bind(project).fetch_one(db).await?;
    figures.enabled = rules.learn;
    Ok(figures)
}
