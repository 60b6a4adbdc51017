//! Sends that the client performs: predicted, trimmed, finalized, cancelled, asked again.

use axum::http::Method;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use super::{overflow, pair, patch, recorded, service};
use crate::support::program::{InFlight, interrupt};
use crate::support::{Service, assert_whole, column, with};

/// Makes a send over all pairs; its address and body.
async fn started(service: &Service, more: &Value) -> (String, Value) {
    let send = with(recorded("new", &json!({"filter": {}})), more);
    let send = service.post("/v1/sends", &send).await.expect(201);
    (format!("/v1/sends/{}", send["id"].as_str().expect("an id")), send)
}

async fn with_pairs(sizes: &[usize]) -> (Service, Vec<String>) {
    let service = service().await;
    let mut ids = Vec::new();
    for size in sizes {
        ids.push(service.create("/v1/pairs", pair(*size)).await);
    }
    (service, ids)
}

#[tokio::test]
async fn one_of_twelve_pairs_of_thirty_four_is_trimmed_as_the_seed_tells_it() {
    let (service, ids) = with_pairs(&[25; 34]).await;
    let (address, send) = started(&service, &json!({})).await;
    assert_eq!(send["counter"], "12 / 34");
    assert_eq!(send["predicted_total_tokens"], 400);
    let attempt = service.post(&format!("{address}/attempts"), &overflow()).await.expect(201);
    assert_eq!((&attempt["next"], &attempt["counter"]), (&json!("retry"), &json!("[12-1]/34")));
    assert_eq!(attempt["included_ids"], json!(ids[23..]));
    let usage = json!({"attempt": 2, "usage": {"prompt_tokens": 290, "completion_tokens": 10}});
    let attempt = service.post(&format!("{address}/attempts"), &usage).await.expect(201);
    assert_eq!((&attempt["next"], &attempt["stage"]), (&json!("done"), &json!("attempt_success")));
    let ended = service
        .post(&format!("{address}/finalize"), &json!({"assistant_text": "done", "finish_reason": "stop"}))
        .await;
    let ended = ended.expect(200);
    assert_eq!(ended["counter"], "[12-1]/34");
    assert_eq!(
        (&ended["predicted_message_count"], &ended["predicted_history_tokens"]),
        (&json!(12), &json!(300))
    );
    assert_eq!((&ended["attempt_history_tokens"], &ended["sent_count"]), (&json!(275), &json!(11)));
    assert_eq!(ended["trimming_removed_ids"], json!([ids[22]]));
    let summary = "The oldest of 12 message pairs (about 25 tokens) was left out, because the model said that the context was too long.";
    assert_eq!(ended["trim_summary"], summary);
    assert_eq!(
        column(ended["attempts"].as_array().expect("attempts"), "stage"),
        ["overflow_initial", "attempt_success"]
    );
}

#[tokio::test]
async fn every_field_of_a_send_comes_back() {
    let (service, _) = with_pairs(&[10, 20]).await;
    let more = json!({"id": Uuid::from_u128(1), "pair_id": Uuid::from_u128(2), "topic_id": "t", "session_id": "s",
        "system": "Be brief.", "settings": {"user_request_allowance": 50, "max_trim_attempts": 2}});
    let (address, send) = started(&service, &more).await;
    assert_whole!("a_send", send);
    let again =
        service.post("/v1/sends", &with(recorded("new", &json!({"filter": {}})), &more)).await.expect(200);
    assert_eq!(again, send);
    service
        .post("/v1/sends", &with(recorded("other", &json!({"filter": {}})), &more))
        .await
        .refused(409, &[]);
    let answer = json!({"assistant_text": "answer", "usage": {"input_tokens": 30, "output_tokens": 2}, "finish_reason": "end_turn"});
    let ended = service.post(&format!("{address}/finalize"), &answer).await.expect(200);
    assert_whole!("a_send_that_is_complete", ended);
    assert_eq!(service.post(&format!("{address}/finalize"), &answer).await.expect(200), ended);
    service.post(&format!("{address}/finalize"), &json!({"assistant_text": "other"})).await.refused(409, &[]);
    service.post(&format!("{address}/cancel"), &json!({})).await.refused(409, &[]);
    let listed = service.get("/v1/sends?state=complete&model=m&topic_id=t&session_id=s").await.expect(200);
    assert_eq!(listed["data"][0]["messages"], Value::Null);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(service.get("/v1/sends?class=net").await.expect(200)["data"], json!([]));
}

