//! How generation logs are read and erased. [`write`](super::write) writes them.

use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{Attempt, Generation, Rating, pairs};
use crate::db;
use crate::db::aged::Aged;
use crate::db::erased::{Counts, forget_signs};
use crate::db::rows;
use crate::error::{Error, Result};
use crate::exports::forget::forget;
use crate::generations::exports::DATASETS;
use crate::http::memory::Memory;
use crate::http::page::{Listed, Page, PageRequest};
use crate::http::{Check, Checks, boolean};
use crate::types::{Contained, Timestamp};
use serde::Deserialize;
use utoipa::IntoParams;

/// Selects logs as `g`, without their attempts. The totals are computed here and stored nowhere, so they
/// cannot drift.
const SELECT: &str = "
    select g.id, g.user_intent, g.domain_name, g.session_id, g.cbu_id, g.instance_id, g.model_used, g.metadata,
        g.created_at, g.success, g.final_valid_dsl, g.error, g.completed_at, t.*,
        case when g.reviewed_at is not null then jsonb_build_object('rating', g.rating, 'reviewer', g.reviewer,
            'note', g.review_note, 'corrected_dsl', g.corrected_dsl, 'reviewed_at', g.reviewed_at) end as review
    from generations g
    cross join lateral (
        select count(*) as total_attempts,
            coalesce(sum(a.latency_ms), 0)::bigint as total_latency_ms,
            coalesce(sum(a.input_tokens), 0)::bigint as total_input_tokens,
            coalesce(sum(a.output_tokens), 0)::bigint as total_output_tokens
        from attempts a where a.project = g.project and a.generation_id = g.id
    ) t
    where g.project = ";

/// The columns of attempts that are shown. Each query names the columns that it returns, because a newer server may add
/// others while an older one runs.
const ATTEMPT: &str = "id, attempt, timestamp, prompt_template, prompt_template_version, prompt_text, raw_response, extracted_dsl, parse_result,
    lint_result, compile_result, latency_ms, input_tokens, output_tokens, metadata";

/// The filter of a list of generation logs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only logs with this domain name, such as `cbu`.
    domain_name: Option<String>,
    /// With true, only logs that succeeded; with false, only logs that failed.
    #[serde(deserialize_with = "boolean")]
    success: Option<bool>,
    /// With true, only logs that are not finalized yet; with false, only finalized logs.
    #[serde(deserialize_with = "boolean")]
    open: Option<bool>,
    /// Only logs of this model.
    model_used: Option<String>,
    /// Only logs with an attempt that used this prompt template.
    prompt_template: Option<String>,
    /// Only logs of this agent session.
    session_id: Option<String>,
    /// Only logs about this business unit.
    cbu_id: Option<String>,
    /// Only logs whose program was persisted under this instance id.
    instance_id: Option<String>,
    /// Only logs that a reviewer gave this rating.
    #[param(inline)]
    rating: Option<Rating>,
    /// Only logs whose intent contains this text. Case is ignored.
    #[param(inline)]
    q: Option<Contained>,
}

impl Check for Filter {
    fn check(&self, checks: &mut Checks) {
        checks.contained("q", self.q.as_ref());
    }
}

crate::texts! {
    Filter: domain_name, model_used, prompt_template, cbu_id, instance_id | session_id;
}

impl Filter {
    fn push(&self, query: &mut QueryBuilder<Postgres>) {
        let equal = [
            ("g.domain_name", &self.domain_name),
            ("g.model_used", &self.model_used),
            ("g.session_id", &self.session_id),
            ("g.cbu_id", &self.cbu_id),
            ("g.instance_id", &self.instance_id),
        ];
        for (column, value) in equal {
            if let Some(value) = value {
                query.push(format_args!(" and {column} = ")).push_bind(value.clone());
            }
        }
        if let Some(success) = self.success {
            query.push(" and g.success = ").push_bind(success);
        }
        if let Some(open) = self.open {
            query.push(if open { " and g.completed_at is null" } else { " and g.completed_at is not null" });
        }
        if let Some(rating) = self.rating {
            query.push(" and g.rating = ").push_bind(rating);
        }
        if let Some(template) = &self.prompt_template {
            query.push(
                " and exists (select from attempts a where a.project = g.project and a.generation_id = g.id",
            );
            query.push(" and a.prompt_template = ").push_bind(template.clone()).push(")");
        }
        if let Some(text) = &self.q {
            query.push(" and g.user_intent ilike ").push_bind(text.pattern());
            // This is so of every log; it is there for the index, which holds the short intents only.
            query.push(" and (octet_length(g.user_intent) <= 2000 or (octet_length(g.user_intent) <= 2000) is not true)");
        }
    }
}

impl Listed for Generation {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}

