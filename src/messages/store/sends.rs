//! How sends are read.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor, PgPool, Postgres, QueryBuilder};
use utoipa::IntoParams;
use uuid::Uuid;

use crate::db::{self, rows};
use crate::error::Result;
use crate::http::Check;
use crate::http::memory::{Memory, Reading};
use crate::http::page::{Listed, Page, PageRequest};
use crate::messages::payload::{self, Message, Texts};
use crate::messages::rules::errors::Class;
use crate::messages::rules::quota::Quota;
use crate::messages::rules::trimming::{Next, Stage, Trimming};
use crate::messages::{
    Attempt, AttemptAnswer, GivenPair, Mode, Selected, Send, SendBudget, SendError, Snapshot, State,
};
use crate::types::{FreeForm, Timestamp};

/// A row of a send, from which [`Send`] is made.
#[derive(Debug, sqlx::FromRow)]
pub struct Row {
    pub(in crate::messages) id: Uuid,
    pub(in crate::messages) pair_id: Uuid,
    has_pair: bool,
    mode: Mode,
    pub(in crate::messages) state: State,
    stage: Stage,
    pub(in crate::messages) model: String,
    topic_id: Option<String>,
    session_id: Option<String>,
    pub(in crate::messages) system: Option<String>,
    system_tokens: i64,
    max_context: Option<i64>,
    user_request_allowance: i64,
    pub(in crate::messages) max_trim_attempts: i32,
    chars_per_token: Option<f64>,
    visible_count: i32,
    visible_ids: Vec<Uuid>,
    pub(in crate::messages) selected_ids: Vec<Uuid>,
    pub(in crate::messages) selected_revisions: Vec<i32>,
    pub(in crate::messages) selected_tokens: Vec<i64>,
    selected_models: Vec<Option<String>>,
    kept_ids: Vec<Uuid>,
    #[sqlx(json(nullable))]
    given_pairs: Option<Vec<GivenPair>>,
    predicted_history: i64,
    pub(in crate::messages) aut: i64,
    pub(in crate::messages) preflight_count: i32,
    pub(in crate::messages) trimmed_count: i32,
    pub(in crate::messages) attempts_used: i32,
    #[sqlx(json(nullable))]
    error: Option<SendError>,
    overflow_matched: Option<bool>,
    usage: Option<FreeForm>,
    finish_reason: Option<String>,
    #[sqlx(json(nullable))]
    quota: Option<Quota>,
    reask_of: Option<Uuid>,
    generation_id: Option<Uuid>,
    created_at: Timestamp,
    completed_at: Option<Timestamp>,
    pub(in crate::messages) user_text: Option<String>,
}

/// Selects sends as `s`, each with the pair `p` that it has made, and not one that was posted with the id of that pair after it was
/// erased. Of the pairs that a send has selected, those that still exist are named.
const SELECT: &str = "
    select s.id, s.pair_id, p.id is not null as has_pair, s.mode, s.state, s.stage, s.model, s.topic_id, s.session_id,
        s.system, s.system_tokens, s.max_context, s.user_request_allowance, s.max_trim_attempts, s.chars_per_token,
        s.visible_count, s.visible_ids, s.selected_ids, s.selected_revisions, s.selected_tokens, s.selected_models, s.given_pairs,
        s.predicted_history, s.aut, s.preflight_count, s.trimmed_count, s.attempts_used, s.error, s.overflow_matched,
        s.usage, s.finish_reason, s.quota, s.reask_of, s.generation_id,
        s.created_at, s.completed_at, p.user_text,
        array(select k.id from pairs k where k.project = $1 and k.id = any(s.selected_ids)) as kept_ids
    from sends s left join pairs p on p.project = $1 and p.id = s.pair_id and p.send_id = s.id
    where s.project = $1";

/// The filter of a list of sends.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct SendFilter {
    /// Only sends in this state.
    #[param(inline)]
    state: Option<State>,
    /// Only sends to this model.
    model: Option<String>,
    /// Only sends that ended with an error of this class.
    #[param(inline)]
    class: Option<Class>,
    /// Only sends of this topic.
    topic_id: Option<String>,
    /// Only sends of this agent session.
    session_id: Option<String>,
}

impl Check for SendFilter {}

crate::texts! {
    SendFilter: model | topic_id, session_id;
}

impl Listed for Send {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}

