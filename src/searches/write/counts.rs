//! The outcome of the lines of a transcript.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::unit_of_work::Saved;

/// The outcome of the lines of one call.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct TranscriptCounts {
    /// The number of lines that are not blank.
    pub lines: usize,
    /// The number of lines that are identical to lines received before under this `source`. The other counts include
    /// only new lines.
    pub duplicates: usize,
    /// The number of malformed lines, which were skipped.
    pub bad_lines: usize,
    /// The number of tool uses.
    pub tool_uses: usize,
    /// The number of tool results.
    pub tool_results: usize,
    /// The number of tool uses that were matched with their results. A match is counted when the second of the two
    /// arrives.
    pub matched: usize,
    /// The number of prompts and slash commands by a person.
    pub human_turns: usize,
    /// The number of new weak searches that are tracked.
    pub searches_started: usize,
    /// The number of searches that led to a file.
    pub searches_resolved: usize,
    /// The number of new associations.
    pub associations_created: usize,
    /// The number of new records of those that a quota limits: searches, and queries of conversations.
    #[serde(skip)]
    #[schema(ignore)]
    pub records: usize,
}

impl TranscriptCounts {
    /// Adds the counts of another piece of lines.
    pub fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.duplicates += other.duplicates;
        self.bad_lines += other.bad_lines;
        self.tool_uses += other.tool_uses;
        self.tool_results += other.tool_results;
        self.matched += other.matched;
        self.human_turns += other.human_turns;
        self.searches_started += other.searches_started;
        self.searches_resolved += other.searches_resolved;
        self.associations_created += other.associations_created;
        self.records += other.records;
    }

    /// Adds the numbers of what was saved.
    pub(super) fn add_saved(&mut self, saved: Saved) {
        self.searches_started += saved.started;
        self.searches_resolved += saved.resolved;
        self.associations_created += saved.associations;
        self.records += saved.records;
    }
}
