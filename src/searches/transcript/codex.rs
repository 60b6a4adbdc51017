//! Codex CLI.

use super::{BadLine, Entry, ToolPatterns};

pub(super) fn parse(line: &str, _tools: &ToolPatterns) -> Result<Entry, BadLine> {
    if line.starts_with('{') { Ok(Entry::default()) } else { Err(BadLine) }
}

pub(super) fn parse_hook(body: &str, tools: &ToolPatterns) -> Option<Entry> {
    parse(body, tools).ok()
}
