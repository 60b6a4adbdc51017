//! Searches: followed while they are weak, learned from when they are over; associations, their feed, expansions, figures.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::program::{Timestamp, expire};
use crate::support::{Answer, Service, assert_close, column, encoded, scrub, with};

/// A weak search of the session `s`, so many seconds after midnight.
fn weak(query: &str, at: i64) -> Value {
    json!({"query": query, "best_score": 0.42, "result_count": 1, "results": [{"path": "Button.tsx", "score": 0.42}],
        "agent_session_id": "s", "root": "/src/app", "timestamp": MIDNIGHT + at})
}

const MIDNIGHT: i64 = 1_767_225_600;

fn read(path: &str, at: i64) -> Value {
    json!({"kind": "read", "path": path, "timestamp": MIDNIGHT + at})
}

fn grep(pattern: &str, at: i64) -> Value {
    json!({"kind": "grep", "pattern": pattern, "timestamp": MIDNIGHT + at})
}

fn edit(path: &str, at: i64) -> Value {
    json!({"kind": "edit", "path": path, "timestamp": MIDNIGHT + at})
}

async fn start(service: &Service, search: Value) -> String {
    format!("/v1/searches/{}", service.create("/v1/searches", search).await)
}

async fn append(service: &Service, search: &str, fallback: &Value) -> Answer {
    service.post(&format!("{search}/fallbacks"), fallback).await
}

async fn resolve(service: &Service, search: &str, at: i64) -> Value {
    service.post(&format!("{search}/resolve"), &json!({"timestamp": MIDNIGHT + at})).await.expect(200)
}

/// Searches, reads these files a second after each other, and ends the turn.
async fn find(service: &Service, search: Value, files: &[&str]) -> Value {
    let at = search["timestamp"].as_i64().expect("a time") - MIDNIGHT;
    let search = start(service, search).await;
    for (after, file) in (1..).zip(files) {
        append(service, &search, &read(file, at + after)).await.expect(201);
    }
    resolve(service, &search, at + 30).await
}

async fn associations(service: &Service, query: &str) -> Vec<Value> {
    let found = service.get(&format!("/v1/associations?query={}", encoded(query))).await.expect(200);
    found["data"].as_array().expect("data").clone()
}

async fn paths(service: &Service, query: &str) -> Vec<Value> {
    column(&associations(service, query).await, "path")
}

#[tokio::test]
async fn a_component_found_by_hand_is_found_at_once_the_next_time() {
    let service = Service::open().await;
    let started = service.post("/v1/searches", &weak("login button component", 0)).await;
    let search = started.header("location").expect("a location").to_owned();
    let expected = json!({
        "id": "id-1", "query": "login button component", "best_score": 0.42, "result_count": 1,
        "results": [{"path": "Button.tsx", "score": 0.42}], "agent_session_id": "s", "agent_id": null, "turn_id": null,
        "root": "/src/app", "timestamp": "time", "state": "tracking", "ended_at": null,
        "fallbacks": [], "hints": [], "associations": [],
    });
    assert_eq!(scrub(&started.expect(201)), expected);
    append(&service, &search, &grep("login.*button", 2)).await.expect(201);
    let file = "/src/app/src/features/auth/LoginButton.tsx";
    let appended = append(&service, &search, &read(file, 4)).await.expect(201);
    let read = json!({"search_id": "id-2", "state": "tracking", "id": "id-1", "kind": "read",
        "path": "src/features/auth/LoginButton.tsx", "pattern": null, "ok": true, "timestamp": "time", "share": 1.0,
        "counts": true});
    assert_eq!(scrub(&appended), read);
    let resolved = resolve(&service, &search, 9).await;
    assert_eq!(resolved["state"], "resolved");
    assert_eq!(
        column(resolved["associations"].as_array().expect("some"), "path"),
        ["src/features/auth/LoginButton.tsx"]
    );
    assert_eq!(service.get(&search).await.expect(200)["fallbacks"], resolved["fallbacks"]);

    let next = service.post("/v1/searches", &weak("login button", 3_600)).await.expect(201);
    let hint = &next["hints"][0];
    assert_eq!(
        (&hint["path"], &hint["query"], &hint["root"], &hint["evidence"]),
        (
            &json!("src/features/auth/LoginButton.tsx"),
            &json!("login button component"),
            &json!("/src/app"),
            &json!(1)
        )
    );
    let stored =
        service.get(&format!("/v1/searches/{}", next["id"].as_str().expect("an id"))).await.expect(200);
    assert_eq!(column(stored["hints"].as_array().expect("hints"), "id"), [hint["id"].clone()]);
}

