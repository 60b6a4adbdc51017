//! Searches memories for a text (`retrieve_memories` and `search_code` in seed 002).

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::event::Event;
use super::finding::{self, Factors, Sought};
use super::meaning::{self, PATIENCE};
use super::{MOST_PATH, NewQuery, SourceType, folder, store};
use crate::error::Result;
use crate::http::memory::Memory;
use crate::http::{Check, Checks};
use crate::projects::Tenant;
use crate::state::App;
use crate::types::Timestamp;

/// What to search for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MemorySearch {
    /// The text to search for.
    #[param(min_length = 1, max_length = 2000, example = "Which port does staging use?")]
    query: String,
    /// The conversation of the search. The search is recorded as one of its queries, and the memories found count as
    /// shown, unless the key lacks the scope `write`.
    #[param(min_length = 1, max_length = 200)]
    session_id: Option<String>,
    /// Only memories of this kind.
    #[param(inline)]
    source_type: Option<SourceType>,
    /// The current folder. Memories about it are preferred, but others are found too.
    #[param(min_length = 1, max_length = 4096)]
    root: Option<String>,
    /// Only memories with this tag.
    #[param(min_length = 1)]
    tag: Option<String>,
    /// The maximum number of memories, from 1 to 50. The default is 10.
    #[param(minimum = 1, maximum = 50)]
    limit: Option<usize>,
    /// The minimum score, from 0 to 1. The default is 0.
    #[param(minimum = 0, maximum = 1)]
    min_score: Option<f64>,
}

impl Check for MemorySearch {
    fn check(&self, checks: &mut Checks) {
        checks.text("query", &self.query, 2_000);
        checks.name("session_id", self.session_id.as_deref());
        if let Some(root) = &self.root {
            checks.text("root", root, MOST_PATH);
        }
        checks.require(self.tag.as_deref() != Some(""), "tag", "must not be empty");
        checks.require(self.limit.is_none_or(|limit| (1..=50).contains(&limit)), "limit", "must be 1 to 50");
        let fits = self.min_score.is_none_or(|least| (0.0..=1.0).contains(&least));
        checks.require(fits, "min_score", "must be 0 to 1");
    }
}

crate::texts! {
    MemorySearch: query, root, tag | session_id;
}

/// A memory that was found.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundMemory {
    /// The memory.
    pub memory_id: Uuid,
    /// The memory's content.
    pub content: String,
    /// The kind of text in the memory.
    pub source_type: SourceType,
    /// The weighted sum of the factors, from 0 to 1. It is not a probability.
    pub score: f64,
    /// The four relevance factors.
    pub factors: Factors,
}

/// Searches memories, and with `records` records the search in its conversation. `asked_by` is the key of who asks, if a
/// key was needed.
pub async fn search(
    app: &App,
    tenant: &Arc<Tenant>,
    wanted: MemorySearch,
    asked_by: Option<Uuid>,
    records: bool,
    memory: &Memory,
) -> Result<Vec<FoundMemory>> {
    let (wanted, _) = tenant.redacted(wanted).await;
    let at = Timestamp::now();
    let meaning = meaning::of_query(app, tenant, &wanted.query, PATIENCE).await;
    let sought = Sought {
        queries: vec![&wanted.query],
        root: wanted.root.as_deref().map(folder),
        at,
        source_type: wanted.source_type,
        tag: wanted.tag.as_deref(),
        had: None,
        meaning,
    };
    let turn = app.similar.take(&tenant.name, 1).await;
    let mut found = finding::find(&app.db, &app.samples, &tenant.name, &sought).await?;
    drop(turn);
    found.retain(|memory| memory.factors.score() >= wanted.min_score.unwrap_or(0.0));
    found.sort_by(|a, b| b.factors.score().total_cmp(&a.factors.score()).then(a.id.cmp(&b.id)));
    found.truncate(wanted.limit.unwrap_or(10));
    let ids: Vec<_> = found.iter().map(|memory| memory.id).collect();
    let mut contents: HashMap<_, _> =
        store::contents(&app.db, &tenant.name, &ids, memory).await?.into_iter().collect();
    let shown = |memory: finding::Found| {
        Some(FoundMemory {
            memory_id: memory.id,
            content: contents.remove(&memory.id)?,
            source_type: memory.source_type,
            score: memory.factors.score(),
            factors: memory.factors,
        })
    };
    let data: Vec<_> = found.into_iter().filter_map(shown).collect();
    if let Some(session) = wanted.session_id.filter(|_| records) {
        let new = NewQuery {
            id: None,
            query: wanted.query,
            shown: data.iter().map(|memory| memory.memory_id).collect(),
            root: wanted.root.into(),
            at: Some(at),
            suggest: None,
        };
        app.keyring.count_records(tenant).await?;
        app.writer.write(tenant, Event::ask(session, new, None).by(asked_by), memory).await?;
    }
    Ok(data)
}
