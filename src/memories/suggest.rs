//! Makes, stores and returns suggestions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{PgExecutor, PgPool, Row as _};
use uuid::Uuid;

use super::event::{Event, Suggest};
use super::finding::{self, Found, Sought};
use super::had::Had;
use super::meaning::{self, PATIENCE, PATIENCE_UNASKED};
use super::rules::intent::{self, DetectedIntent, LONGEST_QUERY};
use super::store;
use super::suggestion::{InForce, MemorySuggestion, NewSuggest, Shown, SuggestedMemory, SuggestionResponse};
use crate::db::rows;
use crate::error::{Error, Result};
use crate::http::memory::Memory;
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::sharing::apart;
use crate::state::App;
use crate::types::{Timestamp, request_hash};

/// The state of a conversation before suggestions are made.
struct Known<'a> {
    /// The last queries with their ids and roots, the newest first.
    queries: Vec<(Uuid, Option<String>, Option<String>)>,
    /// The memories that must not be suggested again.
    had: Had<'a>,
}

/// The moment for which memories are suggested, and the search that was made then.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The time. Memories created later are not found.
    pub at: Timestamp,
    /// The query of an agent's search that has just had no results. It counts like a last query.
    pub search: Option<&'a str>,
}

impl Moment<'_> {
    /// Returns the current moment.
    #[must_use]
    pub fn now() -> Self {
        Self { at: Timestamp::now(), search: None }
    }
}

impl<'a> Known<'a> {
    /// Reads what is known of a conversation. If `is_unasked`, suggestions that were withheld count like those that
    /// were shown.
    async fn of(
        db: &PgPool,
        project: &str,
        session: &'a str,
        window: usize,
        is_unasked: bool,
    ) -> sqlx::Result<Self> {
        const QUERIES: &str = "
            select id, left(query, $4), root from conversation_queries where project = $1 and session_id = $2
            order by at desc, id desc limit $3";
        let limit = i64::try_from(window).unwrap_or(i64::MAX);
        let queries =
            sqlx::query_as(QUERIES).bind(project).bind(session).bind(limit).bind(i32::from(LONGEST_QUERY));
        let queries = queries.fetch_all(db).await?;
        Ok(Self { queries, had: Had { session, with_withheld: is_unasked } })
    }

    /// Returns the queries, the newest first.
    fn texts(&self) -> Vec<&str> {
        self.queries.iter().filter_map(|(_, query, _)| query.as_deref()).collect()
    }
}

/// Suggests memories for a conversation. If they are to be recorded (`records`), they count as shown once this returns,
/// unless the request is a preview. `id` is used if the request has no id of its own. A repeated request gets the same
/// suggestions.
pub async fn suggest(
    app: &App,
    tenant: &Arc<Tenant>,
    session: &str,
    new: &NewSuggest,
    id: Option<Uuid>,
    records: bool,
    memory: &Memory,
) -> Result<SuggestionResponse> {
    let began = Instant::now();
    let (db, project) = (&app.db, &tenant.name);
    let rules = new.over(&tenant.memories);
    let records = records && !new.peek.unwrap_or(false);
    let id = new.id.or(id).filter(|_| records);
    let mut event = Suggest {
        id: id.unwrap_or_else(Uuid::now_v7),
        session: session.to_owned(),
        queries: Vec::new(),
        intent: intent::detect::<&str>(&[]),
        threshold: rules.threshold,
        took_ms: 0.0,
        shown: Vec::new(),
        hash: request_hash(&(session, new)),
    };
    let is_known = match id {
        Some(id) => read(db, project, id, memory).await?.is_some(),
        None => false,
    };
    if !is_known && rules.enabled {
        let known = Known::of(db, project, session, rules.window, false).await?;
        fill(
            app,
            tenant,
            &mut event,
            &known,
            &rules,
            &Moment { at: new.at.unwrap_or_else(Timestamp::now), search: None },
            PATIENCE,
        )
        .await?;
    }
    event.took_ms = began.elapsed().as_secs_f64() * 1_000.0;
    let is_kept = records && rules.enabled && (id.is_some() || event.query().is_some());
    if !is_kept {
        return answer(db, project, event, memory).await;
    }
    let suggest = event.id;
    let receipt = app.writer.write(tenant, Event::suggest(event.clone()), memory).await?;
    if receipt.kept == Capture::Off {
        return answer(db, project, event, memory).await;
    }
    read(db, project, suggest, memory).await?.ok_or(Error::NotFound("answer"))
}

/// Finds memories that are relevant to a conversation, for help without a request. Nothing is stored yet. Also returns the last
/// queries of the conversation, the newest first.
pub async fn propose(
    app: &App,
    tenant: &Arc<Tenant>,
    session: &str,
    rules: &InForce,
    moment: &Moment<'_>,
) -> Result<(Suggest, Vec<String>)> {
    let began = Instant::now();
    let id = Uuid::now_v7();
    let mut event = Suggest {
        id,
        session: session.to_owned(),
        queries: Vec::new(),
        intent: intent::detect::<&str>(&[]),
        threshold: rules.threshold,
        took_ms: 0.0,
        shown: Vec::new(),
        hash: request_hash(&(session, id)),
    };
    let known = Known::of(&app.db, &tenant.name, session, rules.window, true).await?;
    fill(app, tenant, &mut event, &known, rules, moment, PATIENCE_UNASKED).await?;
    event.took_ms = began.elapsed().as_secs_f64() * 1_000.0;
    let queries = known.queries.into_iter().filter_map(|(_, query, _)| query).collect();
    Ok((event, queries))
}

