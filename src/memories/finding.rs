//! Finds memories: candidates are selected by their terms and ranked by what they have in common with the
//! conversation.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::SourceType;
use super::embeddings::{Meaning, cosines};
use super::had::Had;
use super::rules::confidence::{Correction, FITTED, Outcome, Standing, Verdicts, probability, recency};
use super::rules::context::Context;
use super::rules::meaning::gains;
use super::rules::ranking::{Compared, Evidence, Statistics, compare, score};
use super::rules::reasons::reason;
use super::rules::terms::{Indexed, terms};
use crate::error::Result;
use crate::retrieval::keys::StoredKeys;
use crate::retrieval::{Candidate, Candidates, Corpus, Keyed, Samples, Scope};
use crate::sharing::apart;
use crate::types::Timestamp;

/// The number of candidates whose texts are compared.
const COMPARED: usize = 50;
/// The number of characters of a text that are compared.
const LONGEST_TEXT: i32 = 6_000;
/// The number of bytes that a term of a candidate takes: its key, also as it is read, and its count.
const BYTES_OF_TERM: usize = 16;
/// The number of bytes that a byte of a compared text takes: itself, and the 4-gram that begins there.
const BYTES_OF_GRAM: usize = 32;
const MICROS_OF_A_DAY: f64 = 86_400e6;

/// Memories as documents: found by their terms, within a project.
static MEMORIES: Corpus = Corpus {
    table: "memories",
    text: "content",
    keys: "search_keys",
    keyed: Keyed::Terms(|text| terms(text).collect()),
    in_facet: "root = $2",
    facets_are_sampled: false,
    indexed: "search_keys is not null",
    order: "created_at desc, id desc",
    filled_up: false,
    columns: "id, source_type, importance, root, created_at, search_keys, term_counts",
    filter: "created_at <= $5 and ($6::text is null or source_type = $6) and ($7::text is null or tags @> to_jsonb($7::text))",
};

/// A memory that may be relevant to the conversation.
#[derive(sqlx::FromRow)]
struct Remembered {
    id: Uuid,
    source_type: SourceType,
    importance: f64,
    root: Option<String>,
    created_at: Timestamp,
    search_keys: StoredKeys,
    term_counts: Vec<u8>,
}

impl Candidate for Remembered {
    fn id(&self) -> Uuid {
        self.id
    }

    fn bytes(&self) -> usize {
        BYTES_OF_TERM * self.term_counts.len()
    }
}

/// What is looked for.
#[derive(Debug)]
pub(super) struct Sought<'a> {
    /// The queries of the conversation, the last one first.
    pub(super) queries: Vec<&'a str>,
    /// The current folder. It is preferred.
    pub(super) root: Option<&'a str>,
    /// The time of the search. Memories created later are not found.
    pub(super) at: Timestamp,
    /// Only memories of this kind.
    pub(super) source_type: Option<SourceType>,
    /// Only memories with this tag.
    pub(super) tag: Option<&'a str>,
    /// The conversation that has had some memories already, which are left out.
    pub(super) had: Option<Had<'a>>,
    /// The meaning of the last query, if it is known.
    pub(super) meaning: Option<Meaning>,
}

/// The four factors of a memory's relevance, each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = RelevanceFactors)]
pub struct Factors {
    /// How similar the words of the memory and of the conversation are, or their meanings if embeddings are used.
    pub semantic_similarity: f64,
    /// How recent the memory is. The value halves every 30 days.
    pub recency: f64,
    /// The importance of the memory, from 0 to 1.
    pub importance: f64,
    /// How well the memory fits earlier queries and the folder.
    pub context_match: f64,
}

impl Factors {
    fn of(evidence: &Evidence, standing: &Standing, has_earlier: bool, cosine: Option<f64>) -> Self {
        let root = standing.same_root.map(|same| if same { 1.0 } else { 0.0 });
        let fits: Vec<f64> = has_earlier.then_some(evidence.earlier).into_iter().chain(root).collect();
        Self {
            semantic_similarity: f64::midpoint(evidence.saturation.min(1.0), evidence.grams)
                .max(cosine.unwrap_or_default())
                .clamp(0.0, 1.0),
            recency: standing.recency,
            importance: standing.importance,
            // The sum of nothing is -0.0, which JSON would show.
            context_match: ((0.0 + fits.iter().sum::<f64>()) / fits.len().max(1) as f64).clamp(0.0, 1.0),
        }
    }

