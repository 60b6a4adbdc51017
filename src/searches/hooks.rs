//! `POST /v1/hooks/{agent}`: what an agent tells while it works. The same learning as from its transcript; told both
//! ways, it is learned once, since what is done is named by the agent's own ids.

use std::collections::HashMap;

use axum::extract::{Request, State};
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::intake;
use super::settings::Rules;
use super::transcript::{Agent, Entry, parse_hook};
use super::write::Desk;
use crate::auth::{Caller, Write};
use crate::db::retry::Losses;
use crate::domain::Domain;
use crate::error::{Refusals, Result};
use crate::http::{NDJSON_LIMIT, clean_json, json, utf8};
use crate::privacy::capture::Capture;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::state::App;
use crate::types::Timestamp;

/// The paths of hooks.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(claude_code)).routes(routes!(codex))
}

/// Nothing: an agent that gets more takes it for instructions, and one that gets an error complains to its user.
#[derive(Debug, Serialize, ToSchema)]
struct Nothing {}

/// Takes what a hook of Claude Code sends. The answer is always the same, also to what is not understood.
#[utoipa::path(post, path = "/v1/hooks/claude-code", tag = "searches", request_body = serde_json::Value,
    responses((status = 200, description = "An empty object", body = Nothing), Refusals))]
async fn claude_code(State(app): State<App>, caller: Caller<Write>, request: Request) -> axum::Json<Nothing> {
    answer(&app, &caller, request, Agent::ClaudeCode, "hooks/claude-code").await
}

/// Takes what a command hook of Codex CLI is given. The answer is always the same, also to what is not understood.
#[utoipa::path(post, path = "/v1/hooks/codex", tag = "searches", request_body = serde_json::Value,
    responses((status = 200, description = "An empty object", body = Nothing), Refusals))]
async fn codex(State(app): State<App>, caller: Caller<Write>, request: Request) -> axum::Json<Nothing> {
    answer(&app, &caller, request, Agent::Codex, "hooks/codex").await
}

async fn answer(
    app: &App,
    caller: &Caller<Write>,
    request: Request,
    agent: Agent,
    source: &str,
) -> axum::Json<Nothing> {
    if let Err(error) = take(app, &caller.tenant, request, agent, source).await {
        tracing::warn!(%error, source, "a hook could not be taken");
        metrics::counter!("gleaner_hooks_failed_total").increment(1);
    }
    axum::Json(Nothing {})
}

async fn take(app: &App, tenant: &Tenant, request: Request, agent: Agent, source: &str) -> Result<()> {
    let mut body = json::body(request, NDJSON_LIMIT).await?;
    if tenant.policy.capture(Domain::Searches) == Capture::Off {
        return Ok(());
    }
    let cleaned = clean_json(&mut body.bytes);
    let entry =
        cleaned.and_then(|_| Ok(parse_hook(agent, utf8(&body.bytes)?, &tenant.rules.tools))).ok().flatten();
    match entry {
        Some(mut entry) => {
            entry.at = entry.at.or_else(|| Some(Timestamp::now()));
            learn(app, tenant, entry, source).await
        }
        None => count_bad(app, &tenant.name, source).await,
    }
}

async fn learn(app: &App, tenant: &Tenant, mut entry: Entry, source: &str) -> Result<()> {
    intake::Carried::default().complete(&mut entry);
    let Some(entry) = tenant.policy.keep(entry) else { return Ok(()) };
    let mut losses = Losses::default();
    loop {
        match play(&app.searches.db, &tenant.name, &tenant.rules, std::slice::from_ref(&entry), source).await
        {
            Err(error) if losses.again(&error).await => {}
            result => return Ok(result?),
        }
    }
}

async fn play(
    db: &PgPool,
    project: &str,
    rules: &Rules,
    entries: &[Kept<Entry>],
    source: &str,
) -> sqlx::Result<()> {
    let mut calls = HashMap::new();
    let trails = intake::trails(entries, source);
    let searches = intake::searches(entries, &calls, source);
    let mut transaction = db.begin().await?;
    let mut desk = Desk::open(&mut transaction, project, rules, &trails, &searches).await?;
    intake::play(Some(&mut desk), &mut calls, entries, source);
    desk.save(&mut transaction, Timestamp::now()).await?;
    transaction.commit().await
}

/// Counts a payload that is none, as a bad line of this source.
async fn count_bad(app: &App, project: &str, source: &str) -> Result<()> {
    const SQL: &str = "
        insert into transcripts as t (project, source, bad_lines, received_at) values ($1, $2, 1, $3)
        on conflict (project, source) do update set bad_lines = t.bad_lines + 1, received_at = excluded.received_at";
    sqlx::query(SQL).bind(project).bind(source).bind(Timestamp::now()).execute(&app.searches.db).await?;
    Ok(())
}
