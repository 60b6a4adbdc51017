//! The endpoints of searches.

use axum::extract::State;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Read, Write};
use crate::db::receipt::Receipt;
use crate::error::{Error, Refusals, Result};
use crate::http::memory::Memory;
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{Changed, Created, NotKept, Prefer, Shown};
use crate::http::{ById, Json, Path};
use crate::projects::Tenant;
use crate::searches::analytics::{self, Figures};
use crate::searches::hints::{self, Asked, Asker};
use crate::searches::store::{self, Filter};
use crate::searches::{
    AppendedFallback, EndedTurn, Event, NewFallback, NewSearch, Resolve, Search, TurnEnd, turns,
};
use crate::sharing::Kind;
use crate::state::App;
use crate::writing::Writing;

/// Returns the endpoints of searches.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Answers::openapi())
        .routes(routes!(start_search, list_searches))
        .routes(routes!(get_search))
        .routes(routes!(append_fallback))
        .routes(routes!(resolve_search))
        .routes(routes!(end_turn))
        .routes(routes!(get_search_figures))
}

/// The schemas that only answers to writes have.
#[derive(OpenApi)]
#[openapi(components(schemas(AppendedFallback)))]
struct Answers;

/// Starts a search.
///
/// A search whose best score is below the threshold is tracked: Gleaner learns from what the agent does next. In
/// `hints`, the response has a file that is probably worth opening, rarely two, and usually none. Only keys with the scope
/// `read` get hints, because hints show the work of others.
#[utoipa::path(post, path = "/v1/searches", tag = "searches", params(Writing),
    request_body(content = NewSearch, example = json!({
        "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71",
        "query": "where is the login button drawn",
        "best_score": 0.31,
        "results": [{"path": "docs/login.md", "score": 0.31}],
        "agent_session_id": "my-session",
        "turn_id": "turn-1",
        "root": "/home/jane/my-project",
        "timestamp": 1_736_937_000.0,
    })),
    responses(Created<Search>, Refusals))]
async fn start_search(writing: Writing, Json(new): Json<NewSearch>) -> Result<Created<Search>> {
    let (app, tenant) = (&writing.app, &writing.caller.tenant);
    let hints = if writing.caller.may_read() {
        // What is stored is redacted, so it is found by what is left of the question.
        let (asked, _) = tenant.redacted(new.clone()).await;
        let asked = Asked {
            query: &asked.query,
            root: asked.root.as_deref(),
            asker: asked
                .agent_session_id
                .as_deref()
                .map_or(Asker::Unknown, |session| Asker::Agent { session, agent: asked.agent_id.as_deref() }),
            offered: asked.offered().collect(),
            limit: usize::MAX,
            least: None,
        };
        writing.memory().end_turn();
        let _place = app.similar.take(&tenant.name, 1).await;
        let _turn = app.work.turn(&tenant.name, Kind::Read).await;
        match hints::find(&app.db, &app.samples, &tenant.name, &tenant.rules, &asked).await {
            // A search that is stored without hints is better than none.
            Err(error) if error.is_transient() => Vec::new(),
            found => found?,
        }
    } else {
        Vec::new()
    };
    let shown = (1..).zip(&hints).map(|(rank, hint)| hint.given(rank)).collect();
    let event = Event::start(new, writing.id("searches", None), shown);
    let id = event.search_id;
    let record = async |receipt: Receipt| {
        let search = stored(app, tenant, id, writing.memory()).await?;
        // One that was sent before keeps the hints that it was answered with then.
        let hints = if receipt.replayed { search.hints } else { Some(hints) };
        Ok(Search { hints, ..search })
    };
    writing.create(event, address(id), record).await
}

/// Appends a fallback, which is something that the agent did after a tracked search.
///
/// A fallback counts for every tracked search of the same agent, in proportion to its `share`. A fallback after a
/// silence longer than `session_timeout` is stored but does not count, because the search was over by then. Neither
/// does one after the first 1,000 of a search.
#[utoipa::path(post, path = "/v1/searches/{id}/fallbacks", tag = "searches", params(ById, Writing),
    request_body(content = NewFallback, examples(
        ("read" = (summary = "A file was read", value = json!({
            "kind": "read", "path": "src/ui/login.rs", "timestamp": 1_736_937_004.0,
        }))),
        ("grep" = (summary = "A pattern was searched for", value = json!({
            "kind": "grep", "pattern": "fn draw_login", "timestamp": 1_736_937_002.0,
        }))),
    )),
    responses(Created<AppendedFallback>, Refusals))]
