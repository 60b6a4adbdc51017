use serde_json::{Value, json};

use super::*;

#[test]
fn a_rollout_names_its_session_and_turns_in_lines_of_their_own() {
    let head = json!({
        "timestamp": "2026-03-01T10:00:00.100Z", "type": "session_meta",
        "payload": {"id": "s", "timestamp": "2026-03-01T10:00:00.050Z", "cwd": "/w", "cli_version": "0.140.0"},
    });
    let expected = Entry {
        at: "2026-03-01T10:00:00.100Z".parse().ok(),
        session: Some("s".to_owned()),
        root: Some("/w".to_owned()),
        is_head: true,
        ..Entry::default()
    };
    assert_eq!(read(&codex::AGENT, &head), expected);
    for (source, agent) in [
        (json!("cli"), None),
        (json!({"subagent": "review"}), Some("review")),
        (json!({"subagent": {"thread_spawn": {"depth": 1}}}), Some("thread_spawn")),
    ] {
        let mut head = head.clone();
        head["payload"]["source"] = source;
        assert_eq!(read(&codex::AGENT, &head).agent.as_deref(), agent, "{head}");
    }
    // A session that was forked repeats the head of the one it was forked from.
    let mut copied = head;
    copied["payload"]["timestamp"] = json!("2026-03-01T08:00:00Z");
    assert_eq!(read(&codex::AGENT, &copied), Entry { may_be_copied: true, ..expected });
    let turn = json!({"type": "turn_context", "payload": {"turn_id": "t", "cwd": "/w/sub", "model": "m"}});
    let expected = Entry { turn: Some("t".to_owned()), root: Some("/w/sub".to_owned()), ..Entry::default() };
    assert_eq!(read(&codex::AGENT, &turn), expected);
}