#[tokio::test]
async fn trimming_ends_when_the_pairs_or_the_trims_are_used_up() {
    for (pairs, trims, calls) in [(2, 10, 3), (3, 1, 2), (3, 0, 1), (0, 10, 1)] {
        let (service, _) = with_pairs(&vec![10; pairs]).await;
        let (address, _) = started(&service, &json!({"settings": {"max_trim_attempts": trims}})).await;
        for call in 1..=calls {
            let attempt = service.post(&format!("{address}/attempts"), &overflow()).await.expect(201);
            let next = if call == calls { "stop" } else { "retry" };
            assert_eq!(attempt["next"], next, "{pairs} {trims}");
        }
        service.post(&format!("{address}/attempts"), &overflow()).await.refused(409, &[]);
        let ended = service.post(&format!("{address}/finalize"), &overflow()).await.expect(200);
        assert_eq!(ended["error"]["kind"], "context_overflow_after_trimming");
        assert_eq!((&ended["stage"], &ended["attempts_used"]), (&json!("overflow_exhausted"), &json!(calls)));
        assert_eq!(ended["snapshot"]["outgoing_user_text"], "new");
        assert_eq!(ended["pair"]["lifecycle_state"], "error");
    }
}

#[tokio::test]
async fn another_error_in_a_retry_ends_the_loop_and_its_wait_is_passed_on() {
    let (service, _) = with_pairs(&[10, 10]).await;
    let (address, _) = started(&service, &json!({})).await;
    service.post(&format!("{address}/attempts"), &overflow()).await.expect(201);
    let limited =
        json!({"error": {"status": 429, "message": "Rate limit reached. Please try again in 18.2s."}});
    let attempt = service.post(&format!("{address}/attempts"), &limited).await.expect(201);
    assert_eq!((&attempt["next"], &attempt["stage"]), (&json!("stop"), &json!("retry_non_overflow")));
    let ended = service.post(&format!("{address}/finalize"), &limited).await.expect(200);
    assert_eq!(ended["error"]["kind"], "rate_limit");
    assert_eq!(ended["error"]["retry_after_s"], 19);
    assert_eq!(
        service.get("/v1/sends?state=error&class=quota").await.expect(200)["data"].as_array().map(Vec::len),
        Some(1)
    );
    assert_whole!("figures_of_sends", service.get("/v1/analytics/messages").await.expect(200));
}

#[tokio::test]
async fn what_the_client_really_sent_may_be_less_but_never_more() {
    let (service, ids) = with_pairs(&[10, 10, 10]).await;
    let (address, _) = started(&service, &json!({})).await;
    for wrong in [json!([ids[0]]), json!([ids[2], ids[1]]), json!(["x", ids[2]])] {
        let attempt = json!({"included_ids": wrong});
        service.post(&format!("{address}/attempts"), &attempt).await.refused(422, &["/included_ids"]);
    }
    let attempt = with(overflow(), &json!({"included_ids": ids[1..]}));
    let attempt = service.post(&format!("{address}/attempts"), &attempt).await.expect(201);
    assert_eq!((&attempt["attempt_history_tokens"], &attempt["counter"]), (&json!(20), &json!("[3-2]/3")));
    assert_eq!(attempt["included_ids"], json!([ids[2]]));
}

#[tokio::test]
async fn preflight_drops_count_as_trimmed_and_use_no_attempt() {
    let (service, ids) = with_pairs(&[100, 100]).await;
    let more = json!({"user_text": "x".repeat(4 * 250), "settings": {"preflight_trim": true, "max_trim_attempts": 0}});
    let (address, send) = started(&service, &more).await;
    assert_eq!((&send["stage"], &send["counter"]), (&json!("preflight"), &json!("[2-1]/2")));
    assert_eq!((&send["attempts_used"], &send["remaining_reserve"]), (&json!(0), &json!(50)));
    assert_eq!(send["trimming_removed_ids"], json!([ids[0]]));
    let attempt = service.post(&format!("{address}/attempts"), &overflow()).await.expect(201);
    assert_eq!(attempt["stage"], "overflow_exhausted");
}

