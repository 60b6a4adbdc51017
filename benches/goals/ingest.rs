//! Attempts of 2 and 10 KB, each a request of its own or a hundred a batch; beside pgbench and a plain server that insert the
//! same rows one by one, and beside COPY.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::routing::{get, post};
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use gleaner::generations::NewAttempt;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use crate::data::Maker;
use crate::load::{Connection, Latencies, drive, minimal, request};
use crate::machine::{Machine, Usage, first_line};
use crate::{Line, Plan, median};

const PROJECT: &str = "ingest";
/// How many open logs the attempts are spread over.
const LOGS: usize = 50_000;
/// How long each measurement takes: `SECONDS`, 3 if not given.
fn round() -> Duration {
    Duration::from_secs(std::env::var("SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(3))
}

/// How many attempts a batch has, and over how many connections batches come.
const BATCH: usize = 100;
const BATCH_CONNECTIONS: usize = 4;
/// Like [`BATCH`], for the rows that COPY takes in a round.
const COPIED: usize = 25_000;

/// The texts of an attempt of some size.
struct Body {
    prompt: String,
    response: String,
    program: String,
}

impl Body {
    fn new(bytes: usize) -> Self {
        // The rest is names, numbers and results.
        let mut maker = Maker::new(7);
        let text = bytes - 400;
        Self {
            prompt: maker.text(text / 2),
            response: maker.text(text * 3 / 8),
            program: maker.text(text / 8),
        }
    }

    /// The members of the attempt, as JSON without the braces.
    fn json(&self, number: i64) -> String {
        let Self { prompt, response, program } = self;
        format!(
            r#""id":"{}","attempt":{number},"prompt_template":"cbu_create","prompt_template_version":2,"prompt_text":"{prompt}","raw_response":"{response}","extracted_dsl":"{program}","parse_result":{{"success":true,"error":null}},"lint_result":{{"valid":false,"errors":["Unknown verb"],"warnings":[]}},"latency_ms":812,"input_tokens":900,"output_tokens":120,"metadata":{{"temperature":0.2}}"#,
            Uuid::new_v4()
        )
    }
}

const COLUMNS: &str = "project, generation_id, attempt, id, timestamp, prompt_template, prompt_template_version, prompt_text,
    raw_response, extracted_dsl, parse_result, lint_result, passed, error_stage, error_message, latency_ms, input_tokens,
    output_tokens, metadata, request_hash";

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    let logs = open_logs(machine).await;
    let mut lines = Vec::new();
    let mut number = 1;
    let mut unbatched = PlainServer::start(machine);
    for (bytes, goal) in [(2 << 10, 2.0), (10 << 10, 1.2)] {
        let body = Body::new(bytes);
        let name = format!("{} KB", bytes >> 10);
        let (mut ours, mut echoed, mut pgbench, mut one_by_one) = (vec![], vec![], vec![], vec![]);
        let mut usage = vec![];
        for _ in 0..plan.rounds {
            let before = machine.usage();
            ours.push(attempts(machine, &logs, &body, 64, &mut number, minimal).await);
            usage.push(per_request(before, machine.usage(), &ours[ours.len() - 1]));
            echoed.push(attempts(machine, &logs, &body, 64, &mut number, |request| request).await);
            pgbench.push(run_pgbench(machine, &body, 64));
            one_by_one.push(unbatched.drive(&logs, &body, 64, &mut number).await);
        }
        let (rate, other) = (rates(&ours), rates(&pgbench));
        lines.push(Line::at_least(
            format!("{name} events, 64 connections, against pgbench"),
            format!("{rate:.0}/s, {}", middle(&ours)),
            format!("{other:.0}/s, {}", middle(&pgbench)),
            rate / other,
            goal,
        ));
        let other = rates(&one_by_one);
        lines.push(Line::at_least(
            format!("{name} events, 64 connections, against an INSERT a request"),
            format!("{rate:.0}/s"),
            format!("{other:.0}/s, {}", middle(&one_by_one)),
            rate / other,
            if bytes > 4096 { 1.0 } else { 3.0 },
        ));
        lines.push(Line::figure(
            format!("{name} events, 64 connections, answered with the record"),
            format!("{:.0}/s, {}", rates(&echoed), middle(&echoed)),
            String::new(),
            "",
            None,
        ));
        let server = median(usage.iter().map(|usage| usage.0).collect());
        let postgres = median(usage.iter().map(|usage| usage.1).collect());
        lines.push(Line::figure(
            format!("{name} events: processor time each"),
            format!("{server:.0} + {postgres:.0} µs (server + Postgres)"),
            String::new(),
            if bytes > 4096 { "" } else { "≤ 30 + 45 µs" },
            (bytes <= 4096).then_some(server <= 30.0 && postgres <= 45.0),
        ));
    }
    let body = Body::new(2 << 10);
    let (mut ours, mut pgbench, mut busy) = (vec![], vec![], vec![]);
    for _ in 0..plan.rounds {
        ours.push(attempts(machine, &logs, &body, 1, &mut number, minimal).await);
        pgbench.push(run_pgbench(machine, &body, 1));
        busy.push(attempts(machine, &logs, &body, 32, &mut number, minimal).await);
    }
    let more = middle_of(&ours, 50) - middle_of(&pgbench, 50);
    lines.push(Line::figure(
        "2 KB events, 1 connection, against pgbench",
        middle(&ours),
        middle(&pgbench),
        "p50 ≤ + 0.15 ms",
        Some(more <= 0.15),
    ));
    lines.push(Line::figure(
        "2 KB events, 32 connections",
        format!("{:.0}/s, {}", rates(&busy), middle(&busy)),
        "19 000/s, p50 1.6 p99 3.5 ms (bare prototype)".to_owned(),
        "",
        None,
    ));
    lines.push(floor(machine, plan, &unbatched).await);
    drop(unbatched);
    lines.push(batches(machine, plan, &logs, &body, &mut number).await);
    lines.push(fiftieth(machine, plan, &Body::new(10 << 10)).await);
    lines
}

/// What HTTP alone costs here: requests that neither have a body nor touch the database, also to a server that does nothing
/// else.
async fn floor(machine: &Machine, plan: &Plan, unbatched: &PlainServer) -> Line {
    let (mut rounds, mut bare, mut usage) = (vec![], vec![], vec![]);
    for _ in 0..plan.rounds {
        let before = machine.usage();
        rounds.push(drive(&machine.address, 64, round(), |_| request(PROJECT, "/healthz", None)).await);
        usage.push(per_request(before, machine.usage(), &rounds[rounds.len() - 1]).0);
        bare.push(drive(&unbatched.address, 64, round(), |_| request(PROJECT, "/healthz", None)).await);
    }
    let ours = format!("{:.0}/s, {:.0} µs of the server each", rates(&rounds), median(usage));
    let bare = format!("{:.0}/s (axum alone)", rates(&bare));
    Line::figure("for comparison: GET /healthz, 64 connections", ours, bare, "", None)
}

/// Makes the open logs that attempts are added to.
async fn open_logs(machine: &Machine) -> Vec<Uuid> {
    let sql = format!("insert into projects (name) values ('{PROJECT}') on conflict do nothing");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut machine.connect().await).await.expect("a project");
    let mut connection = Connection::open(&machine.address).await;
    let logs: Vec<_> = (0..LOGS).map(|_| Uuid::new_v4()).collect();
    let mut maker = Maker::new(3);
    for some in logs.chunks(5_000) {
        let line = |id: &Uuid| {
            let intent = maker.intent(crate::data::Class::Medium);
            format!(r#"{{"event":"generation","id":"{id}","user_intent":"{intent}","domain_name":"cbu"}}"#)
        };
        let body = some.iter().map(line).collect::<Vec<_>>().join("\n");
        connection.send(&request(PROJECT, "/v1/events", Some(("application/x-ndjson", &body)))).await;
    }
    logs
}

/// Adds attempts to the logs in turn, one a request.
async fn attempts(
    machine: &Machine,
    logs: &[Uuid],
    body: &Body,
    connections: usize,
    number: &mut i64,
    prefer: impl Fn(Vec<u8>) -> Vec<u8>,
) -> Latencies {
    let first = *number;
    *number += 1_000;
    drive(&machine.address, connections, round(), |nth| {
        let (log, lap) = place(nth, logs, first);
        let path = format!("/v1/generations/{log}/attempts");
        prefer(request(PROJECT, &path, Some(("application/json", &format!("{{{}}}", body.json(lap))))))
    })
    .await
}

/// The log that an attempt is for, and its number there, so that no two are the same.
fn place(nth: u64, logs: &[Uuid], first: i64) -> (Uuid, i64) {
    let count = logs.len() as u64;
    let log = usize::try_from(nth % count).expect("a log");
    (logs[log], first + i64::try_from(nth / count).expect("few laps"))
}

/// Microseconds of the server and of Postgres.
fn per_request(before: Usage, after: Usage, latencies: &Latencies) -> (f64, f64) {
    let each = |seconds: f64| seconds * 1e6 / latencies.count();
    (each(after.server - before.server), each(after.postgres - before.postgres))
}

/// Inserts the same rows with pgbench.
fn run_pgbench(machine: &Machine, body: &Body, connections: usize) -> Latencies {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "insert into attempts ({COLUMNS}) values ('{PROJECT}', gen_random_uuid(), 1, gen_random_uuid(), now(), 'cbu_create', 2,
         :prompt, :response, :program, :parse, :lint, false, 'lint', 'Unknown verb', 812, 900, 120, :metadata,
         decode(:hash, 'hex'))"
    );
    std::fs::write(folder.path().join("insert.sql"), script).expect("a script");
    let variables = [
        ("prompt", body.prompt.as_str()),
        ("response", &body.response),
        ("program", &body.program),
        ("parse", r#"{"success":true,"error":null}"#),
        ("lint", r#"{"valid":false,"errors":["Unknown verb"],"warnings":[]}"#),
        ("metadata", r#"{"temperature":0.2}"#),
        ("hash", "00112233445566778899aabbccddeeff"),
    ];
    let mut command = machine.program("pgbench");
    command.args(["-n", "-M", "prepared", "-f", "insert.sql", "-l", "--log-prefix=log", "-j", "2"]);
    command
        .args(["-T", &round().as_secs().to_string(), "-c", &connections.to_string()])
        .current_dir(folder.path());
    for (name, value) in variables {
        command.arg("-D").arg(format!("{name}={value}"));
    }
    let output = command.output().expect("pgbench");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = std::fs::read_dir(folder.path()).expect("logs").flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log"));
    let text: String = logs.map(|file| std::fs::read_to_string(file.path()).expect("a log")).collect();
    // client, transaction, microseconds, …
    let took = text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()).map(|us| us / 1e3);
    Latencies::new(took.collect(), round().as_secs_f64())
}

/// A server without group commit: it reads the same JSON and inserts the row.
struct PlainServer {
    process: std::process::Child,
    address: String,
}

impl PlainServer {
    fn start(machine: &Machine) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "plain-server",
                machine.options.get_socket().and_then(|path| path.to_str()).expect("a socket"),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the plain server starts");
        let address = first_line(&mut process).trim().to_owned();
        Self { process, address }
    }

    async fn drive(&mut self, logs: &[Uuid], body: &Body, connections: usize, number: &mut i64) -> Latencies {
        let first = *number;
        *number += 1_000;
        drive(&self.address, connections, round(), |nth| {
            let (log, lap) = place(nth, logs, first);
            request(
                PROJECT,
                &format!("/{log}"),
                Some(("application/json", &format!("{{{}}}", body.json(lap)))),
            )
        })
        .await
    }
}

