//! Help that comes by itself: what hooks are answered with, what is noted of it, and what persons say becoming queries.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use crate::support::program::Settings;
use crate::support::{Service, assert_whole, column, settings, with};

/// Reports a hook of a session, and asks for help of these kinds.
async fn hook(service: &Service, session: &str, kinds: &str, more: &Value) -> Value {
    let payload = with(json!({"session_id": session, "cwd": "/src/app", "prompt_id": "p1"}), more);
    service.post(&format!("/v1/hooks/claude-code?suggest={kinds}"), &payload).await.expect(200)
}

fn prompt(text: &str) -> Value {
    json!({"hook_event_name": "UserPromptSubmit", "prompt": text})
}

fn used(tool: &str, id: &str, input: &Value, response: &Value) -> Value {
    json!({"hook_event_name": "PostToolUse", "tool_name": tool, "tool_use_id": id, "tool_input": input, "tool_response": response})
}

/// What the agent is told.
#[track_caller]
fn told(answer: &Value) -> &str {
    let context = answer["hookSpecificOutput"]["additionalContext"].as_str();
    let context = context.unwrap_or_else(|| panic!("nothing is told: {answer}"));
    assert!(context.chars().count() <= 2_000);
    context
}

/// A service that suggests what is only somewhat likely.
async fn service(more: Value) -> Service {
    let service = Service::open().await;
    let memories = with(json!({"suggestion_confidence_threshold": 0.1}), &more);
    service.put("/v1/projects/default", &json!({"memories": memories})).await.expect(200);
    service
}

const NOTE: &str = "AuthMiddleware refuses a JWT whose clock is ahead, see MAX_SKEW_SECONDS.";
const QUESTION: &str = "Why does AuthMiddleware refuse my JWT?";

async fn note(service: &Service) -> Value {
    let memory = json!({"id": Uuid::from_u128(1), "content": NOTE, "session_id": "earlier"});
    service.post("/v1/memories", &memory).await.expect(201)["id"].clone()
}

/// The figures of one kind of help.
async fn figures(service: &Service, kind: &str) -> Value {
    let figures = service.get("/v1/analytics/memories").await.expect(200);
    let kinds = figures["unasked"].as_array().expect("figures by kind");
    kinds.iter().find(|figures| figures["kind"] == kind).expect("every kind").clone()
}

#[tokio::test]
async fn a_prompt_gets_the_relevant_memory_once_in_a_session() {
    let service = service(json!({})).await;
    let memory = note(&service).await;
    let answer = hook(&service, "s", "memories,files,examples", &prompt(QUESTION)).await;
    assert_eq!(answer["hookSpecificOutput"]["hookEventName"], "UserPromptSubmit");
    assert!(
        told(&answer).contains(NOTE) && told(&answer).contains(memory.as_str().expect("an id")),
        "{answer}"
    );
    let conversation = service.get("/v1/conversations/s").await.expect(200);
    assert_eq!(column(conversation["queries"].as_array().expect("a list"), "query"), [json!(QUESTION)]);
    assert_eq!(conversation["queries"][0]["root"], "/src/app");
    assert_eq!(
        column(conversation["suggested"].as_array().expect("a list"), "memory_id"),
        std::slice::from_ref(&memory)
    );
    let again = with(prompt(QUESTION), &json!({"prompt_id": "p2"}));
    assert_eq!(hook(&service, "s", "memories", &again).await, json!({}));
    // Another session is told too, but not who has not asked for it, nor what is not wanted.
    assert_eq!(
        service
            .post("/v1/hooks/claude-code", &with(prompt(QUESTION), &json!({"session_id": "t"})))
            .await
            .expect(200),
        json!({})
    );
    assert_eq!(hook(&service, "u", "files,examples", &prompt(QUESTION)).await, json!({}));
    told(&hook(&service, "v", "memories", &prompt(QUESTION)).await);
    // What is below the threshold is not told.
    assert_eq!(hook(&service, "w", "memories", &prompt("Which colour has the button?")).await, json!({}));
}

