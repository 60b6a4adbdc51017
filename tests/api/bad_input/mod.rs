//! Bad input: whatever is sent, the answer is a problem that names the field, never a 500, and nothing good is lost.

mod batches;
mod characters;
mod encodings;
mod fields;
mod indexes;
mod json;
mod lists;
mod paths;
mod sizes;

use serde_json::{Value, json};

use crate::support::{Service, with};

const LOGS: &str = "/v1/generations";

fn log(intent: &str) -> Value {
    json!({"user_intent": intent, "domain_name": "cbu"})
}

fn line(intent: &str) -> Value {
    with(log(intent), &json!({"event": "generation"}))
}

async fn open_log(service: &Service) -> String {
    format!("{LOGS}/{}", service.create(LOGS, log("Create a fund")).await)
}

async fn count(service: &Service) -> i64 {
    let sql = "select count(*) from generations";
    sqlx::query_scalar(sql).fetch_one(&mut service.connection().await).await.expect("a count")
}