#[test]
fn turns_of_a_rollout_are_told_by_its_events() {
    for (kind, expected) in [
        ("user_message", vec![Activity::Prompt]),
        ("task_complete", vec![Activity::TurnEnd]),
        ("turn_aborted", vec![Activity::TurnEnd]),
        ("token_count", vec![]),
        ("exec_command_end", vec![]),
    ] {
        assert_eq!(codex(&json!({"type": "event_msg", "payload": {"type": kind}})), expected, "{kind}");
    }
    let message =
        json!({"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}});
    assert_eq!(codex(&message), []);
}

#[test]
fn calls_of_a_rollout_are_uses_of_tools() {
    let call = |name: &str, arguments: Value| {
        codex(&json!({"type": "response_item", "payload": {
            "type": "function_call", "call_id": "c", "name": name, "arguments": arguments.to_string()}}))
    };
    let used = |actions| vec![Activity::ToolUse { id: Some("c".to_owned()), actions }];
    let read = |path: &str| ToolAction::Read { path: path.to_owned() };
    assert_eq!(call("exec_command", json!({"cmd": "cat a", "workdir": "/w"})), used(vec![read("/w/a")]));
    assert_eq!(call("shell", json!({"command": ["bash", "-lc", "cat 'a b'"]})), used(vec![read("a b")]));
    assert_eq!(call("shell", json!({"command": ["sed", "-n", "1,5p", "a"]})), used(vec![read("a")]));
    assert_eq!(call("update_plan", json!({"plan": []})), used(vec![]));
    let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+y\n*** End Patch";
    let custom = json!({"type": "response_item", "payload": {
        "type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": patch}});
    assert_eq!(codex(&custom), used(vec![ToolAction::Edit { path: "src/a.rs".to_owned() }]));
    let of_server = json!({"type": "response_item", "payload": {"type": "function_call", "call_id": "c",
        "namespace": "mcp__code", "name": "search", "arguments": "{\"query\": \"login\"}"}});
    let search = ToolAction::Search { tool: SearchTool::Index, query: "login".to_owned(), path: None };
    assert_eq!(codex(&of_server), used(vec![search]));
}

#[test]
fn answers_of_a_rollout_have_heads_of_their_own() {
    let shell = |status: u8, output: &str| {
        format!("Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code {status}\nOutput:\n{output}")
    };
    for (output, expected) in [
        (json!(shell(0, "src/a.rs:1:x\n")), (true, None)),
        (json!(shell(1, "")), (true, Some(nothing()))),
        (json!(shell(1, "error: x\n")), (false, None)),
        (json!("Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess."), (true, None)),
        (json!("{\"output\": \"x\", \"metadata\": {\"exit_code\": 2}}"), (false, None)),
        (json!("{\"output\": \"\", \"metadata\": {\"exit_code\": 1}}"), (true, Some(nothing()))),
        (json!("exec_command failed: no such folder"), (false, None)),
        (
            json!([{"type": "input_text", "text": "{\"results\": [{\"path\": \"a\", \"score\": 0.5}]}"}]),
            (true, Some(SearchOutput { best_score: Some(0.5), count: Some(1), hits: vec![hit("a", 0.5)] })),
        ),
    ] {
        let line = json!({"type": "response_item", "payload": {
            "type": "function_call_output", "call_id": "c", "output": output}});
        let (ok, output) = expected;
        assert_eq!(codex(&line), [Activity::ToolResult { id: Some("c".to_owned()), ok, output }], "{line}");
    }
}

#[test]
fn a_call_from_code_shows_nothing_and_its_items_show_what_was_done() {
    let code = "const out = await tools.exec_command({cmd: \"rg -n needle src\"}); text(out.output);";
    let call = json!({"type": "response_item", "payload": {
        "type": "custom_tool_call", "call_id": "call_1", "name": "exec", "input": code}});
    assert_eq!(codex(&call), [Activity::ToolUse { id: Some("call_1".to_owned()), actions: vec![] }]);

    let command = |command: &str, status: Value, output: &str| {
        let line = item(&json!({
            "type": "CommandExecution", "id": "exec-1", "command": ["/bin/bash", "-lc", command], "cwd": "file:///srv/my%20app",
            "parsed_cmd": [{"type": "unknown", "cmd": command}], "source": "agent", "status": "completed", "exit_code": status,
            "aggregated_output": output, "duration": {"secs": 0, "nanos": 5}}));
        let entry = read(&codex::AGENT, &line);
        assert_eq!(entry.turn.as_deref(), Some("t"));
        entry.activities
    };
    let id = Some("exec-1".to_owned());
    let told = |actions, ok, output| {
        [Activity::ToolUse { id: id.clone(), actions }, Activity::ToolResult { id: id.clone(), ok, output }]
    };
    let search = || {
        let path = Some("/srv/my app/src".to_owned());
        vec![ToolAction::Search { tool: SearchTool::Grep, query: "needle".to_owned(), path }]
    };
    assert_eq!(command("rg -n needle src", json!(1), ""), told(search(), true, Some(nothing())));
    assert_eq!(command("rg -n needle src", json!(0), "src/a.rs:1:needle\n"), told(search(), true, None));
    assert_eq!(command("rg -n needle src", json!(2), ""), told(search(), false, None));
    let file = ToolAction::Read { path: "/srv/my app/src/a.rs".to_owned() };
    assert_eq!(command("sed -n 1,9p src/a.rs", json!(0), "fn a() {}"), told(vec![file.clone()], true, None));
    assert_eq!(
        command("cat src/a.rs", json!(1), "cat: src/a.rs: No such file"),
        told(vec![file], false, None)
    );
}

#[test]
fn items_tell_of_changed_files_of_calls_of_servers_and_of_what_a_person_says() {
    let change = item(&json!({"type": "FileChange", "id": "exec-2", "status": "completed", "changes": {
        "/srv/app/a.rs": {"type": "update", "unified_diff": "@@", "move_path": null},
        "/srv/app/b.rs": {"type": "delete", "content": ""},
        "/srv/app/c.rs": {"type": "update", "unified_diff": "@@", "move_path": "/srv/app/d.rs"},
    }}));
    let id = Some("exec-2".to_owned());
    let actions =
        ["/srv/app/a.rs", "/srv/app/d.rs"].map(|path| ToolAction::Edit { path: path.to_owned() }).to_vec();
    let answered = |id: &Option<String>, ok| Activity::ToolResult { id: id.clone(), ok, output: None };
    assert_eq!(codex(&change), [Activity::ToolUse { id: id.clone(), actions }, answered(&id, true)]);
    let mut declined = change;
    declined["payload"]["item"]["status"] = json!("declined");
    assert_eq!(codex(&declined).pop(), Some(answered(&id, false)));

    let result =
        json!({"content": [{"type": "text", "text": "{\"results\": [{\"path\": \"a\", \"score\": 0.5}]}"}]});
    let call = |tool: &str, arguments: Value, result: Value, error: Value| {
        codex(&item(
            &json!({"type": "McpToolCall", "id": "call_3", "server": "ultrasync", "tool": tool, "arguments": arguments,
            "status": "completed", "result": result, "error": error}),
        ))
    };
    let id = Some("call_3".to_owned());
    let search = ToolAction::Search { tool: SearchTool::Index, query: "login".to_owned(), path: None };
    let output = Some(SearchOutput { best_score: Some(0.5), count: Some(1), hits: vec![hit("a", 0.5)] });
    assert_eq!(
        call("jit_search", json!({"query": "login"}), result, Value::Null),
        [
            Activity::ToolUse { id: id.clone(), actions: vec![search] },
            Activity::ToolResult { id: id.clone(), ok: true, output },
        ]
    );
    let indexed = ToolAction::Index { path: "/srv/app/a.rs".to_owned() };
    assert_eq!(
        call("jit_index_file", json!({"path": "/srv/app/a.rs"}), Value::Null, json!({"message": "no"})),
        [Activity::ToolUse { id: id.clone(), actions: vec![indexed] }, answered(&id, false)]
    );

    for (content, expected) in [
        (json!([{"type": "text", "text": "find it", "text_elements": []}]), vec![Activity::Prompt]),
        (json!([{"type": "local_image", "path": "/a.png"}]), vec![Activity::Prompt]),
        (json!([{"type": "text", "text": "no, the other file"}]), vec![Activity::Correction]),
        (json!([]), vec![]),
    ] {
        let said = item(&json!({"type": "UserMessage", "id": "u1", "content": content}));
        assert_eq!(codex(&said), expected, "{said}");
    }
    for kind in ["AgentMessage", "Reasoning", "OfTomorrow"] {
        assert_eq!(codex(&item(&json!({"type": kind, "id": "x"}))), [], "{kind}");
    }
}