#[tokio::test]
async fn a_search_without_results_gets_the_file_that_a_similar_search_led_to() {
    let service = service(json!({})).await;
    let search = json!({"query": "login button component", "result_count": 0, "agent_session_id": "a", "root": "/src/app"});
    let search = service.create("/v1/searches", search).await;
    let read = json!({"kind": "read", "path": "/src/app/src/auth/LoginButton.tsx", "ok": true});
    service.post(&format!("/v1/searches/{search}/fallbacks"), &read).await.expect(201);
    service.post(&format!("/v1/searches/{search}/resolve"), &json!({})).await.expect(200);

    let grep = |id: &str, found: u32| {
        let response = json!({"mode": "files_with_matches", "filenames": [], "numFiles": found});
        used("Grep", id, &json!({"pattern": "login button component"}), &response)
    };
    let answer = hook(&service, "s", "files", &grep("t1", 0)).await;
    assert_eq!(answer["hookSpecificOutput"]["hookEventName"], "PostToolUse");
    assert!(told(&answer).contains("src/auth/LoginButton.tsx"), "{answer}");
    assert_eq!(hook(&service, "t", "files", &grep("t2", 3)).await, json!({}));
    assert_eq!(figures(&service, "file").await["shown"]["used"], 0);

    let file = json!({"file_path": "/src/app/src/auth/LoginButton.tsx"});
    let content = json!({"type": "text", "file": {"filePath": "x", "content": "y"}});
    hook(&service, "s", "files", &used("Read", "t3", &file, &content)).await;
    let figures = figures(&service, "file").await;
    assert_eq!((&figures["shown"]["count"], &figures["shown"]["used"]), (&json!(1), &json!(1)), "{figures}");
}

#[tokio::test]
async fn a_prompt_is_answered_with_a_solved_example() {
    let service = service(json!({})).await;
    let log = json!({"user_intent": "Create a hedge fund with Jane as director", "domain_name": "cbu", "success": true,
        "final_valid_dsl": "(cbu.create_fund :director \"Jane\")"});
    service.create("/v1/generations", log).await;
    let answer = hook(&service, "s", "examples", &prompt("Create a hedge fund with John as director")).await;
    assert!(told(&answer).contains("(cbu.create_fund"), "{answer}");
    hook(
        &service,
        "s",
        "",
        &used("Write", "t1", &json!({"content": "(cbu.create_fund :director \"John\")"}), &json!({})),
    )
    .await;
    assert_eq!(figures(&service, "example").await["shown"]["used"], 1);
    assert_eq!(hook(&service, "t", "examples", &prompt("Delete the user John")).await, json!({}));
}

#[tokio::test]
async fn a_memory_counts_as_used_where_the_agent_writes_what_only_the_memory_names() {
    let service = service(json!({})).await;
    note(&service).await;
    for session in ["s", "t"] {
        told(&hook(&service, session, "memories", &prompt(QUESTION)).await);
    }
    // The name that the question has already says nothing.
    let bash = |command: &str| {
        used("Bash", "t1", &json!({"command": command}), &json!({"stdout": "", "stderr": ""}))
    };
    hook(&service, "s", "", &bash("grep -rn AuthMiddleware src")).await;
    assert_eq!(figures(&service, "memory").await["shown"]["used"], 0);
    hook(&service, "s", "", &with(bash("echo MAX_SKEW_SECONDS=60 >> .env"), &json!({"tool_use_id": "t2"})))
        .await;
    assert_whole!("figures_of_help", figures(&service, "memory").await);
    let stop =
        json!({"hook_event_name": "Stop", "last_assistant_message": "I have raised MAX_SKEW_SECONDS to 60."});
    hook(&service, "t", "", &stop).await;
    assert_eq!(figures(&service, "memory").await["shown"]["used_rate"], 1.0);
    // Whatever is noted of it can be read by nobody, and goes with its session.
    let dump = service.dump().await;
    assert_eq!(dump.matches("MAX_SKEW_SECONDS").count(), 1, "{dump}");
    service.delete("/v1/sessions/s").await.expect(200);
    assert_eq!(figures(&service, "memory").await["shown"]["count"], 1);
}