#[tokio::test]
async fn a_failed_pair_is_asked_again_with_what_is_visible_now() {
    let (service, ids) = with_pairs(&[10]).await;
    let (address, send) = started(&service, &json!({"topic_id": "t"})).await;
    let failed = send["pair_id"].clone();
    let again = json!({"mode": "record", "reask_of": failed, "visible": {"filter": {}}});
    service.post("/v1/sends", &again).await.refused(409, &[]);
    service
        .post(&format!("{address}/finalize"), &json!({"error": {"message": "connect ECONNREFUSED"}}))
        .await
        .expect(200);
    let asked = service.post("/v1/sends", &again).await.expect(201);
    assert_eq!((&asked["pair"]["user_text"], &asked["pair"]["topic_id"]), (&json!("new"), &json!("t")));
    assert_eq!(asked["counter"], "1 / 1");
    assert_eq!(asked["selection"][0]["id"], json!(ids[0]));
    service.get(&format!("/v1/pairs/{}", failed.as_str().expect("an id"))).await.refused(404, &[]);
    assert_eq!(service.get(&address).await.expect(200)["pair_id"], Value::Null);
    service.post("/v1/sends", &again).await.refused(404, &[]);
    // A message that is too large leaves the failed pair alone.
    let id = asked["id"].as_str().expect("an id");
    service.post(&format!("/v1/sends/{id}/cancel"), &json!({"reason": "filter_changed"})).await.expect(200);
    let large = json!({"mode": "record", "reask_of": asked["pair_id"], "user_text": "x".repeat(4_000)});
    service.post("/v1/sends", &large).await.refused(422, &["/user_text"]);
    service.get(&format!("/v1/pairs/{}", asked["pair_id"].as_str().expect("an id"))).await.expect(200);
}

#[tokio::test]
async fn what_is_asked_again_stays_in_its_session_and_is_erased_with_it() {
    let (service, _) = with_pairs(&[]).await;
    let (address, send) = started(&service, &json!({"user_text": "needle", "session_id": "s"})).await;
    service.post(&format!("{address}/finalize"), &overflow()).await.expect(200);
    let again = json!({"mode": "record", "reask_of": send["pair_id"]});
    let again = service.post("/v1/sends", &again).await.expect(201);
    assert_eq!((&again["session_id"], &again["pair"]["session_id"]), (&json!("s"), &json!("s")));
    service.delete("/v1/sessions/s").await.expect(200);
    assert!(!service.dump().await.contains("needle"));
}

/// Makes a pair whose send failed.
async fn failed(service: &Service) -> Value {
    let (address, send) = started(service, &json!({})).await;
    let error = json!({"error": {"message": "connect ECONNREFUSED"}});
    service.post(&format!("{address}/finalize"), &error).await.expect(200);
    send["pair_id"].clone()
}

#[tokio::test]
async fn a_failed_pair_is_asked_again_once_however_many_ask_in_one_commit() {
    let (service, _) = with_pairs(&[]).await;
    let again = json!({"mode": "record", "reask_of": failed(&service).await});
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table pairs in exclusive mode").await.expect("a lock");
    // The writers wait for the lock with a pair each, and the first to go on takes all that has come meanwhile.
    let new = pair(1);
    let (first, second) = (service.post("/v1/pairs", &new), async {
        service.blocked(1).await;
        service.post("/v1/pairs", &new).await
    });
    let asked = async {
        service.blocked(2).await;
        join_all((0..4).map(|_| service.post("/v1/sends", &again))).await
    };
    let release = async {
        service.queued(6).await;
        transaction.commit().await.expect("released");
    };
    let (_, _, asked, ()) = tokio::join!(first, second, asked, release);
    let mut statuses: Vec<_> = asked.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 404, 404, 404]);
}

#[tokio::test]
async fn a_failed_pair_is_asked_again_once_where_two_writers_are_at_it() {
    let (service, _) = with_pairs(&[]).await;
    let again = json!({"mode": "record", "reask_of": failed(&service).await});
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table sends in exclusive mode").await.expect("a lock");
    let second = async {
        service.blocked(1).await;
        service.post("/v1/sends", &again).await
    };
    let release = async {
        service.blocked(2).await;
        transaction.commit().await.expect("released");
    };
    let (first, second, ()) = tokio::join!(service.post("/v1/sends", &again), second, release);
    first.expect(201);
    second.refused(404, &[]);
}

