//! `make bench` measures the goals of the project, each with a baseline in the same run, on the same machine and into
//! equal tables, and prints them as a table. Nothing is asserted, because machines differ.
//!
//! These environment variables control the benchmarks:
//!
//! - `BENCH=ingest,export` measures some of the parts, which are `start`, `ingest`, `depth`, `export`, `parquet`,
//!   `seeds`, `similar`, `memories`, `gateway`, `redaction`, `retention` and `fairness`.
//! - `SCALE` is the number of solved logs that are exported, selected with SQL, and searched, and of memories (100 000).
//! - `ROUNDS` is the number of times that each measurement is taken (5). Every figure is the median over the rounds.
//!   A baseline is measured in turn with what is compared to it.
//! - `SECONDS` is the duration of a measurement of `ingest` and `depth` (3).
//! - `GLEANER_BINARY` is the server program that is measured. The default is the one that cargo has built.
//! - `BASELINE_BINARY` is the server program of an earlier build, which is measured in turn with it, on its own
//!   cluster. Its results are in the column `before`.
//!
//! Only the server's program is used, and nothing of its library, so that builds of any age can be measured.

mod attempts;
mod baselines;
mod data;
mod depth;
mod export;
mod fairness;
mod gateway;
mod ingest;
mod load;
mod machine;
mod memories;
mod parquet;
mod redaction;
mod retention;
mod rounds;
mod seeds;
mod similar;
mod start;
mod table;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use machine::Machine;
use table::Line;

/// What is measured, and how often.
struct Plan {
    scale: usize,
    rounds: usize,
    /// How long a measurement of ingest takes.
    duration: Duration,
    parts: Vec<String>,
    /// The server program under test, and that of an earlier build where there is one.
    programs: Vec<PathBuf>,
}

impl Plan {
    fn from_environment() -> Self {
        let number = |name: &str, default| {
            env::var(name)
                .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
        };
        let program = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let ours = program("GLEANER_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_gleaner").into());
        let parts = env::var("BENCH").unwrap_or_default();
        Self {
            scale: number("SCALE", 100_000),
            rounds: number("ROUNDS", 5),
            duration: Duration::from_secs(number("SECONDS", 3) as u64),
            parts: parts.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            programs: [ours].into_iter().chain(program("BASELINE_BINARY")).collect(),
        }
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

fn main() {
    let arguments: Vec<_> = env::args().collect();
    if let [_, command, socket] = arguments.as_slice()
        && command == "plain-server"
    {
        return baselines::plain_server(socket);
    }
    if arguments.get(1).is_some_and(|command| command == "local-provider") {
        return gateway::local_provider();
    }
    let plan = Plan::from_environment();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut lines = Vec::new();
    if plan.wants("start") {
        lines.extend(start::run(&plan));
    }
    if [
        "ingest",
        "depth",
        "export",
        "parquet",
        "seeds",
        "similar",
        "memories",
        "redaction",
        "retention",
        "fairness",
    ]
    .iter()
    .any(|part| plan.wants(part))
    {
        let machines: Vec<_> = plan.programs.iter().map(|program| Machine::start(program)).collect();
        runtime.block_on(async {
            if plan.wants("ingest") {
                lines.extend(ingest::run(&machines, &plan).await);
            }
            if plan.wants("depth") {
                lines.extend(depth::run(&machines, &plan).await);
            }
            if plan.wants("redaction") {
                lines.extend(redaction::run(&machines[0], &plan).await);
            }
            // Files, statements of the seed and similar examples are measured of the server under test alone.
            let alone = ["parquet", "seeds", "similar"].iter().any(|part| plan.wants(part));
            let loaded = if plan.wants("export") { machines.len() } else { usize::from(alone) };
            for machine in &machines[..loaded] {
                data::load(machine, plan.scale).await;
            }
            if plan.wants("export") {
                lines.extend(export::run(&machines, &plan).await);
            }
            if plan.wants("parquet") {
                lines.extend(parquet::run(&machines[0], &plan).await);
            }
            if plan.wants("seeds") {
                lines.extend(seeds::run(&machines[0], &plan).await);
            }
            if plan.wants("similar") {
                lines.extend(similar::run(&machines[0], &plan).await);
            }
            if plan.wants("memories") {
                lines.extend(memories::run(&machines[0], &plan).await);
            }
            if plan.wants("retention") {
                lines.extend(retention::run(&machines[0], &plan).await);
            }
            if plan.wants("fairness") {
                lines.extend(fairness::run(&machines[0], &plan).await);
            }
        });
        let memory = |machine: &Machine| megabytes(machine.memory_peak());
        lines.push(Line::of("memory of the server, at most", &machines, memory));
    }
    if plan.wants("gateway") {
        lines.extend(runtime.block_on(gateway::run(&plan)));
    }
    println!("\n{}; SCALE={}, {} rounds\n", machine::description(), plan.scale, plan.rounds);
    table::print(&lines);
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}
