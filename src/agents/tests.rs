use chrono::TimeDelta;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(agent: &Agent, line: &Value) -> Entry {
    (agent.parse_line)(&line.to_string(), &ToolPatterns::default()).expect("a line of a transcript")
}

fn claude(line: &Value) -> Entry {
    read(&claude_code::AGENT, line)
}

fn codex(line: &Value) -> Vec<Activity> {
    read(&codex::AGENT, line).activities
}

fn user(content: &Value) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content}})
}

fn assistant(blocks: &Value) -> Value {
    json!({"type": "assistant", "message": {"role": "assistant", "content": blocks, "stop_reason": null}})
}

/// The actions of a use of the tool `name`.
fn does(name: &str, input: &Value) -> Vec<ToolAction> {
    let line = assistant(&json!([{"type": "tool_use", "id": "t1", "name": name, "input": input}]));
    match claude(&line).activities.pop() {
        Some(Activity::ToolUse { actions, .. }) => actions,
        other => panic!("{other:?}"),
    }
}

/// What a result with this content says: whether it worked, and what it found.
fn answers(content: &Value, error: bool) -> (bool, Option<SearchOutput>) {
    let block = json!({"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": error});
    match claude(&user(&json!([block]))).activities.pop() {
        Some(Activity::ToolResult { ok, output, .. }) => (ok, output),
        other => panic!("{other:?}"),
    }
}

fn nothing() -> SearchOutput {
    SearchOutput { count: Some(0), ..SearchOutput::default() }
}

fn hit(path: &str, score: f64) -> SearchHit {
    SearchHit { path: path.to_owned(), score: Some(score) }
}

#[test]
fn a_line_says_when_where_and_who() {
    let line = json!({
        "type": "assistant", "timestamp": "2026-03-01T10:00:00.250Z", "sessionId": "s", "promptId": "p", "agentId": "a",
        "cwd": "/srv/app", "isSidechain": true, "gitBranch": "main", "version": "2.1.0",
        "message": {"id": "m", "role": "assistant", "stop_reason": "tool_use", "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "src/a.rs", "limit": 10}},
            {"type": "tool_use", "id": "t2", "name": "TodoWrite", "input": {"todos": []}},
        ]},
    });
    let read = vec![ToolAction::Read { path: "/srv/app/src/a.rs".to_owned() }];
    assert_eq!(
        claude(&line),
        Entry {
            at: Some("2026-03-01T10:00:00.250Z".parse().expect("a time")),
            session: Some("s".to_owned()),
            agent: Some("a".to_owned()),
            turn: Some("p".to_owned()),
            root: Some("/srv/app".to_owned()),
            activities: vec![
                Activity::ToolUse { id: Some("t1".to_owned()), actions: read },
                Activity::ToolUse { id: Some("t2".to_owned()), actions: Vec::new() },
            ],
            ..Entry::default()
        }
    );
}

#[test]
fn a_prompt_is_what_a_person_says() {
    for content in [
        json!("find the login button"),
        json!([{"type": "text", "text": "find it"}]),
        json!([{"type": "text", "text": "<ide_opened_file>a.rs</ide_opened_file>"}, {"type": "text", "text": "find it"}]),
        json!([{"type": "image", "source": {}}]),
        json!("<command-name>/review</command-name>"),
        json!("<command-message>review</command-message>\n<command-name>/review</command-name>"),
        json!(["find it"]),
    ] {
        assert_eq!(claude(&user(&content)).activities, [Activity::Prompt], "{content}");
    }
}

#[test]
fn what_a_person_sends_while_the_agent_works_is_a_prompt_but_begins_no_turn() {
    let queued = |attachment: Value| {
        let line = json!({"type": "attachment", "sessionId": "s", "attachment": attachment});
        let entry = claude(&line);
        (entry.prompt, entry.activities)
    };
    let (text, blocks) = (json!("find it"), json!([{"type": "text", "text": "find it"}, {"type": "image"}]));
    for attachment in [
        json!({"type": "queued_command", "prompt": text}),
        json!({"type": "queued_command", "prompt": text, "commandMode": "prompt", "origin": {"kind": "human"}}),
        json!({"type": "queued_command", "prompt": blocks, "commandMode": "prompt"}),
    ] {
        assert_eq!(queued(attachment), (Some("find it".to_owned()), vec![]));
    }
    let corrects = json!({"type": "queued_command", "prompt": "No, the other file."});
    assert_eq!(queued(corrects).1, [Activity::Correction]);
    let task = json!("<task-notification>done</task-notification>");
    for attachment in [
        json!({"type": "queued_command", "prompt": task}),
        json!({"type": "queued_command", "prompt": "done", "commandMode": "task-notification"}),
        json!({"type": "queued_command", "prompt": "go on", "origin": {"kind": "coordinator"}}),
        json!({"type": "todo_reminder", "prompt": text}),
        json!({"type": "queued_command"}),
        json!("find it"),
    ] {
        assert_eq!(queued(attachment), (None, vec![]));
    }
    let line = json!({"type": "attachment", "isSidechain": true, "attachment": {"type": "queued_command", "prompt": text}});
    assert_eq!(claude(&line).activities, []);
}

