//! What became of the lines of a transcript.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::unit_of_work::Saved;

/// What became of the lines of one call.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct TranscriptCounts {
    /// How many lines are not blank.
    pub lines: usize,
    /// How many lines are byte for byte the same as one taken before under this source. The counts of what lines say are of
    /// new lines only.
    pub duplicates: usize,
    /// How many lines are malformed and were passed over.
    pub bad_lines: usize,
    /// How many uses of tools there were.
    pub tool_uses: usize,
    /// How many results of tools there were.
    pub tool_results: usize,
    /// How many uses of tools were matched with their results. A match is counted when the second of the two arrives.
    pub matched: usize,
    /// How many prompts and slash commands of a person there were.
    pub human_turns: usize,
    /// How many weak searches are now followed.
    pub searches_started: usize,
    /// How many searches led to a file.
    pub searches_resolved: usize,
    /// How many new associations were learned.
    pub associations_created: usize,
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
    }

    /// Adds what was saved.
    pub(super) fn add_saved(&mut self, saved: Saved) {
        self.searches_started += saved.started;
        self.searches_resolved += saved.resolved;
        self.associations_created += saved.associations;
    }
}
