//! The actions of a tool's use, by the tool's name and input. Agents have the same or similar names of tools, so one
//! list serves all.

use std::borrow::Cow;

use serde::Deserialize;

use super::action::{Room, SearchTool, ToolAction};
use super::entry::{Passage, PassageSource};
use super::json::{self, Raw};
use super::shell;

/// The beginning of the names of Gleaner's own tools.
const OWN: &str = "mcp__gleaner__";

/// The tools that search for files, unless there is a setting: that of the first user of the feedback loop, and all that an
/// MCP server calls a search, except those that search for something else.
const SEARCHES: [&str; 18] = [
    "mcp__ultrasync__jit_search",
    "mcp__*search*",
    "!mcp__*brave*",
    "!mcp__*notion*",
    "!mcp__*slack*",
    "!mcp__*tavily*",
    "!mcp__*__*channel*",
    "!mcp__*__*doc*",
    "!mcp__*__*image*",
    "!mcp__*__*issue*",
    "!mcp__*__*mail*",
    "!mcp__*__*memor*",
    "!mcp__*__*message*",
    "!mcp__*__*page*",
    "!mcp__*__*pull_request*",
    "!mcp__*__*repositories*",
    "!mcp__*__*users*",
    "!mcp__*__*web*",
];

/// The names of the tools that search for files. A `*` in a name matches any characters, a tool whose name matches one that
/// begins with `!` does not search for files, and upper case and lower case are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPatterns {
    searches: Vec<String>,
    others: Vec<String>,
}

impl ToolPatterns {
    /// Returns the tools whose names match one of `patterns`.
    #[must_use]
    pub fn new(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let patterns = patterns.into_iter().map(|pattern| pattern.as_ref().to_ascii_lowercase());
        let (others, searches) = patterns.partition(|pattern: &String| pattern.starts_with('!'));
        Self { searches, others }
    }

    /// Returns whether the tool called `name` searches for files. Our own tool searches for memories.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        !name.starts_with(OWN)
            && self.searches.iter().any(|pattern| fits(pattern, &name))
            && !self.others.iter().any(|pattern| fits(&pattern[1..], &name))
    }
}

impl Default for ToolPatterns {
    fn default() -> Self {
        Self::new(SEARCHES)
    }
}

/// Returns whether `name` matches `pattern`, in which a `*` matches any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        match name.split_once(part) {
            Some((_, after)) => name = after,
            None => return false,
        }
    }
    name.ends_with(tail)
}

/// The members that the input of a tool may have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input<'a> {
    #[serde(borrow)]
    file_path: Raw<'a>,
    #[serde(borrow)]
    notebook_path: Raw<'a>,
    #[serde(borrow)]
    path: Raw<'a>,
    #[serde(borrow)]
    dir_path: Raw<'a>,
    #[serde(borrow)]
    pattern: Raw<'a>,
    #[serde(borrow)]
    query: Raw<'a>,
    #[serde(borrow)]
    q: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    question: Raw<'a>,
    #[serde(borrow)]
    command: Raw<'a>,
    #[serde(borrow)]
    cmd: Raw<'a>,
    #[serde(borrow)]
    workdir: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
    #[serde(borrow)]
    old_string: Raw<'a>,
    #[serde(borrow)]
    new_string: Raw<'a>,
    #[serde(borrow)]
    new_source: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    edits: Raw<'a>,
}

