//! Attempts of 2 and 10 KB, each in its own request or a hundred in a batch, and batches that are sent again,
//! compared to the baselines.

use crate::Plan;
use crate::attempts::{BATCH, BATCH_CONNECTIONS, Body, Logs, PROJECT, minimal, recorded};
use crate::baselines::{self, PlainServer};
use crate::data::solved_logs;
use crate::load::{ndjson, request, send_for};
use crate::machine::Machine;
use crate::rounds::{Rounds, in_turn, median};
use crate::table::Line;

/// The number of open logs to which attempts are appended.
const LOGS: usize = 50_000;

/// Requests with one attempt of a given size, over a number of connections.
struct Case {
    bytes: usize,
    connections: usize,
    goal: Goal,
    /// The goal for the ratio to a server without group commit, if that is measured.
    unbatched: Option<f64>,
    /// The goals for the CPU time of an event, of the server and of Postgres, in microseconds.
    processor: Option<(f64, f64)>,
}

/// The goal of single events, compared to pgbench.
enum Goal {
    /// A minimum ratio of the rates.
    Rate(f64),
    /// A maximum difference of the median latencies, in milliseconds.
    Latency(f64),
}

impl Case {
    const fn new(bytes: usize, connections: usize, goal: Goal) -> Self {
        Self { bytes, connections, goal, unbatched: None, processor: None }
    }
}

const CASES: [Case; 5] = [
    Case { unbatched: Some(3.0), processor: Some((30.0, 45.0)), ..Case::new(2 << 10, 64, Goal::Rate(2.0)) },
    Case::new(2 << 10, 32, Goal::Rate(1.5)),
    Case::new(2 << 10, 8, Goal::Rate(1.0)),
    Case::new(2 << 10, 1, Goal::Latency(0.15)),
    Case { unbatched: Some(1.0), ..Case::new(10 << 10, 64, Goal::Rate(1.2)) },
];

/// What the servers are compared with, on its own cluster, so that each has only its own rows.
struct Baseline {
    /// A server without group commit, and the logs to which it appends.
    unbatched: PlainServer,
    logs: Logs,
    machine: Machine,
}

impl Baseline {
    async fn start(plan: &Plan) -> Self {
        let machine = Machine::start(&plan.programs[0]);
        let logs = Logs::open(&machine, LOGS).await;
        Self { unbatched: PlainServer::start(&machine), logs, machine }
    }
}

pub(crate) async fn run(machines: &[Machine], plan: &Plan) -> Vec<Line> {
    let mut logs = Vec::new();
    for machine in machines {
        logs.push(Logs::open(machine, LOGS).await);
    }
    let mut baseline = Baseline::start(plan).await;
    let mut lines = Vec::new();
    for case in CASES {
        lines.extend(single(machines, plan, &mut logs, &mut baseline, case).await);
    }
    lines.push(floor(machines, plan, &baseline).await);
    lines.extend(batches(machines, plan, &mut logs, &baseline).await);
    lines.extend(solved(machines, plan).await);
    lines
}

/// Measures requests with one event each.
async fn single(
    machines: &[Machine],
    plan: &Plan,
    logs: &mut [Logs],
    baseline: &mut Baseline,
    case: Case,
) -> Vec<Line> {
    let Case { bytes, connections, .. } = case;
    let (duration, body) = (plan.duration, Body::new(bytes));
    let mut ours = Rounds::for_each(machines, 1);
    let mut echoed = Rounds::for_each(machines, 1);
    let (mut pgbench, mut one_by_one) = (Rounds::of(1), Rounds::of(1));
    // What the previous case has left to be written must not affect the first server.
    for machine in machines.iter().chain([&baseline.machine]) {
        machine.checkpoint().await;
    }
    for round in 0..plan.rounds {
        for (nth, machine) in in_turn(machines, round) {
            let added = logs[nth].add(&machine.address, &body, connections, duration, minimal);
            ours[nth].measure(machine, added).await;
        }
        pgbench.push(baselines::pgbench(&baseline.machine, &body, connections, duration));
        if case.unbatched.is_some() {
            for (nth, machine) in in_turn(machines, round) {
                let added = logs[nth].add(&machine.address, &body, connections, duration, recorded);
                echoed[nth].measure(machine, added).await;
            }
            let Baseline { unbatched, logs, .. } = &mut *baseline;
            one_by_one.push(unbatched.add(logs, &body, connections, duration).await);
        }
    }
    let plural = if connections == 1 { "" } else { "s" };
    let name = format!("{} KB events, {connections} connection{plural}", bytes >> 10);
    let beside = Line::of(format!("{name}, against pgbench"), &ours, Rounds::rate_and_latency)
        .baseline(pgbench.rate_and_latency());
    let mut lines = vec![match case.goal {
        Goal::Rate(times) => beside.at_least(ours[0].rate() / pgbench.rate(), times),
        Goal::Latency(most) => {
            let more = ours[0].percentile(50) - pgbench.percentile(50);
            beside.goal(&format!("p50 ≤ + {most} ms (is {more:+.2})"), more <= most)
        }
    }];
    if let Some(times) = case.unbatched {
        lines.push(
            Line::of(format!("{name}, against an INSERT a request"), &ours, Rounds::rate_text)
                .baseline(one_by_one.rate_and_latency())
                .at_least(ours[0].rate() / one_by_one.rate(), times),
        );
        lines.push(Line::of(format!("{name}, answered with the record"), &echoed, Rounds::rate_and_latency));
    }
    let what = format!("{name}: processor time each, server + Postgres");
    let line = Line::of(what, &ours, Rounds::processor_text);
    lines.push(match case.processor {
        Some((server, postgres)) => {
            let used = ours[0].processor();
            let goal = format!("≤ {server} + {postgres} µs");
            line.goal(&goal, used.0 <= server && used.1 <= postgres)
        }
        None => line,
    });
    lines
}

