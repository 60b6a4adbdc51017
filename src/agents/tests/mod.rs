mod claude_code_lines;
mod codex_lines;
mod hook_payloads;
mod odd_input;
mod tool_results;
mod tool_uses;

use serde_json::{Value, json};

use super::*;

fn read(agent: &Agent, line: &Value) -> Entry {
    (agent.parse_line)(&line.to_string(), &ToolPatterns::default()).expect("a line of a transcript")
}

fn claude(line: &Value) -> Entry {
    read(&claude_code::AGENT, line)
}

fn codex(line: &Value) -> Vec<Activity> {
    read(&codex::AGENT, line).activities
}

fn user(content: &Value) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content}})
}

fn assistant(blocks: &Value) -> Value {
    json!({"type": "assistant", "message": {"role": "assistant", "content": blocks, "stop_reason": null}})
}

/// The actions of a use of the tool `name`.
fn does(name: &str, input: &Value) -> Vec<ToolAction> {
    let line = assistant(&json!([{"type": "tool_use", "id": "t1", "name": name, "input": input}]));
    match claude(&line).activities.pop() {
        Some(Activity::ToolUse { actions, .. }) => actions,
        other => panic!("{other:?}"),
    }
}

/// What a result with this content says: whether it worked, and what it found.
fn answers(content: &Value, error: bool) -> (bool, Option<SearchOutput>) {
    let block = json!({"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": error});
    match claude(&user(&json!([block]))).activities.pop() {
        Some(Activity::ToolResult { ok, output, .. }) => (ok, output),
        other => panic!("{other:?}"),
    }
}

fn nothing() -> SearchOutput {
    SearchOutput { count: Some(0), ..SearchOutput::default() }
}

fn hit(path: &str, score: f64) -> SearchHit {
    SearchHit { path: path.to_owned(), score: Some(score) }
}

fn passages(entry: Entry) -> Vec<(PassageSource, String)> {
    entry.passages.into_iter().map(|passage| (passage.source, passage.text)).collect()
}

/// An item that Codex says is completed.
fn item(item: &Value) -> Value {
    json!({"timestamp": "2026-03-01T10:00:05.000Z", "ordinal": 7, "type": "event_msg", "payload": {
        "type": "item_completed", "thread_id": "s", "turn_id": "t", "item": item, "completed_at_ms": 1}})
}

/// The number of bytes of all actions of an entry.
fn size_of_actions(entry: &Entry) -> usize {
    let actions = entry.activities.iter().filter_map(|activity| match activity {
        Activity::ToolUse { actions, .. } => Some(actions),
        _ => None,
    });
    actions.flatten().map(ToolAction::size).sum()
}

#[test]
fn the_writer_of_a_transcript_is_told_by_the_name_of_the_file() {
    for (path, expected) in [
        ("/home/a/.codex/sessions/2026/03/01/rollout-2026-03-01T10-00-00-0b5c.jsonl", "codex"),
        ("/home/a/.claude/projects/-srv-app/0b5c.jsonl", "claude-code"),
        ("/home/a/rollout-of-a-name/0b5c.jsonl", "claude-code"),
    ] {
        assert_eq!(of_transcript(Path::new(path)).map(|agent| agent.name), Some(expected), "{path}");
    }
}

#[test]
fn the_kind_of_a_line_and_the_version_that_wrote_it_are_told() {
    let kind = |agent: &Agent, line: Value| {
        let LineKind { kind, version } = (agent.kind_of_line)(&line.to_string());
        (kind.unwrap_or_default(), version.unwrap_or_default())
    };
    let told = |kind: &str, version: &str| (kind.to_owned(), version.to_owned());
    let line = json!({"type": "user", "version": "2.1.39", "message": {"type": "message", "version": "9"}});
    assert_eq!(kind(&claude_code::AGENT, line), told("user", "2.1.39"));
    let head = json!({"type": "session_meta", "payload": {"type": "x", "cli_version": "0.169.0"}});
    assert_eq!(kind(&codex::AGENT, head), told("session_meta", "0.169.0"));
    let done = item(&json!({"type": "CommandExecution"}));
    assert_eq!(kind(&codex::AGENT, done), told("event_msg item_completed CommandExecution", ""));
    let call = json!({"type": "response_item", "payload": {"type": "function_call"}});
    assert_eq!(kind(&codex::AGENT, call), told("response_item function_call", ""));
    assert_eq!((codex::AGENT.kind_of_line)("no JSON"), LineKind::default());
}

#[test]
fn what_is_said_written_and_answered_is_told_of_with_its_call() {
    let (id, text) = (|| "t1".to_owned(), |text: &str| text.to_owned());
    let edit = json!({"file_path": "/a.rs", "old_string": "one()", "new_string": "two()"});
    let image = json!({"type": "image", "source": {"type": "base64", "data": "A".repeat(5_000)}});
    let answer = json!([{"type": "text", "text": "src/a.rs:1"}, image]);
    let result = json!([{"type": "tool_result", "tool_use_id": "t1", "content": answer}]);
    for (line, source, has, has_not) in [
        (
            assistant(&json!([{"type": "tool_use", "id": "t1", "name": "Edit", "input": edit}])),
            PassageSource::Written(id()),
            "one()\ntwo()",
            "/a.rs",
        ),
        (user(&result), PassageSource::Answer(id()), "src/a.rs:1", "AAAA"),
    ] {
        let told = passages(claude(&line));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0 == source && told[0].1.contains(has) && !told[0].1.contains(has_not), "{told:?}");
    }
    let nothing = json!([{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a.rs"}}]);
    assert_eq!(passages(claude(&assistant(&nothing))), []);
    let long = json!([{"type": "tool_result", "tool_use_id": "t1", "content": "ä ".repeat(100_000)}]);
    let long = passages(claude(&user(&long)));
    assert!((60_000..=65_536).contains(&long[0].1.len()));

    let hook = json!({"hook_event_name": "PostToolUse", "tool_name": "Read", "tool_use_id": "t1",
        "tool_input": {"file_path": "/a.rs"}, "tool_response": {"type": "text", "file": {"content": "fn one() {}"}}});
    let told = (claude_code::AGENT.parse_hook)(&hook.to_string(), &ToolPatterns::default());
    let told = passages(told.expect("a hook's payload"));
    assert_eq!(told[0].0, PassageSource::Answer(id()));
    assert!(told[0].1.contains("fn one() {}"), "{told:?}");

    let item = |payload: &Value| {
        passages(read(&codex::AGENT, &json!({"type": "response_item", "payload": payload})))
    };
    let patch = "*** Begin Patch\n*** Update File: a.rs\n+two()\n*** End Patch";
    let call = json!({"type": "custom_tool_call", "call_id": "t1", "name": "apply_patch", "input": patch});
    assert_eq!(item(&call), [(PassageSource::Written(id()), text(patch))]);
    let output = json!({"type": "function_call_output", "call_id": "t1", "output": "src/a.rs"});
    assert_eq!(item(&output), [(PassageSource::Answer(id()), text("src/a.rs"))]);
}
