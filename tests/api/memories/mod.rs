//! Memories over HTTP: stored and found again, what is asked and judged in conversations, and what is suggested there.

mod conversations;
mod embeddings;
mod figures;
mod intents;
mod privacy;
mod searching;
mod storing;
mod suggesting;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::Service;

/// Stores some notes and functions.
async fn notes(service: &Service) {
    let note = |number: u128, content: &str, tag: &str| json!({"event": "memory", "id": Uuid::from_u128(number), "content": content, "tags": [tag]});
    let code = |number: u128, content: &str, symbol: &str, path: &str| {
        json!({"event": "memory", "id": Uuid::from_u128(number), "content": content, "source_type": "code", "symbol": symbol,
            "file_path": path})
    };
    service
        .accept(&[
            note(1, "AuthMiddleware refuses a JWT whose clock is ahead by more than 30 seconds.", "auth"),
            note(2, "The staging database is on port 5433.", "db"),
            note(3, "Invoices are rounded to the cent, half to even.", "billing"),
            code(4, "def verify_jwt(token):\n    return decode(token, KEY)", "verify_jwt", "src/auth.py"),
            code(5, "def render(template):\n    return template.format()", "render", "src/views.py"),
            note(6, "Deploys happen on Tuesdays.", "ops"),
        ])
        .await;
}

/// Asks something in a conversation.
async fn ask(service: &Service, session: &str, query: &str) {
    let path = format!("/v1/conversations/{session}/queries");
    service.post(&path, &json!({"query": query})).await.expect(201);
}

/// What is suggested in a conversation.
async fn suggest(service: &Service, session: &str, body: &Value) -> Value {
    service.post(&format!("/v1/conversations/{session}/suggest"), body).await.expect(200)
}
