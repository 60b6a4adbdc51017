//! Calls of tools whose results have arrived: what agents have searched, read and changed with them.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::replay::{action_id, key_of};
use super::rows::StartedSearch;
use super::tool_calls::{ToolResult, ToolUse};
use super::unit_of_work::UnitOfWork;
use crate::agents::{Entry, PassageSource, SearchOutput, SearchTool, ToolAction};
use crate::searches::SearchResult;
use crate::searches::limits::{MOST_OF_CALL, MOST_PATH, MOST_QUERY, cut, first_results};
use crate::searches::rules::learner::{AgentThread, FallbackKind, SearchState, Step};
use crate::searches::rules::names::Names;
use crate::searches::rules::paths;

/// A call with its result.
pub(super) struct AnsweredCall<'a> {
    pub(super) id: &'a str,
    pub(super) made: &'a ToolUse,
    pub(super) result: &'a ToolResult,
}

impl AnsweredCall<'_> {
    /// Returns the normal form of a path in the call, as seen from `root`. It is none if no file has such a path, because
    /// it is empty or, joined to the folder of the call, too long, or if the file soon is gone.
    fn path(&self, path: &str, root: Option<&str>) -> Option<String> {
        let path = Some(path).filter(|path| !path.is_empty())?;
        let path = paths::normalise(path, self.made.folder.as_deref(), root);
        let is_gone =
            root.is_some_and(|root| paths::is_temporary(&path) && !paths::is_temporary(&paths::folder(root)));
        (path.chars().count() <= MOST_PATH && !is_gone).then_some(path)
    }

    /// Returns the first results of a search, as seen from `root`. Joined to the folder of the call, they may be much longer
    /// than in the output.
    fn results(&self, output: &SearchOutput, root: Option<&str>) -> Vec<SearchResult> {
        let results = output
            .hits
            .iter()
            .filter_map(|hit| self.path(&hit.path, root).map(|path| SearchResult { path, score: hit.score }));
        first_results(results, MOST_OF_CALL)
    }
}

impl UnitOfWork<'_> {
    /// Adds the files that a call has read or changed. What it has shown or written is attributed to a file only if
    /// it is the only one.
    pub(super) fn touch_files(
        &mut self,
        thread: Uuid,
        entry: &Entry,
        call: &AnsweredCall<'_>,
        names: &Names,
    ) {
        let Some(at) = call.made.at.or(entry.at) else { return };
        let AgentThread { root: Some(root), .. } = self.thread(thread) else { return };
        let root = root.clone();
        let Some(turn) = self.thread(thread).turn_at(at).filter(|_| call.result.ok) else { return };
        let path = |action: &ToolAction| match action {
            ToolAction::Read { path } | ToolAction::Edit { path } | ToolAction::Index { path } => {
                call.path(path, Some(&root))
            }
            ToolAction::Search { .. } => None,
        };
        let touched: BTreeSet<String> = call.made.actions.iter().filter_map(path).collect();
        let mut identifiers = BTreeSet::new();
        if touched.len() == 1 {
            let shown = entry.passages.iter().find(
                |passage| matches!(&passage.source, PassageSource::Answer(answered) if answered == call.id),
            );
            identifiers = shown.map(|shown| names.identifiers(&shown.text)).unwrap_or_default();
            identifiers.extend(&call.made.wrote);
        }
        for path in touched {
            self.encounters().touch(thread, &root, &path, (turn, at), identifiers.iter().copied());
        }
    }

    /// Applies the actions of a call as steps, and its searches as searches.
    pub(super) fn take_call(&mut self, thread: Uuid, entry: &Entry, source: &str, call: &AnsweredCall<'_>) {
        let Some(at) = call.made.at.or(entry.at) else { return };
        let root = self.thread(thread).root.clone();
        for (index, action) in call.made.actions.iter().enumerate() {
            let id = action_id(entry, source, call.id, index);
            let step = |kind, target: String| Step { id, kind, target, ok: call.result.ok, at };
            match action {
                ToolAction::Read { path } | ToolAction::Edit { path } | ToolAction::Index { path } => {
                    let kind = match action {
                        ToolAction::Edit { .. } => FallbackKind::Edit,
                        ToolAction::Index { .. } => FallbackKind::Index,
                        _ => FallbackKind::Read,
                    };
                    if let Some(path) = call.path(path, root.as_deref()) {
                        self.step(thread, &step(kind, path), None);
                    }
                }
                ToolAction::Search { tool, query, .. } => {
                    let mut query = query.clone();
                    cut(&mut query, MOST_QUERY);
                    if query.is_empty() || !call.result.ok {
                        continue;
                    }
                    let kind = match tool {
                        SearchTool::Grep => Some(FallbackKind::Grep),
                        SearchTool::Glob => Some(FallbackKind::Glob),
                        SearchTool::Index => None,
                    };
                    if let Some(kind) = kind {
                        self.step(thread, &step(kind, query.clone()), None);
                    }
                    let is_search = |output: &SearchOutput| {
                        kind.is_none() || (output.is_empty() && self.rules().track_builtin)
                    };
                    let output = call.result.output.as_ref().filter(|output| is_search(output));
                    if let Some(output) = output.filter(|_| self.stored(id).is_none()) {
                        let best_score = best_score(output);
                        let count = output.count.unwrap_or(output.hits.len() as u64);
                        let search = StartedSearch {
                            id,
                            thread,
                            key: key_of(entry),
                            turn: entry.turn.clone(),
                            query,
                            best_score,
                            result_count: i32::try_from(count).unwrap_or(i32::MAX),
                            results: call.results(output, root.as_deref()),
                            root: root.clone(),
                            at,
                            state: SearchState::of_new(best_score, self.rules()),
                            hash: Vec::new(),
                            hints: Vec::new(),
                            corrects: None,
                        };
                        self.start(search);
                    }
                }
            }
        }
    }
}

/// Returns the best known score in a search's output. It is 0 if the search found nothing.
fn best_score(output: &SearchOutput) -> Option<f64> {
    if output.is_empty() {
        return Some(0.0);
    }
    let named = || output.hits.iter().filter_map(|hit| hit.score).max_by(f64::total_cmp);
    output.best_score.or_else(named)
}
