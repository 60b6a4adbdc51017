//! The payloads of hooks. Agents took the names of the fields from Claude Code; an agent's own file says where they differ.

use serde::Deserialize;

use super::entry::{Activity, Entry};
use super::json::{self, Raw};
use super::search_output::SearchOutput;
use super::tool::{self, ToolPatterns};

/// The payload of a hook.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hook<'a> {
    #[serde(borrow)]
    hook_event_name: Raw<'a>,
    #[serde(borrow)]
    session_id: Raw<'a>,
    #[serde(borrow)]
    agent_id: Raw<'a>,
    #[serde(borrow)]
    prompt_id: Raw<'a>,
    #[serde(borrow)]
    turn_id: Raw<'a>,
    #[serde(borrow)]
    cwd: Raw<'a>,
    #[serde(borrow)]
    prompt: Raw<'a>,
    #[serde(borrow)]
    tool_name: Raw<'a>,
    #[serde(borrow)]
    tool_input: Raw<'a>,
    #[serde(borrow)]
    tool_use_id: Raw<'a>,
    #[serde(borrow)]
    tool_response: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// In what the payloads of an agent's hooks differ from those of others.
pub(super) struct Dialect {
    /// Reads what a tool has answered: whether it worked, and what it found.
    pub(super) answer: fn(Raw<'_>) -> (bool, Option<SearchOutput>),
    /// Whether a person has written a prompt.
    pub(super) is_said: fn(&str) -> bool,
}

/// Reads the payload of a hook; none if the text is not one.
pub(super) fn parse(body: &str, tools: &ToolPatterns, dialect: &Dialect) -> Option<Entry> {
    let hook: Hook<'_> = json::object(body).ok()?;
    let root = json::name(hook.cwd);
    let used = |worked: bool, answer: Raw<'_>| {
        let name = json::text(hook.tool_name).unwrap_or_default();
        let input = hook.tool_input.map_or("", |input| input.get());
        let id = json::name(hook.tool_use_id);
        let actions = tool::actions(&name, input, root.as_deref(), tools);
        let (ok, output) = (dialect.answer)(answer);
        vec![Activity::ToolUse { id: id.clone(), actions }, Activity::result(id, worked && ok, output)]
    };
    let is_said = |prompt: &str| (dialect.is_said)(prompt.trim());
    let activities = match &*json::text(hook.hook_event_name)? {
        "UserPromptSubmit" if json::text(hook.prompt).is_none_or(|prompt| is_said(&prompt)) => {
            vec![Activity::Prompt]
        }
        "PostToolUse" => used(true, hook.tool_response),
        "PostToolUseFailure" => used(false, hook.error),
        "Stop" | "StopFailure" | "SubagentStop" => vec![Activity::TurnEnd],
        "SessionEnd" => vec![Activity::SessionEnd],
        _ => Vec::new(),
    };
    let turn = json::name(hook.prompt_id.or(hook.turn_id));
    let (session, agent) = (json::name(hook.session_id), json::name(hook.agent_id));
    Some(Entry { at: None, session, agent, turn, root, activities })
}
