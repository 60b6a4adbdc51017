//! Seed 004 from top to bottom: what each of its sections asks for. The agents' transcripts are in the form that it prints.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{Failed, Timestamp, expire};
use crate::support::server::{Server, folder, gleaner, run};
use crate::support::{Service, column, encoded, with};

/// The name of the seed's search tool.
const SEARCH: &str = "mcp__ultrasync__jit_search";

/// A line of a transcript, so many seconds after ten.
fn line(kind: &str, at: u32, content: &Value) -> Value {
    let time = format!("2026-03-01T10:{:02}:{:02}.000Z", at / 60, at % 60);
    json!({"type": kind, "sessionId": "s", "cwd": "/src/app", "timestamp": time, "message": {"role": kind, "content": content}})
}

fn user(at: u32, text: &str) -> Value {
    line("user", at, &json!(text))
}

/// A use of a tool, and a second later its result.
fn tool(at: u32, name: &str, input: &Value, result: &Value) -> [Value; 2] {
    let id = format!("t{at}");
    let content = if result.is_string() {
        result.clone()
    } else {
        json!([{"type": "text", "text": result.to_string()}])
    };
    [
        line("assistant", at, &json!([{"type": "tool_use", "id": id, "name": name, "input": input}])),
        line("user", at + 1, &json!([{"type": "tool_result", "tool_use_id": id, "content": content}])),
    ]
}

fn search(at: u32, query: &str, results: &Value) -> [Value; 2] {
    tool(at, SEARCH, &json!({"query": query}), &json!({"results": results}))
}

fn read(at: u32, file: &str) -> [Value; 2] {
    tool(at, "Read", &json!({"file_path": file}), &json!("1\tthe file"))
}

