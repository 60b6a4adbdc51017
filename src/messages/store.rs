//! How message pairs and sends are read and erased. [`write`](super::write) writes them.

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::visible::{AnyOf, PairFilter};
use super::{Pair, PairState, State};
use crate::db::aged::Aged;
use crate::db::erased::{Counts, lock_some};
use crate::db::rows;
use crate::error::{Error, Result};
use crate::http::memory::Reading;
use crate::http::page::{Listed, Order, Page, PageRequest};
use crate::http::{Check, Checks};
use crate::types::{Contained, Timestamp};

mod sends;

pub use sends::{Plan, SendFilter, attempt, get, hash, is_cancelled, list, plan};

/// The columns of a pair `p`, as they are shown.
const PAIR: &str = "p.id, p.topic_id, p.session_id, p.model, p.user_text, p.assistant_text, p.tool_calls, p.star, p.color_flag,
    p.lifecycle_state, p.error, p.tokens, p.send_id, p.created_at";

/// The filter of a list of message pairs. Several values are separated by commas, and any of them matches.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListFilter {
    /// Only pairs of this topic.
    topic_id: Option<String>,
    /// Only pairs of this agent session.
    session_id: Option<String>,
    /// Only pairs of this model.
    model: Option<String>,
    /// Only pairs with this number of stars.
    #[param(pattern = "^ *[0-9]{1,4} *(, *[0-9]{1,4} *)*$", example = "2,3")]
    star: Option<String>,
    /// Only pairs with at least this number of stars.
    #[param(minimum = -32768, maximum = 32767)]
    min_star: Option<i16>,
    /// Only pairs with this color flag.
    color_flag: Option<String>,
    /// Only pairs in this state: `idle`, `sending`, `complete` or `error`.
    #[param(
        pattern = "^ *(idle|sending|complete|error) *(, *(idle|sending|complete|error) *)*$",
        example = "complete,error"
    )]
    state: Option<String>,
    /// Only pairs whose message or answer contains this text. Case is ignored.
    #[param(inline)]
    q: Option<Contained>,
    /// The order of the pairs. The default is newest first.
    #[param(inline)]
    order: Option<Order>,
}

impl Check for ListFilter {
    fn check(&self, checks: &mut Checks) {
        checks.contained("q", self.q.as_ref());
        for text in self.star.iter().flat_map(|list| list.split(',')) {
            checks.require(
                text.trim().parse::<i16>().is_ok(),
                "star",
                "must be numbers, separated by commas",
            );
        }
        for text in self.state.iter().flat_map(|list| list.split(',')) {
            let known = state(text).is_some();
            checks.require(
                known,
                "state",
                "must be of idle, sending, complete and error, separated by commas",
            );
        }
    }
}

fn state(text: &str) -> Option<PairState> {
    serde_json::from_value(text.trim().into()).ok()
}

impl ListFilter {
    /// Returns the order of the pairs.
    pub(super) fn order(&self) -> Order {
        self.order.unwrap_or_default()
    }

    /// Returns the filter of the pairs.
    pub(super) fn filter(&self) -> PairFilter {
        let names = |list: &Option<String>| {
            let names = list.as_ref()?.split(',').map(|name| name.trim().to_owned());
            Some(AnyOf::Several(names.collect()))
        };
        let stars = |list: &String| {
            AnyOf::Several(list.split(',').filter_map(|star| star.trim().parse().ok()).collect())
        };
        PairFilter {
            topic_id: names(&self.topic_id),
            session_id: names(&self.session_id),
            model: names(&self.model),
            star: self.star.as_ref().map(stars),
            min_star: self.min_star,
            color_flag: names(&self.color_flag),
            state: self
                .state
                .as_ref()
                .map(|list| AnyOf::Several(list.split(',').filter_map(state).collect())),
            q: self.q.clone(),
            ..PairFilter::default()
        }
    }
}

impl Listed for Pair {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}

/// Returns one page of a project's pairs.
pub async fn pairs(
    db: &PgPool,
    project: &str,
    filter: &PairFilter,
    order: Order,
    page: &PageRequest,
) -> Result<Page<Pair>> {
    let mut query = QueryBuilder::<Postgres>::new(format!("select {PAIR} from pairs p where p.project = "));
    query.push_bind(project.to_owned());
    filter.push(&mut query);
    page.push_in(&mut query, "p.created_at", "p.id", "uuid", order)?;
    page.read(&mut query, db).await
}

/// Returns a pair, or none if there is no such pair.
pub async fn pair(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    reading: &Reading<'_>,
) -> Result<Option<Pair>> {
    let mut query = QueryBuilder::<Postgres>::new(format!("select {PAIR} from pairs p where p.project = "));
    query.push_bind(project.to_owned()).push(" and p.id = ").push_bind(id);
    rows::one(query.build(), connection, reading).await
}

/// A topic, which is a client's own name for a conversation.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Topic {
    /// The topic's name.
    pub topic_id: String,
    /// The number of pairs of the topic.
    pub pairs: i64,
    /// When the first pair of the topic was made.
    pub first_at: Timestamp,
    /// When the last pair of the topic was made.
    pub last_at: Timestamp,
}

impl Listed for Topic {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.last_at, self.topic_id.clone())
    }
}

/// Returns one page of a project's topics, the one with the newest pair first.
pub async fn topics(db: &PgPool, project: &str, page: &PageRequest) -> Result<Page<Topic>> {
    let mut query = QueryBuilder::<Postgres>::new(
        "select * from (
            select topic_id, count(*) as pairs, min(created_at) as first_at, max(created_at) as last_at
            from pairs where topic_id is not null and project = ",
    );
    query.push_bind(project.to_owned()).push(" group by topic_id) topics where true");
    page.push(&mut query, "last_at", "topic_id", "text")?;
    page.read(&mut query, db).await
}