impl Drop for PlainServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the process of the plain server does.
pub(crate) fn plain_server(socket: &str) {
    async fn insert(
        State(db): State<PgPool>,
        axum::extract::Path(log): axum::extract::Path<Uuid>,
        axum::Json(new): axum::Json<NewAttempt>,
    ) -> &'static str {
        let places: Vec<_> = (1..=20).map(|place| format!("${place}")).collect();
        let sql = format!("insert into attempts ({COLUMNS}) values ({})", places.join(", "));
        let verdict = new.verdict();
        sqlx::query(AssertSqlSafe(sql))
            .bind(PROJECT)
            .bind(log)
            .bind(new.attempt)
            .bind(new.id)
            .bind(gleaner::types::Timestamp::now())
            .bind(&new.prompt_template)
            .bind(new.prompt_template_version)
            .bind(&new.prompt_text)
            .bind(&new.raw_response)
            .bind(&new.extracted_dsl)
            .bind(new.parse_result.as_ref().map(Json))
            .bind(new.lint_result.as_ref().map(Json))
            .bind(verdict.passed)
            .bind(verdict.error_stage)
            .bind(verdict.error_message)
            .bind(new.latency_ms)
            .bind(new.input_tokens)
            .bind(new.output_tokens)
            .bind(&new.metadata)
            .bind([0_u8; 16].as_slice())
            .execute(&db)
            .await
            .expect("a row");
        "ok"
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = PgConnectOptions::new().socket(socket).username("postgres").database("gleaner");
        let db = PgPoolOptions::new().max_connections(12).connect_with(options).await.expect("the database");
        let app = axum::Router::new()
            .route("/{log}", post(insert))
            .route("/healthz", get(|| async { "ok" }))
            .with_state(db);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        std::io::stdout().flush().expect("read");
        axum::serve(listener, app).await.expect("serving");
    });
}

