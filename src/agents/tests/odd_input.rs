use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn a_line_that_is_no_object_is_bad() {
    for agent in ALL {
        for line in ["", "42", "[1]", "\"text\"", "null", "{", r#"{"type": "user""#, "{} {}", "{\"a\": nope}"]
        {
            assert_eq!((agent.parse_line)(line, &ToolPatterns::default()), Err(NotAnObject), "{line}");
        }
    }
}

#[test]
fn of_very_many_actions_the_first_are_read() {
    let command = format!("cat {}", "a ".repeat(1_000));
    let block =
        |number| json!({"type": "tool_use", "id": number, "name": "Bash", "input": {"command": command}});
    let line = assistant(&(0..2_000).map(block).collect());
    let size = size_of_actions(&claude(&line));
    assert!((1_000 * 1_000..line.to_string().len() * 10).contains(&size), "{size}");
    let block =
        |number| json!({"type": "tool_use", "id": number, "name": "Read", "input": {"file_path": "a"}});
    let mut line = assistant(&(0..1_000).map(block).collect());
    line["cwd"] = json!("/x".repeat(2_000));
    let size = size_of_actions(&claude(&line));
    assert!((100_000..line.to_string().len() * 10).contains(&size), "{size}");
    let changes: Value = (0..100_000).map(|number| (format!("/f{number}"), json!({}))).collect();
    let line = item(&json!({"type": "FileChange", "id": "c", "status": "completed", "changes": changes}));
    let entry = (codex::AGENT.parse_line)(&line.to_string(), &ToolPatterns::default()).expect("a line");
    let size = size_of_actions(&entry);
    assert!((30_000..=32 << 10).contains(&size), "{size}");
}

#[test]
fn no_text_of_an_entry_has_a_zero_byte() {
    let path = |entry: Entry| match entry.activities.into_iter().next() {
        Some(Activity::ToolUse { actions, .. }) => match actions.into_iter().next() {
            Some(ToolAction::Read { path } | ToolAction::Edit { path }) => path,
            other => panic!("{other:?}"),
        },
        Some(Activity::ToolResult { output: Some(output), .. }) => output.hits[0].path.clone(),
        other => panic!("{other:?}"),
    };
    let parsed = |agent: &Agent, line: &Value| {
        (agent.parse_line)(&line.to_string(), &ToolPatterns::default()).expect("a line")
    };
    let arguments = json!({"file_path": "a\0b"}).to_string();
    let call = json!({"type": "function_call", "name": "read_file", "call_id": "c", "arguments": arguments});
    let call = json!({"type": "response_item", "payload": call});
    assert_eq!(path(parsed(&codex::AGENT, &call)), "a\u{fffd}b");
    let command = json!({"type": "CommandExecution", "id": "c", "command": "cat x", "cwd": "file:///a%00b"});
    assert_eq!(path(parsed(&codex::AGENT, &item(&command))), "/a\u{fffd}b/x");
    let change = json!({"type": "FileChange", "id": "c", "changes": {"a\0b": {"type": "update"}}});
    assert_eq!(path(parsed(&codex::AGENT, &item(&change))), "a\u{fffd}b");
    let found = json!({"results": [{"path": "a\0b"}]}).to_string();
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": found});
    assert_eq!(path(parsed(&claude_code::AGENT, &user(&json!([result])))), "a\u{fffd}b");
}

#[test]
fn no_nesting_is_too_deep() {
    for (open, close) in [("[", "]"), ("{\"text\":[", "]}"), ("{\"results\":[", "]}"), ("{\"message\":", "}")]
    {
        let nested = format!("{}1{}", open.repeat(20_000), close.repeat(20_000));
        let block = format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{nested}]}}"#);
        let line =
            format!(r#"{{"type":"user","message":{{"content":[{block},{nested}]}},"payload":{nested}}}"#);
        for agent in ALL {
            assert!((agent.parse_line)(&line, &ToolPatterns::default()).is_ok());
        }
    }
}

/// JSON with the words of transcripts in it.
fn line() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "type",
        "user",
        "assistant",
        "message",
        "content",
        "tool_use",
        "tool_result",
        "text",
        "name",
        "Bash",
        "input",
        "command",
        "grep x",
        "payload",
        "output",
        "results",
        "score",
        "response_item",
        "event_msg",
        "item_completed",
        "item",
        "CommandExecution",
        "FileChange",
        "changes",
        "function_call",
        "arguments",
        "hook_event_name",
        "PostToolUse",
        "tool_response",
        "filenames",
        "{\"results\": [{}]}",
        "[",
        "",
    ]);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(6, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..8).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn every_object_is_a_line_and_nothing_else_is(value in line(), cut in 0_usize..200) {
        let text = value.to_string();
        let tools = ToolPatterns::default();
        for agent in ALL {
            prop_assert_eq!((agent.parse_line)(&text, &tools).is_ok(), value.is_object());
            let _ = (agent.parse_hook)(&text, &tools);
            let _ = (agent.kind_of_line)(&text);
            let _ = (agent.parse_line)(&text[..text.floor_char_boundary(cut)], &tools);
        }
    }

    #[test]
    fn no_text_is_too_odd_for_a_line(text in any::<String>()) {
        for agent in ALL {
            let _ = (agent.parse_line)(&text, &ToolPatterns::default());
            let _ = (agent.parse_hook)(&text, &ToolPatterns::default());
        }
    }
}
