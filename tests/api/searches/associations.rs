//! Associations that are forgotten, folders that know only their own, and patterns that led to an answer.

use serde_json::{Value, json};

use super::{MIDNIGHT, append, associations, find, grep, paths, read, resolve, start, weak};
use crate::support::{Service, column, encoded, with};

#[tokio::test]
async fn a_file_that_is_gone_is_not_returned_until_it_is_found_again() {
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
async fn patterns_that_led_to_the_answer_are_returned_for_similar_queries() {
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
async fn a_pattern_that_led_to_several_answers_is_listed_with_the_most_similar_query() {
    let service = Service::open().await;
    for (query, at) in [("login button", 0), ("login button component", 100), ("login button", 200)] {
        let search = start(&service, weak(query, at)).await;
        append(&service, &search, &grep("login.*", at + 1)).await.expect(201);
        append(&service, &search, &grep("login.*", at + 2)).await.expect(201);
        append(&service, &search, &grep(query, at + 2)).await.expect(201);
        append(&service, &search, &read("auth/LoginButton.tsx", at + 3)).await.expect(201);
        resolve(&service, &search, at + 9).await;
    }
    let expansions = service.get("/v1/searches/expansions?query=login%20button").await.expect(200);
    let rows = expansions["data"].as_array().expect("data");
    let expected = json!({"pattern": "login.*", "query": "login button", "score": 1.0, "evidence": 3,
        "last_seen_at": "2026-01-01T00:03:22.000000Z"});
    assert_eq!(rows, &[expected]);
}

/// Postgres refuses an array of more than a gigabyte.
#[tokio::test]
async fn the_query_of_a_pattern_is_read_once_and_not_for_each_use_of_the_pattern() {
    let service = Service::open().await;
    let search = start(&service, weak("login button", 0)).await;
    append(&service, &search, &grep("login.*", 1)).await.expect(201);
    append(&service, &search, &read("auth/LoginButton.tsx", 2)).await.expect(201);
    resolve(&service, &search, 9).await;
    let grown = "
        update searches set query = repeat('x', 1200000);
        insert into fallbacks (project, search_id, id, kind, target, ok, timestamp, share, counts)
            select project, search_id, gen_random_uuid(), kind, target, ok, timestamp, share, counts
            from fallbacks cross join generate_series(1, 999) where kind = 'grep'";
    sqlx::raw_sql(grown).execute(service.pool()).await.expect("grows");
    let expansions = service.get("/v1/searches/expansions?query=login%20button").await.expect(200);
    let rows = expansions["data"].as_array().expect("data");
    assert_eq!((column(rows, "pattern"), column(rows, "evidence")), (vec![json!("login.*")], vec![json!(1)]));
    assert_eq!(rows[0]["query"].as_str().map(str::len), Some(1_200_000));
}

#[tokio::test]
async fn patterns_are_found_by_a_folder_and_a_query_that_are_redacted() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"redact": {"builtin": ["home-paths"]}})).await.expect(200);
    let (query, root) = ("/home/ann/secrets", "/home/ann");
    let search = start(&service, with(weak(query, 0), &json!({"root": root}))).await;
    append(&service, &search, &grep("secrets?", 1)).await.expect(201);
    append(&service, &search, &read("secrets.rs", 2)).await.expect(201);
    resolve(&service, &search, 9).await;
    let path = format!("/v1/searches/expansions?query={}&root={}", encoded(query), encoded(root));
    let found = service.get(&path).await.expect(200);
    assert_eq!(column(found["data"].as_array().expect("data"), "score"), [1.0]);
}

#[tokio::test]
async fn files_below_a_home_folder_whose_name_is_redacted_are_those_of_all_clones() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"redact": {"builtin": ["home-paths"]}})).await.expect(200);
    let in_clone = |root: &str, at| with(weak("login button", at), &json!({"root": root}));
    for (root, file, at) in [
        ("/home/ann/shop", "/home/ann/shop/a.rs", 0),
        ("/home/bob/shop", "a.rs", 100),
        ("/srv/shop", "/srv/shop/a.rs", 200),
    ] {
        let search = with(in_clone(root, at), &json!({"agent_session_id": root}));
        find(&service, search, &[file]).await;
    }
    let found = associations(&service, "login button").await;
    assert_eq!(
        (column(&found, "path"), column(&found, "evidence")),
        (vec![json!("a.rs"); 2], vec![json!(2), json!(1)])
    );
    let search = with(in_clone("/home/eve/shop", 900), &json!({"agent_session_id": "t", "results": []}));
    let hints = service.post("/v1/searches", &search).await.expect(201)["hints"].clone();
    assert_eq!(column(hints.as_array().expect("hints"), "path"), ["a.rs"]);
    let file = json!({"root": "/home/ann/shop", "path": "/home/ann/shop/a.rs"});
    assert_eq!(service.post("/v1/associations/gone", &file).await.expect(200), json!({"gone": 1}));
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
    assert_eq!(
        erased,
        json!({"generations": 0, "attempts": 0, "suggestions": 0, "searches": 2, "pairs": 0, "sends": 0, "memories": 0, "queries": 0})
    );
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
