//! Items: the actions of a turn, as Codex reports them to programs that observe it. If a model calls its tools from
//! its own code (`custom_tool_call exec`, in JavaScript), nothing else in a rollout shows what they did. From version
//! 0.169 on, prompts are only in items.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer;
use crate::agents::action::{MOST_ACTIONS, ToolAction};
use crate::agents::entry::{Activity, Passage, PassageSource};
use crate::agents::json::{self, Raw};
use crate::agents::prompt;
use crate::agents::search_output::{self, SearchOutput};
use crate::agents::tool::{self, ToolPatterns};
use crate::types::path::has_drive;

/// A completed item.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
    // Of a message.
    #[serde(borrow)]
    content: Raw<'a>,
    // Of a command.
    #[serde(borrow)]
    command: Raw<'a>,
    #[serde(borrow)]
    cwd: Raw<'a>,
    #[serde(borrow)]
    exit_code: Raw<'a>,
    #[serde(borrow)]
    aggregated_output: Raw<'a>,
    // Of a change of files.
    #[serde(borrow)]
    changes: Raw<'a>,
    // Of a call of an MCP server.
    #[serde(borrow)]
    server: Raw<'a>,
    #[serde(borrow)]
    tool: Raw<'a>,
    #[serde(borrow)]
    arguments: Raw<'a>,
    #[serde(borrow)]
    result: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// The action of an item. The use of a tool is reported as a whole, with its result.
pub(super) fn activities(item: Raw<'_>, tools: &ToolPatterns, passages: &mut Vec<Passage>) -> Vec<Activity> {
    let Some(item): Option<Item<'_>> = json::member(item) else { return Vec::new() };
    let answered = [item.aggregated_output, item.result].map(json::texts).join("\n");
    let answer_to = json::name(item.id).map(PassageSource::Answer);
    passages.extend(answer_to.and_then(|source| Passage::new(source, answered)));
    match json::text(item.kind).as_deref() {
        Some("UserMessage") => said(&item).map(|text| prompt::activity(&text)).into_iter().collect(),
        Some("CommandExecution") => {
            let folder = json::text(item.cwd).map(local_path);
            let actions = tool::command_actions(item.command, folder.as_deref());
            let (ok, output) = ended(&item);
            used(&item, actions, ok, output)
        }
        Some("FileChange") => used(&item, edits(&item), has_worked(&item), None),
        Some("McpToolCall") => {
            let [server, tool] = [item.server, item.tool].map(|name| json::text(name).unwrap_or_default());
            let arguments = item.arguments.map_or("", RawValue::get);
            let actions = tool::actions(&format!("mcp__{server}__{tool}"), arguments, None, tools);
            let (ok, output) = answer(item.result);
            used(&item, actions, ok && has_worked(&item), output)
        }
        _ => Vec::new(),
    }
}

/// Returns the text of a prompt, if the item is a prompt and has a text.
pub(super) fn prompt(item: Raw<'_>) -> Option<String> {
    let item: Item<'_> = json::member(item)?;
    json::text(item.kind).filter(|kind| kind == "UserMessage")?;
    said(&item).map(|text| prompt::read(&text)).filter(|text| !text.is_empty())
}

/// Returns the text of a prompt, if a person has written one.
fn said(item: &Item<'_>) -> Option<String> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Part<'a> {
        #[serde(borrow)]
        text: Raw<'a>,
    }
    let parts = json::elements(item.content)?;
    let texts = parts.iter().filter_map(|part| json::member::<Part<'_>>(Some(part))?.text);
    let text = texts.filter_map(|text| json::beginning(Some(text), prompt::MOST_WRITTEN));
    let text = text.collect::<Vec<_>>().join(" ");
    // Images have no text.
    (!parts.is_empty()).then_some(text)
}

/// Returns the activities of a tool with its result.
fn used(item: &Item<'_>, actions: Vec<ToolAction>, ok: bool, output: Option<SearchOutput>) -> Vec<Activity> {
    let id = json::name(item.id);
    vec![Activity::used(id.clone(), actions), Activity::result(id, ok, output)]
}

/// Returns whether the item says that its tool succeeded.
fn has_worked(item: &Item<'_>) -> bool {
    let has_failed = matches!(json::text(item.status).as_deref(), Some("failed" | "declined"));
    !has_failed && item.error.is_none_or(|error| error.get() == "null")
}

/// Returns whether a command succeeded, and what it found. A search that finds nothing ends with the status 1.
fn ended(item: &Item<'_>) -> (bool, Option<SearchOutput>) {
    let output = json::text(item.aggregated_output).and_then(|output| search_output::read_text(&output));
    match item.exit_code.map(RawValue::get) {
        Some("0") => (true, output),
        Some("1") => (false, output),
        None | Some("null") => (has_worked(item), output),
        Some(_) => (false, None),
    }
}

/// Returns the files that were changed and still exist.
fn edits(item: &Item<'_>) -> Vec<ToolAction> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Change<'a> {
        #[serde(borrow, rename = "type")]
        kind: Raw<'a>,
        #[serde(borrow)]
        move_path: Raw<'a>,
    }
    let changes = json::members(item.changes, MOST_ACTIONS).unwrap_or_default();
    let mut edits = Vec::new();
    for (path, change) in changes {
        let change: Change<'_> = json::member(Some(change)).unwrap_or_default();
        if json::text(change.kind).as_deref() != Some("delete") {
            edits.push(ToolAction::Edit { path: json::name(change.move_path).unwrap_or(path) });
        }
    }
    edits
}

/// Returns a folder's path, which newer versions write as a URL: `file:///srv/app`.
fn local_path(written: Cow<'_, str>) -> String {
    match written.strip_prefix("file://") {
        // A path that is not valid UTF-8, or that has a zero byte, is stored nowhere.
        Some(path) => {
            // A drive stands behind the slash of an address.
            let path = path.strip_prefix('/').filter(|path| has_drive(path)).unwrap_or(path);
            percent_encoding::percent_decode_str(path).decode_utf8_lossy().replace('\0', "\u{fffd}")
        }
        None => written.into_owned(),
    }
}
