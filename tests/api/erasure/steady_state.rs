//! As much comes in as expires: the space of what is gone is used again.

use std::collections::BTreeMap;

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{expire_at, one_of_each, service};
use crate::support::program::Timestamp;
use crate::support::{Service, eventually};

/// How many records of each kind come in and expire in a round.
const ROUND: u128 = 200;
/// How many rounds it takes until every page is in use that ever will be.
const WARM: usize = 6;
const ROUNDS: usize = 10;
/// The size of a page of Postgres, in bytes.
const PAGE: i64 = 8_192;

/// The size of each table with its indexes and long values, in bytes, after a vacuum.
async fn sizes(service: &Service) -> BTreeMap<String, i64> {
    let sql = "select relname::text, pg_total_relation_size(oid) from pg_class
               where relkind = 'r' and relnamespace = 'public'::regnamespace";
    let mut connection = service.connection().await;
    vacuum(&mut connection).await;
    let sizes: Vec<(String, i64)> = sqlx::query_as(sql).fetch_all(&mut connection).await.expect("sizes");
    sizes.into_iter().collect()
}

/// Does what autovacuum does once enough has changed. A vacuum leaves the rows that a statement may still see which runs
/// beside it, here or in another database, so that it is repeated until no dead row is left.
async fn vacuum(connection: &mut PgConnection) {
    let dead = "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_all_tables
                where schemaname in ('public', 'pg_toast')";
    eventually("no dead row stays", async || {
        sqlx::raw_sql("vacuum").execute(&mut *connection).await.expect("vacuums");
        let dead: i64 = sqlx::query_scalar(dead).fetch_one(&mut *connection).await.expect("a number");
        dead == 0
    })
    .await;
}

#[tokio::test]
async fn tables_stop_growing_where_as_much_expires_as_comes_in() {
    let service = service().await;
    service.put("/v1/models/m", &json!({"context_window": 1_000_000})).await.expect(201);
    let days = json!({"generations": 1, "suggestions": 1, "searches": 1, "messages": 1, "memories": 1});
    service.put("/v1/projects/default", &json!({"retention_days": days})).await.expect(200);
    let empty = sizes(&service).await;
    let mut history = Vec::new();
    for round in 0..ROUNDS {
        let tomorrow = Timestamp::now().plus(chrono::TimeDelta::days(1)).expect("a time");
        // Ids as servers and clients make them: in the order of time.
        let events: Vec<_> =
            (0..ROUND).flat_map(|_| one_of_each(Uuid::now_v7().as_u128(), &format!("s{round}"))).collect();
        service.accept(&events).await;
        // What came in before this round is a day old, and this round's is not.
        expire_at(&service, tomorrow).await;
        assert_eq!(service.all("/v1/generations").await.len() as u128, ROUND);
        history.push(sizes(&service).await);
    }
    let most = |rounds: &[BTreeMap<String, i64>], table: &str| {
        rounds.iter().map(|sizes| sizes[table]).max().expect("rounds")
    };
    for (table, empty) in &empty {
        let (warm, later) = (most(&history[..WARM], table), most(&history[WARM..], table));
        // A table that keeps what expires grows by as much in each round as in the first.
        let all = (history[0][table] - empty) * i64::try_from(ROUNDS - WARM).expect("a small number");
        assert!(
            later - warm <= all / 2 + 2 * PAGE,
            "{table} grows: {:?}",
            history.iter().map(|sizes| sizes[table]).collect::<Vec<_>>()
        );
    }
}
