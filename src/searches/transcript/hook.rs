//! What hooks are given. Agents took the names of its fields from Claude Code; they differ in what a tool has answered.

use serde::Deserialize;

use super::json::{self, Raw};
use super::{Agent, Entry, Event, ToolPatterns, claude_code, codex, found, tool};

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

/// Reads a payload.
pub(super) fn parse(agent: Agent, body: &str, tools: &ToolPatterns) -> Option<Entry> {
    let hook: Hook<'_> = json::object(body).ok()?;
    let root = json::name(hook.cwd);
    let used = |worked: bool, answer: Raw<'_>| {
        let name = json::text(hook.tool_name).unwrap_or_default();
        let input = hook.tool_input.map_or("", |input| input.get());
        let id = json::name(hook.tool_use_id);
        let actions = tool::actions(&name, input, root.as_deref(), tools);
        let (ok, found) = match agent {
            Agent::ClaudeCode => (true, found::found(answer)),
            Agent::Codex => codex::answer(answer),
        };
        vec![Event::ToolUse { id: id.clone(), actions }, Event::answer(id, worked && ok, found)]
    };
    let is_said = |prompt: &str| claude_code::is_said(prompt.trim());
    let events = match &*json::text(hook.hook_event_name)? {
        "UserPromptSubmit" if json::text(hook.prompt).is_none_or(|prompt| is_said(&prompt)) => {
            vec![Event::Prompt]
        }
        "PostToolUse" => used(true, hook.tool_response),
        "PostToolUseFailure" => used(false, hook.error),
        "Stop" | "StopFailure" | "SubagentStop" => vec![Event::TurnEnd],
        "SessionEnd" => vec![Event::SessionEnd],
        _ => Vec::new(),
    };
    let turn = json::name(hook.prompt_id.or(hook.turn_id));
    let (session, agent) = (json::name(hook.session_id), json::name(hook.agent_id));
    Some(Entry { at: None, session, agent, turn, root, events })
}
