//! How searches are started, followed, resolved and listed.

use axum::extract::State;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Read, Write};
use crate::error::{Error, Refusals, Result};
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{NotKept, Prefer};
use crate::http::{ById, IdempotencyKey, Json, Path};
use crate::projects::Tenant;
use crate::searches::analytics::{self, Figures};
use crate::searches::store::{self, Filter};
use crate::searches::{AppendedFallback, Event, NewFallback, NewSearch, Resolve, Search, associations};
use crate::state::App;

/// The paths of searches.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start_search, list_searches))
        .routes(routes!(get_search))
        .routes(routes!(append_fallback))
        .routes(routes!(resolve_search))
        .routes(routes!(get_search_figures))
}

/// Starts a search.
///
/// One whose best score is under the threshold is tracked: what the agent does next is learned from. The answer has, as
/// `hints`, where similar queries were answered before.
#[utoipa::path(post, path = "/v1/searches", tag = "searches", request_body = NewSearch,
    params(Prefer, IdempotencyKey),
    responses(
        (status = 201, description = "The search", body = Search, headers(("Location" = String, description = "Its address"))),
        (status = 200, description = "It had been sent before; as it is now", body = Search),
        NotKept,
        Refusals,
    ))]
async fn start_search(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    Json(new): Json<NewSearch>,
) -> Result<Response> {
    let id = key.id(&caller.project, "searches", None);
    let rules = &caller.tenant.rules;
    let hints = associations::hints(&app.db, &caller.project, &new.query, new.root.as_deref(), rules).await?;
    let shown = hints.iter().map(|hint| (hint.id, hint.score)).collect();
    let event = Event::start(new, id, shown);
    let id = event.search_id;
    let receipt = app.writer.write(&caller.tenant, event).await?;
    let body = async || {
        let search = stored(&app, &caller.tenant, id).await?;
        let hints = if receipt.replayed { search.hints } else { Some(hints) };
        Ok(Search { hints, ..search })
    };
    prefer.created(receipt, address(id), body).await
}

/// Appends what the agent did after a search that is tracked.
///
/// It counts for every search of the same agent that is tracked, by its share. One that comes after a silence longer than
/// the window shows that the session was over: it is kept, but does not count.
#[utoipa::path(post, path = "/v1/searches/{id}/fallbacks", tag = "searches", request_body = NewFallback,
    params(ById, Prefer, IdempotencyKey),
    responses(
        (status = 201, description = "The fallback", body = AppendedFallback, headers(("Location" = String, description = "Its search's address"))),
        (status = 200, description = "It had been sent before", body = AppendedFallback),
        NotKept,
        Refusals,
    ))]
async fn append_fallback(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(new): Json<NewFallback>,
) -> Result<Response> {
    let fallback = key.id(&caller.project, "fallbacks", Some(id));
    let event = Event::append(id, new, fallback);
    let fallback = event.fallback_id().unwrap_or_default();
    let receipt = app.writer.write(&caller.tenant, event).await?;
    let body = async || {
        let fallback = store::fallback(&app.db, &caller.project, id, fallback).await?;
        fallback.ok_or(Error::NotFound("fallback"))
    };
    prefer.created(receipt, address(id), body).await
}

/// Resolves a search: the turn in which it was made has ended.
///
/// With enough files read it is `resolved`, with the `associations` that it made; else `unresolved`. One that was over
/// already stays as it is.
#[utoipa::path(post, path = "/v1/searches/{id}/resolve", tag = "searches", params(ById, Prefer), request_body = Resolve,
    responses((status = 200, description = "The search, ended", body = Search), NotKept, Refusals))]
async fn resolve_search(
    State(app): State<App>,
    caller: Caller<Write>,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(resolve): Json<Resolve>,
) -> Result<Response> {
    let event = Event::finalize(id, &resolve);
    let receipt = app.writer.write(&caller.tenant, event).await?;
    prefer.changed(receipt, async || stored(&app, &caller.tenant, id).await).await
}

/// Gets a whole search: what was done after it, which hints it was answered with, and what was learned from it.
#[utoipa::path(get, path = "/v1/searches/{id}", tag = "searches", params(ById),
    responses((status = 200, description = "The search", body = Search), Refusals))]
async fn get_search(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Search>> {
    stored(&app, &caller.tenant, id).await.map(axum::Json)
}

/// One page of searches.
type SearchPage = Page<Search>;

/// Lists searches, newest first.
#[utoipa::path(get, path = "/v1/searches", tag = "searches", params(Filter, PageParams),
    responses((status = 200, description = "A page of searches", body = SearchPage), Refusals))]
async fn list_searches(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<Filter>,
) -> Result<SearchPage> {
    store::list(&app.db, &caller.project, &list.filter, &list.page).await
}

/// Tells what the feedback loop has done, and whether its hints get read.
#[utoipa::path(get, path = "/v1/analytics/searches", tag = "analytics",
    responses((status = 200, description = "The figures", body = Figures), Refusals))]
async fn get_search_figures(State(app): State<App>, caller: Caller<Read>) -> Result<axum::Json<Figures>> {
    analytics::figures(&app.db, &caller.project, &caller.tenant.rules).await.map(axum::Json)
}

async fn stored(app: &App, tenant: &Tenant, id: Uuid) -> Result<Search> {
    store::get(&app.db, &tenant.name, &tenant.rules, id).await?.ok_or(Error::NotFound("search"))
}

fn address(id: Uuid) -> String {
    format!("/v1/searches/{id}")
}