#[tokio::test]
async fn what_the_person_has_named_themselves_is_no_use_of_help() {
    let service = service(json!({})).await;
    let content = "The retry of tokens in auth.py and verify_jwt rejects a clock that is ahead.";
    service.post("/v1/memories", &json!({"content": content})).await.expect(201);
    let bash = |command: &str| used("Bash", "t1", &json!({"command": command}), &json!({"stdout": ""}));
    // They name a part of a path and of a qualified name.
    let asked = "Fix the retry of tokens in @src/auth.py and auth::verify_jwt, the clock is ahead.";
    told(&hook(&service, "s", "memories", &prompt(asked)).await);
    hook(&service, "s", "", &bash("grep verify_jwt src/auth.py")).await;
    // They name it before the agent searches in vain.
    hook(&service, "t", "memories", &prompt("What tests auth.py and verify_jwt?")).await;
    let grep = json!({"mode": "files_with_matches", "filenames": [], "numFiles": 0});
    let search = used("Grep", "t2", &json!({"pattern": "retry tokens clock ahead"}), &grep);
    hook(&service, "t", "memories", &search).await;
    hook(&service, "t", "", &bash("grep verify_jwt src/auth.py")).await;
    let shown = figures(&service, "memory").await["shown"].clone();
    assert_eq!((&shown["count"], &shown["recognizable"]), (&json!(2), &json!(0)), "{shown}");
}

#[tokio::test]
async fn a_memory_or_a_log_that_is_erased_leaves_no_sign_in_the_sessions_that_it_has_helped() {
    let service = service(json!({})).await;
    note(&service).await;
    let log = json!({"user_intent": "Create a hedge fund with Jane as director", "domain_name": "cbu",
        "session_id": "earlier", "success": true, "final_valid_dsl": "(cbu.create_fund :director \"Jane\")"});
    service.create("/v1/generations", log).await;
    told(&hook(&service, "s", "memories", &prompt(QUESTION)).await);
    let asked = prompt("Create a hedge fund with John as director");
    told(&hook(&service, "t", "examples", &asked).await);
    service.delete("/v1/sessions/earlier").await.expect(200);
    let signs = "select count(*) from unasked_help where cardinality(signs) > 0";
    let signs: i64 = sqlx::query_scalar(signs).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(signs, 0);
    // The figures stay.
    for kind in ["memory", "example"] {
        let shown = figures(&service, kind).await["shown"].clone();
        assert_eq!((&shown["recognizable"], &shown["used"]), (&json!(1), &json!(0)), "{kind}");
    }
}

#[tokio::test]
async fn help_is_withheld_from_a_share_of_the_sessions_for_comparison() {
    let service = service(json!({"holdout": 0.5})).await;
    note(&service).await;
    let mut silent = Vec::new();
    for number in 0..24 {
        let session = format!("s{number}");
        let answer = hook(&service, &session, "memories", &prompt(QUESTION)).await;
        if answer == json!({}) {
            silent.push(session.clone());
            // A session is silent as a whole, and what it would have been told is noted once.
            let again = with(prompt(QUESTION), &json!({"prompt_id": "p2"}));
            assert_eq!(hook(&service, &session, "memories", &again).await, json!({}));
        } else {
            hook(
                &service,
                &session,
                "",
                &json!({"hook_event_name": "Stop", "last_assistant_message": "MAX_SKEW_SECONDS it is."}),
            )
            .await;
        }
    }
    assert!((4..=20).contains(&silent.len()), "{} of 24 are silent", silent.len());
    // Some find it without help.
    hook(
        &service,
        &silent[0],
        "",
        &json!({"hook_event_name": "Stop", "last_assistant_message": "MAX_SKEW_SECONDS"}),
    )
    .await;
    let figures = figures(&service, "memory").await;
    assert_eq!(
        (&figures["held_out"]["count"], &figures["held_out"]["used"]),
        (&json!(silent.len()), &json!(1)),
        "{figures}"
    );
    assert_eq!(figures["shown"]["sessions"], 24 - silent.len());
    let difference = figures["difference"].as_f64().expect("a difference");
    assert!((difference - (1.0 - 1.0 / silent.len() as f64)).abs() < 1e-9, "{figures}");
    assert!(figures["difference_interval"][0].as_f64().expect("a bound") < difference);
    // Nothing was suggested there, so that it can still be asked for.
    let conversation = service.get(&format!("/v1/conversations/{}", silent[1])).await.expect(200);
    assert_eq!(conversation["suggested"], json!([]));
    let asked =
        service.post(&format!("/v1/conversations/{}/suggest", silent[1]), &json!({})).await.expect(200);
    assert_eq!(asked["total_suggestions"], 1);
    let all = service.get("/v1/analytics/memories").await.expect(200);
    assert_eq!(all["total"]["suggested"], 24 - silent.len() + 1);
}

