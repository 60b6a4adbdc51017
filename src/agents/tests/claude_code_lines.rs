use serde_json::{Value, json};

use super::*;

#[test]
fn a_line_says_when_where_and_who() {
    let line = json!({
        "type": "assistant", "timestamp": "2026-03-01T10:00:00.250Z", "sessionId": "s", "promptId": "p", "agentId": "a",
        "cwd": "/srv/app", "isSidechain": true, "gitBranch": "main", "version": "2.1.0",
        "message": {"id": "m", "role": "assistant", "stop_reason": "tool_use", "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "src/a.rs", "limit": 10}},
            {"type": "tool_use", "id": "t2", "name": "TodoWrite", "input": {"todos": []}},
        ]},
    });
    let read = vec![ToolAction::Read { path: "/srv/app/src/a.rs".to_owned() }];
    assert_eq!(
        claude(&line),
        Entry {
            at: Some("2026-03-01T10:00:00.250Z".parse().expect("a time")),
            session: Some("s".to_owned()),
            agent: Some("a".to_owned()),
            turn: Some("p".to_owned()),
            root: Some("/srv/app".to_owned()),
            activities: vec![
                Activity::ToolUse { id: Some("t1".to_owned()), actions: read },
                Activity::ToolUse { id: Some("t2".to_owned()), actions: Vec::new() },
            ],
            ..Entry::default()
        }
    );
}

#[test]
fn a_prompt_is_what_a_person_says() {
    for content in [
        json!("find the login button"),
        json!([{"type": "text", "text": "find it"}]),
        json!([{"type": "text", "text": "<ide_opened_file>a.rs</ide_opened_file>"}, {"type": "text", "text": "find it"}]),
        json!([{"type": "image", "source": {}}]),
        json!("<command-name>/review</command-name>"),
        json!("<command-message>review</command-message>\n<command-name>/review</command-name>"),
        json!(["find it"]),
    ] {
        assert_eq!(claude(&user(&content)).activities, [Activity::Prompt], "{content}");
    }
}

#[test]
fn what_a_person_sends_while_the_agent_works_is_a_prompt_but_begins_no_turn() {
    let queued = |attachment: Value| {
        let line = json!({"type": "attachment", "sessionId": "s", "attachment": attachment});
        let entry = claude(&line);
        (entry.prompt, entry.activities)
    };
    let (text, blocks) = (json!("find it"), json!([{"type": "text", "text": "find it"}, {"type": "image"}]));
    for attachment in [
        json!({"type": "queued_command", "prompt": text}),
        json!({"type": "queued_command", "prompt": text, "commandMode": "prompt", "origin": {"kind": "human"}}),
        json!({"type": "queued_command", "prompt": blocks, "commandMode": "prompt"}),
    ] {
        assert_eq!(queued(attachment), (Some("find it".to_owned()), vec![]));
    }
    let corrects = json!({"type": "queued_command", "prompt": "No, the other file."});
    assert_eq!(queued(corrects).1, [Activity::Correction]);
    let task = json!("<task-notification>done</task-notification>");
    for attachment in [
        json!({"type": "queued_command", "prompt": task}),
        json!({"type": "queued_command", "prompt": "done", "commandMode": "task-notification"}),
        json!({"type": "queued_command", "prompt": "go on", "origin": {"kind": "coordinator"}}),
        json!({"type": "todo_reminder", "prompt": text}),
        json!({"type": "queued_command"}),
        json!("find it"),
    ] {
        assert_eq!(queued(attachment), (None, vec![]));
    }
    let line = json!({"type": "attachment", "isSidechain": true, "attachment": {"type": "queued_command", "prompt": text}});
    assert_eq!(claude(&line).activities, []);
}

#[test]
fn what_stands_in_user_lines_but_no_person_says_is_no_prompt() {
    for content in [
        json!(""),
        json!(" \n"),
        json!([]),
        json!(null),
        json!("<local-command-stdout>ok</local-command-stdout>"),
        json!("<bash-input>ls</bash-input>"),
        json!("<bash-stdout>a</bash-stdout>"),
        json!("<task-notification>done</task-notification>"),
        json!("This session is being continued from a previous conversation that ran out of context."),
        json!([{"type": "text", "text": "<system-reminder>x</system-reminder>"}]),
    ] {
        assert_eq!(claude(&user(&content)).activities, [], "{content}");
    }
    for flag in ["isMeta", "isCompactSummary", "isSidechain"] {
        let mut line = user(&json!("find it"));
        line[flag] = json!(true);
        assert_eq!(claude(&line).activities, [], "{flag}");
    }
}

#[test]
fn a_turn_ends_when_the_agent_is_done_or_is_stopped() {
    let mut done = assistant(&json!([{"type": "text", "text": "SearchOutput it."}]));
    done["message"]["stop_reason"] = json!("end_turn");
    let stopped = user(&json!([{"type": "text", "text": "[Request interrupted by user for tool use]"}]));
    let timed = json!({"type": "system", "subtype": "turn_duration", "durationMs": 5});
    for line in [done, stopped, timed] {
        assert_eq!(claude(&line).activities, [Activity::TurnEnd], "{line}");
    }
}

#[test]
fn lines_of_any_other_type_only_show_that_the_agent_is_at_work() {
    for line in [
        json!({"type": "progress", "timestamp": "2026-03-01T10:00:00Z", "data": {"type": "hook_progress"}}),
        json!({"type": "of-tomorrow", "timestamp": "2026-03-01T10:00:00Z"}),
        json!({"timestamp": "2026-03-01T10:00:00Z", "message": "error"}),
    ] {
        let expected = Entry { at: "2026-03-01T10:00:00Z".parse().ok(), ..Entry::default() };
        assert_eq!(claude(&line), expected, "{line}");
    }
}

#[test]
fn a_member_of_another_shape_is_as_good_as_none() {
    for line in [
        json!({"type": 1, "timestamp": [], "sessionId": {}, "cwd": "", "message": 3}),
        json!({"type": "user", "message": "error"}),
        json!({"type": "assistant", "message": {"content": [1, null, "x", {"type": {}}]}}),
        json!({}),
    ] {
        assert_eq!(claude(&line), Entry::default(), "{line}");
    }
    let twice = r#"{"type": "user", "type": "user", "message": {"content": "x"}}"#;
    let surrogate =
        r#"{"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "\ud800"}]}}"#;
    for line in [twice, surrogate] {
        assert!((claude_code::AGENT.parse_line)(line, &ToolPatterns::default()).is_ok(), "{line}");
    }
}
