//! Erasure: by age and by id on request, and by itself where a project keeps records for a time only.

mod requests;
mod retention;
mod steady_state;

use chrono::TimeDelta;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::program::{Retention, Settings, Timestamp};
use crate::support::{Service, failed, passed, settings};

/// A service whose own retention does not run beside that of the test. Where one is at work, the other one leaves the records to it.
async fn service() -> Service {
    Service::with(Settings { upkeep: false, ..settings() }).await
}

/// Erases what projects want to keep no longer, as if so many days had passed.
async fn expire_after(service: &Service, days: i64) {
    let now = Timestamp::now().plus(TimeDelta::days(days)).expect("a time");
    expire_at(service, now).await;
}

async fn expire_at(service: &Service, now: Timestamp) {
    let mut pieces = Pieces::at(service, now);
    while pieces.take().await {}
}

/// The pieces in which retention erases, one after the other.
struct Pieces {
    retention: Retention,
    now: Timestamp,
}

impl Pieces {
    fn at(service: &Service, now: Timestamp) -> Self {
        Self { retention: Retention::new(service.pool(), service.running_keyring()), now }
    }

    /// Erases one, and returns whether there are more.
    async fn take(&mut self) -> bool {
        self.retention.piece(self.now).await.expect("erases")
    }
}

/// The events of one record of each kind with everything that can belong to it, with ids from `first` on.
fn one_of_each(first: u128, session: &str) -> Vec<Value> {
    let [log, slate, search, pair, send, memory, asked] =
        [0, 1, 2, 3, 4, 5, 6].map(|nth| Uuid::from_u128(first + nth));
    // Words that come again: Postgres keeps a word in an index of words also when its last row is gone.
    let text = format!("needle {} {}", first % 256, "x".repeat(500));
    vec![
        json!({"event": "generation", "id": log, "user_intent": text, "domain_name": "cbu", "session_id": session,
            "success": true, "iterations": [failed(1, &format!("(bad {text})"), "no"), passed(2, &format!("(good {text})"))]}),
        json!({"event": "suggestion", "id": slate, "context": {"text": text}, "suggestions": ["a", text],
            "session_name": session}),
        json!({"event": "view", "suggestion_id": slate, "index": 1}),
        json!({"event": "suggestion_outcome", "suggestion_id": slate, "actual_input": "a"}),
        json!({"event": "search", "id": search, "query": "login button", "best_score": 0.1, "result_count": 1,
            "results": [{"path": "other.rs", "score": 0.1}], "agent_session_id": session}),
        json!({"event": "fallback", "search_id": search, "kind": "read", "path": "login.rs"}),
        json!({"event": "search_outcome", "search_id": search}),
        json!({"event": "pair", "id": pair, "user_text": text, "assistant_text": text, "session_id": session}),
        json!({"event": "send", "id": send, "mode": "record", "user_text": text, "session_id": session, "model": "m",
            "visible": {"ids": [pair]}}),
        json!({"event": "send_attempt", "send_id": send, "latency_ms": 5}),
        json!({"event": "send_outcome", "send_id": send, "assistant_text": text}),
        json!({"event": "memory", "id": memory, "content": text, "file_path": "src/needle.rs", "session_id": session}),
        json!({"event": "conversation_query", "id": asked, "session_id": session, "query": text, "shown": [memory]}),
        json!({"event": "memory_feedback", "session_id": session, "memory_id": memory, "verdict": "used"}),
    ]
}

/// The tables that have rows, with how many.
async fn rows(service: &Service) -> Vec<(String, i64)> {
    let mut connection = service.connection().await;
    let sql = "
        select c.relname::text, (xpath('/row/n/text()', query_to_xml(format('select count(*) as n from %I', c.relname),
            false, true, '')))[1]::text::bigint
        from pg_class c where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace order by 1";
    let rows: Vec<(String, i64)> = sqlx::query_as(sql).fetch_all(&mut connection).await.expect("counts");
    rows.into_iter().filter(|(_, count)| *count > 0).collect()
}
