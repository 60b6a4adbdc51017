//! Codex CLI: the lines of rollouts in `~/.codex/sessions`.
//!
//! A line is an envelope of time, type and payload. The session and its folder are only in the first line, and the
//! turn and its folder in a line at the beginning of the turn. Everything is recorded twice: as items of the model's
//! API, and as events for observers. Uses of tools are read from both, with the same ids, and turns from the events.

mod items;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::action::ToolAction;
use super::agent::{Agent, Home, HookEvent, Hooks, Reporting, Servers, ServersFormat, Transcripts};
use super::entry::{Activity, Entry, Passage, PassageSource};
use super::hook;
use super::json::{self, NotAnObject, Raw};
use super::known::{Known, LineKind};
use super::prompt;
use super::search_output::{self, SearchOutput};
use super::tool::{self, ToolPatterns};
use crate::types::Timestamp;

/// Codex CLI.
pub(super) static AGENT: Agent = Agent {
    name: "codex",
    title: "Codex CLI",
    parse_line,
    parse_hook,
    kind_of_line,
    known: Known { version: (0, 169, 0), kinds: &KINDS },
    home: Home { variable: "CODEX_HOME", folder: ".codex" },
    transcripts: Transcripts { folder: "sessions", prefix: "rollout-" },
    hooks: Hooks {
        settings: "hooks.json",
        events: &[
            HookEvent::plain("UserPromptSubmit"),
            HookEvent::of_tools("PreToolUse"),
            HookEvent::of_tools("PostToolUse"),
            HookEvent::plain("Stop"),
            HookEvent::plain("SessionEnd"),
        ],
        answerable: &["UserPromptSubmit", "PostToolUse"],
        reporting: Reporting::Command,
        // The command ends earlier on its own. Codex allows at most three seconds at the end of a session.
        timeout: 2,
        advice: Some(
            "Codex runs only trusted hooks: start `codex` in a terminal and accept them when it asks, or review them with \
             /hooks. `codex exec` silently skips hooks that are not trusted, unless it is started with \
             --dangerously-bypass-hook-trust.",
        ),
    },
    servers: Servers {
        home: Home { variable: "CODEX_HOME", folder: ".codex" },
        file: "config.toml",
        of_project: ".codex/config.toml",
        format: ServersFormat::Toml,
    },
};

/// The known kinds of lines: the type of the line, that of its payload, and that of the payload's item.
const KINDS: [&str; 62] = [
    "compacted",
    "event_msg agent_message",
    "event_msg agent_reasoning",
    "event_msg agent_reasoning_raw_content",
    "event_msg context_compacted",
    "event_msg entered_review_mode",
    "event_msg error",
    "event_msg exec_command_end",
    "event_msg exited_review_mode",
    "event_msg image_generation_end",
    "event_msg item_completed AgentMessage",
    "event_msg item_completed CollabAgentToolCall",
    "event_msg item_completed CommandExecution",
    "event_msg item_completed ContextCompaction",
    "event_msg item_completed DynamicToolCall",
    "event_msg item_completed EnteredReviewMode",
    "event_msg item_completed ExitedReviewMode",
    "event_msg item_completed FileChange",
    "event_msg item_completed HookPrompt",
    "event_msg item_completed ImageGeneration",
    "event_msg item_completed ImageView",
    "event_msg item_completed McpToolCall",
    "event_msg item_completed Plan",
    "event_msg item_completed Reasoning",
    "event_msg item_completed Sleep",
    "event_msg item_completed SubAgentActivity",
    "event_msg item_completed UserMessage",
    "event_msg item_completed WebSearch",
    "event_msg mcp_tool_call_end",
    "event_msg patch_apply_end",
    "event_msg task_complete",
    "event_msg task_started",
    "event_msg thread_goal_updated",
    "event_msg thread_name_updated",
    "event_msg thread_rolled_back",
    "event_msg thread_settings_applied",
    "event_msg token_count",
    "event_msg turn_aborted",
    "event_msg user_message",
    "event_msg web_search_end",
    "inter_agent_communication",
    "response_item additional_tools",
    "response_item agent_message",
    "response_item compaction",
    "response_item context_compaction",
    "response_item custom_tool_call",
    "response_item custom_tool_call_output",
    "response_item function_call",
    "response_item function_call_output",
    "response_item ghost_snapshot",
    "response_item image_generation_call",
    "response_item local_shell_call",
    "response_item local_shell_call_output",
    "response_item message",
    "response_item reasoning",
    "response_item tool_search_call",
    "response_item tool_search_output",
    "response_item web_search_call",
    "session_meta",
    "token_usage_record",
    "turn_context",
    "world_state",
];