/// The first scenario of section 7.
fn component_discovery() -> Vec<Value> {
    let weak = json!([{"score": 0.42, "file": "Button.tsx"}]);
    let mut lines = vec![user(0, "find the login button component")];
    lines.extend(search(2, "login button component", &weak));
    let found = json!("Found 1 file\nsrc/features/auth/LoginButton.tsx");
    lines.extend(tool(4, "Grep", &json!({"pattern": "login.*button", "type": "tsx"}), &found));
    lines.extend(read(6, "src/features/auth/LoginButton.tsx"));
    lines.push(user(30, "great, now update the styling"));
    lines
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

/// Sends lines as a watcher does.
async fn watch(service: &Service, lines: &[Value]) -> Value {
    let path = "/v1/transcripts?agent=claude-code&source=s.jsonl";
    service.post_text(path, "application/x-ndjson", text(lines)).await.expect(200)
}

/// The first search, whole.
async fn first(service: &Service) -> Value {
    let searches = service.all("/v1/searches").await;
    let id = searches.last().expect("a search")["id"].as_str().expect("an id");
    service.get(&format!("/v1/searches/{id}")).await.expect(200)
}

async fn associations(service: &Service, query: &str) -> Vec<Value> {
    let found = service.get(&format!("/v1/associations?query={}", encoded(query))).await.expect(200);
    found["data"].as_array().expect("data").clone()
}

async fn figures(service: &Service) -> Value {
    service.get("/v1/analytics/searches").await.expect(200)
}

// 1. The search session.

#[tokio::test]
async fn section_1_1_a_session_keeps_query_time_best_score_count_reads_patterns_and_whether_it_was_resolved()
{
    let service = Service::open().await;
    watch(&service, &component_discovery()).await;
    let session = first(&service).await;
    assert_eq!(
        ["query", "timestamp", "best_score", "result_count", "state", "ended_at"]
            .map(|name| session[name].clone()),
        [
            json!("login button component"),
            json!("2026-03-01T10:00:02.000000Z"),
            json!(0.42),
            json!(1),
            json!("resolved"),
            json!("2026-03-01T10:00:30.000000Z"),
        ]
    );
    assert!(session["id"].is_string());
    let fallbacks = session["fallbacks"].as_array().expect("fallbacks");
    assert_eq!(column(fallbacks, "pattern"), [json!("login.*button"), Value::Null]);
    assert_eq!(column(fallbacks, "path"), [Value::Null, json!("src/features/auth/LoginButton.tsx")]);
}

#[tokio::test]
async fn section_1_2_a_session_lives_from_the_weak_search_to_the_users_next_message() {
    let service = Service::open().await;
    let lines = component_discovery();
    let mut states = Vec::new();
    for line in &lines {
        watch(&service, std::slice::from_ref(line)).await;
        let searches = service.all("/v1/searches").await;
        states.push(searches.first().map_or(Value::Null, |search| search["state"].clone()));
    }
    let (none, tracking) = (Value::Null, json!("tracking"));
    // Results of tools stand in lines of type `user`, too: they end nothing.
    let following = std::iter::repeat_n(tracking, 5);
    let expected: Vec<_> =
        [none.clone(), none].into_iter().chain(following).chain([json!("resolved")]).collect();
    assert_eq!(states, expected);
}

#[tokio::test]
async fn section_1_3_a_session_expires_after_sixty_seconds_of_silence_or_as_many_as_are_set() {
    let service = Service::open().await;
    for (query, window, silence, state) in [
        ("just in time", None, 60, "resolved"),
        ("too late", None, 61, "timed_out"),
        ("a short window", Some(10), 11, "timed_out"),
        ("a long window", Some(300), 299, "resolved"),
    ] {
        let settings = json!({"searches": {"session_timeout": window}});
        service.put("/v1/projects/default", &settings).await.expect(200);
        let mut lines = vec![user(0, query)];
        lines.extend(search(2, query, &json!([])));
        lines.extend(read(3 + silence, "/src/app/a.rs"));
        lines.push(user(5 + silence, "thanks"));
        let lines: Vec<_> = lines.into_iter().map(|line| with(line, &json!({"sessionId": query}))).collect();
        let path = format!("/v1/transcripts?agent=claude-code&source={}", encoded(query));
        service.post_text(&path, "application/x-ndjson", text(&lines)).await.expect(200);
        let found = service.all(&format!("/v1/searches?agent_session_id={}", encoded(query))).await;
        assert_eq!(column(&found, "state"), [state], "{query}");
    }
}

#[tokio::test]
async fn section_1_3_a_session_of_which_nothing_more_is_heard_expires_by_itself() {
    let service = Service::open().await;
    watch(&service, &component_discovery()[..3]).await;
    assert_eq!(first(&service).await["state"], "tracking");
    let later = Timestamp::now().plus(chrono::TimeDelta::seconds(62)).expect("a time");
    expire(service.pool(), service.keyring(), &mut Failed::default(), later).await.expect("looks");
    assert_eq!(first(&service).await["state"], "timed_out");
}

// 2. The transcripts.

#[tokio::test]
async fn section_2_1_the_tools_of_the_index_and_the_fallback_tools_are_detected() {
    let service = Service::open().await;
    let mut lines = vec![user(0, "where is the session kept?")];
    lines.extend(search(2, "session store", &json!([])));
    lines.extend(tool(4, "Grep", &json!({"pattern": "sessionStore"}), &json!("Found 1 file\nsrc/a.rs")));
    lines.extend(tool(6, "Glob", &json!({"pattern": "**/session*"}), &json!("src/b.rs")));
    lines.extend(read(8, "/src/app/src/b.rs"));
    lines.extend(tool(
        10,
        "mcp__ultrasync__jit_index_file",
        &json!({"path": "/src/app/src/c.rs"}),
        &json!("indexed"),
    ));
    let symbol = json!({"name": "SessionStore", "source_code": "struct SessionStore;", "file_path": "/src/app/src/d.rs"});
    lines.extend(tool(12, "mcp__ultrasync__jit_add_symbol", &symbol, &json!("added")));
    lines.extend(tool(14, "TodoWrite", &json!({"todos": []}), &json!("done")));
    lines.push(user(30, "thanks"));
    watch(&service, &lines).await;
    let session = first(&service).await;
    let fallbacks = session["fallbacks"].as_array().expect("fallbacks");
    assert_eq!(column(fallbacks, "kind"), ["grep", "glob", "read", "index", "index"]);
    // What the agent indexed by hand is evidence, and more of it than what it merely read.
    let mut found = column(session["associations"].as_array().expect("some"), "path");
    assert_eq!(found.pop(), Some(json!("src/b.rs")));
    found.sort_by_key(Value::to_string);
    assert_eq!(found, ["src/c.rs", "src/d.rs"]);
}

#[tokio::test]
async fn section_2_2_a_tool_call_has_a_name_an_input_a_result_where_there_is_one_and_a_time() {
    let service = Service::open().await;
    let mut lines = component_discovery();
    // The result of the read never comes: what is not known to have worked teaches nothing.
    let read = lines.remove(6);
    let counts = watch(&service, &lines).await;
    assert_eq!(
        ["tool_uses", "tool_results", "matched"].map(|name| counts[name].clone()),
        [json!(3), json!(2), json!(2)]
    );
    assert_eq!(first(&service).await["state"], "unresolved");
    // Its time is the line's, however late it comes.
    let counts = watch(&service, &[read]).await;
    assert_eq!(counts["matched"], 1);
    assert_eq!(first(&service).await["state"], "unresolved");
}

// 3. Learning.

#[tokio::test]
async fn section_3_1_only_searches_under_the_threshold_are_followed() {
    let service = Service::open().await;
    for (score, started) in [(0.649, 1), (0.65, 0), (0.9, 0)] {
        let results = json!([{"score": score, "file": "Button.tsx"}]);
        let lines = search(2, &format!("scored {score}"), &results);
        let lines: Vec<_> = lines
            .into_iter()
            .map(|line| {
                let text = line.to_string().replace("\"t2\"", &format!("\"{score}\""));
                serde_json::from_str::<Value>(&text).expect("JSON")
            })
            .collect();
        assert_eq!(watch(&service, &lines).await["searches_started"], started, "{score}");
    }
    let nothing = search(4, "without results", &json!([]));
    assert_eq!(watch(&service, &nothing).await["searches_started"], 1);
    assert_eq!(figures(&service).await["sessions_started"], 2);
}

#[tokio::test]
async fn section_3_1_the_best_score_is_that_of_the_best_result_whatever_the_order() {
    let service = Service::open().await;
    let results = json!([{"score": 0.2, "file": "a.rs"}, {"score": 0.8, "file": "b.rs"}]);
    assert_eq!(watch(&service, &search(2, "login", &results)).await["searches_started"], 0);
    assert_eq!(first(&service).await["best_score"], 0.8);
}

#[tokio::test]
async fn section_3_1_a_read_counts_for_every_session_that_is_open() {
    let service = Service::open().await;
    let mut lines = vec![user(0, "where?")];
    lines.extend(search(2, "login button", &json!([])));
    lines.extend(search(4, "button of the login", &json!([])));
    lines.extend(read(6, "/src/app/LoginButton.tsx"));
    lines.push(user(30, "thanks"));
    assert_eq!(watch(&service, &lines).await["searches_resolved"], 2);
    let paths = column(&associations(&service, "login button").await, "path");
    assert_eq!(paths, ["LoginButton.tsx", "LoginButton.tsx"]);
}

#[tokio::test]
async fn section_3_1_a_session_needs_as_many_reads_as_are_set() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"searches": {"min_fallback_reads": 2}})).await.expect(200);
    watch(&service, &component_discovery()).await;
    assert_eq!(first(&service).await["state"], "unresolved");
}

