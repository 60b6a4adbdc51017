//! Exports of every solved log, compared to psql's COPY of JSON that SQL makes.

use std::process::Stdio;
use std::time::Instant;

use crate::load::{Connection, request};
use crate::machine::Machine;
use crate::rounds::{in_turn, median};
use crate::table::Line;
use crate::{Plan, megabytes};

pub(crate) async fn run(machines: &[Machine], plan: &Plan) -> Vec<Line> {
    let message =
        |role: &str, content: &str| format!("json_build_object('role', '{role}', 'content', {content})");
    let training = format!(
        "copy (select json_build_object('messages', json_build_array({}, {})) from generations
            where project = 'default' and success order by completed_at, id) to stdout",
        message("user", "user_intent"),
        message("assistant", "final_valid_dsl")
    );
    let corrections = format!(
        "copy (select json_build_object('messages', json_build_array({}, {}, {}, {}))
            from correction_pairs p
            join generations g on g.project = p.project and g.id = p.generation_id
            join attempts b on b.project = p.project and b.generation_id = p.generation_id and b.attempt = p.bad_attempt
            join attempts f on f.project = p.project and f.generation_id = p.generation_id and f.attempt = p.fixed_attempt
            where p.project = 'default' and p.kind = 'fix'
            order by p.completed_at, p.generation_id, p.bad_attempt) to stdout",
        message("user", "g.user_intent"),
        message("assistant", "b.extracted_dsl"),
        message("user", "b.error_message"),
        message("assistant", "f.extracted_dsl")
    );
    let mut lines = vec![listing(machines, plan).await];
    for (name, sql, goal) in [("training-pairs", training, 2.0), ("correction-pairs", corrections, 1.5)] {
        let mut exports: Vec<_> = machines.iter().map(|_| Export::default()).collect();
        let mut psql = Vec::new();
        for round in 0..plan.rounds {
            for (nth, machine) in in_turn(machines, round) {
                exports[nth].measure(machine, name).await;
            }
            let begun = Instant::now();
            let mut command = machines[0].program("psql");
            let status = command.args(["-q", "-c", &sql]).stdout(Stdio::null()).status().expect("psql");
            assert!(status.success(), "psql fails");
            psql.push(begun.elapsed().as_secs_f64());
        }
        let psql = median(psql);
        let speed = |export: &Export| {
            let seconds = export.seconds();
            format!("{seconds:.2} s, {}/s", megabytes(export.bytes as f64 / seconds))
        };
        let growth = exports[0].growth < 32e6;
        lines.push(
            Line::of(format!("export of {name}, against psql COPY (SELECT json)"), &exports, speed)
                .baseline(format!("{psql:.2} s"))
                .at_least(psql / exports[0].seconds(), goal),
        );
        let what = format!("export of {name}: growth of memory, at most");
        lines.push(Line::of(what, &exports, |export| megabytes(export.growth)).goal("< 32 MB", growth));
    }
    lines
}

/// The exports of one data set by one server.
#[derive(Default)]
struct Export {
    seconds: Vec<f64>,
    /// The maximum growth of the server's memory, in bytes.
    growth: f64,
    bytes: usize,
}

impl Export {
    async fn measure(&mut self, machine: &Machine, name: &str) {
        let (idle, mut most) = (machine.memory(), 0.0_f64);
        let begun = Instant::now();
        let connection = Connection::open(&machine.address).await;
        let watch = || most = most.max(machine.memory());
        self.bytes = connection.drain(&format!("/v1/exports/{name}"), watch).await;
        self.seconds.push(begun.elapsed().as_secs_f64());
        self.growth = self.growth.max(most - idle);
    }

    fn seconds(&self) -> f64 {
        median(self.seconds.clone())
    }
}

/// Measures the list of data sets, which counts their rows.
async fn listing(machines: &[Machine], plan: &Plan) -> Line {
    let mut took: Vec<_> = machines.iter().map(|_| Vec::new()).collect();
    let list = request("default", "/v1/exports", None);
    for round in 0..plan.rounds {
        for (nth, machine) in in_turn(machines, round) {
            let mut connection = Connection::open(&machine.address).await;
            let begun = Instant::now();
            connection.send(&list).await;
            took[nth].push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let took: Vec<_> = took.into_iter().map(median).collect();
    Line::of(format!("list of exports of {} logs", plan.scale), &took, |took| format!("{took:.1} ms"))
        .goal("< 100 ms", took[0] < 100.0)
}
