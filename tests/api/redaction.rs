//! Secrets are gone before anything is written, on every way in, and what is recognized stays recognized.

use axum::http::Method;
use serde_json::{Value, json};

use crate::capture::{lines, post_all};
use crate::support::{Answer, Service, column, encoded, with};

/// The shape of a token of GitHub, which nobody has issued.
const TOKEN: &str = "ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI";
const GONE: &str = "[redacted:secrets]";
const LOGS: &str = "/v1/generations";

fn log() -> Value {
    json!({"id": "0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e", "user_intent": format!("Use {TOKEN}"), "domain_name": "d"})
}

async fn redact(service: &Service, rules: Value) -> Answer {
    service.put("/v1/projects/default", &json!({ "redact": rules })).await
}

#[tokio::test]
async fn a_secret_is_nowhere_in_the_database_whichever_way_it_came() {
    let service = Service::open().await;
    let needle = format!("a {TOKEN} b");
    for (expected, answer) in post_all(&needle, &service).await {
        assert_eq!(answer.status, expected, "{}", answer.text());
        assert!(!answer.text().contains(TOKEN), "{}", answer.text());
    }
    service.accept(&lines(&needle)).await;
    let searches = [
        (
            Method::POST,
            "/v1/searches",
            json!({"id": "0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e", "query": needle, "best_score": 0.1,
            "results": [{"path": needle, "score": 0.1}], "agent_session_id": needle, "turn_id": needle, "root": needle}),
        ),
        (
            Method::POST,
            "/v1/searches/0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e/fallbacks",
            json!({"kind": "read", "path": needle}),
        ),
        (
            Method::POST,
            "/v1/searches/0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e/fallbacks",
            json!({"kind": "grep", "pattern": needle}),
        ),
        (Method::POST, "/v1/searches/0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e/resolve", json!({})),
        (
            Method::PUT,
            "/v1/prompt-templates/t",
            json!({"template_text": needle, "domain_name": "d", "description": needle}),
        ),
    ];
    for (method, path, body) in searches {
        let answer = service.call(method, path, &[], Some(&body)).await;
        assert!(answer.status.is_success() && !answer.text().contains(TOKEN), "{}", answer.text());
        assert!(path.ends_with("resolve") || answer.header("gleaner-redacted").is_some(), "{path}");
    }
    let use_of_tool = |id: &str, tool: &str, input: Value| {
        json!({"type": "assistant", "sessionId": "s", "cwd": format!("/{TOKEN}"), "timestamp": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": tool, "input": input}]}})
    };
    let transcript = [
        use_of_tool("toolu_1", "Grep", json!({"pattern": needle, "path": format!("src/{TOKEN}")})),
        use_of_tool("toolu_2", "Read", json!({"file_path": format!("/x/{TOKEN}/y.rs")})),
    ];
    let transcript: Vec<_> = transcript.iter().map(Value::to_string).collect();
    let source = format!("/v1/transcripts?agent=claude-code&source={TOKEN}.jsonl");
    service.post_text(&source, "application/x-ndjson", transcript.join("\n")).await.expect(200);
    let hook = json!({"hook_event_name": "PostToolUse", "session_id": "h", "cwd": "/x", "tool_name": "Read",
        "tool_input": {"file_path": format!("/x/{TOKEN}")}, "tool_response": {"type": "text"}, "tool_use_id": "toolu_3"});
    service.post("/v1/hooks/claude-code", &hook).await.expect(200);
    let dump = service.dump().await;
    assert!(
        !dump.contains(TOKEN),
        "{:?}",
        dump.split_once(TOKEN).map(|(before, _)| &before[before.len().saturating_sub(300)..])
    );
    assert!(dump.contains(GONE));
}

#[tokio::test]
async fn the_answer_shows_what_is_kept_and_counts_what_is_gone() {
    let service = Service::open().await;
    let answer = service.post(LOGS, &log()).await;
    assert_eq!(answer.header("gleaner-redacted"), Some("1"));
    let stored = answer.expect(201);
    assert_eq!(stored["user_intent"], format!("Use {GONE}"));
    // Sending it again is a replay, and another secret in its place is another request.
    service.post(LOGS, &log()).await.expect(200);
    let other = with(log(), &json!({"user_intent": format!("Use {}", TOKEN.replace("0dZ8", "1dZ8"))}));
    service.post(LOGS, &other).await.refused(409, &[]);
    let batch = service.events(&[with(log(), &json!({"event": "generation"}))]).await;
    assert_eq!(batch.header("gleaner-redacted"), Some("1"));
    assert_eq!(batch.expect(200), json!({"accepted": 0, "duplicates": 1, "rejected": []}));
    let attempt = json!({"extracted_dsl": "x", "lint_result": {"valid": false, "errors": [TOKEN]}});
    let attempt = service
        .post(&format!("{LOGS}/0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e/attempts"), &attempt)
        .await
        .expect(201);
    assert_eq!(attempt["lint_result"]["errors"], json!([GONE]));
    let metrics = service.get("/metrics").await.text();
    assert!(metrics.contains("gleaner_redacted_spans_total{rule=\"secrets\"}"), "{metrics}");
}

#[tokio::test]
async fn in_free_form_objects_a_members_name_counts() {
    let service = Service::open().await;
    let metadata = json!({"password": "mT9x2LqWz7RfK4", "nested": [{"api_key": "mT9x2LqWz7RfK4", "n": 1.5}], "note": "password reset"});
    let stored = service.post(LOGS, &with(log(), &json!({"metadata": metadata}))).await.expect(201);
    assert_eq!(
        stored["metadata"],
        json!({"password": GONE, "nested": [{"api_key": GONE, "n": 1.5}], "note": "password reset"})
    );
}

#[tokio::test]
async fn a_project_chooses_its_rules_and_can_try_them() {
    let service = Service::open().await;
    let tried = async |text: &str| {
        let path = "/v1/projects/default/redact/try";
        service.post(path, &json!({ "text": text })).await.expect(200)
    };
    assert_eq!(tried(TOKEN).await, json!({"text": GONE, "redacted": 1}));
    let project = service.get("/v1/projects/default").await.expect(200);
    assert_eq!(project["redact"], json!({"builtin": ["secrets"], "custom": [], "tag": false}));

    let rules = json!({"builtin": ["emails"], "custom": [{"name": "ticket", "regex": "ACME-[0-9]+"}]});
    redact(&service, rules).await.expect(200);
    let text = format!("{TOKEN} of ann@example.org in ACME-17");
    assert_eq!(
        tried(&text).await,
        json!({"text": format!("{TOKEN} of [redacted:emails] in [redacted:ticket]"), "redacted": 2})
    );
    redact(&service, json!({"builtin": []})).await.expect(200);
    assert_eq!(tried(TOKEN).await, json!({"text": TOKEN, "redacted": 0}));
    redact(&service, json!({"tag": true})).await.expect(200);
    let tagged = tried(&format!("{TOKEN} {TOKEN}")).await;
    let tags: Vec<_> = tagged["text"].as_str().expect("a text").split(' ').collect();
    assert!(tags[0] == tags[1] && tags[0].starts_with("[redacted:secrets:"), "{tagged}");
    redact(&service, Value::Null).await.expect(200);
    assert_eq!(tried(TOKEN).await["text"], GONE);
}

#[tokio::test]
async fn rules_that_cannot_be_used_are_refused_by_their_place() {
    let service = Service::open().await;
    let custom = |name: &str, regex: &str| json!({"custom": [{"name": "fine", "regex": "x"}, {"name": name, "regex": regex}]});
    for (rules, pointer) in [
        (json!({"builtin": ["secrets", "names"]}), "/redact/builtin/1"),
        (custom("Name", "x"), "/redact/custom/1/name"),
        (custom("", "x"), "/redact/custom/1/name"),
        (custom("n", ""), "/redact/custom/1/regex"),
        (custom("n", "("), "/redact/custom/1/regex"),
        (custom("n", "(?:a{1000}){1000}"), "/redact/custom/1/regex"),
        (custom("n", "(a)(b)(c)(d)"), "/redact/custom/1/regex"),
        (custom("n", &"x".repeat(1001)), "/redact/custom/1/regex"),
        (json!({"custom": vec![json!({"name": "n", "regex": "x"}); 51]}), "/redact/custom"),
        (json!({"rules": []}), "/redact/rules"),
    ] {
        redact(&service, rules).await.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn sessions_whose_names_are_redacted_stay_different_and_are_erased_by_their_names() {
    let service = Service::open().await;
    let pair = |session: &str| json!({"event": "pair", "user_text": session, "assistant_text": "a", "session_id": session});
    let search = |session: &str| json!({"event": "search", "query": "q", "best_score": 0.1, "agent_session_id": session});
    let asked = |session: &str| json!({"event": "conversation_query", "session_id": session, "query": "q"});
    let post = async || {
        let names = ["ann@example.org", "bob@example.org"];
        let events: Vec<_> = names.iter().flat_map(|name| [pair(name), search(name), asked(name)]).collect();
        service.accept(&events).await;
    };
    // A record of ann's from before the rule.
    service.accept(&[pair("ann@example.org")]).await;
    redact(&service, json!({"builtin": ["emails"]})).await.expect(200);
    post().await;
    let listed = service.get("/v1/sessions").await.expect(200);
    let names: Vec<_> =
        listed["data"].as_array().expect("data").iter().map(|session| &session["session"]).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let erased = service.call(Method::DELETE, "/v1/sessions/ann@example.org", &[], None).await.expect(200);
    assert_eq!(erased["pairs"], 2, "{erased}");
    let left = service.get("/v1/sessions").await.expect(200);
    assert_eq!(left["data"].as_array().map(Vec::len), Some(1), "{left}");
}

#[tokio::test]
async fn the_ids_of_pairs_that_a_send_brings_are_redacted_too() {
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 1000})).await.expect(201);
    let pairs =
        json!([{"id": TOKEN, "user_text": "a", "assistant_text": TOKEN}, {"id": "b", "user_text": "b"}]);
    let send = json!({"mode": "record", "model": "m", "user_text": "q", "pairs": pairs});
    let answer = service.post("/v1/sends", &send).await;
    assert_eq!(answer.header("gleaner-redacted"), Some("2"));
    let sql = "select given_pairs::text from sends";
    let stored: String = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a send");
    assert!(stored.contains(GONE) && !stored.contains(TOKEN), "{stored}");
}

#[tokio::test]
async fn topics_and_servers_whose_names_are_redacted_stay_different_and_filters_find_them() {
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 1000})).await.expect(201);
    redact(&service, json!({"builtin": ["emails"]})).await.expect(200);
    let [ann, bob] = ["ann@example.org", "bob@example.org"];
    let pair = |name: &str| json!({"event": "pair", "topic_id": name, "session_id": name, "user_text": "q", "assistant_text": "a"});
    let slate = |server: &str| json!({"event": "suggestion", "context": {}, "suggestions": ["a"], "session_name": "s", "server_name": server});
    service.accept(&[pair(ann), pair(bob), slate(ann), slate(bob)]).await;
    assert_eq!(service.all("/v1/topics").await.len(), 2);
    for name in ["topic_id", "session_id"] {
        for filter in [json!({name: ann}), json!({name: [ann]}), json!({"not": {name: bob}})] {
            let asked = json!({"model": "m", "user_text": "q", "visible": {"filter": filter}});
            let predicted = service.post("/v1/context/predict", &asked).await.expect(200);
            assert_eq!(predicted["visible_count"], 1, "{asked}");
            let recorded = with(asked, &json!({"mode": "record"}));
            let send = service.post("/v1/sends", &recorded).await.expect(201);
            assert_eq!(send["visible_count"], 1, "{recorded}");
        }
    }
    let path = format!("/v1/sessions/s?server={}", encoded(ann));
    let erased = service.delete(&path).await.expect(200);
    assert_eq!(erased["suggestions"], 1, "{erased}");
}

