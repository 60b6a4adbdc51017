//! The cost of redaction: the server's CPU time for a text of 2 KB in a project with the default rules, minus that in
//! a project without rules.

use sqlx::AssertSqlSafe;

use crate::Plan;
use crate::attempts::Body;
use crate::load::{request, send_for};
use crate::machine::Machine;
use crate::rounds::{Rounds, in_turn};
use crate::table::Line;

/// The projects that are compared, and their settings.
const PROJECTS: [(&str, &str); 2] =
    [("redacted", r#"{"redact":{"builtin":["secrets"]}}"#), ("unredacted", r#"{"redact":{"builtin":[]}}"#)];

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    for (project, settings) in PROJECTS {
        let sql = format!("insert into projects (name, settings) values ('{project}', '{settings}')");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut machine.connect().await).await.expect("a project");
    }
    let Body { prompt, response, program } = Body::new(2_448);
    let body = format!(r#"{{"text":"{prompt}{response}{program}"}}"#);
    let mut rounds = PROJECTS.map(|_| Rounds::of(1));
    for round in 0..plan.rounds {
        for (nth, (project, _)) in in_turn(&PROJECTS, round) {
            let path = format!("/v1/projects/{project}/redact/try");
            let request = request(project, &path, Some(("application/json", &body)));
            let asked = send_for(&machine.address, 4, plan.duration, |_| request.clone());
            rounds[nth].measure(machine, asked).await;
        }
    }
    let [with, without] = rounds.map(|rounds| rounds.processor().0);
    let cost = with - without;
    let line =
        Line::new(format!("redaction of a text of {} bytes", body.len() - 11), format!("{cost:.1} µs"))
            .baseline(format!("{with:.1} µs a request with, {without:.1} without"))
            .goal("≤ 10 µs", cost <= 10.0);
    vec![line]
}
