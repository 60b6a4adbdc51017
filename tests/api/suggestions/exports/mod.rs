//! Data sets of suggestion records: formats byte for byte, what counts as chosen and rejected, and the seed's line.

mod formats;
mod history;
mod selection;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Service, with};

const PREFERENCES: &str = "/v1/exports/preference-pairs";

const ACCEPTED: &str = "/v1/exports/accepted-suggestions";

const RANKINGS: &str = "/v1/exports/rankings";

const HISTORY: &str = "/v1/exports/suggestion-history";

/// The line of a finished record, its id made of a number.
fn finished(number: u128, suggestions: &[&str], viewed: &[i32], input: &str) -> Value {
    json!({"event": "suggestion", "id": Uuid::from_u128(number), "context": {"blocks": [{"input": "git add ."}]},
        "suggestions": suggestions, "viewed_indices": viewed, "actual_input": input})
}

fn told(event: Value) -> Value {
    with(
        event,
        &json!({"llm_request": {"messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Next?"}]}}),
    )
}

/// Four slates, one of each kind of match: exact at 1, partial and prefix at 0, and none.
async fn four() -> Service {
    let service = Service::open().await;
    service
        .accept(&[
            told(finished(1, &["ls", "git commit", "cd"], &[0, 1], "git commit")),
            finished(2, &["git", "pwd"], &[0, 1], "git push"),
            finished(3, &["git log", "pwd"], &[0], "git"),
            finished(4, &["ls", "pwd"], &[0], "make"),
        ])
        .await;
    service
}
