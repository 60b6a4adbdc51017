//! Searches that are followed: when one is tracked, what counts for it, and how it ends.

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::Connection as _;

use super::{append, grep, paths, read, resolve, start, weak};
use crate::support::program::{Failed, Timestamp, WRITER_NAME, expire, pool, writer_name};
use crate::support::{Service, assert_close, assert_whole, column, eventually, with};

#[tokio::test]
async fn a_component_found_by_hand_is_found_at_once_the_next_time() {
    let service = Service::open().await;
    let started = service.post("/v1/searches", &weak("login button component", 0)).await;
    let search = started.header("location").expect("a location").to_owned();
    assert_whole!("a_started_search", started.expect(201));
    append(&service, &search, &grep("login.*button", 2)).await.expect(201);
    let file = "/src/app/src/features/auth/LoginButton.tsx";
    let appended = append(&service, &search, &read(file, 4)).await.expect(201);
    assert_whole!("an_appended_read", appended);
    let resolved = resolve(&service, &search, 9).await;
    assert_eq!(resolved["state"], "resolved");
    assert_eq!(
        column(resolved["associations"].as_array().expect("some"), "path"),
        ["src/features/auth/LoginButton.tsx"]
    );
    assert_eq!(service.get(&search).await.expect(200)["fallbacks"], resolved["fallbacks"]);

    let another = with(weak("login button", 3_600), &json!({"agent_session_id": "t"}));
    let next = service.post("/v1/searches", &another).await.expect(201);
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
async fn the_end_of_a_turn_ends_all_searches_of_the_session() {
    let service = Service::open().await;
    let turn = |turn: &str, more: Value| with(json!({"turn_id": turn}), &more);
    let first = start(&service, with(weak("login button", 0), &turn("1", json!({})))).await;
    append(&service, &first, &read("a.rs", 1)).await.expect(201);
    let second = start(&service, with(weak("logout", 2), &turn("1", json!({})))).await;
    let aside = start(&service, with(weak("sign up", 3), &turn("1", json!({"agent_id": "sub"})))).await;
    let other = start(&service, with(weak("invoice", 3), &turn("1", json!({"agent_session_id": "t"})))).await;
    let end = async |turn: Value| {
        let body = with(json!({"agent_session_id": "s", "timestamp": 1_767_225_600 + 9}), &turn);
        service.post("/v1/searches/turn-end", &body).await.expect(200)
    };
    assert_eq!(end(json!({"turn_id": "0"})).await["searches"], json!([]));
    let ended = end(json!({"turn_id": "1"})).await;
    let id = |path: &str| json!(path.rsplit('/').next().expect("an id"));
    let search = |path: &str, state: &str| json!({"id": id(path), "state": state});
    let expected = json!({
        "agent_session_id": "s", "associations_created": 1,
        "searches": [search(&first, "resolved"), search(&second, "unresolved"), search(&aside, "unresolved")],
    });
    assert_eq!(ended, expected);
    assert_eq!(service.get(&other).await.expect(200)["state"], "tracking");
    assert_eq!(service.get(&first).await.expect(200)["ended_at"], "2026-01-01T00:00:09.000000Z");
    assert_eq!(end(json!({})).await["searches"], json!([]), "sent again");
    let unknown = json!({"agent_session_id": "nobody"});
    let nothing = json!({"agent_session_id": "nobody", "searches": [], "associations_created": 0});
    assert_eq!(service.post("/v1/searches/turn-end", &unknown).await.expect(200), nothing);
    for (body, pointer) in [
        (json!({}), "/agent_session_id"),
        (json!({"agent_session_id": ""}), "/agent_session_id"),
        (json!({"agent_session_id": "s", "turn_id": "x".repeat(201)}), "/turn_id"),
        (json!({"agent_session_id": "s", "turn": "1"}), "/turn"),
    ] {
        service.post("/v1/searches/turn-end", &body).await.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn a_turn_that_ends_after_a_silence_had_ended_before() {
    let service = Service::open().await;
    let search = start(&service, weak("login button", 0)).await;
    let end = json!({"agent_session_id": "s", "timestamp": 1_767_225_600 + 61});
    let ended = service.post("/v1/searches/turn-end", &end).await.expect(200);
    assert_eq!(ended["searches"][0]["state"], "timed_out");
    assert_eq!(service.get(&search).await.expect(200)["ended_at"], "2026-01-01T00:00:00.000000Z");
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
async fn searches_of_an_agent_that_went_silent_end_by_themselves() {
    let service = Service::open().await;
    let found = start(&service, weak("login button", 0)).await;
    append(&service, &found, &read("a.rs", 1)).await.expect(201);
    let lost = start(&service, with(weak("logout", 0), &json!({"agent_session_id": "t"}))).await;
    let seconds = |seconds| Timestamp::now().plus(chrono::TimeDelta::seconds(seconds)).expect("a time");
    let next =
        expire(service.pool(), service.keyring(), &mut Failed::default(), seconds(0)).await.expect("looks");
    assert!(next.expect("some are open") <= std::time::Duration::from_mins(1));
    assert_eq!(service.get(&found).await.expect(200)["state"], "tracking");
    let next = expire(service.pool(), service.keyring(), &mut Failed::default(), seconds(62))
        .await
        .expect("ends them");
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
    eventually("the search has timed out", async || {
        service.get(&soon).await.expect(200)["state"] == "timed_out"
    })
    .await;
}

#[tokio::test]
async fn a_search_that_is_started_while_its_session_is_erased_ends_by_itself_all_the_same() {
    let service = Service::open().await;
    start(&service, weak("login button", 0)).await;
    let mut connection = service.connection().await;
    let mut erasure = connection.begin().await.expect("begins");
    sqlx::query("select from agent_threads for update")
        .execute(&mut *erasure)
        .await
        .expect("locks the thread");
    let erase = async {
        service.blocked(1).await;
        for sql in ["delete from searches", "delete from agent_threads"] {
            sqlx::query(sql).execute(&mut *erasure).await.expect("erases");
        }
        erasure.commit().await.expect("ends");
    };
    let (search, ()) = tokio::join!(start(&service, weak("sign up", 1)), erase);
    assert_eq!(service.get(&search).await.expect(200)["state"], "tracking");
    let later = Timestamp::now().plus(chrono::TimeDelta::seconds(62)).expect("a time");
    expire(service.pool(), service.keyring(), &mut Failed::default(), later).await.expect("ends it");
    assert_eq!(service.get(&search).await.expect(200)["state"], "timed_out");
}

#[tokio::test]
async fn a_session_of_one_project_that_cannot_be_ended_keeps_none_of_another_open() {
    let service = Service::open().await;
    service.project("broken").await;
    let broken = [("gleaner-project", "broken")];
    let body = weak("login button", 0);
    service.call(Method::POST, "/v1/searches", &broken, Some(&body)).await.expect(201);
    let sql = "alter table searches add check (project <> 'broken' or state = 'tracking')";
    sqlx::query(sql).execute(service.pool()).await.expect("alters");
    let later = Timestamp::now().plus(chrono::TimeDelta::seconds(62)).expect("a time");
    let mut failed = Failed::default();
    expire(service.pool(), service.keyring(), &mut failed, later).await.expect("tries");
    // The session has the same name.
    let search = start(&service, body).await;
    let next = expire(service.pool(), service.keyring(), &mut failed, later).await.expect("ends it");
    assert_eq!((next, &service.get(&search).await.expect(200)["state"]), (None, &json!("timed_out")));
}

#[tokio::test]
async fn an_agent_of_one_project_that_still_says_much_keeps_no_search_of_another_open() {
    let service = Service::open().await;
    service.project("busy").await;
    let body = weak("login button", 0);
    service.call(Method::POST, "/v1/searches", &[("gleaner-project", "busy")], Some(&body)).await.expect(201);
    let search = start(&service, body).await;
    let transcript = service.holding("select from agent_threads where project = 'busy' for update").await;
    let later = Timestamp::now().plus(chrono::TimeDelta::seconds(62)).expect("a time");
    let mut failed = Failed::default();
    let next = expire(service.pool(), service.keyring(), &mut failed, later).await.expect("ends it");
    assert_eq!(service.get(&search).await.expect(200)["state"], "timed_out");
    assert_eq!(next, Some(std::time::Duration::ZERO), "the other one is still due");
    transcript.commit().await.expect("ends");
    let next = expire(service.pool(), service.keyring(), &mut failed, later).await.expect("ends the other");
    assert_eq!(next, None);
}

#[tokio::test]
async fn no_export_of_another_project_waits_for_the_end_of_a_search() {
    let service = Service::open().await;
    service.project("busy").await;
    let busy = [("gleaner-project", "busy")];
    service.call(Method::POST, "/v1/searches", &busy, Some(&weak("login button", 0))).await.expect(201);
    let _transcript = service.holding("select from agent_threads for update").await;
    // Its own connections have the name of those that write.
    let writers = pool(&service.options, WRITER_NAME, 1);
    let later = Timestamp::now().plus(chrono::TimeDelta::seconds(62)).expect("a time");
    let mut failed = Failed::default();
    let expiring = expire(&writers, service.keyring(), &mut failed, later);
    let writing = async {
        const WRITING: &str = "select application_name from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        let mut name = None;
        eventually("it waits for the thread", async || {
            name =
                sqlx::query_scalar::<_, String>(WRITING).fetch_optional(service.pool()).await.expect("asks");
            name.is_some()
        })
        .await;
        name
    };
    let (expired, name) = tokio::join!(expiring, writing);
    expired.expect("leaves it");
    assert_eq!(name, Some(writer_name("busy")));
}
