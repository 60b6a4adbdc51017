//! Splits by several at once, and of data sets without texts.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{TRAINING, solved};
use crate::support::{Answer, Service, passed};

const PARTS: [&str; 3] = ["train", "validation", "test"];

fn log(number: u128) -> Value {
    solved(number, &format!("intent {}", number % 40), &[passed(1, &format!("(program {})", number % 31))])
}

fn path(part: &str) -> String {
    format!("{TRAINING}?format=raw&split={part}&holdout=0.5")
}

async fn parts(service: &Service, headers: &[(&str, &str)]) -> Vec<Answer> {
    let mut parts = Vec::new();
    for part in PARTS {
        parts.push(service.call(Method::GET, &path(part), headers, None).await);
    }
    parts
}

#[tokio::test]
async fn the_parts_of_a_project_are_those_of_its_own_records() {
    let (service, operator) = Service::closed().await;
    let operator = format!("Bearer {operator}");
    let mut keys = Vec::new();
    for project in ["one", "two"] {
        let headers = [("authorization", operator.as_str())];
        service
            .call(Method::PUT, &format!("/v1/projects/{project}"), &headers, Some(&json!({})))
            .await
            .expect(201);
        let key = json!({"name": "k", "project": project, "scopes": ["write", "read"]});
        let made = service.call(Method::POST, "/v1/keys", &headers, Some(&key)).await.expect(201);
        keys.push(format!("Bearer {}", made["key"].as_str().expect("a secret")));
    }
    let headers = |project: usize| [("authorization", keys[project].as_str())];
    let write = async |project: usize, from: u128, to: u128| {
        for number in from..to {
            let log = log(number);
            let body: Value = log
                .as_object()
                .expect("an object")
                .clone()
                .into_iter()
                .filter(|(name, _)| name != "event")
                .collect();
            service.call(Method::POST, "/v1/generations", &headers(project), Some(&body)).await.expect(201);
        }
    };
    write(0, 0, 60).await;
    let alone = parts(&service, &headers(0)).await;
    // The same texts in another project, in another order, and its own export.
    write(1, 130, 200).await;
    let other = parts(&service, &headers(1)).await;
    let rows = |parts: &[Answer]| parts.iter().map(|part| part.rows().len()).sum::<usize>();
    let dropped = |parts: &[Answer]| {
        let dropped = parts.iter().filter_map(|part| part.header("gleaner-dropped"));
        dropped.map(|count| count.parse::<usize>().expect("a number")).sum::<usize>()
    };
    assert_eq!((rows(&alone) + dropped(&alone), rows(&other) + dropped(&other)), (60, 70));
    for (before, after) in alone.iter().zip(parts(&service, &headers(0)).await) {
        assert_eq!(before.text(), after.text());
    }
    // A key of one project does not split another.
    let named = [headers(0)[0], ("gleaner-project", "two")];
    service.call(Method::GET, &path("train"), &named, None).await.refused(403, &[]);
}

#[tokio::test]
async fn two_splits_that_begin_at_once_are_the_same() {
    let service = Service::open().await;
    // Several pages of records to be put into groups.
    service.accept(&(0..5_000).map(log).collect::<Vec<_>>()).await;
    let another = service.another();
    let [train, validation] = [path("train"), path("validation")];
    let (one, two, three) = tokio::join!(service.get(&train), another.get(&train), another.get(&validation));
    assert_eq!(one.text(), two.text());
    assert_eq!(one.rows().len(), service.get(&train).await.rows().len());
    assert_eq!(three.text(), service.get(&validation).await.text());
    let noted: (i64, i64) = sqlx::query_as("select count(*), count(distinct record) from split_texts")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    assert_eq!(noted, (10_000, 5_000), "an intent and a program of each");
}

#[tokio::test]
async fn what_is_erased_while_groups_are_made_is_deleted_from_them() {
    let service = Service::open().await;
    service.accept(&(0..60).map(log).collect::<Vec<_>>()).await;
    service.get(&path("train")).await.rows();
    service.accept(&(60..120).map(log).collect::<Vec<_>>()).await;
    // An export is stopped while it puts records into groups, and one of them is erased meanwhile.
    let mut holder = service.connection().await;
    let mut held = sqlx::Connection::begin(&mut holder).await.expect("a transaction");
    sqlx::query("lock table split_texts in access exclusive mode").execute(&mut *held).await.expect("locked");
    let erased = format!("/v1/generations/{}", Uuid::from_u128(100));
    let train = path("train");
    let (answer, gone, ()) = tokio::join!(
        service.get(&train),
        async {
            service.blocked(1).await;
            service.delete(&erased).await
        },
        async {
            service.blocked(2).await;
            held.rollback().await.expect("released");
        }
    );
    gone.gone();
    assert_eq!(answer.status, 200);
    let sql = "select count(*) from split_texts where record = $1";
    let left: i64 =
        sqlx::query_scalar(sql).bind(Uuid::from_u128(100)).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(left, 0);
    let parts = parts(&service, &[]).await;
    let rows: usize = parts.iter().map(|part| part.rows().len()).sum();
    let dropped = parts.iter().filter_map(|part| part.header("gleaner-dropped"));
    let dropped: usize = dropped.map(|count| count.parse::<usize>().expect("a number")).sum();
    assert_eq!(rows + dropped, 119);
}

#[tokio::test]
async fn data_sets_without_answers_of_their_own_are_split_by_session_and_by_nothing_else() {
    let service = Service::open().await;
    for number in 0..40 {
        let pair = json!({"topic_id": format!("t{}", number % 20), "user_text": format!("u{number}"), "assistant_text": "a"});
        service.post("/v1/pairs", &pair).await.expect(201);
        let slate = json!({"context": {"blocks": []}, "suggestions": ["a", "b"], "viewed_indices": [0], "actual_input": "a",
            "session_name": format!("s{}", number % 20)});
        service.post("/v1/suggestions", &slate).await.expect(201);
    }
    for (name, pointer, all) in
        [("conversations", "/metadata/topic_id", 20), ("rankings", "/metadata/session_name", 40)]
    {
        let path = format!("/v1/exports/{name}?format=raw&include=metadata&holdout=0.5");
        let mut seen: Vec<Vec<String>> = Vec::new();
        for part in PARTS {
            let rows = service.get(&format!("{path}&split={part}")).await.rows();
            assert_eq!(service.get(&format!("{path}&split={part}&split_by=session")).await.rows(), rows);
            let sessions = rows.iter().map(|row| row.pointer(pointer).expect("a name").to_string());
            seen.push(sessions.collect());
        }
        assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), all, "{name}");
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            assert!(seen[one].iter().all(|session| !seen[other].contains(session)), "{name}");
        }
        for by in ["intent", "program"] {
            service.get(&format!("{path}&split=train&split_by={by}")).await.refused(422, &["/split_by"]);
        }
    }
}
