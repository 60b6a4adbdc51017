//! The attempts with which ingest is measured, and the open logs to which they are appended.

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::data::{Class, Maker};
use crate::load::{Connection, Latencies, ndjson, request, send_all, send_for};
use crate::machine::Machine;

/// The project of the attempts.
pub(crate) const PROJECT: &str = "ingest";
/// The number of attempts in a batch.
pub(crate) const BATCH: u64 = 100;
/// The number of connections over which batches are sent.
pub(crate) const BATCH_CONNECTIONS: usize = 4;

/// The texts of an attempt of a given size.
pub(crate) struct Body {
    pub(crate) prompt: String,
    pub(crate) response: String,
    pub(crate) program: String,
}

impl Body {
    /// Makes the texts of an attempt whose JSON has about this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        // The rest of the attempt is names, numbers and results.
        let mut maker = Maker::new(7);
        let text = bytes - 400;
        Self {
            prompt: maker.text(text / 2),
            response: maker.text(text * 3 / 8),
            program: maker.text(text / 8),
        }
    }

    /// Returns the members of an attempt as JSON without the braces. They are the same for the same log and number.
    pub(crate) fn json(&self, log: Uuid, number: u64) -> String {
        let Self { prompt, response, program } = self;
        let mut id = [0; 16];
        fastrand::Rng::with_seed(log.as_u64_pair().1 ^ number).fill(&mut id);
        let id = uuid::Builder::from_random_bytes(id).into_uuid();
        format!(
            r#""id":"{id}","attempt":{number},"prompt_template":"cbu_create","prompt_template_version":2,"prompt_text":"{prompt}","raw_response":"{response}","extracted_dsl":"{program}","parse_result":{{"success":true,"error":null}},"lint_result":{{"valid":false,"errors":["Unknown verb"],"warnings":[]}},"latency_ms":812,"input_tokens":900,"output_tokens":120,"metadata":{{"temperature":0.2}}"#
        )
    }
}

/// Open logs, to which attempts are appended in turn, and the number of these attempts.
pub(crate) struct Logs {
    ids: Vec<Uuid>,
    added: u64,
}

impl Logs {
    /// Makes this many logs without attempts.
    pub(crate) async fn open(machine: &Machine, count: usize) -> Self {
        let sql = format!("insert into projects (name) values ('{PROJECT}') on conflict do nothing");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut machine.connect().await).await.expect("a project");
        let mut connection = Connection::open(&machine.address).await;
        let ids: Vec<_> = (0..count).map(|_| Uuid::new_v4()).collect();
        let mut maker = Maker::new(3);
        for some in ids.chunks(5_000) {
            let mut lines = String::new();
            for id in some {
                let intent = maker.intent(Class::Medium);
                let _ = writeln!(
                    lines,
                    r#"{{"event":"generation","id":"{id}","user_intent":"{intent}","domain_name":"cbu"}}"#
                );
            }
            connection.send(&ndjson(PROJECT, &lines)).await;
        }
        Self { ids, added: 0 }
    }

    /// Returns the log of the nth of all attempts, and its number in that log.
    fn place(&self, nth: u64) -> (Uuid, u64) {
        let count = self.ids.len() as u64;
        let log = usize::try_from(nth % count).expect("a log");
        (self.ids[log], 1 + nth / count)
    }

    /// Returns a request with a hundred attempts, from the nth on.
    fn batch(&self, body: &Body, nth: u64) -> Vec<u8> {
        let mut lines = String::new();
        for (log, number) in (nth..nth + BATCH).map(|nth| self.place(nth)) {
            let attempt = body.json(log, number);
            let _ = writeln!(lines, r#"{{"event":"attempt","generation_id":"{log}",{attempt}}}"#);
        }
        ndjson(PROJECT, &lines)
    }

    /// Appends attempts for this duration, each in its own request. `request` makes the request from the log and the
    /// body.
    pub(crate) async fn add(
        &mut self,
        address: &str,
        body: &Body,
        connections: usize,
        duration: Duration,
        request: impl Fn(Uuid, &str) -> Vec<u8>,
    ) -> Latencies {
        let took = send_for(address, connections, duration, |nth| {
            let (log, number) = self.place(self.added + nth);
            request(log, &format!("{{{}}}", body.json(log, number)))
        });
        let took = took.await;
        self.added += took.count();
        took
    }

    /// Appends attempts in batches for this duration. Returns the latencies of the batches.
    pub(crate) async fn add_batches(&mut self, address: &str, body: &Body, duration: Duration) -> Latencies {
        let first = self.added;
        let batch = |nth| self.batch(body, first + nth * BATCH);
        let took = send_for(address, BATCH_CONNECTIONS, duration, batch).await;
        self.added += took.count() * BATCH;
        took
    }

    /// Sends the last batches again, for the same duration.
    pub(crate) async fn repeat_batches(
        &self,
        address: &str,
        body: &Body,
        duration: Duration,
        batches: u64,
    ) -> Latencies {
        let first = self.added - batches * BATCH;
        let batch = |nth| self.batch(body, first + nth % batches * BATCH);
        send_for(address, BATCH_CONNECTIONS, duration, batch).await
    }

    /// Appends attempts until each log has this many.
    pub(crate) async fn fill(&mut self, address: &str, body: &Body, attempts: u64) {
        let (first, last) = (self.added, attempts * self.ids.len() as u64);
        send_all(address, BATCH_CONNECTIONS, |nth| {
            let nth = first + nth * BATCH;
            (nth < last).then(|| self.batch(body, nth))
        })
        .await;
        self.added = last;
    }
}

/// Returns the request that appends an attempt and does not return the record, like the baselines.
pub(crate) fn minimal(log: Uuid, attempt: &str) -> Vec<u8> {
    let mut request = recorded(log, attempt);
    let first_line = request.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    request.splice(first_line..first_line, *b"prefer: return=minimal\r\n");
    request
}

/// Returns the request that appends an attempt and returns the record.
pub(crate) fn recorded(log: Uuid, attempt: &str) -> Vec<u8> {
    let path = format!("/v1/generations/{log}/attempts");
    request(PROJECT, &path, Some(("application/json", attempt)))
}