#[tokio::test]
async fn the_label_of_an_error_is_cut_after_its_secrets_are_gone() {
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 1000})).await.expect(201);
    let message = format!("{} {TOKEN}", "The key is not valid. ".repeat(6));
    let send = json!({"mode": "record", "model": "m", "user_text": "q"});
    let address = service.create("/v1/sends", send).await;
    let path = format!("/v1/sends/{address}/finalize");
    let shown = service.post(&path, &json!({"error": {"message": message}})).await.expect(200);
    assert!(shown["error"]["message"].as_str().is_some_and(|text| text.ends_with(GONE)), "{shown}");
    let dump = service.dump().await;
    let beginning = &TOKEN[..12];
    assert!(!dump.contains(beginning), "{shown}");
}

#[tokio::test]
async fn the_name_of_a_template_is_redacted_like_that_of_an_attempt() {
    let service = Service::open().await;
    let path = format!("/v1/prompt-templates/{TOKEN}");
    let body = json!({"template_text": "t", "domain_name": "d"});
    let made = service.put(&path, &body).await.expect(201);
    assert_eq!(made["template_id"], GONE);
    assert_eq!(service.get(&path).await.expect(200), made);
    service.post(&format!("{path}/deprecate"), &json!({})).await.expect(200);
}

#[tokio::test]
async fn a_session_is_found_and_erased_even_if_a_rule_matches_what_replaces_its_name() {
    let service = Service::open().await;
    redact(&service, json!({"custom": [{"name": "acme", "regex": "acme"}]})).await.expect(200);
    service.post("/v1/conversations/acme/queries", &json!({"query": "one"})).await.expect(201);
    let line = json!({"event": "conversation_query", "session_id": "acme", "query": "two"});
    service.accept(&[line]).await;
    let prompt =
        json!({"hook_event_name": "UserPromptSubmit", "session_id": "acme", "cwd": "/x", "prompt": "three"});
    service.post("/v1/hooks/claude-code", &prompt).await.expect(200);
    let said = json!({"type": "user", "sessionId": "acme", "uuid": "u", "timestamp": "2025-01-01T00:00:00Z",
        "message": {"role": "user", "content": "four"}});
    let source = "/v1/transcripts?agent=claude-code&source=acme";
    service.post_text(source, "application/x-ndjson", said.to_string()).await.expect(200);
    let conversation = service.get("/v1/conversations/acme").await.expect(200);
    let mut queries = column(conversation["queries"].as_array().expect("queries"), "query");
    queries.sort_by_key(ToString::to_string);
    assert_eq!(queries, ["four", "one", "three", "two"]);
    let erased = service.delete("/v1/sessions/acme").await.expect(200);
    assert_eq!(erased["queries"], 4, "{erased}");
    assert_eq!(service.all("/v1/sessions").await, [] as [Value; 0]);
}

