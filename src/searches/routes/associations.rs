//! The endpoints of associations, and of the patterns that led to them.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Read, Write};
use crate::error::{Refusals, Result};
use crate::http::reply::{Changed, NotKept, Shown};
use crate::http::{ById, Check, Checks, Json, Path, Query, line};
use crate::searches::associations::feedback::{self, Feedback, GoneFile, NewFeedback};
use crate::searches::associations::{self, Association, feed};
use crate::searches::expansions::{self, Expansion};
use crate::searches::limits::{MOST_PATH, MOST_QUERY};
use crate::state::App;
use crate::writing::Writing;

/// Returns the endpoints of associations and expansions.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(find_associations))
        .routes(routes!(list_association_changes))
        .routes(routes!(report_association))
        .routes(routes!(mark_file_gone))
        .routes(routes!(find_expansions))
}

/// A query, for which similar ones are looked up.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SimilarTo {
    /// The query to find similar queries for.
    #[param(min_length = 1, max_length = 2000, example = "login button")]
    query: String,
    /// Only associations learned in this folder.
    #[param(min_length = 1, max_length = 4096)]
    root: Option<String>,
    /// The maximum number of entries to return, from 1 to 100. The default is 10.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<i64>,
}

impl SimilarTo {
    fn limit(&self) -> i64 {
        self.limit.unwrap_or(10)
    }
}

impl Check for SimilarTo {
    fn check(&self, checks: &mut Checks) {
        checks.text("query", &self.query, MOST_QUERY);
        if let Some(root) = &self.root {
            checks.text("root", root, MOST_PATH);
        }
        let fits = self.limit.is_none_or(|limit| (1..=100).contains(&limit));
        checks.require(fits, "limit", "must be from 1 to 100");
    }
}

/// Associations, the best first.
#[derive(Debug, Serialize, ToSchema)]
struct Associations {
    /// The associations, ordered by the similarity of their queries and, for equal similarity, by weight.
    data: Vec<Association>,
}

/// Lists the files that answered queries similar to this one. Old associations rank lower but are never left out
/// because of their age. Associations with a weight of 0 or less, which turned out to be wrong, are left out.
#[utoipa::path(get, path = "/v1/associations", tag = "searches", params(SimilarTo),
    responses((status = 200, description = "The associations", body = Associations), Refusals))]
async fn find_associations(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(wanted): Query<SimilarTo>,
) -> Result<axum::Json<Associations>> {
    let (root, rules) = (wanted.root.as_deref(), &caller.tenant.rules);
    let data = associations::find(
        &app.db,
        &app.samples,
        &caller.project,
        &wanted.query,
        root,
        wanted.limit(),
        rules,
    )
    .await?;
    Ok(axum::Json(Associations { data }))
}

/// Grep and glob patterns, the best first.
#[derive(Debug, Serialize, ToSchema)]
struct Expansions {
    /// The patterns, ordered by the similarity of the query and then by the number of searches that they helped.
    data: Vec<Expansion>,
}

/// Lists grep and glob patterns that found what similar queries had missed.
#[utoipa::path(get, path = "/v1/searches/expansions", tag = "searches", params(SimilarTo),
    responses((status = 200, description = "The patterns", body = Expansions), Refusals))]
async fn find_expansions(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(wanted): Query<SimilarTo>,
) -> Result<axum::Json<Expansions>> {
    let (root, rules) = (wanted.root.as_deref(), &caller.tenant.rules);
    let data =
        expansions::find(&app.db, &app.samples, &caller.project, &wanted.query, root, wanted.limit(), rules)
            .await?;
    Ok(axum::Json(Expansions { data }))
}

/// Which changes of associations to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ChangesAfter {
    /// The `change` of the last line that the client received. Without it, the list begins with the first change.
    #[param(minimum = 0)]
    cursor: Option<i64>,
    /// The maximum number of changes to return, from 1 to 10,000. The default is 1,000.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<i64>,
}

