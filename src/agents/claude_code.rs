//! Claude Code: the lines of `~/.claude/projects/<folder>/<session>.jsonl`.
//!
//! The lines are messages of the API in an envelope, and lines of other types, which change with the version. Nine of
//! ten lines of the type `user` were not written by a person: they contain results of tools, output of commands, and
//! summaries of a compacted context. One message of the API may be divided over several lines, with a block in each.

use serde::Deserialize;

use super::action::Room;
use super::agent::{Agent, Home, HookEvent, Hooks, Reporting, Servers, ServersFormat, Transcripts};
use super::entry::{Activity, Entry, Passage, PassageSource};
use super::hook;
use super::json::{self, NotAnObject, Raw};
use super::known::{Known, LineKind};
use super::prompt;
use super::search_output;
use super::tool::{self, ToolPatterns};

/// Claude Code.
pub(super) static AGENT: Agent = Agent {
    name: "claude-code",
    title: "Claude Code",
    parse_line,
    parse_hook,
    kind_of_line,
    known: Known { version: (2, 1, 330), kinds: &KINDS },
    home: Home { variable: "CLAUDE_CONFIG_DIR", folder: ".claude" },
    // Its files are named after sessions, so that it has all files without the prefix of another agent.
    transcripts: Transcripts { folder: "projects", prefix: "" },
    hooks: Hooks {
        settings: "settings.json",
        events: &[
            HookEvent::plain("UserPromptSubmit"),
            HookEvent::of_tools("PreToolUse"),
            HookEvent::of_tools("PostToolUse"),
            HookEvent::of_tools("PostToolUseFailure"),
            HookEvent::plain("Stop"),
            HookEvent::plain("SubagentStop"),
            HookEvent::plain("SessionEnd"),
        ],
        answerable: &["UserPromptSubmit", "PostToolUse", "PostToolUseFailure"],
        reporting: Reporting::Request,
        timeout: 1,
        advice: None,
    },
    servers: Servers {
        home: Home { variable: "CLAUDE_CONFIG_DIR", folder: "" },
        file: ".claude.json",
        of_project: ".mcp.json",
        format: ServersFormat::Json,
    },
};

/// The known types of lines. All except messages only show that the agent is at work.
const KINDS: [&str; 27] = [
    "agent-color",
    "agent-name",
    "agent-setting",
    "ai-title",
    "api-request",
    "api-request-blob",
    "api-request-shape",
    "assistant",
    "atis-latch",
    "attachment",
    "attribution-snapshot",
    "content-replacement",
    "cost-state",
    "custom-title",
    "file-history-snapshot",
    "last-prompt",
    "mode",
    "permission-mode",
    "pr-link",
    "progress",
    "queue-operation",
    "summary",
    "system",
    "tag",
    "tools-used",
    "user",
    "worktree-state",
];

/// The members of structured results that contain what was found.
const STRUCTURES: [&str; 2] = ["\"filenames\"", "\"structuredContent\""];

/// A line of a transcript.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    subtype: Raw<'a>,
    #[serde(borrow)]
    timestamp: Raw<'a>,
    #[serde(borrow)]
    session_id: Raw<'a>,
    #[serde(borrow)]
    agent_id: Raw<'a>,
    #[serde(borrow)]
    prompt_id: Raw<'a>,
    #[serde(borrow)]
    cwd: Raw<'a>,
    #[serde(borrow)]
    is_sidechain: Raw<'a>,
    #[serde(borrow)]
    is_meta: Raw<'a>,
    #[serde(borrow)]
    is_compact_summary: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
    #[serde(borrow)]
    attachment: Raw<'a>,
    #[serde(borrow)]
    tool_use_result: Raw<'a>,
    #[serde(borrow)]
    mcp_meta: Raw<'a>,
}

/// A message of the API.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
}

/// What an agent has added to the conversation, such as a message that was sent while it worked.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Attachment<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    prompt: Raw<'a>,
    #[serde(borrow)]
    command_mode: Raw<'a>,
    #[serde(borrow)]
    origin: Raw<'a>,
}

/// Who has sent a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Origin<'a> {
    #[serde(borrow)]
    kind: Raw<'a>,
}

/// A part of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
    #[serde(borrow)]
    tool_use_id: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    is_error: Raw<'a>,
}

/// Reads the payload of a hook. Returns none if the text is not one.
fn parse_hook(body: &str, tools: &ToolPatterns) -> Option<Entry> {
    hook::parse(body, tools, |answer| (true, search_output::read(answer)))
}

/// Returns the kind of a line.
fn kind_of_line(line: &str) -> LineKind {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Line<'a> {
        #[serde(borrow, rename = "type")]
        kind: Raw<'a>,
        #[serde(borrow)]
        version: Raw<'a>,
    }
    let line: Line<'_> = json::object(line).unwrap_or_default();
    LineKind { kind: json::name(line.kind), version: json::name(line.version) }
}

/// Reads a line of a transcript.
fn parse_line(line: &str, tools: &ToolPatterns) -> Result<Entry, NotAnObject> {
    let length = line.len();
    let line: Line<'_> = json::object(line)?;
    let sidechain = json::is_true(line.is_sidechain);
    let root = json::name(line.cwd);
    let message: Message<'_> = json::member(line.message).unwrap_or_default();
    let (mut passages, mut prompt) = (Vec::new(), None);
    let activities = match json::text(line.kind).as_deref() {
        Some("assistant") => said_by_agent(&message, root.as_deref(), tools, Room::of(length), &mut passages),
        Some("user") => said_to_agent(&line, &message, sidechain, &mut prompt, &mut passages),
        Some("attachment") if !sidechain => sent_meanwhile(line.attachment, &mut prompt),
        Some("system") if json::text(line.subtype).as_deref() == Some("turn_duration") => {
            vec![Activity::TurnEnd]
        }
        _ => Vec::new(),
    };
    Ok(Entry {
        at: json::text(line.timestamp).and_then(|at| at.parse().ok()),
        session: json::name(line.session_id),
        // Older versions wrote the lines of subagents into the session's own file, without a name.
        agent: json::name(line.agent_id).or_else(|| sidechain.then(|| "sidechain".to_owned())),
        turn: json::name(line.prompt_id),
        root,
        activities,
        passages,
        prompt,
        ..Entry::default()
    })
}

