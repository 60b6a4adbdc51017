//! What an agent's hooks tell while it works.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Method;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use sqlx::Connection as _;
use tower::ServiceExt as _;

use super::{found, hook, send, session, text};
use crate::support::program::{Failed, Running, Settings, Timestamp, expire, router};
use crate::support::{Service, column, eventually, request, settings, with};

/// The payload of a hook that tells of a tool.
fn told(id: &str, tool: &str, input: &Value, response: &Value) -> Value {
    json!({"hook_event_name": "PostToolUse", "session_id": "s", "cwd": "/src/app", "prompt_id": "p1", "tool_name": tool,
        "tool_use_id": id, "tool_input": input, "tool_response": response})
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

/// A search of the session `s` by its hooks, told as having just happened.
async fn search_by_hook(service: &Service, id: &str) {
    let input = json!({"pattern": "parseHook"});
    hook(
        service,
        &told(id, "Grep", &input, &json!({"mode": "files_with_matches", "filenames": [], "numFiles": 0})),
    )
    .await;
}

/// Moves all that the hooks have told so many seconds into the past, as if so much time had gone by since.
async fn let_time_pass(service: &Service, seconds: i64) {
    let mut connection = service.connection().await;
    for sql in [
        "update agent_threads set last_at = last_at - $1, prompted_at = prompted_at - $1, received_at = received_at - $1",
        "update searches set timestamp = timestamp - $1",
        "update fallbacks set timestamp = timestamp - $1",
    ] {
        let passed =
            sqlx::postgres::types::PgInterval { months: 0, days: 0, microseconds: seconds * 1_000_000 };
        sqlx::query(sql).bind(passed).execute(&mut connection).await.expect("moves");
    }
}

#[tokio::test]
async fn a_tool_that_runs_for_longer_than_the_window_does_not_cost_a_hooks_search() {
    let service = Service::open().await;
    let file = json!({"file_path": "/src/app/hook.rs"});
    let content = json!({"type": "text", "file": {"filePath": "x", "content": "y"}});
    let build = json!({"command": "make"});
    for (case, before, after, state) in [
        ("told by its duration", json!(null), json!({"duration_ms": 290_000}), "resolved"),
        ("told before it ran", json!({"hook_event_name": "PreToolUse"}), json!({}), "resolved"),
        ("not told", json!(null), json!({}), "timed_out"),
    ] {
        search_by_hook(&service, &format!("search {case}")).await;
        let made = told(&format!("build {case}"), "Bash", &build, &json!({"stdout": "ok", "stderr": ""}));
        if !before.is_null() {
            hook(&service, &with(made.clone(), &before)).await;
        }
        let_time_pass(&service, 300).await;
        hook(&service, &with(made, &after)).await;
        hook(&service, &told(&format!("read {case}"), "Read", &file, &content)).await;
        hook(&service, &json!({"hook_event_name": "Stop", "session_id": "s", "cwd": "/src/app"})).await;
        let newest = &service.all("/v1/searches").await[0];
        assert_eq!(newest["state"], state, "{case}");
        service.delete("/v1/sessions/s").await.expect(200);
    }
}

#[tokio::test]
async fn a_search_outlives_a_running_tool_though_nothing_comes_in_meanwhile() {
    let service = Service::open().await;
    search_by_hook(&service, "search").await;
    let running = json!({"hook_event_name": "PreToolUse", "session_id": "s", "cwd": "/src/app", "tool_name": "Bash",
        "tool_use_id": "build", "tool_input": {"command": "make"}});
    hook(&service, &running).await;
    let later = |seconds| Timestamp::now().plus(chrono::TimeDelta::seconds(seconds)).expect("a time");
    for (seconds, state) in [(120, "tracking"), (601, "timed_out")] {
        expire(service.pool(), service.keyring(), &mut Failed::default(), later(seconds))
            .await
            .expect("looks");
        assert_eq!(service.all("/v1/searches").await[0]["state"], state, "{seconds}");
    }
}

#[tokio::test]
async fn a_correction_is_a_search_of_its_own_that_names_the_one_it_corrects() {
    let service = Service::open().await;
    let said = |text: &str| json!({"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/src/app", "prompt": text});
    let content = json!({"type": "text", "file": {"filePath": "x", "content": "y"}});
    hook(&service, &said("find the hooks")).await;
    search_by_hook(&service, "t1").await;
    hook(&service, &told("t2", "Read", &json!({"file_path": "/src/app/a.rs"}), &content)).await;
    hook(&service, &json!({"hook_event_name": "Stop", "session_id": "s", "cwd": "/src/app"})).await;
    for _ in 0..2 {
        // A hook and the transcript tell the same prompt.
        hook(&service, &said("Wrong file, look at the other one")).await;
    }
    hook(&service, &told("t3", "Read", &json!({"file_path": "/src/app/b.rs"}), &content)).await;
    hook(&service, &json!({"hook_event_name": "Stop", "session_id": "s", "cwd": "/src/app"})).await;
    let searches = service.all("/v1/searches").await;
    assert_eq!(column(&searches, "state"), ["resolved", "resolved"]);
    assert_eq!(searches[0]["corrects"], searches[1]["id"]);
    assert_eq!(column(searches[0]["results"].as_array().expect("results"), "path"), ["a.rs"]);
    assert_eq!(found(&service, "parseHook").await, ["b.rs"]);
    let changes = service.get("/v1/associations/changes").await.rows();
    let kinds: Vec<_> = changes.iter().map(|change| (&change["path"], &change["kind"])).collect();
    assert!(kinds.contains(&(&json!("a.rs"), &json!("refuted"))), "{kinds:?}");
    // Without the session nothing is left of it.
    service.delete("/v1/sessions/s").await.expect(200);
    assert_eq!(found(&service, "parseHook").await, [] as [Value; 0]);
}

#[tokio::test]
async fn an_agent_is_answered_while_what_it_reported_waits_to_be_written() {
    let service = Service::open().await;
    search_by_hook(&service, "t1").await;
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    sqlx::query("select from agent_threads for update")
        .execute(&mut *holder)
        .await
        .expect("locks the thread");
    let content = json!({"type": "text", "file": {"filePath": "x", "content": "y"}});
    let begun = Instant::now();
    hook(&service, &told("t2", "Read", &json!({"file_path": "/src/app/a.rs"}), &content)).await;
    hook(&service, &json!({"hook_event_name": "Stop", "session_id": "s", "cwd": "/src/app"})).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(service.all("/v1/searches").await[0]["state"], "tracking");
    holder.rollback().await.expect("ends");
    // What waited is written in the order in which it came in.
    eventually("the search is over", async || service.all("/v1/searches").await[0]["state"] == "resolved")
        .await;
}

#[tokio::test]
async fn an_erasure_waits_for_the_reports_that_were_answered_before_it() {
    let service = Service::open().await;
    hook(&service, &json!({"hook_event_name": "Stop", "session_id": "s", "cwd": "/src/app"})).await;
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    sqlx::query("select from agent_threads for update").execute(&mut *holder).await.expect("locks");
    search_by_hook(&service, "t1").await;
    let mut erasure = Box::pin(service.delete("/v1/sessions/s"));
    assert!((&mut erasure).now_or_never().is_none());
    holder.rollback().await.expect("ends");
    assert_eq!(erasure.await.expect(200)["searches"], 1);
    assert_eq!(service.all("/v1/searches").await, [json!(null); 0]);
}

#[tokio::test]
async fn a_server_that_stops_still_stores_the_reports_that_it_has_answered() {
    let service = Service::open().await;
    hook(&service, &json!({"hook_event_name": "Stop", "session_id": "s", "cwd": "/src/app"})).await;
    let running = Running::start(&service.options, Settings { connections: 4, ..Settings::default() });
    let router = router(running.app.clone());
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    sqlx::query("select from agent_threads for update").execute(&mut *holder).await.expect("locks");
    let search =
        told("t1", "Grep", &json!({"pattern": "parseHook"}), &json!({"filenames": [], "numFiles": 0}));
    let report = request(Method::POST, "/v1/hooks/claude-code").header("content-type", "application/json");
    let report = report.body(Body::from(search.to_string())).expect("a request");
    assert_eq!(router.oneshot(report).await.expect("an answer").status(), 200);
    let mut stop = Box::pin(running.finish());
    assert!((&mut stop).now_or_never().is_none());
    holder.rollback().await.expect("ends");
    stop.await;
    assert_eq!(service.all("/v1/searches").await[0]["query"], "parseHook");
}

#[tokio::test]
async fn an_erasure_by_another_server_waits_for_reports_that_are_answered_before_they_are_stored() {
    let one = Service::open().await;
    let other = Service::reached_by(one.options.clone(), settings());
    let searched = |number: usize| {
        let input = json!({"pattern": format!("login {number}"), "path": "/src/app"});
        told(
            &format!("t{number}"),
            "Grep",
            &input,
            &json!({"mode": "files_with_matches", "numFiles": 0, "filenames": []}),
        )
    };
    hook(&one, &searched(0)).await;
    let count = async || -> i64 {
        sqlx::query_scalar("select count(*) from searches").fetch_one(one.pool()).await.expect("a count")
    };
    assert_eq!(count().await, 1);
    let projects = ["a", "b", "c", "d", "e"];
    for project in projects.into_iter().chain(["other"]) {
        one.project(project).await;
    }
    let held = one.holding_back_reports().await;
    for project in projects {
        let project = [("gleaner-project", project)];
        one.call(Method::POST, "/v1/hooks/claude-code", &project, Some(&searched(0))).await.expect(200);
    }
    for number in 1..4 {
        hook(&one, &searched(number)).await;
    }
    let theirs = [("gleaner-project", "other")];
    let theirs = other.call(Method::DELETE, "/v1/records?before=2020-01-01T00:00:00Z", &theirs, None).await;
    assert_eq!(theirs.expect(200)["erased"]["searches"], 0, "that of another project does not wait");
    let release = async {
        // The erasure waits.
        one.blocked(1).await;
        drop(held);
    };
    let (erased, ()) = tokio::join!(other.delete("/v1/sessions/s"), release);
    assert_eq!(erased.expect(200)["searches"], 4);
    // What is left to store would be stored by then.
    one.reports_stored().await;
    assert_eq!(count().await, 5, "those of the other projects are left");
}

#[tokio::test]
async fn an_erasure_of_another_server_does_not_wait_for_the_late_reports_of_other_projects() {
    const SLOW: &str = "
        create function wait() returns trigger language plpgsql as $$ begin
            if new.project = 'slow' then perform pg_advisory_xact_lock(1); end if;
            return new;
        end $$;
        create trigger slow before insert on searches for each row execute function wait()";
    let one = Service::open().await;
    let other = Service::reached_by(one.options.clone(), settings());
    sqlx::raw_sql(SLOW).execute(one.pool()).await.expect("a trigger");
    let input = json!({"pattern": "login", "path": "/src/app"});
    let result = json!({"mode": "files_with_matches", "numFiles": 0, "filenames": []});
    let report = told("t", "Grep", &input, &result);
    let projects = ["slow", "quick"];
    for project in projects {
        one.project(project).await;
    }
    let mut connection = one.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    sqlx::query("select pg_advisory_xact_lock(1)").execute(&mut *holder).await.expect("locks");
    let held = one.holding_back_reports().await;
    for project in projects {
        let project = [("gleaner-project", project)];
        one.call(Method::POST, "/v1/hooks/claude-code", &project, Some(&report)).await.expect(200);
    }
    drop(held);
    let quick = [("gleaner-project", "quick")];
    let erased = other.call(Method::DELETE, "/v1/sessions/s", &quick, None).await;
    assert_eq!(erased.expect(200)["searches"], 1);
    holder.commit().await.expect("ends");
    one.reports_stored().await;
}
