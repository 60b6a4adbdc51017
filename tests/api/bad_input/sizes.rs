//! Bodies, lines and batches at their limits and beyond.

use axum::http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{LOGS, line, log, open_log};
use crate::support::{Service, column, encoded, with};

#[tokio::test]
async fn a_body_beyond_the_limit_is_too_large() {
    let service = Service::open().await;
    let text = "x".repeat(3 << 20);
    let log_path = open_log(&service).await;
    for (method, path, body) in [
        (Method::POST, LOGS.to_owned(), log(&text)),
        (Method::POST, format!("{log_path}/attempts"), json!({"prompt_text": text})),
        (Method::POST, format!("{log_path}/finalize"), json!({"success": true, "final_valid_dsl": text})),
        (Method::PUT, format!("{log_path}/review"), json!({"rating": "good", "note": text})),
        (
            Method::PUT,
            "/v1/prompt-templates/t".to_owned(),
            json!({"template_text": text, "domain_name": "d"}),
        ),
    ] {
        let answer = service.call(method, &path, &[], Some(&body)).await;
        let problem = answer.refused(413, &[]);
        assert_eq!(problem["detail"], "the body has more than 2097152 bytes");
    }
    let most = (2 << 20) - log("").to_string().len();
    service.create(LOGS, log(&"x".repeat(most))).await;
    service.post(LOGS, &log(&"x".repeat(most + 1))).await.refused(413, &[]);
}

#[tokio::test]
async fn a_line_of_a_batch_may_have_three_mebibytes() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let text = "é".repeat(3 << 19);
    let attempt =
        json!({"event": "attempt", "generation_id": id, "prompt_text": text, "metadata": {"text": text}});
    service.accept(&[with(line(&text), &json!({"id": id})), attempt, line("small")]).await;
    let log = service.get(&format!("{LOGS}/{id}")).await.expect(200);
    assert!(log["user_intent"] == text.as_str() && log["iterations"][0]["prompt_text"] == text.as_str());
    assert!(log["iterations"][0]["metadata"]["text"] == text.as_str());
}

#[tokio::test]
async fn a_line_that_changes_a_record_is_as_short_as_a_body_that_does() {
    let service = Service::open().await;
    let ids @ [log, slate, send] = [(); 3].map(|()| Uuid::new_v4());
    let lines = [
        with(line("an intent"), &json!({"id": log})),
        json!({"event": "suggestion", "id": slate, "context": {}, "suggestions": ["make"], "suggestion_node_version": "v1"}),
        json!({"event": "send", "id": send, "mode": "record", "model": "m", "user_text": "u"}),
    ];
    service.put("/v1/models/m", &json!({"context_window": 10_000_000})).await.expect(201);
    service.accept(&lines).await;
    let changes = |text: &str| {
        [
            json!({"event": "generation_amendment", "generation_id": ids[0], "metadata": {"m": text}}),
            json!({"event": "generation_outcome", "generation_id": ids[0], "success": false, "error": text}),
            json!({"event": "review", "generation_id": ids[0], "rating": "poor", "note": text}),
            json!({"event": "suggestion_outcome", "suggestion_id": ids[1], "actual_input": text}),
            json!({"event": "send_outcome", "send_id": ids[2], "assistant_text": text}),
        ]
    };
    let long = changes(&"x".repeat(2 << 20)).map(|line| line.to_string()).join("\n");
    let summary = service.post_text("/v1/events", "application/x-ndjson", long).await.expect(200);
    let statuses: Vec<_> = summary["rejected"]
        .as_array()
        .expect("rejected")
        .iter()
        .map(|line| line["status"].as_u64())
        .collect();
    assert_eq!(statuses, [Some(413); 5]);
    assert_eq!(summary["rejected"][4]["detail"], "a line that changes a send has at most 2097152 bytes");
    service.accept(&changes(&"x".repeat((2 << 20) - 200))).await;
}