    /// Returns the weighted sum of the factors, from 0 to 1.
    #[must_use]
    pub fn score(&self) -> f64 {
        0.5 * self.semantic_similarity + 0.2 * self.recency + 0.2 * self.importance + 0.1 * self.context_match
    }
}

/// A memory that was found.
#[derive(Debug)]
pub(super) struct Found {
    /// The memory.
    pub(super) id: Uuid,
    /// The kind of text in the memory.
    pub(super) source_type: SourceType,
    /// The log odds that the memory is relevant to the turn, before the project's correction.
    pub(super) log_odds: f64,
    /// The probability that the memory is relevant.
    pub(super) confidence: f64,
    /// The relevance factors.
    pub(super) factors: Factors,
    /// Why the memory is suggested.
    pub(super) reason: String,
}

/// Finds at most [`COMPARED`] memories, the most likely first.
pub(super) async fn find(
    db: &PgPool,
    samples: &Arc<Samples>,
    project: &Arc<str>,
    sought: &Sought<'_>,
) -> Result<Vec<Found>> {
    let (queries, of_project): (Vec<String>, _) =
        (sought.queries.iter().map(|query| (*query).to_owned()).collect(), Arc::clone(project));
    let context = move || Context::of(&of_project, queries.iter().map(String::as_str));
    let context = Arc::new(apart(project, context).await);
    if context.weights.is_empty() {
        return Ok(Vec::new());
    }
    let scope = Scope { project: Arc::clone(project), facet: None };
    let search = samples.begin(project).await?;
    let finder = Candidates { db, samples, corpus: &MEMORIES, search: &search };
    let (last, earlier) = sought
        .queries
        .split_first()
        .map_or(("", String::new()), |(last, earlier)| (*last, earlier.join("\n")));
    // A request has a place for one connection, so these do not look at the same time.
    let mut found = candidates(&finder, &scope, last, sought).await?;
    found.extend(candidates(&finder, &scope, &earlier, sought).await?);
    found.sort_unstable_by_key(Candidate::id);
    found.dedup_by_key(|memory| memory.id);
    if let Some(had) = &sought.had {
        let ids: Vec<_> = found.iter().map(Candidate::id).collect();
        let without = had.of(db, project, &ids).await?;
        found.retain(|memory| !without.contains(&memory.id));
    }
    let keys: Vec<_> = context.weights.keys().copied().collect();
    let (memories, frequencies) = finder.document_frequencies(&scope, &keys).await?;
    let statistics = Statistics { memories, frequencies: keys.into_iter().zip(frequencies).collect() };
    let (best, statistics) = {
        let context = Arc::clone(&context);
        apart(project, move || best(&context, found, statistics)).await
    };
    let ids: Vec<_> = best.iter().map(|(memory, ..)| memory.id).collect();
    let texts = texts(db, project, &ids).await?;
    search.take(texts.values().map(|text| text.len() * BYTES_OF_GRAM).sum()).await?;
    let verdicts = verdicts(db, project, &ids).await?;
    let cosines: Vec<_> = match &sought.meaning {
        Some(meaning) => {
            let known = cosines(db, project, meaning, &ids).await?;
            ids.iter().map(|id| known.get(id).copied()).collect()
        }
        None => vec![None; ids.len()],
    };
    let correction = correction(db, project).await?;
    let standing: Vec<_> = best
        .iter()
        .map(|(memory, ..)| standing(memory, sought, verdicts.get(&memory.id).copied().unwrap_or_default()))
        .collect();
    let (of_project, at) = (Arc::clone(project), sought.at);
    let rank = move || {
        let _search = search;
        let compared: Vec<_> = best
            .iter()
            .map(|(memory, indexed, score)| Compared {
                indexed,
                score: *score,
                text: texts.get(&memory.id).map_or("", String::as_str),
            })
            .collect();
        let evidence = compare(&of_project, &context, &compared, &statistics);
        let has_earlier = !context.earlier.is_empty();
        let by_meaning = cosines.iter().copied().zip(gains(&cosines));
        let mut found: Vec<_> = best
            .iter()
            .zip(evidence)
            .zip(standing)
            .zip(by_meaning)
            .map(|((((memory, indexed, _), evidence), standing), (cosine, gain))| {
                let log_odds = FITTED.log_odds(&evidence, &standing) + gain;
                Found {
                    id: memory.id,
                    source_type: memory.source_type,
                    log_odds,
                    confidence: probability(correction.of(log_odds)),
                    factors: Factors::of(&evidence, &standing, has_earlier, cosine),
                    reason: reason(&context, indexed, &statistics, days(memory.created_at, at)),
                }
            })
            .collect();
        found.sort_by(|a, b| b.log_odds.total_cmp(&a.log_odds).then(a.id.cmp(&b.id)));
        found
    };
    Ok(apart(project, rank).await)
}

