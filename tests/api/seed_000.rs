//! Seed 000 from top to bottom: each of its requirements as a test, and its records as they are printed there.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::server::{folder, gleaner, run};
use crate::support::{Service, column, with};

const SLATES: &str = "/v1/suggestions";

const FIGURES: &str = "/v1/analytics/suggestions";

/// The line of `suggestion_history.jsonl` that the seed prints, on as many lines as there.
const RECORD: &str = r#"{
  "ts": 1704067200.0,
  "session": "my-project",
  "server": "local",
  "trigger_block": 5,
  "result_block": 6,

  "context": {
    "nodes": ["claude", "bash", "python"],
    "graphs": ["pipeline"],
    "workflows": ["debug"],
    "blocks": [
      {"input": "@claude explain async", "output": "Async is...", "success": true},
      {"input": "@bash ls", "output": "file1.py\nfile2.py", "success": true}
    ],
    "cwd": "/home/user/project"
  },

  "llm_request": {
    "messages": [
      {"role": "system", "content": "You are a command suggestion assistant..."},
      {"role": "user", "content": "{\"nodes\": [...], \"blocks\": [...]}"}
    ],
    "model": "gpt-4o-mini",
    "temperature": 0.7,
    "max_tokens": 256
  },

  "llm_response": {
    "raw_content": "1. @claude explain this error\n2. @bash cat logs.txt\n3. @python debug.py",
    "model": "gpt-4o-mini",
    "usage": {"prompt_tokens": 150, "completion_tokens": 50, "total_tokens": 200},
    "finish_reason": "stop",
    "latency_ms": 234.5
  },

  "suggestions": ["@claude explain this error", "@bash cat logs.txt", "@python debug.py"],
  "suggestion_node_version": "v1.0",

  "viewed_indices": [0, 1, 0],
  "cycle_count": 2,
  "displayed_index_at_submit": 0,
  "accepted_index": 0,
  "actual_input": "@claude explain this error",
  "match_type": "exact",

  "time_to_action_ms": 1234.5
}
"#;

fn record() -> Value {
    serde_json::from_str(RECORD).expect("JSON")
}

/// A slate as `fetch()` has it, of the context of the printed record.
fn slate(suggestions: &[&str]) -> Value {
    let printed = record();
    json!({"context": printed["context"], "llm_request": printed["llm_request"], "llm_response": printed["llm_response"],
        "suggestion_node_version": "v1.0", "suggestions": suggestions, "session_name": "my-project",
        "server_name": "local", "trigger_block_number": 4})
}

/// A pending slate; its address.
async fn fetched(service: &Service, suggestions: &[&str], more: &Value) -> String {
    let id = service.create(SLATES, with(slate(suggestions), more)).await;
    format!("{SLATES}/{id}")
}

async fn cycle(service: &Service, address: &str, direction: &str) -> Value {
    service.post(&format!("{address}/views"), &json!({"direction": direction})).await.expect(201)
}

async fn submit(service: &Service, address: &str, input: &str) -> Value {
    service.post(&format!("{address}/finalize"), &json!({"actual_input": input})).await.expect(200)
}

/// Five slates: taken at once, taken after a look round, changed, refused after 20 seconds, and taken word by word.
async fn five() -> Service {
    let service = Service::open().await;
    let slate = |number: u128,
                 viewed: &[i32],
                 input: &str,
                 (blocks, version, temperature, prompt, time): (usize, &str, f64, i64, f64)| {
        json!({"event": "suggestion", "id": Uuid::from_u128(number), "suggestions": ["@claude explain", "@bash ls", "@python run"],
            "context": {"blocks": vec![json!({"input": "make", "output": "ok", "success": true}); blocks]},
            "llm_request": {"messages": [{"role": "user", "content": "Next?"}], "model": "gpt-4o-mini",
                "temperature": temperature, "max_tokens": 256},
            "llm_response": {"usage": {"prompt_tokens": prompt, "completion_tokens": 50, "total_tokens": prompt + 50}},
            "suggestion_node_version": version, "viewed_indices": viewed, "actual_input": input,
            "time_to_action_ms": time})
    };
    service
        .accept(&[
            slate(1, &[0], "@claude explain", (2, "v1.0", 0.7, 150, 500.0)),
            slate(2, &[0, 1, 2, 1, 0], "@claude explain", (2, "v1.0", 0.7, 150, 4_000.0)),
            slate(3, &[0, 1], "@bash ls -la", (2, "v1.1", 0.2, 300, 2_000.0)),
            slate(4, &[0, 1], "git status", (0, "v1.1", 0.2, 300, 20_000.0)),
            slate(5, &[0], "@claude", (0, "v1.1", 0.2, 300, 1_000.0)),
        ])
        .await;
    service
}