#[tokio::test]
async fn section_3_1_the_end_of_a_turn_resolves_every_session_that_is_open() {
    let service = Service::open().await;
    for (query, path) in [("login button", "a.rs"), ("logout button", "b.rs")] {
        let search =
            json!({"query": query, "best_score": 0.3, "agent_session_id": "s", "timestamp": 1_767_225_600});
        let id = service.create("/v1/searches", search).await;
        let read = json!({"kind": "read", "path": path, "timestamp": 1_767_225_601});
        service.post(&format!("/v1/searches/{id}/fallbacks"), &read).await.expect(201);
    }
    let end = json!({"agent_session_id": "s", "timestamp": 1_767_225_602});
    let ended = service.post("/v1/searches/turn-end", &end).await.expect(200);
    assert_eq!(column(ended["searches"].as_array().expect("searches"), "state"), ["resolved", "resolved"]);
    assert_eq!(figures(&service).await["active_sessions"], 0);
}

#[tokio::test]
async fn section_3_1_a_file_that_does_not_exist_is_not_learned() {
    let service = Service::open().await;
    let mut lines = component_discovery();
    let content = json!([{"type": "tool_result", "tool_use_id": "t6", "content": "File does not exist.", "is_error": true}]);
    lines[6] = line("user", 7, &content);
    watch(&service, &lines).await;
    assert_eq!(associations(&service, "login button").await, [] as [Value; 0]);
}

