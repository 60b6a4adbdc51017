//! Clients that hang up before they are answered: what they asked for ends as a whole, and others notice nothing.

use std::time::Duration;

use axum::http::Method;
use sqlx::{Connection as _, Executor as _, PgPool};
use tokio::time::timeout;

use crate::support::Service;
use crate::support::program::{Timestamp, begin, begin_snapshot};

/// Within a transaction, the time stands still.
async fn is_in_a_transaction(pool: &PgPool) -> bool {
    let now = || async {
        let now: Timestamp = sqlx::query_scalar("select now()").fetch_one(pool).await.expect("the time");
        now
    };
    now().await == now().await
}

#[tokio::test]
async fn a_transaction_that_is_given_up_while_it_begins_is_not_left_open() {
    let service = Service::open().await;
    let pool = service.pool_of_one();
    assert!(!is_in_a_transaction(&pool).await);
    let (mut given_up, mut begun) = (0, 0);
    for number in 0..2_000 {
        let patience = Duration::from_micros(number * 7 % 500);
        let result = if number % 2 == 0 {
            timeout(patience, begin(&pool)).await
        } else {
            timeout(patience, begin_snapshot(&pool)).await
        };
        match result {
            Ok(transaction) => {
                transaction.expect("a transaction");
                begun += 1;
            }
            Err(_) => given_up += 1,
        }
        assert!(!is_in_a_transaction(&pool).await, "after {patience:?}");
    }
    assert!(given_up > 0, "{begun} have begun");
}

#[tokio::test]
async fn a_project_whose_clients_hang_up_leaves_connections_to_others() {
    const QUIET: [(&str, &str); 1] = [("gleaner-project", "quiet")];
    let service = Service::open().await;
    service.project("quiet").await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table suggestions in access exclusive mode").await.expect("a lock");
    // A project has two of the four connections. Postgres keeps them busy after the clients are gone.
    for statements in 1..=2 {
        tokio::select! {
            answer = service.get("/v1/suggestions") => panic!("{}", answer.text()),
            () = service.blocked(statements) => {}
        }
    }
    for _ in 0..10 {
        timeout(Duration::from_millis(20), service.get("/v1/suggestions")).await.expect_err("it waits");
    }
    service.call(Method::GET, "/v1/generations", &QUIET, None).await.expect(200);
    service.blocked(2).await;
    transaction.commit().await.expect("released");
    service.get("/v1/suggestions").await.expect(200);
}

#[tokio::test]
async fn the_statement_of_an_export_ends_when_its_reader_is_gone() {
    const PATH: &str = "/v1/exports/training-pairs?prompt=sent";
    let service = Service::open().await;
    service.get(PATH).await.expect(200);
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table attempts in access exclusive mode").await.expect("a lock");
    for coding in ["identity", "gzip"] {
        let headers = [("accept-encoding", coding)];
        tokio::select! {
            answer = service.call(Method::GET, PATH, &headers, None) => panic!("{}", answer.text()),
            () = service.blocked(1) => {}
        }
        service.blocked(0).await;
    }
    transaction.commit().await.expect("released");
    service.get(PATH).await.expect(200);
}

#[tokio::test]
async fn the_statement_that_counts_the_rows_of_an_export_or_a_profile_ends_when_its_client_hangs_up() {
    let service = Service::open().await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table attempts in access exclusive mode").await.expect("a lock");
    let paths = ["?prompt=sent&limit=1", "/profile?prompt=sent"];
    let paths = paths.map(|path| format!("/v1/exports/training-pairs{path}"));
    for path in &paths {
        tokio::select! {
            answer = service.get(path) => panic!("{}", answer.text()),
            () = service.blocked(1) => {}
        }
        service.blocked(0).await;
    }
    transaction.commit().await.expect("released");
    for path in &paths {
        service.get(path).await.expect(200);
    }
}