async fn candidates(
    finder: &Candidates<'_>,
    scope: &Scope,
    text: &str,
    sought: &Sought<'_>,
) -> Result<Vec<Remembered>> {
    if terms(text).next().is_none() {
        return Ok(Vec::new());
    }
    finder
        .find(scope, text, |query| {
            query.bind(sought.at).bind(sought.source_type).bind(sought.tag.map(str::to_owned))
        })
        .await
}

/// Scores the candidates by their terms and returns the best of them.
fn best(
    context: &Context,
    mut found: Vec<Remembered>,
    mut statistics: Statistics,
) -> (Vec<(Remembered, Indexed, f64)>, Statistics) {
    let indexed: Vec<_> = found
        .iter_mut()
        .map(|memory| Indexed {
            keys: std::mem::take(&mut memory.search_keys.0),
            counts: std::mem::take(&mut memory.term_counts),
        })
        .collect();
    let scores = score(context, &indexed, &mut statistics);
    let mut best: Vec<_> = found
        .into_iter()
        .zip(indexed)
        .zip(scores)
        .map(|((memory, indexed), score)| (memory, indexed, score))
        .collect();
    best.retain(|(_, _, score)| *score > 0.0);
    best.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.id.cmp(&b.0.id)));
    best.truncate(COMPARED);
    (best, statistics)
}

fn days(from: Timestamp, to: Timestamp) -> f64 {
    (to.micros() - from.micros()) as f64 / MICROS_OF_A_DAY
}

fn standing(memory: &Remembered, sought: &Sought<'_>, verdicts: Verdicts) -> Standing {
    let same_root = sought.root.zip(memory.root.as_deref()).map(|(here, there)| here == there);
    let recency = recency(days(memory.created_at, sought.at));
    Standing { recency, importance: memory.importance, same_root, verdicts }
}

/// Returns the compared parts of the texts of memories.
async fn texts(db: &PgPool, project: &str, ids: &[Uuid]) -> sqlx::Result<HashMap<Uuid, String>> {
    const SQL: &str = "
        select id, concat_ws(' ', left(content, $3), file_path, symbol) from memories where project = $1 and id = any($2)";
    let rows: Vec<(Uuid, String)> =
        sqlx::query_as(SQL).bind(project).bind(ids).bind(LONGEST_TEXT).fetch_all(db).await?;
    Ok(rows.into_iter().collect())
}

/// Returns the verdicts on memories over all conversations, without those on what a memory has said before it was changed.
async fn verdicts(db: &PgPool, project: &str, ids: &[Uuid]) -> sqlx::Result<HashMap<Uuid, Verdicts>> {
    const SQL: &str = "
        select c.memory_id, count(*) filter (where c.verdict = 'used'), count(*) filter (where c.verdict = 'dismissed')
        from conversation_memories c
        join memories m on m.project = $1 and m.id = c.memory_id and m.revision = c.memory_revision
        where c.project = $1 and c.memory_id = any($2) and c.verdict is not null group by c.memory_id";
    let rows: Vec<(Uuid, i64, i64)> = sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(db).await?;
    Ok(rows.into_iter().map(|(id, used, dismissed)| (id, Verdicts { used, dismissed })).collect())
}

/// Computes the correction of the confidence from the newest verdicts of a project.
async fn correction(db: &PgPool, project: &str) -> sqlx::Result<Correction> {
    const SQL: &str = "
        select round(log_odds * 4) / 4, (count(*) filter (where verdict = 'used'))::float8,
            (count(*) filter (where verdict = 'dismissed'))::float8
        from (
            select log_odds, verdict from conversation_memories
            where project = $1 and verdict is not null and log_odds is not null order by judged_at desc limit 1000
        ) newest group by 1 order by 1";
    let rows: Vec<(f64, f64, f64)> = sqlx::query_as(SQL).bind(project).fetch_all(db).await?;
    let outcomes: Vec<_> =
        rows.into_iter().map(|(log_odds, used, dismissed)| Outcome { log_odds, used, dismissed }).collect();
    Ok(Correction::learned(&outcomes))
}