fn query(project: &str) -> Result<QueryBuilder<Postgres>> {
    let mut arguments = sqlx::postgres::PgArguments::default();
    sqlx::Arguments::add(&mut arguments, project).map_err(anyhow::Error::from_boxed)?;
    Ok(QueryBuilder::with_arguments(SELECT, arguments))
}

/// Returns one page of a project's sends.
pub async fn list(db: &PgPool, project: &str, filter: &SendFilter, page: &PageRequest) -> Result<Page<Send>> {
    let mut query = query(project)?;
    let texts =
        [("s.model", &filter.model), ("s.topic_id", &filter.topic_id), ("s.session_id", &filter.session_id)];
    for (column, value) in texts {
        if let Some(value) = value {
            query.push(format_args!(" and {column} = ")).push_bind(value.clone());
        }
    }
    if let Some(state) = filter.state {
        query.push(" and s.state = ").push_bind(state);
    }
    if let Some(class) = filter.class {
        query.push(" and s.state = 'error' and s.error_class = ").push_bind(class);
    }
    page.push(&mut query, "s.created_at", "s.id", "uuid")?;
    page.read_as(&mut query, db, Row::shown).await
}

async fn row(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    reading: &Reading<'_>,
) -> Result<Option<Row>> {
    let mut query = query(project)?;
    query.push(" and s.id = ").push_bind(id);
    rows::one(query.build(), connection, reading).await
}

/// The columns of calls that are shown. Each query names the columns that it returns, because a newer server may add others
/// while an older one runs.
macro_rules! attempt {
    () => {
        "attempt, stage, trimmed_count, attempt_history_tokens, attempt_total_tokens, error, usage, latency_ms, at"
    };
}

/// Returns the whole send, or none if there is no such send. Everything is read at the same moment.
pub async fn get(db: &PgPool, project: &str, id: Uuid, memory: &Memory) -> Result<Option<Send>> {
    let reading = memory.reading(rows::MOST);
    let whole = async || {
        let mut snapshot = db::begin_snapshot(db).await?;
        let Some(row) = row(&mut snapshot, project, id, &reading).await? else {
            return Ok(None);
        };
        let messages = row.messages(&mut snapshot, project, &reading).await?;
        let sql = concat!(
            "select ",
            attempt!(),
            " from send_attempts where project = $1 and send_id = $2 order by attempt"
        );
        let query = sqlx::query(sql).bind(project).bind(id);
        let attempts: Vec<Attempt> = rows::parts(query, &mut snapshot, &reading).await?;
        let pair = if row.has_pair {
            super::pair(&mut snapshot, project, row.pair_id, &reading).await?
        } else {
            None
        };
        Ok(Some(Send {
            visible: Some(row.visible_ids.clone()),
            messages: Some(messages),
            attempts: Some(attempts),
            pair,
            ..row.shown()
        }))
    };
    reading.by(whole).await
}

fn free_form(message: &impl Serialize) -> Result<FreeForm> {
    Ok(FreeForm::of(message).map_err(anyhow::Error::from)?)
}

/// A send as it is to be performed.
#[derive(Debug)]
pub struct Plan {
    /// The send's row.
    pub row: Row,
    /// The texts of the pairs that were selected.
    pub texts: Texts,
}

/// Returns what is needed to perform a send, or none if there is no such send.
pub async fn plan(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    reading: &Reading<'_>,
) -> Result<Option<Plan>> {
    let Some(row) = row(connection, project, id, reading).await? else {
        return Ok(None);
    };
    let texts = payload::texts(connection, project, &row.keys(0), reading).await?;
    Ok(Some(Plan { row, texts }))
}

/// Returns whether a send was cancelled.
pub async fn is_cancelled(db: impl PgExecutor<'_>, project: &str, id: Uuid) -> Result<bool> {
    const SQL: &str =
        "select exists(select from sends where project = $1 and id = $2 and stage = 'cancelled')";
    Ok(sqlx::query_scalar(SQL).bind(project).bind(id).fetch_one(db).await?)
}

/// Returns the hash of the request that made a send, or none if there is no such send.
pub async fn hash(db: impl PgExecutor<'_>, project: &str, id: Uuid) -> Result<Option<Vec<u8>>> {
    let sql = "select request_hash from sends where project = $1 and id = $2";
    Ok(sqlx::query_scalar(sql).bind(project).bind(id).fetch_optional(db).await?)
}

