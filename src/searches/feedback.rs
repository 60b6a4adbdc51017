//! What is said of associations: whether one helped, and that a file is gone.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::associations::{Association, get};
use super::changes::Feed;
use super::evidence::{Evidence, insert_evidence, weigh};
use super::{MOST_PATH, paths};
use crate::auth::{Caller, Write};
use crate::error::{Error, Refusals, Result};
use crate::http::{ById, Check, Checks, IdempotencyKey, Json, Path};
use crate::state::App;
use crate::types::Timestamp;

/// How much it says that somebody found it useful.
const USEFUL: f64 = 1.0;

/// The paths of feedback.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(feedback)).routes(routes!(gone))
}

/// What somebody says of an association.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewFeedback {
    /// The verdict.
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// It helped.
    Useful,
    /// It did not: from now on it weighs less than half.
    Wrong,
}

impl Check for NewFeedback {
    fn check(&self, _: &mut Checks) {}
}

/// Says whether an association helped. With an `Idempotency-Key`, sending it again changes nothing.
#[utoipa::path(post, path = "/v1/associations/{id}/feedback", tag = "searches", request_body = NewFeedback,
    params(ById, IdempotencyKey),
    responses((status = 200, description = "The association, weighed anew", body = Association), Refusals))]
async fn feedback(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    Path(ById { id }): Path<ById>,
    Json(NewFeedback { verdict }): Json<NewFeedback>,
) -> Result<axum::Json<Association>> {
    let project = &caller.project;
    let source = key.id(project, "feedback", Some(id)).unwrap_or_else(Uuid::now_v7);
    let mut transaction = app.searches.db.begin().await?;
    let rules = &caller.tenant.rules;
    let feed = Feed::lock(&mut transaction, project).await?;
    let Some(now) = get(&mut *transaction, project, id, rules).await? else {
        return Err(Error::NotFound("association"));
    };
    let (kind, weight) = match verdict {
        Verdict::Useful => ("useful", USEFUL),
        Verdict::Wrong => ("wrong", -(1.0 + now.weight.max(0.0) / 2.0)),
    };
    let evidence = [Evidence { association: id, source, kind, weight, at: Timestamp::now(), place: 0 }];
    if insert_evidence(&mut transaction, project, &evidence).await? > 0 {
        weigh(&mut transaction, project, rules, &evidence).await?;
        feed.note(&mut transaction, project, &[id]).await?;
    }
    let association = get(&mut *transaction, project, id, rules).await?;
    transaction.commit().await?;
    association.map(axum::Json).ok_or(Error::NotFound("association"))
}

/// A file that left the index.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Gone {
    /// The folder it was in; none for associations of no known root.
    #[schema(min_length = 1, max_length = 4096)]
    root: Option<String>,
    /// The file.
    #[schema(min_length = 1, max_length = 4096)]
    path: String,
}

impl Check for Gone {
    fn check(&self, checks: &mut Checks) {
        checks.text("path", &self.path, MOST_PATH);
        if let Some(root) = &self.root {
            checks.text("root", root, MOST_PATH);
        }
    }
}

/// What was marked.
#[derive(Debug, Serialize, ToSchema)]
struct Marked {
    /// How many associations led to the file and no longer do.
    gone: usize,
}

/// Says that a file is gone: nothing leads to it any more, until an agent finds it again.
#[utoipa::path(post, path = "/v1/associations/gone", tag = "searches", request_body = Gone,
    responses((status = 200, description = "How many associations led there", body = Marked), Refusals))]
async fn gone(
    State(app): State<App>,
    caller: Caller<Write>,
    Json(file): Json<Gone>,
) -> Result<axum::Json<Marked>> {
    const SQL: &str = "
        update associations a set gone_at = $4
        from association_queries q
        where a.project = $1 and a.path = $3 and a.gone_at is null
            and q.project = $1 and q.id = a.query_id and q.root = $2
        returning a.id";
    let root = file.root.as_deref().map(paths::folder);
    let path = paths::normalise(&file.path, root.as_deref(), root.as_deref());
    let mut transaction = app.searches.db.begin().await?;
    let feed = Feed::lock(&mut transaction, &caller.project).await?;
    let ids: Vec<Uuid> = sqlx::query_scalar(SQL)
        .bind(&*caller.project)
        .bind(root.unwrap_or_default())
        .bind(path)
        .bind(Timestamp::now())
        .fetch_all(&mut *transaction)
        .await?;
    feed.note(&mut transaction, &caller.project, &ids).await?;
    transaction.commit().await?;
    Ok(axum::Json(Marked { gone: ids.len() }))
}
