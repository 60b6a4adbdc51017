//! Weights of associations: what teaches how much, decay, and feedback.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{MIDNIGHT, append, associations, edit, find, grep, paths, read, resolve, start, weak};
use crate::support::program::Timestamp;
use crate::support::{Service, assert_close, assert_whole, column, with};

#[tokio::test]
async fn what_failed_teaches_nothing() {
    let service = Service::open().await;
    let failed = with(read("nowhere.rs", 1), &json!({"ok": false}));
    let search = start(&service, weak("login button", 0)).await;
    append(&service, &search, &failed).await.expect(201);
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
async fn a_client_whose_clock_is_ahead_takes_no_weight_from_what_others_have_taught() {
    let service = Service::open().await;
    let now = chrono::Utc::now().timestamp();
    let at = |time: i64| {
        let session = format!("at {time}");
        with(weak("login button", 0), &json!({"timestamp": time, "agent_session_id": session}))
    };
    let mut before = 0.0;
    for time in [now - 60, now + 400 * 86_400, now - 30] {
        find(&service, at(time), &["a.rs"]).await;
        let found = associations(&service, "login button").await;
        let weight = found[0]["weight"].as_f64().expect("a weight");
        assert!(weight > before + 1.9, "{found:?}");
        before = weight;
    }
    let found = associations(&service, "login button").await;
    let seen = column(&found, "last_seen_at");
    let latest = Timestamp::now().to_string();
    assert!(seen.iter().all(|time| time.as_str().expect("a time") <= latest.as_str()), "{found:?}");
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
    assert_eq!(paths(&service, "login button").await, ["a.rs"]);
    service.post(&path, &json!({"verdict": "wrong"})).await.expect(200);
    let another = with(weak("login button", 3_600), &json!({"agent_session_id": "t"}));
    let next = service.post("/v1/searches", &another).await.expect(201);
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
async fn a_file_that_the_weak_search_had_offered_counts_half_and_is_no_hint_beside_it() {
    let service = Service::open().await;
    let ended = find(&service, weak("login button", 0), &["/src/app/Button.tsx"]).await;
    assert_eq!(ended["state"], "resolved");
    find(&service, weak("invoice total", 100), &["invoice.rs"]).await;
    let weight =
        async |query: &str| associations(&service, query).await[0]["weight"].as_f64().expect("a weight");
    let share = weight("login button").await / weight("invoice total").await;
    assert!((share - 0.5).abs() < 1e-3, "{share}");

    let another = with(weak("login button", 200), &json!({"agent_session_id": "t"}));
    let same = service.post("/v1/searches", &another).await.expect(201);
    assert_eq!(same["hints"], json!([]));
    let other = json!({"results": [{"path": "Other.tsx", "score": 0.42}]});
    let other = service.post("/v1/searches", &with(another, &other)).await.expect(201);
    assert_eq!(column(other["hints"].as_array().expect("hints"), "path"), ["Button.tsx"]);
}

#[tokio::test]
async fn a_file_that_was_added_to_the_index_by_hand_counts_as_one_that_was_read_and_edited() {
    let service = Service::open().await;
    let search = start(&service, weak("login button", 0)).await;
    let indexed = json!({"kind": "index", "path": "/src/app/auth/Login.tsx", "timestamp": MIDNIGHT + 1});
    let appended = append(&service, &search, &indexed).await.expect(201);
    assert_eq!((&appended["kind"], &appended["path"]), (&json!("index"), &json!("auth/Login.tsx")));
    append(&service, &search, &read("auth/Login.test.tsx", 2)).await.expect(201);
    let ended = resolve(&service, &search, 9).await;
    assert_eq!(ended["state"], "resolved");
    let found = associations(&service, "login button").await;
    assert_eq!(column(&found, "path"), ["auth/Login.tsx", "auth/Login.test.tsx"]);
}

#[tokio::test]
async fn hints_that_are_read_gain_and_those_that_are_not_lose() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs", "b.rs"]).await;
    let before = associations(&service, "login button").await;
    // Both are told of both files.
    let by = |session: &str, at: i64| with(weak("button login", at), &json!({ "agent_session_id": session }));
    find(&service, by("t", 1_000), &["b.rs"]).await;
    find(&service, by("u", 2_000), &["a.rs", "c.rs"]).await;
    let unhelped = start(&service, weak("invoice total", 3_000)).await;
    resolve(&service, &unhelped, 3_001).await;
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    assert_whole!("figures_after_hints", figures);
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
async fn without_learning_sessions_are_followed_and_nothing_is_learned() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"searches": {"learn": false}})).await.expect(200);
    let ended = find(&service, weak("login button", 0), &["a.rs"]).await;
    assert_eq!((&ended["state"], &ended["associations"]), (&json!("resolved"), &json!([])));
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    assert_eq!((&figures["enabled"], &figures["associations_created"]), (&json!(false), &json!(0)));
}

#[tokio::test]
async fn feedback_with_the_key_of_another_verdict_is_refused() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs"]).await;
    let id = associations(&service, "login button").await[0]["id"].clone();
    let path = format!("/v1/associations/{}/feedback", id.as_str().expect("an id"));
    let give = async |verdict: &str| {
        let headers = [("idempotency-key", "k")];
        service.call(Method::POST, &path, &headers, Some(&json!({"verdict": verdict}))).await
    };
    let weighed = give("useful").await.expect(200)["weight"].clone();
    give("wrong").await.refused(409, &[]);
    assert_close(&give("useful").await.expect(200)["weight"], &weighed);
}
