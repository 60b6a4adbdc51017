//! `make bench`: measures the goals of the project, each beside a baseline in the same run, on the same machine, into the
//! same tables, and prints them as a table. Nothing is asserted: machines differ, ratios less.
//!
//! `BENCH=ingest,export` runs some parts; `SCALE` is how many solved logs there are (100 000 if not given); `ROUNDS` how often each
//! measurement is taken (5), and `SECONDS` how long a measurement of ingest takes (3). Every figure is the median over the rounds; a baseline is measured in turn with what it is for.

mod data;
mod export;
mod ingest;
mod load;
mod machine;
mod similar;
mod start;

use std::env;

use machine::Machine;

/// What is measured, and how often.
struct Plan {
    scale: usize,
    rounds: usize,
    parts: Vec<String>,
}

impl Plan {
    fn from_environment() -> Self {
        let number = |name: &str, default| {
            env::var(name)
                .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
        };
        let parts = env::var("BENCH").unwrap_or_default();
        Self {
            scale: number("SCALE", 100_000),
            rounds: number("ROUNDS", 5),
            parts: parts.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
        }
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

/// A line of the table.
struct Line {
    what: String,
    ours: String,
    baseline: String,
    ratio: Option<f64>,
    goal: String,
    met: Option<bool>,
}

impl Line {
    /// A ratio that must be at least `goal`.
    fn at_least(what: impl Into<String>, ours: String, baseline: String, ratio: f64, goal: f64) -> Self {
        let met = Some(ratio >= goal);
        Self { what: what.into(), ours, baseline, ratio: Some(ratio), goal: format!("≥ {goal}"), met }
    }

    /// A figure that must meet a goal of its own kind.
    fn figure(
        what: impl Into<String>,
        ours: String,
        baseline: String,
        goal: &str,
        met: Option<bool>,
    ) -> Self {
        Self { what: what.into(), ours, baseline, ratio: None, goal: goal.to_owned(), met }
    }
}

fn main() {
    let arguments: Vec<_> = env::args().collect();
    if let [_, command, socket] = arguments.as_slice()
        && command == "plain-server"
    {
        return ingest::plain_server(socket);
    }
    let plan = Plan::from_environment();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut lines = Vec::new();
    if plan.wants("start") {
        lines.extend(start::run(&plan));
    }
    if ["ingest", "export", "similar"].iter().any(|part| plan.wants(part)) {
        let machine = Machine::start();
        runtime.block_on(async {
            if plan.wants("ingest") {
                lines.extend(ingest::run(&machine, &plan).await);
            }
            if plan.wants("export") || plan.wants("similar") {
                data::load(&machine, plan.scale).await;
            }
            if plan.wants("export") {
                lines.extend(export::run(&machine, &plan).await);
            }
            if plan.wants("similar") {
                lines.extend(similar::run(&machine, &plan).await);
            }
        });
        let memory = machine.memory_peak();
        lines.push(Line::figure("memory of the server, at most", megabytes(memory), String::new(), "", None));
    }
    println!("\n{}; SCALE={}, {} rounds\n", machine::description(), plan.scale, plan.rounds);
    println!("| what | gleaner | baseline | ratio | goal | met |\n|---|---|---|---|---|---|");
    for Line { what, ours, baseline, ratio, goal, met } in lines {
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let met = met.map_or("", |met| if met { "yes" } else { "no" });
        println!("| {what} | {ours} | {baseline} | {ratio} | {goal} | {met} |");
    }
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}