#[tokio::test]
async fn section_3_2_an_association_links_the_query_to_the_file_and_similar_queries_find_it() {
    let service = Service::open().await;
    watch(&service, &component_discovery()).await;
    for query in ["login button component", "login button", "the button for the login"] {
        let found = associations(&service, query).await;
        assert_eq!(column(&found, "path"), ["src/features/auth/LoginButton.tsx"], "{query}");
        assert_eq!(column(&found, "query"), ["login button component"], "{query}");
    }
    assert_eq!(associations(&service, "invoice total").await, [] as [Value; 0]);
}

#[tokio::test]
async fn section_3_2_an_index_elsewhere_can_take_the_associations_in() {
    let service = Service::open().await;
    watch(&service, &component_discovery()).await;
    let changes = service.get("/v1/associations/changes").await.rows();
    let change = &changes[0];
    assert_eq!(
        ["kind", "query", "root", "path"].map(|name| change[name].clone()),
        ["learned", "login button component", "/src/app", "src/features/auth/LoginButton.tsx"]
            .map(|text| json!(text))
    );
}

// 4. The watcher.

/// A folder of transcripts with the first scenario in it.
fn transcripts(folder: &TempDir) -> std::path::PathBuf {
    let place = folder.path().join("projects");
    fs::create_dir_all(&place).expect("a folder");
    fs::write(place.join("s.jsonl"), text(&component_discovery())).expect("writes");
    place
}

fn watch_folder(folder: &TempDir, place: &Path, options: &[&str], variables: &[(&str, &str)]) {
    if !options.contains(&"--url") {
        run(gleaner(folder).arg("migrate"), 0);
    }
    let mut command = gleaner(folder);
    command.args(["watch", "--once"]).args(options).arg(place).envs(variables.iter().copied());
    run(&mut command, 0);
}