/// Batches of attempts, against binary COPY of the same rows.
async fn batches(machine: &Machine, plan: &Plan, logs: &[Uuid], body: &Body, number: &mut i64) -> Line {
    let (mut ours, mut copy) = (vec![], vec![]);
    for _ in 0..plan.rounds {
        let first = *number;
        *number += 1_000;
        let batches = drive(&machine.address, BATCH_CONNECTIONS, round(), |nth| {
            let mut lines = String::new();
            for row in nth * BATCH as u64..(nth + 1) * BATCH as u64 {
                let (log, lap) = place(row, logs, first);
                let _ =
                    writeln!(lines, r#"{{"event":"attempt","generation_id":"{log}",{}}}"#, body.json(lap));
            }
            request(PROJECT, "/v1/events", Some(("application/x-ndjson", &lines)))
        });
        ours.push(batches.await.rate() * BATCH as f64);
        copy.push(run_copy(machine).await);
    }
    let (ours, copy) = (median(ours), median(copy));
    Line::at_least(
        format!("batches of {BATCH} events of 2 KB, {BATCH_CONNECTIONS} connections, against COPY"),
        format!("{ours:.0} rows/s"),
        format!("{copy:.0} rows/s"),
        ours / copy,
        0.7,
    )
}

/// Rows a second that COPY takes, over as many connections.
async fn run_copy(machine: &Machine) -> f64 {
    let rest = COLUMNS.strip_prefix("project, generation_id,").expect("the key");
    let out = format!(
        "copy (select project, gen_random_uuid(), {rest} from attempts where project = '{PROJECT}'
            and length(prompt_text) < 2048 limit {COPIED}) to stdout binary"
    );
    let into = format!("copy attempts ({COLUMNS}) from stdin binary");
    let mut parts = Vec::new();
    for _ in 0..BATCH_CONNECTIONS {
        let mut connection = machine.connect().await;
        let rows =
            connection.copy_out_raw(&out).await.expect("rows").try_collect::<Vec<_>>().await.expect("rows");
        parts.push((connection, rows.concat()));
    }
    let begun = Instant::now();
    join_all(parts.into_iter().map(async |(mut connection, rows)| {
        let mut copy = connection.copy_in_raw(&into).await.expect("a copy");
        copy.send(rows).await.expect("rows");
        copy.finish().await.expect("all rows");
    }))
    .await;
    (BATCH_CONNECTIONS * COPIED) as f64 / begun.elapsed().as_secs_f64()
}