#[tokio::test]
async fn suggestions_belong_to_the_block_that_the_users_input_becomes() {
    let service = Service::open().await;
    let address = fetched(&service, &["@claude explain", "@bash ls"], &json!({})).await;
    let pending = service.get(&address).await.expect(200);
    assert_eq!(
        json!([pending["state"], pending["trigger_block_number"], pending["result_block_number"]]),
        json!(["pending", 4, null])
    );
    let ended = submit(&service, &address, "@bash ls").await;
    assert_eq!(json!([ended["state"], ended["accepted_index"]]), json!(["finalized", 1]));
    let block = json!({"result_block_number": 5});
    let linked = service.call(Method::PATCH, &address, &[], Some(&block)).await.expect(200);
    assert_eq!(json!([linked["trigger_block_number"], linked["result_block_number"]]), json!([4, 5]));
}

#[tokio::test]
async fn every_field_of_the_record_is_kept_under_its_name() {
    let service = Service::open().await;
    let printed = record();
    let fields = json!({"context": printed["context"], "llm_request": printed["llm_request"],
        "llm_response": printed["llm_response"], "suggestion_node_version": "v1.0", "suggestions": printed["suggestions"],
        "cycle_count": 4, "viewed_indices": [0, 1, 2, 1, 0], "displayed_index_at_submit": 0, "accepted_index": 0,
        "actual_input": "@claude explain this error", "match_type": "exact", "fetch_start_ts": 1000.25,
        "fetch_end_ts": 1001.5, "submit_ts": 1002.5, "time_to_action_ms": 1000.0, "session_name": "my-project",
        "server_name": "local", "trigger_block_number": 5, "result_block_number": 6, "context_block_count": 2});
    let id = service.create(SLATES, fields.clone()).await;
    let kept = service.get(&format!("{SLATES}/{id}")).await.expect(200);
    for (name, value) in fields.as_object().expect("an object") {
        assert_eq!(&kept[name], value, "{name}");
    }
}

#[tokio::test]
async fn a_record_with_nothing_but_the_dataclasss_own_defaults_is_taken() {
    let service = Service::open().await;
    let defaults = json!({"context": {}, "llm_request": null, "llm_response": null, "suggestion_node_version": null,
        "suggestions": [], "cycle_count": 0, "viewed_indices": [], "displayed_index_at_submit": -1, "accepted_index": null,
        "actual_input": "", "match_type": "none", "fetch_start_ts": 0.0, "fetch_end_ts": 0.0, "submit_ts": 0.0,
        "time_to_action_ms": 0.0, "session_name": "", "server_name": "", "trigger_block_number": -1,
        "result_block_number": null, "context_block_count": 0});
    let kept = service.post(SLATES, &defaults).await.expect(201);
    assert_eq!(json!([kept["session_name"], kept["server_name"]]), json!([null, null]));
}

#[tokio::test]
async fn a_match_is_exact_partial_prefix_or_none() {
    let service = Service::open().await;
    for (input, match_type, index) in [
        ("@bash cat logs.txt", "exact", json!(1)),
        ("@bash cat logs.txt | tail", "partial", json!(1)),
        ("@bash cat", "prefix", json!(1)),
        ("git status", "none", json!(null)),
    ] {
        let address = fetched(&service, &["@claude explain", "@bash cat logs.txt"], &json!({})).await;
        let ended = submit(&service, &address, input).await;
        assert_eq!((&ended["match_type"], &ended["accepted_index"]), (&json!(match_type), &index), "{input}");
    }
}

#[tokio::test]
async fn the_blocks_metadata_is_the_lightweight_object_of_five_keys() {
    let service = Service::open().await;
    let address = fetched(&service, &["@claude explain", "@bash ls"], &json!({})).await;
    for direction in ["next", "prev"] {
        cycle(&service, &address, direction).await;
    }
    let outcome = json!({"actual_input": "@claude explain", "time_to_action_ms": 1234.5});
    service.post(&format!("{address}/finalize"), &outcome).await.expect(200);
    let metadata = service.get(&format!("{address}/block-metadata")).await.expect(200);
    let printed = json!({"suggestions": ["@claude explain", "@bash ls"], "accepted_index": 0, "match_type": "exact",
        "cycle_count": 2, "time_to_action_ms": 1234.5});
    assert_eq!(metadata, printed);
}

