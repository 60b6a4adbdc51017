//! Two projects on one server, one at full load: the other has its turn in everything that they share.

use std::time::Duration;

use axum::http::Method;
use futures_util::future::{Either, join_all, select};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use crate::support::program::{Settings, Turns};
use crate::support::{Service, eventually, settings};

/// The project that leaves the others answered.
const QUIET: [(&str, &str); 1] = [("gleaner-project", "quiet")];

/// A service with a project beside the first one.
async fn two_projects() -> Service {
    let service = Service::open().await;
    service.project("quiet").await;
    service
}

/// The same, but a project has one turn at a time beside others, which lasts until it is given back, and the projects
/// count as such that send requests however slow the machine is.
async fn two_projects_in_turn() -> Service {
    let hour = Duration::from_hours(1);
    let turns = Turns { at_a_time: 1, longest: hour, lately: hour };
    let service = Service::with(Settings { turns, ..settings() }).await;
    service.project("quiet").await;
    service
}

fn log(id: Uuid) -> Value {
    json!({"event": "generation", "id": id, "user_intent": "Create a fund", "domain_name": "cbu", "success": true,
        "final_valid_dsl": "(fund.create)"})
}

#[tokio::test]
async fn an_event_is_in_the_next_batch_however_much_another_project_has_waiting() {
    const WAITING: u64 = 30;
    let service = two_projects().await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table generations in exclusive mode").await.expect("a lock");
    let heavy = join_all((1..=WAITING).map(async |batch| {
        let events: Vec<_> = (0..512).map(|line| log(Uuid::from_u64_pair(batch, line))).collect();
        service.events(&events).await.expect(200);
    }));
    let quiet = async {
        service.queued(WAITING * 512).await;
        let event = json!({"user_intent": "Create a fund", "domain_name": "cbu"});
        service.call(Method::POST, "/v1/generations", &QUIET, Some(&event)).await.expect(201);
    };
    let release = async {
        service.queued(WAITING * 512 + 1).await;
        transaction.commit().await.expect("released");
    };
    futures_util::join!(heavy, quiet, release);
    // Transactions are numbered in the order in which they began to write.
    let sql = "select count(*) from generations where project = 'default' and age(xmin) >
               (select age(xmin) from generations where project = 'quiet')";
    let before: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
    assert!(before <= 2 * 512, "{before} events were written before it: more than the two batches under way");
}

#[tokio::test]
async fn projects_that_read_and_administer_leave_connections_to_look_up_keys_and_projects() {
    let service = two_projects().await;
    for project in ["a", "b", "c"] {
        service.project(project).await;
    }
    let held = service.holding("lock table suggestions in access exclusive mode").await;
    let asks = async |blocked: i64, project: &str, method: Method, path: &str| {
        service.blocked(blocked).await;
        service.call(method, path, &[("gleaner-project", project)], None).await.expect(200);
    };
    let reads = |blocked, project| asks(blocked, project, Method::GET, "/v1/suggestions");
    let quiet = async {
        // These are all four connections for reading, and the one for what administrators do.
        service.blocked(5).await;
        let event = json!({"user_intent": "Create a fund", "domain_name": "cbu"});
        service.call(Method::POST, "/v1/generations", &QUIET, Some(&event)).await.expect(201);
        service.get("/readyz").await.expect(200);
        held.commit().await.expect("released");
    };
    futures_util::join!(
        reads(0, "a"),
        reads(1, "a"),
        reads(2, "b"),
        reads(3, "c"),
        asks(4, "a", Method::DELETE, "/v1/sessions/s"),
        quiet
    );
}

