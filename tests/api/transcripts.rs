//! Transcripts and hooks: what agents write of their work, in any pieces, learned from once.

use axum::body::Body;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Service, column, encoded, with};

/// A line of a Claude Code transcript, so many seconds after ten.
fn line(kind: &str, at: u32, content: &Value) -> Value {
    json!({"type": kind, "sessionId": "s", "cwd": "/src/app", "timestamp": time(at),
        "message": {"role": kind, "content": content}})
}

fn time(at: u32) -> String {
    format!("2026-03-01T10:{:02}:{:02}.000Z", at / 60, at % 60)
}

fn prompt(at: u32, text: &str) -> Value {
    line("user", at, &json!(text))
}

fn uses(at: u32, id: &str, tool: &str, input: &Value) -> Value {
    line("assistant", at, &json!([{"type": "tool_use", "id": id, "name": tool, "input": input}]))
}

fn answers(at: u32, id: &str, content: &Value) -> Value {
    line("user", at, &json!([{"type": "tool_result", "tool_use_id": id, "content": content}]))
}

/// A use of a tool, and a second later its result.
fn call(at: u32, id: &str, tool: &str, input: &Value, content: &Value) -> [Value; 2] {
    [uses(at, id, tool, input), answers(at + 1, id, content)]
}

fn reads(at: u32, id: &str, file: &str) -> [Value; 2] {
    call(at, id, "Read", &json!({"file_path": file}), &json!("1\tthe file"))
}

