//! Requests about searches: the same one again, batches, and what is refused.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{MIDNIGHT, append, find, paths, read, resolve, start, weak};
use crate::support::{Service, column, with};

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
    let path = format!("/v1/searches/{}", Uuid::new_v4());
    service.get(&path).await.refused(404, &[]);
    append(&service, &path, &read("a.rs", 1)).await.refused(404, &[]);
    service.post(&format!("{path}/resolve"), &json!({})).await.refused(404, &[]);
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
async fn an_invalid_search_is_refused_with_its_fields() {
    let service = Service::open().await;
    for (body, pointer) in [
        (json!({}), "/query"),
        (json!({"query": ""}), "/query"),
        (json!({"query": "q".repeat(2_001)}), "/query"),
        (json!({"query": "q", "result_count": -1}), "/result_count"),
        (json!({"query": "q", "results": [{"path": ""}]}), "/results/0/path"),
        (json!({"query": "q", "results": vec![json!({"path": "a".repeat(4_000)}); 33]}), "/results"),
        (
            json!({"query": "q", "root": format!("/{}/c", "a".repeat(4_000)), "results": vec![json!({"path": "../b"}); 500]}),
            "/results",
        ),
        (json!({"query": "q", "results": [{"path": "a", "line": 1}]}), "/results/0/line"),
        (json!({"query": "q", "agent_session_id": "x".repeat(201)}), "/agent_session_id"),
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
async fn a_fallback_after_the_thousandth_is_stored_and_does_not_count() {
    let service = Service::open().await;
    let search = start(&service, weak("login button", 0)).await;
    let id = search.rsplit('/').next().expect("an id");
    let fallback = |number: i64| {
        let path = format!("{number}.rs");
        with(json!({"event": "fallback", "search_id": id}), &read(&path, number / 100))
    };
    service.accept(&(0..1_000).map(fallback).collect::<Vec<_>>()).await;
    let late = append(&service, &search, &read("late.rs", 11)).await.expect(201);
    assert_eq!((&late["path"], &late["counts"]), (&json!("late.rs"), &json!(false)));
    assert_eq!(append(&service, &search, &read("late.rs", 11)).await.expect(200), late);
    let fallbacks = resolve(&service, &search, 12).await["fallbacks"].as_array().expect("a list").clone();
    assert_eq!(fallbacks.iter().filter(|fallback| fallback["counts"] == true).count(), 1_000);
    assert_eq!(fallbacks.len(), 1_001);
}

#[tokio::test]
async fn the_oldest_searches_end_before_what_followed_them_becomes_large() {
    let service = Service::open().await;
    let id = |number: i64| Uuid::from_u128(number.unsigned_abs().into());
    let events = |number: i64| {
        let search = weak(&format!("query {number}"), number);
        let path = format!("{number}/{}", "a".repeat(4_000));
        [
            with(search, &json!({"event": "search", "id": id(number)})),
            with(read(&path, number), &json!({"event": "fallback", "search_id": id(number)})),
        ]
    };
    // A path counts for each search before it, so that 40 of them would be 800 copies.
    service.accept(&(0..40).flat_map(events).collect::<Vec<_>>()).await;
    let searches = service.all("/v1/searches").await;
    let open = searches.iter().take_while(|search| search["state"] == "tracking").count();
    assert!((10..25).contains(&open), "{open} are open");
    assert!(searches[open..].iter().all(|search| search["state"] == "resolved"), "{searches:?}");
    let sql =
        "select coalesce(sum(octet_length(target)), 0) from fallbacks f join searches s on s.id = search_id
        where s.state = 'tracking'";
    let size: i64 = sqlx::query_scalar(sql).fetch_one(&mut service.connection().await).await.expect("a sum");
    assert!(size <= 1 << 20, "{size} bytes are read for each event");
}

#[tokio::test]
async fn a_batch_of_more_agents_than_are_worked_on_at_once_is_like_any_other() {
    let service = Service::open().await;
    let id = |number: i64| Uuid::from_u128(number.unsigned_abs().into());
    let search = |number: i64| {
        let agent = json!({"event": "search", "id": id(number), "agent_id": format!("a{number}")});
        with(weak(&format!("query {number}"), 100 - number), &agent)
    };
    let fallback = |number: i64| {
        let search = json!({"event": "fallback", "search_id": id(number)});
        with(read(&format!("{number}.rs"), 100 - number), &search)
    };
    let mut events: Vec<_> = (0..80).map(search).chain((0..80).map(fallback)).collect();
    service.accept(&events).await;
    events.push(with(search(7), &json!({"query": "other"})));
    events.push(fallback(90));
    let again = service.events(&events).await.expect(200);
    let rejected = column(again["rejected"].as_array().expect("a list"), "status");
    assert_eq!(
        (&again["accepted"], &again["duplicates"], rejected),
        (&json!(0), &json!(160), vec![json!(409), json!(404)])
    );

    let turn = json!({"agent_session_id": "s", "timestamp": MIDNIGHT + 110});
    let ended = service.post("/v1/searches/turn-end", &turn).await.expect(200);
    let expected: Vec<_> =
        (0..80).rev().map(|number| json!({"id": id(number), "state": "resolved"})).collect();
    assert_eq!((&ended["searches"], &ended["associations_created"]), (&json!(expected), &json!(80)));
}

#[tokio::test]
async fn a_fallback_may_be_posted_for_each_of_several_open_searches() {
    let service = Service::open().await;
    let ids = [1, 2].map(Uuid::from_u128);
    for (id, at) in ids.into_iter().zip(0..) {
        start(&service, with(weak("login button", at), &json!({"id": id}))).await;
    }
    let searches = ids.map(|id| format!("/v1/searches/{id}"));
    let fallback = |number: u128| with(read("/src/app/a.rs", 3), &json!({"id": Uuid::from_u128(number)}));
    for status in [201, 200] {
        for search in &searches {
            append(&service, search, &fallback(3)).await.expect(status);
        }
    }
    let other = with(fallback(3), &json!({"path": "b.rs"}));
    append(&service, &searches[1], &other).await.refused(409, &[]);
    let events = ids.map(|id| with(fallback(4), &json!({"event": "fallback", "search_id": id})));
    service.accept(&events).await;
    assert_eq!(service.events(&events).await.expect(200)["duplicates"], 2);
    for search in &searches {
        let fallbacks = resolve(&service, search, 9).await["fallbacks"].clone();
        let fallbacks = fallbacks.as_array().expect("a list");
        assert_eq!(column(fallbacks, "id"), [3, 4].map(|number| json!(Uuid::from_u128(number))));
        assert_eq!(column(fallbacks, "counts"), [true, true]);
    }
}

#[tokio::test]
async fn a_search_that_has_learned_more_than_an_answer_holds_is_not_shown() {
    let service = Service::open().await;
    let learned = find(&service, weak("login button", 0), &["a.rs"]).await;
    let grown = "
        insert into associations (project, query_id, id, path, weight, weighed_at, evidence, last_seen_at)
            select project, query_id, gen_random_uuid(), repeat('x', 1000000) || n, weight, weighed_at, evidence, last_seen_at
            from associations cross join generate_series(1, 40) n;
        insert into association_evidence (project, association_id, source, kind, weight, at, rank)
            select e.project, a.id, e.source, e.kind, e.weight, e.at, e.rank
            from association_evidence e cross join associations a on conflict do nothing";
    sqlx::raw_sql(grown).execute(service.pool()).await.expect("grows");
    let path = format!("/v1/searches/{}", learned["id"].as_str().expect("an id"));
    assert_eq!(service.get(&path).await.status, 413);
}
