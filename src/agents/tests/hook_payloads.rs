use chrono::TimeDelta;
use serde_json::{Value, json};

use super::*;

#[test]
fn a_hook_says_what_a_transcript_would() {
    let hook = |body: Value| {
        (claude_code::AGENT.parse_hook)(&body.to_string(), &ToolPatterns::default())
            .expect("a hook's payload")
    };
    let common =
        |name: &str| json!({"hook_event_name": name, "session_id": "s", "prompt_id": "p", "cwd": "/w"});
    for (name, expected) in [
        ("UserPromptSubmit", vec![Activity::Prompt]),
        ("Stop", vec![Activity::TurnEnd]),
        ("SessionEnd", vec![Activity::SessionEnd]),
        ("PreToolUse", vec![Activity::ToolUse { id: None, actions: vec![] }]),
        ("OfTomorrow", vec![]),
    ] {
        let [session, turn, root] = ["s", "p", "/w"].map(|text| Some(text.to_owned()));
        assert_eq!(
            hook(common(name)),
            Entry {
                session,
                turn,
                root,
                activities: expected,
                event: Some(name.to_owned()),
                ..Entry::default()
            },
            "{name}"
        );
    }
    let mut used = common("PostToolUse");
    used["tool_name"] = json!("Bash");
    used["tool_input"] = json!({"command": "grep -rn login src"});
    used["tool_response"] = json!({"stdout": "", "stderr": "", "interrupted": false});
    used["tool_use_id"] = json!("t1");
    let id = Some("t1".to_owned());
    let search = ToolAction::Search {
        tool: SearchTool::Grep,
        query: "login".to_owned(),
        path: Some("/w/src".to_owned()),
    };
    assert_eq!(
        hook(used).activities,
        [
            Activity::ToolUse { id: id.clone(), actions: vec![search] },
            Activity::ToolResult { id: id.clone(), ok: true, output: Some(nothing()) },
        ]
    );
    let mut slow = common("PostToolUse");
    slow["tool_name"] = json!("Bash");
    for (milliseconds, expected) in [
        (json!(61_250), Some(TimeDelta::milliseconds(61_250))),
        (json!(0.5), Some(TimeDelta::zero())),
        (json!(-1), None),
        (json!(1e300), None),
        (json!("38"), None),
    ] {
        slow["duration_ms"] = milliseconds;
        assert_eq!(hook(slow.clone()).lasted, expected, "{slow}");
    }
    let mut objected = common("UserPromptSubmit");
    objected["prompt"] = json!("no, the other file");
    assert_eq!(hook(objected.clone()).activities, [Activity::Correction]);
    assert_eq!(hook(objected.clone()).prompt.as_deref(), Some("no, the other file"));
    objected["prompt"] = json!("<task-notification>done</task-notification>");
    assert_eq!((hook(objected.clone()).activities, hook(objected).prompt), (vec![], None));
    let mut stopped = common("Stop");
    stopped["last_assistant_message"] = json!("Done: see MAX_SKEW.");
    assert_eq!(hook(stopped).written.as_deref(), Some("Done: see MAX_SKEW."));
    let mut failed = common("PostToolUseFailure");
    failed["tool_name"] = json!("Read");
    failed["tool_input"] = json!({"file_path": "/nope"});
    failed["error"] = json!("File does not exist.");
    failed["tool_use_id"] = json!("t1");
    assert_eq!(
        hook(failed).activities,
        [
            Activity::ToolUse {
                id: id.clone(),
                actions: vec![ToolAction::Read { path: "/nope".to_owned() }]
            },
            Activity::ToolResult { id, ok: false, output: None },
        ]
    );
    let mut searched = common("PostToolUse");
    searched["tool_name"] = json!("mcp__code__search");
    searched["tool_input"] = json!({"query": "login"});
    searched["tool_response"] = json!([{"type": "text", "text": "[{\"path\": \"a\", \"score\": 0.9}]"}]);
    let found = SearchOutput { best_score: Some(0.9), count: Some(1), hits: vec![hit("a", 0.9)] };
    assert_eq!(
        hook(searched).activities.pop(),
        Some(Activity::ToolResult { id: None, ok: true, output: Some(found) })
    );
    assert_eq!((claude_code::AGENT.parse_hook)("{}", &ToolPatterns::default()), None);
    assert_eq!((claude_code::AGENT.parse_hook)("[]", &ToolPatterns::default()), None);
}

#[test]
fn hooks_of_codex_answer_with_a_text() {
    let body = json!({
        "hook_event_name": "PostToolUse", "session_id": "s", "turn_id": "t", "cwd": "/w", "tool_name": "Bash",
        "tool_input": {"command": "rg login"}, "tool_use_id": "c", "tool_response": "",
    });
    let entry =
        (codex::AGENT.parse_hook)(&body.to_string(), &ToolPatterns::default()).expect("a hook's payload");
    assert_eq!(entry.turn.as_deref(), Some("t"));
    let search =
        ToolAction::Search { tool: SearchTool::Grep, query: "login".to_owned(), path: Some("/w".to_owned()) };
    let id = Some("c".to_owned());
    assert_eq!(
        entry.activities,
        [
            Activity::ToolUse { id: id.clone(), actions: vec![search] },
            Activity::ToolResult { id, ok: true, output: Some(nothing()) },
        ]
    );
}