/// A session in which an index knows only the wrong file, and the right one is found by hand, and edited.
fn session() -> Vec<Value> {
    let results = json!({"results": [{"path": "Button.tsx", "score": 0.42}]});
    let found = json!([{"type": "text", "text": results.to_string()}]);
    let mut lines =
        vec![json!({"type": "summary", "summary": "Styling"}), prompt(0, "find the login button component")];
    lines.extend(call(
        2,
        "t1",
        "mcp__ultrasync__jit_search",
        &json!({"query": "login button component"}),
        &found,
    ));
    lines.extend(call(
        4,
        "t2",
        "Grep",
        &json!({"pattern": "login.*button"}),
        &json!("Found 1 file\nsrc/auth/LoginButton.tsx"),
    ));
    lines.extend(reads(6, "t3", "/src/app/src/auth/LoginButton.tsx"));
    lines.push(prompt(90, "great, now update the styling"));
    lines.push(json!({"type": "file-history-snapshot", "snapshot": {}}));
    lines
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

async fn send(service: &Service, source: &str, body: impl Into<Body>) -> Value {
    let path = format!("/v1/transcripts?agent=claude-code&source={}", encoded(source));
    service.post_text(&path, "application/x-ndjson", body).await.expect(200)
}

async fn hook(service: &Service, payload: &Value) {
    let answer = service.post("/v1/hooks/claude-code", payload).await;
    assert_eq!(answer.expect(200), json!({}));
}

/// The payload of a hook that tells of a tool.
fn told(id: &str, tool: &str, input: &Value, response: &Value) -> Value {
    json!({"hook_event_name": "PostToolUse", "session_id": "s", "cwd": "/src/app", "prompt_id": "p1", "tool_name": tool,
        "tool_use_id": id, "tool_input": input, "tool_response": response})
}

async fn found(service: &Service, query: &str) -> Vec<Value> {
    let answer = service.get(&format!("/v1/associations?query={}", encoded(query))).await.expect(200);
    column(answer["data"].as_array().expect("data"), "path")
}

/// Everything that was learned, without what depends on when it was received.
async fn learned(service: &Service) -> Vec<Value> {
    let mut searches = Vec::new();
    for search in service.all("/v1/searches").await {
        let path = format!("/v1/searches/{}", search["id"].as_str().expect("an id"));
        let mut search = service.get(&path).await.expect(200);
        for association in search["associations"].as_array_mut().expect("associations") {
            association["weight"] = Value::Null;
        }
        searches.push(search);
    }
    searches
}

#[tokio::test]
async fn a_session_is_counted_and_learned_from() {
    let service = Service::open().await;
    let expected = json!({"lines": 10, "duplicates": 0, "bad_lines": 0, "tool_uses": 3, "tool_results": 3, "matched": 3,
        "human_turns": 2, "searches_started": 1, "searches_resolved": 1, "associations_created": 1});
    assert_eq!(send(&service, "a", text(&session())).await, expected);
    assert_eq!(found(&service, "login button").await, ["src/auth/LoginButton.tsx"]);
    let search = &learned(&service).await[0];
    assert_eq!(
        (&search["query"], &search["best_score"], &search["root"], &search["agent_session_id"]),
        (&json!("login button component"), &json!(0.42), &json!("/src/app"), &json!("s"))
    );
    assert_eq!(column(search["fallbacks"].as_array().expect("some"), "kind"), ["grep", "read"]);
    let expansions = service.get("/v1/searches/expansions?query=login%20button").await.expect(200);
    assert_eq!(column(expansions["data"].as_array().expect("data"), "pattern"), ["login.*button"]);

    let again = json!({"lines": 10, "duplicates": 10, "bad_lines": 0, "tool_uses": 0, "tool_results": 0, "matched": 0,
        "human_turns": 0, "searches_started": 0, "searches_resolved": 0, "associations_created": 0});
    assert_eq!(send(&service, "a", text(&session())).await, again);
    // Under another name the lines are others, but what was done is the same.
    let elsewhere = send(&service, "b", text(&session())).await;
    assert_eq!((&elsewhere["tool_uses"], &elsewhere["searches_started"]), (&json!(3), &json!(0)));
    assert_eq!(learned(&service).await.len(), 1);
}

#[tokio::test]
async fn lines_may_come_in_any_pieces_and_be_sent_again() {
    let (whole, pieces) = (Service::open().await, Service::open().await);
    let lines = session();
    send(&whole, "a", text(&lines)).await;
    let mut sums = json!({});
    for (end, back) in [(1, 0), (3, 1), (4, 3), (5, 0), (8, 5), (10, 9)] {
        let start = [0, 1, 3, 4, 5, 8][[1, 3, 4, 5, 8, 10].iter().position(|at| *at == end).expect("an end")];
        let counts = send(&pieces, "a", text(&lines[start - back.min(start)..end])).await;
        for (name, count) in counts.as_object().expect("counts") {
            sums[name] = json!(sums[name].as_u64().unwrap_or(0) + count.as_u64().expect("a count"));
        }
    }
    let counts = send(&whole, "b", text(&lines)).await;
    for name in ["bad_lines", "tool_uses", "tool_results", "matched", "human_turns"] {
        assert_eq!(sums[name], counts[name], "{name}");
    }
    assert_eq!(sums["lines"].as_u64().expect("lines") - sums["duplicates"].as_u64().expect("duplicates"), 10);
    assert_eq!(learned(&whole).await, learned(&pieces).await);
}

#[tokio::test]
async fn calls_for_one_source_at_the_same_time_count_each_line_once() {
    let service = Service::open().await;
    let lines = text(&session());
    let counts = join_all((0..8).map(|_| send(&service, "a", lines.clone()))).await;
    let sum = |name: &str| counts.iter().map(|count| count[name].as_u64().expect("a count")).sum::<u64>();
    let names = [
        "lines",
        "duplicates",
        "tool_uses",
        "matched",
        "human_turns",
        "searches_started",
        "searches_resolved",
    ];
    assert_eq!(names.map(sum), [80, 70, 3, 3, 2, 1, 1]);
}

#[tokio::test]
async fn a_body_is_taken_in_pieces_wherever_it_is_cut() {
    let service = Service::open().await;
    let filler = "x".repeat(3_000);
    let mut lines = Vec::new();
    for at in 0..2_000 {
        lines.push(line(
            "assistant",
            at % 3_000,
            &json!([{"type": "text", "text": format!("{at} {filler}")}]),
        ));
    }
    lines.extend(session());
    let body = text(&lines);
    assert!(body.len() > 6 << 20);
    let chunks: Vec<_> =
        body.into_bytes().chunks(99_991).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
    let counts = send(&service, "a", Body::from_stream(futures_util::stream::iter(chunks))).await;
    assert_eq!((&counts["lines"], &counts["matched"]), (&json!(2_010), &json!(3)));
    assert_eq!(send(&service, "b", text(&session()).trim_end().to_owned()).await["lines"], 10);
}

#[tokio::test]
async fn malformed_lines_are_counted_and_passed_over() {
    let service = Service::open().await;
    let mut lines = text(&session());
    lines.push_str("\n  \n{\"type\": \"user\", \"mess\nnull\n[1]\n\u{0}\n");
    let mut bytes = lines.into_bytes();
    bytes.extend(b"{\"type\": \"\xff\"}\n");
    let counts = send(&service, "a", bytes).await;
    assert_eq!(
        (&counts["lines"], &counts["bad_lines"], &counts["matched"]),
        (&json!(15), &json!(5), &json!(3))
    );
    assert_eq!(service.get("/v1/analytics/searches").await.expect(200)["errors"], 5);
    hook(&service, &json!({"hook_event_name": 1})).await;
    let answer = service.post_text("/v1/hooks/codex", "text/plain", "no JSON").await;
    assert_eq!(answer.expect(200), json!({}));
    assert_eq!(service.get("/v1/analytics/searches").await.expect(200)["errors"], 7);
}

#[tokio::test]
async fn a_result_may_come_before_its_use_and_a_failed_read_teaches_nothing() {
    let service = Service::open().await;
    let nothing = json!("No files found");
    let mut lines = vec![prompt(0, "where is the parser?")];
    lines.extend(call(1, "t1", "Glob", &json!({"pattern": "**/*parser*.go"}), &nothing));
    let [made, answered] = reads(3, "t2", "/src/app/agent/claude.go");
    lines.extend([answered, made]);
    lines.push(uses(5, "t3", "Read", &json!({"file_path": "/src/app/nowhere.go"})));
    let failed = json!([{"type": "tool_result", "tool_use_id": "t3", "content": "File does not exist.", "is_error": true}]);
    lines.push(line("user", 6, &failed));
    lines.push(uses(7, "t4", "Read", &json!({"file_path": "/src/app/never-answered.go"})));
    lines.push(prompt(9, "thanks"));
    let counts = send(&service, "a", text(&lines)).await;
    assert_eq!(
        (&counts["tool_uses"], &counts["matched"], &counts["searches_resolved"]),
        (&json!(4), &json!(3), &json!(1))
    );
    assert_eq!(found(&service, "**/*parser*.go").await, ["agent/claude.go"]);
}

#[tokio::test]
async fn a_tool_that_searches_in_vain_is_followed_only_if_the_settings_say_so() {
    let service = Service::open().await;
    let mut lines = vec![prompt(0, "where?")];
    lines.extend(call(1, "t1", "Grep", &json!({"pattern": "parseHook"}), &json!("No matches found")));
    lines.extend(call(3, "t2", "Bash", &json!({"command": "rg -n readHook src"}), &json!("")));
    lines.extend(call(5, "t3", "code_search", &json!({"query": "hook parser"}), &json!("[]")));
    lines.extend(reads(7, "t4", "/src/app/hook.rs"));
    lines.push(prompt(9, "thanks"));
    for (settings, queries) in [
        (json!({}), vec!["readHook", "parseHook"]),
        (json!({"track_builtin": false}), vec![]),
        (json!({"track_builtin": false, "tools": ["code_search"]}), vec!["hook parser"]),
    ] {
        service.put("/v1/projects/default", &json!({"searches": settings})).await.expect(200);
        send(&service, &settings.to_string(), text(&lines)).await;
        assert_eq!(column(&service.all("/v1/searches").await, "query"), queries, "{settings}");
        service.delete("/v1/sessions/s").await.expect(200);
    }
}

#[tokio::test]
async fn an_agent_that_waits_for_a_tool_is_not_silent() {
    let service = Service::open().await;
    for (session, [build, wait], state, files) in [
        ("quick", [60, 60], "resolved", vec!["after.rs"]),
        ("silent", [60, 61], "timed_out", vec![]),
        ("building", [600, 60], "resolved", vec!["after.rs"]),
        ("stuck", [601, 60], "timed_out", vec![]),
    ] {
        let mut lines = vec![prompt(0, "where?")];
        lines.extend(call(
            1,
            &format!("{session}1"),
            "Grep",
            &json!({"pattern": session}),
            &json!("No matches found"),
        ));
        let id = format!("{session}2");
        lines.push(uses(3, &id, "Bash", &json!({"command": "make"})));
        lines.push(answers(3 + build, &id, &json!("done")));
        lines.extend(reads(3 + build + wait, &format!("{session}3"), "/src/app/after.rs"));
        lines.push(prompt(10 + build + wait, "thanks"));
        let lines: Vec<_> =
            lines.into_iter().map(|line| with(line, &json!({"sessionId": session}))).collect();
        send(&service, session, text(&lines)).await;
        let found = service.all(&format!("/v1/searches?agent_session_id={session}")).await;
        assert_eq!(column(&found, "state"), [state], "{session}");
        let path = format!("/v1/searches/{}", found[0]["id"].as_str().expect("an id"));
        let search = service.get(&path).await.expect(200);
        assert_eq!(column(search["associations"].as_array().expect("some"), "path"), files, "{session}");
    }
}

#[tokio::test]
async fn a_subagent_is_followed_on_its_own() {
    let service = Service::open().await;
    let sub = |line: Value| with(line, &json!({"isSidechain": true, "agentId": "a1"}));
    let mut lines = vec![prompt(0, "where?")];
    lines.extend(call(1, "t1", "Grep", &json!({"pattern": "mainPattern"}), &json!("No matches found")));
    lines.extend(
        call(2, "t2", "Grep", &json!({"pattern": "subPattern"}), &json!("No matches found")).map(sub),
    );
    lines.extend(reads(4, "t3", "/src/app/sub.rs").map(sub));
    lines.extend(reads(6, "t4", "/src/app/main.rs"));
    lines.push(prompt(9, "thanks"));
    send(&service, "a", text(&lines)).await;
    let states: Vec<_> = learned(&service)
        .await
        .iter()
        .map(|search| {
            (
                search["query"].clone(),
                search["agent_id"].clone(),
                search["state"].clone(),
                column(search["fallbacks"].as_array().expect("some"), "path"),
            )
        })
        .collect();
    assert_eq!(
        states,
        [
            (json!("subPattern"), json!("a1"), json!("tracking"), vec![json!("sub.rs")]),
            (json!("mainPattern"), Value::Null, json!("resolved"), vec![json!("main.rs")]),
        ]
    );
}

#[tokio::test]
async fn hooks_teach_the_same_and_a_transcript_of_the_same_session_nothing_more() {
    let service = Service::open().await;
    let results = json!({"results": [{"path": "Button.tsx", "score": 0.42}]}).to_string();
    let prompt = |turn: &str| {
        json!({"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/src/app",
        "prompt_id": turn, "prompt": "find the login button component"})
    };
    hook(&service, &prompt("p1")).await;
    let searched = json!([{"type": "text", "text": results}]);
    hook(
        &service,
        &told("t1", "mcp__ultrasync__jit_search", &json!({"query": "login button component"}), &searched),
    )
    .await;
    let file = json!({"file_path": "/src/app/src/auth/LoginButton.tsx"});
    hook(
        &service,
        &told("t3", "Read", &file, &json!({"type": "text", "file": {"filePath": "x", "content": "y"}})),
    )
    .await;
    let failed = with(
        told("t9", "Read", &json!({"file_path": "/src/app/none"}), &Value::Null),
        &json!({
        "hook_event_name": "PostToolUseFailure", "error": "File does not exist."}),
    );
    hook(&service, &failed).await;
    hook(&service, &prompt("p2")).await;
    assert_eq!(found(&service, "login button").await, ["src/auth/LoginButton.tsx"]);
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    assert_eq!((&figures["sessions_started"], &figures["sessions_resolved"]), (&json!(1), &json!(1)));
    let counts = send(&service, "a", text(&session())).await;
    assert_eq!(
        (&counts["matched"], &counts["searches_started"], &counts["associations_created"]),
        (&json!(3), &json!(0), &json!(0))
    );
    assert_eq!(service.get("/v1/analytics/searches").await.expect(200), figures);
}

#[tokio::test]
async fn lines_that_are_not_to_be_learned_from_are_only_counted() {
    let service = Service::open().await;
    let path = "/v1/transcripts?agent=claude-code&source=a&learn=false";
    let counts = service.post_text(path, "application/jsonl", text(&session())).await.expect(200);
    assert_eq!(
        (&counts["matched"], &counts["human_turns"], &counts["searches_started"]),
        (&json!(3), &json!(2), &json!(0))
    );
    assert_eq!(service.all("/v1/searches").await, [] as [Value; 0]);
}

#[tokio::test]
async fn erasing_a_session_forgets_that_its_lines_were_taken() {
    let service = Service::open().await;
    let lines = text(&session());
    let first = send(&service, "a", lines.clone()).await;
    service.delete("/v1/sessions/s").await.expect(200);
    let dump = service.dump().await;
    assert!(!dump.to_lowercase().contains("login"), "{dump}");
    assert_eq!(send(&service, "a", lines).await, first);
}

#[tokio::test]
async fn a_transcript_of_nobody_known_or_of_no_name_is_refused() {
    let service = Service::open().await;
    for (parameters, pointer) in [
        ("agent=claude-code", "/source"),
        ("source=a", "/agent"),
        ("agent=other&source=a", "/agent"),
        ("agent=codex&source=a&from=1", "/from"),
    ] {
        let path = format!("/v1/transcripts?{parameters}");
        service.post_text(&path, "application/x-ndjson", "{}").await.refused(422, &[pointer]);
    }
    service.post_text("/v1/transcripts?agent=codex&source=a", "text/plain", "{}").await.refused(415, &[]);
}
