//! Uses of tools and their results, which are connected by the id that the agent gives them, in whatever order they
//! arrive.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::counts::TranscriptCounts;
use crate::agents::{Activity, Entry, SearchOutput, ToolAction};
use crate::privacy::kept::Kept;
use crate::retrieval::keys::Key;
use crate::types::{Timestamp, derived_id};

/// The use of a tool and its result, or the one of them that has arrived.
#[derive(Debug, Default, Clone)]
pub(in crate::searches) struct ToolCall {
    pub(in crate::searches) session: Option<String>,
    pub(in crate::searches) used: bool,
    pub(in crate::searches) answered: bool,
    /// The part that has arrived and waits for the other one.
    pub(in crate::searches) pending: Option<Half>,
    /// Whether the call has changed since it was read.
    pub(in crate::searches) changed: bool,
}

/// A part of a call. A use without a relevant action is not stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::searches) enum Half {
    /// The use.
    Use(ToolUse),
    /// The result.
    Result(ToolResult),
}

/// The use of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::searches) struct ToolUse {
    pub(super) at: Option<Timestamp>,
    /// The folder to which relative paths refer.
    pub(super) folder: Option<String>,
    pub(super) actions: Vec<ToolAction>,
    /// The keys of the identifiers that the use writes to files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) wrote: Vec<Key>,
}

/// The result of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::searches) struct ToolResult {
    pub(super) ok: bool,
    pub(super) output: Option<SearchOutput>,
}

/// Calls, by an id that is derived from the agent's own ([`call_id`]).
pub(in crate::searches) type ToolCalls = HashMap<Uuid, ToolCall>;

/// Returns the id under which a call is stored, derived from the agent's own, which may be of any length.
pub(super) fn call_id(given: &str) -> Uuid {
    derived_id(&[b"call", given.as_bytes()])
}

/// Returns the ids of the calls to which these entries refer.
pub(in crate::searches) fn call_ids(entries: &[Kept<Entry>]) -> Vec<Uuid> {
    let id = |activity: &Activity| match activity {
        Activity::ToolUse { id, .. } | Activity::ToolResult { id, .. } => id.as_deref().map(call_id),
        _ => None,
    };
    entries.iter().flat_map(|entry| &entry.activities).filter_map(id).collect()
}

/// Stores an activity as a part of a call. Returns the whole call, if the other part has already arrived. A part that
/// arrives again does not count. `wrote` computes the keys of the identifiers that a use writes to files, which may take
/// long.
pub(super) fn pair<'e>(
    calls: &mut ToolCalls,
    entry: &Entry,
    activity: &'e Activity,
    wrote: impl FnOnce() -> Vec<Key>,
    counts: &mut TranscriptCounts,
) -> Option<(&'e str, ToolUse, ToolResult)> {
    let (id, mut half) = match activity {
        Activity::ToolUse { id, actions } => {
            let (folder, actions) = (entry.root.clone(), actions.clone());
            let made = ToolUse { at: entry.at, folder, actions, wrote: Vec::new() };
            (id, Half::Use(made))
        }
        Activity::ToolResult { id, ok, output } => {
            (id, Half::Result(ToolResult { ok: *ok, output: output.clone() }))
        }
        _ => return None,
    };
    let count = match half {
        Half::Use(_) => &mut counts.tool_uses,
        Half::Result(_) => &mut counts.tool_results,
    };
    let Some(id) = id else {
        *count += 1;
        return None;
    };
    let call = calls.entry(call_id(id)).or_default();
    call.session = call.session.take().or_else(|| entry.session.clone());
    let taken = match half {
        Half::Use(_) => &mut call.used,
        Half::Result(_) => &mut call.answered,
    };
    if std::mem::replace(taken, true) {
        return None;
    }
    *count += 1;
    call.changed = true;
    if let Half::Use(made) = &mut half {
        made.wrote = wrote();
    }
    let other = call.pending.take();
    if !(call.used && call.answered) {
        call.pending = Some(half).filter(|half| !half.is_idle());
        return None;
    }
    counts.matched += 1;
    match (half, other) {
        (Half::Use(made), Some(Half::Result(result))) | (Half::Result(result), Some(Half::Use(made))) => {
            Some((id, made, result))
        }
        _ => None,
    }
}

impl Half {
    /// Returns whether this is a use without a relevant action.
    fn is_idle(&self) -> bool {
        matches!(self, Self::Use(made) if made.actions.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_use_writes_is_read_once_however_often_it_arrives() {
        let (mut calls, mut counts) = (ToolCalls::new(), TranscriptCounts::default());
        let actions = vec![ToolAction::Edit { path: "a".to_owned() }];
        let used = Activity::ToolUse { id: Some("t1".to_owned()), actions };
        let mut times = 0;
        for _ in 0..3 {
            let wrote = || {
                times += 1;
                vec![7]
            };
            assert!(pair(&mut calls, &Entry::default(), &used, wrote, &mut counts).is_none());
        }
        let answer = Activity::ToolResult { id: Some("t1".to_owned()), ok: true, output: None };
        let whole = pair(&mut calls, &Entry::default(), &answer, Vec::new, &mut counts);
        assert_eq!(whole.map(|(_, made, _)| made.wrote), Some(vec![7]));
        assert_eq!((times, counts.tool_uses), (1, 1));
    }
}