async fn append_fallback(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(new): Json<NewFallback>,
) -> Result<Created<AppendedFallback>> {
    let event = Event::append(id, new, writing.id("fallbacks", Some(id)));
    let fallback = event.kept_fallback_id(writing.caller.tenant.policy.key()).unwrap_or_default();
    let record = async |_| {
        let fallback = store::fallback(&writing.app.db, &writing.caller.project, id, fallback).await?;
        fallback.ok_or(Error::NotFound("fallback"))
    };
    writing.create(event, address(id), record).await
}

/// Resolves a search because the agent's turn has ended.
///
/// If enough files were read, the search becomes `resolved`, and `associations` lists what was learned. Otherwise it
/// becomes `unresolved`. A search that has already ended stays as it is.
#[utoipa::path(post, path = "/v1/searches/{id}/resolve", tag = "searches", params(ById, Prefer),
    request_body(content = Resolve, example = json!({"timestamp": 1_736_937_010.0})),
    responses(Changed<Search>, Refusals))]
async fn resolve_search(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(resolve): Json<Resolve>,
) -> Result<Changed<Search>> {
    let record = async |_| stored(&writing.app, &writing.caller.tenant, id, writing.memory()).await;
    writing.change(Event::finalize(id, &resolve), record).await
}

/// Ends an agent's turn. All tracked searches of its session end, as if each were resolved.
///
/// This request is not needed with hooks or transcripts, which report the end of each turn. For an unknown session,
/// the response lists no searches. Neither does it for a key without the scope `read`, because whoever knows the id of
/// a search may see it.
#[utoipa::path(post, path = "/v1/searches/turn-end", tag = "searches",
    request_body(content = TurnEnd, example = json!({
        "agent_session_id": "my-session", "turn_id": "turn-1", "timestamp": 1_736_937_020.0,
    })),
    responses(
        (status = 200, description = "The searches that ended", body = EndedTurn),
        NotKept,
        Refusals,
    ))]
async fn end_turn(
    State(app): State<App>,
    caller: Caller<Write>,
    Json(turn): Json<TurnEnd>,
) -> Result<Shown<EndedTurn>> {
    let Some(turn) = caller.tenant.keep(turn).await else { return Ok(Shown::NotKept) };
    let mut ended = turns::end(&app.searches, &caller.tenant, &turn).await?;
    if !caller.may_read() {
        ended.searches.clear();
    }
    Ok(Shown::Record(ended))
}

/// Returns a search with its fallbacks, its hints and the associations learned from it.
#[utoipa::path(get, path = "/v1/searches/{id}", tag = "searches", params(ById),
    responses((status = 200, description = "The search", body = Search), Refusals))]
async fn get_search(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Search>> {
    stored(&app, &caller.tenant, id, &memory).await.map(axum::Json)
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
    // What is stored is redacted, so it is found by what is left of the name.
    let filter = caller.tenant.redacted_name(list.filter).await;
    store::list(&app.db, &caller.project, &filter, &list.page).await
}

/// Returns statistics about searches, what was learned from them, and how often hints were read.
#[utoipa::path(get, path = "/v1/analytics/searches", tag = "analytics",
    responses((status = 200, description = "The statistics", body = Figures), Refusals))]
async fn get_search_figures(State(app): State<App>, caller: Caller<Read>) -> Result<axum::Json<Figures>> {
    analytics::figures(&app.db, &caller.project, &caller.tenant.rules).await.map(axum::Json)
}

async fn stored(app: &App, tenant: &Tenant, id: Uuid, memory: &Memory) -> Result<Search> {
    store::get(&app.db, &tenant.name, &tenant.rules, id, memory).await?.ok_or(Error::NotFound("search"))
}

fn address(id: Uuid) -> String {
    format!("/v1/searches/{id}")
}
