//! Exports of generation logs: formats, pairing, deduplication, splits, pieces, and the state of the data that they show.

mod any_chains;
mod builds;
mod corrections;
mod counts;
mod cursors;
mod datasets;
mod documents;
mod encodings;
mod erasures;
mod exclusion;
pub(crate) mod files;
mod formats;
mod groups;
mod limits;
mod near;
mod order;
mod pages;
mod repetition;
mod schemas;
mod selection;
mod splits;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::program::Settings;
use crate::support::{Answer, Service, settings};

const TRAINING: &str = "/v1/exports/training-pairs";

const CORRECTIONS: &str = "/v1/exports/correction-pairs";

/// The line of a log that succeeded, its id made of a number.
fn solved(number: u128, intent: &str, iterations: &[Value]) -> Value {
    json!({"event": "generation", "id": Uuid::from_u128(number), "user_intent": intent, "domain_name": "cbu",
        "iterations": iterations, "success": true})
}

/// A service whose own rounds build no snapshot before the test does.
async fn without_rounds() -> Service {
    Service::with(Settings { upkeep: false, ..settings() }).await
}

async fn rows(service: &Service, path: &str) -> Vec<Value> {
    service.get(path).await.rows()
}

/// Follows the cursors of an export from piece to piece; `limit` of each piece is drawn from `limits`.
async fn pieces(service: &Service, path: &str, limits: &[usize]) -> Vec<Answer> {
    let mut pieces: Vec<Answer> = Vec::new();
    let mut limits = limits.iter().cycle();
    loop {
        let limit = limits.next().expect("a limit");
        let cursor = match pieces.last().map(|piece| piece.header("gleaner-next-cursor")) {
            None => String::new(),
            Some(Some(cursor)) => format!("&cursor={cursor}"),
            Some(None) => return pieces,
        };
        let piece = service.get(&format!("{path}&limit={limit}{cursor}")).await;
        assert_eq!(piece.status, 200, "{}", piece.text());
        pieces.push(piece);
    }
}
