//! The building of snapshots: its progress and its turns, what becomes of it if the server or the database dies, and how it
//! ends early.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::files::{SNAPSHOTS, built, logs, path, settled};
use super::limits::many;
use super::{solved, without_rounds};
use crate::support::program::{Limits, Settings};
use crate::support::{Service, eventually, passed, settings};

/// How many rows a table has.
async fn count(service: &Service, table: &str) -> i64 {
    let sql = AssertSqlSafe(format!("select count(*) from {table}"));
    sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count")
}

/// A transaction with the row of the file's first piece, which the builder of this snapshot therefore waits to store.
async fn held_back(service: &Service, id: Uuid) -> PgConnection {
    const PIECE: &str =
        "insert into snapshot_chunks (project, snapshot_id, number, bytes) values ('default', $1, 0, '')";
    let mut other = service.connection().await;
    other.execute("begin").await.expect("a transaction");
    sqlx::query(PIECE).bind(id).execute(&mut other).await.expect("a row");
    other
}

#[tokio::test]
async fn a_snapshot_that_takes_long_says_how_far_it_is() {
    let exports = Limits { count_after: Duration::ZERO, ..settings().exports };
    let service = Service::with(Settings { exports, ..settings() }).await;
    service.accept(&logs(3)).await;
    let id = Uuid::from_u128(1);
    let mut held = held_back(&service, id).await;
    service.post(SNAPSHOTS, &json!({"id": id, "dataset": "training-pairs"})).await.expect(202);
    let address = format!("{SNAPSHOTS}/{id}");
    let mut snapshot = Value::Null;
    eventually("the rows are counted", async || {
        snapshot = service.get(&address).await.expect(200);
        snapshot["progress"] == 1.0
    })
    .await;
    assert_eq!([&snapshot["state"], &snapshot["rows"]], [&json!("building"), &json!(3)]);
    held.execute("rollback").await.expect("released");
    assert_eq!(settled(&service, &address).await["state"], "complete");
}

#[tokio::test]
async fn a_snapshot_whose_builder_died_is_built_anew_as_the_same_bytes_and_given_up_in_the_end() {
    let service = without_rounds().await;
    service.accept(&logs(20)).await;
    let snapshot = built(&service, &json!({"dataset": "training-pairs", "file": "parquet"})).await;
    let bytes = service.get(path(&snapshot)).await.body;
    // As a server leaves it that dies in the middle.
    let interrupt = async |attempts: i32| {
        let sql = "update snapshots set state = 'building', lease = gen_random_uuid(), sha256 = null, attempts = $1,
            lease_until = now() - interval '1 second', row_count = 7";
        sqlx::query(sql).bind(attempts).execute(service.pool()).await.expect("it died");
    };
    interrupt(1).await;
    let address = format!("{SNAPSHOTS}/{}", snapshot["id"].as_str().expect("an id"));
    assert_eq!(service.get(&address).await.expect(200)["state"], "building");
    service.get(path(&snapshot)).await.refused(409, &[]);
    service.accept(&[solved(99, "later", &[passed(1, "z")])]).await;
    service.build_snapshots().await;
    let again = settled(&service, &address).await;
    assert_eq!((&again["state"], &again["sha256"]), (&snapshot["state"], &snapshot["sha256"]));
    assert_eq!(service.get(path(&snapshot)).await.body, bytes);
    interrupt(3).await;
    service.build_snapshots().await;
    let failed = service.get(&address).await.expect(200);
    assert_eq!(
        (&failed["state"], &failed["error"]),
        (&json!("failed"), &json!("the building was interrupted too often"))
    );
    assert_eq!((&failed["bytes"], count(&service, "snapshot_chunks").await), (&json!(0), 0));
}

