//! Memories that are found by what they mean, with a model of embeddings over real HTTP that counts what it is asked.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

use super::{ask, suggest};
use crate::support::program::{Embedder, Settings};
use crate::support::{Service, column, eventually, settings};

/// What the model was asked, and how it answers.
#[derive(Default)]
struct Model {
    texts: Mutex<Vec<String>>,
    keys: Mutex<Vec<Option<String>>>,
    /// The status of all its answers instead of embeddings.
    fails: Mutex<Option<StatusCode>>,
}

impl Model {
    fn texts(&self) -> Vec<String> {
        self.texts.lock().expect("never poisoned").clone()
    }

    fn sent(&self, part: &str) -> usize {
        self.texts().iter().filter(|text| text.contains(part)).count()
    }

    fn fail(&self, status: Option<StatusCode>) {
        *self.fails.lock().expect("never poisoned") = status;
    }
}

/// Embeds texts by the subjects that they have words of. A text that says so is too long for the model.
async fn embed(State(model): State<Arc<Model>>, headers: HeaderMap, body: axum::Json<Value>) -> Response {
    const SUBJECTS: [&[&str]; 3] =
        [&["vehicle", "car", "truck"], &["fruit", "apple", "pear"], &["boat", "ship", "canoe"]];
    let texts = column_of_texts(&body["input"]);
    let key = headers.get("authorization").and_then(|key| key.to_str().ok()).map(str::to_owned);
    model.keys.lock().expect("never poisoned").push(key);
    model.texts.lock().expect("never poisoned").extend(texts.clone());
    if let Some(status) = *model.fails.lock().expect("never poisoned") {
        return status.into_response();
    }
    if texts.iter().any(|text| text.contains("too long")) {
        return StatusCode::BAD_REQUEST.into_response();
    }
    if texts.iter().any(|text| text.contains("crashes")) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let embedding = |text: &String| {
        let has = |words: &[&str]| f64::from(u8::from(words.iter().any(|word| text.contains(word))));
        let mut values: Vec<_> = SUBJECTS.iter().map(|words| has(words)).collect();
        values.push(0.1);
        values
    };
    let data: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"index": index, "embedding": embedding(text)}))
        .collect();
    axum::Json(json!({"object": "list", "data": data, "model": body["model"]})).into_response()
}

fn column_of_texts(input: &Value) -> Vec<String> {
    let texts = input.as_array().expect("a list of texts");
    texts.iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
}

/// A service with a model of embeddings.
async fn service() -> (Service, Arc<Model>) {
    let model = Arc::new(Model::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let router = Router::new().route("/v1/embeddings", post(embed)).with_state(Arc::clone(&model));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let embedder = Embedder::new(&url, "toy", Some("embeddings-key")).expect("an address");
    let settings = Settings { embedder: Some(Arc::new(embedder)), ..settings() };
    (Service::with(settings).await, model)
}

async fn remember(service: &Service, number: u128, content: &str) {
    let memory = json!({"id": Uuid::from_u128(number), "content": content});
    service.post("/v1/memories", &memory).await.expect(201);
}

/// How many memories have an embedding, and how many of these are empty.
async fn embedded(service: &Service) -> (i64, i64) {
    let sql = "select count(*), count(*) filter (where embedding = '{}') from memory_embeddings where model = 'toy'";
    sqlx::query_as(sql).fetch_one(service.pool()).await.expect("two numbers")
}

/// Memories whose words have equally much to do with a question about the quota of something.
const QUOTAS: [&str; 5] = [
    "The quota of the apple is seven.",
    "The quota of the pear is eight.",
    "The quota of the canoe is nine.",
    "The quota of the ship is three.",
    "The quota of the truck is four.",
];

#[tokio::test]
async fn of_memories_with_the_same_words_the_one_with_the_same_meaning_comes_first() {
    let (service, model) = service().await;
    for (number, content) in (1..).zip(QUOTAS) {
        remember(&service, number, content).await;
    }
    eventually("all have an embedding", async || embedded(&service).await.0 == 5).await;
    ask(&service, "s", "What is the quota of the vehicle?").await;
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0, "peek": true})).await;
    let best = &found["suggestions"][0];
    assert_eq!(best["memory_id"], json!(Uuid::from_u128(5)), "{found}");
    assert!(best["factors"]["semantic_similarity"].as_f64().expect("a number") > 0.99, "{best}");
    let confidences = column(found["suggestions"].as_array().expect("a list"), "confidence");
    assert!(confidences[0].as_f64() > confidences[1].as_f64(), "{confidences:?}");
    let searched = service.get("/v1/memories/search?query=quota+of+the+vehicle").await.expect(200);
    assert_eq!(searched["data"][0]["memory_id"], json!(Uuid::from_u128(5)), "{searched}");
    // Each text was sent once, with the key.
    for content in QUOTAS {
        assert_eq!(model.sent(content), 1, "{content}");
    }
    let keys = model.keys.lock().expect("never poisoned").clone();
    assert!(keys.iter().all(|key| key.as_deref() == Some("Bearer embeddings-key")), "{keys:?}");
}

#[tokio::test]
async fn an_embedding_follows_its_memory() {
    let (service, model) = service().await;
    remember(&service, 1, QUOTAS[0]).await;
    eventually("it has an embedding", async || embedded(&service).await == (1, 0)).await;
    let path = format!("/v1/memories/{}", Uuid::from_u128(1));
    service.patch(&path, &json!({"importance": 0.9})).await.expect(200);
    assert_eq!(embedded(&service).await, (1, 0), "its text is the same");
    service.patch(&path, &json!({"content": "The quota of the boat is one."})).await.expect(200);
    eventually("the new text is sent", async || model.sent("boat is one") == 1).await;
    eventually("it has an embedding again", async || embedded(&service).await == (1, 0)).await;
    service.delete(&path).await.gone();
    assert_eq!(embedded(&service).await, (0, 0));
}

