//! What the gateway adds to direct calls of the same local provider, with the record committed; and predictions.
//!
//! The provider is a separate process. It either answers at once, so that the machine is the limit, or thinks for a
//! while, as real providers do for longer. It thinks longer for some requests than for others: if all took equally
//! long, connections that begin together would send every further request together.

use std::convert::Infallible;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::Plan;
use crate::load::{Connection, Latencies, ndjson, request, send_for, stream_for};
use crate::machine::{Machine, first_line, folder};
use crate::rounds::{Rounds, median};
use crate::table::Line;

/// The time, in milliseconds, for which the thinking provider thinks: 20 on average.
const THINKS: std::ops::Range<f64> = 10.0..30.0;
/// The number of pieces of a streamed answer.
const PIECES: usize = 20;
/// The number of pairs of a prediction, and the number of predictions.
const PAIRS: usize = 10_000;
const PREDICTIONS: usize = 50;

/// The main function of the local provider's process.
pub(crate) fn local_provider() {
    async fn answer(body: Bytes) -> Response {
        let asked: Value = serde_json::from_slice(&body).expect("JSON");
        if asked["model"] == "thinks" {
            let thinks = fastrand::f64() * (THINKS.end - THINKS.start) + THINKS.start;
            tokio::time::sleep(Duration::from_secs_f64(thinks / 1e3)).await;
        }
        let usage = json!({"prompt_tokens": 300, "completion_tokens": 40, "total_tokens": 340});
        if asked["stream"] != true {
            let message = json!({"role": "assistant", "content": "word ".repeat(40)});
            return axum::Json(json!({"id": "c", "object": "chat.completion", "model": asked["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}))
            .into_response();
        }
        let piece = |delta: Value, reason: Value, usage: Value| {
            let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
            format!(
                "data: {}\n\n",
                json!({"id": "c", "object": "chat.completion.chunk", "choices": choices, "usage": usage})
            )
        };
        let pieces =
            (0..PIECES).map(move |_| piece(json!({"content": "some words "}), Value::Null, Value::Null));
        let end = [piece(json!({}), json!("stop"), usage), "data: [DONE]\n\n".to_owned()];
        let body = Body::from_stream(stream::iter(pieces.chain(end)).map(Ok::<_, Infallible>));
        ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
        let router = axum::Router::new().route("/v1/chat/completions", post(answer));
        axum::serve(listener, router).await.expect("serves");
    });
}

struct Provider {
    process: Child,
    address: String,
}

impl Provider {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .arg("local-provider")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the provider starts");
        let address = first_line(&mut process).trim().to_owned();
        Self { process, address }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a chat of 1 KB.
fn chat(model: &str, stream: bool) -> String {
    let said = "some words of a chat that has gone on for a while ".repeat(4);
    let messages = json!([
        {"role": "system", "content": "You are brief."}, {"role": "user", "content": said},
        {"role": "assistant", "content": said}, {"role": "user", "content": said},
        {"role": "assistant", "content": said}, {"role": "user", "content": "What now?"}]);
    json!({"model": model, "stream": stream, "messages": messages}).to_string()
}

pub(crate) async fn run(plan: &Plan) -> Vec<Line> {
    let provider = Provider::start();
    let folder = folder();
    let file = folder.path().join("providers.toml");
    let entry = format!(
        "[[providers]]\nname = \"local\"\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n",
        provider.address
    );
    fs::write(&file, entry).expect("a file of providers");
    let file = file.to_str().expect("a path of text");
    let machine = Machine::start_with(&plan.programs[0], &["--providers-file", file]);
    let mut lines = Vec::new();
    for (model, what) in
        [("thinks", "a provider that thinks 10 to 30 ms"), ("hastens", "a provider that answers at once")]
    {
        for connections in [1, 32] {
            lines.extend(compare(&machine, &provider, plan, model, what, connections).await);
        }
    }
    lines.extend(predictions(&machine).await);
    lines
}

/// Compares calls through the gateway with direct ones, in turn.
async fn compare(
    machine: &Machine,
    provider: &Provider,
    plan: &Plan,
    model: &str,
    what: &str,
    connections: usize,
) -> Vec<Line> {
    let through = |stream| {
        request("default", "/openai/v1/chat/completions", Some(("application/json", &chat(model, stream))))
    };
    let direct =
        |stream| request("default", "/v1/chat/completions", Some(("application/json", &chat(model, stream))));
    let (mut answers, mut answers_direct) = (Rounds::of(1), Rounds::of(1));
    let [mut first, mut first_direct, mut whole, mut whole_direct] = [(); 4].map(|()| Rounds::of(1));
    machine.checkpoint().await;
    for round in 0..plan.rounds {
        for is_through in if round % 2 == 0 { [true, false] } else { [false, true] } {
            if is_through {
                let sent = send_for(&machine.address, connections, plan.duration, |_| through(false));
                answers.measure(machine, sent).await;
                let (begun, ended) =
                    stream_for(&machine.address, connections, plan.duration, &through(true)).await;
                first.push(begun);
                whole.push(ended);
            } else {
                answers_direct
                    .push(send_for(&provider.address, connections, plan.duration, |_| direct(false)).await);
                let (begun, ended) =
                    stream_for(&provider.address, connections, plan.duration, &direct(true)).await;
                first_direct.push(begun);
                whole_direct.push(ended);
            }
        }
    }
    let plural = if connections == 1 { "" } else { "s" };
    let line = |kind: &str, ours: &Rounds, baseline: &Rounds, most: Option<(f64, Option<f64>)>| {
        let more = |percent| ours.percentile(percent) - baseline.percentile(percent);
        let (p50, p99) = (more(50), more(99));
        let name = format!("gateway to {what}, {connections} connection{plural}: {kind}");
        let line = Line::new(name, format!("{} (+ {p50:.2}, + {p99:.2})", ours.rate_and_latency()))
            .baseline(baseline.rate_and_latency());
        match most {
            None => line,
            Some((half, None)) => line.goal(&format!("p50 ≤ + {half} ms"), p50 <= half),
            Some((half, Some(most))) => {
                line.goal(&format!("p50 ≤ + {half} ms, p99 ≤ + {most} ms"), p50 <= half && p99 <= most)
            }
        }
    };
    let has_goal = connections == 32 && model == "thinks";
    let goal = |goal| Some(goal).filter(|_| has_goal);
    let mut lines = vec![
        line("plain", &answers, &answers_direct, goal((2.0, Some(10.0)))),
        line("first streamed byte", &first, &first_direct, goal((1.0, None))),
        line("whole stream", &whole, &whole_direct, goal((2.0, Some(10.0)))),
    ];
    if model == "hastens" {
        let name =
            format!("gateway, {connections} connection{plural}: processor time each, server + Postgres");
        lines.push(Line::new(name, answers.processor_text()));
    }
    lines
}

/// Measures the prediction of which of many pairs fit, for pairs in the request and for stored ones.
async fn predictions(machine: &Machine) -> Vec<Line> {
    let text = "some words of a chat ".repeat(4);
    for hundred in 0..PAIRS / 100 {
        let line = |nth| {
            let said = format!("{hundred} {nth} {text}");
            json!({"event": "pair", "user_text": said, "assistant_text": text, "topic_id": "long"})
                .to_string()
        };
        let lines: Vec<_> = (0..100).map(line).collect();
        Connection::open(&machine.address).await.send(&ndjson("default", &lines.join("\n"))).await;
    }
    let given: Vec<_> =
        (0..PAIRS).map(|nth| json!({"id": nth.to_string(), "user_text": "some words"})).collect();
    let visible = json!({"filter": {"topic_id": "long"}});
    let asks = [
        (
            "that the request brings",
            json!({"model_limit": 8_192, "user_text": "What now?", "pairs": given}),
            Some(5.0),
        ),
        (
            "that are stored",
            json!({"model_limit": 8_192, "user_text": "What now?", "visible": visible}),
            None,
        ),
    ];
    let mut lines = Vec::new();
    for (whose, ask, most) in asks {
        let ask = request("default", "/v1/context/predict", Some(("application/json", &ask.to_string())));
        let mut connection = Connection::open(&machine.address).await;
        let mut took = Vec::new();
        for _ in 0..PREDICTIONS {
            let sent = Instant::now();
            connection.send(&ask).await;
            took.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        let half = median(took.clone());
        let line = Line::new(
            format!("prediction of {PAIRS} pairs {whose}, over HTTP"),
            Latencies::new(took, 1.0).summary(),
        );
        lines.push(match most {
            Some(most) => line.goal(&format!("p50 < {most} ms"), half < most),
            None => line,
        });
    }
    lines
}
