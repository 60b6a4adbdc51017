//! What a use of a tool does, by the tool's name and input. Agents share names or nearly so, so one list serves all.

use std::borrow::Cow;

use serde::Deserialize;

use super::json::{self, Raw};
use super::{Action, SearchTool, ToolPatterns};
use crate::searches::shell;

/// What may stand in the input of any tool.
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
}

/// What the tool called `name` does with `input`, a JSON object or a text. Relative paths are told from `folder`, where
/// that is known.
pub(super) fn actions(name: &str, input: &str, folder: Option<&str>, tools: &ToolPatterns) -> Vec<Action> {
    if tools.matches(name) {
        return search(SearchTool::Index, &parsed(input), folder);
    }
    match name {
        "Grep" | "grep_files" => search(SearchTool::Grep, &parsed(input), folder),
        "Glob" => search(SearchTool::Glob, &parsed(input), folder),
        "Read" | "NotebookRead" | "read_file" => {
            file(&parsed(input), folder).map(|path| Action::Read { path }).into_iter().collect()
        }
        "Edit" | "MultiEdit" | "Write" | "NotebookEdit" => {
            file(&parsed(input), folder).map(|path| Action::Edit { path }).into_iter().collect()
        }
        "Bash" | "exec_command" | "shell" | "shell_command" | "local_shell" => {
            command(&parsed(input), folder)
        }
        "apply_patch" => {
            let given: Input<'_> = parsed(input);
            let inner = json::text(given.input.or(given.command)).unwrap_or(Cow::Borrowed(input));
            shell::patched_files(&inner).map(|path| Action::Edit { path: seen_from(folder, path) }).collect()
        }
        _ => Vec::new(),
    }
}

fn parsed(input: &str) -> Input<'_> {
    json::object(input).unwrap_or_default()
}

fn seen_from(folder: Option<&str>, path: &str) -> String {
    shell::join(folder.unwrap_or(""), path)
}

fn file(input: &Input<'_>, folder: Option<&str>) -> Option<String> {
    let path = json::text(input.file_path.or(input.notebook_path).or(input.path))?;
    (!path.is_empty()).then(|| seen_from(folder, &path))
}

fn command(input: &Input<'_>, folder: Option<&str>) -> Vec<Action> {
    let workdir = json::text(input.workdir);
    let folder = match (&workdir, folder) {
        (Some(workdir), folder) if !workdir.is_empty() => Some(seen_from(folder, workdir)),
        (_, folder) => folder.map(str::to_owned),
    };
    let command = input.command.or(input.cmd);
    if let Some(words) = json::elements(command) {
        // The words of a command, the last of which may be a command line for a shell.
        let words: Option<Vec<Cow<'_, str>>> = words.into_iter().map(|word| json::text(Some(word))).collect();
        let line = words.and_then(|words| shlex::try_join(words.iter().map(Cow::as_ref)).ok());
        return shell::actions(&line.unwrap_or_default(), folder.as_deref());
    }
    shell::actions(&json::text(command).unwrap_or_default(), folder.as_deref())
}

fn search(tool: SearchTool, input: &Input<'_>, folder: Option<&str>) -> Vec<Action> {
    let asked = match tool {
        SearchTool::Index => [input.query, input.q, input.pattern, input.text, input.question],
        SearchTool::Grep | SearchTool::Glob => [input.pattern, input.query, None, None, None],
    };
    let query = asked.into_iter().find_map(|raw| json::name(raw).filter(|query| !query.trim().is_empty()));
    let path = json::name(input.path.or(input.dir_path)).map(|path| seen_from(folder, &path));
    query.map(|query| Action::Search { tool, query, path }).into_iter().collect()
}