#[test]
fn what_stands_in_user_lines_but_no_person_says_is_no_prompt() {
    for content in [
        json!(""),
        json!(" \n"),
        json!([]),
        json!(null),
        json!("<local-command-stdout>ok</local-command-stdout>"),
        json!("<bash-input>ls</bash-input>"),
        json!("<bash-stdout>a</bash-stdout>"),
        json!("<task-notification>done</task-notification>"),
        json!("This session is being continued from a previous conversation that ran out of context."),
        json!([{"type": "text", "text": "<system-reminder>x</system-reminder>"}]),
    ] {
        assert_eq!(claude(&user(&content)).activities, [], "{content}");
    }
    for flag in ["isMeta", "isCompactSummary", "isSidechain"] {
        let mut line = user(&json!("find it"));
        line[flag] = json!(true);
        assert_eq!(claude(&line).activities, [], "{flag}");
    }
}

#[test]
fn a_turn_ends_when_the_agent_is_done_or_is_stopped() {
    let mut done = assistant(&json!([{"type": "text", "text": "SearchOutput it."}]));
    done["message"]["stop_reason"] = json!("end_turn");
    let stopped = user(&json!([{"type": "text", "text": "[Request interrupted by user for tool use]"}]));
    let timed = json!({"type": "system", "subtype": "turn_duration", "durationMs": 5});
    for line in [done, stopped, timed] {
        assert_eq!(claude(&line).activities, [Activity::TurnEnd], "{line}");
    }
}

#[test]
fn lines_of_any_other_type_only_show_that_the_agent_is_at_work() {
    for line in [
        json!({"type": "progress", "timestamp": "2026-03-01T10:00:00Z", "data": {"type": "hook_progress"}}),
        json!({"type": "of-tomorrow", "timestamp": "2026-03-01T10:00:00Z"}),
        json!({"timestamp": "2026-03-01T10:00:00Z", "message": "error"}),
    ] {
        let expected = Entry { at: "2026-03-01T10:00:00Z".parse().ok(), ..Entry::default() };
        assert_eq!(claude(&line), expected, "{line}");
    }
}

#[test]
fn a_member_of_another_shape_is_as_good_as_none() {
    for line in [
        json!({"type": 1, "timestamp": [], "sessionId": {}, "cwd": "", "message": 3}),
        json!({"type": "user", "message": "error"}),
        json!({"type": "assistant", "message": {"content": [1, null, "x", {"type": {}}]}}),
        json!({}),
    ] {
        assert_eq!(claude(&line), Entry::default(), "{line}");
    }
    let twice = r#"{"type": "user", "type": "user", "message": {"content": "x"}}"#;
    let surrogate =
        r#"{"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "\ud800"}]}}"#;
    for line in [twice, surrogate] {
        assert!((claude_code::AGENT.parse_line)(line, &ToolPatterns::default()).is_ok(), "{line}");
    }
}