#[tokio::test]
async fn an_endpoint_found_by_hand_is_found_by_fewer_words() {
    let service = Service::open().await;
    let search = json!({"query": "user creation endpoint", "best_score": 0.38, "result_count": 3});
    let search = start(&service, search).await;
    append(&service, &search, &json!({"kind": "grep", "pattern": "createUser|user.*create"}))
        .await
        .expect(201);
    append(&service, &search, &json!({"kind": "read", "path": "src/api/routes/users.ts"})).await.expect(201);
    let resolved = service.post(&format!("{search}/resolve"), &json!({})).await.expect(200);
    assert_eq!(resolved["state"], "resolved");
    assert_eq!(paths(&service, "user creation").await, ["src/api/routes/users.ts"]);
    assert_eq!(paths(&service, "colour of the footer").await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_search_is_tracked_only_if_its_best_score_is_under_the_threshold() {
    let service = Service::open().await;
    for (search, state, score) in [
        (json!({"best_score": 0.649, "result_count": 1}), "tracking", json!(0.649)),
        (json!({"best_score": 0.65, "result_count": 1}), "strong", json!(0.65)),
        (json!({"best_score": 0.9, "result_count": 0}), "tracking", json!(0.0)),
        (json!({}), "tracking", json!(0.0)),
        (
            json!({"results": [{"path": "a", "score": 0.2}, {"path": "b", "score": 0.8}]}),
            "strong",
            json!(0.8),
        ),
        (json!({"results": [{"path": "a"}]}), "strong", Value::Null),
    ] {
        let body = with(search.clone(), &json!({"query": "q"}));
        let made = service.post("/v1/searches", &body).await.expect(201);
        assert_eq!((&made["state"], &made["best_score"]), (&json!(state), &score), "{search}");
    }
    let settings = json!({"searches": {"score_threshold": 0.3}});
    let project = service.put("/v1/projects/default", &settings).await.expect(200);
    assert_eq!(project["searches"]["score_threshold"], 0.3);
    let made = service.post("/v1/searches", &json!({"query": "q", "best_score": 0.42})).await.expect(201);
    assert_eq!(made["state"], "strong");
    let path = format!("/v1/searches/{}", made["id"].as_str().expect("an id"));
    append(&service, &path, &read("a.rs", 0)).await.refused(409, &[]);
}

#[tokio::test]
async fn silence_ends_a_session_and_what_comes_after_it_does_not_count() {
    let service = Service::open().await;
    let long = start(&service, weak("login button", 0)).await;
    for (file, at) in [("a.rs", 60), ("b.rs", 120), ("c.rs", 180)] {
        let appended = append(&service, &long, &read(file, at)).await.expect(201);
        assert_eq!((&appended["state"], &appended["counts"]), (&json!("tracking"), &json!(true)), "{file}");
    }
    let late = append(&service, &long, &read("d.rs", 241)).await.expect(201);
    assert_eq!((&late["state"], &late["counts"]), (&json!("resolved"), &json!(false)));
    let ended = service.get(&long).await.expect(200);
    assert_eq!(ended["ended_at"], "2026-01-01T00:03:00.000000Z");
    let found = column(ended["associations"].as_array().expect("associations"), "path");
    assert_eq!(found, ["c.rs", "b.rs", "a.rs"]);
    append(&service, &long, &read("e.rs", 242)).await.refused(409, &[]);
    assert_eq!(resolve(&service, &long, 250).await, service.get(&long).await.expect(200));

    let empty = start(&service, with(weak("logout button", 0), &json!({"agent_session_id": "t"}))).await;
    assert_eq!(resolve(&service, &empty, 61).await["state"], "timed_out");
    let empty = start(&service, with(weak("logout button", 0), &json!({"agent_session_id": "u"}))).await;
    assert_eq!(resolve(&service, &empty, 60).await["state"], "unresolved");
}

#[tokio::test]
async fn another_turn_of_the_same_agent_ends_the_searches_of_the_turn_before() {
    let service = Service::open().await;
    let turn = |turn: &str, agent: Value| json!({"turn_id": turn, "agent_id": agent});
    let first = start(&service, with(weak("login button", 0), &turn("1", Value::Null))).await;
    let aside = start(&service, with(weak("login button", 1), &turn("1", json!("sub")))).await;
    append(&service, &first, &read("a.rs", 2)).await.expect(201);
    start(&service, with(weak("logout", 3), &turn("1", Value::Null))).await;
    assert_eq!(service.get(&first).await.expect(200)["state"], "tracking");
    start(&service, with(weak("sign up", 4), &turn("2", Value::Null))).await;
    assert_eq!(service.get(&first).await.expect(200)["state"], "resolved");
    assert_eq!(service.get(&aside).await.expect(200)["state"], "tracking");
    let states = service.all("/v1/searches?agent_session_id=s").await;
    assert_eq!(column(&states, "state"), ["tracking", "unresolved", "tracking", "resolved"]);
    assert_eq!(service.all("/v1/searches?state=tracking&limit=1").await.len(), 2);
}

#[tokio::test]
async fn a_read_counts_for_every_open_search_and_more_for_the_one_it_resembles() {
    let service = Service::open().await;
    let button = start(&service, weak("login button", 0)).await;
    let price = start(&service, weak("invoice total", 1)).await;
    append(&service, &button, &read("billing/invoice.rs", 2)).await.expect(201);
    append(&service, &price, &read("auth/LoginButton.tsx", 3)).await.expect(201);
    let shares = async |search: &str| {
        let fallbacks = service.get(search).await.expect(200)["fallbacks"].clone();
        column(fallbacks.as_array().expect("fallbacks"), "share")
    };
    let (of_button, of_price) = (shares(&button).await, shares(&price).await);
    // The first was said to be about the button, and is like the other; the second the other way round.
    assert_close(&json!(of_button), &json!([1.25 / 2.0, 1.25 / 2.5]));
    assert_close(&json!(of_price), &json!([0.75 / 2.0, 1.25 / 2.5]));
    resolve(&service, &button, 9).await;
    append(&service, &price, &read("billing/total.rs", 10)).await.expect(201);
    assert_eq!(shares(&price).await[2], 1.0);
}

#[tokio::test]
async fn what_failed_and_what_was_offered_already_teaches_nothing() {
    let service = Service::open().await;
    let failed = with(read("nowhere.rs", 1), &json!({"ok": false}));
    let search = start(&service, weak("login button", 0)).await;
    append(&service, &search, &failed).await.expect(201);
    append(&service, &search, &read("/src/app/Button.tsx", 2)).await.expect(201);
    append(&service, &search, &grep("login", 3)).await.expect(201);
    let ended = resolve(&service, &search, 9).await;
    assert_eq!((&ended["state"], &ended["associations"]), (&json!("unresolved"), &json!([])));

    service.put("/v1/projects/default", &json!({"searches": {"min_fallback_reads": 2}})).await.expect(200);
    for (files, state) in [(&["a.rs", "a.rs"][..], "unresolved"), (&["a.rs", "b.rs"], "resolved")] {
        assert_eq!(find(&service, weak("login button", 100), files).await["state"], state, "{files:?}");
    }
}

#[tokio::test]
async fn what_was_edited_weighs_most_and_then_what_was_read_last() {
    let service = Service::open().await;
    let search = start(&service, weak("login button", 0)).await;
    for (file, at) in [("first.rs", 1), ("second.rs", 2), ("third.rs", 3)] {
        append(&service, &search, &read(file, at)).await.expect(201);
    }
    append(&service, &search, &edit("first.rs", 4)).await.expect(201);
    resolve(&service, &search, 9).await;
    let found = associations(&service, "login button").await;
    assert_eq!(column(&found, "path"), ["first.rs", "third.rs", "second.rs"]);
    let first = found[0]["weight"].as_f64().expect("a weight");
    let second = found[2]["weight"].as_f64().expect("a weight");
    assert!((first / second - 4.0 / 1.5).abs() < 1e-6, "{found:?}");
}

#[tokio::test]
async fn weight_halves_with_every_half_life_and_old_associations_are_still_found() {
    let service = Service::open().await;
    let settings = json!({"searches": {"half_life_days": 10}});
    service.put("/v1/projects/default", &settings).await.expect(200);
    let now = chrono::Utc::now().timestamp();
    let day = 86_400;
    for (query, age) in [
        ("login button", 0),
        ("invoice total", 10 * day),
        ("parser of hooks", 20 * day),
        ("colours", 9_000 * day),
    ] {
        find(&service, with(weak(query, 0), &json!({"timestamp": now - age - 31})), &["a.rs"]).await;
    }
    let weight =
        async |query: &str| associations(&service, query).await[0]["weight"].as_f64().expect("a weight");
    let fresh = weight("login button").await;
    assert!((fresh - 2.0).abs() < 0.01, "{fresh}");
    assert!((weight("invoice total").await * 2.0 / fresh - 1.0).abs() < 0.01);
    assert!((weight("parser of hooks").await * 4.0 / fresh - 1.0).abs() < 0.01);
    let old = weight("colours").await;
    assert!(old > 0.0 && old < 1e-29, "{old}");
}

#[tokio::test]
async fn evidence_adds_up_the_same_in_whatever_order_it_comes() {
    let service = Service::open().await;
    for project in ["one", "two"] {
        service.project(project).await;
    }
    let ages = [0, 3_000_000, 100, 86_400];
    let mut weights = Vec::new();
    for (project, ages) in [("one", ages.to_vec()), ("two", ages.iter().rev().copied().collect())] {
        let headers = [("gleaner-project", project)];
        for age in ages {
            let events = [
                with(weak("login button", -age), &json!({"event": "search", "id": derived(project, age)})),
                with(
                    read("a.rs", 1 - age),
                    &json!({"event": "fallback", "search_id": derived(project, age)}),
                ),
                json!({"event": "search_outcome", "search_id": derived(project, age), "timestamp": MIDNIGHT + 2 - age}),
            ];
            let answer = service.call(Method::POST, "/v1/events", &headers, Some(&json!(events))).await;
            assert_eq!(answer.expect(200), json!({"accepted": 3, "duplicates": 0, "rejected": []}));
        }
        let found = service.call(Method::GET, "/v1/associations?query=login%20button", &headers, None).await;
        weights.push(found.expect(200)["data"][0].clone());
    }
    assert_eq!(weights[0]["evidence"], 4);
    let [one, two] = [0, 1].map(|place: usize| weights[place]["weight"].as_f64().expect("a weight"));
    assert!((one / two - 1.0).abs() < 1e-3, "{one} {two}");
}

fn derived(project: &str, age: i64) -> Uuid {
    Uuid::from_u64_pair(u64::from(project.as_bytes()[0]), age.unsigned_abs())
}

#[tokio::test]
async fn feedback_moves_the_weight_and_sent_again_moves_it_once() {
    let service = Service::open().await;
    let now = chrono::Utc::now().timestamp();
    find(&service, with(weak("login button", 0), &json!({"timestamp": now - 31})), &["a.rs", "b.rs"]).await;
    let before = associations(&service, "login button").await;
    assert_eq!(column(&before, "path"), ["b.rs", "a.rs"]);
    let path = format!("/v1/associations/{}/feedback", before[0]["id"].as_str().expect("an id"));
    for _ in 0..2 {
        let headers = [("idempotency-key", "k")];
        let verdict = json!({"verdict": "wrong"});
        let weighed = service.call(Method::POST, &path, &headers, Some(&verdict)).await.expect(200);
        assert_close(&json!((weighed["weight"].as_f64().expect("a weight") * 100.0).round()), &json!(0.0));
        assert_eq!(weighed["evidence"], 1);
    }
    assert_eq!(paths(&service, "login button").await, ["a.rs", "b.rs"]);
    service.post(&path, &json!({"verdict": "wrong"})).await.expect(200);
    let next = service.post("/v1/searches", &weak("login button", 3_600)).await.expect(201);
    assert_eq!(column(next["hints"].as_array().expect("hints"), "path"), ["a.rs"]);
    for _ in 0..5 {
        service.post(&path, &json!({"verdict": "useful"})).await.expect(200);
    }
    assert_eq!(paths(&service, "login button").await, ["b.rs", "a.rs"]);
    service.post(&path, &json!({"verdict": "bad"})).await.refused(422, &["/verdict"]);
    let nowhere = format!("/v1/associations/{}/feedback", Uuid::new_v4());
    service.post(&nowhere, &json!({"verdict": "wrong"})).await.refused(404, &[]);
}

#[tokio::test]
async fn hints_that_are_read_gain_and_those_that_are_not_lose() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs", "b.rs"]).await;
    let before = associations(&service, "login button").await;
    find(&service, weak("the login button", 1_000), &["a.rs"]).await;
    find(&service, weak("the login button", 2_000), &["b.rs", "c.rs"]).await;
    let unhelped = start(&service, weak("invoice total", 3_000)).await;
    resolve(&service, &unhelped, 3_001).await;
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    let expected = json!({
        "enabled": true, "sessions_started": 4, "sessions_resolved": 3, "sessions_unresolved": 1, "sessions_timeout": 0,
        "active_sessions": 0, "strong_searches": 0, "files_learned": 3, "associations_created": 5, "errors": 0,
        "hints": {"searches_hinted": 2, "searches_helped": 2, "hint_rate": 0.5, "read_rate": 1.0,
            "hints_shown": 5, "hints_read": 2},
    });
    assert_eq!(figures, expected);
    let weight = |rows: &[Value], path: &str| {
        rows.iter().find(|row| row["path"] == path && row["query"] == "login button").expect("there")["weight"].as_f64()
    };
    let after = associations(&service, "login button").await;
    // Each was read once and passed over once, but decay is the same for both.
    for path in ["a.rs", "b.rs"] {
        let (old, new) = (weight(&before, path).expect("a weight"), weight(&after, path).expect("a weight"));
        assert!(new > old, "{path}: {old} {new}");
    }
}

#[tokio::test]
async fn a_file_that_is_gone_is_told_no_more_until_it_is_found_again() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["auth/a.rs", "b.rs"]).await;
    find(&service, weak("login form", 100), &["auth/a.rs"]).await;
    let file = json!({"root": "/src/app/", "path": "/src/app/auth/a.rs"});
    assert_eq!(service.post("/v1/associations/gone", &file).await.expect(200), json!({"gone": 2}));
    assert_eq!(service.post("/v1/associations/gone", &file).await.expect(200), json!({"gone": 0}));
    assert_eq!(paths(&service, "login button").await, ["b.rs"]);
    find(&service, weak("login form", 200), &["auth/a.rs"]).await;
    let found = associations(&service, "login form").await;
    assert_eq!((&found[0]["path"], &found[0]["evidence"]), (&json!("auth/a.rs"), &json!(2)));
    let elsewhere = json!({"root": "/src/other", "path": "b.rs"});
    assert_eq!(service.post("/v1/associations/gone", &elsewhere).await.expect(200), json!({"gone": 0}));
}

