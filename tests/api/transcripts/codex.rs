//! Rollouts of Codex, in which a model may call its tools from code.

use serde_json::{Value, json};

use super::{found, learned, text, time};
use crate::support::{Service, column, with};

/// A line of a rollout of Codex.
fn rollout(at: u32, kind: &str, payload: &Value) -> Value {
    json!({"timestamp": time(at), "ordinal": at, "type": kind, "payload": payload})
}

fn completed(at: u32, item: &Value) -> Value {
    let payload = json!({"type": "item_completed", "thread_id": "r", "turn_id": "turn-1", "item": item, "completed_at_ms": 0});
    rollout(at, "event_msg", &payload)
}

fn ran(at: u32, id: &str, command: &str, status: i32, output: &str) -> Value {
    completed(
        at,
        &json!({"type": "CommandExecution", "id": id, "command": ["/bin/bash", "-lc", command], "cwd": "file:///src/app",
        "parsed_cmd": [{"type": "unknown", "cmd": command}], "status": "completed", "exit_code": status, "aggregated_output": output}),
    )
}

/// A session of Codex with a model that calls its tools from code.
fn session_in_code() -> Vec<Value> {
    let meta = json!({"id": "r", "timestamp": time(0), "cwd": "/src/app", "cli_version": "0.169.0", "history_mode": "paginated"});
    let said = |id: &str, text: &str| json!({"type": "UserMessage", "id": id, "content": [{"type": "text", "text": text}]});
    let code = |at: u32, id: &str, code: &str| {
        let call = json!({"type": "custom_tool_call", "call_id": id, "name": "exec", "input": code});
        let answer = json!({"type": "custom_tool_call_output", "call_id": id, "output": "Script completed"});
        [rollout(at, "response_item", &call), rollout(at + 3, "response_item", &answer)]
    };
    let [first, first_answer] = code(3, "call_1", "text(await tools.exec_command({cmd: \"rg -n needle\"}))");
    let [second, second_answer] = code(8, "call_2", "await tools.apply_patch(patch)");
    let change = json!({"type": "FileChange", "id": "exec-3", "status": "completed", "changes": {
        "/src/app/src/hay.rs": {"type": "update", "unified_diff": "@@", "move_path": null}}});
    vec![
        rollout(0, "session_meta", &meta),
        rollout(1, "event_msg", &json!({"type": "task_started", "turn_id": "turn-1"})),
        rollout(1, "response_item", &json!({"type": "message", "role": "user", "content": []})),
        completed(2, &said("u1", "where is the needle?")),
        first,
        ran(4, "exec-1", "rg -n needle", 1, ""),
        ran(5, "exec-2", "sed -n 1,50p src/hay.rs", 0, "fn pin() {}"),
        first_answer,
        second,
        completed(9, &change),
        second_answer,
        rollout(12, "event_msg", &json!({"type": "task_complete", "turn_id": "turn-1"})),
        completed(100, &said("u2", "thanks")),
    ]
}