/// Returns the actions of the tool called `name` with `input`, a JSON object or a text. Relative paths are resolved
/// from `folder`, if that is known.
pub(super) fn actions(
    name: &str,
    input: &str,
    folder: Option<&str>,
    tools: &ToolPatterns,
) -> Vec<ToolAction> {
    if tools.matches(name) {
        return search(SearchTool::Index, &parsed(input), folder);
    }
    match name {
        "Grep" | "grep_files" => search(SearchTool::Grep, &parsed(input), folder),
        "Glob" => search(SearchTool::Glob, &parsed(input), folder),
        "Read" | "NotebookRead" | "read_file" => {
            file(&parsed(input), folder).map(|path| ToolAction::Read { path }).into_iter().collect()
        }
        "Edit" | "MultiEdit" | "Write" | "NotebookEdit" => {
            file(&parsed(input), folder).map(|path| ToolAction::Edit { path }).into_iter().collect()
        }
        "Bash" | "exec_command" | "shell" | "shell_command" | "local_shell" => {
            command(&parsed(input), folder)
        }
        name if is_indexing(name) => {
            file(&parsed(input), folder).map(|path| ToolAction::Index { path }).into_iter().collect()
        }
        "apply_patch" => {
            let given: Input<'_> = parsed(input);
            let inner = json::text(given.input.or(given.command)).unwrap_or(Cow::Borrowed(input));
            let edits =
                shell::patched_files(&inner).map(|path| ToolAction::Edit { path: seen_from(folder, path) });
            Room::of(inner.len()).first(edits)
        }
        _ => Vec::new(),
    }
}

/// Returns what the use of a tool with these actions writes to files. There is none if it writes to no file, or has
/// no id.
pub(super) fn written(id: Option<&str>, input: &str, actions: &[ToolAction]) -> Option<Passage> {
    let id = id.filter(|_| actions.iter().any(|action| matches!(action, ToolAction::Edit { .. })))?;
    let given: Input<'_> = parsed(input);
    let members = [given.old_string, given.new_string, given.new_source, given.content, given.edits];
    let mut text = members.map(json::texts).join("\n");
    if text.trim().is_empty() {
        text = json::text(given.input.or(given.command)).map_or_else(|| input.to_owned(), Cow::into_owned);
    }
    Passage::new(PassageSource::Written(id.to_owned()), text)
}

/// Returns whether a tool of this name adds a file to the index of searches, whatever the server of the tool.
fn is_indexing(name: &str) -> bool {
    name.rsplit_once("__").is_some_and(|(_, tool)| matches!(tool, "jit_index_file" | "jit_add_symbol"))
}

fn parsed(input: &str) -> Input<'_> {
    json::object(input).unwrap_or_default()
}

fn seen_from(folder: Option<&str>, path: &str) -> String {
    shell::join(shell::possible(folder).unwrap_or(""), path)
}

fn file(input: &Input<'_>, folder: Option<&str>) -> Option<String> {
    let path = json::name(input.file_path.or(input.notebook_path).or(input.path))?;
    Some(seen_from(folder, &path))
}

fn command(input: &Input<'_>, folder: Option<&str>) -> Vec<ToolAction> {
    let workdir = json::name(input.workdir);
    let folder = match (&workdir, folder) {
        (Some(workdir), folder) => Some(seen_from(folder, workdir)),
        (None, folder) => folder.map(str::to_owned),
    };
    command_actions(input.command.or(input.cmd), folder.as_deref())
}

/// Returns the actions of a command: a command line, or the words of a command, of which the last may be a command
/// line for a shell. Relative paths are resolved from `folder`, if that is known.
pub(super) fn command_actions(command: Raw<'_>, folder: Option<&str>) -> Vec<ToolAction> {
    if let Some(words) = json::elements(command) {
        let words: Option<Vec<Cow<'_, str>>> = words.into_iter().map(|word| json::text(Some(word))).collect();
        let line = words.and_then(|words| shlex::try_join(words.iter().map(Cow::as_ref)).ok());
        return shell::actions(&line.unwrap_or_default(), folder);
    }
    shell::actions(&json::text(command).unwrap_or_default(), folder)
}

fn search(tool: SearchTool, input: &Input<'_>, folder: Option<&str>) -> Vec<ToolAction> {
    let asked = match tool {
        SearchTool::Index => [input.query, input.q, input.pattern, input.text, input.question],
        SearchTool::Grep | SearchTool::Glob => [input.pattern, input.query, None, None, None],
    };
    let query = asked.into_iter().find_map(|raw| json::name(raw).filter(|query| !query.trim().is_empty()));
    let path = json::name(input.path.or(input.dir_path)).map(|path| seen_from(folder, &path));
    query.map(|query| ToolAction::Search { tool, query, path }).into_iter().collect()
}
