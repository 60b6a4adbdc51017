//! Seed 003 from top to bottom: what each of its sections asks for. What is about the screen (focus, scrolling, badges) is the
//! client's; what it shows there comes from here.

use axum::body::Body;
use axum::http::{Method, header};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::support::provider::{self, Asked};
use crate::support::{Answer, Service, column, request, with};

/// A service that knows the model `m`, which takes 400 tokens, of four characters each.
async fn service() -> Service {
    let service = Service::open().await;
    let limits = json!({"context_window": 400, "chars_per_token": 4});
    service.put("/v1/models/m", &limits).await.expect(201);
    service
}

/// A completed pair of so many tokens.
fn pair(tokens: usize) -> Value {
    json!({"user_text": "u".repeat(2 * tokens), "assistant_text": "a".repeat(2 * tokens), "model": "m"})
}

async fn pairs(service: &Service, sizes: &[usize]) -> Vec<String> {
    let mut ids = Vec::new();
    for size in sizes {
        ids.push(service.create("/v1/pairs", pair(*size)).await);
    }
    ids
}

/// The body of a send of everything that is visible without a filter.
fn send(by: &str, more: &Value) -> Value {
    let all = json!({"mode": by, "model": "m", "user_text": "What now?", "visible": {"filter": {}}});
    with(all, more)
}

/// Opens a send that the client performs; its address and body.
async fn open(service: &Service, more: &Value) -> (String, Value) {
    let opened = service.post("/v1/sends", &send("record", more)).await.expect(201);
    (format!("/v1/sends/{}", opened["id"].as_str().expect("an id")), opened)
}

/// Tells of a call of that send.
async fn attempt(service: &Service, address: &str, call: &Value) -> Value {
    service.post(&format!("{address}/attempts"), call).await.expect(201)
}

async fn finalize(service: &Service, address: &str, outcome: &Value) -> Value {
    service.post(&format!("{address}/finalize"), outcome).await.expect(200)
}

/// A call that the provider refused, as the context overflows.
fn overflow() -> Value {
    json!({"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 400 tokens."}})
}

fn answer() -> Value {
    json!({"assistant_text": "Now this.", "usage": {"prompt_tokens": 30, "completion_tokens": 3}})
}

async fn predict(service: &Service, more: &Value) -> Value {
    let all = json!({"model": "m", "visible": {"filter": {}}});
    service.post("/v1/context/predict", &with(all, more)).await.expect(200)
}

async fn patch(service: &Service, id: &str, change: &Value) -> Value {
    service.patch(&format!("/v1/pairs/{id}"), change).await.expect(200)
}

async fn delete(service: &Service, id: &str) -> Answer {
    service.delete(&format!("/v1/pairs/{id}")).await
}

/// Begins a send that Gleaner performs with a model that waits; it has reached the provider.
async fn in_flight(
    service: &Service,
    asked: &Asked,
    more: &Value,
) -> (Uuid, JoinHandle<axum::response::Response>) {
    let id = Uuid::new_v4();
    let body =
        with(send("execute", &json!({"id": id, "model": "slow", "settings": {"chars_per_token": 4}})), more);
    let request = request(Method::POST, "/v1/sends").header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string())).expect("a request");
    let router = service.router.clone();
    let task = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    asked.came.notified().await;
    (id, task)
}

fn contents(send: &Value) -> Vec<Value> {
    column(send["messages"].as_array().expect("messages"), "content")
}

// 1. What you see is what you send.

#[tokio::test]
async fn section_1_exactly_the_visible_pairs_are_sent_in_their_order_and_the_new_message_after_them() {
    let service = service().await;
    for (number, flag) in [(1, "green"), (2, "red"), (3, "green")] {
        let new = json!({"user_text": format!("u{number}"), "assistant_text": format!("a{number}"), "color_flag": flag,
            "star": number, "topic_id": "t"});
        service.create("/v1/pairs", new).await;
    }
    let (_, seen) = open(&service, &json!({"visible": {"filter": {"color_flag": "green"}}})).await;
    assert_eq!(contents(&seen), ["u1", "a1", "u3", "a3", "What now?"]);
    let (_, seen) =
        open(&service, &json!({"visible": {"filter": {"not": {"star": [1, 3]}, "state": "complete"}}})).await;
    assert_eq!(contents(&seen), ["u2", "a2", "What now?"]);
    // A mark has no meaning of its own: without a filter all are seen.
    assert_eq!(predict(&service, &json!({})).await["counter"], "3 / 3");
}

