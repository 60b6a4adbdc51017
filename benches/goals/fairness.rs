//! Measures whether a project is served while another one is at full load: the latencies of its requests alone, and
//! beside the other project.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::Plan;
use crate::attempts::{Body, Logs, PROJECT, minimal};
use crate::data::{Class, Maker};
use crate::load::{Connection, Latencies, ndjson, request};
use crate::machine::Machine;
use crate::rounds::Rounds;
use crate::table::Line;

/// The project that sends few requests.
const QUIET: &str = "quiet";
/// The pause after each of its requests, because an agent also does other things.
const PAUSE: Duration = Duration::from_millis(5);
/// The number of connections over which the other project does each thing.
const EVENTS: usize = 24;
const SIMILAR: usize = 8;
const LISTS: usize = 16;
const EXPORTS: usize = 4;
/// The time for which the other project sends before and after the measurement.
const BEFORE: Duration = Duration::from_secs(1);
/// The maximum ratio of the 99th percentiles beside the other project and alone.
const MOST: f64 = 2.0;

/// The requests of the quiet project, and their latencies in each round: alone, and beside the other project.
struct Kind {
    name: &'static str,
    alone: Rounds,
    beside: Rounds,
}

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    let body = Body::new(2 << 10);
    let mut logs = [Logs::open(machine, 5_000).await, Logs::open(machine, 5_000).await];
    let sql = format!("insert into projects (name) values ('{QUIET}') on conflict do nothing");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut machine.connect().await).await.expect("a project");
    fill(machine, PROJECT, plan.scale.min(20_000)).await;
    fill(machine, QUIET, 1_000).await;
    let kinds = ["all requests", "events", "similar examples", "lists", "exports"];
    let mut kinds = kinds.map(|name| Kind { name, alone: Rounds::of(1), beside: Rounds::of(1) });
    for _ in 0..plan.rounds {
        machine.checkpoint().await;
        let alone = quiet(machine, plan.duration).await;
        let beside = std::thread::scope(|scope| {
            scope.spawn(|| heavy(&machine.address, &mut logs, &body, plan.duration + 2 * BEFORE));
            // The other project first reaches its full load.
            std::thread::sleep(BEFORE);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            scope.spawn(|| runtime.expect("a runtime").block_on(quiet(machine, plan.duration))).join()
        });
        let beside = beside.expect("no request fails");
        for ((kind, alone), beside) in kinds.iter_mut().zip(alone).zip(beside) {
            kind.alone.push(alone);
            kind.beside.push(beside);
        }
    }
    let line = |kind: &Kind| {
        let times = kind.beside.percentile(99) / kind.alone.percentile(99);
        Line::new(format!("{} of a project beside another at full load", kind.name), latency(&kind.beside))
            .baseline(format!("alone {}", latency(&kind.alone)))
            .goal(&format!("p99 < {MOST} times (is {times:.2})"), times < MOST)
    };
    kinds.iter().map(line).collect()
}

fn latency(rounds: &Rounds) -> String {
    let [p50, p99] = [50, 99].map(|percent| rounds.percentile(percent));
    format!("p50 {p50:.2} p99 {p99:.2} ms")
}

fn solved(maker: &mut Maker) -> String {
    let (intent, program) = (maker.intent(Class::Medium), maker.text(200));
    format!(
        r#""id":"{}","user_intent":"{intent}","domain_name":"cbu","success":true,"final_valid_dsl":"{program}""#,
        Uuid::now_v7()
    )
}

async fn fill(machine: &Machine, project: &str, logs: usize) {
    let mut maker = Maker::new(11);
    let mut connection = Connection::open(&machine.address).await;
    for batch in (0..logs).collect::<Vec<_>>().chunks(1_000) {
        let lines: Vec<_> =
            batch.iter().map(|_| format!("{{\"event\":\"generation\",{}}}", solved(&mut maker))).collect();
        connection.send(&ndjson(project, &lines.join("\n"))).await;
    }
}

fn similar(project: &str, maker: &mut Maker) -> Vec<u8> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("intent", &maker.intent(Class::Medium));
    request(project, &format!("/v1/generations/similar?{}", query.finish()), None)
}

/// Sends the requests of the quiet project one after the other, with pauses. Returns the latencies of all of them, and those
/// of each kind.
async fn quiet(machine: &Machine, duration: Duration) -> [Latencies; 5] {
    let mut maker = Maker::new(13);
    let mut connection = Connection::open(&machine.address).await;
    let mut took: [Vec<f64>; 4] = [const { Vec::new() }; 4];
    let begun = Instant::now();
    while begun.elapsed() < duration {
        for (kind, took) in took.iter_mut().enumerate() {
            let sent;
            match kind {
                0 => {
                    let event = format!("{{{}}}", solved(&mut maker));
                    let request = request(QUIET, "/v1/generations", Some(("application/json", &event)));
                    sent = Instant::now();
                    connection.send(&request).await;
                }
                1 => {
                    let request = similar(QUIET, &mut maker);
                    sent = Instant::now();
                    connection.send(&request).await;
                }
                2 => {
                    let request = request(QUIET, "/v1/generations?limit=20", None);
                    sent = Instant::now();
                    connection.send(&request).await;
                }
                _ => {
                    let request = request(QUIET, "/v1/exports/training-pairs?limit=100", None);
                    sent = Instant::now();
                    connection.chunks(&request).await;
                }
            }
            took.push(sent.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(PAUSE).await;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let all = took.concat();
    let [events, similar, lists, exports] = took;
    [all, events, similar, lists, exports].map(|took| Latencies::new(took, seconds))
}

/// Lets this thread use the CPU only when no other does, because clients usually run on other machines.
fn give_way() {
    let thread = fs::read_link("/proc/thread-self").ok();
    let thread = thread.as_deref().and_then(|path| path.file_name());
    let renice = thread.map(|id| Command::new("renice").args(["-n", "19", "-p"]).arg(id).output());
    if !matches!(renice, Some(Ok(output)) if output.status.success()) {
        eprintln!("the client of the other project runs at the same priority as the server");
    }
}

/// The load of the other project, on its own thread and runtime: single events, batches, similar examples, lists and
/// exports, each as soon as the previous one was answered.
fn heavy(address: &str, [events, batches]: &mut [Logs; 2], body: &Body, duration: Duration) {
    give_way();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let begun = Instant::now();
    let similar = (0..SIMILAR).map(async |client| {
        let mut maker = Maker::new(100 + client as u64);
        let mut connection = Connection::open(address).await;
        while begun.elapsed() < duration {
            connection.send(&similar(PROJECT, &mut maker)).await;
        }
    });
    let lists = (0..LISTS).map(async |_| {
        let mut connection = Connection::open(address).await;
        while begun.elapsed() < duration {
            connection.send(&request(PROJECT, "/v1/generations?limit=100", None)).await;
        }
    });
    let exports = (0..EXPORTS).map(async |_| {
        let mut connection = Connection::open(address).await;
        while begun.elapsed() < duration {
            connection.chunks(&request(PROJECT, "/v1/exports/training-pairs", None)).await;
        }
    });
    runtime.block_on(async {
        futures_util::join!(
            events.add(address, body, EVENTS, duration, minimal),
            batches.add_batches(address, body, duration),
            join_all(similar),
            join_all(lists),
            join_all(exports)
        )
    });
}
