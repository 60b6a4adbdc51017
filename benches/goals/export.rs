//! Exports of every solved log, beside psql's COPY of JSON made in SQL.

use std::process::Stdio;
use std::time::Instant;

use crate::load::Connection;
use crate::machine::Machine;
use crate::{Line, Plan, median, megabytes};

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
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
    let mut lines = Vec::new();
    for (name, sql) in [("training-pairs", training), ("correction-pairs", corrections)] {
        let (mut ours, mut psql, mut growth, mut bytes) = (vec![], vec![], vec![], 0);
        for _ in 0..plan.rounds {
            let (idle, mut most) = (machine.memory(), 0.0_f64);
            let begun = Instant::now();
            let connection = Connection::open(&machine.address).await;
            let watch = || most = most.max(machine.memory());
            bytes = connection.drain(&format!("/v1/exports/{name}"), watch).await;
            ours.push(begun.elapsed().as_secs_f64());
            growth.push(most - idle);
            let begun = Instant::now();
            let mut command = machine.program("psql");
            let status = command.args(["-q", "-c", &sql]).stdout(Stdio::null()).status().expect("psql");
            assert!(status.success(), "psql fails");
            psql.push(begun.elapsed().as_secs_f64());
        }
        let (ours, psql) = (median(ours), median(psql));
        let growth = growth.into_iter().fold(0.0, f64::max);
        let speed = bytes as f64 / ours;
        lines.push(Line::at_least(
            format!("export of {name}, against psql COPY (SELECT json)"),
            format!("{ours:.2} s, {}/s", megabytes(speed)),
            format!("{psql:.2} s"),
            psql / ours,
            2.0,
        ));
        lines.push(Line::figure(
            format!("export of {name}: growth of memory, at most"),
            megabytes(growth),
            String::new(),
            "< 32 MB",
            Some(growth < 32e6),
        ));
    }
    lines
}