#[tokio::test]
async fn section_1_the_model_is_the_one_selected_else_that_of_the_newest_pair_else_the_default() {
    let service = service().await;
    service.put("/v1/models/small", &json!({"context_window": 50, "chars_per_token": 4})).await.expect(201);
    let default = json!({"messages": {"default_model": "small", "user_request_allowance": 10}});
    service.put("/v1/projects/default", &default).await.expect(200);
    let model = async |more: Value| open(&service, &more).await.1["model"].clone();
    assert_eq!(model(json!({"model": null})).await, "small");
    pairs(&service, &[1]).await;
    assert_eq!(model(json!({"model": null})).await, "m");
    assert_eq!(model(json!({"model": "small"})).await, "small");
}

#[tokio::test]
async fn section_1_each_payload_has_its_tokens() {
    let service = service().await;
    let ids = pairs(&service, &[50, 60, 70]).await;
    let (address, opened) = open(&service, &json!({"user_text": "x".repeat(80)})).await;
    let number = |name: &str, of: &Value| of[name].as_i64().unwrap_or_else(|| panic!("{name}"));
    assert_eq!(number("predicted_history_tokens", &opened), 180);
    assert_eq!(number("predicted_total_tokens", &opened), 180 + 100);
    // attempt 1 = predicted total + AUT - URA
    assert_eq!((number("aut", &opened), number("attempt_total_tokens", &opened)), (20, 180 + 20));
    attempt(&service, &address, &overflow()).await;
    let ended = finalize(&service, &address, &answer()).await;
    assert_eq!(number("final_delivered_tokens", &ended), 130 + 20);
    assert_eq!(
        (&ended["trimming_removed_ids"], number("trimming_removed_tokens", &ended)),
        (&json!([ids[0]]), 50)
    );
    assert_eq!(number("predicted_history_tokens", &ended), 180);
    assert_eq!(contents(&ended).len(), 5);
}

// 2. Entities. 3. The state machine.

#[tokio::test]
async fn section_2_a_pair_has_the_seeds_fields_and_no_answer_before_one_comes() {
    let service = service().await;
    let new = json!({"topic_id": "t", "model": "m", "user_text": "u", "star": 1, "color_flag": "g", "timestamp": "2026-03-01T12:00:00Z"});
    let made = service.post("/v1/pairs", &new).await.expect(201);
    assert_eq!(
        [
            "topic_id",
            "model",
            "user_text",
            "assistant_text",
            "star",
            "color_flag",
            "lifecycle_state",
            "created_at"
        ]
        .map(|name| made[name].clone()),
        [
            json!("t"),
            json!("m"),
            json!("u"),
            Value::Null,
            json!(1),
            json!("g"),
            json!("idle"),
            json!("2026-03-01T12:00:00.000000Z")
        ]
    );
}

#[tokio::test]
async fn section_3_a_pair_is_sending_until_it_is_complete_or_an_error_and_only_an_error_is_asked_again() {
    let service = service().await;
    let state = async |send: &Value| {
        let id = send["pair_id"].as_str().expect("an id");
        service.get(&format!("/v1/pairs/{id}")).await.expect(200)["lifecycle_state"].clone()
    };
    let (address, opened) = open(&service, &json!({})).await;
    assert_eq!(state(&opened).await, "sending");
    finalize(&service, &address, &answer()).await;
    assert_eq!(state(&opened).await, "complete");
    let again = |of: &Value| send("record", &json!({"user_text": null, "reask_of": of["pair_id"]}));
    service.post("/v1/sends", &again(&opened)).await.refused(409, &[]);
    let (address, failed) = open(&service, &json!({"user_text": "fails"})).await;
    finalize(&service, &address, &json!({"error": {"status": 500, "message": "oops"}})).await;
    assert_eq!(state(&failed).await, "error");
    let asked = service.post("/v1/sends", &again(&failed)).await.expect(201);
    assert_eq!((state(&asked).await, &asked["pair"]["user_text"]), (json!("sending"), &json!("fails")));
}

