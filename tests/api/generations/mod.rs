//! Generation logs: start, append, finalize, review, list, erase; similar examples, prompt templates and their figures.

mod amend;
mod analytics;
mod attempts;
mod figures;
mod finalize;
mod lists;
mod prefer;
mod review;
mod similar;
mod start;
mod templates;

use serde_json::{Value, json};

use crate::support::{Answer, Service, passed, with};

fn intent(text: &str) -> Value {
    json!({"user_intent": text, "domain_name": "cbu"})
}

/// A finished log of one passing attempt.
fn solved(text: &str, program: &str) -> Value {
    with(intent(text), &json!({"success": true, "iterations": [passed(1, program)]}))
}

async fn start(service: &Service, body: Value) -> String {
    format!("/v1/generations/{}", service.create("/v1/generations", body).await)
}

async fn append(service: &Service, log: &str, attempt: &Value) -> Answer {
    service.post(&format!("{log}/attempts"), attempt).await
}

async fn finalize(service: &Service, log: &str, outcome: &Value) -> Answer {
    service.post(&format!("{log}/finalize"), outcome).await
}

fn numbers(log: &Value) -> Vec<i64> {
    let iterations = log["iterations"].as_array().expect("iterations");
    iterations.iter().map(|attempt| attempt["attempt"].as_i64().expect("a number")).collect()
}