impl Check for ChangesAfter {
    fn check(&self, checks: &mut Checks) {
        checks.require(self.cursor.is_none_or(|cursor| cursor >= 0), "cursor", "must not be negative");
        let fits = self.limit.is_none_or(|limit| (1..=10_000).contains(&limit));
        checks.require(fits, "limit", "must be from 1 to 10000");
    }
}

/// Lists changed associations in the order of their changes.
///
/// To follow the changes, send the `change` of the last line as the next `cursor`, even if the last response was
/// empty. A client that does so misses no change and receives none twice. The decay of weights is not reported as a
/// change because it is the same for all associations.
#[utoipa::path(get, path = "/v1/associations/changes", tag = "searches", params(ChangesAfter),
    responses((status = 200, description = "One JSON object per line",
        content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-Next-Cursor" = i64, description = "The cursor for the next request"))), Refusals))]
async fn list_association_changes(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(wanted): Query<ChangesAfter>,
    headers: HeaderMap,
) -> Result<Response> {
    let (after, limit) = (wanted.cursor.unwrap_or(0), wanted.limit.unwrap_or(1_000));
    let changes = feed::list(&app.db, &caller.project, after, limit, &caller.tenant.rules).await?;
    let mut body = Vec::new();
    for change in &changes {
        serde_json::to_writer(&mut body, change).map_err(anyhow::Error::from)?;
        body.push(b'\n');
    }
    let next = changes.last().map_or(after, |change| change.change);
    let mut response = ([(header::CONTENT_TYPE, line::accepted(&headers))], body).into_response();
    response.headers_mut().insert("gleaner-next-cursor", HeaderValue::from(next));
    Ok(response)
}

/// Reports whether an association was useful. With an `Idempotency-Key`, sending the report again changes nothing.
#[utoipa::path(post, path = "/v1/associations/{id}/feedback", tag = "searches",
    params(("id" = Uuid, Path, description = "The association's id.", example = "158da681-b4fa-80b8-a80e-4f85f4da9cc2"), Writing),
    request_body(content = NewFeedback, example = json!({"verdict": "useful"})),
    responses(Changed<Association>, Refusals))]
async fn report_association(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(NewFeedback { verdict }): Json<NewFeedback>,
) -> Result<Changed<Association>> {
    let tenant = &writing.caller.tenant;
    let source = writing.id("feedback", Some(id)).unwrap_or_else(Uuid::now_v7);
    let feedback = Feedback { association: id, source, verdict };
    let Some(feedback) = tenant.policy.keep(feedback) else { return Ok(Changed(Shown::NotKept)) };
    let association = feedback::give(&writing.app.searches.db, tenant, &feedback).await?;
    Ok(Changed(if writing.shows_record() { Shown::Record(association) } else { Shown::Minimal }))
}

/// The number of associations that led to a file that no longer exists.
#[derive(Debug, Serialize, ToSchema)]
struct GoneAssociations {
    /// The number of associations that are no longer returned.
    gone: usize,
}

/// Reports that a file no longer exists. Its associations are not returned until an agent finds the file again.
#[utoipa::path(post, path = "/v1/associations/gone", tag = "searches",
    request_body(content = GoneFile, example = json!({"root": "/home/jane/my-project", "path": "src/old_login.rs"})),
    responses(
        (status = 200, description = "The number of associations that led to the file", body = GoneAssociations),
        NotKept,
        Refusals,
    ))]
async fn mark_file_gone(
    State(app): State<App>,
    caller: Caller<Write>,
    Json(file): Json<GoneFile>,
) -> Result<Shown<GoneAssociations>> {
    let Some(file) = caller.tenant.policy.keep(file) else { return Ok(Shown::NotKept) };
    let gone = feedback::mark_gone(&app.searches.db, &caller.project, &file).await?;
    Ok(Shown::Record(GoneAssociations { gone }))
}