#[tokio::test]
async fn names_that_are_redacted_are_found_by_filters_of_searches_and_suggestions() {
    let service = Service::open().await;
    redact(&service, json!({"builtin": ["emails"]})).await.expect(200);
    let [ann, bob] = ["ann@example.org", "bob@example.org"].map(encoded);
    let search = json!({"id": "0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e", "query": "login button", "best_score": 0.1,
        "agent_session_id": "ann@example.org", "root": "/src/app"});
    let path = format!("/v1/searches/{}", service.create("/v1/searches", search).await);
    let read = json!({"kind": "read", "path": "a.rs"});
    service.post(&format!("{path}/fallbacks"), &read).await.expect(201);
    service.post(&format!("{path}/resolve"), &json!({})).await.expect(200);
    let slate = json!({"context": {}, "suggestions": ["a"], "session_name": "ann@example.org", "server_name": "ann@example.org",
        "actual_input": "b"});
    service.create("/v1/suggestions", slate).await;
    let rejected = "/v1/suggestions/negative-signals?signal=viewed_rejected&";
    for list in ["/v1/searches?agent_", "/v1/suggestions?", rejected] {
        let name = if list.ends_with('_') { "session_id" } else { "session_name" };
        for (value, found) in [(&ann, 1), (&bob, 0)] {
            assert_eq!(service.all(&format!("{list}{name}={value}")).await.len(), found, "{list} {value}");
        }
    }
    for list in ["/v1/suggestions?", rejected] {
        assert_eq!(service.all(&format!("{list}server_name={ann}")).await.len(), 1, "{list}");
    }
    // What the session itself has read is no hint.
    for (value, hints) in [(&ann, 0), (&bob, 1)] {
        let question = format!(
            "/v1/associations?query=login%20button&root=/src/app&min_score=0&agent_session_id={value}"
        );
        let answer = service.get(&question).await.expect(200);
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(hints), "{answer}");
    }
}