#[tokio::test]
async fn a_folder_knows_only_its_own_associations() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs"]).await;
    find(&service, with(weak("login button", 100), &json!({"root": "/src/other"})), &["b.rs"]).await;
    let of = async |root: &str| {
        let path = format!("/v1/associations?query=login%20button&root={}", encoded(root));
        let found = service.get(&path).await.expect(200);
        column(found["data"].as_array().expect("data"), "path")
    };
    assert_eq!(of("/src/app").await, ["a.rs"]);
    assert_eq!(of("/src/./other/").await, ["b.rs"]);
    assert_eq!(of("/src").await, [] as [Value; 0]);
    assert_eq!(paths(&service, "login button").await.len(), 2);
    assert_eq!(
        service.get("/v1/associations?query=login%20button&limit=1").await.expect(200)["data"]
            .as_array()
            .expect("data")
            .len(),
        1
    );
}

#[tokio::test]
async fn a_follower_of_the_changes_misses_none_and_gets_none_twice() {
    let service = Service::open().await;
    let follow = async |cursor: i64, limit: i64| {
        let answer = service.get(&format!("/v1/associations/changes?cursor={cursor}&limit={limit}")).await;
        let next = answer.header("gleaner-next-cursor").expect("a cursor").parse::<i64>().expect("a number");
        (answer.rows(), next)
    };
    assert_eq!(follow(0, 10).await, (vec![], 0));
    find(&service, weak("login button", 0), &["a.rs", "b.rs"]).await;
    let (rows, next) = follow(0, 1).await;
    assert_eq!((column(&rows, "change"), next), (vec![json!(1)], 1));
    let (rest, next) = follow(next, 10).await;
    assert_eq!((column(&rest, "change"), next), (vec![json!(2)], 2));
    let mut known: Vec<_> = rows.iter().chain(&rest).map(|row| row["path"].clone()).collect();
    known.sort_by_key(ToString::to_string);
    assert_eq!(known, ["a.rs", "b.rs"]);
    assert_eq!(follow(next, 10).await, (vec![], 2));

    service.post("/v1/associations/gone", &json!({"root": "/src/app", "path": "a.rs"})).await.expect(200);
    let (rows, next) = follow(next, 10).await;
    assert_eq!((column(&rows, "kind"), column(&rows, "path")), (vec![json!("gone")], vec![json!("a.rs")]));
    service.delete("/v1/sessions/s").await.expect(200);
    let (rows, next) = follow(next, 10).await;
    assert_eq!(column(&rows, "kind"), ["erased", "erased"]);
    assert_eq!(rows[0].as_object().expect("an object").keys().collect::<Vec<_>>(), ["change", "id", "kind"]);
    assert_eq!(follow(next, 10).await, (vec![], next));
}

