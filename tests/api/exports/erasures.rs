//! Erasures beside work on snapshots: they do not wait for it, and nobody else waits for them.

use std::time::Duration;

use futures_util::join;
use serde_json::json;
use sqlx::{Postgres, Transaction};
use tokio::time::timeout;
use uuid::Uuid;

use super::files::{SNAPSHOTS, built, logs};
use super::{TRAINING, without_rounds};
use crate::support::Service;

/// The time after which a request waits for the held connection.
const LONG: Duration = Duration::from_secs(30);

/// A service with two logs and a snapshot of them, and the id of the snapshot.
async fn with_snapshot() -> (Service, Uuid) {
    let service = without_rounds().await;
    service.accept(&logs(2)).await;
    let id = Uuid::from_u128(9);
    let new = json!({"id": id, "dataset": "training-pairs"});
    assert_eq!(built(&service, &new).await["state"], "complete");
    (service, id)
}

/// Erases a log as soon as another connection waits for the held one, which is released afterwards.
async fn erase_beside(service: &Service, log: u128, held: Transaction<'static, Postgres>) {
    service.blocked(1).await;
    let path = format!("/v1/generations/{}", Uuid::from_u128(log));
    timeout(LONG, service.delete(&path)).await.expect("it does not wait").gone();
    service.blocked(1).await;
    held.rollback().await.expect("released");
}

#[tokio::test]
async fn an_erasure_does_not_wait_for_a_snapshot_that_is_being_indexed() {
    let (service, id) = with_snapshot().await;
    let text = "insert into snapshot_texts select project, snapshot_id, texts[1] from snapshot_contents";
    let held = service.holding(text).await;
    let path = format!("{TRAINING}?format=raw&exclude={id}");
    let (export, ()) = join!(service.get(&path), erase_beside(&service, 1, held));
    assert_eq!(export.rows().len(), 0);
    let snapshot = service.get(&format!("{SNAPSHOTS}/{id}")).await.expect(200);
    assert_eq!(snapshot["erased_records"], 1);
}

#[tokio::test]
async fn an_erasure_does_not_wait_for_the_file_of_a_snapshot_to_be_deleted() {
    let (service, id) = with_snapshot().await;
    let held = service.holding("select from snapshot_chunks for update").await;
    let path = format!("{SNAPSHOTS}/{id}");
    let (deleted, ()) = join!(service.delete(&path), erase_beside(&service, 1, held));
    deleted.gone();
    let left: i64 = sqlx::query_scalar("select count(*) from snapshot_chunks")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    assert_eq!(left, 0);
}

#[tokio::test]
async fn an_erasure_does_not_wait_for_the_file_of_a_snapshot_that_is_built_anew_or_given_up() {
    let (service, id) = with_snapshot().await;
    for (attempts, log, state) in [(1, 1, "complete"), (3, 2, "failed")] {
        let died = "update snapshots set state = 'building', lease = gen_random_uuid(), attempts = $1,
            lease_until = now() - interval '1 second'";
        sqlx::query(died).bind(attempts).execute(service.pool()).await.expect("its builder died");
        let held = service.holding("select from snapshot_chunks for update").await;
        join!(service.build_snapshots(), erase_beside(&service, log, held));
        let snapshot = service.get(&format!("{SNAPSHOTS}/{id}")).await.expect(200);
        assert_eq!(snapshot["state"], state);
    }
}

#[tokio::test]
async fn a_review_does_not_wait_for_an_erasure_that_waits_for_a_snapshot() {
    let (service, _) = with_snapshot().await;
    let held = service.holding("select from snapshots for update").await;
    let path = format!("/v1/generations/{}", Uuid::from_u128(1));
    let reviewed = async {
        service.blocked(1).await;
        let path = format!("/v1/generations/{}/review", Uuid::from_u128(2));
        let review = json!({"rating": "poor", "corrected_dsl": "(corrected)"});
        timeout(LONG, service.put(&path, &review)).await.expect("it does not wait").expect(200);
        service.blocked(1).await;
        held.rollback().await.expect("released");
    };
    let (erased, ()) = join!(service.delete(&path), reviewed);
    erased.gone();
}