#[tokio::test]
async fn a_key_that_may_not_read_and_a_project_without_text_get_no_help() {
    let (service, operator) = Service::closed().await;
    let operator = format!("Bearer {operator}");
    let operator = ("authorization", operator.as_str());
    let keys =
        json!([{"name": "writes", "scopes": ["write"]}, {"name": "both", "scopes": ["write", "read"]}]);
    let mut answers = Vec::new();
    let put = async |settings: Value| {
        let path = "/v1/projects/default";
        service.call(axum::http::Method::PUT, path, &[operator], Some(&settings)).await.expect(200);
    };
    put(json!({"memories": {"suggestion_confidence_threshold": 0.1}})).await;
    let memory = json!({"content": NOTE});
    service.call(axum::http::Method::POST, "/v1/memories", &[operator], Some(&memory)).await.expect(201);
    let mut bearers = Vec::new();
    for key in keys.as_array().expect("keys") {
        let made =
            service.call(axum::http::Method::POST, "/v1/keys", &[operator], Some(key)).await.expect(201);
        bearers.push(format!("Bearer {}", made["key"].as_str().expect("a secret")));
    }
    let ask = async |bearer: &str, session: &str| {
        let payload = with(prompt(QUESTION), &json!({"session_id": session}));
        let path = "/v1/hooks/codex?suggest=memories";
        service
            .call(axum::http::Method::POST, path, &[("authorization", bearer)], Some(&payload))
            .await
            .expect(200)
    };
    for (number, bearer) in bearers.iter().enumerate() {
        answers.push(ask(bearer, &format!("s{number}")).await);
    }
    assert_eq!(answers[0], json!({}));
    told(&answers[1]);
    put(json!({"memories": {"suggestion_confidence_threshold": 0.1}, "capture": {"memories": "metadata"}}))
        .await;
    assert_eq!(ask(&bearers[1], "t").await, json!({}));
    put(
        json!({"memories": {"suggestion_confidence_threshold": 0.1, "proactive_suggestions_enabled": false}}),
    )
    .await;
    assert_eq!(ask(&bearers[1], "u").await, json!({}));
    let path = "/v1/hooks/codex?suggest=weather";
    service
        .call(axum::http::Method::POST, path, &[operator], Some(&json!({})))
        .await
        .refused(422, &["/suggest"]);
}

#[tokio::test]
async fn help_that_takes_too_long_does_not_come() {
    let service = Service::with(Settings { help_patience: Duration::ZERO, ..settings() }).await;
    service
        .put("/v1/projects/default", &json!({"memories": {"suggestion_confidence_threshold": 0.1}}))
        .await
        .expect(200);
    note(&service).await;
    assert_eq!(hook(&service, "s", "memories", &prompt(QUESTION)).await, json!({}));
}

#[tokio::test]
async fn help_that_comes_too_late_keeps_nobody_in_its_project_from_reading() {
    let help_patience = Duration::from_millis(500);
    let service = Service::with(Settings { connections: 2, help_patience, ..settings() }).await;
    note(&service).await;
    let mut holder = service.connection().await;
    let mut held = holder.begin().await.expect("a transaction");
    held.execute("lock table memories in access exclusive mode").await.expect("locked");
    assert_eq!(hook(&service, "s", "memories", &prompt(QUESTION)).await, json!({}));
    service.get("/v1/suggestions").await.expect(200);
    held.rollback().await.expect("released");
}