#[tokio::test]
async fn changes_made_at_the_same_time_appear_in_the_order_of_their_numbers() {
    let service = Service::open().await;
    let finders = (0..20).map(|finder| {
        let service = &service;
        async move {
            for at in 0..5 {
                let session = json!({"agent_session_id": finder.to_string()});
                find(service, with(weak("login button", at * 100), &session), &["a.rs", "b.rs", "c.rs"])
                    .await;
            }
        }
    });
    let done = AtomicBool::new(false);
    let all = async {
        futures_util::future::join_all(finders).await;
        done.store(true, Ordering::SeqCst);
    };
    let follower = async {
        let mut seen = vec![0];
        loop {
            let last = done.load(Ordering::SeqCst);
            let cursor = seen[seen.len() - 1];
            let answer = service.get(&format!("/v1/associations/changes?cursor={cursor}&limit=2")).await;
            let rows = answer.rows();
            seen.extend(rows.iter().map(|row| row["change"].as_i64().expect("a number")));
            if last && rows.is_empty() {
                return seen;
            }
        }
    };
    let ((), seen) = tokio::join!(all, follower);
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    let all = service.get("/v1/associations/changes").await.rows();
    assert!(
        column(&all, "change").iter().all(|change| seen.contains(&change.as_i64().expect("a number"))),
        "{seen:?}"
    );
    // Three associations, each found a hundred times.
    assert_eq!(column(&associations(&service, "login button").await, "evidence"), [100, 100, 100]);
}

