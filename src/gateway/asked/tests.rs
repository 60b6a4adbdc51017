use super::*;

fn read(api: Api, body: &Value) -> (Asked, Bytes) {
    let text = body.to_string();
    (Asked::read(api, &text, None).expect("reads"), text.into())
}

fn parsed(body: &Bytes) -> Value {
    serde_json::from_slice(body).expect("JSON")
}

#[test]
fn a_turn_is_dropped_with_its_tools_and_what_the_client_has_not_changed_stays_as_it_is() {
    let messages = json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
        {"role": "assistant", "content": "did it"},
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "three"},
    ]);
    let body = json!({"model": "p/m", "max_tokens": 5, "system": [{"type": "text", "text": "Be brief."}],
        "messages": messages, "metadata": {"user_id": "user_a_account__session_s-1"}, "unknown": [1.50]});
    let (asked, bytes) = read(Api::Messages, &body);
    assert_eq!((asked.user_text.as_str(), asked.system.as_deref()), ("three", Some("Be brief.")));
    assert_eq!((asked.passed.turns.len(), asked.session.as_deref()), (2, Some("s-1")));
    assert_eq!(asked.request(&bytes, "p/m", 0), bytes);
    let renamed = asked.request(&bytes, "m", 0);
    assert_eq!(parsed(&renamed)["model"], "m");
    assert_eq!(renamed.len(), bytes.len() - 2);
    let once = parsed(&asked.request(&bytes, "m", 1));
    assert_eq!(once["messages"].as_array().map(Vec::len), Some(3));
    assert_eq!((&once["messages"][0], &once["unknown"]), (&messages[4], &body["unknown"]));
    let twice = parsed(&asked.request(&bytes, "p/m", 2));
    assert_eq!(twice["messages"], json!([messages[6]]));
    let prompt: Value = serde_json::from_str(&asked.prompt(&bytes, 2)).expect("JSON");
    assert_eq!(prompt, json!([{"role": "system", "content": "Be brief."}, messages[6]]));
    let ids: Vec<_> = asked.passed.messages.iter().map(|sent| sent.turn).collect();
    assert_eq!((ids[0], ids[3], ids[6]), (Some(asked.passed.turns[0].0), ids[0], asked.passed.turn));
}

#[test]
fn what_an_agent_asks_for_itself_is_no_human_message_but_known_by_its_words() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let told = json!({"role": "developer", "content": "Be brief.\nYou are a title generator."});
    for (messages, is_own) in [
        (json!([told, user("Add a page.")]), true),
        (json!([user("Add a page."), user("[SUGGESTION MODE: what next?]")]), true),
        (json!([user("Warmup")]), true),
        (
            json!([
                user("Add a page."),
                user(
                    "<system-reminder>This is a side question from the user. Be brief.</system-reminder> Why?"
                )
            ]),
            true,
        ),
        (
            json!([
                user("<system-reminder>This is a side question from the user.</system-reminder>"),
                user("Add a page.")
            ]),
            false,
        ),
        (json!([user("Warmup takes long.")]), false),
        (json!([user("\nWeb page content:\n---\nHTTP.\n---\n\nWhat is it?")]), true),
        (json!([user("[SUGGESTION MODE: what next?]"), user("Add a page.")]), false),
        (json!([user("You are a title generator. Add a page.")]), false),
    ] {
        let (asked, _) = read(Api::ChatCompletions, &json!({"model": "m", "messages": messages}));
        assert_eq!((asked.user_text.is_empty(), asked.passed.turn.is_none()), (is_own, is_own), "{messages}");
        assert!(asked.passed.said.is_some());
    }
}

#[test]
fn system_messages_of_a_list_always_stay() {
    let messages = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "one"},
        {"role": "system", "content": "later"}, {"role": "user", "content": "two"}]);
    let (asked, body) = read(Api::ChatCompletions, &json!({"model": "m", "messages": messages}));
    let left = parsed(&asked.request(&body, "m", 1));
    assert_eq!(left["messages"], json!([messages[0], messages[2], messages[3]]));
    assert!(asked.passed.overhead.chars == 6 && asked.passed.user.chars == 3);
}