#[test]
fn the_printed_record_is_imported_as_printed_and_exported_as_one_line_that_holds_all_of_it() {
    let folder = folder();
    let place = folder.path().join("suggestion_history.jsonl");
    let another = with(record(), &json!({"session": "debug-session", "server": "prod-server"}));
    std::fs::write(&place, format!("{RECORD}{another}\n{RECORD}")).expect("writes");
    for summary in ["accepted 3, duplicates 0, rejected 0\n", "accepted 0, duplicates 3, rejected 0\n"] {
        let output = run(gleaner(&folder).arg("import").arg(&place), 0);
        assert_eq!(String::from_utf8(output.stdout).expect("text"), summary);
    }
    let exported = run(gleaner(&folder).args(["export", "suggestion-history"]), 0);
    let exported = String::from_utf8(exported.stdout).expect("text");
    let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines, [record(), another, record()]);
    let server = ["export", "suggestion-history", "--server", "prod-server"];
    let exported = run(gleaner(&folder).args(server), 0);
    assert_eq!(String::from_utf8(exported.stdout).expect("text").lines().count(), 1);
}

#[tokio::test]
async fn the_printed_record_is_taken_as_the_body_of_a_request() {
    let service = Service::open().await;
    let made = service.post_text(SLATES, "application/json", RECORD).await.expect(201);
    assert_eq!(
        json!([made["match_type"], made["session_name"], made["result_block_number"], made["total_tokens"]]),
        json!(["exact", "my-project", 6, 200])
    );
}

#[tokio::test]
async fn nothing_is_recorded_of_those_who_have_not_opted_in() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"capture": {"suggestions": "off"}})).await.expect(200);
    assert_eq!(service.post_text(SLATES, "application/json", RECORD).await.status, 204);
    let summary = service.events(&[record()]).await.expect(200);
    assert_eq!(summary, json!({"accepted": 0, "duplicates": 0, "skipped": 1, "rejected": []}));
    assert!(!service.dump().await.contains("explain"));
}

#[tokio::test]
async fn the_call_of_the_model_can_be_made_again_from_what_is_kept_of_it() {
    let service = Service::open().await;
    let address = fetched(&service, &["@claude explain"], &json!({})).await;
    let kept = service.get(&address).await.expect(200);
    let printed = record();
    assert_eq!(
        (&kept["llm_request"], &kept["llm_response"], &kept["suggestion_node_version"]),
        (&printed["llm_request"], &printed["llm_response"], &json!("v1.0"))
    );
    // A node that does not tell how it called the model is no less recorded.
    let bare = json!({"context": {"blocks": [{}]}, "suggestions": ["ls"]});
    let kept = service.post(SLATES, &bare).await.expect(201);
    assert_eq!(
        json!([kept["llm_request"], kept["llm_response"], kept["context_block_count"]]),
        json!([null, null, 1])
    );
}

#[tokio::test]
async fn the_first_suggestion_is_viewed_when_the_suggestions_arrive() {
    let service = Service::open().await;
    for (suggestions, viewed) in [(&["a", "b"][..], json!([0])), (&[], json!([]))] {
        let pending = service.post(SLATES, &slate(suggestions)).await.expect(201);
        assert_eq!(json!([pending["viewed_indices"], pending["cycle_count"]]), json!([viewed, 0]));
        assert_eq!(pending["context_block_count"], 2);
    }
}

#[tokio::test]
async fn a_fetch_that_failed_is_recorded_with_its_error_to_find_out_why() {
    let service = Service::open().await;
    let failed = json!({"id": Uuid::from_u128(1), "error": "timed out"});
    fetched(&service, &[], &failed).await;
    fetched(&service, &["a"], &json!({})).await;
    let listed = service.all(&format!("{SLATES}?failed=true")).await;
    assert_eq!(column(&listed, "error"), ["timed out"]);
    let figures = service.get(FIGURES).await.expect(200);
    assert_eq!(json!([figures["fetches"], figures["failed"]["count"]]), json!([2, 1]));
}