/// What a server has learned for the seed's first query: how many sessions it followed, and how many associations there are.
async fn learned(server: &Server) -> (Value, Value) {
    let (_, figures) = server.get("/v1/analytics/searches").await;
    (figures["sessions_started"].clone(), figures["associations_created"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sections_4_1_and_6_2_a_watcher_learns_unless_it_is_told_not_to_and_what_it_only_counted_can_still_be_learned()
 {
    let folder = folder();
    let place = transcripts(&folder);
    watch_folder(&folder, &place, &["--no-learn"], &[]);
    let server = Server::start(&folder);
    let url = format!("http://{}", server.address);
    assert_eq!(learned(&server).await, (json!(0), json!(0)));
    watch_folder(&folder, &place, &["--no-learn", "--url", &url], &[]);
    assert_eq!(learned(&server).await, (json!(0), json!(0)));
    watch_folder(&folder, &place, &["--learn", "--url", &url], &[]);
    assert_eq!(learned(&server).await, (json!(1), json!(1)));
}

#[tokio::test]
async fn section_4_1_learning_can_be_disabled_while_watching_goes_on() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"searches": {"learn": false}})).await.expect(200);
    let counts = watch(&service, &component_discovery()).await;
    assert_eq!((&counts["matched"], &counts["searches_started"]), (&json!(3), &json!(1)));
    assert_eq!(associations(&service, "login button").await, [] as [Value; 0]);
    assert_eq!(figures(&service).await["enabled"], false);
}

#[tokio::test]
async fn section_4_2_a_line_that_is_no_json_or_has_no_list_as_content_yields_no_tool_calls() {
    let service = Service::open().await;
    let lines = [
        "{\"type\": \"assistant\", \"mess",
        "{\"type\": \"assistant\", \"message\": {\"content\": \"text\"}}",
        "{}",
        "[]",
    ];
    let path = "/v1/transcripts?agent=claude-code&source=s.jsonl";
    let counts = service.post_text(path, "application/x-ndjson", lines.join("\n")).await.expect(200);
    assert_eq!(
        (&counts["lines"], &counts["bad_lines"], &counts["tool_uses"]),
        (&json!(4), &json!(2), &json!(0))
    );
}

// 5. Statistics.

#[tokio::test]
async fn section_5_1_the_statistics_count_sessions_files_and_associations_and_keep_the_texts_of_errors() {
    let service = Service::open().await;
    let mut lines = component_discovery();
    lines.extend(search(40, "colour of the footer", &json!([])));
    lines.push(user(60, "never mind"));
    lines.extend(search(70, "size of the header", &json!([])));
    lines.extend(read(170, "/src/app/late.rs"));
    lines.extend(search(180, "shape of the page", &json!([])));
    watch(&service, &lines).await;
    let path = "/v1/transcripts?agent=claude-code&source=s.jsonl";
    service.post_text(path, "application/x-ndjson", "no JSON\n").await.expect(200);
    let figures = figures(&service).await;
    let counted = [
        "sessions_started",
        "sessions_resolved",
        "sessions_unresolved",
        "sessions_timeout",
        "active_sessions",
        "files_learned",
        "associations_created",
        "error_count",
    ];
    assert_eq!(counted.map(|name| figures[name].clone()), [4, 1, 1, 1, 1, 1, 1, 1].map(|count| json!(count)));
    let errors = json!(["new line 1 of a transcript of Claude Code, of 7 bytes, is not a JSON object"]);
    assert_eq!((&figures["errors"], &figures["enabled"]), (&errors, &json!(true)));
}

// 6. Configuration.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn section_6_1_the_environment_says_whether_is_learned_under_which_score_and_for_how_long() {
    for (variables, expected) in [
        (vec![("GLEANER_LEARN_FROM_SEARCH", "1"), ("GLEANER_LEARN_THRESHOLD", "0.65")], (1, 1)),
        (vec![("GLEANER_LEARN_FROM_SEARCH", "0")], (1, 0)),
        (vec![("GLEANER_LEARN_FROM_SEARCH", "off"), ("GLEANER_LEARN_TIMEOUT", "60")], (1, 0)),
        (vec![("GLEANER_LEARN_FROM_SEARCH", "yes"), ("GLEANER_LEARN_THRESHOLD", "0.4")], (0, 0)),
        (vec![("GLEANER_LEARN_TIMEOUT", "60")], (1, 1)),
        // The agent's steps are a second apart, which is no longer than this.
        (vec![("GLEANER_LEARN_TIMEOUT", "1")], (1, 1)),
    ] {
        let folder = folder();
        let place = transcripts(&folder);
        watch_folder(&folder, &place, &[], &variables);
        let server = Server::start(&folder);
        assert_eq!(learned(&server).await, (json!(expected.0), json!(expected.1)), "{variables:?}");
    }
}