/// The maximum age of a session's head relative to its line, in microseconds. An older head may have been copied from the
/// session from which this one was forked; or the user took that long to write the first prompt, with which the file begins.
const HEAD_AGE: i64 = 60_000_000;

/// A line of a rollout.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    timestamp: Raw<'a>,
    #[serde(borrow)]
    payload: Raw<'a>,
}

/// The payload of a line.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    timestamp: Raw<'a>,
    #[serde(borrow)]
    cwd: Raw<'a>,
    #[serde(borrow)]
    turn_id: Raw<'a>,
    #[serde(borrow)]
    call_id: Raw<'a>,
    #[serde(borrow)]
    namespace: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    arguments: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
    #[serde(borrow)]
    action: Raw<'a>,
    #[serde(borrow)]
    output: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
    #[serde(borrow)]
    item: Raw<'a>,
    #[serde(borrow)]
    cli_version: Raw<'a>,
    #[serde(borrow)]
    source: Raw<'a>,
}

/// Returns the kind of a line.
fn kind_of_line(line: &str) -> LineKind {
    let line: Line<'_> = json::object(line).unwrap_or_default();
    let payload: Payload<'_> = json::member(line.payload).unwrap_or_default();
    let item: Payload<'_> = json::member(payload.item).unwrap_or_default();
    // In some lines, a member with the same name is not a type.
    let is_named = matches!(json::text(line.kind).as_deref(), Some("event_msg" | "response_item"));
    let inner = [payload.kind, item.kind].into_iter().filter(|_| is_named);
    let names: Vec<_> = [line.kind].into_iter().chain(inner).filter_map(json::name).collect();
    let kind = Some(names.join(" ")).filter(|kind| !kind.is_empty());
    LineKind { kind, version: json::name(payload.cli_version) }
}

/// Reads the payload of a hook. Returns none if the text is not one.
fn parse_hook(body: &str, tools: &ToolPatterns) -> Option<Entry> {
    hook::parse(body, tools, answer)
}

/// Reads a line of a rollout.
fn parse_line(line: &str, tools: &ToolPatterns) -> Result<Entry, NotAnObject> {
    let line: Line<'_> = json::object(line)?;
    let payload: Payload<'_> = json::member(line.payload).unwrap_or_default();
    let at: Option<Timestamp> = json::text(line.timestamp).and_then(|at| at.parse().ok());
    let mut entry = Entry { at, ..Entry::default() };
    match json::text(line.kind).as_deref() {
        Some("session_meta") => {
            let begun: Option<Timestamp> = json::text(payload.timestamp).and_then(|at| at.parse().ok());
            let age = at.zip(begun).map(|(at, begun)| at.micros() - begun.micros());
            entry.may_be_copied = age.is_some_and(|age| age >= HEAD_AGE);
            entry.session = json::name(payload.id);
            entry.root = json::name(payload.cwd);
            entry.agent = subagent(payload.source);
            entry.is_head = true;
        }
        Some("turn_context") => {
            entry.turn = json::name(payload.turn_id);
            entry.root = json::name(payload.cwd);
        }
        Some("event_msg") => {
            entry.turn = json::name(payload.turn_id);
            entry.activities = match json::text(payload.kind).as_deref() {
                Some("user_message") => {
                    let said = json::beginning(payload.message, prompt::MOST_WRITTEN).unwrap_or_default();
                    entry.prompt = Some(prompt::read(&said)).filter(|said| !said.is_empty());
                    vec![prompt::activity(&said)]
                }
                Some("item_completed") => {
                    entry.prompt = items::prompt(payload.item);
                    items::activities(payload.item, tools, &mut entry.passages)
                }
                Some("task_complete" | "turn_aborted") => vec![Activity::TurnEnd],
                _ => Vec::new(),
            };
        }
        Some("response_item") => {
            entry.activities = item(&payload, tools, &mut entry.passages).into_iter().collect();
        }
        _ => {}
    }
    Ok(entry)
}