#[tokio::test]
async fn a_send_that_comes_twice_at_once_is_made_once_and_the_other_one_is_the_same() {
    let (service, _) = with_pairs(&[]).await;
    let again = json!({"id": Uuid::from_u128(1), "mode": "record", "reask_of": failed(&service).await});
    let named = json!({"id": Uuid::from_u128(2), "mode": "record", "model": "m", "user_text": "q", "pair_id": Uuid::from_u128(3)});
    for new in [again, named] {
        let held = service.holding("lock table sends in exclusive mode").await;
        let second = async {
            service.blocked(1).await;
            service.post("/v1/sends", &new).await
        };
        let release = async {
            service.blocked(2).await;
            held.commit().await.expect("released");
        };
        let (first, second, ()) = tokio::join!(service.post("/v1/sends", &new), second, release);
        let mut statuses = [&first, &second].map(|answer| answer.status.as_u16());
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 201], "{} {}", first.text(), second.text());
        assert_eq!(first.json()["id"], second.json()["id"]);
    }
}

#[tokio::test]
async fn a_cancelled_send_stays_cancelled() {
    let (service, _) = with_pairs(&[]).await;
    let (address, _) = started(&service, &json!({})).await;
    let cancelled =
        service.post(&format!("{address}/cancel"), &json!({"reason": "filter_changed"})).await.expect(200);
    assert_eq!(
        (&cancelled["stage"], &cancelled["error"]["reason"]),
        (&json!("cancelled"), &json!("filter_changed"))
    );
    assert_eq!(service.post(&format!("{address}/cancel"), &json!({})).await.expect(200), cancelled);
    service.post(&format!("{address}/finalize"), &json!({"assistant_text": "late"})).await.refused(409, &[]);
}

#[tokio::test]
async fn reported_usage_measures_the_pair_between_two_sends_and_teaches_the_ratio() {
    let service = Service::open().await;
    super::model(&service, "m", &json!({"context_window": 10_000})).await;
    let text = "some words of a chat ".repeat(20);
    let (address, _) = started(&service, &json!({"user_text": text})).await;
    let answer = |tokens: i64| json!({"assistant_text": "an answer of some words", "usage": {"prompt_tokens": tokens, "completion_tokens": 9}});
    let first = service.post(&format!("{address}/finalize"), &answer(120)).await.expect(200);
    let (address, second) = started(&service, &json!({})).await;
    assert_eq!(second["selection"][0]["id"], first["pair_id"]);
    let ratio = service.get("/v1/models").await.expect(200)["data"][0]["ratio"].as_f64().expect("a ratio");
    service.post(&format!("{address}/finalize"), &answer(180)).await.expect(200);
    let pair =
        service.get(&format!("/v1/pairs/{}", first["pair_id"].as_str().expect("an id"))).await.expect(200);
    let difference = first["aut"].as_i64().expect("a size") - second["aut"].as_i64().expect("a size");
    assert_eq!(pair["tokens"], 60 + difference);
    assert!((1.08..2.0).contains(&ratio), "{ratio}");
    // Another text has no measured size.
    let path = format!("/v1/pairs/{}", first["pair_id"].as_str().expect("an id"));
    assert_eq!(patch(&service, &path, &json!({"user_text": "x"})).await.expect(200)["tokens"], Value::Null);
}

#[tokio::test]
async fn a_batch_may_hold_a_whole_chat_in_which_later_lines_look_at_earlier_ones() {
    let service = service().await;
    let id = Uuid::from_u128;
    let chat = [
        json!({"event": "pair", "id": id(1), "user_text": "u1", "assistant_text": "a1"}),
        json!({"event": "pair", "id": id(2), "user_text": "u2", "assistant_text": "a2"}),
        json!({"event": "send", "id": id(3), "pair_id": id(4), "mode": "record", "model": "m", "user_text": "u3", "visible": {"ids": [id(1), id(2)]}}),
        with(overflow(), &json!({"event": "send_attempt", "send_id": id(3), "attempt": 1})),
        json!({"event": "send_outcome", "send_id": id(3), "assistant_text": "a3"}),
        json!({"event": "send", "id": id(5), "mode": "record", "user_text": "u4", "visible": {"ids": [id(4)]}}),
    ];
    service.accept(&chat).await;
    let send = service.get(&format!("/v1/sends/{}", id(5))).await.expect(200);
    assert_eq!(column(send["messages"].as_array().expect("messages"), "content"), ["u3", "a3", "u4"]);
    let summary = service.events(&chat).await.expect(200);
    assert_eq!(summary["duplicates"], chat.len());
    let execute = json!({"event": "send", "mode": "execute", "model": "m", "user_text": "x"});
    let summary = service.events(&[execute]).await.expect(200);
    assert_eq!(summary["rejected"][0]["errors"][0]["pointer"], "/mode");
}

