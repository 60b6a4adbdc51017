//! The baselines of ingest: pgbench and a plain server, which insert the same rows one by one, and COPY.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::extract::{RawPathParams, State};
use axum::routing::{get, post};
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::Value;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use crate::attempts::{BATCH_CONNECTIONS, Body, Logs, PROJECT};
use crate::load::{Latencies, request};
use crate::machine::{Machine, database, first_line};

/// The number of rows that COPY inserts over each connection in a round.
const COPIED: usize = 25_000;

/// The columns of an attempt besides those that identify it.
const COLUMNS: &str = "timestamp, prompt_template, prompt_template_version, prompt_text, raw_response, extracted_dsl,
    parse_result, lint_result, passed, error_stage, error_message, latency_ms, input_tokens, output_tokens, metadata,
    request_hash";

/// Inserts attempts with pgbench for this duration.
pub(crate) fn pgbench(machine: &Machine, body: &Body, connections: usize, duration: Duration) -> Latencies {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "insert into attempts (project, generation_id, attempt, id, {COLUMNS})
         values ('{PROJECT}', gen_random_uuid(), 1, gen_random_uuid(), now(), 'cbu_create', 2, :prompt, :response, :program,
         :parse, :lint, false, 'lint', 'Unknown verb', 812, 900, 120, :metadata, decode(:hash, 'hex'))"
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
        .args(["-T", &duration.as_secs().to_string(), "-c", &connections.to_string()])
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
    Latencies::new(took.collect(), duration.as_secs_f64())
}

/// A server without group commit: it reads the same JSON and inserts the row.
pub(crate) struct PlainServer {
    process: Child,
    pub(crate) address: String,
}

impl PlainServer {
    pub(crate) fn start(machine: &Machine) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .arg("plain-server")
            .arg(machine.socket())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the plain server starts");
        let address = first_line(&mut process).trim().to_owned();
        Self { process, address }
    }

    /// Appends attempts to the logs for this duration.
    pub(crate) async fn add(
        &self,
        logs: &mut Logs,
        body: &Body,
        connections: usize,
        duration: Duration,
    ) -> Latencies {
        let insert = |log: Uuid, attempt: &str| {
            request(PROJECT, &format!("/{log}"), Some(("application/json", attempt)))
        };
        logs.add(&self.address, body, connections, duration, insert).await
    }
}

impl Drop for PlainServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An attempt as the plain server parses it.
#[derive(Deserialize)]
struct Attempt {
    id: Uuid,
    attempt: i32,
    prompt_template: String,
    prompt_template_version: i32,
    prompt_text: String,
    raw_response: String,
    extracted_dsl: String,
    parse_result: Value,
    lint_result: Value,
    latency_ms: i32,
    input_tokens: i32,
    output_tokens: i32,
    metadata: Value,
}

/// The main function of the plain server's process.
pub(crate) fn plain_server(socket: &str) {
    async fn insert(
        State(db): State<PgPool>,
        params: RawPathParams,
        axum::Json(new): axum::Json<Attempt>,
    ) -> &'static str {
        let log: Uuid =
            params.iter().next().and_then(|(_, log)| log.parse().ok()).expect("the path has an id");
        let sql = format!(
            "insert into attempts (project, generation_id, attempt, id, {COLUMNS}) values ('{PROJECT}', $1, $2, $3, now(), $4,
             $5, $6, $7, $8, $9, $10, false, 'lint', 'Unknown verb', $11, $12, $13, $14, $15)"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(log)
            .bind(new.attempt)
            .bind(new.id)
            .bind(&new.prompt_template)
            .bind(new.prompt_template_version)
            .bind(&new.prompt_text)
            .bind(&new.raw_response)
            .bind(&new.extracted_dsl)
            .bind(&new.parse_result)
            .bind(&new.lint_result)
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
        let db = PgPoolOptions::new().max_connections(12).connect_with(database(socket)).await;
        let app = axum::Router::new()
            .route("/{log}", post(insert))
            .route("/healthz", get(|| async { "ok" }))
            .with_state(db.expect("the database"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        std::io::stdout().flush().expect("read");
        axum::serve(listener, app).await.expect("serving");
    });
}

/// Returns the rate, in rows per second, at which binary COPY inserts existing attempts as attempts of other logs.
pub(crate) async fn copy(machine: &Machine, body: &Body) -> f64 {
    let out = format!(
        "copy (select project, gen_random_uuid(), attempt, gen_random_uuid(), {COLUMNS} from attempts
            where project = '{PROJECT}' and length(prompt_text) = {} limit {COPIED}) to stdout binary",
        body.prompt.len()
    );
    let into = format!("copy attempts (project, generation_id, attempt, id, {COLUMNS}) from stdin binary");
    let mut parts = Vec::new();
    for _ in 0..BATCH_CONNECTIONS {
        let mut connection = machine.connect().await;
        let rows =
            connection.copy_out_raw(&out).await.expect("rows").try_collect::<Vec<_>>().await.expect("rows");
        parts.push((connection, rows.concat()));
    }
    let begun = Instant::now();
    let copies = parts.into_iter().map(async |(mut connection, rows)| {
        let mut copy = connection.copy_in_raw(&into).await.expect("a copy");
        copy.send(rows).await.expect("rows");
        copy.finish().await.expect("all rows")
    });
    let rows: u64 = join_all(copies).await.into_iter().sum();
    rows as f64 / begun.elapsed().as_secs_f64()
}