/// Returns the kind of subagent that a session is one of, to which only another agent writes. The source of others is a name.
fn subagent(source: Raw<'_>) -> Option<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Source<'a> {
        #[serde(borrow)]
        subagent: Raw<'a>,
    }
    let kind = json::member::<Source<'_>>(source)?.subagent?;
    json::name(Some(kind)).or_else(|| json::members(Some(kind), 1)?.into_iter().next().map(|(kind, _)| kind))
}

fn item(payload: &Payload<'_>, tools: &ToolPatterns, passages: &mut Vec<Passage>) -> Option<Activity> {
    let id = json::name(payload.call_id);
    let used = |actions: Vec<ToolAction>, input: &str, passages: &mut Vec<Passage>| {
        passages.extend(tool::written(id.as_deref(), input, &actions));
        Activity::used(id.clone(), actions)
    };
    let name = json::text(payload.name).unwrap_or_default();
    match &*json::text(payload.kind)? {
        "function_call" => {
            let name = match json::text(payload.namespace) {
                Some(space) if !name.starts_with("mcp__") => format!("{space}__{name}").into(),
                _ => name,
            };
            // The text contains JSON.
            let arguments = json::text(payload.arguments).unwrap_or_default();
            Some(used(tool::actions(&name, &arguments, None, tools), &arguments, passages))
        }
        "custom_tool_call" => {
            let input = json::text(payload.input).unwrap_or_default();
            Some(used(tool::actions(&name, &input, None, tools), &input, passages))
        }
        "local_shell_call" => {
            let action = payload.action.map_or("", |action| action.get());
            Some(Activity::used(id, tool::actions("local_shell", action, None, tools)))
        }
        "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
            let (ok, output) = answer(payload.output);
            let answered = id.clone().map(PassageSource::Answer);
            passages.extend(answered.and_then(|source| Passage::new(source, json::texts(payload.output))));
            Some(Activity::result(id, ok, output))
        }
        _ => None,
    }
}

/// Reads a tool's result: whether it succeeded, and what it found. The result is a text with a head of its own, JSON
/// with output and status, or content as in MCP.
fn answer(output: Raw<'_>) -> (bool, Option<SearchOutput>) {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Answer<'a> {
        #[serde(borrow)]
        output: Raw<'a>,
        #[serde(borrow)]
        content: Raw<'a>,
        #[serde(borrow)]
        success: Raw<'a>,
        #[serde(borrow)]
        metadata: Raw<'a>,
    }
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Metadata<'a> {
        #[serde(borrow)]
        exit_code: Raw<'a>,
    }
    let text = json::text(output);
    let written = text.as_deref().or(output.map(RawValue::get)).unwrap_or("");
    if let Ok(answer) = json::object::<Answer<'_>>(written)
        && let Some(body) = answer.output.or(answer.content)
    {
        let status = json::member::<Metadata<'_>>(answer.metadata).and_then(|metadata| metadata.exit_code);
        let failed = status.is_some_and(|status| status.get() != "0")
            || answer.success.is_some_and(|ok| ok.get() == "false");
        return (!failed, search_output::read(Some(body)));
    }
    let Some((head, body)) = written.split_once("\nOutput:\n").filter(|(head, _)| head.len() < 10_000) else {
        let failed =
            ["failed", "exec_command failed", "write_stdin failed", "apply_patch verification failed"];
        let found =
            if text.is_some() { search_output::read_text(written) } else { search_output::read(output) };
        return (!failed.iter().any(|words| written.starts_with(words)), found);
    };
    let found = search_output::read_text(body);
    let status =
        |words| head.split_once(words).map(|(_, rest): (_, &str)| rest.lines().next().unwrap_or("").trim());
    let failed = status("exited with code ").or(status("Exit code: ")).is_some_and(|status| status != "0");
    (!failed, found)
}
