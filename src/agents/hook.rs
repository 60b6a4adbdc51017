//! The payloads of hooks. Agents use the field names of Claude Code, and an agent's own file says where it differs.

use chrono::TimeDelta;
use serde::Deserialize;

use super::entry::{Activity, Entry, Passage, PassageSource};
use super::json::{self, Raw};
use super::prompt;
use super::search_output::SearchOutput;
use super::tool::{self, ToolPatterns};
use crate::privacy::cut::beginning;

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
    duration_ms: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    last_assistant_message: Raw<'a>,
}

/// The maximum number of bytes of a text written by an agent that are used.
const LONGEST: usize = 64 << 10;

/// Reads the result of a tool: whether it succeeded, and what it found. Agents write it in different forms.
pub(super) type ReadAnswer = fn(Raw<'_>) -> (bool, Option<SearchOutput>);

/// Reads the payload of a hook. Returns none if the text is not one.
pub(super) fn parse(body: &str, tools: &ToolPatterns, read_answer: ReadAnswer) -> Option<Entry> {
    let hook: Hook<'_> = json::object(body).ok()?;
    let root = json::name(hook.cwd);
    let mut passages = Vec::new();
    let begun = |passages: &mut Vec<Passage>| {
        let name = json::text(hook.tool_name).unwrap_or_default();
        let input = hook.tool_input.map_or("", |input| input.get());
        let actions = tool::actions(&name, input, root.as_deref(), tools);
        let id = json::name(hook.tool_use_id);
        passages.extend(tool::written(id.as_deref(), input, &actions));
        Activity::used(id, actions)
    };
    let used = |worked: bool, answer: Raw<'_>, passages: &mut Vec<Passage>| {
        let (ok, output) = read_answer(answer);
        let id = json::name(hook.tool_use_id);
        let answered = id.clone().map(PassageSource::Answer);
        passages.extend(answered.and_then(|source| Passage::new(source, json::texts(answer))));
        vec![begun(passages), Activity::result(id, worked && ok, output)]
    };
    let event = json::text(hook.hook_event_name)?;
    let mut said = None;
    let activities = match &*event {
        "UserPromptSubmit" => match json::beginning(hook.prompt, prompt::MOST_WRITTEN).as_deref() {
            None => vec![Activity::Prompt],
            Some(text) => {
                said = prompt::said_in(text).map(prompt::read);
                said.as_deref().map(prompt::activity).into_iter().collect()
            }
        },
        // The agent waits until the tool returns.
        "PreToolUse" => vec![begun(&mut passages)],
        "PostToolUse" => used(true, hook.tool_response, &mut passages),
        "PostToolUseFailure" => used(false, hook.error, &mut passages),
        "Stop" | "StopFailure" | "SubagentStop" => vec![Activity::TurnEnd],
        "SessionEnd" => vec![Activity::SessionEnd],
        _ => Vec::new(),
    };
    let turn = json::name(hook.prompt_id.or(hook.turn_id));
    let (session, agent) = (json::name(hook.session_id), json::name(hook.agent_id));
    let lasted = hook.duration_ms.and_then(|milliseconds| milliseconds.get().parse().ok()).and_then(duration);
    let input = hook.tool_input.filter(|_| event.starts_with("PostToolUse"));
    let written = match input {
        Some(input) => Some(beginning(input.get(), LONGEST).to_owned()),
        None => json::beginning(hook.last_assistant_message, 6 * LONGEST)
            .map(|said| beginning(&said, LONGEST).to_owned()),
    };
    let (prompt, event) = (said, Some(event.into_owned()));
    Some(Entry {
        session,
        agent,
        turn,
        root,
        lasted,
        activities,
        passages,
        prompt,
        event,
        written,
        ..Entry::default()
    })
}

/// Returns a duration that a tool may have run, or none if no tool runs for so long.
#[expect(clippy::cast_possible_truncation, reason = "the range was looked at")]
fn duration(milliseconds: f64) -> Option<TimeDelta> {
    const DAY: f64 = 86_400e3;
    (0.0..=DAY).contains(&milliseconds).then(|| TimeDelta::milliseconds(milliseconds as i64))
}
