//! The feed of changes to associations.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::{associations, find, weak};
use crate::support::{Service, column, with};

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

    let refuted = associations(&service, "login button").await[0]["id"].as_str().expect("an id").to_owned();
    let feedback = format!("/v1/associations/{refuted}/feedback");
    let mut next = next;
    for (verdicts, kind) in [(vec!["wrong"; 3], "refuted"), (vec!["useful"; 5], "learned")] {
        for verdict in verdicts {
            service.post(&feedback, &json!({"verdict": verdict})).await.expect(200);
        }
        let (rows, after) = follow(next, 10).await;
        assert_eq!((column(&rows, "kind"), column(&rows, "id")), (vec![json!(kind)], vec![json!(refuted)]));
        next = after;
    }

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