/// Measures the cost of HTTP alone: requests without a body that do not use the database, also to a server that does
/// nothing else.
async fn floor(machines: &[Machine], plan: &Plan, baseline: &Baseline) -> Line {
    let healthz = |address| send_for(address, 64, plan.duration, |_| request(PROJECT, "/healthz", None));
    let (mut ours, mut bare) = (Rounds::for_each(machines, 1), Rounds::of(1));
    for round in 0..plan.rounds {
        for (nth, machine) in in_turn(machines, round) {
            ours[nth].measure(machine, healthz(&machine.address)).await;
        }
        bare.push(healthz(&baseline.unbatched.address).await);
    }
    let text = |rounds: &Rounds| {
        format!("{}, {:.0} µs of the server each", rounds.rate_text(), rounds.processor().0)
    };
    Line::of("for comparison: GET /healthz, 64 connections", &ours, text)
        .baseline(format!("{} (axum alone)", bare.rate_text()))
}

/// Measures batches of attempts, compared to COPY, and the same batches again.
async fn batches(machines: &[Machine], plan: &Plan, logs: &mut [Logs], baseline: &Baseline) -> Vec<Line> {
    let body = Body::new(2 << 10);
    let mut ours = Rounds::for_each(machines, BATCH);
    let mut again = Rounds::for_each(machines, BATCH);
    let mut copy = Vec::new();
    for round in 0..plan.rounds {
        for (nth, machine) in in_turn(machines, round) {
            let added = logs[nth].add_batches(&machine.address, &body, plan.duration);
            let sent = ours[nth].measure(machine, added).await;
            let repeated = logs[nth].repeat_batches(&machine.address, &body, plan.duration, sent);
            again[nth].measure(machine, repeated).await;
        }
        copy.push(baselines::copy(&baseline.machine, &body).await);
    }
    let copy = median(copy);
    let name = format!("batches of {BATCH} events of 2 KB, {BATCH_CONNECTIONS} connections");
    vec![
        Line::of(format!("{name}, against COPY"), &ours, Rounds::rate_and_processor)
            .baseline(format!("{copy:.0}/s"))
            .at_least(ours[0].rate() / copy, 0.5),
        repeated("the same batches again, against the first time", &again, &ours),
    ]
}

/// Measures batches of solved logs with two attempts each, and the same batches again.
async fn solved(machines: &[Machine], plan: &Plan) -> Vec<Line> {
    let mut first = Rounds::for_each(machines, BATCH);
    let mut again = Rounds::for_each(machines, BATCH);
    for round in 0..plan.rounds {
        let batch = |nth| ndjson(PROJECT, &solved_logs((round as u64) << 32 | nth, BATCH));
        for (nth, machine) in in_turn(machines, round) {
            let sent = send_for(&machine.address, BATCH_CONNECTIONS, plan.duration, batch);
            let sent = first[nth].measure(machine, sent).await;
            let repeat = |nth| batch(nth % sent);
            let repeat = send_for(&machine.address, BATCH_CONNECTIONS, plan.duration, repeat);
            again[nth].measure(machine, repeat).await;
        }
    }
    let name =
        format!("batches of {BATCH} solved logs with 2 attempts each, {BATCH_CONNECTIONS} connections");
    vec![
        Line::of(name, &first, Rounds::rate_and_processor),
        repeated("the same solved logs again, against the first time", &again, &first),
    ]
}

/// Returns the line of batches that were sent again.
fn repeated(what: &str, again: &[Rounds], first: &[Rounds]) -> Line {
    Line::of(what, again, Rounds::rate_and_processor)
        .baseline(first[0].rate_text())
        .at_least(again[0].rate() / first[0].rate(), 1.0)
}
