//! What an agent did, read from its transcript.

use serde_json::{Value, json};

use super::{answers, call, found, learned, line, prompt, reads, send, session, text, uses};
use crate::support::{Service, column, with};

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