#[tokio::test]
async fn patterns_that_led_to_the_answer_are_told_for_similar_queries() {
    let service = Service::open().await;
    let search = start(&service, weak("login button component", 0)).await;
    append(&service, &search, &grep("login.*button", 1)).await.expect(201);
    append(&service, &search, &json!({"kind": "glob", "pattern": "**/Login*", "timestamp": MIDNIGHT + 2}))
        .await
        .expect(201);
    append(&service, &search, &read("auth/LoginButton.tsx", 3)).await.expect(201);
    append(&service, &search, &grep("too late", 4)).await.expect(201);
    resolve(&service, &search, 9).await;
    let expansions = service.get("/v1/searches/expansions?query=login%20button").await.expect(200);
    let rows = expansions["data"].as_array().expect("data");
    assert_eq!(column(rows, "pattern"), ["**/Login*", "login.*button"]);
    let score = rows[0]["score"].as_f64().expect("a score");
    let expected = json!({"pattern": "**/Login*", "query": "login button component", "score": score, "evidence": 1,
        "last_seen_at": "2026-01-01T00:00:02.000000Z"});
    assert_eq!(rows[0], expected);
    let other = service.get("/v1/searches/expansions?query=invoice").await.expect(200);
    assert_eq!(other, json!({"data": []}));
}