#[tokio::test]
async fn a_prompt_is_one_query_whether_a_hook_or_a_transcript_reports_it_or_both() {
    let service = Service::open().await;
    hook(&service, "s", "", &prompt(QUESTION)).await;
    let line = |turn: &str, text: &str| {
        json!({"type": "user", "sessionId": "s", "cwd": "/src/app", "timestamp": "2026-01-15T10:30:00Z", "promptId": turn,
            "message": {"role": "user", "content": text}})
    };
    let aside = with(line("p1", "Look into src."), &json!({"isSidechain": true}));
    let meta = with(line("p1", "Caveat: nobody said this."), &json!({"isMeta": true}));
    let lines = [line("p1", QUESTION), aside, meta, line("p3", "And the refresh token?")];
    let text = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    for source in ["a.jsonl", "copy.jsonl"] {
        let path = format!("/v1/transcripts?agent=claude-code&source={source}");
        service.post_text(&path, "application/x-ndjson", text.clone()).await.expect(200);
    }
    let conversation = service.get("/v1/conversations/s").await.expect(200);
    let mut asked = column(conversation["queries"].as_array().expect("a list"), "query");
    asked.sort_by_key(Value::to_string);
    assert_eq!(asked, [json!("And the refresh token?"), json!(QUESTION)]);
    // Codex tells a turn by its own name.
    let codex = json!({"hook_event_name": "UserPromptSubmit", "session_id": "c", "turn_id": "t1", "cwd": "/src", "prompt": "Hello there"});
    service.post("/v1/hooks/codex", &codex).await.expect(200);
    let lines = [
        json!({"timestamp": "2026-01-15T10:30:00Z", "type": "session_meta", "payload": {"id": "c", "timestamp": "2026-01-15T10:30:00Z", "cwd": "/src"}}),
        json!({"timestamp": "2026-01-15T10:30:01Z", "type": "turn_context", "payload": {"turn_id": "t1", "cwd": "/src"}}),
        json!({"timestamp": "2026-01-15T10:30:02Z", "type": "event_msg", "payload": {"type": "item_completed", "turn_id": "t1",
            "item": {"type": "UserMessage", "id": "1", "content": [{"type": "text", "text": "Hello there"}]}}}),
    ];
    let text = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    service
        .post_text("/v1/transcripts?agent=codex&source=r.jsonl", "application/x-ndjson", text)
        .await
        .expect(200);
    let conversation = service.get("/v1/conversations/c").await.expect(200);
    assert_eq!(conversation["queries"].as_array().map(Vec::len), Some(1), "{conversation}");
}

#[tokio::test]
async fn suggestions_bring_examples_and_files_where_they_are_asked_for() {
    let service = Service::open().await;
    let log = json!({"user_intent": "Create a hedge fund with Jane as director", "domain_name": "cbu", "success": true,
        "final_valid_dsl": "(cbu.create_fund :director \"Jane\")"});
    service.create("/v1/generations", log).await;
    let search = service
        .create(
            "/v1/searches",
            json!({"query": "hedge fund director", "result_count": 0, "agent_session_id": "a"}),
        )
        .await;
    let read = json!({"kind": "read", "path": "funds/director.rs", "ok": true});
    service.post(&format!("/v1/searches/{search}/fallbacks"), &read).await.expect(201);
    service.post(&format!("/v1/searches/{search}/resolve"), &json!({})).await.expect(200);
    service
        .post("/v1/conversations/s/queries", &json!({"query": "Create a hedge fund with John as director"}))
        .await
        .expect(201);
    let asked = json!({"include_examples": true, "include_files": true});
    let found = service.post("/v1/conversations/s/suggest", &asked).await.expect(200);
    assert_eq!(found["examples"][0]["valid_dsl"], "(cbu.create_fund :director \"Jane\")");
    assert_eq!(found["files"][0]["path"], "funds/director.rs");
    assert_eq!((&found["suggestions"], &found["total_suggestions"]), (&json!([]), &json!(0)));
    let without = service.post("/v1/conversations/s/suggest", &json!({})).await.expect(200);
    assert!(without.get("examples").is_none() && without.get("files").is_none(), "{without}");
    let nobody = service.post("/v1/conversations/nobody/suggest", &asked).await.expect(200);
    assert_eq!((&nobody["examples"], &nobody["files"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn help_for_a_project_is_looked_for_by_one_connection_and_leaves_the_others_to_other_projects() {
    let service = Service::with(Settings { connections: 2, ..settings() }).await;
    service.project("other").await;
    note(&service).await;
    hook(&service, "s", "files", &prompt("Does AuthMiddleware know MAX_SKEW_SECONDS?")).await;
    hook(&service, "t", "memories", &prompt(QUESTION)).await;
    let mut holder = service.connection().await;
    let mut held = holder.begin().await.expect("a transaction");
    held.execute("lock table memories, generations in access exclusive mode").await.expect("locked");
    // Both connections are open already.
    drop((service.pool().acquire().await, service.pool().acquire().await));
    let second = with(prompt(QUESTION), &json!({"prompt_id": "p2"}));
    let asked = hook(&service, "s", "memories,files,examples", &second);
    let others = async {
        service.blocked(1).await;
        for _ in 0..10 {
            let headers = [("gleaner-project", "other")];
            service.call(Method::GET, "/v1/suggestions", &headers, None).await.expect(200);
        }
        held.rollback().await.expect("released");
    };
    let (answer, ()) = tokio::join!(asked, others);
    assert!(told(&answer).contains(NOTE));
}