#[tokio::test]
async fn a_session_of_codex_with_tools_called_from_code_is_learned_from() {
    let service = Service::open().await;
    let path = "/v1/transcripts?agent=codex&source=r";
    let counts = service.post_text(path, "application/x-ndjson", text(&session_in_code())).await.expect(200);
    assert_eq!(
        (
            &counts["human_turns"],
            &counts["searches_started"],
            &counts["searches_resolved"],
            &counts["bad_lines"]
        ),
        (&json!(2), &json!(1), &json!(1), &json!(0))
    );
    let search = &learned(&service).await[0];
    assert_eq!(column(search["fallbacks"].as_array().expect("some"), "kind"), ["read", "edit"]);
    assert_eq!(column(search["associations"].as_array().expect("some"), "path"), ["src/hay.rs"]);
    assert_eq!((&search["root"], &search["turn_id"]), (&json!("/src/app"), &json!("turn-1")));

    // Told by hooks as well, it is the same.
    let by_hooks = Service::open().await;
    let event = |name: &str, more: &Value| {
        with(
            json!({"hook_event_name": name, "session_id": "r", "turn_id": "turn-1", "cwd": "/src/app"}),
            more,
        )
    };
    let used = |id: &str, tool: &str, command: &str, response: &str| {
        event(
            "PostToolUse",
            &json!({"tool_name": tool, "tool_input": {"command": command}, "tool_use_id": id,
            "tool_response": response}),
        )
    };
    let change = "*** Begin Patch\n*** Update File: src/hay.rs\n@@\n-x\n+y\n*** End Patch";
    for payload in [
        event("UserPromptSubmit", &json!({"prompt": "where is the needle?"})),
        used("exec-1", "Bash", "rg -n needle", ""),
        used("exec-2", "Bash", "sed -n 1,50p src/hay.rs", "fn pin() {}"),
        used("exec-3", "apply_patch", change, "Success"),
        event("Stop", &json!({})),
    ] {
        by_hooks.post("/v1/hooks/codex", &payload).await.expect(200);
    }
    let told = |search: &Value| {
        let parts = ["id", "query", "state", "root", "turn_id"].map(|name| search[name].clone());
        (parts, column(search["associations"].as_array().expect("some"), "path"))
    };
    assert_eq!(told(&learned(&by_hooks).await[0]), told(search));
    let figures = by_hooks.get("/v1/analytics/searches").await.expect(200);
    let counts = by_hooks.post_text(path, "application/x-ndjson", text(&session_in_code())).await.expect(200);
    assert_eq!((&counts["searches_started"], &counts["associations_created"]), (&json!(0), &json!(0)));
    assert_eq!(by_hooks.get("/v1/analytics/searches").await.expect(200), figures);
}

#[tokio::test]
async fn what_a_rollout_tells_twice_under_one_id_counts_once() {
    let service = Service::open().await;
    let call = json!({"type": "function_call", "call_id": "call_1", "name": "exec_command",
        "arguments": json!({"cmd": "rg -n needle"}).to_string()});
    let answer = json!({"type": "function_call_output", "call_id": "call_1",
        "output": "Chunk ID: 1\nProcess exited with code 1\nOutput:\n"});
    let read = json!({"type": "function_call", "call_id": "call_2", "name": "exec_command",
        "arguments": json!({"cmd": "cat src/hay.rs"}).to_string()});
    let lines = [
        rollout(
            0,
            "session_meta",
            &json!({"id": "r", "timestamp": time(0), "cwd": "/src/app", "cli_version": "0.169.0"}),
        ),
        rollout(2, "response_item", &call),
        ran(3, "call_1", "rg -n needle", 1, ""),
        rollout(3, "response_item", &answer),
        rollout(4, "response_item", &read),
        ran(5, "call_2", "cat src/hay.rs", 0, "fn pin() {}"),
        rollout(6, "event_msg", &json!({"type": "task_complete"})),
    ];
    let counts = service
        .post_text("/v1/transcripts?agent=codex&source=r", "application/x-ndjson", text(&lines))
        .await
        .expect(200);
    assert_eq!(
        (&counts["tool_uses"], &counts["tool_results"], &counts["matched"], &counts["searches_resolved"]),
        (&json!(2), &json!(2), &json!(2), &json!(1))
    );
    let search = &learned(&service).await[0];
    assert_eq!(column(search["fallbacks"].as_array().expect("some"), "path"), ["src/hay.rs"]);
}

#[tokio::test]
async fn a_session_whose_user_takes_long_to_write_the_first_prompt_has_its_name() {
    let service = Service::open().await;
    let begun = "2026-03-01T08:00:00Z";
    let meta = json!({"id": "r", "timestamp": begun, "cwd": "/src/app", "cli_version": "0.142.4"});
    let prompt = json!({"type": "user_message", "message": "where is the needle?"});
    let lines = [rollout(0, "session_meta", &meta), rollout(1, "event_msg", &prompt)];
    let path = "/v1/transcripts?agent=codex&source=r";
    service.post_text(path, "application/x-ndjson", text(&lines)).await.expect(200);
    assert_eq!(column(&service.all("/v1/sessions").await, "session"), ["r"]);
}