#[tokio::test]
async fn cycling_goes_round_in_both_directions_and_each_step_is_a_view() {
    let service = Service::open().await;
    let address = fetched(&service, &["a", "b", "c"], &json!({})).await;
    for (direction, viewed) in [
        ("next", json!([0, 1])),
        ("next", json!([0, 1, 2])),
        ("next", json!([0, 1, 2, 0])),
        ("prev", json!([0, 1, 2, 0, 2])),
        ("prev", json!([0, 1, 2, 0, 2, 1])),
    ] {
        let record = cycle(&service, &address, direction).await;
        assert_eq!(record["viewed_indices"], viewed);
        assert_eq!(
            json!(record["viewed_indices"].as_array().map(|all| all.len() - 1)),
            record["cycle_count"]
        );
    }
    let ended = submit(&service, &address, "b").await;
    assert_eq!(json!([ended["displayed_index_at_submit"], ended["cycle_count"]]), json!([1, 5]));
}

#[tokio::test]
async fn without_suggestions_there_is_nothing_to_cycle_through() {
    let service = Service::open().await;
    let address = fetched(&service, &[], &json!({})).await;
    let record = cycle(&service, &address, "next").await;
    assert_eq!(json!([record["viewed_indices"], record["cycle_count"]]), json!([[], 0]));
}

#[tokio::test]
async fn the_time_to_think_runs_from_the_arrival_of_the_suggestions_to_the_submit() {
    let service = Service::open().await;
    // A monotonic clock, as the seed's.
    let clock = json!({"fetch_start_ts": 1000.0, "fetch_end_ts": 1000.25});
    let address = fetched(&service, &["a"], &clock).await;
    let outcome = json!({"actual_input": "a", "submit_ts": 1002.75});
    let ended = service.post(&format!("{address}/finalize"), &outcome).await.expect(200);
    assert_eq!(ended["time_to_action_ms"], 2500.0);
}

#[tokio::test]
async fn a_colon_command_drops_the_pending_record_and_is_tracked_nowhere() {
    let service = Service::open().await;
    let address = fetched(&service, &["a"], &json!({})).await;
    assert_eq!(submit(&service, &address, ":export").await, json!({"state": "discarded"}));
    assert_eq!(service.get(FIGURES).await.expect(200)["fetches"], 0);
    assert!(service.get("/v1/exports/suggestion-history").await.rows().is_empty());
}

#[tokio::test]
async fn a_record_is_finalized_once_and_only_if_one_is_pending() {
    let service = Service::open().await;
    let none = format!("{SLATES}/{}/finalize", Uuid::from_u128(404));
    service.post(&none, &json!({"actual_input": "a"})).await.refused(404, &[]);
    let address = fetched(&service, &["a"], &json!({})).await;
    let ended = submit(&service, &address, "a").await;
    assert_eq!(submit(&service, &address, "a").await, ended);
    service.post(&format!("{address}/finalize"), &json!({"actual_input": "b"})).await.refused(409, &[]);
}

#[tokio::test]
async fn the_figures_say_what_share_of_suggestions_is_accepted_and_how() {
    let figures = five().await.get(FIGURES).await.expect(200);
    assert_eq!(
        json!([figures["records"], figures["accepted"], figures["acceptance_rate"]]),
        json!([5, 4, 0.8])
    );
    let count = |kind: &str| figures["by_match_type"][kind]["count"].clone();
    assert_eq!(["exact", "partial", "prefix", "none"].map(count), [2, 1, 1, 1].map(Value::from));
}

#[tokio::test]
async fn the_figures_say_how_long_users_think() {
    let figures = five().await.get(FIGURES).await.expect(200);
    let think = &figures["think_time"];
    assert_eq!(json!([think["count"], think["mean_ms"], think["p50_ms"]]), json!([5, 5500.0, 2000.0]));
}

#[tokio::test]
async fn the_figures_say_whether_users_browse_before_they_decide() {
    let figures = five().await.get(FIGURES).await.expect(200);
    let cycles = &figures["cycles"];
    assert_eq!(json!([cycles["mean"], cycles["most"], cycles["browsed"]["count"]]), json!([1.2, 4, 3]));
}

