//! Hints: which file is worth opening now, if any. [`find`] is asked whenever an agent searches, whichever way it comes: with a
//! search that is posted, by `GET /v1/associations`, or unasked.
//!
//! What speaks for a file is said in [`rules::hints`](super::rules::hints). `moment` reads what is known of who asks,
//! `candidates` the files of the repository for which something speaks. The work is bounded, however much was touched in a
//! repository: each read names the rows that it takes by an index, and takes so many at most.

mod candidates;
mod moment;

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use self::candidates::Candidates;
use self::moment::Moment;
use super::associations::Association;
use super::rules::hints;
use super::rules::learner::GivenHint;
use super::settings::Rules;
use crate::error::Result;
use crate::retrieval::Samples;
use crate::types::Timestamp;

/// A file that is worth opening.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Hint {
    /// The id of the association that speaks for the file; null if no search has found it yet.
    pub id: Option<Uuid>,
    /// The query of that association.
    pub query: Option<String>,
    /// The folder that the path is relative to, if it lies in it.
    pub root: Option<String>,
    /// The file.
    pub path: String,
    /// The chance, 0 to 1, that the agent needs the file and does not have it yet.
    pub score: f64,
    /// The sum of the evidence for the association, each piece decayed until the beginning of this hour; 0 without one.
    pub weight: f64,
    /// How many searches found the file, by the association.
    pub evidence: i32,
    /// When one of these searches last found the file, by the agent's clock.
    pub last_seen_at: Option<Timestamp>,
}

/// A question for hints.
#[derive(Debug, Clone, Default)]
pub struct Asked<'a> {
    /// What is sought.
    pub query: &'a str,
    /// The folder in which it is sought.
    pub root: Option<&'a str>,
    /// Who asks.
    pub asker: Asker<'a>,
    /// The paths that the search has found by itself, in their normal form: these are no hints.
    pub offered: HashSet<String>,
    /// The most hints to return. Without `least` there are two at most, and mostly none.
    pub limit: usize,
    /// The least score of a hint, instead of the score from which a hint pays.
    pub least: Option<f64>,
}

/// Who asks for hints: what they have touched already is none for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asker<'a> {
    /// An agent in a session.
    Agent {
        /// The session.
        session: &'a str,
        /// The subagent in the session; none for the main agent.
        agent: Option<&'a str>,
    },
    /// The session that was last active in the folder.
    #[default]
    LastActive,
    /// Nobody of whom anything is known: a search that names no session belongs to none.
    Unknown,
}

/// Finds the hints for a question, the best first. What is asked has been redacted as what is stored.
pub async fn find(
    db: &PgPool,
    samples: &Arc<Samples>,
    project: &Arc<str>,
    rules: &Rules,
    asked: &Asked<'_>,
) -> Result<Vec<Hint>> {
    let moment = Moment::read(db, project, asked).await?;
    let mut found = Candidates::find(db, samples, project, rules, asked.query, &moment).await?;
    found.retain(|file| !moment.has(&file.path) && !asked.offered.contains(&file.path));
    let mut ranked: Vec<_> = found.into_iter().map(|file| (file.signs.score(moment.turn), file)).collect();
    // Of what is as likely, that comes first for which more was learned: weights decay, and rank without leaving anything out.
    let weight = |file: &candidates::File| file.learned.as_ref().map_or(0.0, |learned| learned.weight);
    ranked.sort_by(|(a, one), (b, other)| {
        let by_weight = || weight(other).total_cmp(&weight(one)).then_with(|| one.path.cmp(&other.path));
        b.total_cmp(a).then_with(by_weight)
    });
    let scores = ranked.iter().map(|(score, _)| *score);
    let shown = match asked.least {
        Some(least) => scores.take_while(|score| *score >= least).count(),
        None => hints::shown(scores),
    };
    ranked.truncate(shown.min(asked.limit));
    let root = Some(&moment.root).filter(|root| !root.is_empty());
    Ok(ranked.into_iter().map(|(score, file)| Hint::new(score, file, root)).collect())
}

impl Hint {
    fn new(score: f64, file: candidates::File, root: Option<&String>) -> Self {
        let candidates::File { path, learned, .. } = file;
        match learned {
            Some(Association { id, query, root: own, weight, evidence, last_seen_at, .. }) => Self {
                id: Some(id),
                query: Some(query),
                root: root.cloned().or(own),
                path,
                score,
                weight,
                evidence,
                last_seen_at: Some(last_seen_at),
            },
            None => Self {
                id: None,
                query: None,
                root: root.cloned(),
                path,
                score,
                weight: 0.0,
                evidence: 0,
                last_seen_at: None,
            },
        }
    }

    /// The hint as a search remembers that it was answered with it.
    pub(super) fn given(&self, rank: i32) -> GivenHint {
        GivenHint { rank, path: self.path.clone(), association: self.id, score: self.score }
    }
}

/// What was learned, where nobody asks for a moment's hint.
impl From<Association> for Hint {
    fn from(association: Association) -> Self {
        let Association { id, query, root, path, score, weight, evidence, last_seen_at } = association;
        let (id, query, last_seen_at) = (Some(id), Some(query), Some(last_seen_at));
        Self { id, query, root, path, score, weight, evidence, last_seen_at }
    }
}
