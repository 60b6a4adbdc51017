//! Measures whether an event takes longer the more attempts its log has.

use std::time::Instant;

use uuid::Uuid;

use crate::Plan;
use crate::attempts::{BATCH, BATCH_CONNECTIONS, Body, Logs, PROJECT, minimal, recorded};
use crate::load::{Connection, request};
use crate::machine::Machine;
use crate::rounds::{Rounds, in_turn, median};
use crate::table::Line;

/// The number of connections over which single attempts are sent.
const CONNECTIONS: usize = 32;

/// Logs with about the same number of attempts.
struct Depth {
    attempts: u64,
    /// The number of logs, which is so large that the measurement adds few attempts to each.
    logs: usize,
    /// The number of attempts of each log before the measurement.
    filled: u64,
}

/// The depths, from the shallowest, with which the others are compared.
const DEPTHS: [Depth; 3] = [
    Depth { attempts: 1, logs: 50_000, filled: 0 },
    Depth { attempts: 16, logs: 5_000, filled: 12 },
    Depth { attempts: 200, logs: 500, filled: 160 },
];

pub(crate) async fn run(machines: &[Machine], plan: &Plan) -> Vec<Line> {
    let body = Body::new(2 << 10);
    let mut single = DEPTHS.map(|_| Rounds::for_each(machines, 1));
    let mut batches = DEPTHS.map(|_| Rounds::for_each(machines, BATCH));
    for round in 0..plan.rounds {
        let mut logs = Vec::new();
        for machine in machines {
            logs.push(prepare(machine, &body).await);
        }
        for (depth, _) in in_turn(&DEPTHS, round) {
            for (nth, machine) in in_turn(machines, round) {
                let logs = &mut logs[nth][depth];
                let added = logs.add(&machine.address, &body, CONNECTIONS, plan.duration, minimal);
                single[depth][nth].measure(machine, added).await;
                let added = logs.add_batches(&machine.address, &body, plan.duration);
                batches[depth][nth].measure(machine, added).await;
            }
        }
    }
    let mut lines = compared(&format!("2 KB events, {CONNECTIONS} connections"), &single);
    let name = format!("batches of {BATCH} events of 2 KB, {BATCH_CONNECTIONS} connections");
    lines.extend(compared(&name, &batches));
    lines.push(fiftieth(&machines[0], plan).await);
    lines
}

/// Makes new logs of each depth, and waits until their attempts are on the disk, so that all are measured in the same
/// way.
async fn prepare(machine: &Machine, body: &Body) -> Vec<Logs> {
    let mut prepared = Vec::new();
    for Depth { logs, filled, .. } in &DEPTHS {
        let mut logs = Logs::open(machine, *logs).await;
        logs.fill(&machine.address, body, *filled).await;
        prepared.push(logs);
    }
    machine.checkpoint().await;
    prepared
}

/// Returns a line for each depth. The deepest should be as fast as the shallowest.
fn compared(name: &str, rounds: &[Vec<Rounds>; DEPTHS.len()]) -> Vec<Line> {
    let shallowest = &rounds[0][0];
    let line = |(depth, rounds): (&Depth, &Vec<Rounds>)| {
        let attempts = depth.attempts;
        let plural = if attempts == 1 { "" } else { "s" };
        let what = format!("{name}, logs of {attempts} attempt{plural}");
        let line = Line::of(what, rounds, Rounds::rate_and_processor);
        if attempts == 1 {
            return line;
        }
        let against = format!("{} (logs of 1)", shallowest.rate_text());
        line.baseline(against).at_least(rounds[0].rate() / shallowest.rate(), 0.9)
    };
    DEPTHS.iter().zip(rounds).map(line).collect()
}

/// Measures the fiftieth attempt of a log, compared to the first, over one connection.
async fn fiftieth(machine: &Machine, plan: &Plan) -> Line {
    let body = Body::new(10 << 10);
    let mut connection = Connection::open(&machine.address).await;
    let (mut first, mut last) = (vec![], vec![]);
    for _ in 0..plan.rounds * 20 {
        let log = Uuid::new_v4();
        let start = format!(r#"{{"id":"{log}","user_intent":"Create a fund","domain_name":"cbu"}}"#);
        connection.send(&request(PROJECT, "/v1/generations", Some(("application/json", &start)))).await;
        for number in 1..=50 {
            let attempt = recorded(log, &format!("{{{}}}", body.json(log, number)));
            let sent = Instant::now();
            connection.send(&attempt).await;
            let took = sent.elapsed().as_secs_f64() * 1e3;
            match number {
                1 => first.push(took),
                50 => last.push(took),
                _ => {}
            }
        }
    }
    let (first, last) = (median(first), median(last));
    let ratio = last / first;
    Line::new("the 50th attempt of 10 KB of a log, against the first", format!("{last:.2} ms"))
        .baseline(format!("{first:.2} ms"))
        .goal(&format!("≤ 1.3 × (is {ratio:.2})"), ratio <= 1.3)
}
