//! Clients that hang up before they are answered: what they asked for ends as a whole, and others notice nothing.

use std::time::Duration;

use sqlx::PgPool;
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
