//! What agents do with tools, as far as it concerns searching.

use serde::{Deserialize, Serialize};

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