/// Erases a pair with its texts, including those in sends. Returns whether there was one. What is being sent is a conflict.
pub async fn delete_pair(connection: &mut PgConnection, project: &str, id: Uuid) -> Result<bool> {
    match super::tables::lock_pair(connection, project, id).await? {
        None => Ok(false),
        Some(pair) if pair.state == PairState::Sending => {
            Err(Error::Conflict(format!("the pair {id} is being sent; cancel its send first")))
        }
        Some(_) => Ok(super::tables::erase_pairs(connection, project, &[id]).await? > 0),
    }
}

/// Erases a send with its calls, and not its pair. Returns whether there was one. A send in progress is a conflict, because
/// its pair would never end.
pub async fn delete_send(connection: &mut PgConnection, project: &str, id: Uuid) -> Result<bool> {
    match super::tables::lock_sends(connection, project, &[id]).await?.get(&id) {
        None => Ok(false),
        Some(send) if send.state == State::Sending => {
            Err(Error::Conflict(format!("the send {id} is in progress; cancel it first")))
        }
        Some(_) => Ok(delete_sends(connection, project, &[id]).await? > 0),
    }
}

/// Erases the send with this id, and the pair. What is in progress is a conflict.
pub async fn delete(connection: &mut PgConnection, project: &str, id: Uuid) -> Result<Erased> {
    let sends = delete_send(connection, project, id).await?.into();
    let pairs = delete_pair(connection, project, id).await?.into();
    Ok(Erased { pairs, sends })
}

/// Erases at most `most` of the pairs, and of the sends, that were completed, or else created, before a time: the oldest
/// ones. What is being sent stays.
pub async fn delete_before(
    connection: &mut PgConnection,
    project: &str,
    time: Timestamp,
    most: i64,
) -> Result<Erased> {
    const SENDS: Aged =
        Aged { table: "sends", since: "coalesce(completed_at, created_at)", may_go: "state <> 'sending'" };
    const PAIRS: Aged = Aged {
        table: "pairs",
        since: "coalesce(completed_at, created_at)",
        may_go: "lifecycle_state <> 'sending'",
    };
    // Sends are locked first, then pairs, as the writer locks them.
    let sends = SENDS.lock_oldest(connection, project, time, most).await?;
    let pairs = PAIRS.lock_oldest(connection, project, time, most).await?;
    // The messages of these sends lead to the answers of these pairs, which other sends may carry, too.
    let pairs = super::tables::erase_pairs(connection, project, &pairs).await?;
    let sends = delete_sends(connection, project, &sends).await?;
    Ok(Erased { pairs, sends })
}

async fn delete_sends(connection: &mut PgConnection, project: &str, ids: &[Uuid]) -> sqlx::Result<u64> {
    let sql = "delete from sends where project = $1 and id = any($2)";
    let erased = sqlx::query(sql).bind(project).bind(ids).execute(&mut *connection).await?;
    let sql = "delete from send_attempts where project = $1 and send_id = any($2)";
    sqlx::query(sql).bind(project).bind(ids).execute(&mut *connection).await?;
    delete_messages(connection, project, ids).await?;
    Ok(erased.rows_affected())
}

/// Erases the messages of sends through the gateway that no other send has carried. If one of them is carried once more
/// meanwhile, the foreign key makes it a lost race.
async fn delete_messages(connection: &mut PgConnection, project: &str, sends: &[Uuid]) -> sqlx::Result<()> {
    // From each end of a send, it goes up to where several rows follow the same message, whose turn comes when these are gone.
    // The planner does not know how few rows that are: without `offset 0`, it may read the whole table for them.
    const SQL: &str = "
        with recursive unused as (
            select m.id, m.parent from sent_messages m
            where m.project = $1 and m.id = any($2)
                and not exists (select from sent_messages next where next.project = $1 and next.parent = m.id)
            union all
            select before.id, before.parent from unused cross join lateral (
                select m.id, m.parent from sent_messages m
                where m.project = $1 and m.id = unused.parent and not exists (
                    select from sent_messages next
                    where next.project = $1 and next.parent = m.id and next.id <> unused.id)
                offset 0
            ) before
        )
        delete from sent_messages where project = $1 and id = any(array(select id from unused)) returning parent";
    let mut last: Vec<Option<Uuid>> = sends.iter().copied().map(Some).collect();
    while !last.is_empty() {
        last = sqlx::query_scalar(SQL).bind(project).bind(last).fetch_all(&mut *connection).await?;
    }
    Ok(())
}

/// The number of records erased.
#[derive(Debug, Default)]
pub struct Erased {
    /// The number of pairs erased.
    pub pairs: u64,
    /// The number of sends erased.
    pub sends: u64,
}

impl Erased {
    /// Returns the counts with the names of what was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        vec![("pairs", self.pairs), ("sends", self.sends)]
    }
}

/// Erases some pairs and sends of an agent session, at most `most` of each.
pub async fn delete_session(
    connection: &mut PgConnection,
    project: &str,
    session: &str,
    most: i64,
) -> Result<Erased> {
    // The writer locks sends first, too.
    let sends = lock_some(connection, "sends", (project, session), most).await?;
    let pairs = lock_some(connection, "pairs", (project, session), most).await?;
    let sends = delete_sends(connection, project, &sends).await?;
    let pairs = super::tables::erase_pairs(connection, project, &pairs).await?;
    Ok(Erased { pairs, sends })
}