#[tokio::test]
async fn a_search_and_its_fallbacks_sent_again_are_the_same() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let body = with(weak("login button", 0), &json!({"id": id}));
    let first = service.post("/v1/searches", &body).await.expect(201);
    assert_eq!(service.post("/v1/searches", &body).await.expect(200), first);
    service.post("/v1/searches", &with(body.clone(), &json!({"query": "other"}))).await.refused(409, &[]);
    let search = format!("/v1/searches/{id}");
    let fallback = append(&service, &search, &read("a.rs", 1)).await.expect(201);
    let named = with(read("b.rs", 2), &json!({"id": Uuid::new_v4()}));
    append(&service, &search, &named).await.expect(201);
    let resolved = resolve(&service, &search, 9).await;
    assert_eq!(append(&service, &search, &read("a.rs", 1)).await.expect(200)["id"], fallback["id"]);
    append(&service, &search, &named).await.expect(200);
    append(&service, &search, &with(named.clone(), &json!({"path": "c.rs"}))).await.refused(409, &[]);
    assert_eq!(resolve(&service, &search, 9).await, resolved);
    assert_eq!(service.post("/v1/searches", &body).await.expect(200)["state"], "resolved");
    let headers = [("idempotency-key", "k")];
    let one = service.call(Method::POST, "/v1/searches", &headers, Some(&weak("q", 0))).await.expect(201);
    let two = service.call(Method::POST, "/v1/searches", &headers, Some(&weak("q", 0))).await.expect(200);
    assert_eq!(one["id"], two["id"]);
    for path in [format!("/v1/searches/{}", Uuid::new_v4())] {
        service.get(&path).await.refused(404, &[]);
        append(&service, &path, &read("a.rs", 1)).await.refused(404, &[]);
        service.post(&format!("{path}/resolve"), &json!({})).await.refused(404, &[]);
    }
}

#[tokio::test]
async fn a_batch_does_what_the_single_requests_do() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let events = [
        with(weak("login button", 0), &json!({"event": "search", "id": id})),
        with(read("a.rs", 1), &json!({"event": "fallback", "search_id": id})),
        json!({"event": "search_outcome", "search_id": id, "timestamp": MIDNIGHT + 2}),
        json!({"event": "generation", "user_intent": "Create a fund", "domain_name": "cbu"}),
    ];
    service.accept(&events).await;
    assert_eq!(service.events(&events[..3]).await.expect(200)["duplicates"], 3);
    assert_eq!(paths(&service, "login button").await, ["a.rs"]);
    let wrong = [
        json!({"event": "fallback", "kind": "read", "path": "a.rs"}),
        json!({"event": "fallback", "generation_id": id, "kind": "read", "path": "a.rs"}),
        json!({"event": "search", "search_id": id, "query": "q"}),
        json!({"event": "search", "query": ""}),
        json!({"event": "search_outcome", "search_id": Uuid::new_v4()}),
    ];
    let summary = service.events(&wrong).await.expect(200);
    let pointers = summary["rejected"]
        .as_array()
        .expect("rejected")
        .iter()
        .map(|line| line["errors"][0]["pointer"].clone());
    assert_eq!(
        pointers.collect::<Vec<_>>(),
        [json!("/search_id"), json!("/generation_id"), json!("/search_id"), json!("/query"), Value::Null]
    );
}