fn said_by_agent(
    message: &Message<'_>,
    root: Option<&str>,
    tools: &ToolPatterns,
    mut memory: Room,
    passages: &mut Vec<Passage>,
) -> Vec<Activity> {
    let mut activities = Vec::new();
    for block in json::elements(message.content).unwrap_or_default() {
        let Some(block) = json::member::<Block<'_>>(Some(block)) else { continue };
        if json::text(block.kind).as_deref() == Some("tool_use") {
            let name = json::text(block.name).unwrap_or_default();
            let input = block.input.map_or("", |input| input.get());
            let (id, actions) =
                (json::name(block.id), memory.first(tool::actions(&name, input, root, tools)));
            passages.extend(tool::written(id.as_deref(), input, &actions));
            activities.push(Activity::used(id, actions));
        }
    }
    if json::text(message.stop_reason).as_deref() == Some("end_turn") {
        activities.push(Activity::TurnEnd);
    }
    activities
}

/// Reads a user message. A text that a person has written is put into `prompt`.
fn said_to_agent(
    line: &Line<'_>,
    message: &Message<'_>,
    sidechain: bool,
    prompt: &mut Option<String>,
    passages: &mut Vec<Passage>,
) -> Vec<Activity> {
    let elements = json::elements(message.content).unwrap_or_default();
    let blocks: Vec<Block<'_>> = elements.iter().filter_map(|block| json::member(Some(block))).collect();
    let kind_is = |block: &Block<'_>, kind| json::text(block.kind).as_deref() == Some(kind);
    let results: Vec<_> = blocks.iter().filter(|block| kind_is(block, "tool_result")).collect();
    if !results.is_empty() {
        passages.extend(results.iter().filter_map(|block| {
            Passage::new(PassageSource::Answer(json::name(block.tool_use_id)?), json::texts(block.content))
        }));
        // The same result as a structure, which may contain more: names of files, or the structured content of an MCP
        // server. Of several results, nobody knows which one it is.
        let structures = if results.len() == 1 { [line.mcp_meta, line.tool_use_result] } else { [None; 2] };
        return results.iter().map(|block| tool_result(block, structures)).collect();
    }
    if sidechain || json::is_true(line.is_meta) || json::is_true(line.is_compact_summary) {
        return Vec::new();
    }
    prompted(message.content, prompt)
}

/// Reads an attachment with what a person has sent while the agent worked. That is on no line of its own. What the agent has
/// sent itself, such as the result of a task in the background, is attached in the same way.
fn sent_meanwhile(attachment: Raw<'_>, prompt: &mut Option<String>) -> Vec<Activity> {
    let attachment: Attachment<'_> = json::member(attachment).unwrap_or_default();
    let origin: Origin<'_> = json::member(attachment.origin).unwrap_or_default();
    let is = |raw, name| json::text(raw).as_deref() == Some(name);
    let is_said = is(attachment.kind, "queued_command")
        && (attachment.command_mode.is_none() || is(attachment.command_mode, "prompt"))
        && (origin.kind.is_none() || is(origin.kind, "human"));
    let activities = if is_said { prompted(attachment.prompt, prompt) } else { Vec::new() };
    // The turn goes on, unless the person objects to what was found.
    activities.into_iter().filter(|activity| *activity == Activity::Correction).collect()
}

/// Reads the content of a message from outside the agent. A text that a person has written is put into `prompt`.
fn prompted(content: Raw<'_>, prompt: &mut Option<String>) -> Vec<Activity> {
    let elements = json::elements(content).unwrap_or_default();
    let blocks: Vec<Block<'_>> = elements.iter().filter_map(|block| json::member(Some(block))).collect();
    // A text may be in a block, in the list of blocks, or in place of the list.
    let bare = elements.iter().copied().map(Some).chain([content]);
    let texts = blocks.iter().map(|block| block.text).chain(bare);
    for text in texts.filter_map(|text| json::beginning(text, prompt::MOST_WRITTEN)) {
        let text = text.trim();
        if text.starts_with(prompt::INTERRUPTED) {
            return vec![Activity::TurnEnd];
        }
        if let Some(said) = prompt::said_in(text) {
            *prompt = Some(prompt::read(said));
            return vec![prompt::activity(said)];
        }
    }
    let shows = |block: &Block<'_>| matches!(json::text(block.kind).as_deref(), Some("image" | "document"));
    if blocks.iter().any(shows) { vec![Activity::Prompt] } else { Vec::new() }
}

fn tool_result(block: &Block<'_>, structures: [Raw<'_>; 2]) -> Activity {
    let output = search_output::read(block.content).or_else(|| {
        let says =
            |raw: &Raw<'_>| raw.is_some_and(|raw| STRUCTURES.iter().any(|member| raw.get().contains(member)));
        structures.into_iter().filter(says).find_map(search_output::read)
    });
    Activity::result(json::name(block.tool_use_id), !json::is_true(block.is_error), output)
}