// 4. The happy path.

#[tokio::test]
async fn section_4_a_send_takes_what_is_visible_at_that_instant_and_its_pair_is_there_before_the_answer() {
    let (service, asked) = provider::service().await;
    pairs(&service, &[10]).await;
    let (id, task) = in_flight(&service, &asked, &json!({})).await;
    let sending = service.get("/v1/pairs?state=sending").await.expect(200);
    assert_eq!(
        (&sending["data"][0]["user_text"], &sending["data"][0]["assistant_text"]),
        (&json!("What now?"), &Value::Null)
    );
    // Another message can be composed, and sent, meanwhile; it does not see the one that has no answer yet.
    let (_, other) = open(&service, &json!({"user_text": "And this?"})).await;
    assert_eq!(contents(&other).len(), 3);
    asked.go_on.notify_one();
    assert_eq!(task.await.expect("ends").status(), 201);
    let sent = service.get(&format!("/v1/sends/{id}")).await.expect(200);
    assert_eq!(
        column(asked.last()["messages"].as_array().expect("messages"), "role"),
        ["user", "assistant", "user"]
    );
    assert_eq!(
        (&sent["pair"]["lifecycle_state"], &sent["pair"]["assistant_text"]),
        (&json!("complete"), &json!("Hello there"))
    );
}

// 5. Branches.

#[tokio::test]
async fn sections_5_1_and_5_2_an_error_of_the_provider_or_the_network_is_labelled_and_leaves_a_snapshot() {
    let service = service().await;
    let ids = pairs(&service, &[10]).await;
    for (error, label) in [
        (
            json!({"status": 401, "message": "Incorrect API key provided"}),
            "[error: auth] Incorrect API key provided",
        ),
        (json!({"message": "fetch failed: ECONNREFUSED"}), "[error: net] fetch failed: ECONNREFUSED"),
    ] {
        let (address, _) = open(&service, &json!({"visible": {"ids": ids}})).await;
        let ended = finalize(&service, &address, &json!({"error": error})).await;
        assert_eq!(ended["error"]["label"], label);
        assert_eq!(ended["snapshot"], json!({"included_pair_ids": ids, "outgoing_user_text": "What now?"}));
        // Error text is no answer, and is never sent.
        assert_eq!(ended["pair"]["assistant_text"], Value::Null);
        let (_, next) = open(&service, &json!({"visible": {"ids": [ended["pair_id"]]}})).await;
        assert_eq!(contents(&next), ["What now?", "What now?"]);
    }
}