#[tokio::test]
async fn a_batch_whose_fields_are_all_wrong_is_told_of_some() {
    let service = Service::open().await;
    let line = json!({"event": "memory", "content": "c", "tags": vec![""; 1_000]});
    let lines = vec![line.to_string(); 200].join("\n");
    let summary = service.post_text("/v1/events", "application/x-ndjson", lines).await.expect(200);
    let rejected = summary["rejected"].as_array().expect("rejected");
    let named: Vec<_> = rejected.iter().map(|line| line["errors"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!((named.len(), named[0], named[99], named[100], named[199]), (200, 100, 100, 1, 1));
}

#[tokio::test]
async fn lines_with_very_many_values_are_written_in_several_statements() {
    let service = Service::open().await;
    let many = with(line("many"), &json!({"metadata": {"values": vec![0; 120_000]}}));
    service.accept(&[many.clone(), line("few"), many.clone(), many, line("few")]).await;
    let sql = "select count(distinct xmin::text) from generations";
    let statements: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(statements, 5);
}

#[tokio::test]
async fn a_batch_of_more_lines_than_allowed_is_too_large() {
    let service = Service::open().await;
    let lines = |count: usize| "{}\n\n".repeat(count);
    let too_many = service.post_text("/v1/events", "application/x-ndjson", lines(20_001)).await;
    let problem = too_many.refused(413, &[]);
    assert_eq!(problem["detail"], "a batch has at most 20000 events, and this one has more");
    let array = format!("[{}1]", "1,".repeat(1 << 20));
    service.post_text("/v1/events", "application/json", array).await.refused(413, &[]);
    let most = service.post_text("/v1/events", "application/x-ndjson", lines(20_000)).await.expect(200);
    let rejected = most["rejected"].as_array().expect("rejected");
    assert_eq!((rejected.len(), &most["accepted"]), (20_000, &json!(0)));
    assert_eq!(
        rejected[19_999],
        json!({"line": 39_999, "status": 422, "detail": rejected[0]["detail"],
            "errors": [{"pointer": "/event", "detail": "must name the kind of event"}]})
    );
    let array = format!("[{}{{}}]", "{},".repeat(20_000));
    service.post_text("/v1/events", "application/json", array).await.refused(413, &[]);
}

#[tokio::test]
async fn arrays_have_at_most_20_000_elements_in_a_body_and_the_logs_of_a_batch_200_000_attempts() {
    let service = Service::open().await;
    let attempts = |count: usize| with(log("a"), &json!({"iterations": vec![json!({}); count]}));
    assert_eq!(service.post(LOGS, &attempts(20_000)).await.expect(201)["total_attempts"], 20_000);
    let refused = service.post(LOGS, &attempts(20_001)).await;
    assert_eq!(
        refused.refused(413, &[])["detail"],
        "the arrays of the body have more than 20000 elements together"
    );
    let memory = |count: usize| json!({"event": "memory", "content": "c", "source_type": "memory", "tags": vec![""; count]});
    let many = service.events(&[memory(20_001), line("small")]).await.expect(200);
    assert_eq!((&many["rejected"][0]["status"], &many["accepted"]), (&json!(413), &json!(1)));
    let own = |count: usize| with(line("a"), &json!({"metadata": {"a": vec![0; count]}}));
    let many = service.events(&[own(250_000), own(249_000)]).await.expect(200);
    assert_eq!((&many["rejected"][0]["status"], &many["accepted"]), (&json!(413), &json!(1)));
    let logs = |count: usize| with(line("a"), &json!({"iterations": vec![json!({}); count]}));
    let mut lines = vec![logs(20_000); 11];
    lines.push(line("after"));
    let many = service.events(&lines).await.expect(200);
    let detail = "a batch has at most 200000 attempts and pieces, and this one has more";
    let rejected = [11, 12].map(|line| json!({"line": line, "status": 413, "detail": detail}));
    assert_eq!((&many["accepted"], &many["rejected"]), (&json!(10), &json!(rejected)));
    let file = |path: &str, pieces: usize| {
        let pieces = vec![json!({"content": "c"}); pieces];
        json!({"event": "memory_code", "root": "/r", "path": path, "chunks": pieces})
    };
    let many = service.events(&vec![file("p", 5_000); 41]).await.expect(200);
    assert_eq!((&many["accepted"], &many["rejected"][0]["detail"]), (&json!(1), &json!(detail)));
    let long = service.events(&[file(&"p".repeat(2_000), 5_000), file("p", 10)]).await.expect(200);
    assert_eq!(
        (&long["rejected"][0]["errors"][0]["pointer"], &long["accepted"]),
        (&json!("/chunks"), &json!(1))
    );
    let several = service.events(&[logs(10_000), logs(10_001)]).await.expect(200);
    assert_eq!(several["accepted"], 2);
}

#[tokio::test]
async fn a_page_of_large_records_ends_early_and_the_next_goes_on() {
    let service = Service::open().await;
    let text = "x".repeat(2_000_000);
    for number in 0..12 {
        service.create(LOGS, with(log(&text), &json!({"session_id": number.to_string()}))).await;
    }
    let page = service.get(&format!("{LOGS}?limit=500")).await;
    let first = page.expect(200);
    assert_eq!(first["data"].as_array().map(Vec::len), Some(8));
    let all = service.all(&format!("{LOGS}?limit=500")).await;
    assert_eq!(column(&all, "session_id"), (0..12).rev().map(|n| json!(n.to_string())).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_record_that_is_larger_than_an_answer_is_not_shown_but_written() {
    let service = Service::open().await;
    let log_path = open_log(&service).await;
    for _ in 0..17 {
        let attempt = json!({"prompt_text": "x".repeat(2_000_000)});
        service.post(&format!("{log_path}/attempts"), &attempt).await.expect(201);
    }
    let problem = service.get(&log_path).await.refused(413, &[]);
    assert_eq!(
        problem["detail"],
        "the record has more than 33554432 bytes as JSON, which is more than an answer shows"
    );
    let ended = service.post(&format!("{log_path}/finalize"), &json!({"success": false})).await;
    assert_eq!((ended.status.as_u16(), ended.header("preference-applied")), (200, Some("return=minimal")));
    let listed = service.get(LOGS).await.expect(200);
    assert_eq!(
        (&listed["data"][0]["success"], &listed["data"][0]["total_attempts"]),
        (&json!(false), &json!(17))
    );
    let open = service.get(&format!("{LOGS}?open=true")).await.expect(200);
    assert_eq!(open["data"], json!([]));
}

#[tokio::test]
async fn large_similar_examples_are_fewer_and_the_most_similar_come_first() {
    let service = Service::open().await;
    for number in 0..12 {
        let program = format!("(fund {number}) {}", "x".repeat(2_000_000));
        let intent = format!("Create a fund {}", "with a director ".repeat(number));
        let solved =
            json!({"user_intent": intent, "success": true, "final_valid_dsl": program, "session_id": "s"});
        service.create(LOGS, with(log(""), &solved)).await;
    }
    let path = format!("{LOGS}/similar?intent=Create+a+fund&limit=100&min_similarity=0");
    let found = service.get(&path).await.expect(200);
    let found = found["data"].as_array().expect("data");
    assert_eq!(found.len(), 8);
    assert_eq!(found[0]["user_intent"], "Create a fund ");
    let similarities: Vec<_> = found.iter().filter_map(|example| example["similarity"].as_f64()).collect();
    assert!(similarities.len() == 8 && similarities.is_sorted_by(|a, b| a >= b), "{similarities:?}");
}

#[tokio::test]
async fn a_conversation_of_large_queries_shows_the_newest() {
    let service = Service::open().await;
    let lines: Vec<_> = (0..80_u32)
        .map(|n| {
            json!({"event": "conversation_query", "session_id": "s", "query": format!("{n} {}", "x".repeat(262_100)),
                "shown": [Uuid::from_u128(n.into()), Uuid::from_u128(7)], "at": 1_700_000_000 + n})
        })
        .collect();
    service.accept(&lines).await;
    let shown = service.get("/v1/conversations/s").await.expect(200);
    let queries = shown["queries"].as_array().expect("queries");
    let number = |query: &serde_json::Value| query["query"].as_str().map(|text| text[..2].to_owned());
    let ends = [&queries[0], &queries[queries.len() - 1]].map(number);
    assert_eq!((queries.len(), ends), (63, [Some("17".into()), Some("79".into())]));
    assert_eq!(shown["shown"].as_array().map(Vec::len), Some(63 + 1), "each once");
}

#[tokio::test]
async fn a_send_carries_no_more_than_any_model_takes() {
    let service = Service::open().await;
    let model = json!({"context_window": 1_000_000_000, "chars_per_token": 4});
    service.put("/v1/models/m", &model).await.expect(201);
    let pair = json!({"user_text": "x".repeat(2_000_000)});
    for number in 0..9 {
        let predicted = json!({"user_text": "u", "model": "m", "visible": {"filter": {}}});
        let answer = service.post("/v1/context/predict", &predicted).await;
        if number == 8 {
            assert_eq!(answer.status, 200);
        }
        service.create("/v1/pairs", pair.clone()).await;
    }
    let visible = json!({"filter": {}});
    for (path, body) in [
        ("/v1/context/predict", json!({"user_text": "u", "model": "m", "visible": visible})),
        ("/v1/sends", json!({"mode": "record", "user_text": "u", "model": "m", "visible": visible})),
    ] {
        service.post(path, &body).await.refused(422, &["/visible"]);
    }
}

#[tokio::test]
async fn a_refusal_repeats_little_of_what_was_sent() {
    let service = Service::open().await;
    let long = "é".repeat(500_000);
    let log_path = open_log(&service).await;
    let many: serde_json::Map<_, _> = (0..5_000).map(|n| (format!("f{n}"), json!(1))).collect();
    for (path, body) in [
        (LOGS.to_owned(), json!({ long.as_str(): 1 })),
        (LOGS.to_owned(), json!({"user_intent": "x", "domain_name": long})),
        (LOGS.to_owned(), json!({"user_intent": "x", "domain_name": "d", "created_at": long})),
        (LOGS.to_owned(), json!(many)),
        (format!("{log_path}/review"), json!({"rating": long})),
        ("/v1/suggestions".to_owned(), json!({"context": {}, "suggestions": vec![1; 100_000]})),
    ] {
        let method = if path.ends_with("review") { Method::PUT } else { Method::POST };
        let answer = service.call(method, &path, &[], Some(&body)).await;
        assert_eq!(answer.status, 422, "{path}");
        assert!(answer.body.len() < 5_000, "{path}: {} bytes", answer.body.len());
    }
    let answer = service.get(&format!("/{}", "x".repeat(50_000))).await;
    assert!(answer.status == 404 && answer.body.len() < 1_000, "{} bytes", answer.body.len());
    let answer = service.get(&format!("{LOGS}?{}=1", "x".repeat(50_000))).await;
    assert!(answer.status == 422 && answer.body.len() < 1_500, "{} bytes", answer.body.len());
    // A quotation mark has no partner at the end of a quotation that was cut, or that the client has made up.
    let body = service.post_text(LOGS, &format!("a\"{}", "b".repeat(50_000)), "{}").await;
    assert!(body.status == 415 && body.body.len() < 1_500, "{} {} bytes", body.status, body.body.len());
    let since = format!("{}\u{e9} at line 1", "x".repeat(50_000));
    let answer = service.get(&format!("{LOGS}?since={}", encoded(&since))).await;
    assert!(answer.status == 422 && answer.body.len() < 1_500, "{} bytes", answer.body.len());
    let short =
        service.get(&format!("{LOGS}?since={}", encoded("x at line 1"))).await.refused(422, &["/since"]);
    assert!(short["detail"].as_str().expect("text").contains("x at line 1"), "{short}");
    let event = json!({ "event": long });
    let answer = service.events(&[event.clone(), event]).await;
    assert!(answer.status == 200 && answer.body.len() < 2_000, "{} bytes", answer.body.len());
}

#[tokio::test]
async fn a_line_may_be_long_but_none_of_its_parts() {
    let service = Service::open().await;
    let text = "x".repeat(9 << 20);
    let attempts: Vec<_> = (1..=9)
        .map(|attempt| json!({"attempt": attempt, "extracted_dsl": format!("({attempt})"), "prompt_text": &text[..1 << 20]}))
        .collect();
    let long = with(line("long"), &json!({"iterations": attempts, "success": false}));
    let mut attempts = attempts;
    attempts[1]["raw_response"] = json!(text);
    let lines = [
        long.to_string(),
        with(line("attempt"), &json!({"iterations": attempts, "success": false})).to_string(),
        line(&text).to_string(),
        with(line("short"), &json!({"metadata": {"a": &text[..5 << 20], "b": &text[..5 << 20]}})).to_string(),
    ];
    let summary = service.post_text("/v1/events", "application/x-ndjson", lines.join("\n")).await.expect(200);
    assert_eq!(summary["accepted"], 1);
    let rejected = summary["rejected"].as_array().expect("rejected");
    let named: Vec<_> =
        rejected.iter().map(|line| (&line["status"], &line["errors"][0]["pointer"])).collect();
    let expected = ["/iterations/1", "/user_intent", "/metadata"].map(|pointer| (422, pointer));
    assert_eq!(json!(named), json!(expected));
}