#[tokio::test]
async fn names_that_are_redacted_are_found_by_figures_and_by_all_filters() {
    const ANN: &str = "ann@example.org";
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 1000})).await.expect(201);
    redact(&service, json!({"builtin": ["emails"]})).await.expect(200);
    let slate = json!({"event": "suggestion", "context": {}, "suggestions": ["a"], "session_name": ANN, "server_name": ANN,
        "suggestion_node_version": ANN, "actual_input": "b"});
    let log = json!({"event": "generation", "user_intent": format!("Write to {ANN} about the fund"), "domain_name": ANN,
        "model_used": ANN, "success": true, "final_valid_dsl": "(a)"});
    let send = json!({"event": "send", "mode": "record", "model": "m", "topic_id": ANN, "user_text": "q"});
    service.accept(&[slate, log, send]).await;
    let template = json!({"template_text": "t", "domain_name": ANN});
    service.put("/v1/prompt-templates/t", &template).await.expect(201);
    let [ann, bob] = [ANN, "bob@example.org"].map(encoded);
    let figures = "/v1/analytics/suggestions?";
    for (question, count) in [
        (format!("{figures}session_name="), "/records"),
        (format!("{figures}server_name="), "/records"),
        (format!("{figures}suggestion_node_version="), "/records"),
        (format!("/v1/analytics/suggestions/compare?b={ann}&a="), "/a/records"),
        ("/v1/analytics/messages?topic_id=".to_owned(), "/data/0/sends"),
    ] {
        let answer = service.get(&format!("{question}{ann}")).await.expect(200);
        assert_eq!(answer.pointer(count), Some(&json!(1)), "{question} {answer}");
    }
    let intent = "/v1/generations/similar?min_similarity=0&intent=fund";
    for list in [
        "/v1/suggestions?suggestion_node_version=",
        "/v1/suggestions/negative-signals?signal=viewed_rejected&suggestion_node_version=",
        "/v1/sessions?server=",
        "/v1/prompt-templates?domain_name=",
        &format!("{intent}&domain_name="),
        &format!("{intent}&model_used="),
    ] {
        let answer = service.get(&format!("{list}{ann}")).await.expect(200);
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(1), "{list} {answer}");
    }
    let nothing = service.get(&format!("/v1/sessions?server={bob}")).await.expect(200);
    assert_eq!(nothing["data"], json!([]));
}

