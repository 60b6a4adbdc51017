//! Tracing and metrics: a span for each request, and the recorder of this process's metrics.

use std::time::Duration;

use axum::extract::Request;
use axum::http::Method;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use tower_http::classify::ServerErrorsFailureClass;

use crate::background::Rounds;
use crate::db::erased;
use crate::db::receipt::Written;
use crate::domain;
use crate::error::Result;
use crate::privacy::redact;

/// Returns the one recorder of this process's metrics, which is installed at the first call.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "the buckets are constants")]
pub fn recorder() -> PrometheusHandle {
    static RECORDER: std::sync::OnceLock<PrometheusHandle> = std::sync::OnceLock::new();
    let handle = RECORDER.get_or_init(|| {
        let seconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        let counts = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &seconds)
            .and_then(|builder| {
                builder.set_buckets_for_metric(Matcher::Suffix("_events".to_owned()), &counts)
            })
            .and_then(PrometheusBuilder::install_recorder)
            .expect("the buckets are not empty and nothing else installs a recorder");
        describe();
        begin();
        recorder
    });
    handle.clone()
}

/// The upkeep of the metrics. The library keeps each sample of a histogram until the next upkeep, or until somebody reads the
/// metrics, which many servers' operators never do.
#[derive(Debug)]
pub struct Upkeep;

impl Rounds for Upkeep {
    const NAME: &'static str = "the upkeep of metrics";

    async fn round(&mut self) -> Result<Duration> {
        const PAUSE: Duration = Duration::from_secs(5);
        recorder().run_upkeep();
        Ok(PAUSE)
    }
}

/// Counters that have no labels.
const COUNTERS: [(&str, &str); 8] = [
    ("gleaner_authentication_failures_total", "Requests with a key that is unknown, expired or revoked"),
    ("gleaner_commit_retries_total", "Transactions repeated after a lost race, such as a deadlock"),
    ("gleaner_events_rejected_total", "Lines of batches that were rejected"),
    ("gleaner_replaced_characters_total", "Characters replaced because Postgres cannot store them"),
    ("gleaner_export_bytes_total", "Bytes that exports have sent, before compression"),
    (
        "gleaner_gateway_unrecorded_total",
        "Requests that the gateway forwarded without a record because the database could not be reached",
    ),
    ("gleaner_hooks_failed_total", "Reports of agents' hooks that could not be stored"),
    (
        "gleaner_sends_interrupted_total",
        "Sends that were never ended and became errors when their time limit passed",
    ),
];

/// The counter of events by kind and outcome.
const EVENTS: &str = "gleaner_events_total";

/// The counter of redacted spans by rule. All rules of projects share the name `custom`.
const REDACTED: &str = "gleaner_redacted_spans_total";

/// The counter of records that retention has erased, by their kind.
pub const EXPIRED: &str = "gleaner_expired_records_total";

/// What can become of an event.
const OUTCOMES: [&str; 3] = ["accepted", "duplicate", "rejected"];

/// Describes each metric. Names follow the conventions of Prometheus: the unit last, and `_total` for
/// counters.
fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_histogram!(
        "gleaner_http_request_duration_seconds",
        "Time from a request to its response, by method, route and status"
    );
    describe_histogram!("gleaner_commit_events", "Number of events in one transaction of the writer");
    describe_histogram!("gleaner_commit_duration_seconds", "Duration of one transaction of the writer");
    for (name, description) in COUNTERS {
        describe_counter!(name, description);
    }
    describe_counter!(
        EVENTS,
        "Events by kind and outcome: accepted, duplicate (sent before), rejected by what is stored"
    );
    describe_counter!(
        REDACTED,
        "Spans of text replaced by redaction, by rule; the rules of projects are named `custom`"
    );
    describe_counter!(EXPIRED, "Records that retention has erased, by kind");
    describe_gauge!("gleaner_queue_events", "Events that wait to be written or are being written");
    describe_gauge!("gleaner_db_connections", "Connections to the database, by pool and state");
    describe_gauge!(
        "gleaner_database_size_bytes",
        "Size of the database on disk, without the write-ahead log"
    );
    describe_gauge!("gleaner_build_info", "The program's version, as a label; always 1");
    Collector::default().describe();
}