#[test]
fn a_prompt_is_of_characters_that_can_be_stored() {
    let body = r#"{"model": "m", "messages": [{"role": "user", "content": "\ud83d\u0000"}]}"#;
    let mut clean = body.as_bytes().to_vec();
    clean_json(&mut clean).expect("JSON");
    let asked = Asked::read(Api::ChatCompletions, str::from_utf8(&clean).expect("UTF-8"), None);
    let prompt = asked.expect("reads").prompt(&body.into(), 0);
    assert_eq!(prompt, r#"[{"role": "user", "content": "\ufffd\ufffd"}]"#);
}

#[test]
fn what_codex_sends_is_read_as_messages_are() {
    let body = json!({"model": "m", "instructions": "i", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "find it"}]},
        {"type": "reasoning", "encrypted_content": "xxxxxxxxxx"},
        {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"}]});
    let (asked, _) = read(Api::Responses, &body);
    assert_eq!((asked.user_text.as_str(), asked.passed.turns.len()), ("find it", 0));
    assert_eq!(asked.passed.messages.len(), 4);
    let (asked, _) = read(Api::Responses, &json!({"model": "m", "input": "hello"}));
    assert_eq!((asked.user_text.as_str(), asked.passed.messages.len()), ("hello", 1));
}

#[test]
fn what_only_an_agent_has_written_is_no_message_of_a_person() {
    let user = |content: Value| json!({"role": "user", "content": content});
    let block = |text: &str| json!({"type": "text", "text": text});
    let skill = "Base directory for this skill: /skills/x\n\nDo it so.";
    for added in [
        json!("<system-reminder>be nice</system-reminder>"),
        json!("Another language model started to solve this problem and produced a summary"),
        json!("This session is being continued from a previous conversation"),
        json!([block(" <local-command-stdout>ok</local-command-stdout>"), block(skill), block(" ")]),
    ] {
        let messages =
            [user(json!("Fix it.")), json!({"role": "assistant", "content": "ok"}), user(added.clone())];
        let (asked, _) = read(Api::ChatCompletions, &json!({"model": "m", "messages": messages}));
        let first = asked.passed.messages[0].id;
        assert_eq!((asked.user_text.as_str(), asked.passed.turn), ("Fix it.", Some(first)), "{added}");
        assert_eq!((asked.passed.turns.len(), asked.passed.messages[2].turn), (0, Some(first)), "{added}");
        let (asked, _) = read(Api::ChatCompletions, &json!({"model": "m", "messages": [user(added)]}));
        assert_eq!((asked.user_text.as_str(), asked.passed.turn, asked.passed.said), ("", None, None));
    }
    let picture = json!([{"type": "image"}, block("<system-reminder>be nice</system-reminder>")]);
    let (asked, _) = read(Api::Messages, &json!({"model": "m", "messages": [user(picture)]}));
    assert_eq!((asked.user_text.as_str(), asked.passed.turn), ("", Some(asked.passed.messages[0].id)));
}

#[test]
fn a_request_has_more_than_its_text_where_the_provider_remembers_something_or_is_sent_a_picture() {
    let result = json!({"type": "tool_result", "content": [{"type": "image"}]});
    let said = |content: Value| json!([{"role": "user", "content": content}]);
    let shown = json!([{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}]);
    for (member, value, has_more) in [
        ("input", said(json!("one")), false),
        ("input", said(json!([{"type": "input_text", "text": "one"}])), false),
        ("input", said(json!([{"type": "input_image"}])), true),
        ("input", shown, true),
        ("input", said(json!([result])), true),
        ("previous_response_id", Value::Null, false),
        ("previous_response_id", json!("r"), true),
        ("conversation", json!({"id": "c"}), true),
        ("prompt", json!({"id": "p"}), true),
    ] {
        let mut body = json!({"model": "m", "input": "one"});
        body[member] = value;
        assert_eq!(read(Api::Responses, &body).0.passed.has_more, has_more, "{body}");
    }
}

#[test]
fn the_same_said_after_something_else_is_another_message_and_said_again_after_the_same_it_is_not() {
    let turn = |more: Value| {
        let mut body = json!({"model": "m", "input": "continue"});
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let passed = read(Api::Responses, &body).0.passed;
        (passed.turn, passed.said)
    };
    let after = |response: &str| turn(json!({"previous_response_id": response}));
    let (first, again, other, none) = (after("r1"), after("r1"), after("r2"), turn(json!({})));
    assert_eq!(first, again);
    assert!(first.0 != other.0 && first.0 != none.0 && first.1 == other.1 && first.1 == none.1);
    // A conversation has the same name when the next message is said in it.
    let [one, two] = [(); 2].map(|()| turn(json!({"conversation": "c"})));
    assert!(one.0 != two.0 && one.1 == two.1);
}

#[test]
fn what_cannot_be_read_is_refused_and_what_need_not_be_there_is_not() {
    for body in [
        "",
        "[]",
        "{}",
        r#"{"model": 1}"#,
        r#"{"model": "m", "messages": 1}"#,
        r#"{"model": "m", "messages": [1}"#,
    ] {
        Asked::read(Api::Messages, body, None).expect_err(body);
    }
    let (asked, _) = read(Api::Messages, &json!({"model": "m"}));
    assert_eq!((asked.user_text.as_str(), asked.passed.turn), ("", None));
}
