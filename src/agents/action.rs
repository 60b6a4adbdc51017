//! What agents do with tools, as far as it concerns searching.

use serde::{Deserialize, Serialize};

/// The maximum number of actions of one use of a tool that are read.
pub(super) const MOST_ACTIONS: usize = 1_000;
/// The maximum number of bytes that the actions of one use of a tool take in memory, and what its result has found. What
/// arrives first is stored until the other arrives, and a request may have the rest of thousands of calls.
const MOST_STORED: usize = 32 << 10;
/// The maximum number of bytes of the path of a file or folder, which is that of Linux.
pub(super) const MOST_PATH: usize = 4_096;
/// The number of bytes that an action or a hit takes in memory besides its texts, roughly.
pub(super) const OVERHEAD: usize = 96;

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
    #[must_use]
    pub fn size(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Search { query, path, .. } => query.len() + path.as_ref().map_or(0, String::len),
                Self::Read { path } | Self::Index { path } | Self::Edit { path } => path.len(),
            }
    }
}

/// How many bytes of memory may still be taken. Once there are too few for something, nothing else gets any: of what is
/// read, the first is kept.
#[derive(Debug, Default)]
pub(super) struct Room(usize);

impl Room {
    /// Makes room for the actions of a text of so many bytes. A path is joined to the folder from which it is seen, and may
    /// be much longer than in the text.
    pub(super) fn of(bytes: usize) -> Self {
        const LEAST: usize = 8 << 10;
        const TIMES: usize = 4;
        Self(LEAST + TIMES * bytes)
    }

    /// Makes room for what is stored of one use of a tool or of its result.
    pub(super) fn of_stored() -> Self {
        Self(MOST_STORED)
    }

    /// Takes so many bytes. Returns whether there were as many.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }

    /// Returns whether nothing is left.
    pub(super) fn is_used_up(&self) -> bool {
        self.0 == 0
    }

    /// Returns the first actions for which there is room.
    pub(super) fn first(&mut self, actions: impl IntoIterator<Item = ToolAction>) -> Vec<ToolAction> {
        actions.into_iter().take_while(|action| self.take(action.size())).collect()
    }
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