#[test]
fn a_line_that_is_no_object_is_bad() {
    for agent in ALL {
        for line in ["", "42", "[1]", "\"text\"", "null", "{", r#"{"type": "user""#, "{} {}", "{\"a\": nope}"]
        {
            assert_eq!((agent.parse_line)(line, &ToolPatterns::default()), Err(NotAnObject), "{line}");
        }
    }
}

#[test]
fn tools_search_read_and_edit() {
    let search = |tool, query: &str, path: Option<&str>| {
        vec![ToolAction::Search { tool, query: query.to_owned(), path: path.map(str::to_owned) }]
    };
    let path = "/a/b.rs".to_owned();
    let query = json!({"query": "login button", "top_k": 5});
    for (name, input, expected) in [
        ("Read", json!({"file_path": "/a/b.rs", "offset": 3}), vec![ToolAction::Read { path: path.clone() }]),
        (
            "Edit",
            json!({"file_path": "/a/b.rs", "old_string": ""}),
            vec![ToolAction::Edit { path: path.clone() }],
        ),
        (
            "Write",
            json!({"content": "x", "file_path": "/a/b.rs"}),
            vec![ToolAction::Edit { path: path.clone() }],
        ),
        ("NotebookEdit", json!({"notebook_path": "/a/b.rs"}), vec![ToolAction::Edit { path: path.clone() }]),
        (
            "Grep",
            json!({"pattern": "log.*in", "path": "/a"}),
            search(SearchTool::Grep, "log.*in", Some("/a")),
        ),
        ("Glob", json!({"pattern": "**/*.tsx"}), search(SearchTool::Glob, "**/*.tsx", None)),
        ("mcp__ultrasync__jit_search", query.clone(), search(SearchTool::Index, "login button", None)),
        ("mcp__code__semantic_search", query, search(SearchTool::Index, "login button", None)),
        ("Bash", json!({"command": "cat /a/b.rs", "timeout": 5}), vec![ToolAction::Read { path }]),
        ("WebFetch", json!({"url": "x"}), vec![]),
        ("Read", json!({"file_path": 3}), vec![]),
        ("Grep", json!({"pattern": " "}), vec![]),
        ("Bash", json!("cat a"), vec![]),
    ] {
        assert_eq!(does(name, &input), expected, "{name} {input}");
    }
}

#[test]
fn scores_are_read_from_content_blocks_with_json() {
    let results = json!({"results": [{"path": "Button.tsx", "score": 0.42}, {"file": "file:///b.tsx", "score": "0.3"}]});
    let expected = SearchOutput {
        best_score: Some(0.42),
        count: Some(2),
        hits: vec![hit("Button.tsx", 0.42), hit("/b.tsx", 0.3)],
    };
    for content in [
        json!([{"type": "text", "text": results.to_string()}]),
        json!(results.to_string()),
        json!([{"type": "text", "text": results["results"].to_string()}]),
        json!([
            {"type": "text", "text": results["results"][0].to_string()},
            {"type": "text", "text": results["results"][1].to_string()},
        ]),
    ] {
        assert_eq!(answers(&content, false), (true, Some(expected.clone())), "{content}");
    }
}

#[test]
fn a_search_that_finds_nothing_says_so_in_many_ways() {
    for content in [
        "No files found",
        "No matches found\n\nFound 0 total occurrences across 0 files.",
        "",
        "(Bash completed with no output)",
        "{\"results\": []}",
        "[]",
    ] {
        assert_eq!(answers(&json!(content), false), (true, Some(nothing())), "{content}");
    }
    assert_eq!(
        answers(&json!([{"type": "text", "text": "No results for this"}]), false),
        (true, Some(nothing()))
    );
    // The status of a grep that finds nothing.
    assert_eq!(answers(&json!("Exit code 1"), true), (true, Some(nothing())));
    assert_eq!(answers(&json!("Exit code 2\ngrep: x: No such file"), true), (false, None));
    assert_eq!(answers(&json!("src/a.rs:1:x"), false), (true, None));
    assert_eq!(answers(&json!("{\"name\": \"package\", \"files\": 3}"), false), (true, None));
}

#[test]
fn files_found_are_named_by_the_structured_result() {
    let mut line =
        user(&json!([{"type": "tool_result", "tool_use_id": "t1", "content": "SearchOutput 2 files\na\nb"}]));
    line["toolUseResult"] = json!({"mode": "files_with_matches", "filenames": ["a", "b"], "numFiles": 2});
    let hits = ["a", "b"].map(|path| SearchHit { path: path.to_owned(), score: None }).to_vec();
    let found = Some(SearchOutput { best_score: None, count: Some(2), hits });
    assert_eq!(
        claude(&line).activities,
        [Activity::ToolResult { id: Some("t1".to_owned()), ok: true, output: found }]
    );
    // Where lines are shown, files are not.
    line["toolUseResult"] = json!({"mode": "content", "filenames": [], "numFiles": 0, "content": "a:1: x"});
    assert_eq!(
        claude(&line).activities,
        [Activity::ToolResult { id: Some("t1".to_owned()), ok: true, output: None }]
    );
}

#[test]
fn a_structured_result_belongs_to_no_one_of_several_results() {
    let block = |id| json!({"type": "tool_result", "tool_use_id": id, "content": "src/a.rs:1:x"});
    let mut line = user(&json!([block("t1"), block("t2")]));
    line["toolUseResult"] = json!({"filenames": ["a"]});
    let result = |id: &str| Activity::ToolResult { id: Some(id.to_owned()), ok: true, output: None };
    assert_eq!(claude(&line).activities, [result("t1"), result("t2")]);
}

#[test]
fn what_a_result_has_found_takes_bounded_memory() {
    let found = |length: usize, count: usize| {
        let paths: Vec<_> = (0..count).map(|number| format!("{number:0length$}")).collect();
        answers(&json!(json!({"files": paths}).to_string()), false).1.expect("an output")
    };
    let (long, many, few) = (found(10_000, 100), found(4_000, 100), found(100, 100));
    assert_eq!((long.hits.len(), long.count), (0, Some(100)));
    assert_eq!((many.hits.len(), many.count), (8, Some(100)));
    assert_eq!(few.hits.len(), 100);
}

#[test]
fn a_path_is_joined_to_no_folder_that_is_longer_than_any() {
    let read = |cwd: String| {
        let mut line = assistant(
            &json!([{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}]),
        );
        line["cwd"] = json!(cwd);
        size_of_actions(&claude(&line))
    };
    assert!(read(format!("/{}", "x".repeat(4_000))) > 4_000);
    assert!(read(format!("/{}", "x".repeat(5_000))) < 200);
}

fn passages(entry: Entry) -> Vec<(PassageSource, String)> {
    entry.passages.into_iter().map(|passage| (passage.source, passage.text)).collect()
}

#[test]
fn what_is_said_written_and_answered_is_told_of_with_its_call() {
    let (id, text) = (|| "t1".to_owned(), |text: &str| text.to_owned());
    let edit = json!({"file_path": "/a.rs", "old_string": "one()", "new_string": "two()"});
    let image = json!({"type": "image", "source": {"type": "base64", "data": "A".repeat(5_000)}});
    let answer = json!([{"type": "text", "text": "src/a.rs:1"}, image]);
    let result = json!([{"type": "tool_result", "tool_use_id": "t1", "content": answer}]);
    for (line, source, has, has_not) in [
        (
            assistant(&json!([{"type": "tool_use", "id": "t1", "name": "Edit", "input": edit}])),
            PassageSource::Written(id()),
            "one()\ntwo()",
            "/a.rs",
        ),
        (user(&result), PassageSource::Answer(id()), "src/a.rs:1", "AAAA"),
    ] {
        let told = passages(claude(&line));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0 == source && told[0].1.contains(has) && !told[0].1.contains(has_not), "{told:?}");
    }
    let nothing = json!([{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a.rs"}}]);
    assert_eq!(passages(claude(&assistant(&nothing))), []);
    let long = json!([{"type": "tool_result", "tool_use_id": "t1", "content": "ä ".repeat(100_000)}]);
    let long = passages(claude(&user(&long)));
    assert!((60_000..=65_536).contains(&long[0].1.len()));

    let hook = json!({"hook_event_name": "PostToolUse", "tool_name": "Read", "tool_use_id": "t1",
        "tool_input": {"file_path": "/a.rs"}, "tool_response": {"type": "text", "file": {"content": "fn one() {}"}}});
    let told = (claude_code::AGENT.parse_hook)(&hook.to_string(), &ToolPatterns::default());
    let told = passages(told.expect("a hook's payload"));
    assert_eq!(told[0].0, PassageSource::Answer(id()));
    assert!(told[0].1.contains("fn one() {}"), "{told:?}");

    let item = |payload: &Value| {
        passages(read(&codex::AGENT, &json!({"type": "response_item", "payload": payload})))
    };
    let patch = "*** Begin Patch\n*** Update File: a.rs\n+two()\n*** End Patch";
    let call = json!({"type": "custom_tool_call", "call_id": "t1", "name": "apply_patch", "input": patch});
    assert_eq!(item(&call), [(PassageSource::Written(id()), text(patch))]);
    let output = json!({"type": "function_call_output", "call_id": "t1", "output": "src/a.rs"});
    assert_eq!(item(&output), [(PassageSource::Answer(id()), text("src/a.rs"))]);
}

#[test]
fn a_hook_says_what_a_transcript_would() {
    let hook = |body: Value| {
        (claude_code::AGENT.parse_hook)(&body.to_string(), &ToolPatterns::default())
            .expect("a hook's payload")
    };
    let common =
        |name: &str| json!({"hook_event_name": name, "session_id": "s", "prompt_id": "p", "cwd": "/w"});
    for (name, expected) in [
        ("UserPromptSubmit", vec![Activity::Prompt]),
        ("Stop", vec![Activity::TurnEnd]),
        ("SessionEnd", vec![Activity::SessionEnd]),
        ("PreToolUse", vec![Activity::ToolUse { id: None, actions: vec![] }]),
        ("OfTomorrow", vec![]),
    ] {
        let [session, turn, root] = ["s", "p", "/w"].map(|text| Some(text.to_owned()));
        assert_eq!(
            hook(common(name)),
            Entry {
                session,
                turn,
                root,
                activities: expected,
                event: Some(name.to_owned()),
                ..Entry::default()
            },
            "{name}"
        );
    }
    let mut used = common("PostToolUse");
    used["tool_name"] = json!("Bash");
    used["tool_input"] = json!({"command": "grep -rn login src"});
    used["tool_response"] = json!({"stdout": "", "stderr": "", "interrupted": false});
    used["tool_use_id"] = json!("t1");
    let id = Some("t1".to_owned());
    let search = ToolAction::Search {
        tool: SearchTool::Grep,
        query: "login".to_owned(),
        path: Some("/w/src".to_owned()),
    };
    assert_eq!(
        hook(used).activities,
        [
            Activity::ToolUse { id: id.clone(), actions: vec![search] },
            Activity::ToolResult { id: id.clone(), ok: true, output: Some(nothing()) },
        ]
    );
    let mut slow = common("PostToolUse");
    slow["tool_name"] = json!("Bash");
    for (milliseconds, expected) in [
        (json!(61_250), Some(TimeDelta::milliseconds(61_250))),
        (json!(0.5), Some(TimeDelta::zero())),
        (json!(-1), None),
        (json!(1e300), None),
        (json!("38"), None),
    ] {
        slow["duration_ms"] = milliseconds;
        assert_eq!(hook(slow.clone()).lasted, expected, "{slow}");
    }
    let mut objected = common("UserPromptSubmit");
    objected["prompt"] = json!("no, the other file");
    assert_eq!(hook(objected.clone()).activities, [Activity::Correction]);
    assert_eq!(hook(objected.clone()).prompt.as_deref(), Some("no, the other file"));
    objected["prompt"] = json!("<task-notification>done</task-notification>");
    assert_eq!((hook(objected.clone()).activities, hook(objected).prompt), (vec![], None));
    let mut stopped = common("Stop");
    stopped["last_assistant_message"] = json!("Done: see MAX_SKEW.");
    assert_eq!(hook(stopped).written.as_deref(), Some("Done: see MAX_SKEW."));
    let mut failed = common("PostToolUseFailure");
    failed["tool_name"] = json!("Read");
    failed["tool_input"] = json!({"file_path": "/nope"});
    failed["error"] = json!("File does not exist.");
    failed["tool_use_id"] = json!("t1");
    assert_eq!(
        hook(failed).activities,
        [
            Activity::ToolUse {
                id: id.clone(),
                actions: vec![ToolAction::Read { path: "/nope".to_owned() }]
            },
            Activity::ToolResult { id, ok: false, output: None },
        ]
    );
    let mut searched = common("PostToolUse");
    searched["tool_name"] = json!("mcp__code__search");
    searched["tool_input"] = json!({"query": "login"});
    searched["tool_response"] = json!([{"type": "text", "text": "[{\"path\": \"a\", \"score\": 0.9}]"}]);
    let found = SearchOutput { best_score: Some(0.9), count: Some(1), hits: vec![hit("a", 0.9)] };
    assert_eq!(
        hook(searched).activities.pop(),
        Some(Activity::ToolResult { id: None, ok: true, output: Some(found) })
    );
    assert_eq!((claude_code::AGENT.parse_hook)("{}", &ToolPatterns::default()), None);
    assert_eq!((claude_code::AGENT.parse_hook)("[]", &ToolPatterns::default()), None);
}

#[test]
fn a_rollout_names_its_session_and_turns_in_lines_of_their_own() {
    let head = json!({
        "timestamp": "2026-03-01T10:00:00.100Z", "type": "session_meta",
        "payload": {"id": "s", "timestamp": "2026-03-01T10:00:00.050Z", "cwd": "/w", "cli_version": "0.140.0"},
    });
    let expected = Entry {
        at: "2026-03-01T10:00:00.100Z".parse().ok(),
        session: Some("s".to_owned()),
        root: Some("/w".to_owned()),
        is_head: true,
        ..Entry::default()
    };
    assert_eq!(read(&codex::AGENT, &head), expected);
    for (source, agent) in [
        (json!("cli"), None),
        (json!({"subagent": "review"}), Some("review")),
        (json!({"subagent": {"thread_spawn": {"depth": 1}}}), Some("thread_spawn")),
    ] {
        let mut head = head.clone();
        head["payload"]["source"] = source;
        assert_eq!(read(&codex::AGENT, &head).agent.as_deref(), agent, "{head}");
    }
    // A session that was forked repeats the head of the one it was forked from.
    let mut copied = head;
    copied["payload"]["timestamp"] = json!("2026-03-01T08:00:00Z");
    assert_eq!(read(&codex::AGENT, &copied), Entry { may_be_copied: true, ..expected });
    let turn = json!({"type": "turn_context", "payload": {"turn_id": "t", "cwd": "/w/sub", "model": "m"}});
    let expected = Entry { turn: Some("t".to_owned()), root: Some("/w/sub".to_owned()), ..Entry::default() };
    assert_eq!(read(&codex::AGENT, &turn), expected);
}

#[test]
fn turns_of_a_rollout_are_told_by_its_events() {
    for (kind, expected) in [
        ("user_message", vec![Activity::Prompt]),
        ("task_complete", vec![Activity::TurnEnd]),
        ("turn_aborted", vec![Activity::TurnEnd]),
        ("token_count", vec![]),
        ("exec_command_end", vec![]),
    ] {
        assert_eq!(codex(&json!({"type": "event_msg", "payload": {"type": kind}})), expected, "{kind}");
    }
    let message =
        json!({"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}});
    assert_eq!(codex(&message), []);
}

#[test]
fn calls_of_a_rollout_are_uses_of_tools() {
    let call = |name: &str, arguments: Value| {
        codex(&json!({"type": "response_item", "payload": {
            "type": "function_call", "call_id": "c", "name": name, "arguments": arguments.to_string()}}))
    };
    let used = |actions| vec![Activity::ToolUse { id: Some("c".to_owned()), actions }];
    let read = |path: &str| ToolAction::Read { path: path.to_owned() };
    assert_eq!(call("exec_command", json!({"cmd": "cat a", "workdir": "/w"})), used(vec![read("/w/a")]));
    assert_eq!(call("shell", json!({"command": ["bash", "-lc", "cat 'a b'"]})), used(vec![read("a b")]));
    assert_eq!(call("shell", json!({"command": ["sed", "-n", "1,5p", "a"]})), used(vec![read("a")]));
    assert_eq!(call("update_plan", json!({"plan": []})), used(vec![]));
    let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+y\n*** End Patch";
    let custom = json!({"type": "response_item", "payload": {
        "type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": patch}});
    assert_eq!(codex(&custom), used(vec![ToolAction::Edit { path: "src/a.rs".to_owned() }]));
    let of_server = json!({"type": "response_item", "payload": {"type": "function_call", "call_id": "c",
        "namespace": "mcp__code", "name": "search", "arguments": "{\"query\": \"login\"}"}});
    let search = ToolAction::Search { tool: SearchTool::Index, query: "login".to_owned(), path: None };
    assert_eq!(codex(&of_server), used(vec![search]));
}

#[test]
fn answers_of_a_rollout_have_heads_of_their_own() {
    let shell = |status: u8, output: &str| {
        format!("Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code {status}\nOutput:\n{output}")
    };
    for (output, expected) in [
        (json!(shell(0, "src/a.rs:1:x\n")), (true, None)),
        (json!(shell(1, "")), (true, Some(nothing()))),
        (json!(shell(1, "error: x\n")), (false, None)),
        (json!("Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess."), (true, None)),
        (json!("{\"output\": \"x\", \"metadata\": {\"exit_code\": 2}}"), (false, None)),
        (json!("{\"output\": \"\", \"metadata\": {\"exit_code\": 1}}"), (true, Some(nothing()))),
        (json!("exec_command failed: no such folder"), (false, None)),
        (
            json!([{"type": "input_text", "text": "{\"results\": [{\"path\": \"a\", \"score\": 0.5}]}"}]),
            (true, Some(SearchOutput { best_score: Some(0.5), count: Some(1), hits: vec![hit("a", 0.5)] })),
        ),
    ] {
        let line = json!({"type": "response_item", "payload": {
            "type": "function_call_output", "call_id": "c", "output": output}});
        let (ok, output) = expected;
        assert_eq!(codex(&line), [Activity::ToolResult { id: Some("c".to_owned()), ok, output }], "{line}");
    }
}

/// An item that Codex says is completed.
fn item(item: &Value) -> Value {
    json!({"timestamp": "2026-03-01T10:00:05.000Z", "ordinal": 7, "type": "event_msg", "payload": {
        "type": "item_completed", "thread_id": "s", "turn_id": "t", "item": item, "completed_at_ms": 1}})
}

#[test]
fn a_call_from_code_shows_nothing_and_its_items_show_what_was_done() {
    let code = "const out = await tools.exec_command({cmd: \"rg -n needle src\"}); text(out.output);";
    let call = json!({"type": "response_item", "payload": {
        "type": "custom_tool_call", "call_id": "call_1", "name": "exec", "input": code}});
    assert_eq!(codex(&call), [Activity::ToolUse { id: Some("call_1".to_owned()), actions: vec![] }]);

    let command = |command: &str, status: Value, output: &str| {
        let line = item(&json!({
            "type": "CommandExecution", "id": "exec-1", "command": ["/bin/bash", "-lc", command], "cwd": "file:///srv/my%20app",
            "parsed_cmd": [{"type": "unknown", "cmd": command}], "source": "agent", "status": "completed", "exit_code": status,
            "aggregated_output": output, "duration": {"secs": 0, "nanos": 5}}));
        let entry = read(&codex::AGENT, &line);
        assert_eq!(entry.turn.as_deref(), Some("t"));
        entry.activities
    };
    let id = Some("exec-1".to_owned());
    let told = |actions, ok, output| {
        [Activity::ToolUse { id: id.clone(), actions }, Activity::ToolResult { id: id.clone(), ok, output }]
    };
    let search = || {
        let path = Some("/srv/my app/src".to_owned());
        vec![ToolAction::Search { tool: SearchTool::Grep, query: "needle".to_owned(), path }]
    };
    assert_eq!(command("rg -n needle src", json!(1), ""), told(search(), true, Some(nothing())));
    assert_eq!(command("rg -n needle src", json!(0), "src/a.rs:1:needle\n"), told(search(), true, None));
    assert_eq!(command("rg -n needle src", json!(2), ""), told(search(), false, None));
    let file = ToolAction::Read { path: "/srv/my app/src/a.rs".to_owned() };
    assert_eq!(command("sed -n 1,9p src/a.rs", json!(0), "fn a() {}"), told(vec![file.clone()], true, None));
    assert_eq!(
        command("cat src/a.rs", json!(1), "cat: src/a.rs: No such file"),
        told(vec![file], false, None)
    );
}

#[test]
fn items_tell_of_changed_files_of_calls_of_servers_and_of_what_a_person_says() {
    let change = item(&json!({"type": "FileChange", "id": "exec-2", "status": "completed", "changes": {
        "/srv/app/a.rs": {"type": "update", "unified_diff": "@@", "move_path": null},
        "/srv/app/b.rs": {"type": "delete", "content": ""},
        "/srv/app/c.rs": {"type": "update", "unified_diff": "@@", "move_path": "/srv/app/d.rs"},
    }}));
    let id = Some("exec-2".to_owned());
    let actions =
        ["/srv/app/a.rs", "/srv/app/d.rs"].map(|path| ToolAction::Edit { path: path.to_owned() }).to_vec();
    let answered = |id: &Option<String>, ok| Activity::ToolResult { id: id.clone(), ok, output: None };
    assert_eq!(codex(&change), [Activity::ToolUse { id: id.clone(), actions }, answered(&id, true)]);
    let mut declined = change;
    declined["payload"]["item"]["status"] = json!("declined");
    assert_eq!(codex(&declined).pop(), Some(answered(&id, false)));

    let result =
        json!({"content": [{"type": "text", "text": "{\"results\": [{\"path\": \"a\", \"score\": 0.5}]}"}]});
    let call = |tool: &str, arguments: Value, result: Value, error: Value| {
        codex(&item(
            &json!({"type": "McpToolCall", "id": "call_3", "server": "ultrasync", "tool": tool, "arguments": arguments,
            "status": "completed", "result": result, "error": error}),
        ))
    };
    let id = Some("call_3".to_owned());
    let search = ToolAction::Search { tool: SearchTool::Index, query: "login".to_owned(), path: None };
    let output = Some(SearchOutput { best_score: Some(0.5), count: Some(1), hits: vec![hit("a", 0.5)] });
    assert_eq!(
        call("jit_search", json!({"query": "login"}), result, Value::Null),
        [
            Activity::ToolUse { id: id.clone(), actions: vec![search] },
            Activity::ToolResult { id: id.clone(), ok: true, output },
        ]
    );
    let indexed = ToolAction::Index { path: "/srv/app/a.rs".to_owned() };
    assert_eq!(
        call("jit_index_file", json!({"path": "/srv/app/a.rs"}), Value::Null, json!({"message": "no"})),
        [Activity::ToolUse { id: id.clone(), actions: vec![indexed] }, answered(&id, false)]
    );

    for (content, expected) in [
        (json!([{"type": "text", "text": "find it", "text_elements": []}]), vec![Activity::Prompt]),
        (json!([{"type": "local_image", "path": "/a.png"}]), vec![Activity::Prompt]),
        (json!([{"type": "text", "text": "no, the other file"}]), vec![Activity::Correction]),
        (json!([]), vec![]),
    ] {
        let said = item(&json!({"type": "UserMessage", "id": "u1", "content": content}));
        assert_eq!(codex(&said), expected, "{said}");
    }
    for kind in ["AgentMessage", "Reasoning", "OfTomorrow"] {
        assert_eq!(codex(&item(&json!({"type": kind, "id": "x"}))), [], "{kind}");
    }
}

#[test]
fn what_an_agent_adds_to_its_index_is_told_by_the_tool() {
    let indexed = || vec![ToolAction::Index { path: "/a/b.rs".to_owned() }];
    let add = json!({"name": "login", "source_code": "fn login() {}", "file_path": "/a/b.rs"});
    for (name, input, expected) in [
        ("mcp__ultrasync__jit_index_file", json!({"path": "/a/b.rs"}), indexed()),
        ("mcp__code__jit_add_symbol", add, indexed()),
        ("mcp__code__jit_add_symbol", json!({"name": "login", "source_code": ""}), vec![]),
        ("jit_index_file", json!({"path": "/a/b.rs"}), vec![]),
    ] {
        assert_eq!(does(name, &input), expected, "{name} {input}");
    }
}

#[test]
fn the_kind_of_a_line_and_the_version_that_wrote_it_are_told() {
    let kind = |agent: &Agent, line: Value| {
        let LineKind { kind, version } = (agent.kind_of_line)(&line.to_string());
        (kind.unwrap_or_default(), version.unwrap_or_default())
    };
    let told = |kind: &str, version: &str| (kind.to_owned(), version.to_owned());
    let line = json!({"type": "user", "version": "2.1.39", "message": {"type": "message", "version": "9"}});
    assert_eq!(kind(&claude_code::AGENT, line), told("user", "2.1.39"));
    let head = json!({"type": "session_meta", "payload": {"type": "x", "cli_version": "0.169.0"}});
    assert_eq!(kind(&codex::AGENT, head), told("session_meta", "0.169.0"));
    let done = item(&json!({"type": "CommandExecution"}));
    assert_eq!(kind(&codex::AGENT, done), told("event_msg item_completed CommandExecution", ""));
    let call = json!({"type": "response_item", "payload": {"type": "function_call"}});
    assert_eq!(kind(&codex::AGENT, call), told("response_item function_call", ""));
    assert_eq!((codex::AGENT.kind_of_line)("no JSON"), LineKind::default());
}

#[test]
fn hooks_of_codex_answer_with_a_text() {
    let body = json!({
        "hook_event_name": "PostToolUse", "session_id": "s", "turn_id": "t", "cwd": "/w", "tool_name": "Bash",
        "tool_input": {"command": "rg login"}, "tool_use_id": "c", "tool_response": "",
    });
    let entry =
        (codex::AGENT.parse_hook)(&body.to_string(), &ToolPatterns::default()).expect("a hook's payload");
    assert_eq!(entry.turn.as_deref(), Some("t"));
    let search =
        ToolAction::Search { tool: SearchTool::Grep, query: "login".to_owned(), path: Some("/w".to_owned()) };
    let id = Some("c".to_owned());
    assert_eq!(
        entry.activities,
        [
            Activity::ToolUse { id: id.clone(), actions: vec![search] },
            Activity::ToolResult { id, ok: true, output: Some(nothing()) },
        ]
    );
}

#[test]
fn a_pattern_fits_with_any_characters_for_its_stars() {
    for (pattern, name, expected) in [
        ("Grep", "Grep", true),
        ("Grep", "Greps", false),
        ("mcp__*search*", "mcp__index__search_files", true),
        ("mcp__*search*", "mcp__index__research", true),
        ("mcp__*search*", "mcp__index__find", false),
        ("mcp__*search*", "mcp__gleaner__search_memories", false),
        ("*_search", "code_search", true),
        ("*_search", "code_search_all", false),
        ("a*b*b", "ab", false),
        ("a*b*b", "abb", true),
        ("*", "", true),
    ] {
        let patterns = ToolPatterns::new([pattern]);
        assert_eq!(patterns.matches(name), expected, "{pattern} {name}");
    }
    let all_but_web = ToolPatterns::new(["!*web*", "*search*"]);
    assert!(all_but_web.matches("search_files") && !all_but_web.matches("WebSearch"));
}

#[test]
fn a_server_s_search_for_something_else_than_files_is_no_search_unless_a_setting_says_so() {
    let default = ToolPatterns::default();
    for name in ["mcp__ultrasync__jit_search", "mcp__code__search", "mcp__webstorm__search_in_files_by_text"]
    {
        assert!(default.matches(name), "{name}");
    }
    for name in [
        "mcp__github__search_issues",
        "mcp__github__search_pull_requests",
        "mcp__atlassian__searchJiraIssuesUsingJql",
        "mcp__context7__search-docs",
        "mcp__brave-search__local_search",
        "mcp__exa__web_search_exa",
    ] {
        assert!(!default.matches(name), "{name}");
        assert!(ToolPatterns::new([name]).matches(name), "{name}");
    }
}

/// The number of bytes of all actions of an entry.
fn size_of_actions(entry: &Entry) -> usize {
    let actions = entry.activities.iter().filter_map(|activity| match activity {
        Activity::ToolUse { actions, .. } => Some(actions),
        _ => None,
    });
    actions.flatten().map(ToolAction::size).sum()
}

#[test]
fn of_very_many_actions_the_first_are_read() {
    let command = format!("cat {}", "a ".repeat(1_000));
    let block =
        |number| json!({"type": "tool_use", "id": number, "name": "Bash", "input": {"command": command}});
    let line = assistant(&(0..2_000).map(block).collect());
    let size = size_of_actions(&claude(&line));
    assert!((1_000 * 1_000..line.to_string().len() * 10).contains(&size), "{size}");
    let block =
        |number| json!({"type": "tool_use", "id": number, "name": "Read", "input": {"file_path": "a"}});
    let mut line = assistant(&(0..1_000).map(block).collect());
    line["cwd"] = json!("/x".repeat(2_000));
    let size = size_of_actions(&claude(&line));
    assert!((100_000..line.to_string().len() * 10).contains(&size), "{size}");
    let changes: Value = (0..100_000).map(|number| (format!("/f{number}"), json!({}))).collect();
    let line = item(&json!({"type": "FileChange", "id": "c", "status": "completed", "changes": changes}));
    let entry = (codex::AGENT.parse_line)(&line.to_string(), &ToolPatterns::default()).expect("a line");
    let size = size_of_actions(&entry);
    assert!((30_000..=32 << 10).contains(&size), "{size}");
}

#[test]
fn no_text_of_an_entry_has_a_zero_byte() {
    let path = |entry: Entry| match entry.activities.into_iter().next() {
        Some(Activity::ToolUse { actions, .. }) => match actions.into_iter().next() {
            Some(ToolAction::Read { path } | ToolAction::Edit { path }) => path,
            other => panic!("{other:?}"),
        },
        Some(Activity::ToolResult { output: Some(output), .. }) => output.hits[0].path.clone(),
        other => panic!("{other:?}"),
    };
    let parsed = |agent: &Agent, line: &Value| {
        (agent.parse_line)(&line.to_string(), &ToolPatterns::default()).expect("a line")
    };
    let arguments = json!({"file_path": "a\0b"}).to_string();
    let call = json!({"type": "function_call", "name": "read_file", "call_id": "c", "arguments": arguments});
    let call = json!({"type": "response_item", "payload": call});
    assert_eq!(path(parsed(&codex::AGENT, &call)), "a\u{fffd}b");
    let command = json!({"type": "CommandExecution", "id": "c", "command": "cat x", "cwd": "file:///a%00b"});
    assert_eq!(path(parsed(&codex::AGENT, &item(&command))), "/a\u{fffd}b/x");
    let change = json!({"type": "FileChange", "id": "c", "changes": {"a\0b": {"type": "update"}}});
    assert_eq!(path(parsed(&codex::AGENT, &item(&change))), "a\u{fffd}b");
    let found = json!({"results": [{"path": "a\0b"}]}).to_string();
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": found});
    assert_eq!(path(parsed(&claude_code::AGENT, &user(&json!([result])))), "a\u{fffd}b");
}

#[test]
fn no_nesting_is_too_deep() {
    for (open, close) in [("[", "]"), ("{\"text\":[", "]}"), ("{\"results\":[", "]}"), ("{\"message\":", "}")]
    {
        let nested = format!("{}1{}", open.repeat(20_000), close.repeat(20_000));
        let block = format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{nested}]}}"#);
        let line =
            format!(r#"{{"type":"user","message":{{"content":[{block},{nested}]}},"payload":{nested}}}"#);
        for agent in ALL {
            assert!((agent.parse_line)(&line, &ToolPatterns::default()).is_ok());
        }
    }
}

/// JSON with the words of transcripts in it.
fn line() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "type",
        "user",
        "assistant",
        "message",
        "content",
        "tool_use",
        "tool_result",
        "text",
        "name",
        "Bash",
        "input",
        "command",
        "grep x",
        "payload",
        "output",
        "results",
        "score",
        "response_item",
        "event_msg",
        "item_completed",
        "item",
        "CommandExecution",
        "FileChange",
        "changes",
        "function_call",
        "arguments",
        "hook_event_name",
        "PostToolUse",
        "tool_response",
        "filenames",
        "{\"results\": [{}]}",
        "[",
        "",
    ]);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(6, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..8).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn every_object_is_a_line_and_nothing_else_is(value in line(), cut in 0_usize..200) {
        let text = value.to_string();
        let tools = ToolPatterns::default();
        for agent in ALL {
            prop_assert_eq!((agent.parse_line)(&text, &tools).is_ok(), value.is_object());
            let _ = (agent.parse_hook)(&text, &tools);
            let _ = (agent.kind_of_line)(&text);
            let _ = (agent.parse_line)(&text[..text.floor_char_boundary(cut)], &tools);
        }
    }

    #[test]
    fn no_text_is_too_odd_for_a_line(text in any::<String>()) {
        for agent in ALL {
            let _ = (agent.parse_line)(&text, &ToolPatterns::default());
            let _ = (agent.parse_hook)(&text, &ToolPatterns::default());
        }
    }
}

#[test]
fn the_writer_of_a_transcript_is_told_by_the_name_of_the_file() {
    for (path, expected) in [
        ("/home/a/.codex/sessions/2026/03/01/rollout-2026-03-01T10-00-00-0b5c.jsonl", "codex"),
        ("/home/a/.claude/projects/-srv-app/0b5c.jsonl", "claude-code"),
        ("/home/a/rollout-of-a-name/0b5c.jsonl", "claude-code"),
    ] {
        assert_eq!(of_transcript(Path::new(path)).map(|agent| agent.name), Some(expected), "{path}");
    }
}
