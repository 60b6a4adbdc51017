//! The change feed of associations, for an index elsewhere that wants to know them, too.
//!
//! Every change takes the next number of its project. The row that holds the latest number is locked from before the
//! change until the commit, so changes appear in the order of their numbers: who has read up to one has missed none
//! before it. An association keeps only its latest number; a follower gets its state of now, and never the same twice.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::associations;
use super::settings::Rules;
use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::http::{Check, Checks, Query};
use crate::state::App;
use crate::types::Timestamp;

/// The path of the feed.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A project's feed, held until the transaction ends. Whoever changes associations takes it first, so no two of them
/// can wait for each other's rows.
#[derive(Debug)]
pub(super) struct Feed {
    last: i64,
}

impl Feed {
    /// Takes it, once nobody else holds it.
    pub(super) async fn lock(connection: &mut PgConnection, project: &str) -> sqlx::Result<Self> {
        const SQL: &str = "
            insert into association_feeds as f (project, last_change) values ($1, 0)
            on conflict (project) do update set last_change = f.last_change
            returning last_change";
        Ok(Self { last: sqlx::query_scalar(SQL).bind(project).fetch_one(connection).await? })
    }

    /// Notes that these associations have changed.
    pub(super) async fn note(
        self,
        connection: &mut PgConnection,
        project: &str,
        associations: &[Uuid],
    ) -> sqlx::Result<()> {
        const SQL: &str = "
            with changed as (
                insert into association_changes as c (project, association_id, change)
                select $1, new.id, $3 + new.place from unnest($2::uuid[]) with ordinality as new (id, place)
                on conflict (project, association_id) do update set change = excluded.change
            )
            update association_feeds set last_change = $3 + cardinality($2) where project = $1";
        if !associations.is_empty() {
            sqlx::query(SQL).bind(project).bind(associations).bind(self.last).execute(connection).await?;
        }
        Ok(())
    }
}

/// Which changes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Since {
    /// `change` of the last line that the follower has; from the beginning, if not given.
    #[param(minimum = 0)]
    cursor: Option<i64>,
    /// The most changes, 1 to 10000; 1000 if not given.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<i64>,
}

impl Check for Since {
    fn check(&self, checks: &mut Checks) {
        checks.require(self.cursor.is_none_or(|cursor| cursor >= 0), "cursor", "must not be negative");
        let fits = self.limit.is_none_or(|limit| (1..=10_000).contains(&limit));
        checks.require(fits, "limit", "must be 1 to 10000");
    }
}

/// An association that has changed, as it is now.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
struct Change {
    /// Number of the change: greater than that of any change before it.
    change: i64,
    /// The association.
    id: Uuid,
    /// `learned`: it is to be known as it stands here. `gone`: its file has left. `erased`: forget it; nothing else is told.
    kind: String,
    /// The query.
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    /// The folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<String>,
    /// The file.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// What speaks for it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    /// How many searches found it.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<i32>,
    /// When one last did.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_at: Option<Timestamp>,
}

/// Associations that have changed, in the order in which they did.
///
/// A follower asks again with `change` of the last line, also where there was none, and misses none and gets none twice.
/// Decay is no change: it is the same for all.
#[utoipa::path(get, path = "/v1/associations/changes", tag = "searches", params(Since),
    responses((status = 200, description = "One JSON object a line", content_type = "application/x-ndjson", body = String,
        headers(("Gleaner-Next-Cursor" = i64, description = "Where to go on"))), Refusals))]
async fn list(State(app): State<App>, caller: Caller<Read>, Query(since): Query<Since>) -> Result<Response> {
    let rules = &caller.tenant.rules;
    let after = since.cursor.unwrap_or(0);
    let changes = read(&app.db, &caller.project, after, since.limit.unwrap_or(1_000), rules).await?;
    let mut body = Vec::new();
    for change in &changes {
        serde_json::to_writer(&mut body, change).map_err(anyhow::Error::from)?;
        body.push(b'\n');
    }
    let next = changes.last().map_or(after, |change| change.change);
    let mut response = ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response();
    response.headers_mut().insert("gleaner-next-cursor", HeaderValue::from(next));
    Ok(response)
}

async fn read(
    db: impl PgExecutor<'_>,
    project: &str,
    after: i64,
    limit: i64,
    rules: &Rules,
) -> Result<Vec<Change>> {
    const SQL: &str = "
        select c.change, c.association_id as id,
            case when a.id is null then 'erased' when a.gone_at is not null then 'gone' else 'learned' end as kind,
            q.query, nullif(q.root, '') as root, a.path,
            decayed(a.weight, extract(epoch from $4 - a.weighed_at)::float8, $5) as weight, a.evidence, a.last_seen_at
        from association_changes c
        left join associations a on a.project = c.project and a.id = c.association_id
        left join association_queries q on q.project = a.project and q.id = a.query_id
        where c.project = $1 and c.change > $2
        order by c.change limit $3";
    Ok(sqlx::query_as(SQL)
        .bind(project)
        .bind(after)
        .bind(limit)
        .bind(associations::now())
        .bind(rules.half_life)
        .fetch_all(db)
        .await?)
}