#[tokio::test]
async fn a_search_that_cannot_be_is_refused_by_its_fields() {
    let service = Service::open().await;
    for (body, pointer) in [
        (json!({}), "/query"),
        (json!({"query": ""}), "/query"),
        (json!({"query": "q".repeat(2_001)}), "/query"),
        (json!({"query": "q", "result_count": -1}), "/result_count"),
        (json!({"query": "q", "results": [{"path": ""}]}), "/results/0/path"),
        (json!({"query": "q", "results": [{"path": "a", "line": 1}]}), "/results/0/line"),
        (json!({"query": "q", "agent_session_id": ""}), "/agent_session_id"),
        (json!({"query": "q", "timestamp": "soon"}), "/timestamp"),
        (json!({"query": "q", "depth": 1}), "/depth"),
    ] {
        service.post("/v1/searches", &body).await.refused(422, &[pointer]);
    }
    let search = start(&service, weak("q", 0)).await;
    for (body, pointer) in [
        (json!({"path": "a"}), "/kind"),
        (json!({"kind": "read"}), "/path"),
        (json!({"kind": "read", "path": ""}), "/path"),
        (json!({"kind": "read", "path": "a", "pattern": "b"}), "/pattern"),
        (json!({"kind": "grep", "path": "a"}), "/pattern"),
        (json!({"kind": "write", "path": "a"}), "/kind"),
    ] {
        append(&service, &search, &body).await.refused(422, &[pointer]);
    }
    for (path, pointer) in [
        ("/v1/associations", "/query"),
        ("/v1/associations?query=q&limit=101", "/limit"),
        ("/v1/searches/expansions", "/query"),
        ("/v1/associations/changes?cursor=-1", "/cursor"),
        ("/v1/searches?state=open", "/state"),
    ] {
        service.get(path).await.refused(422, &[pointer]);
    }
    for (settings, pointer) in [
        (json!({"session_timeout": 0}), "/searches/session_timeout"),
        (json!({"min_fallback_reads": 0}), "/searches/min_fallback_reads"),
        (json!({"half_life_days": 0}), "/searches/half_life_days"),
        (json!({"tools": [""]}), "/searches/tools/0"),
        (json!({"window": 60}), "/searches/window"),
    ] {
        service.put("/v1/projects/default", &json!({"searches": settings})).await.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn searches_of_an_agent_that_went_silent_end_by_themselves() {
    let service = Service::open().await;
    let found = start(&service, weak("login button", 0)).await;
    append(&service, &found, &read("a.rs", 1)).await.expect(201);
    let lost = start(&service, with(weak("logout", 0), &json!({"agent_session_id": "t"}))).await;
    let seconds = |seconds| Timestamp::now().plus(chrono::TimeDelta::seconds(seconds)).expect("a time");
    let next = expire(service.pool(), service.keyring(), seconds(0)).await.expect("looks");
    assert!(next.expect("some are open") <= std::time::Duration::from_mins(1));
    assert_eq!(service.get(&found).await.expect(200)["state"], "tracking");
    let next = expire(service.pool(), service.keyring(), seconds(62)).await.expect("ends them");
    assert_eq!(next, None);
    let ended = service.get(&found).await.expect(200);
    assert_eq!(
        (&ended["state"], &ended["ended_at"]),
        (&json!("resolved"), &json!("2026-01-01T00:00:01.000000Z"))
    );
    assert_eq!(service.get(&lost).await.expect(200)["state"], "timed_out");
    assert_eq!(paths(&service, "login button").await, ["a.rs"]);

    service.put("/v1/projects/default", &json!({"searches": {"session_timeout": 1}})).await.expect(200);
    let soon = start(&service, weak("sign up", 100)).await;
    while service.get(&soon).await.expect(200)["state"] != "timed_out" {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn without_learning_sessions_are_followed_and_nothing_is_learned() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"searches": {"learn": false}})).await.expect(200);
    let ended = find(&service, weak("login button", 0), &["a.rs"]).await;
    assert_eq!((&ended["state"], &ended["associations"]), (&json!("resolved"), &json!([])));
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    assert_eq!((&figures["enabled"], &figures["associations_created"]), (&json!(false), &json!(0)));
}