#[tokio::test]
async fn similar_examples_hints_and_memories_are_looked_for_in_turn() {
    let service = two_projects().await;
    for (table, method, path, body) in [
        ("generations", Method::GET, "/v1/generations/similar?intent=Create+a+fund", None),
        ("association_queries", Method::GET, "/v1/associations?query=login+button", None),
        ("association_queries", Method::GET, "/v1/searches/expansions?query=login+button", None),
        (
            "association_queries",
            Method::POST,
            "/v1/searches",
            Some(
                json!({"query": "login button", "best_score": 0.9, "result_count": 1, "agent_session_id": "s"}),
            ),
        ),
        ("memories", Method::GET, "/v1/memories/search?query=login+button", None),
        ("memories", Method::POST, "/v1/conversations/s/suggest", Some(json!({"peek": true}))),
    ] {
        for headers in [&[][..], &QUIET] {
            let asked = json!({"query": "login button"});
            let path = "/v1/conversations/s/queries";
            service.call(Method::POST, path, headers, Some(&asked)).await.expect(201);
        }
        let mut other = service.connection().await;
        let mut transaction = other.begin().await.expect("a transaction");
        let lock = format!("lock table {table} in access exclusive mode");
        sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *transaction).await.expect("a lock");
        // A project has one place, and its others wait for that.
        let heavy = join_all((0..12).map(|_| service.call(method.clone(), path, &[], body.as_ref())));
        let quiet = async {
            eventually("one looks", async || service.looking() == 1).await;
            service.call(method.clone(), path, &QUIET, body.as_ref()).await
        };
        let release = async {
            eventually("both look", async || service.looking() == 2).await;
            transaction.commit().await.expect("released");
        };
        let (heavy, quiet, ()) = futures_util::join!(heavy, quiet, release);
        for answer in heavy.iter().chain([&quiet]) {
            assert!(answer.status.is_success(), "{path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_project_that_reads_leaves_connections_to_others() {
    let service = two_projects().await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table suggestions in access exclusive mode").await.expect("a lock");
    let path = "/v1/suggestions";
    let heavy = join_all((0..12).map(|_| service.get(path)));
    let quiet = async {
        // One project may have half of the four connections.
        service.blocked(2).await;
        let answer = service.call(Method::GET, "/v1/generations", &QUIET, None).await;
        transaction.commit().await.expect("released");
        answer
    };
    let (heavy, quiet) = futures_util::join!(heavy, quiet);
    for answer in heavy.iter().chain([&quiet]) {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test]
async fn whatever_a_project_has_to_do_beside_another_waits_for_its_turn() {
    let service = two_projects_in_turn().await;
    service.accept(&[log(Uuid::from_u128(1))]).await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table suggestions in access exclusive mode").await.expect("a lock");
    let quiet = async |method: Method, path: &str, body: Option<Value>| {
        let answer = service.call(method, path, &QUIET, body.as_ref()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        answer
    };
    quiet(Method::GET, "/v1/generations", None).await;
    let lists = join_all((0..12).map(|_| service.get("/v1/suggestions")));
    let others = async {
        service.blocked(1).await;
        let event = json!({"user_intent": "Create a fund", "domain_name": "cbu"});
        let batch = [log(Uuid::from_u128(2))];
        futures_util::join!(
            service.post("/v1/generations", &event),
            service.events(&batch),
            service.get("/v1/generations/similar?intent=Create+a+fund"),
            service.get("/v1/exports/training-pairs"),
        )
    };
    let beside = async {
        service.blocked(1).await;
        for number in 3..13 {
            let mut event = log(Uuid::from_u128(number));
            event.as_object_mut().expect("an object").remove("event");
            quiet(Method::POST, "/v1/generations", Some(event)).await;
            quiet(Method::GET, "/v1/generations/similar?intent=Create+a+fund", None).await;
            quiet(Method::GET, "/v1/exports/training-pairs", None).await;
            service.blocked(1).await;
        }
        let sql = "select count(*) from generations where project = 'default'";
        let written: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
        assert_eq!(written, 1, "the events of the project with the slow lists wait, too");
        transaction.commit().await.expect("released");
    };
    let (lists, others, ()) = futures_util::join!(lists, others, beside);
    let (event, batch, similar, export) = others;
    for answer in lists.iter().chain([&event, &batch, &similar, &export]) {
        assert!(answer.status.is_success(), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_large_body_and_what_a_hook_reports_wait_for_their_projects_turn() {
    let service = two_projects_in_turn().await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table suggestions in access exclusive mode").await.expect("a lock");
    service.call(Method::GET, "/v1/generations", &QUIET, None).await.expect(200);
    let list = service.get("/v1/suggestions");
    let template = async {
        service.blocked(1).await;
        let long = json!({"template_text": "x".repeat(20 << 10), "domain_name": "cbu"});
        service.put("/v1/prompt-templates/long", &long).await.expect(201);
    };
    let hook = async {
        service.blocked(1).await;
        let report = json!({"hook_event_name": "PreToolUse", "session_id": "s", "tool_use_id": "t", "cwd": "/w",
            "tool_name": "Grep", "tool_input": {"pattern": "login"}});
        service.post("/v1/hooks/claude-code", &report).await.expect(200);
    };
    let beside = async {
        service.blocked(1).await;
        // As long as it takes many other requests to be answered.
        for _ in 0..20 {
            let path = "/v1/generations/similar?intent=Create+a+fund";
            service.call(Method::GET, path, &QUIET, None).await.expect(200);
        }
        let sql = "select (select count(*) from prompt_templates) + (select count(*) from agent_threads)";
        let made: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
        assert_eq!(made, 0);
        transaction.commit().await.expect("released");
    };
    let (list, (), (), ()) = futures_util::join!(list, template, hook, beside);
    list.expect(200);
    eventually("the hook is learned from", async || {
        let sql = "select count(*) from agent_threads";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(service.pool()).await.expect("a count") == 1
    })
    .await;
}

#[tokio::test]
async fn every_request_gives_its_turn_back() {
    let service = two_projects_in_turn().await;
    let batch = [log(Uuid::from_u128(1))];
    service.accept(&batch).await;
    for (method, path, body) in [
        (Method::GET, "/v1/generations", None),
        (Method::GET, "/v1/generations/similar?intent=Create+a+fund", None),
        (Method::GET, "/v1/exports/training-pairs", None),
        (Method::GET, "/v1/exports/training-pairs/profile", None),
        (Method::GET, "/v1/exports/unknown", None),
        (Method::POST, "/v1/events", Some(json!(batch))),
        (
            Method::PUT,
            "/v1/prompt-templates/long",
            Some(json!({"template_text": "x".repeat(20 << 10), "domain_name": "cbu"})),
        ),
        (Method::POST, "/v1/conversations/s/queries", Some(json!({"query": "login button"}))),
        // These read, and then write what they have found.
        (Method::GET, "/v1/memories/search?query=login+button&session_id=s", None),
        (Method::POST, "/v1/conversations/s/suggest", Some(json!({}))),
        (
            Method::POST,
            "/v1/searches",
            Some(json!({"query": "login button", "result_count": 1, "agent_session_id": "s"})),
        ),
    ] {
        for headers in [&QUIET[..], &[], &QUIET, &[]] {
            let answer = service.call(method.clone(), path, headers, body.as_ref()).await;
            assert!(!answer.status.is_server_error(), "{path}: {}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_is_answered_in_everything_beside_another_at_full_load() {
    let service = two_projects().await;
    let solved: Vec<_> = (1..=2_000_u128).map(|n| log(Uuid::from_u128(n))).collect();
    service.accept(&solved).await;
    let heavy = async {
        let mut round = 1 << 64;
        loop {
            round += 1_000;
            let batches = join_all((0..8).map(async |batch| {
                let events: Vec<_> =
                    (0..100).map(|line| log(Uuid::from_u128(round + batch * 100 + line))).collect();
                service.events(&events).await;
            }));
            let similar =
                join_all((0..20).map(|_| service.get("/v1/generations/similar?intent=Create+a+fund")));
            let lists = join_all((0..20).map(|_| service.get("/v1/generations?limit=50")));
            // Two are read, and the rest is refused: that is all the project's places.
            let exports = join_all((0..6).map(|_| service.get("/v1/exports/training-pairs?limit=500")));
            futures_util::join!(batches, similar, lists, exports);
        }
    };
    let quiet = async {
        let call = async |method: Method, path: &str, body: Option<Value>| {
            let answer = service.call(method, path, &QUIET, body.as_ref()).await;
            assert!(answer.status.is_success(), "{path}: {}", answer.text());
        };
        for number in 1..=25_u128 {
            let mut event = log(Uuid::from_u128(number));
            event.as_object_mut().expect("an object").remove("event");
            call(Method::POST, "/v1/generations", Some(event)).await;
            call(Method::GET, "/v1/generations/similar?intent=Create+a+fund", None).await;
            call(Method::GET, "/v1/generations", None).await;
            call(Method::GET, "/v1/exports/training-pairs", None).await;
        }
    };
    match select(Box::pin(heavy), Box::pin(quiet)).await {
        Either::Left((never, _)) => never,
        Either::Right(((), _)) => {}
    }
}

#[tokio::test]
async fn what_waits_for_a_lock_leaves_connections_to_other_projects() {
    let service = two_projects().await;
    let turn = json!({"agent_session_id": "s"});
    for (lock, method, path, body, of_quiet) in [
        (
            "lock table audit in exclusive mode",
            Method::DELETE,
            "/v1/sessions/s",
            None,
            (Method::GET, "/v1/generations", None),
        ),
        (
            "lock table association_feeds in exclusive mode",
            Method::POST,
            "/v1/associations/gone",
            Some(json!({"path": "a.rs"})),
            (Method::POST, "/v1/searches/turn-end", Some(&turn)),
        ),
    ] {
        let mut other = service.connection().await;
        let mut transaction = other.begin().await.expect("a transaction");
        transaction.execute(lock).await.expect("a lock");
        let waiting = join_all((0..20).map(|_| service.call(method.clone(), path, &[], body.as_ref())));
        let quiet = async {
            // All that this kind of work has for one project.
            service.blocked(1).await;
            let (method, path, body) = of_quiet;
            service.call(method, path, &QUIET, body).await.expect(200);
            transaction.commit().await.expect("released");
        };
        let (waited, ()) = futures_util::join!(waiting, quiet);
        for answer in waited {
            answer.expect(200);
        }
    }
}

#[tokio::test]
async fn an_export_has_what_was_acknowledged_whatever_another_project_is_writing() {
    let service = two_projects().await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table memories in exclusive mode").await.expect("a lock");
    let memory = json!({"content": "It takes a while"});
    let slow = service.post("/v1/memories", &memory);
    let quiet = async {
        service.blocked(1).await;
        let mut log = log(Uuid::from_u128(1));
        log.as_object_mut().map(|log| log.remove("event"));
        service.call(Method::POST, "/v1/generations", &QUIET, Some(&log)).await.expect(201);
        let path = "/v1/exports/training-pairs";
        let rows = service.call(Method::GET, path, &QUIET, None).await.rows().len();
        let own = service.get(path).await.rows().len();
        transaction.commit().await.expect("released");
        (rows, own)
    };
    let (slow, rows) = futures_util::join!(slow, quiet);
    slow.expect(201);
    assert_eq!(rows, (1, 0));
}