/// Returns a call of a send and what follows from it.
pub async fn attempt(
    db: &PgPool,
    project: &str,
    id: Uuid,
    number: i32,
    memory: &Memory,
) -> Result<Option<AttemptAnswer>> {
    let reading = memory.reading_one();
    reading.by(|| one_attempt(db, project, id, number, &reading)).await
}

async fn one_attempt(
    db: &PgPool,
    project: &str,
    id: Uuid,
    number: i32,
    reading: &Reading<'_>,
) -> Result<Option<AttemptAnswer>> {
    let mut snapshot = db::begin_snapshot(db).await?;
    let Some(row) = row(&mut snapshot, project, id, reading).await? else {
        return Ok(None);
    };
    let sql = concat!(
        "select ",
        attempt!(),
        " from send_attempts where project = $1 and send_id = $2 and attempt = $3"
    );
    let attempt: Option<Attempt> =
        sqlx::query_as(sql).bind(project).bind(id).bind(number).fetch_optional(&mut *snapshot).await?;
    Ok(attempt.map(|attempt| AttemptAnswer {
        next: match attempt.stage {
            Stage::AttemptSuccess => Next::Done,
            Stage::OverflowInitial | Stage::OverflowRetry => Next::Retry,
            _ => Next::Stop,
        },
        included_ids: row.names().into_iter().skip(row.trimmed()).collect(),
        counter: row.trimming().counter(row.visible()),
        attempt,
    }))
}

impl Row {
    fn trimmed(&self) -> usize {
        usize::try_from(self.trimmed_count).unwrap_or_default()
    }

    /// Returns how many pairs were visible.
    pub(in crate::messages) fn visible(&self) -> usize {
        usize::try_from(self.visible_count).unwrap_or_default()
    }

    /// Returns how far trimming has come.
    pub(in crate::messages) fn trimming(&self) -> Trimming {
        let count = |count: i32| usize::try_from(count).unwrap_or_default();
        Trimming {
            predicted: self.selected_ids.len(),
            preflight: count(self.preflight_count),
            trimmed: self.trimmed(),
            attempts_used: count(self.attempts_used),
            max_trims: count(self.max_trim_attempts),
        }
    }

    /// Returns the selected pairs, each with its revision, without the oldest ones that were trimmed.
    pub(in crate::messages) fn keys(&self, trimmed: usize) -> Vec<(Uuid, i32)> {
        let keys = self.selected_ids.iter().copied().zip(self.selected_revisions.iter().copied());
        keys.skip(trimmed).collect()
    }

    /// Returns the selected pairs by their ids as the client knows them. An erased one is none.
    fn names(&self) -> Vec<Option<String>> {
        if let Some(given) = &self.given_pairs {
            return given.iter().map(|pair| Some(pair.id.clone())).collect();
        }
        if self.mode == Mode::Gateway {
            return self.selected_ids.iter().map(|turn| Some(turn.to_string())).collect();
        }
        let kept: HashSet<_> = self.kept_ids.iter().collect();
        self.selected_ids.iter().map(|id| kept.contains(id).then(|| id.to_string())).collect()
    }