#[tokio::test]
async fn what_a_session_goes_on_with_after_its_erasure_is_erased_by_its_name_too() {
    let service = Service::open().await;
    let session = "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71";
    let source = format!("/v1/transcripts?agent=codex&source=a/rollout-2026-03-01T10-00-00-{session}.jsonl");
    let post = async |lines: &[Value]| service.post_text(&source, "application/x-ndjson", text(lines)).await;
    let mut lines = session_in_code();
    lines[0]["payload"]["id"] = json!(session);
    post(&lines[..3]).await.expect(200);
    let erase = format!("/v1/sessions/{session}");
    service.delete(&erase).await.expect(200);
    // The watcher sends what the file has grown by. Only the first line of the file names the session.
    assert_eq!(post(&lines[3..]).await.expect(200)["searches_started"], 1);
    let searches = service.all("/v1/searches").await;
    assert_eq!(column(&searches, "agent_session_id"), [session]);
    let turns = service.get(&format!("/v1/conversations/{session}")).await.expect(200);
    assert!(turns.to_string().contains("where is the needle?"), "{turns}");
    assert_eq!(service.delete(&erase).await.expect(200)["searches"], 1);
    assert_eq!(found(&service, "needle").await, [json!(null); 0]);
}

#[tokio::test]
async fn where_a_session_works_that_goes_on_after_its_erasure_is_erased_by_its_name_too() {
    let service = Service::open().await;
    let session = "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71";
    let source = format!("/v1/transcripts?agent=codex&source=rollout-2026-03-01T10-00-00-{session}.jsonl");
    let post = async |line: Value| service.post_text(&source, "application/x-ndjson", text(&[line])).await;
    let erase = format!("/v1/sessions/{session}");
    let turn = |at: u32| rollout(at, "turn_context", &json!({"turn_id": "turn-2", "cwd": "/src/needle"}));
    let head = json!({"id": session, "timestamp": time(0), "cwd": "/src/app", "cli_version": "0.169.0"});
    post(rollout(0, "session_meta", &head)).await.expect(200);
    service.delete(&erase).await.expect(200);
    post(turn(1)).await.expect(200);
    service.delete(&erase).await.expect(200);
    assert!(!service.dump().await.contains("needle"));

    // Of this one, the head came while nothing was stored.
    service.put("/v1/projects/default", &json!({"capture": "off"})).await.expect(200);
    post(rollout(2, "session_meta", &head)).await.expect(204);
    service.put("/v1/projects/default", &json!({"capture": "full"})).await.expect(200);
    post(turn(3)).await.expect(200);
    service.delete(&erase).await.expect(200);
    assert!(!service.dump().await.contains("needle"));
}

#[tokio::test]
async fn what_an_agent_orders_its_subagent_is_said_by_no_person() {
    let service = Service::open().await;
    let head = |id: &str, source: &Value| json!({"id": id, "timestamp": time(0), "cwd": "/src/app", "cli_version": "0.118.0", "source": source});
    let said =
        |at: u32, text: &str| rollout(at, "event_msg", &json!({"type": "user_message", "message": text}));
    // The session of the subagent begins with that of the agent that has started it.
    let lines = [
        rollout(0, "session_meta", &head("sub", &json!({"subagent": {"thread_spawn": {"depth": 1}}}))),
        rollout(0, "session_meta", &head("main", &json!("cli"))),
        said(1, "Where is the needle?"),
        said(2, "Review the code in src."),
    ];
    let path = "/v1/transcripts?agent=codex&source=sub";
    let counts = service.post_text(path, "application/x-ndjson", text(&lines[..3])).await.expect(200);
    assert_eq!(counts["human_turns"], 0, "{counts}");
    // What the source has said of itself is known for the lines that come later.
    let counts = service.post_text(path, "application/x-ndjson", text(&lines[3..])).await.expect(200);
    assert_eq!(counts["human_turns"], 0, "{counts}");
    for session in ["sub", "main"] {
        service.get(&format!("/v1/conversations/{session}")).await.refused(404, &[]);
    }
    let main = [rollout(0, "session_meta", &head("main", &json!("cli"))), said(1, "Where is the needle?")];
    let path = "/v1/transcripts?agent=codex&source=main";
    let counts = service.post_text(path, "application/x-ndjson", text(&main)).await.expect(200);
    assert_eq!(counts["human_turns"], 1, "{counts}");
    service.get("/v1/conversations/main").await.expect(200);
}
