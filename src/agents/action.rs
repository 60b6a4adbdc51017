//! What agents do with tools, as far as it concerns searching.

use serde::{Deserialize, Serialize};

/// The maximum number of actions of one use of a tool that are read.
pub(super) const MOST_ACTIONS: usize = 1_000;
/// The maximum number of bytes that the actions of one use of a tool take in memory. They are stored until the tool's
/// result arrives, and a request may have the results of thousands of uses.
const MOST_BYTES: usize = 32 << 10;
/// The number of bytes that an action takes in memory besides its texts, roughly.
const OVERHEAD: usize = 96;

/// What a use of a tool does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolAction {
    /// The agent looks for something.
    Search {
        /// The kind of tool that it searches with.
        tool: SearchTool,
        /// The words of a question, a pattern of contents, or a pattern of file names.
        query: String,
        /// The file or folder that it searches in.
        path: Option<String>,
    },
    /// The agent reads a file.
    Read {
        /// The path as the agent wrote it: absolute, or relative to the folder it works in.
        path: String,
    },
    /// The agent adds a file to the index that its searches ask.
    Index {
        /// The path as the agent wrote it.
        path: String,
    },
    /// The agent writes or changes a file.
    Edit {
        /// The path as the agent wrote it.
        path: String,
    },
}

impl ToolAction {
    /// Returns how many bytes the action takes in memory, roughly.
    pub(super) fn size(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Search { query, path, .. } => query.len() + path.as_ref().map_or(0, String::len),
                Self::Read { path } | Self::Index { path } | Self::Edit { path } => path.len(),
            }
    }
}

/// Keeps the first actions of a use of a tool, up to the maximum size.
pub(super) fn bounded(mut actions: Vec<ToolAction>) -> Vec<ToolAction> {
    let mut room = MOST_BYTES;
    let fits = |action: &&ToolAction| {
        let left = room.checked_sub(action.size());
        room = left.unwrap_or_default();
        left.is_some()
    };
    let kept = actions.iter().take_while(fits).count();
    actions.truncate(kept);
    actions
}

/// The kind of a tool that searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchTool {
    /// One of the search tools of the settings, which ranks what it finds.
    Index,
    /// A tool that looks through contents: Grep, `rg`, `grep`, `git grep`.
    Grep,
    /// A tool that looks through names: Glob, `find`, `fd`.
    Glob,
}