#[tokio::test]
async fn the_id_of_what_a_user_typed_or_an_agent_looked_for_does_not_confirm_a_guess() {
    let service = Service::open().await;
    service.project("other").await;
    let id = "0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e";
    let ids = async |project: &str| {
        let project = [("gleaner-project", project)];
        let post = async |path: &str, body: Value, status: u16| {
            service.call(Method::POST, path, &project, Some(&body)).await.expect(status)
        };
        let slate = json!({"id": id, "context": {}, "suggestions": ["a"]});
        post("/v1/suggestions", slate, 201).await;
        post("/v1/searches", json!({"id": id, "query": "q", "best_score": 0.1, "timestamp": 0}), 201).await;
        let (slate, search) = (format!("/v1/suggestions/{id}"), format!("/v1/searches/{id}"));
        let mut fallbacks = Vec::new();
        for status in [201, 200] {
            let typed = json!({"inputs": [{"text": "4711", "at": 1}]});
            post(&format!("{slate}/partial-inputs"), typed, status).await;
            let grep = json!({"kind": "grep", "pattern": "4711", "timestamp": 1});
            fallbacks.push(post(&format!("{search}/fallbacks"), grep, status).await["id"].clone());
        }
        assert_eq!(fallbacks[0], fallbacks[1]);
        let slate = service.call(Method::GET, &slate, &project, None).await.expect(200);
        [slate["partial_inputs"][0]["id"].clone(), fallbacks.remove(0)]
    };
    // The ids depend on the keys of the projects, which nobody knows.
    let (own, others) = (ids("default").await, ids("other").await);
    assert!(
        own.iter().zip(&others).all(|(own, other)| own.is_string() && own != other),
        "{own:?} {others:?}"
    );
}