#[tokio::test]
async fn section_5_3_a_send_can_be_aborted() {
    let (service, asked) = provider::service().await;
    let (id, task) = in_flight(&service, &asked, &json!({})).await;
    let cancelled = service.post(&format!("/v1/sends/{id}/cancel"), &json!({})).await.expect(200);
    assert_eq!(
        (&cancelled["error"]["kind"], &cancelled["stage"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    task.await.expect("ends");
}

#[tokio::test]
async fn section_5_4_asking_again_deletes_the_failed_pair_and_appends_a_new_one_with_the_present_context() {
    let service = service().await;
    let (address, failed) = open(&service, &json!({"topic_id": "t", "user_text": "again?"})).await;
    finalize(&service, &address, &json!({"error": {"status": 529, "message": "Overloaded"}})).await;
    pairs(&service, &[5]).await;
    let asked = service
        .post(
            "/v1/sends",
            &json!({"mode": "record", "reask_of": failed["pair_id"], "visible": {"filter": {}}}),
        )
        .await;
    let asked = asked.expect(201);
    assert_eq!(
        (&asked["pair"]["topic_id"], &asked["model"], &asked["counter"]),
        (&json!("t"), &json!("m"), &json!("1 / 1"))
    );
    assert_ne!(asked["pair_id"], failed["pair_id"]);
    let newest = &service.get("/v1/pairs?limit=1").await.expect(200)["data"][0];
    assert_eq!(newest["id"], asked["pair_id"]);
    let old = failed["pair_id"].as_str().expect("an id");
    service.get(&format!("/v1/pairs/{old}")).await.refused(404, &[]);
}

#[tokio::test]
async fn sections_5_5_and_5_6_a_filter_or_a_model_that_changes_in_flight_changes_nothing_of_the_send() {
    let (service, asked) = provider::service().await;
    let ids = pairs(&service, &[10]).await;
    patch(&service, &ids[0], &json!({"star": 1})).await;
    let starred = json!({"visible": {"filter": {"min_star": 1, "state": "complete"}}});
    let (id, task) = in_flight(&service, &asked, &starred).await;
    patch(&service, &ids[0], &json!({"star": 0, "model": "other", "user_text": "edited"})).await;
    let next = predict(&service, &json!({"visible": {"filter": {"min_star": 1}}})).await;
    assert_eq!(next["counter"], "0 / 0");
    asked.go_on.notify_one();
    assert_eq!(task.await.expect("ends").status(), 201);
    let sent = service.get(&format!("/v1/sends/{id}")).await.expect(200);
    assert_eq!((&sent["model"], &sent["counter"]), (&json!("slow"), &json!("1 / 1")));
    assert_eq!(contents(&sent)[0], "u".repeat(20));
}

#[tokio::test]
async fn section_5_7_a_pair_can_be_deleted() {
    let service = service().await;
    let ids = pairs(&service, &[5, 5]).await;
    assert_eq!(delete(&service, &ids[0]).await.status, 204);
    assert_eq!(predict(&service, &json!({})).await["included"], json!([ids[1]]));
}

// 6. The assembly of the context.

#[tokio::test]
async fn section_6_blank_texts_make_no_message_and_marks_are_never_part_of_one() {
    let service = service().await;
    for (user, assistant) in [("u1", " \n"), ("  ", "a2"), ("", ""), ("u4", "a4")] {
        let new = json!({"user_text": user, "assistant_text": assistant, "topic_id": "needle", "color_flag": "needle", "star": 3});
        service.create("/v1/pairs", new).await;
    }
    let (_, opened) = open(&service, &json!({})).await;
    assert_eq!(contents(&opened), ["u1", "a2", "u4", "a4", "What now?"]);
    assert_eq!(opened["counter"], "4 / 4");
    assert!(!opened["messages"].to_string().contains("needle"));
    let (_, blank) = open(&service, &json!({"user_text": " ", "visible": null})).await;
    assert_eq!((&blank["messages"], &blank["aut"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn section_6_what_does_not_fit_is_not_sent_and_the_prelude_comes_first() {
    let service = service().await;
    let ids = pairs(&service, &[200, 100, 100]).await;
    let (_, opened) = open(&service, &json!({"system": "Be brief."})).await;
    assert_eq!((&opened["counter"], &opened["visible"]), (&json!("2 / 3"), &json!(ids)));
    assert_eq!(opened["messages"][0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(contents(&opened).len(), 6);
}

#[tokio::test]
async fn section_6_9_the_boundary_moves_with_what_it_is_made_of_and_not_with_what_is_typed() {
    let service = service().await;
    let ids = pairs(&service, &[100, 100, 100]).await;
    let included = async |more: Value| predict(&service, &more).await["included"].as_array().map(Vec::len);
    assert_eq!(included(json!({})).await, Some(3));
    for typed in ["", "a", &"x".repeat(4 * 400)] {
        assert_eq!(included(json!({"user_text": typed})).await, Some(3));
    }
    assert_eq!(included(json!({"settings": {"user_request_allowance": 101}})).await, Some(2));
    assert_eq!(included(json!({"settings": {"chars_per_token": 2}})).await, Some(1));
    assert_eq!(included(json!({"model": null, "model_limit": 250})).await, Some(1));
    assert_eq!(included(json!({"visible": {"ids": [ids[0]]}})).await, Some(1));
    // An edit, an answer that arrives, an erasure.
    patch(&service, &ids[2], &json!({"user_text": "u".repeat(4 * 51)})).await;
    assert_eq!(included(json!({})).await, Some(2));
    assert_eq!(delete(&service, &ids[1]).await.status, 204);
    assert_eq!(included(json!({})).await, Some(2));
    let (address, _) = open(&service, &json!({"visible": null})).await;
    finalize(&service, &address, &json!({"assistant_text": "a".repeat(4 * 200)})).await;
    assert_eq!(included(json!({})).await, Some(1));
}

#[tokio::test]
async fn section_6_9_a_large_prompt_is_tried_as_it_is_or_trimmed_beforehand_and_only_the_counter_tells() {
    let service = service().await;
    pairs(&service, &[100, 100, 100]).await;
    let large = |preflight: bool| json!({"user_text": "x".repeat(4 * 250), "settings": {"preflight_trim": preflight}});
    let (_, tried) = open(&service, &large(false)).await;
    assert_eq!((&tried["counter"], contents(&tried).len()), (&json!("3 / 3"), 7));
    assert_eq!(tried["remaining_reserve"], -150);
    let (_, trimmed) = open(&service, &large(true)).await;
    assert_eq!((&trimmed["counter"], contents(&trimmed).len()), (&json!("[3-2]/3"), 3));
    assert_eq!((&trimmed["predicted_message_count"], &trimmed["attempts_used"]), (&json!(3), &json!(0)));
}

// 7. Budgeting and trimming.

#[tokio::test]
async fn section_7_1_a_prompt_as_large_as_the_limit_is_sent_and_one_token_more_is_refused_before_any_call() {
    let service = service().await;
    let (_, fits) = open(&service, &json!({"user_text": "x".repeat(1_600)})).await;
    assert_eq!((&fits["aut"], &fits["budget"]["max_context"]), (&json!(400), &json!(400)));
    let large = send("record", &json!({"user_text": "x".repeat(1_601)}));
    let refused = service.post("/v1/sends", &large).await.refused(422, &["/user_text"]);
    assert_eq!((&refused["kind"], &refused["aut"]), (&json!("user_prompt_too_large"), &json!(401)));
    assert_eq!(refused["max_context"], 400);
    assert_eq!(service.all("/v1/sends").await.len(), 1);
}

#[tokio::test]
async fn sections_7_1_and_7_8_the_limit_is_the_smaller_of_the_window_and_the_tokens_per_minute() {
    let service = Service::open().await;
    for (tpm, limit) in [(300, 300), (9_000, 1_000)] {
        let limits = json!({"context_window": 1_000, "tpm": tpm});
        service.put("/v1/models/m", &limits).await;
        assert_eq!(predict(&service, &json!({})).await["max_context"], limit);
    }
}

#[tokio::test]
async fn sections_7_2_and_7_3_one_oldest_pair_goes_with_each_overflow_and_the_counter_shows_it() {
    let service = service().await;
    let ids = pairs(&service, &[25; 34]).await;
    let (address, opened) = open(&service, &json!({})).await;
    assert_eq!(opened["counter"], "12 / 34");
    let first = attempt(&service, &address, &overflow()).await;
    assert_eq!((&first["stage"], &first["counter"]), (&json!("overflow_initial"), &json!("[12-1]/34")));
    assert_eq!(first["included_ids"], json!(ids[23..]));
    let second = attempt(&service, &address, &overflow()).await;
    assert_eq!((&second["stage"], &second["next"]), (&json!("overflow_retry"), &json!("retry")));
    let ended = finalize(&service, &address, &answer()).await;
    assert_eq!((&ended["counter"], &ended["sent_count"]), (&json!("[12-2]/34"), &json!(10)));
    assert!(ended["trim_summary"].as_str().expect("a summary").starts_with("The 2 oldest of 12"));
}

#[tokio::test]
async fn section_7_4_the_defaults_are_the_seeds() {
    let service = service().await;
    let (_, opened) = open(&service, &json!({})).await;
    assert_eq!(opened["predicted_total_tokens"], 100);
    pairs(&service, &[1; 12]).await;
    let (address, _) = open(&service, &json!({"settings": {"chars_per_token": 3.5}})).await;
    for call in 1..=11 {
        let told = attempt(&service, &address, &overflow()).await;
        assert_eq!(told["next"], if call == 11 { "stop" } else { "retry" }, "{call}");
    }
    let ended = finalize(&service, &address, &overflow()).await;
    assert_eq!((&ended["counter"], &ended["attempts_used"]), (&json!("[12-10]/12"), &json!(11)));
    assert_eq!(ended["chars_per_token"], 3.5);
}

#[tokio::test]
async fn section_7_5_the_seeds_code_and_words_are_overflows_whatever_their_case() {
    let service = Service::open().await;
    for said in [
        json!({"code": "context_length_exceeded", "message": "x"}),
        json!({"message": "error: CONTEXT_LENGTH exceeded"}),
        json!({"message": "This model's maximum context length is 8192 tokens, you sent 9000"}),
        json!({"message": "Too many tokens in the prompt: 9000 > 8192"}),
        json!({"message": "context too long"}),
        json!({"message": "The prompt exceeds context window"}),
        json!({"message": "Request too large for gpt-4o"}),
        json!({"message": "Your input is too large for the model's context"}),
    ] {
        let meaning = service.post("/v1/errors/classify", &said).await.expect(200);
        assert_eq!((&meaning["overflow"], &meaning["class"]), (&json!(true), &json!("quota")), "{said}");
    }
}

#[tokio::test]
async fn section_7_6_nothing_is_left_to_drop_or_nothing_may_be() {
    let service = service().await;
    pairs(&service, &[10, 10]).await;
    for (more, calls) in [
        (json!({}), 3),
        (json!({"settings": {"max_trim_attempts": 0}}), 1),
        (json!({"visible": {"ids": []}}), 1),
        (json!({"visible": null}), 1),
    ] {
        let more = with(more, &json!({"topic_id": "apart"}));
        let filter = json!({"visible": {"filter": {"state": "complete"}}});
        let more = if more.get("visible").is_some() { more } else { with(more, &filter) };
        let (address, _) = open(&service, &more).await;
        for call in 1..=calls {
            let told = attempt(&service, &address, &overflow()).await;
            assert_eq!(told["next"], if call == calls { "stop" } else { "retry" }, "{more}");
        }
        let ended = finalize(&service, &address, &overflow()).await;
        assert_eq!(ended["error"]["kind"], "context_overflow_after_trimming", "{more}");
    }
}

#[tokio::test]
async fn section_7_6_what_changes_while_the_loop_runs_counts_from_the_next_send_on() {
    let service = service().await;
    let ids = pairs(&service, &[100, 100, 100]).await;
    let visible = json!({"visible": {"filter": {"state": "complete", "star": 0}}});
    let (address, opened) = open(&service, &visible).await;
    assert_eq!(opened["counter"], "3 / 3");
    attempt(&service, &address, &overflow()).await;
    service
        .put(
            "/v1/projects/default",
            &json!({"messages": {"user_request_allowance": 250, "max_trim_attempts": 0}}),
        )
        .await
        .expect(200);
    patch(&service, &ids[2], &json!({"star": 1})).await;
    patch(&service, &ids[1], &json!({"user_text": "edited"})).await;
    assert_eq!(delete(&service, &ids[0]).await.status, 204);
    let told = attempt(&service, &address, &overflow()).await;
    assert_eq!((&told["counter"], &told["next"]), (&json!("[3-2]/3"), &json!("retry")));
    assert_eq!(told["included_ids"], json!([ids[2]]));
    let ended = finalize(&service, &address, &answer()).await;
    assert_eq!(
        (&ended["predicted_total_tokens"], &ended["predicted_history_tokens"]),
        (&json!(400), &json!(300))
    );
    let (_, next) = open(&service, &visible).await;
    assert_eq!(
        (&next["predicted_total_tokens"].as_i64().map(|tokens| tokens >= 250), &next["visible_count"]),
        (&Some(true), &json!(2))
    );
    // Or the client ends the loop, as what it shows has changed.
    let (address, _) = open(&service, &json!({})).await;
    let cancelled =
        service.post(&format!("{address}/cancel"), &json!({"reason": "filter_changed"})).await.expect(200);
    assert_eq!(cancelled["error"]["reason"], "filter_changed");
}

#[tokio::test]
async fn section_7_6_two_sends_at_once_in_one_topic_go_their_own_ways() {
    let service = service().await;
    pairs(&service, &[10]).await;
    let topic = json!({"topic_id": "t", "visible": {"filter": {"state": "complete"}}});
    let ((one, first), (other, second)) = (open(&service, &topic).await, open(&service, &topic).await);
    assert_eq!((&first["counter"], &second["counter"]), (&json!("1 / 1"), &json!("1 / 1")));
    attempt(&service, &one, &overflow()).await;
    assert_eq!(finalize(&service, &other, &answer()).await["counter"], "1 / 1");
    assert_eq!(finalize(&service, &one, &answer()).await["counter"], "[1-1]/1");
    assert_eq!(service.all("/v1/pairs?topic_id=t&state=complete").await.len(), 2);
}

#[tokio::test]
async fn section_7_7_the_telemetry_has_the_seeds_fields() {
    let service = service().await;
    pairs(&service, &[10]).await;
    let (address, opened) = open(&service, &json!({})).await;
    for field in [
        "model",
        "budget",
        "selection",
        "predicted_message_count",
        "predicted_history_tokens",
        "predicted_total_tokens",
        "attempt_history_tokens",
        "attempt_total_tokens",
        "aut",
        "trimmed_count",
        "attempts_used",
        "chars_per_token",
        "remaining_reserve",
        "stage",
        "last_error_message",
        "overflow_matched",
        "messages",
        "sent_count",
    ] {
        assert!(opened.get(field).is_some(), "{field}");
    }
    assert_eq!(opened["budget"], json!({"max_context": 400, "max_usable_raw": 300}));
    assert_eq!(opened["selection"][0]["tokens"], 10);
    attempt(&service, &address, &overflow()).await;
    let told = service.get(&address).await.expect(200);
    assert_eq!((&told["overflow_matched"], &told["stage"]), (&json!(true), &json!("overflow_initial")));
    assert_eq!(told["last_error_message"], overflow()["error"]["message"]);
}

// 8. Error codes. 9. What was deferred.

#[tokio::test]
async fn section_8_each_error_has_one_of_the_five_short_codes() {
    let service = Service::open().await;
    for (said, class) in [
        (json!({"status": 403, "message": "forbidden"}), "auth"),
        (json!({"status": 429, "message": "Rate limit reached for tokens per min (TPM)"}), "quota"),
        (json!({"message": "Request timed out."}), "net"),
        (json!({"status": 404, "message": "The model `gpt-9` does not exist"}), "model"),
        (json!({"message": "something else"}), "unknown"),
    ] {
        let meaning = service.post("/v1/errors/classify", &said).await.expect(200);
        assert_eq!(meaning["class"], class, "{said}");
        assert!(meaning["label"].as_str().expect("a label").starts_with(&format!("[error: {class}] ")));
    }
}

#[tokio::test]
async fn section_9_answers_are_streamed_and_a_system_message_is_sent_first() {
    let (service, asked) = provider::service().await;
    let streamed = send("execute", &json!({"stream": true, "system": "Be brief."}));
    let told = service.post("/v1/sends", &streamed).await.text();
    let names: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, ["attempt", "delta", "delta", "done"]);
    assert_eq!(asked.last()["messages"][0], json!({"role": "system", "content": "Be brief."}));
}
