//! Similar examples for each kind of query, alone and beside 500 events per second, compared to the seed's own query.

use std::cell::Cell;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::Plan;
use crate::data::{Class, Maker};
use crate::load::{Connection, Latencies, request};
use crate::machine::Machine;
use crate::table::Line;

/// The number of queries of each kind, and the number of the seed's queries.
const QUERIES: usize = 300;
const SEED_QUERIES: usize = 3;

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    // The first query of a project takes the sample of its logs.
    ask(machine, Class::Medium, true, 50).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for beside in [false, true] {
        for class in [Class::Short, Class::Medium, Class::Long, Class::Rare, Class::Common] {
            for with_domain in [false, true] {
                let asked = ask(machine, class, with_domain, QUERIES);
                let took = if beside { beside_ingest(machine, asked).await } else { asked.await };
                let domain = if with_domain { ", with a domain" } else { "" };
                let company = if beside { ", beside 500 events/s" } else { "" };
                let seed = if beside || with_domain {
                    String::new()
                } else {
                    format!("p50 {:.0} ms", seed_query(machine, class).await.percentile(50))
                };
                let met = took.percentile(99) < 50.0;
                let what = format!("similar examples among {}: {class:?}{domain}{company}", plan.scale);
                lines.push(Line::new(what, took.summary()).baseline(seed).goal("p99 < 50 ms", met));
            }
        }
    }
    lines
}

async fn ask(machine: &Machine, class: Class, with_domain: bool, queries: usize) -> Latencies {
    let mut maker = Maker::new(5);
    let mut connection = Connection::open(&machine.address).await;
    let (mut took, begun) = (Vec::new(), Instant::now());
    for _ in 0..queries {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("intent", &maker.intent(class));
        if with_domain {
            query.append_pair("domain_name", &maker.domain());
        }
        let path = format!("/v1/generations/similar?{}", query.finish());
        let sent = Instant::now();
        connection.send(&request("default", &path, None)).await;
        took.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    Latencies::new(took, begun.elapsed().as_secs_f64())
}

/// Does something while solved logs are stored.
async fn beside_ingest<T>(machine: &Machine, work: impl Future<Output = T>) -> T {
    let done = Cell::new(false);
    let ingest = async {
        let mut maker = Maker::new(9);
        let mut connection = Connection::open(&machine.address).await;
        let mut tick = tokio::time::interval(Duration::from_millis(2));
        while !done.get() {
            tick.tick().await;
            let (intent, domain) = (maker.intent(Class::Medium), maker.domain());
            let log = format!(
                r#"{{"id":"{}","user_intent":"{intent}","domain_name":"{domain}","success":true,"final_valid_dsl":"(x)"}}"#,
                Uuid::now_v7()
            );
            connection.send(&request("default", "/v1/generations", Some(("application/json", &log)))).await;
        }
    };
    let work = async {
        let result = work.await;
        done.set(true);
        result
    };
    futures_util::join!(ingest, work).1
}

/// The query of the seed, which sorts all similar logs.
async fn seed_query(machine: &Machine, class: Class) -> Latencies {
    let sql = "select user_intent, final_valid_dsl from generations
        where project = 'default' and success and user_intent % $1
        order by similarity(user_intent, $1) desc limit 5";
    let mut maker = Maker::new(5);
    let mut connection = machine.connect().await;
    let (mut took, begun) = (Vec::new(), Instant::now());
    for _ in 0..SEED_QUERIES {
        let intent = maker.intent(class);
        let sent = Instant::now();
        let query = sqlx::query(sql).bind(intent);
        query.fetch_all(&mut connection).await.expect("an answer");
        took.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    Latencies::new(took, begun.elapsed().as_secs_f64())
}