#[tokio::test]
async fn a_secret_beside_half_of_an_emoji_in_json_is_nowhere_in_the_database() {
    let service = Service::open().await;
    let cut = format!(r#"["\ud83d {TOKEN}"]"#);
    let pair = service.post("/v1/pairs", &json!({"user_text": cut, "assistant_text": "x"})).await.expect(201);
    assert_eq!(pair["user_text"], format!("[\"\u{fffd} {GONE}\"]"));
    assert!(!service.dump().await.contains(TOKEN));
}

#[tokio::test]
async fn pairs_and_sends_are_found_by_the_names_that_were_sent_also_where_these_are_redacted() {
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 400})).await.expect(201);
    let names = json!({"topic_id": TOKEN, "session_id": TOKEN});
    let pair = json!({"user_text": "u", "assistant_text": "a", "model": TOKEN});
    service.post("/v1/pairs", &with(pair, &names)).await.expect(201);
    let send = json!({"mode": "record", "user_text": "u", "model": "m"});
    service.post("/v1/sends", &with(send, &names)).await.expect(201);
    for (list, found) in [
        ("/v1/pairs?topic_id=", 2),
        ("/v1/pairs?session_id=", 2),
        ("/v1/pairs?model=", 1),
        ("/v1/sends?topic_id=", 1),
        ("/v1/sends?session_id=", 1),
    ] {
        assert_eq!(service.all(&format!("{list}{TOKEN}")).await.len(), found, "{list}");
    }
}

#[tokio::test]
async fn logs_and_rows_of_exports_are_found_by_the_names_that_were_sent_also_where_these_are_redacted() {
    let service = Service::open().await;
    let names = json!({"domain_name": TOKEN, "model_used": TOKEN, "session_id": TOKEN, "cbu_id": TOKEN, "instance_id": TOKEN});
    let iteration =
        json!({"extracted_dsl": "(a)", "parse_result": {"success": true}, "prompt_template": TOKEN});
    let new = json!({"user_intent": "i", "iterations": [iteration], "success": true});
    service.post(LOGS, &with(new, &names)).await.expect(201);
    for name in ["domain_name", "model_used", "prompt_template", "session_id", "cbu_id", "instance_id"] {
        assert_eq!(service.all(&format!("{LOGS}?{name}={TOKEN}")).await.len(), 1, "{name}");
    }
    for name in ["domain_name", "model_used", "prompt_template"] {
        let figures = service.get(&format!("/v1/analytics/generations?{name}={TOKEN}")).await.expect(200);
        assert_eq!(figures["logs"], 1, "{name}: {figures}");
    }
    let prompts = service.get(&format!("/v1/analytics/prompts?domain_name={TOKEN}")).await.expect(200);
    assert_eq!(prompts["data"].as_array().map(Vec::len), Some(1), "{prompts}");
    let pair = json!({"user_text": "u", "assistant_text": "a", "model": TOKEN, "topic_id": TOKEN});
    service.post("/v1/pairs", &pair).await.expect(201);
    for filter in [
        "training-pairs?domain_name",
        "training-pairs?model_used",
        "conversations?topic_id",
        "conversations?model",
    ] {
        let (dataset, name) = filter.split_once('?').expect("a parameter");
        assert_eq!(service.get(&format!("/v1/exports/{filter}={TOKEN}")).await.rows().len(), 1, "{filter}");
        let profile = service.get(&format!("/v1/exports/{dataset}/profile?{name}={TOKEN}")).await.expect(200);
        assert_eq!(profile["rows"], 1, "{filter}");
    }
}