#[tokio::test]
async fn the_figures_say_which_position_is_accepted_most() {
    let figures = five().await.get(FIGURES).await.expect(200);
    let positions = figures["by_position"].as_array().expect("positions");
    let row = |own: &Value| json!([own["position"], own["shown"], own["accepted"]]);
    assert_eq!(positions.iter().map(row).collect::<Value>(), json!([[0, 5, 3], [1, 3, 1], [2, 1, 0]]));
}

#[tokio::test]
async fn the_figures_say_whether_more_context_makes_better_suggestions() {
    let groups = groups(&five().await, "context_block_count").await;
    assert_eq!(groups, json!([[2, 3, 1.0], [0, 2, 0.5]]));
}

/// The groups of the figures: value, records, and acceptance rate.
async fn groups(service: &Service, by: &str) -> Value {
    let figures = service.get(&format!("{FIGURES}?group_by={by}")).await.expect(200);
    let row = |own: &Value| json!([own["group"], own["records"], own["acceptance_rate"]]);
    figures["groups"].as_array().expect("groups").iter().map(row).collect()
}

#[tokio::test]
async fn the_figures_say_how_often_all_suggestions_are_ignored() {
    let figures = five().await.get(FIGURES).await.expect(200);
    assert_eq!(json!([figures["ignored"]["count"], figures["ignored"]["share"]]), json!([1, 0.2]));
}

#[tokio::test]
async fn each_negative_signal_is_counted_and_lists_its_records() {
    let service = five().await;
    let counted = &service.get(FIGURES).await.expect(200)["negative_signals"];
    for (signal, expected) in [
        ("viewed_rejected", vec![4, 3, 2]),
        ("slow_rejection", vec![4]),
        ("many_cycles", vec![2]),
        ("partial", vec![3]),
        ("cycled_back", vec![2]),
    ] {
        let mut ids = column(&service.all(&format!("{SLATES}/negative-signals?signal={signal}")).await, "id");
        ids.sort_by_key(|id| std::cmp::Reverse(id.to_string()));
        assert_eq!(counted[signal], expected.len(), "{signal}");
        let expected: Vec<_> = expected.into_iter().map(|number| json!(Uuid::from_u128(number))).collect();
        assert_eq!(ids, expected, "{signal}");
    }
}

#[tokio::test]
async fn exact_matches_are_examples_from_context_to_input() {
    let service = five().await;
    let rows = service.get("/v1/exports/accepted-suggestions?prompt=context").await.rows();
    let context = r#"{"blocks":[{"input":"make","output":"ok","success":true},{"input":"make","output":"ok","success":true}]}"#;
    let example = json!({"messages": [{"role": "user", "content": context}, {"role": "assistant", "content": "@claude explain"}]});
    assert_eq!(rows, [example.clone(), example]);
    let raw = service.get("/v1/exports/accepted-suggestions?format=raw").await.rows();
    assert_eq!(raw[0]["context"]["blocks"][0]["input"], "make");
}

#[tokio::test]
async fn slates_with_what_was_accepted_train_a_ranking() {
    let service = five().await;
    let rows = service.get("/v1/exports/rankings?format=raw&match_type=exact").await.rows();
    let labels = |row: &Value| column(row["candidates"].as_array().expect("candidates"), "label");
    assert_eq!(labels(&rows[0]), [2], "what was not viewed has no grade");
    assert_eq!(labels(&rows[1]), [2, 0, 0]);
}

#[tokio::test]
async fn the_accepted_suggestion_is_preferred_to_those_that_were_viewed_and_rejected() {
    let service = five().await;
    let rows = service.get("/v1/exports/preference-pairs").await.rows();
    let pairs: Value =
        rows.iter().map(|row| json!([row["chosen"][0]["content"], row["rejected"][0]["content"]])).collect();
    assert_eq!(pairs, json!([["@claude explain", "@bash ls"], ["@claude explain", "@python run"]]));
}

#[tokio::test]
async fn acceptance_is_told_by_the_temperature_and_by_every_other_parameter_of_the_model() {
    let service = five().await;
    for by in ["temperature", "llm:temperature"] {
        let groups = groups(&service, by).await;
        let [low, high] = [&groups[0], &groups[1]];
        assert_eq!(json!([low[0], low[1], high[0], high[2]]), json!([0.2, 3, 0.7, 1.0]), "{by}");
    }
    assert_eq!(groups(&service, "llm:max_tokens").await, json!([[256, 5, 0.8]]));
    assert_eq!(groups(&service, "llm:top_p").await, json!([[null, 5, 0.8]]));
}