/// Returns the contents of the suggested memories, without those that were erased in the meantime.
pub async fn contents(
    db: &PgPool,
    project: &str,
    suggest: &Suggest,
    memory: &Memory,
) -> Result<HashMap<Uuid, String>> {
    let ids: Vec<_> = suggest.shown.iter().map(|shown| shown.memory).collect();
    Ok(store::contents(db, project, &ids, memory).await?.into_iter().collect())
}

/// Adds the memories that are relevant to a conversation to an event. `patience` is how long
/// the embedding of the query may take.
async fn fill(
    app: &App,
    tenant: &Arc<Tenant>,
    event: &mut Suggest,
    known: &Known<'_>,
    rules: &InForce,
    moment: &Moment<'_>,
    patience: Duration,
) -> Result<()> {
    let asked = known.texts();
    event.queries = known.queries.iter().map(|(id, ..)| *id).collect();
    let oldest_first: Vec<_> = asked.iter().rev().map(|query| (*query).to_owned()).collect();
    event.intent = apart(&tenant.name, move || intent::detect(&oldest_first)).await;
    let queries: Vec<_> = moment.search.into_iter().chain(asked).collect();
    let meaning = match queries.first() {
        Some(last) => meaning::of_query(app, tenant, last, patience).await,
        None => None,
    };
    let sought = Sought {
        queries,
        root: known.queries.iter().find_map(|(_, _, root)| root.as_deref()),
        at: moment.at,
        source_type: rules.only(),
        tag: None,
        had: Some(known.had),
        meaning,
    };
    let turn = app.similar.take(&tenant.name, 1).await;
    let mut found = finding::find(&app.db, &app.samples, &tenant.name, &sought).await?;
    drop(turn);
    found.retain(|memory| memory.confidence >= rules.threshold);
    let wanted = |memory: &Found| memory.log_odds + rules.preference(memory.source_type);
    found.sort_by(|a, b| wanted(b).total_cmp(&wanted(a)).then(a.id.cmp(&b.id)));
    found.truncate(rules.most);
    found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.id.cmp(&b.id)));
    event.shown = found.into_iter().map(Shown::from).collect();
    Ok(())
}

/// Makes the response with suggestions that are not stored.
async fn answer(db: &PgPool, project: &str, event: Suggest, memory: &Memory) -> Result<SuggestionResponse> {
    let ids: Vec<_> = event.shown.iter().map(|shown| shown.memory).collect();
    let mut contents: HashMap<_, _> = store::contents(db, project, &ids, memory).await?.into_iter().collect();
    let suggestion = |shown: Shown| {
        Some(MemorySuggestion {
            memory_id: shown.memory,
            content: contents.remove(&shown.memory)?,
            confidence: shown.confidence,
            reason: shown.reason,
            source_type: shown.source_type,
            factors: shown.factors,
            score: shown.factors.score(),
        })
    };
    let suggestions = event.shown.into_iter().filter_map(suggestion).collect();
    Ok(SuggestionResponse::new(suggestions, event.intent, event.threshold, None))
}

/// Returns the suggestions that are stored under an id, without memories that were erased since. Returns none if
/// there are none.
pub async fn read(
    db: &PgPool,
    project: &str,
    suggest: Uuid,
    memory: &Memory,
) -> Result<Option<SuggestionResponse>> {
    const SUGGEST: &str = "
        select intent_type, keywords, intent_confidence, search_query, confidence_threshold from memory_suggests
        where project = $1 and id = $2";
    const SHOWN: &str = "
        select c.memory_id, m.content, c.confidence, coalesce(c.reason, '') as reason, c.source_type, c.score,
            c.semantic_similarity, c.recency, c.importance, c.context_match
        from conversation_memories c join memories m on m.project = $1 and m.id = c.memory_id and m.content is not null
        where c.project = $1 and c.suggest_id = $2 order by c.rank";
    let Some(row) = sqlx::query(SUGGEST).bind(project).bind(suggest).fetch_optional(db).await? else {
        return Ok(None);
    };
    let intent = DetectedIntent {
        intent_type: row.try_get("intent_type")?,
        keywords: row.try_get::<sqlx::types::Json<Vec<String>>, _>("keywords")?.0,
        confidence: row.try_get("intent_confidence")?,
        search_query: row.try_get("search_query")?,
    };
    let suggestions = rows::all(sqlx::query(SHOWN).bind(project).bind(suggest), db, memory).await?;
    let threshold = row.try_get("confidence_threshold")?;
    Ok(Some(SuggestionResponse::new(suggestions, intent, threshold, Some(suggest))))
}

/// Returns the suggestions in a conversation, in order. If there are more than `most`, only the newest are returned.
pub(super) async fn suggested(
    db: impl PgExecutor<'_>,
    project: &str,
    session: &str,
    most: i64,
) -> sqlx::Result<Vec<SuggestedMemory>> {
    const SQL: &str = "
        select * from (
            select memory_id, suggest_id, confidence, reason, source_type, score, semantic_similarity, recency,
                importance, context_match, verdict, shown_at, rank
            from conversation_memories where project = $1 and session_id = $2 and suggest_id is not null
            order by shown_at desc, suggest_id desc, rank desc limit $3
        ) newest order by shown_at, suggest_id, rank";
    sqlx::query_as(SQL).bind(project).bind(session).bind(most).fetch_all(db).await
}
