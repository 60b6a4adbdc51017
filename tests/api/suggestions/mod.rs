//! Suggestion records: slates, views, outcomes, the seed's line, figures, data sets, and what is refused.

mod analytics;
mod exports;
mod failures;
mod history;
mod outcome;
mod refused;
mod start;
mod views;

use serde_json::{Value, json};

use crate::support::{Service, with};

const SLATES: &str = "/v1/suggestions";

fn slate(suggestions: &[&str]) -> Value {
    json!({"context": {"blocks": [{"input": "ls", "output": "a", "success": true}], "cwd": "/"},
        "suggestions": suggestions})
}

/// A slate that was just posted; its address.
async fn posted(service: &Service, suggestions: &[&str], more: Value) -> String {
    let id = service.create(SLATES, with(slate(suggestions), &more)).await;
    format!("{SLATES}/{id}")
}

async fn finalized(service: &Service, address: &str, input: &str) -> Value {
    service.post(&format!("{address}/finalize"), &json!({"actual_input": input})).await.expect(200)
}

/// The seed's own example of a line of its history file.
fn line() -> Value {
    json!({
        "ts": 1_704_067_200.123_456_7, "session": "my-project", "server": "local", "trigger_block": 5, "result_block": 6,
        "context": {"nodes": ["claude", "bash"], "blocks": [{"input": "@bash ls", "output": "a.py\nb.py", "success": true},
            {"input": "@claude explain", "output": "…", "success": true}], "cwd": "/home/user/project"},
        "llm_request": {"messages": [{"role": "system", "content": "You suggest commands."},
            {"role": "user", "content": "{\"blocks\": []}"}], "model": "gpt-4o-mini", "temperature": 0.7, "max_tokens": 256},
        "llm_response": {"raw_content": "1. …", "model": "gpt-4o-mini-2024", "usage": {"prompt_tokens": 150,
            "completion_tokens": 50, "total_tokens": 200}, "finish_reason": "stop", "latency_ms": 234.5},
        "suggestions": ["@claude explain this error", "@bash cat logs.txt", "@python debug.py"],
        "suggestion_node_version": "v1.0", "viewed_indices": [0, 1, 0], "cycle_count": 2,
        "displayed_index_at_submit": 0, "accepted_index": 0, "actual_input": "@claude explain this error",
        "match_type": "exact", "time_to_action_ms": 1234.5
    })
}
