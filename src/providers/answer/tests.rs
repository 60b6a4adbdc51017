use super::*;
use crate::messages::rules::errors::Kind as ErrorKind;

fn streamed(api: Api, events: &[Value]) -> (Answer, String) {
    let mut answer = Answer::default();
    let deltas = events.iter().filter_map(|event| answer.event(api, &event.to_string())).collect();
    // A whole answer has no chunks.
    answer.choices.clear();
    (answer, deltas)
}

#[test]
fn an_answer_is_the_same_whole_and_streamed() {
    let whole = json!({"choices": [{"message": {"content": "Hello", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3}});
    let (answer, deltas) = streamed(
        Api::ChatCompletions,
        &[
            json!({"choices": [{"delta": {"content": "Hel"}}]}),
            json!({"choices": [{"delta": {"content": "lo", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\""}}]}}]}),
            json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}, "finish_reason": "stop"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 3}}),
        ],
    );
    assert_eq!(deltas, "Hello");
    assert_eq!(Some(answer), Answer::read(Api::ChatCompletions, whole.to_string().as_bytes()));

    let whole = json!({"content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 5, "output_tokens": 7}});
    let (answer, deltas) = streamed(
        Api::Messages,
        &[
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":1}"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
            json!({"type": "message_stop"}),
        ],
    );
    assert_eq!(deltas, "Hi");
    assert_eq!(Some(answer), Answer::read(Api::Messages, whole.to_string().as_bytes()));

    let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "Hey"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]);
    let whole = json!({"status": "completed", "output": output, "usage": {"input_tokens": 2}});
    let (answer, deltas) = streamed(
        Api::Responses,
        &[
            json!({"type": "response.output_text.delta", "delta": "Hey"}),
            json!({"type": "response.completed", "response": whole}),
        ],
    );
    assert_eq!(deltas, "Hey");
    assert_eq!(Some(answer), Answer::read(Api::Responses, whole.to_string().as_bytes()));
}