    /// Returns the messages of a call from which so many of the oldest pairs are left out.
    pub(in crate::messages) fn call<'a>(
        &'a self,
        texts: &'a Texts,
        trimmed: usize,
        user: Option<&'a str>,
    ) -> Vec<Message<'a>> {
        let system = self.system.as_deref();
        if let Some(given) = &self.given_pairs {
            let pairs = given.iter().skip(trimmed);
            let pairs = pairs.map(|pair| (pair.user_text.as_str(), pair.assistant_text.as_deref()));
            return payload::messages(system, pairs, user);
        }
        let keys = self.keys(trimmed);
        let pairs = keys.iter().filter_map(|key| texts.get(key));
        payload::messages(system, pairs.map(|(user, answer)| (user.as_str(), answer.as_deref())), user)
    }

    async fn messages(
        &self,
        connection: &mut PgConnection,
        project: &str,
        reading: &Reading<'_>,
    ) -> Result<Vec<FreeForm>> {
        let trimmed = self.trimmed();
        if self.mode == Mode::Gateway {
            return self.passed(connection, project, reading).await;
        }
        let texts = match &self.given_pairs {
            Some(_) => HashMap::new(),
            None => payload::texts(connection, project, &self.keys(trimmed), reading).await?,
        };
        self.call(&texts, trimmed, self.user_text.as_deref()).iter().map(free_form).collect()
    }

    /// Returns the messages of the last request that the gateway has made: those of the conversation without the turns that
    /// were dropped, and without erased ones.
    async fn passed(
        &self,
        connection: &mut PgConnection,
        project: &str,
        reading: &Reading<'_>,
    ) -> Result<Vec<FreeForm>> {
        // The dropped turns are the oldest, and a turn ends where the next human message begins: not where the person has said
        // something beside the result of a tool, which has a turn of its own as the question of a pair.
        const SQL: &str = r#"
            with recursive chain as (
                select m.id, m.parent, m.turn, m.message, 1 as nth from sent_messages m where m.project = $1 and m.id = $2
                union all
                select m.id, m.parent, m.turn, m.message, chain.nth + 1 from chain
                join sent_messages m on m.project = $1 and m.id = chain.parent
            )
            select message from chain
            where message is not null and (turn is null or $3 = '{}' or nth <= (
                select max(nth) from chain
                where id = turn and not id = any($3) and (message::jsonb @> '{"content": [{"type": "tool_result"}]}') is not true))
            order by nth desc"#;
        let trimmed: Vec<_> = self.selected_ids.iter().take(self.trimmed()).collect();
        let query = sqlx::query(SQL).bind(project).bind(self.id).bind(trimmed);
        let kept: Vec<(FreeForm,)> = rows::parts(query, connection, reading).await?;
        let system = self.system.as_deref().filter(|text| !text.trim().is_empty());
        let system = system.map(|text| free_form(&Message { role: "system", content: text }));
        Ok(system.transpose()?.into_iter().chain(kept.into_iter().map(|(message,)| message)).collect())
    }

    /// Returns the send as it is shown in lists.
    fn shown(self) -> Send {
        let trimming = self.trimming();
        let trimmed = self.trimmed();
        let names = self.names();
        let history = self.selected_tokens.iter().skip(trimmed).sum();
        let removed: i64 = self.selected_tokens.iter().take(trimmed).sum();
        let count = i32::try_from(self.selected_ids.len()).unwrap_or(i32::MAX);
        let total = history + self.aut;
        let failed = self.state == State::Error;
        let selection = names.iter().zip(&self.selected_tokens).zip(self.selected_models);
        Send {
            id: self.id,
            pair_id: self.has_pair.then_some(self.pair_id),
            mode: self.mode,
            state: self.state,
            stage: self.stage,
            model: self.model,
            topic_id: self.topic_id,
            session_id: self.session_id,
            budget: self.max_context.map(|max_context| SendBudget {
                max_context,
                max_usable_raw: (max_context - self.user_request_allowance - self.system_tokens).max(0),
            }),
            selection: selection
                .map(|((id, &tokens), model)| Selected { id: id.clone(), model, tokens })
                .collect(),
            visible_count: self.visible_count,
            visible: None,
            predicted_message_count: count,
            predicted_history_tokens: self.predicted_history,
            predicted_total_tokens: self.predicted_history + self.user_request_allowance,
            attempt_history_tokens: history,
            attempt_total_tokens: total,
            aut: self.aut,
            system_tokens: self.system_tokens,
            trimmed_count: self.trimmed_count,
            sent_count: count - self.trimmed_count,
            attempts_used: self.attempts_used,
            chars_per_token: self.chars_per_token,
            remaining_reserve: self.max_context.map(|max_context| max_context - total),
            last_error_message: self.error.as_ref().and_then(|error| error.message.clone()),
            overflow_matched: self.overflow_matched,
            error: self.error.filter(|_| failed),
            final_delivered_tokens: (self.state != State::Sending).then_some(total + self.system_tokens),
            trimming_removed_ids: names.iter().take(trimmed).cloned().collect(),
            trimming_removed_tokens: removed,
            trim_summary: trimming.summary(removed),
            counter: trimming.counter(usize::try_from(self.visible_count).unwrap_or_default()),
            quota: self.quota,
            usage: self.usage,
            finish_reason: self.finish_reason,
            reask_of: self.reask_of,
            generation_id: self.generation_id,
            snapshot: failed.then(|| Snapshot {
                included_pair_ids: names.into_iter().skip(trimmed).collect(),
                outgoing_user_text: self.user_text,
            }),
            created_at: self.created_at,
            completed_at: self.completed_at,
            messages: None,
            attempts: None,
            pair: None,
        }
    }
}