#[test]
fn section_6_1_a_boolean_may_be_written_in_each_of_the_usual_ways() {
    let folder = folder();
    for (value, status) in [
        ("1", 1),
        ("0", 1),
        ("true", 1),
        ("False", 1),
        ("YES", 1),
        ("no", 1),
        ("on", 1),
        ("off", 1),
        ("maybe", 2),
    ] {
        for variable in ["GLEANER_LEARN_FROM_SEARCH", "GLEANER_LEARN_BUILTIN"] {
            // A key that is too short keeps the server from starting.
            let mut serve = gleaner(&folder);
            run(serve.args(["serve", "--admin-key", "short"]).env(variable, value), status);
        }
    }
}

// 7. The scenarios.

#[tokio::test]
async fn section_7_scenario_1_the_next_search_for_the_login_button_is_told_where_it_is() {
    let service = Service::open().await;
    watch(&service, &component_discovery()).await;
    let next = json!({"query": "login button", "best_score": 0.42, "result_count": 1, "root": "/src/app"});
    let next = service.post("/v1/searches", &next).await.expect(201);
    assert_eq!(
        column(next["hints"].as_array().expect("hints"), "path"),
        ["src/features/auth/LoginButton.tsx"]
    );
}

#[tokio::test]
async fn section_7_scenario_2_a_search_for_user_creation_finds_the_endpoint() {
    let service = Service::open().await;
    let mut lines = vec![user(0, "where's the user creation endpoint?")];
    lines.extend(search(2, "user creation endpoint", &json!([{"score": 0.38, "file": "src/users/list.ts"}])));
    let found = json!("Found 1 file\nsrc/api/routes/users.ts");
    lines.extend(tool(4, "Grep", &json!({"pattern": "createUser|user.*create", "type": "ts"}), &found));
    lines.extend(read(6, "src/api/routes/users.ts"));
    lines.push(user(30, "add validation to it"));
    watch(&service, &lines).await;
    assert_eq!(column(&associations(&service, "user creation").await, "path"), ["src/api/routes/users.ts"]);
}

// 8. The phases.

#[tokio::test]
async fn section_8_phase_2_old_associations_decay_and_are_still_found() {
    let service = Service::open().await;
    let now = chrono::Utc::now().timestamp();
    for (query, days) in [("login button", 0), ("invoice total", 30)] {
        let at = now - days * 86_400 - 60;
        let search = json!({"query": query, "best_score": 0.3, "agent_session_id": query, "timestamp": at});
        let id = service.create("/v1/searches", search).await;
        let read = json!({"kind": "read", "path": "a.rs", "timestamp": at + 1});
        service.post(&format!("/v1/searches/{id}/fallbacks"), &read).await.expect(201);
        service.post(&format!("/v1/searches/{id}/resolve"), &json!({"timestamp": at + 2})).await.expect(200);
    }
    let weight =
        async |query: &str| associations(&service, query).await[0]["weight"].as_f64().expect("a weight");
    let halved = weight("login button").await / weight("invoice total").await;
    assert!((halved - 2.0).abs() < 0.01, "{halved}");
}

#[tokio::test]
async fn section_8_phase_3_patterns_that_led_to_the_file_expand_similar_queries() {
    let service = Service::open().await;
    watch(&service, &component_discovery()).await;
    let expansions = service.get("/v1/searches/expansions?query=login%20button").await.expect(200);
    assert_eq!(column(expansions["data"].as_array().expect("data"), "pattern"), ["login.*button"]);
}

