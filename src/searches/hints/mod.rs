//! Hints: the file that is worth opening now, if there is one. [`find`] is called whenever an agent searches: for a
//! search that is posted, for `GET /v1/associations`, and for help without a request.
//!
//! [`rules::hints`](super::rules::hints) defines the signs for a file and their weights. `moment` reads what is known
//! of the session that asks, and `candidates` finds the files of the repository with at least one sign. The work is
//! bounded, however large the history of a repository is: each statement finds its rows by an index, and reads a
//! limited number of them.

mod candidates;
mod moment;

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use self::candidates::{Candidates, File};
use self::moment::Moment;
use super::associations::Association;
use super::rules::hints;
use super::rules::learner::GivenHint;
use super::rules::repository::{file_id, repository};
use super::settings::Rules;
use crate::error::Result;
use crate::retrieval::Samples;
use crate::sharing::apart;
use crate::types::Timestamp;

/// A file that is worth opening.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Hint {
    /// The id of the association that led to the file. Null if no search has found the file yet.
    pub id: Option<Uuid>,
    /// The query of that association.
    pub query: Option<String>,
    /// The folder that the path is relative to, if the file is in it.
    pub root: Option<String>,
    /// The file.
    pub path: String,
    /// The estimated probability, from 0 to 1, that the agent needs the file and has not opened it yet.
    pub score: f64,
    /// The sum of the association's evidence, each piece decayed until the beginning of this hour. 0 without an
    /// association.
    pub weight: f64,
    /// The number of searches that found the file, according to the association.
    pub evidence: i32,
    /// The time at which one of these searches last found the file, by the agent's clock.
    pub last_seen_at: Option<Timestamp>,
}

/// A question for hints.
#[derive(Debug, Clone, Default)]
pub struct Asked<'a> {
    /// The query.
    pub query: &'a str,
    /// The folder that is searched.
    pub root: Option<&'a str>,
    /// The session that asks.
    pub asker: Asker<'a>,
    /// The paths, in their normal form, that the search itself has returned. They are not hints.
    pub offered: HashSet<String>,
    /// The maximum number of hints. Without `least`, there are at most two, and usually none.
    pub limit: usize,
    /// The minimum score of a hint, in place of the default bounds.
    pub least: Option<f64>,
}

/// The session that asks for hints. Files that it has touched are not hints.
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
    /// An unknown session. A search that names no session belongs to none.
    Unknown,
}

/// Finds the hints for a question, best first. The question must be redacted in the same way as the stored texts.
pub async fn find(
    db: &PgPool,
    samples: &Arc<Samples>,
    project: &Arc<str>,
    rules: &Rules,
    asked: &Asked<'_>,
) -> Result<Vec<Hint>> {
    let moment = Arc::new(Moment::read(db, project, asked).await?);
    let mut found = Candidates::find(db, samples, project, rules, asked.query, &moment).await?;
    found.retain(|file| !asked.offered.contains(&file.path));
    let at = Arc::clone(&moment);
    let mut ranked = apart(project, move || ranked(found, &at)).await;
    let scores = ranked.iter().map(|(score, _)| *score);
    let shown = match asked.least {
        Some(least) => scores.take_while(|score| *score >= least).count(),
        None => hints::shown(scores),
    };
    ranked.truncate(shown.min(asked.limit));
    let root = Some(&moment.root).filter(|root| !root.is_empty());
    Ok(ranked.into_iter().map(|(score, file)| Hint::new(score, file, root)).collect())
}

/// Returns the files that the session has not touched with their scores, best first.
fn ranked(mut files: Vec<File>, moment: &Moment) -> Vec<(f64, File)> {
    files.retain(|file| !moment.has(&file.path));
    let mut ranked: Vec<_> = files.into_iter().map(|file| (file.signs.score(moment.turn), file)).collect();
    // Files with equal scores are ordered by weight, which decays and therefore only changes the order.
    let weight = |file: &File| file.learned.as_ref().map_or(0.0, |learned| learned.weight);
    ranked.sort_by(|(a, one), (b, other)| {
        let by_weight = || weight(other).total_cmp(&weight(one)).then_with(|| one.path.cmp(&other.path));
        b.total_cmp(a).then_with(by_weight)
    });
    ranked
}

impl Hint {
    fn new(score: f64, file: File, root: Option<&String>) -> Self {
        let File { path, learned, .. } = file;
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

    /// Returns the hint in the form in which a search stores it.
    pub(super) fn given(&self, rank: i32) -> GivenHint {
        let file = self.root.as_deref().map(|root| file_id(&repository(root), &self.path));
        GivenHint { rank, path: self.path.clone(), association: self.id, file, score: self.score }
    }
}

/// The hint of an association, for a question without a session and a folder.
impl From<Association> for Hint {
    fn from(association: Association) -> Self {
        let Association { id, query, root, path, score, weight, evidence, last_seen_at } = association;
        let (id, query, last_seen_at) = (Some(id), Some(query), Some(last_seen_at));
        Self { id, query, root, path, score, weight, evidence, last_seen_at }
    }
}