#[tokio::test]
async fn erasing_a_session_takes_away_what_it_alone_has_taught() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs", "b.rs"]).await;
    let alone = associations(&service, "login button").await;
    let secret = with(weak("login secretword", 100), &json!({"agent_session_id": "t"}));
    find(&service, with(weak("login button", 100), &json!({"agent_session_id": "t"})), &["b.rs", "c.rs"])
        .await;
    find(&service, secret, &["secretfile.rs"]).await;
    let sessions = service.get("/v1/sessions").await.expect(200)["data"].clone();
    assert_eq!(
        (
            column(sessions.as_array().expect("sessions"), "session"),
            column(sessions.as_array().expect("sessions"), "searches")
        ),
        (vec![json!("t"), json!("s")], vec![json!(2), json!(1)])
    );
    let erased = service.delete("/v1/sessions/t").await.expect(200);
    assert_eq!(erased, json!({"generations": 0, "attempts": 0, "suggestions": 0, "searches": 2}));
    let dump = service.dump().await;
    assert!(!dump.contains("secret"), "{dump}");
    let left = associations(&service, "login button").await;
    let stable =
        |rows: &[Value]| rows.iter().map(|row| with(row.clone(), &json!({"weight": 0}))).collect::<Vec<_>>();
    assert_eq!(stable(&left), stable(&alone));
    for (left, alone) in left.iter().zip(&alone) {
        let (left, alone) =
            (left["weight"].as_f64().expect("a weight"), alone["weight"].as_f64().expect("a weight"));
        assert!((left / alone - 1.0).abs() < 1e-3, "{left} {alone}");
    }
    service.delete("/v1/sessions/s").await.expect(200);
    assert_eq!(associations(&service, "login button").await, [] as [Value; 0]);
    assert_eq!(service.all("/v1/searches").await, [] as [Value; 0]);
}

#[tokio::test]
async fn search_pairs_have_the_answer_and_what_did_not_help() {
    let service = Service::open().await;
    let results = json!([{"path": "Button.tsx", "score": 0.42}, {"path": "Link.tsx", "score": 0.4}]);
    let search = with(weak("login button", 0), &json!({"results": results, "result_count": 2}));
    find(&service, search, &["auth/LoginButton.tsx", "Link.tsx"]).await;
    find(&service, with(weak("logout", 100), &json!({"results": [], "root": null})), &["a.rs", "b.rs"]).await;
    let rows = service.get("/v1/exports/search-pairs").await.rows();
    let unhelpful = json!(["Button.tsx", "Link.tsx"]);
    assert_eq!(
        rows,
        [
            json!({"query": "login button", "path": "auth/LoginButton.tsx", "unhelpful": unhelpful, "root": "/src/app"}),
            json!({"query": "logout", "path": "b.rs", "unhelpful": [], "root": null}),
            json!({"query": "logout", "path": "a.rs", "unhelpful": [], "root": null}),
        ]
    );
    let triplets = service.get("/v1/exports/search-pairs.jsonl?format=triplets").await.rows();
    assert_eq!(
        triplets,
        [
            json!({"anchor": "login button", "positive": "auth/LoginButton.tsx", "negative": "Button.tsx"}),
            json!({"anchor": "login button", "positive": "auth/LoginButton.tsx", "negative": "Link.tsx"}),
        ]
    );
    find(&service, with(weak("logout", 200), &json!({"results": [], "root": null})), &["a.rs"]).await;
    let count = async |parameters: &str| {
        service.get(&format!("/v1/exports/search-pairs{parameters}")).await.rows().len()
    };
    assert_eq!(count("").await, 4);
    assert_eq!(count("?root=/src/app").await, 1);
    assert_eq!(count("?limit=2").await, 3);
    let split = [count("?split=train&holdout=0.5").await, count("?split=validation&holdout=0.5").await];
    assert_eq!(split.iter().sum::<usize>(), 4);
    assert!(split.contains(&0), "one session stands in one part: {split:?}");
    let metadata = service.get("/v1/exports/search-pairs?include=metadata").await.rows();
    assert_eq!(metadata[0]["metadata"]["agent_session_id"], "s");
    let listed = service.get("/v1/exports").await.expect(200);
    let listed =
        listed["data"].as_array().expect("data").iter().find(|set| set["dataset"] == "search-pairs").cloned();
    assert_eq!(
        listed,
        Some(json!({"dataset": "search-pairs", "formats": ["raw", "triplets"], "rows": 4, "skipped": 0}))
    );
}
