//! What is done with bytes that strangers send before anything else is: each target takes any bytes, and panics where what
//! it promises does not hold. `tests/fuzz` tries them for a moment on every run of the tests, and `make fuzz` for as long as
//! one likes.

use gleaner::agents::{self, ToolPatterns};
use gleaner::domain;
use gleaner::http::page::{open_cursor, seal_cursor};
use gleaner::http::{clean_json, utf8};
use gleaner::memories::rules::confidence::probability;
use gleaner::memories::rules::context::Context;
use gleaner::memories::rules::intent;
use gleaner::memories::rules::ranking::{Compared, Statistics, compare, score};
use gleaner::memories::rules::reasons::reason;
use gleaner::memories::rules::terms::Indexed;
use gleaner::providers::answer::{Answer, Api};
use gleaner::providers::sse::Events;
use serde_json::{Value, json};

/// A target, by the name of its folder in the corpus.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets.
pub(crate) const ALL: [Target; 8] = [
    ("json", json),
    ("line", line),
    ("cursor", cursor),
    ("transcript", transcript),
    ("shell", shell),
    ("hook", hook),
    ("conversation", conversation),
    ("answer", answer),
];

/// The cleaner of JSON. What it has cleaned it leaves as it is, and nothing is in it that Postgres cannot keep.
pub(crate) fn json(data: &[u8]) {
    let mut cleaned = data.to_vec();
    if clean_json(&mut cleaned).is_err() {
        return;
    }
    let mut again = cleaned.clone();
    assert_eq!(
        clean_json(&mut again).expect("it was taken before"),
        0,
        "the second time there is nothing to replace"
    );
    assert_eq!(cleaned, again);
    if let Ok(text) = utf8(&cleaned)
        && let Ok(value) = serde_json::from_str::<Value>(text)
    {
        assert!(!has_nul(&value), "a character that Postgres cannot keep was left");
    } else {
        assert!(serde_json::from_slice::<Value>(data).is_err(), "JSON was spoilt");
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// A line of a batch. What is taken of it is the same each time, and what is refused is a client's mistake.
pub(crate) fn line(data: &[u8]) {
    let mut cleaned = data.to_vec();
    if clean_json(&mut cleaned).is_err() {
        return;
    }
    let Ok(text) = utf8(&cleaned) else { return };
    let kind = |read: gleaner::error::Result<domain::Event>| match read {
        Ok(event) => Ok(event.kind()),
        Err(error) => {
            assert!(error.status().is_client_error(), "{error:?}");
            Err(error.to_string())
        }
    };
    assert_eq!(kind(domain::read("p", text, None)), kind(domain::read("p", text, None)));
}

/// A cursor. One that is opened is one that was sealed.
pub(crate) fn cursor(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    // The scope that the corpus was made with, and one that nothing was made with.
    for scope in [*b"somelist", [0; 8]] {
        if let Ok((at, key)) = open_cursor(text, scope) {
            assert_eq!(
                open_cursor(&seal_cursor(scope, at, &key), scope).expect("it was just sealed"),
                (at, key)
            );
        }
    }
}

/// A line of a transcript, of each agent.
pub(crate) fn transcript(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for agent in agents::ALL {
        let _ = (agent.kind_of_line)(text);
        let _ = (agent.parse_line)(text, &ToolPatterns::default());
    }
}

/// A command line that an agent has run, as each agent writes it.
pub(crate) fn shell(data: &[u8]) {
    let Ok(command) = str::from_utf8(data) else { return };
    let input = json!({"command": command});
    let claude = json!({"type": "assistant", "sessionId": "s", "cwd": "/src", "timestamp": "2026-03-01T10:00:00.000Z",
        "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": input}]}});
    let arguments = json!({"cmd": command, "workdir": "/src"}).to_string();
    let codex = json!({"timestamp": "2026-03-01T10:00:00.000Z", "type": "response_item", "payload":
        {"type": "function_call", "name": "exec_command", "call_id": "c", "arguments": arguments}});
    for (agent, line) in agents::ALL.into_iter().zip([claude, codex]) {
        let read = (agent.parse_line)(&line.to_string(), &ToolPatterns::default());
        assert!(read.is_ok(), "a line of {} is no longer one", agent.title);
    }
}

/// What a hook reports, of each agent.
pub(crate) fn hook(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for agent in agents::ALL {
        let _ = (agent.parse_hook)(text, &ToolPatterns::default());
    }
}

/// A conversation, a query a line, and the memories that it is compared with, which are its own lines: figures stay within
/// their bounds, and what is compared twice comes to the same.
pub(crate) fn conversation(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let lines: Vec<_> = text.lines().take(20).collect();
    let intent = intent::detect(&lines);
    assert!((0.0..=1.0).contains(&intent.confidence), "{intent:?}");
    let context = Context::of("p", lines.iter().rev().copied());
    let indexed: Vec<_> = lines.iter().map(|line| Indexed::of("p", [*line])).collect();
    let mut statistics = Statistics::default();
    let scores = score(&context, &indexed, &mut statistics);
    assert!(scores.iter().all(|score| score.is_finite() && *score >= 0.0), "{scores:?}");
    assert_eq!(scores, score(&context, &indexed, &mut statistics));
    let mut compared: Vec<_> = indexed
        .iter()
        .zip(&scores)
        .zip(&lines)
        .map(|((indexed, score), text)| Compared { indexed, score: *score, text })
        .collect();
    compared.retain(|memory| memory.score > 0.0);
    compared.sort_by(|a, b| b.score.total_cmp(&a.score));
    for (evidence, memory) in compare("p", &context, &compared, &statistics).into_iter().zip(&compared) {
        for figure in [evidence.saturation, evidence.lead, evidence.grams, evidence.phrases, evidence.earlier]
        {
            assert!(figure.is_finite(), "{evidence:?}");
        }
        assert!((0.0..=1.0).contains(&probability(evidence.saturation)));
        assert!(!reason(&context, memory.indexed, &statistics, evidence.size).is_empty());
    }
}

/// An answer of a provider, whole and streamed, of each API. It does not matter in which pieces a stream comes.
pub(crate) fn answer(data: &[u8]) {
    for api in [Api::ChatCompletions, Api::Responses, Api::Messages] {
        let _ = Answer::read(api, data);
        let streamed = |size: usize| {
            let (mut events, mut answer) = (Events::default(), Answer::default());
            let pieces = data.chunks(size).flat_map(|piece| events.push(piece)).collect::<Vec<_>>();
            for event in pieces.into_iter().chain(events.finish()) {
                let _ = answer.event(api, &event);
            }
            answer
        };
        assert_eq!(streamed(data.len().max(1)), streamed(7));
    }
}