#[tokio::test]
async fn an_answer_after_attempts_that_failed_is_a_call_of_its_own() {
    let (service, _) = with_pairs(&[10, 20]).await;
    let (path, _) = started(&service, &json!({})).await;
    service.post(&format!("{path}/attempts"), &overflow()).await.expect(201);
    let answer = json!({"assistant_text": "a", "usage": {"prompt_tokens": 31, "completion_tokens": 4}});
    let ended = service.post(&format!("{path}/finalize"), &answer).await.expect(200);
    let stages = column(ended["attempts"].as_array().expect("attempts"), "stage");
    assert_eq!(stages, ["overflow_initial", "attempt_success"], "{ended}");
    assert_eq!((&ended["attempts_used"], &ended["trimmed_count"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn an_attempt_without_a_number_is_known_again_by_the_id_of_its_line_or_its_key() {
    let service = service().await;
    let [send, other, line] = [1, 2, 3].map(Uuid::from_u128);
    let start = |id| json!({"event": "send", "id": id, "mode": "record", "model": "m", "user_text": "u"});
    let attempt = with(overflow(), &json!({"event": "send_attempt", "send_id": send, "line_id": line}));
    service.accept(&[start(send), start(other), attempt.clone()]).await;
    let twice = service.events(&[attempt.clone(), attempt]).await.expect(200);
    assert_eq!([&twice["accepted"], &twice["duplicates"]], [0, 2], "{twice}");
    let different = json!({"event": "send_attempt", "send_id": send, "line_id": line, "latency_ms": 1});
    let refused = service.events(&[different]).await.expect(200);
    assert_eq!(refused["rejected"][0]["status"], 409, "{refused}");
    assert_eq!(service.get(&format!("/v1/sends/{send}")).await.expect(200)["attempts_used"], 1);

    let path = format!("/v1/sends/{other}/attempts");
    let key = [("idempotency-key", "k")];
    let made = service.call(Method::POST, &path, &key, Some(&overflow())).await.expect(201);
    assert_eq!(service.call(Method::POST, &path, &key, Some(&overflow())).await.expect(200), made);
}

#[tokio::test]
async fn a_send_that_nobody_ends_is_interrupted_once_its_lease_is_over() {
    let service = service().await;
    let (address, send) = started(&service, &json!({})).await;
    let after = async |minutes: i64| {
        let later = chrono::TimeDelta::minutes(minutes);
        interrupt(service.pool(), later).await.expect("interrupts");
        service.get(&address).await.expect(200)
    };
    assert_eq!(after(59).await["state"], "sending");
    let interrupted = after(61).await;
    assert_eq!(
        (&interrupted["stage"], &interrupted["error"]["kind"]),
        (&json!("interrupted"), &json!("interrupted"))
    );
    let pair =
        service.get(&format!("/v1/pairs/{}", send["pair_id"].as_str().expect("an id"))).await.expect(200);
    assert_eq!(pair["lifecycle_state"], "error");
}

#[tokio::test]
async fn what_somebody_changes_in_one_project_delays_the_end_of_no_abandoned_send_of_another() {
    let service = service().await;
    service.project("busy").await;
    let begin = async |project: &str| {
        let send = json!({"mode": "record", "model": "m", "user_text": "q"});
        let headers = [("gleaner-project", project)];
        let window = json!({"context_window": 1_000});
        let known = service.call(Method::PUT, "/v1/models/m", &headers, Some(&window)).await;
        assert!(known.status.is_success());
        let made = service.call(Method::POST, "/v1/sends", &headers, Some(&send)).await.expect(201);
        format!("/v1/sends/{}", made["id"].as_str().expect("an id"))
    };
    let [of_busy, other] = [begin("busy").await, begin("default").await];
    let state = async |project: &str, address: &str| {
        let headers = [("gleaner-project", project)];
        service.call(Method::GET, address, &headers, None).await.expect(200)["state"].clone()
    };
    let interrupt_all = async || {
        let interrupting = interrupt(service.pool(), chrono::TimeDelta::minutes(61));
        let interrupted = tokio::time::timeout(std::time::Duration::from_mins(1), interrupting).await;
        interrupted.expect("it waits for nobody").expect("interrupts");
    };
    for held in [
        "select from sends where project = 'busy' for update",
        "select from pairs where project = 'busy' for update",
    ] {
        let change = service.holding(held).await;
        interrupt_all().await;
        assert_eq!(
            (state("busy", &of_busy).await, state("default", &other).await),
            (json!("sending"), json!("error"))
        );
        change.commit().await.expect("ends");
    }
    interrupt_all().await;
    assert_eq!(state("busy", &of_busy).await, "error");
}

#[tokio::test]
async fn the_lease_of_a_send_is_renewed_whatever_holds_that_of_another_project() {
    let service = service().await;
    service.project("busy").await;
    let in_flight = std::sync::Arc::new(InFlight::default());
    let mut flights = Vec::new();
    for project in ["busy", "default"] {
        let send = json!({"mode": "record", "model": "m", "user_text": "q"});
        let headers = [("gleaner-project", project)];
        let window = json!({"context_window": 1_000});
        service.call(Method::PUT, "/v1/models/m", &headers, Some(&window)).await;
        let made = service.call(Method::POST, "/v1/sends", &headers, Some(&send)).await.expect(201);
        let id = made["id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
        flights.push(in_flight.begin(&project.into(), id));
    }
    sqlx::query("update sends set lease_until = now()").execute(service.pool()).await.expect("a short lease");
    let change = service.holding("select from sends where project = 'busy' for update").await;
    let renewing = tokio::time::timeout(std::time::Duration::from_mins(1), in_flight.renew(service.pool()));
    renewing.await.expect("it waits for nobody").expect("renewed");
    let sql = "select project from sends where lease_until > now() + interval '30 seconds'";
    let renewed: Vec<String> = sqlx::query_scalar(sql).fetch_all(service.pool()).await.expect("projects");
    assert_eq!(renewed, ["default"]);
    change.commit().await.expect("ends");
    in_flight.renew(service.pool()).await.expect("renewed");
    let renewed: Vec<String> = sqlx::query_scalar(sql).fetch_all(service.pool()).await.expect("projects");
    assert_eq!(renewed.len(), 2);
}

#[tokio::test]
async fn where_no_text_is_kept_sizes_and_errors_are() {
    let service = service().await;
    service.put("/v1/projects/default", &json!({"capture": {"messages": "metadata"}})).await.expect(200);
    let id = service
        .create("/v1/pairs", with(pair(10), &json!({"user_text": "needle", "assistant_text": "needle"})))
        .await;
    let given = json!([{"id": "x", "user_text": "needle", "assistant_text": "needle"}]);
    let send =
        json!({"mode": "record", "model": "m", "user_text": "needle", "system": "needle", "pairs": given});
    let send = service.post("/v1/sends", &send).await.expect(201);
    assert_eq!((&send["predicted_history_tokens"], &send["aut"]), (&json!(3), &json!(2)));
    assert_eq!(send["messages"], json!([]));
    let address = format!("/v1/sends/{}", send["id"].as_str().expect("an id"));
    let error = json!({"error": {"status": 401, "message": "needle"}});
    let ended = service.post(&format!("{address}/finalize"), &error).await.expect(200);
    assert_eq!(ended["error"]["label"], "[error: auth]");
    assert!(!service.dump().await.contains("needle"));
    let refused = recorded("new", &json!({"ids": [id]}));
    service.post("/v1/sends", &refused).await.refused(422, &["/visible/ids/0"]);
    let found = service.post("/v1/sends", &recorded("new", &json!({"filter": {}}))).await.expect(201);
    assert_eq!(found["counter"], "0 / 0");
    service.put("/v1/projects/default", &json!({"capture": {"messages": "off"}})).await.expect(200);
    assert_eq!(service.post("/v1/sends", &recorded("new", &json!({"filter": {}}))).await.status, 204);
}

#[tokio::test]
async fn sends_with_stored_pairs_of_one_batch_are_written_in_several_transactions() {
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 1_000})).await;
    service.create("/v1/pairs", json!({"user_text": "u", "assistant_text": "a"})).await;
    let send =
        json!({"event": "send", "mode": "record", "model": "m", "user_text": "u", "visible": {"filter": {}}});
    let sends: Vec<_> = (1..=17).map(|id| with(send.clone(), &json!({"id": Uuid::from_u128(id)}))).collect();
    service.accept(&sends).await;
    let sql = "select count(distinct xmin::text) from sends";
    let transactions: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(transactions, 3);
}