#[tokio::test]
async fn two_versions_of_the_prompt_are_compared() {
    let service = five().await;
    let compared = service.get(&format!("{FIGURES}/compare?a=v1.0&b=v1.1")).await.expect(200);
    assert_eq!(json!([compared["a"]["records"], compared["b"]["records"]]), json!([2, 3]));
    assert!(compared["difference"].as_f64().is_some_and(|difference| difference > 0.33), "{compared}");
}

#[tokio::test]
async fn the_cost_of_a_suggestion_is_told_by_prompt_and_completion() {
    let service = five().await;
    let tokens = service.get(FIGURES).await.expect(200)["tokens"].take();
    let cost =
        |total: i64, per_accepted: f64| json!({"total": total, "records": 5, "per_accepted": per_accepted});
    let expected =
        with(cost(1450, 362.5), &json!({"prompt": cost(1200, 300.0), "completion": cost(250, 62.5)}));
    assert_eq!(tokens, expected);
    assert_eq!(groups(&service, "completion_tokens").await, json!([[50, 5, 0.8]]));
    let by_prompt = groups(&service, "prompt_tokens").await;
    assert_eq!(json!([by_prompt[0][0], by_prompt[1][0], by_prompt[1][2]]), json!([300, 150, 1.0]));
}

#[tokio::test]
async fn it_is_known_how_long_each_suggestion_was_looked_at() {
    let service = Service::open().await;
    let address = fetched(&service, &["a", "b"], &json!({"fetch_end_ts": 1_704_067_200.0})).await;
    let view = json!({"direction": "next", "at": 1_704_067_201.5});
    service.post(&format!("{address}/views"), &view).await.expect(201);
    let outcome = json!({"actual_input": "b", "submit_ts": 1_704_067_202.0});
    let ended = service.post(&format!("{address}/finalize"), &outcome).await.expect(200);
    assert_eq!(column(ended["views"].as_array().expect("views"), "dwell_ms"), [1500.0, 500.0]);
}

#[tokio::test]
async fn what_the_user_typed_on_the_way_is_kept() {
    let service = Service::open().await;
    let address = fetched(&service, &["@claude explain"], &json!({})).await;
    let typed =
        json!({"inputs": [{"text": "@", "at": 1_704_067_201.0}, {"text": "@cl", "at": 1_704_067_201.5}]});
    service.post(&format!("{address}/partial-inputs"), &typed).await.expect(201);
    let kept = service.get(&address).await.expect(200);
    assert_eq!(column(kept["partial_inputs"].as_array().expect("inputs"), "text"), ["@", "@cl"]);
}

#[tokio::test]
async fn a_sessions_history_is_deleted_without_that_of_its_namesake_on_another_server() {
    let service = Service::open().await;
    let on = |server: &str, session: &str| with(record(), &json!({"server": server, "session": session}));
    service
        .accept(&[
            on("local", "my-project"),
            on("prod-server", "my-project"),
            on("prod-server", "debug-session"),
        ])
        .await;
    let sessions = service.all("/v1/sessions?server=prod-server").await;
    assert_eq!(sessions.len(), 2);
    let erased = service.delete("/v1/sessions/my-project?server=local").await.expect(200);
    assert_eq!(erased["suggestions"], 1);
    let left = service.get("/v1/exports/suggestion-history").await.rows();
    let mut left: Vec<_> =
        left.iter().map(|row| json!([row["server"], row["session"]]).to_string()).collect();
    left.sort();
    assert_eq!(left, [r#"["prod-server","debug-session"]"#, r#"["prod-server","my-project"]"#]);
    let figures =
        service.get(&format!("{FIGURES}?server_name=prod-server&group_by=session")).await.expect(200);
    assert_eq!((&figures["records"], figures["groups"].as_array().map(Vec::len)), (&json!(2), Some(2)));
}

#[tokio::test]
async fn the_histories_of_all_sessions_are_one_set_to_train_on() {
    let service = Service::open().await;
    let histories: Vec<_> =
        ["a", "b", "c"].map(|session| with(record(), &json!({"session": session})).to_string()).into();
    let summary =
        service.post_text("/v1/events", "application/x-ndjson", histories.join("\n")).await.expect(200);
    assert_eq!(summary["accepted"], 3);
    let rows = service.get("/v1/exports/suggestion-history").await.rows();
    assert_eq!(column(&rows, "session").len(), 3);
}
