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
use crate::http::memory::Memory;
use crate::http::reply::{Changed, NotKept, Shown};
use crate::http::{ById, Check, Checks, Json, Path, Query, line};
use crate::searches::associations::feedback::{self, Feedback, GoneFile, NewFeedback};
use crate::searches::associations::{self, Association, feed};
use crate::searches::expansions::{self, Expansion};
use crate::searches::hints::{self, Asked, Asker, Hint};
use crate::searches::limits::{MOST_PATH, MOST_QUERY};
use crate::searches::rules::repository::repository;
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
    /// Only what was learned in this folder, or in another clone or worktree of its repository.
    #[param(min_length = 1, max_length = 4096)]
    root: Option<String>,
    /// The maximum number of entries to return, from 1 to 100. The default is 10.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<i64>,
}

impl Check for SimilarTo {
    fn check(&self, checks: &mut Checks) {
        check_question(checks, &self.query, self.root.as_deref(), self.limit);
    }
}

/// A query for which hints are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Question {
    /// What is searched for.
    #[param(min_length = 1, max_length = 2000, example = "login button")]
    query: String,
    /// The folder that is searched. What was learned in other clones and worktrees of its repository counts too.
    #[param(min_length = 1, max_length = 4096)]
    root: Option<String>,
    /// The agent session that asks. The default is the session that was last active in the folder within an hour.
    #[param(min_length = 1, max_length = 200)]
    agent_session_id: Option<String>,
    /// The maximum number of entries to return, from 1 to 100. The default is 10.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<i64>,
    /// The minimum `score` of an entry, from 0 to 1. Without it, the response has one entry only if its score is at least
    /// 0.2, which is rare, and a second entry only if its score is at least 0.25.
    #[param(minimum = 0, maximum = 1)]
    min_score: Option<f64>,
}

impl Check for Question {
    fn check(&self, checks: &mut Checks) {
        check_question(checks, &self.query, self.root.as_deref(), self.limit);
        checks.name("agent_session_id", self.agent_session_id.as_deref());
        let fits = self.min_score.is_none_or(|score| (0.0..=1.0).contains(&score));
        checks.require(fits, "min_score", "must be from 0 to 1");
    }
}

fn check_question(checks: &mut Checks, query: &str, root: Option<&str>, limit: Option<i64>) {
    checks.text("query", query, MOST_QUERY);
    if let Some(root) = root {
        checks.text("root", root, MOST_PATH);
    }
    checks.require(limit.is_none_or(|limit| (1..=100).contains(&limit)), "limit", "must be from 1 to 100");
}

/// How many entries a request has if it does not say.
const LIMIT: i64 = 10;

/// Files, best first.
#[derive(Debug, Serialize, ToSchema)]
struct Associations {
    /// The files, ordered by `score`.
    data: Vec<Hint>,
}

/// Returns the file that an agent should probably open for this query, if there is one.
///
/// With `root` or `agent_session_id`, the score of a file depends on what the session has seen and touched, on what was touched
/// together with it, on the contents and the path of the file, and on similar queries that it answered. Files that the session
/// has touched are never listed, and usually the list is empty. Without both parameters, the response lists the associations of
/// similar queries, and their score is the similarity of the queries. Old associations rank lower but are never left out because
/// of their age. Associations with a weight of 0 or less, which turned out to be wrong, are left out.
#[utoipa::path(get, path = "/v1/associations", tag = "searches", params(Question),
    responses((status = 200, description = "The files", body = Associations), Refusals))]
async fn find_associations(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(mut asked): Query<Question>,
) -> Result<axum::Json<Associations>> {
    let tenant = &caller.tenant;
    // What is stored is redacted, so it is found by what is left of the question.
    (asked.query, _) = tenant.redacted(asked.query).await;
    (asked.root, _) = tenant.redacted(asked.root).await;
    asked.agent_session_id = tenant.redacted_name(asked.agent_session_id).await;
    let limit = asked.limit.unwrap_or(LIMIT);
    let _turn = app.similar.take(&caller.project, 1).await;
    let Question { query, root, agent_session_id: session, min_score: least, .. } = &asked;
    let data = if root.is_none() && session.is_none() {
        let found =
            associations::find(&app.db, &app.samples, &tenant.name, query, None, limit, &tenant.rules)
                .await?;
        let is_enough = |found: &Association| least.is_none_or(|least| found.score >= least);
        found.into_iter().filter(is_enough).map(Hint::from).collect()
    } else {
        let asked = Asked {
            query,
            root: root.as_deref(),
            asker: session
                .as_deref()
                .map_or(Asker::LastActive, |session| Asker::Agent { session, agent: None }),
            limit: usize::try_from(limit).unwrap_or_default(),
            least: *least,
            ..Asked::default()
        };
        hints::find(&app.db, &app.samples, &tenant.name, &tenant.rules, &asked).await?
    };
    Ok(axum::Json(Associations { data }))
}

/// Grep and glob patterns, best first.
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
    Query(mut wanted): Query<SimilarTo>,
) -> Result<axum::Json<Expansions>> {
    (wanted.query, _) = caller.tenant.redacted(wanted.query).await;
    (wanted.root, _) = caller.tenant.redacted(wanted.root).await;
    let (repository, rules) = (wanted.root.as_deref().map(repository), &caller.tenant.rules);
    let (query, limit) = (&wanted.query, wanted.limit.unwrap_or(LIMIT));
    let repository = repository.as_deref();
    let _turn = app.similar.take(&caller.project, 1).await;
    let data =
        expansions::find(&app.db, &app.samples, &caller.project, query, repository, limit, rules).await?;
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
    memory: Memory,
    Query(wanted): Query<ChangesAfter>,
    headers: HeaderMap,
) -> Result<Response> {
    let (after, limit) = (wanted.cursor.unwrap_or(0), wanted.limit.unwrap_or(1_000));
    let changes = feed::list(&app.db, &caller.project, after, limit, &caller.tenant.rules, &memory).await?;
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

/// Reports whether an association was useful.
///
/// With an `Idempotency-Key`, sending the report again changes nothing, and a report with another verdict is refused.
#[utoipa::path(post, path = "/v1/associations/{id}/feedback", tag = "searches",
    params(("id" = Uuid, Path, description = "The association's id.", example = "158da681-b4fa-80b8-a80e-4f85f4da9cc2"), Writing),
    request_body(content = NewFeedback, example = json!({"verdict": "useful"})),
    responses(Changed<Association>, Refusals))]
async fn report_association(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(NewFeedback { verdict }): Json<NewFeedback>,
) -> Result<Changed<Association>> {
    // The id of an association follows from its query and its path.
    let writing = writing.for_readers();
    let tenant = &writing.caller.tenant;
    let source = writing.id("feedback", Some(id)).unwrap_or_else(Uuid::now_v7);
    let feedback = Feedback { association: id, source, verdict };
    let Some(feedback) = tenant.keep(feedback).await else { return Ok(Changed(Shown::NotKept)) };
    let association = feedback::give(&writing.app.searches, tenant, &feedback).await?;
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
    let Some(file) = caller.tenant.keep(file).await else { return Ok(Shown::NotKept) };
    let gone = feedback::mark_gone(&app.searches, &caller.project, &file).await?;
    Ok(Shown::Record(GoneAssociations { gone }))
}