#[tokio::test]
async fn section_8_phase_3_an_explicit_correction_is_learned_from_the_transcript() {
    let service = Service::open().await;
    let mut lines = component_discovery();
    lines.pop();
    lines.push(user(30, "no, the other file: the one in the header"));
    lines.extend(read(32, "/src/app/src/header/LoginButton.tsx"));
    lines.extend(tool(
        34,
        "Edit",
        &json!({"file_path": "/src/app/src/header/LoginButton.tsx"}),
        &json!("edited"),
    ));
    lines.push(user(60, "thanks"));
    watch(&service, &lines).await;
    let found = associations(&service, "login button component").await;
    assert_eq!(column(&found, "path"), ["src/header/LoginButton.tsx"]);
}

#[tokio::test]
async fn section_8_phase_3_feedback_on_an_association_decides_whether_it_is_shown() {
    let service = Service::open().await;
    watch(&service, &component_discovery()).await;
    let id = associations(&service, "login button").await[0]["id"].as_str().expect("an id").to_owned();
    for _ in 0..3 {
        let verdict = json!({"verdict": "wrong"});
        service.post(&format!("/v1/associations/{id}/feedback"), &verdict).await.expect(200);
    }
    assert_eq!(associations(&service, "login button").await, [] as [Value; 0]);
    let changes = service.get("/v1/associations/changes").await.rows();
    assert_eq!(column(&changes, "kind"), ["refuted"]);
    for _ in 0..5 {
        let verdict = json!({"verdict": "useful"});
        service.post(&format!("/v1/associations/{id}/feedback"), &verdict).await.expect(200);
    }
    assert_eq!(associations(&service, "login button").await.len(), 1);
}

#[tokio::test]
async fn section_8_phase_3_a_right_result_with_a_low_score_rises() {
    let service = Service::open().await;
    let mut lines = vec![user(0, "find the login button")];
    let offered = json!([{"score": 0.42, "file": "src/Login.tsx"}, {"score": 0.4, "file": "src/Logout.tsx"}]);
    lines.extend(search(2, "login button", &offered));
    lines.extend(read(6, "/src/app/src/Login.tsx"));
    lines.push(user(30, "thanks"));
    watch(&service, &lines).await;
    assert_eq!(first(&service).await["state"], "resolved");
    assert_eq!(column(&associations(&service, "login button").await, "path"), ["src/Login.tsx"]);
}

// 10. Acceptance.

#[tokio::test]
async fn section_10_a_malformed_entry_costs_nothing_but_itself() {
    let service = Service::open().await;
    let lines = component_discovery().iter().map(Value::to_string).collect::<Vec<_>>();
    let broken: Vec<_> =
        lines.iter().flat_map(|line| ["\u{0}{", line, "[1]", "{\"type\": \"user\""]).collect();
    let path = "/v1/transcripts?agent=claude-code&source=s.jsonl";
    let counts = service.post_text(path, "application/x-ndjson", broken.join("\n")).await.expect(200);
    assert_eq!(
        ["bad_lines", "matched", "searches_resolved", "associations_created"]
            .map(|name| counts[name].clone()),
        // Three are malformed; each counts once.
        [json!(3), json!(3), json!(1), json!(1)]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn section_6_1_an_agent_that_is_silent_for_longer_than_the_timeout_has_found_nothing() {
    for (timeout, expected) in [("60", 1), ("5", 0)] {
        let folder = folder();
        let place = transcripts(&folder);
        let mut lines: Vec<_> =
            search(2, "login button component", &json!([{"score": 0.42, "file": "Button.tsx"}])).into();
        lines.extend(read(30, "src/features/auth/LoginButton.tsx"));
        lines.push(user(40, "great"));
        fs::write(place.join("s.jsonl"), text(&lines)).expect("writes");
        watch_folder(&folder, &place, &[], &[("GLEANER_LEARN_TIMEOUT", timeout)]);
        let server = Server::start(&folder);
        assert_eq!(learned(&server).await, (json!(1), json!(expected)), "{timeout}");
    }
}