/// What the fiftieth attempt of a log costs beside the first.
async fn fiftieth(machine: &Machine, plan: &Plan, body: &Body) -> Line {
    let mut connection = Connection::open(&machine.address).await;
    let body = Arc::new(body);
    let (mut first, mut last) = (vec![], vec![]);
    for _ in 0..plan.rounds * 20 {
        let log = Uuid::new_v4();
        let start = format!(r#"{{"id":"{log}","user_intent":"Create a fund","domain_name":"cbu"}}"#);
        connection.send(&request(PROJECT, "/v1/generations", Some(("application/json", &start)))).await;
        for number in 1..=50 {
            let attempt = format!("{{{}}}", body.json(number));
            let path = format!("/v1/generations/{log}/attempts");
            let attempt = request(PROJECT, &path, Some(("application/json", &attempt)));
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
    Line::figure(
        "the 50th attempt of 10 KB of a log, against the first",
        format!("{last:.2} ms"),
        format!("{first:.2} ms"),
        &format!("≤ 1.3 × (is {ratio:.2})"),
        Some(ratio <= 1.3),
    )
}

fn rates(rounds: &[Latencies]) -> f64 {
    median(rounds.iter().map(Latencies::rate).collect())
}

fn middle_of(rounds: &[Latencies], percent: usize) -> f64 {
    median(rounds.iter().map(|round| round.percentile(percent)).collect())
}

fn middle(rounds: &[Latencies]) -> String {
    let [p50, p95, p99] = [50, 95, 99].map(|percent| middle_of(rounds, percent));
    format!("p50 {p50:.2} p95 {p95:.2} p99 {p99:.2} ms")
}