/// Answers 404 if there is no such log, and 409 if no attempt of this number can be added to it.
pub async fn expect_room(db: &PgPool, project: &str, id: Uuid, number: Option<i32>) -> Result<()> {
    const SQL: &str = "
        select g.completed_at is null,
            exists(select from attempts a where a.project = $1 and a.generation_id = $2 and a.attempt = $3)
        from generations g where g.project = $1 and g.id = $2";
    let found: Option<(bool, bool)> =
        sqlx::query_as(SQL).bind(project).bind(id).bind(number).fetch_optional(db).await?;
    match found {
        None => Err(Error::NotFound("generation log")),
        Some((false, _)) => {
            Err(Error::Conflict(format!("the log {id} is finalized; no attempt can be added")))
        }
        Some((true, true)) => Err(Error::Conflict(format!(
            "attempt {} of the log {id} already exists",
            number.unwrap_or_default()
        ))),
        Some((true, false)) => Ok(()),
    }
}

/// Returns one page of a project's logs.
pub async fn list(
    db: &PgPool,
    project: &str,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Page<Generation>> {
    let mut query = QueryBuilder::new(SELECT);
    query.push_bind(project.to_owned());
    filter.push(&mut query);
    page.push(&mut query, "g.created_at", "g.id", "uuid")?;
    page.read(&mut query, db).await
}

/// Returns the whole log, or none if there is no such log. Its totals and attempts are read at the same
/// moment.
pub async fn get(db: &PgPool, project: &str, id: Uuid, memory: &Memory) -> Result<Option<Generation>> {
    let reading = memory.reading(rows::MOST);
    let whole = async || {
        let mut snapshot = db::begin_snapshot(db).await?;
        let mut query = QueryBuilder::new(SELECT);
        query.push_bind(project.to_owned()).push(" and g.id = ").push_bind(id);
        let found: Option<Generation> = rows::one(query.build(), &mut snapshot, &reading).await?;
        let Some(mut generation) = found else {
            return Ok(None);
        };
        let sql = format!(
            "select {ATTEMPT} from attempts where project = $1 and generation_id = $2 order by attempt"
        );
        let attempts =
            rows::parts(sqlx::query(AssertSqlSafe(sql)).bind(project).bind(id), &mut snapshot, &reading)
                .await?;
        generation.iterations = Some(attempts);
        Ok(Some(generation))
    };
    reading.by(whole).await
}

/// Returns one attempt of a log.
pub async fn attempt(
    db: &PgPool,
    project: &str,
    id: Uuid,
    number: i32,
    memory: &Memory,
) -> Result<Option<Attempt>> {
    let sql =
        format!("select {ATTEMPT} from attempts where project = $1 and generation_id = $2 and attempt = $3");
    rows::single(sqlx::query(AssertSqlSafe(sql)).bind(project).bind(id).bind(number), db, memory).await
}

/// The number of records erased.
#[derive(Debug, Default, sqlx::FromRow)]
pub struct Erased {
    /// The number of generation logs erased.
    pub generations: u64,
    /// The number of attempts erased.
    pub attempts: u64,
}

impl Erased {
    /// Returns the counts with the names of what was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        vec![("generations", self.generations), ("attempts", self.attempts)]
    }
}

/// Erases a log and everything that belongs to it.
pub async fn delete(connection: &mut PgConnection, project: &str, id: Uuid) -> Result<Erased> {
    let sql = "delete from generations where project = $1 and id = $2 returning id";
    let logs = sqlx::query_scalar(sql).bind(project).bind(id).fetch_all(&mut *connection).await?;
    delete_children(connection, project, logs).await
}

/// Erases at most `most` of the logs that were finalized, or else created, before a time: the oldest ones.
pub async fn delete_before(
    connection: &mut PgConnection,
    project: &str,
    time: Timestamp,
    most: i64,
) -> Result<Erased> {
    const AGED: Aged =
        Aged { table: "generations", since: "coalesce(completed_at, created_at)", may_go: "true" };
    let ids = AGED.lock_oldest(connection, project, time, most).await?;
    let sql = "delete from generations where project = $1 and id = any($2) returning id";
    let logs = sqlx::query_scalar(sql).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    delete_children(connection, project, logs).await
}

/// Erases some logs of an agent session, at most `most`.
pub async fn delete_session(
    connection: &mut PgConnection,
    project: &str,
    session: &str,
    most: i64,
) -> Result<Erased> {
    // The logs are locked in the order of their ids, as the writer locks them, which prevents deadlocks.
    let sql = "delete from generations where project = $1 and id = any(array(
                   select id from generations where project = $1 and session_id = $2 order by id limit $3 for update))
               returning id";
    let logs =
        sqlx::query_scalar(sql).bind(project).bind(session).bind(most).fetch_all(&mut *connection).await?;
    delete_children(connection, project, logs).await
}

/// Erases what belongs to erased logs. The logs go first: an append that waits for its log's lock then finds
/// the log gone, and one that came before is seen here.
async fn delete_children(connection: &mut PgConnection, project: &str, logs: Vec<Uuid>) -> Result<Erased> {
    let sql = "delete from attempts where project = $1 and generation_id = any($2)";
    let attempts =
        sqlx::query(sql).bind(project).bind(&logs).execute(&mut *connection).await?.rows_affected();
    pairs::delete(connection, project, &logs).await?;
    forget_signs(connection, project, "example", &logs).await?;
    forget(connection, project, &DATASETS, &logs).await?;
    Ok(Erased { generations: logs.len() as u64, attempts })
}
