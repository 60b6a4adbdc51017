//! Measures whether posting waits for retention: attempts while nothing expires, and while old logs expire.

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::Plan;
use crate::attempts::{Body, Logs, minimal};
use crate::load::{Connection, ndjson};
use crate::machine::Machine;
use crate::rounds::{Rounds, median};
use crate::table::Line;

/// The project whose logs expire.
const PROJECT: &str = "old";
/// The number of connections over which attempts are sent.
const CONNECTIONS: usize = 8;
/// The maximum ratio of the 99th percentiles with and without retention.
const MOST: f64 = 1.5;

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    let body = Body::new(2 << 10);
    let mut logs = Logs::open(machine, 5_000).await;
    keep_for(machine, "null").await;
    fill(machine, &body, plan.scale).await;
    let (mut without, mut with, mut rates) = (Rounds::of(1), Rounds::of(1), Vec::new());
    for _ in 0..plan.rounds {
        machine.checkpoint().await;
        without.push(logs.add(&machine.address, &body, CONNECTIONS, plan.duration, minimal).await);
        keep_for(machine, r#"{"generations": 1}"#).await;
        let before = begun(machine).await;
        with.push(logs.add(&machine.address, &body, CONNECTIONS, plan.duration, minimal).await);
        rates.push((before - left(machine).await) as f64 / plan.duration.as_secs_f64());
        keep_for(machine, "null").await;
    }
    let name = format!("2 KB events, {CONNECTIONS} connections");
    let times = with.percentile(99) / without.percentile(99);
    vec![
        Line::new(format!("{name}, nothing expires"), without.rate_and_latency()),
        Line::new(
            format!("{name}, {:.0} logs of 2 attempts expire a second", median(rates)),
            with.rate_and_latency(),
        )
        .baseline(without.rate_and_latency())
        .goal(&format!("p99 ≤ {MOST} times (is {times:.2})"), times <= MOST),
    ]
}

/// Sets the number of days for which the server keeps the project's logs.
async fn keep_for(machine: &Machine, days: &str) {
    let sql = format!(
        r#"insert into projects (name, settings) values ('{PROJECT}', '{{"retention_days": {days}}}')
           on conflict (name) do update set settings = excluded.settings"#
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut machine.connect().await).await.expect("a project");
}

/// Stores this many old logs, with two attempts each.
async fn fill(machine: &Machine, body: &Body, logs: usize) {
    let mut connection = Connection::open(&machine.address).await;
    let mut left = logs;
    while left > 0 {
        let batch = left.min(1_000);
        let mut lines = String::new();
        for _ in 0..batch {
            let log = Uuid::now_v7();
            let _ = writeln!(
                lines,
                r#"{{"event":"generation","id":"{log}","user_intent":"x","domain_name":"cbu","created_at":"2020-01-01T00:00:00Z"}}"#
            );
            for number in [1, 2] {
                let attempt = body.json(log, number);
                let _ = writeln!(lines, r#"{{"event":"attempt","generation_id":"{log}",{attempt}}}"#);
            }
        }
        connection.send(&ndjson(PROJECT, &lines)).await;
        left -= batch;
    }
}

/// Returns the number of logs that are left.
async fn left(machine: &Machine) -> i64 {
    let sql = format!("select count(*) from generations where project = '{PROJECT}'");
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut machine.connect().await).await.expect("a count")
}

/// Waits until logs begin to expire. Returns the number of logs that are left then.
async fn begun(machine: &Machine) -> i64 {
    let all = left(machine).await;
    assert!(all > 0, "all logs have expired: SCALE is too small");
    loop {
        let now = left(machine).await;
        if now < all {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