#[tokio::test]
async fn only_redacted_texts_are_sent() {
    // The shape of a token of GitHub, which nobody has issued.
    let token = "ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI";
    let (service, model) = service().await;
    remember(&service, 1, &format!("The token of the truck is {token}.")).await;
    ask(&service, "s", &format!("Is {token} the token of the truck?")).await;
    suggest(&service, "s", &json!({})).await;
    let search = format!("/v1/memories/search?query=token+{token}");
    service.get(&search).await.expect(200);
    eventually("it has an embedding", async || embedded(&service).await.0 == 1).await;
    let texts = model.texts();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(
        texts.iter().all(|text| text.contains("[redacted:secrets]") && !text.contains(token)),
        "{texts:?}"
    );
}

#[tokio::test]
async fn a_project_without_text_sends_none() {
    let (service, model) = service().await;
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    remember(&service, 1, QUOTAS[0]).await;
    service.get("/v1/memories/search?query=quota+of+the+apple").await.expect(200);
    // A memory of another project, by which one knows that the first was passed by.
    service.project("other").await;
    let memory = json!({"content": "The truck is red."});
    let request = crate::support::request(axum::http::Method::POST, "/v1/memories")
        .header("content-type", "application/json")
        .header("gleaner-project", "other");
    service.send(request.body(memory.to_string().into()).expect("a request")).await.expect(201);
    eventually("the other has an embedding", async || embedded(&service).await.0 == 1).await;
    assert_eq!(model.texts(), ["The truck is red."]);
}

#[tokio::test]
async fn a_model_that_fails_keeps_nobody_from_suggestions() {
    let (service, model) = service().await;
    model.fail(Some(StatusCode::SERVICE_UNAVAILABLE));
    for (number, content) in (1..).zip(QUOTAS) {
        remember(&service, number, content).await;
    }
    ask(&service, "s", "What is the quota of the truck?").await;
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    assert_eq!(found["suggestions"][0]["memory_id"], json!(Uuid::from_u128(5)), "by its words");
    eventually("it was asked in the background", async || model.sent("apple") > 0).await;
    assert_eq!(embedded(&service).await, (0, 0));
    model.fail(None);
    eventually("all have an embedding", async || embedded(&service).await == (5, 0)).await;
}

#[tokio::test]
async fn a_text_that_the_model_refuses_is_not_sent_for_ever() {
    let (service, model) = service().await;
    remember(&service, 1, "This text is too long.").await;
    remember(&service, 2, QUOTAS[0]).await;
    eventually("both are done", async || embedded(&service).await == (2, 1)).await;
    let sent = model.sent("too long");
    remember(&service, 3, QUOTAS[1]).await;
    eventually("the next is done", async || embedded(&service).await == (3, 1)).await;
    assert_eq!(model.sent("too long"), sent);
}

#[tokio::test]
async fn a_model_that_refuses_every_text_is_asked_again_for_all_of_them() {
    let (service, model) = service().await;
    model.fail(Some(StatusCode::BAD_REQUEST));
    remember(&service, 1, QUOTAS[0]).await;
    eventually("it is asked twice", async || model.sent("apple") > 1).await;
    assert_eq!(embedded(&service).await, (0, 0));
    model.fail(None);
    eventually("it has an embedding", async || embedded(&service).await == (1, 0)).await;
}

#[tokio::test]
async fn a_text_with_which_the_model_fails_holds_up_no_other() {
    let (service, model) = service().await;
    for number in 1..4 {
        remember(&service, number, &format!("This text crashes, {number}.")).await;
    }
    remember(&service, 4, QUOTAS[0]).await;
    eventually("the other is done", async || embedded(&service).await == (1, 0)).await;
    eventually("each was sent alone", async || model.sent("crashes") >= 6).await;
    let sent = model.sent("crashes");
    remember(&service, 5, QUOTAS[1]).await;
    eventually("the next is done", async || embedded(&service).await == (2, 0)).await;
    assert!(model.sent("crashes") <= sent + 3, "they are passed by");
}

#[tokio::test]
async fn a_project_that_has_stopped_keeping_texts_sends_none_of_those_that_it_has() {
    let (service, model) = service().await;
    model.fail(Some(StatusCode::SERVICE_UNAVAILABLE));
    remember(&service, 1, QUOTAS[0]).await;
    eventually("it was sent", async || model.sent("apple") > 0).await;
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    service.project("other").await;
    let memory = json!({"content": "The truck is red."});
    let request = crate::support::request(axum::http::Method::POST, "/v1/memories")
        .header("content-type", "application/json")
        .header("gleaner-project", "other");
    service.send(request.body(memory.to_string().into()).expect("a request")).await.expect(201);
    model.fail(None);
    // Twice, so that a whole pass has gone by.
    for content in ["The truck is red.", "The truck is blue."] {
        eventually("the other is sent", async || model.sent(content) > 0).await;
        if content.contains("red") {
            let request = crate::support::request(axum::http::Method::POST, "/v1/memories")
                .header("content-type", "application/json")
                .header("gleaner-project", "other");
            let memory = json!({"content": "The truck is blue."});
            service.send(request.body(memory.to_string().into()).expect("a request")).await.expect(201);
        }
    }
    eventually("the others have an embedding", async || embedded(&service).await.0 == 2).await;
}