#[tokio::test]
async fn a_snapshot_of_which_a_crash_of_the_database_has_taken_a_piece_is_built_again() {
    let service = without_rounds().await;
    service.accept(&logs(20)).await;
    let snapshot = built(&service, &json!({"dataset": "training-pairs", "file": "parquet"})).await;
    let address = format!("{SNAPSHOTS}/{}", snapshot["id"].as_str().expect("an id"));
    let again = async |before: &str| {
        let sql = format!(
            "{before}; update snapshots set state = 'building', lease = gen_random_uuid(), sha256 = null, attempts = 1,
                lease_until = now() - interval '1 second'"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(service.pool()).await.expect("it is due");
        service.build_snapshots().await;
        service.get(&address).await.expect(200)
    };
    let loses = "create function lose() returns trigger language plpgsql as
            $$ begin delete from snapshot_chunks; return null; end $$;
        create trigger lose after insert on snapshot_chunks execute function lose()";
    assert_eq!(again(loses).await["state"], "building");
    let whole = again("drop trigger lose on snapshot_chunks").await;
    assert_eq!((&whole["state"], &whole["sha256"]), (&json!("complete"), &snapshot["sha256"]));
}

#[tokio::test]
async fn the_snapshots_of_projects_are_built_in_turn() {
    let service = Service::open().await;
    service.project("quiet").await;
    service.accept(&logs(1)).await;
    let new = json!({"dataset": "training-pairs", "file": "jsonl"});
    let waits = service.holding_back_snapshots().await;
    for project in ["default", "default", "default", "quiet"] {
        service.call(Method::POST, SNAPSHOTS, &[("gleaner-project", project)], Some(&new)).await.expect(202);
    }
    drop(waits);
    service.build_snapshots().await;
    let sql = "select array_agg(project order by completed_at) from snapshots";
    let order: Vec<String> = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("projects");
    assert_eq!(order, ["default", "quiet", "default", "default"]);
}

/// The request for a snapshot whose rows nobody can read while the attempts are locked.
fn of_attempts(id: Uuid) -> Value {
    json!({"id": id, "dataset": "training-pairs", "format": "openai", "prompt": "sent"})
}

#[tokio::test]
async fn the_statement_of_a_snapshot_ends_when_the_snapshot_is_deleted() {
    let service = Service::open().await;
    service.accept(&logs(2)).await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table attempts in access exclusive mode").await.expect("a lock");
    let id = Uuid::from_u128(1);
    service.post(SNAPSHOTS, &of_attempts(id)).await.expect(202);
    service.blocked(1).await;
    service.delete(&format!("{SNAPSHOTS}/{id}")).await.gone();
    service.blocked(0).await;
    transaction.commit().await.expect("released");
    assert_eq!(built(&service, &of_attempts(id)).await["state"], "complete");
}

#[tokio::test]
async fn a_snapshot_that_takes_too_long_fails_and_its_statement_ends() {
    let exports = Limits { longest_export: 1, ..settings().exports };
    let service = Service::with(Settings { exports, ..settings() }).await;
    service.accept(&logs(2)).await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table attempts in access exclusive mode").await.expect("a lock");
    let snapshot = built(&service, &of_attempts(Uuid::from_u128(1))).await;
    assert_eq!(
        [&snapshot["state"], &snapshot["error"]],
        ["failed", "the building took longer than the 1 seconds that GLEANER_LONGEST_EXPORT allows"]
    );
    service.blocked(0).await;
    transaction.commit().await.expect("released");
}

#[tokio::test]
async fn a_snapshot_whose_file_is_too_large_fails_and_nothing_of_it_is_left() {
    let exports = Limits { largest_snapshot: 1, ..settings().exports };
    let service = Service::with(Settings { exports, ..settings() }).await;
    many(&service).await;
    for file in ["jsonl", "jsonl.gz", "parquet"] {
        let snapshot = built(&service, &json!({"dataset": "training-pairs", "file": file})).await;
        assert_eq!(
            [&snapshot["state"], &snapshot["error"]],
            ["failed", "the file has more than the 1 MiB that GLEANER_LARGEST_SNAPSHOT allows"]
        );
        assert_eq!(snapshot["bytes"], 0);
    }
    for table in ["snapshot_chunks", "snapshot_contents"] {
        // The snapshot has failed before its pieces are deleted.
        eventually("nothing is left", async || count(&service, table).await == 0).await;
    }
    let small = json!({"dataset": "training-pairs", "file": "jsonl", "until": "2000-01-01T00:00:00Z"});
    assert_eq!(built(&service, &small).await["state"], "complete");
}

#[tokio::test]
async fn requests_for_snapshots_do_not_wait_for_the_builder_one_by_one() {
    let service = Service::open().await;
    service.accept(&logs(1)).await;
    let waits = service.holding_back_snapshots().await;
    let id = Uuid::from_u128(1);
    let new = json!({"id": id, "dataset": "training-pairs", "file": "jsonl"});
    service.post(SNAPSHOTS, &new).await.expect(202);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..30 {
        service.post(SNAPSHOTS, &new).await.expect(200);
        let another = service.post(SNAPSHOTS, &json!({"dataset": "training-pairs"})).await.expect(202);
        let address = format!("{SNAPSHOTS}/{}", another["id"].as_str().expect("an id"));
        service.delete(&address).await.gone();
    }
    eventually("no task waits", async || tasks() < before + 10).await;
    drop(waits);
    assert_eq!(settled(&service, &format!("{SNAPSHOTS}/{id}")).await["state"], "complete");
}

#[tokio::test]
async fn a_piece_that_is_being_stored_when_its_snapshot_is_deleted_is_deleted_too() {
    let service = Service::open().await;
    service.accept(&logs(1)).await;
    let id = Uuid::from_u128(1);
    let mut held = held_back(&service, id).await;
    service.post(SNAPSHOTS, &json!({"id": id, "dataset": "training-pairs"})).await.expect(202);
    service.blocked(1).await;
    let address = format!("{SNAPSHOTS}/{id}");
    let release = async {
        service.blocked(2).await;
        held.execute("rollback").await.expect("released");
    };
    let (deleted, ()) = tokio::join!(service.delete(&address), release);
    deleted.gone();
    assert_eq!(count(&service, "snapshot_chunks").await, 0);
}

#[tokio::test]
async fn what_was_erased_before_a_snapshot_is_deleted_is_not_counted_in_another_with_its_id() {
    let service = Service::open().await;
    service.accept(&logs(3)).await;
    let new = json!({"id": Uuid::from_u128(7), "dataset": "training-pairs"});
    let waits = service.holding_back_snapshots().await;
    service.post(SNAPSHOTS, &new).await.expect(202);
    service.delete(&format!("/v1/generations/{}", Uuid::from_u128(1))).await.gone();
    assert_eq!(count(&service, "snapshot_erased").await, 1);
    service.delete(&format!("{SNAPSHOTS}/{}", Uuid::from_u128(7))).await.gone();
    assert_eq!(count(&service, "snapshot_erased").await, 0);
    drop(waits);
}

#[tokio::test]
async fn a_snapshot_fails_if_the_one_that_it_excludes_is_deleted_meanwhile() {
    let service = Service::open().await;
    service.accept(&logs(2)).await;
    let excluded = built(&service, &json!({"dataset": "training-pairs"})).await;
    service.accept(&[solved(9, "another", &[passed(1, "(other)")])]).await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table attempts in access exclusive mode").await.expect("a lock");
    let id = Uuid::from_u128(1);
    let mut new = of_attempts(id);
    new["exclude"] = excluded["id"].clone();
    service.post(SNAPSHOTS, &new).await.expect(202);
    service.blocked(1).await;
    service.delete(&format!("{SNAPSHOTS}/{}", excluded["id"].as_str().expect("an id"))).await.gone();
    transaction.commit().await.expect("released");
    let snapshot = settled(&service, &format!("{SNAPSHOTS}/{id}")).await;
    assert_eq!(
        [&snapshot["state"], &snapshot["error"]],
        ["failed", "/exclude: is a snapshot that was deleted while rows were compared with it"]
    );
}