#[test]
fn characters_that_cannot_be_stored_are_replaced() {
    let call = r#"{"index": 0, "id": "c\u0000", "function": {"name": "f", "arguments": "\ud800"}}"#;
    let message = format!(r#"{{"content": "a\u0000", "tool_calls": [{call}]}}"#);
    let chunk = format!(r#"{{"choices": [{{"delta": {message}, "finish_reason": "stop"}}]}}"#);
    let mut streamed = Answer::default();
    streamed.event(Api::ChatCompletions, &chunk);
    let whole = Answer::read(Api::ChatCompletions, chunk.replace("delta", "message").as_bytes());
    for answer in [streamed, whole.expect("an answer")] {
        assert_eq!(answer.text, "a\u{fffd}");
        let call = &answer.tool_calls().expect("calls")[0];
        assert_eq!((&call["id"], &call["function"]["arguments"]), (&json!("c\u{fffd}"), &json!("\u{fffd}")));
    }
}

#[test]
fn the_end_of_a_response_adds_no_text_to_what_was_streamed() {
    let parts = json!([{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "\u{e9}"}]);
    let response = json!({"status": "completed", "output": [{"type": "message", "content": parts}]});
    let completed = json!({"type": "response.completed", "response": response});
    let deltas = ["a", "\u{e9}"].map(|part| json!({"type": "response.output_text.delta", "delta": part}));
    let (answer, told) = streamed(Api::Responses, &[&deltas[..], std::slice::from_ref(&completed)].concat());
    assert_eq!((answer.text.as_str(), told.as_str()), ("a\n\u{e9}", "a\u{e9}"));
    let (answer, told) = streamed(Api::Responses, &[completed]);
    assert_eq!(answer.text, told, "nothing of it was streamed");
}

#[test]
fn of_several_answers_the_first_is_recorded_and_the_last_is_the_end() {
    let chunk = |index: u64, text: &str, reason: Option<&str>| json!({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": reason}]});
    // The second one begins after the first has ended, or before.
    let mut answer = Answer::of(2);
    for (event, has_ended) in [(chunk(0, "Yes", Some("stop")), false), (chunk(1, "No", Some("stop")), true)] {
        answer.event(Api::ChatCompletions, &event.to_string());
        assert_eq!(answer.has_ended(), has_ended, "{event}");
    }
    let mut answer = Answer::of(2);
    for (event, has_ended) in [
        (chunk(0, "Yes,", None), false),
        (chunk(1, "No,", None), false),
        (chunk(0, " do it.", Some("stop")), false),
        (chunk(1, " never.", None), false),
        (chunk(1, "", Some("stop")), true),
        (json!({"choices": [], "usage": {"total_tokens": 9}}), true),
    ] {
        answer.event(Api::ChatCompletions, &event.to_string());
        assert_eq!(answer.has_ended(), has_ended, "{event}");
    }
    assert_eq!(answer.text, "Yes, do it.");
}

#[test]
fn an_empty_reason_is_no_end_of_an_answer() {
    let chunk = |text: &str, reason: &str| json!({"choices": [{"delta": {"content": text}, "finish_reason": reason}]});
    let mut answer = Answer::default();
    for (event, has_ended) in
        [(chunk("Yes", ""), false), (chunk(", do it.", ""), false), (chunk("", "stop"), true)]
    {
        answer.event(Api::ChatCompletions, &event.to_string());
        assert_eq!(answer.has_ended(), has_ended, "{event}");
    }
    assert_eq!((answer.text.as_str(), answer.finish_reason.as_deref()), ("Yes, do it.", Some("stop")));
}

#[test]
fn a_secret_at_the_end_of_what_is_recorded_is_left_out_whole() {
    let mut answer = Answer::default();
    for text in ["x ".repeat(MOST_TEXT / 2 - 10).as_str(), "see ghp_0123456", "789012345678", " and so on"] {
        answer.event(Api::ChatCompletions, &json!({"choices": [{"delta": {"content": text}}]}).to_string());
    }
    assert!(answer.text.ends_with("x see "), "{:?}", &answer.text[answer.text.len() - 30..]);
}

#[test]
fn an_answer_without_an_end_takes_bounded_memory() {
    let long = "x ".repeat(1 << 19);
    let mut answer = Answer::default();
    for index in 0..40 {
        let call = json!({"index": index % 20, "id": long, "function": {"name": long, "arguments": long}});
        let event = json!({"choices": [{"delta": {"content": long, "tool_calls": [call]}}], "usage": {
            index.to_string(): {"tokens": 1}, "long": long, "nested": {"a": [long]}, &long: 1}});
        answer.event(Api::ChatCompletions, &event.to_string());
    }
    for index in 0..100_000 {
        let event = json!({"choices": [{"delta": {"tool_calls": [{"index": index}]}}], "usage": {
            index.to_string(): 1}});
        answer.event(Api::ChatCompletions, &event.to_string());
    }
    let calls = answer.tool_calls().expect("calls").to_string().len();
    assert!(answer.text.len() + calls < 9 << 20, "{} and {calls} bytes", answer.text.len());
    assert_eq!(answer.usage.as_ref().map(Map::len), Some(MOST_USAGE));
    assert!(json!(answer.usage).to_string().len() < MOST_USAGE * LONGEST_USAGE);
    answer.event(Api::ChatCompletions, &json!({"choices": [{"finish_reason": long}]}).to_string());
    assert_eq!(answer.finish_reason.as_deref().map(str::len), Some(LONGEST_REASON));
    answer.event(Api::ChatCompletions, &json!({"error": {"message": long}}).to_string());
    assert_eq!(answer.error.as_deref().map(str::len), Some(ERROR_BODY));
    let values = format!("{{\"choices\": [{{}}], \"x\": [{}0]}}", "0,".repeat(MOST_VALUES));
    assert_eq!(Answer::read(Api::ChatCompletions, values.as_bytes()), None);
    assert!(Answer::default().event(Api::ChatCompletions, &values).is_none());
}

#[test]
fn an_error_in_a_stream_is_none_of_its_text() {
    let (answer, deltas) =
        streamed(Api::Messages, &[json!({"type": "error", "error": {"type": "overloaded_error"}})]);
    assert!(deltas.is_empty() && !answer.is_whole && answer.error.is_some());
    assert_eq!(Answer::read(Api::Messages, b"{\"error\": {}}"), None);
}

#[test]
fn a_response_that_failed_or_has_not_ended_is_no_whole_answer() {
    for (status, kind) in [
        ("completed", None),
        ("incomplete", None),
        ("failed", Some(ErrorKind::Overloaded)),
        ("cancelled", Some(ErrorKind::CutStream)),
        ("queued", Some(ErrorKind::CutStream)),
        ("in_progress", Some(ErrorKind::CutStream)),
    ] {
        let error = (status == "failed").then(|| json!({"code": "server_error", "message": "Overloaded"}));
        let body = json!({"status": status, "error": error, "output": []}).to_string();
        let answer = Answer::read(Api::Responses, body.as_bytes()).expect("an answer");
        assert_eq!(answer.failure().map(|failure| failure.1.kind), kind, "{status}");
    }
}

#[test]
fn calls_that_a_provider_numbers_alike_are_told_apart_by_their_ids_or_else_by_their_names() {
    let calls = |calls: Value| json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let told = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let expected = |ids: [&str; 2]| json!([told(ids[0], "read", r#"{"a":1}"#), told(ids[1], "read", "{}")]);
    let ids = ["c1", "c2"];
    let whole = ids.map(|id| {
        json!({"index": 0, "id": id, "function": {"name": "read", "arguments": if id == "c1" { r#"{"a":1}"# } else { "{}" }}})
    });
    let in_pieces = [
        json!({"index": 0, "id": "c1", "function": {"name": "read", "arguments": r#"{"a""#}}),
        json!({"index": 0, "function": {"arguments": ":"}}),
        json!({"index": 0, "id": "c1", "function": {"name": "read", "arguments": "1}"}}),
        json!({"index": 0, "id": "c2", "function": {"name": "read", "arguments": ""}}),
        json!({"index": 0, "id": "", "function": {"name": "", "arguments": "{"}}),
        json!({"index": 0, "id": null, "function": {"arguments": "}"}}),
    ];
    let without_ids = [
        json!({"function": {"name": "read", "arguments": r#"{"a":1}"#}}),
        json!({"function": {"name": "read", "arguments": "{}"}}),
    ];
    for (deltas, ids) in [(&whole[..], ids), (&in_pieces, ids), (&without_ids, ["", ""])] {
        let chunks: Vec<_> = deltas.iter().map(|delta| calls(json!([delta]))).collect();
        let (one_by_one, _) = streamed(Api::ChatCompletions, &chunks);
        let (at_once, _) = streamed(Api::ChatCompletions, &[calls(json!(deltas))]);
        for answer in [one_by_one, at_once] {
            assert_eq!(answer.tool_calls(), Some(expected(ids)), "{deltas:?}");
        }
    }
}

#[test]
fn what_a_server_tool_is_given_is_no_call() {
    let mut events = Vec::new();
    for (index, kind) in (0..).zip(["server_tool_use", "mcp_tool_use"]) {
        let block = json!({"type": kind, "id": "s", "name": "web_search", "input": {}});
        let delta = json!({"type": "input_json_delta", "partial_json": r#"{"query": "x"}"#});
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }
    assert_eq!(streamed(Api::Messages, &events).0.tool_calls(), None);
}

#[test]
fn a_refusal_is_the_text_of_an_answer() {
    let part = json!({"type": "refusal", "refusal": "I cannot."});
    let response = json!({"status": "completed", "output": [{"type": "message", "content": [part.clone()]}]});
    for (api, whole, events) in [
        (
            Api::ChatCompletions,
            json!({"choices": [{"message": {"content": null, "refusal": "I cannot."}, "finish_reason": "stop"}]}),
            vec![
                json!({"choices": [{"delta": {"content": null, "refusal": "I can"}}]}),
                json!({"choices": [{"delta": {"refusal": "not."}, "finish_reason": "stop"}]}),
            ],
        ),
        (
            Api::ChatCompletions,
            json!({"choices": [{"message": {"content": [part]}, "finish_reason": "stop"}]}),
            vec![json!({"choices": [{"delta": {"content": "I cannot."}, "finish_reason": "stop"}]})],
        ),
        (
            Api::Responses,
            response.clone(),
            vec![
                json!({"type": "response.refusal.delta", "delta": "I can"}),
                json!({"type": "response.refusal.delta", "delta": "not."}),
                json!({"type": "response.completed", "response": response}),
            ],
        ),
    ] {
        let (answer, deltas) = streamed(api, &events);
        assert_eq!((answer.text.as_str(), deltas.as_str()), ("I cannot.", "I cannot."));
        assert_eq!(Some(answer), Answer::read(api, whole.to_string().as_bytes()));
    }
}

#[test]
fn each_call_of_a_response_that_the_client_has_to_answer_is_a_call() {
    let output = json!([
        {"type": "local_shell_call", "id": "i", "call_id": "c1", "action": {"command": ["ls"]}},
        {"type": "apply_patch_call", "call_id": "c2", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "custom_tool_call", "call_id": "c3", "name": "sql", "input": "select 1"},
        {"type": "web_search_call", "id": "w", "action": {"query": "x"}},
    ]);
    let body = json!({"status": "completed", "output": output}).to_string();
    let answer = Answer::read(Api::Responses, body.as_bytes()).expect("an answer");
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let expected = json!([
        call("c1", "local_shell_call", r#"{"command":["ls"]}"#),
        call("c2", "apply_patch_call", r#"{"path":"a","type":"delete_file"}"#),
        call("c3", "sql", "select 1"),
    ]);
    assert_eq!(answer.tool_calls(), Some(expected));
}