/// Registers every counter with the value 0, so that rates are correct from the first increment.
fn begin() {
    for (name, _) in COUNTERS {
        metrics::counter!(name).increment(0);
    }
    for kind in domain::kinds() {
        for outcome in OUTCOMES {
            metrics::counter!(EVENTS, "kind" => kind, "outcome" => outcome).increment(0);
        }
    }
    for rule in redact::BUILTIN.into_iter().chain([redact::CUSTOM]) {
        metrics::counter!(REDACTED, "rule" => rule).increment(0);
    }
    for kind in erased::KINDS {
        metrics::counter!(EXPIRED, "kind" => kind).increment(0);
    }
    metrics::gauge!("gleaner_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// Counts events by kind and outcome. Events that could not be written because the database was away are not counted,
/// because they are sent again.
pub fn count_events<'a>(events: impl Iterator<Item = (&'static str, &'a Written)>) {
    let mut counts: Vec<(&str, &str, u64)> = Vec::new();
    for (kind, written) in events {
        let outcome = match written {
            Ok(receipt) if receipt.replayed => "duplicate",
            Ok(_) => "accepted",
            Err(error) if error.is_transient() => continue,
            Err(_) => "rejected",
        };
        match counts.iter_mut().find(|(known, as_known, _)| (*known, *as_known) == (kind, outcome)) {
            Some((_, _, count)) => *count += 1,
            None => counts.push((kind, outcome, 1)),
        }
    }
    for (kind, outcome, count) in counts {
        metrics::counter!(EVENTS, "kind" => kind, "outcome" => outcome).increment(count);
    }
}

/// Reads the metrics of this process (`process_*`): CPU time, memory, open files, threads and start time.
pub fn measure_process() {
    Collector::default().collect();
}

/// The target of the request log, which `--log-requests` turns on.
pub const REQUESTS: &str = "gleaner::requests";

/// Logs a request that was answered. The span around it has the method, the path and the id.
pub fn log_request(status: u16, time: Duration) {
    let ms = (time.as_secs_f64() * 1e5).round() / 100.0;
    tracing::info!(target: REQUESTS, status, ms, "answered");
}

/// Logs that the body of a response broke off. A status that says that the server failed is not logged: its cause was, where it
/// was found.
pub fn log_failure(class: ServerErrorsFailureClass, _: Duration, span: &tracing::Span) {
    if let ServerErrorsFailureClass::Error(cause) = class {
        tracing::warn!(parent: span, %cause, "the response was interrupted");
    }
}

/// Returns a request's method as a metric label. Methods that HTTP does not define share one, because a label
/// takes memory for as long as the process lives, and clients can make up any number of methods.
#[must_use]
pub fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// Makes a request's span, with its id and the trace that the client says it belongs to. It never holds
/// bodies, keys or query strings, because those contain users' text.
pub fn span(request: &Request) -> tracing::Span {
    let header =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (trace_id, parent_id) = trace_context(header("traceparent")).unwrap_or_default();
    tracing::info_span!(
        "request",
        method = %request.method(),
        path = request.uri().path(),
        id = header("x-request-id"),
        trace_id,
        parent_id,
    )
}

/// Returns the trace and the span that a `traceparent` header names (W3C Trace Context, section 3.2), or none
/// if the header is malformed.
fn trace_context(traceparent: &str) -> Option<(&str, &str)> {
    let mut fields = traceparent.split('-');
    let [version, trace_id, parent_id, flags] = [(); 4].map(|()| fields.next().unwrap_or_default());
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |text: &str, length| is_hex(text, length) && text.bytes().any(|byte| byte != b'0');
    // Later versions of the header may have more fields; version 00 may not.
    let ends = fields.next().is_none() || version != "00";
    let is_good = is_hex(version, 2) && version != "ff" && is_id(trace_id, 32) && is_id(parent_id, 16);
    (is_good && is_hex(flags, 2) && ends).then_some((trace_id, parent_id))
}

#[cfg(test)]
mod tests {
    use super::trace_context;

    #[test]
    fn a_traceparent_is_taken_as_the_specification_says_or_not_at_all() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let good = format!("00-{trace}-{parent}-01");
        assert_eq!(trace_context(&good), Some((trace, parent)));
        assert_eq!(trace_context(&format!("01-{trace}-{parent}-01-more")), Some((trace, parent)));
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &format!("{good}-more"),
            &format!("ff-{trace}-{parent}-01"),
            &format!("00-{}-{parent}-01", "0".repeat(32)),
            &format!("00-{trace}-{}-01", "0".repeat(16)),
            &format!("00-{trace}-{parent}"),
        ] {
            assert_eq!(trace_context(bad), None, "{bad}");
        }
    }
}
