//! Hints: the one file that is worth opening now, by what is known of the session that asks, and mostly none.

use std::pin::pin;

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use super::{MIDNIGHT, find, weak};
use crate::support::{Service, assert_whole, column, encoded, with};

/// What happens in a session: a prompt, or a use of a tool with its input and answer.
enum Step {
    Prompt(&'static str),
    Call(&'static str, Value, Value),
}

use Step::{Call, Prompt};

/// A session in a folder, minutes after another; its steps are a second apart.
struct Session {
    name: &'static str,
    root: &'static str,
    minute: u32,
    steps: Vec<Step>,
}

/// The agent reads a file, in which this text is.
fn reads(path: &str, text: &str) -> Step {
    Call("Read", json!({ "file_path": path }), json!(text))
}

fn edits(path: &str, text: &str) -> Step {
    Call(
        "Edit",
        json!({"file_path": path, "old_string": "", "new_string": text}),
        json!("The file has been updated."),
    )
}

/// The agent runs a command, which prints this.
fn runs(command: &str, prints: &str) -> Step {
    Call("Bash", json!({ "command": command }), json!(prints))
}

impl Session {
    fn time(&self, second: usize) -> String {
        format!("2026-03-01T10:{:02}:{second:02}.000Z", self.minute)
    }

    /// Tells the session as its transcript does.
    async fn tell(&self, service: &Service) {
        let mut lines = Vec::new();
        let mut line = |kind: &str, content: Value| {
            let line = json!({"type": kind, "sessionId": self.name, "cwd": self.root, "timestamp": self.time(lines.len()),
                "message": {"role": kind, "content": content}});
            lines.push(line.to_string());
        };
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Prompt(text) => line("user", json!(text)),
                Call(tool, input, answer) => {
                    let id = format!("toolu_{}{number}", self.name);
                    line("assistant", json!([{"type": "tool_use", "id": id, "name": tool, "input": input}]));
                    line("user", json!([{"type": "tool_result", "tool_use_id": id, "content": answer}]));
                }
            }
        }
        let path = format!("/v1/transcripts?agent=claude-code&source={}", self.name);
        service.post_text(&path, "application/x-ndjson", lines.join("\n")).await.expect(200);
    }

    /// Tells the session as its hooks do.
    async fn report(&self, service: &Service) {
        for (number, step) in self.steps.iter().enumerate() {
            let common = json!({"session_id": self.name, "cwd": self.root});
            let event = match step {
                Prompt(text) => json!({"hook_event_name": "UserPromptSubmit", "prompt": text}),
                Call(tool, input, answer) => json!({"hook_event_name": "PostToolUse", "tool_name": tool,
                    "tool_use_id": format!("toolu_{}{number}", self.name), "tool_input": input,
                    "tool_response": {"stdout": answer}}),
            };
            service.post("/v1/hooks/claude-code", &with(common, &event)).await.expect(200);
        }
    }
}

/// A session that works on the store of sessions and reads some other files beside it.
fn first() -> Session {
    let steps = vec![
        Prompt("Sessions end too early"),
        reads("/src/app/src/auth/store.rs", "pub struct SessionStore { clock: Clock }"),
        reads("/src/app/src/auth/session.rs", "fn expire_session(store: &SessionStore) { sweep(store) }"),
        edits("/src/app/src/auth/session.rs", "fn expire_session(store: &SessionStore, grace: Duration) {}"),
        Prompt("Now the footer"),
        reads("/src/app/src/ui/footer.rs", "fn draw_footer() {}"),
        reads("/src/app/src/ui/header.rs", "fn draw_header() {}"),
        reads("/src/app/README.md", "How to run it"),
    ];
    Session { name: "first", root: "/src/app", minute: 0, steps }
}

/// A session in another clone, which has the store open and was told of the other file.
fn second() -> Session {
    let steps = vec![
        Prompt("Add a grace period to src/auth/session.rs"),
        reads("/srv/app/src/auth/store.rs", "pub struct SessionStore { clock: Clock }"),
    ];
    Session { name: "second", root: "/srv/app", minute: 10, steps }
}

/// A search of the second session, which gets a hint.
fn asked() -> Value {
    json!({"query": "expire_session", "best_score": 0.1, "result_count": 0, "agent_session_id": "second",
        "root": "/srv/app", "timestamp": "2026-03-01T10:10:30Z"})
}

async fn ask(service: &Service, query: &str, more: &str) -> Vec<Value> {
    let path = format!("/v1/associations?query={}&{more}", encoded(query));
    service.get(&path).await.expect(200)["data"].as_array().expect("data").clone()
}

async fn paths(service: &Service, query: &str, more: &str) -> Vec<Value> {
    column(&ask(service, query, more).await, "path")
}

const NONE: [Value; 0] = [];

#[tokio::test]
async fn the_file_that_the_work_at_hand_leads_to_is_the_only_hint() {
    let service = Service::open().await;
    first().tell(&service).await;
    second().tell(&service).await;
    let hints = ask(&service, "expire_session", "agent_session_id=second").await;
    assert_whole!("a_hint_of_the_moment", json!(hints));
    let by_root = ask(&service, "expire_session", "root=/srv/app&limit=100").await;
    assert_eq!(by_root, hints, "the session that was last active in the folder asks");
}

#[tokio::test]
async fn there_is_usually_no_hint_unless_a_lower_score_is_requested() {
    let service = Service::open().await;
    first().tell(&service).await;
    second().tell(&service).await;
    for query in ["draw_footer", "colour of the invoice", "draw_header"] {
        assert_eq!(paths(&service, query, "agent_session_id=second&limit=100").await, NONE, "{query}");
    }
    let more = ask(&service, "draw_footer", "agent_session_id=second&min_score=0").await;
    assert_eq!(column(&more, "path")[0], "src/ui/footer.rs");
    assert!(more.len() > 1, "{more:?}");
    let scores: Vec<f64> = more.iter().map(|hint| hint["score"].as_f64().expect("a score")).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b) && scores[0] < 0.2, "{scores:?}");
    let one = paths(&service, "draw_footer", "agent_session_id=second&min_score=0&limit=1").await;
    assert_eq!(one, ["src/ui/footer.rs"]);
    let least = format!("agent_session_id=second&min_score={}", scores[0]);
    assert_eq!(paths(&service, "draw_footer", &least).await, ["src/ui/footer.rs"]);
    let refused = service.get("/v1/associations?query=q&min_score=1.5").await;
    refused.refused(422, &["/min_score"]);
}

#[tokio::test]
async fn hooks_tell_as_much_as_transcripts_and_both_together_no_more() {
    let by = async |transcripts: bool, hooks: bool| {
        let service = Service::open().await;
        for session in [first(), second()] {
            if hooks {
                session.report(&service).await;
            }
            if transcripts {
                session.tell(&service).await;
            }
        }
        ask(&service, "expire_session", "agent_session_id=second").await
    };
    let hints = by(true, false).await;
    assert_eq!(hints[0]["path"], "src/auth/session.rs");
    assert_eq!(by(false, true).await, hints);
    assert_eq!(by(true, true).await, hints);
}

#[tokio::test]
async fn a_file_that_the_session_has_touched_is_no_hint() {
    let service = Service::open().await;
    first().tell(&service).await;
    let all = "agent_session_id=first&min_score=0";
    assert_eq!(paths(&service, "expire_session", all).await, NONE);
    let session = "src/auth/session.rs";
    let another = "agent_session_id=another&root=/src/app&min_score=0";
    assert!(paths(&service, "expire_session", another).await.contains(&json!(session)));
    let search = json!({"query": "expiry", "agent_session_id": "another", "root": "/src/app"});
    find(&service, with(weak("", 0), &search), &[session]).await;
    assert!(!paths(&service, "expire_session", another).await.contains(&json!(session)));
    let subagent = json!({"type": "assistant", "sessionId": "third", "agentId": "a", "cwd": "/src/app",
        "timestamp": "2026-03-01T11:00:00Z", "message": {"role": "assistant", "content": [
            {"type": "tool_use", "id": "u", "name": "Read", "input": {"file_path": session}}]}});
    let answer = json!({"type": "user", "sessionId": "third", "agentId": "a", "cwd": "/src/app",
        "timestamp": "2026-03-01T11:00:01Z", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "u", "content": "text"}]}});
    let path = "/v1/transcripts?agent=claude-code&source=third";
    service.post_text(path, "application/x-ndjson", format!("{subagent}\n{answer}")).await.expect(200);
    let third = "agent_session_id=third&root=/src/app&min_score=0";
    assert!(!paths(&service, "expire_session", third).await.contains(&json!(session)));
}

#[tokio::test]
async fn clones_and_worktrees_share_and_other_repositories_do_not() {
    let service = Service::open().await;
    first().tell(&service).await;
    for (root, expected) in [
        ("/src/app", true),
        ("/home/jane/app", true),
        ("/src/app/.claude/worktrees/fix", true),
        ("/src/app-worktrees/fix", true),
        ("/src/web", false),
    ] {
        let more = format!("root={}&agent_session_id=new&min_score=0", encoded(root));
        let found = ask(&service, "expire_session", &more).await;
        assert_eq!(found.iter().any(|hint| hint["path"] == "src/auth/session.rs"), expected, "{root}");
        assert!(found.iter().all(|hint| hint["root"] == root), "{found:?}");
    }
}

#[tokio::test]
async fn a_query_that_was_answered_before_has_its_answer_as_hint_in_any_clone() {
    let service = Service::open().await;
    find(&service, weak("retry after timeout", 0), &["net/Backoff.ts"]).await;
    let asked = json!({"query": "timeout retry after", "best_score": 0.1, "result_count": 1,
        "agent_session_id": "another", "root": "/home/jane/app", "timestamp": MIDNIGHT + 60});
    let search = service.post("/v1/searches", &asked).await.expect(201);
    let hints = search["hints"].as_array().expect("hints");
    // The weight decays from hour to hour.
    let hints: Vec<_> = hints.iter().map(|hint| with(hint.clone(), &json!({"weight": 0}))).collect();
    assert_whole!("a_learned_hint", json!(hints));
    let stored = service.get(&format!("/v1/searches/{}", search["id"].as_str().expect("an id"))).await;
    assert_eq!(column(stored.expect(200)["hints"].as_array().expect("hints"), "id"), column(&hints, "id"));
}

#[tokio::test]
async fn a_hint_that_no_search_had_found_is_remembered_and_counted() {
    let service = Service::open().await;
    first().tell(&service).await;
    second().tell(&service).await;
    let search = service.post("/v1/searches", &asked()).await.expect(201);
    assert_eq!(column(search["hints"].as_array().expect("hints"), "path"), ["src/auth/session.rs"]);
    assert_eq!((&search["hints"][0]["id"], &search["hints"][0]["evidence"]), (&Value::Null, &json!(0)));
    let path = format!("/v1/searches/{}", search["id"].as_str().expect("an id"));
    let read =
        json!({"kind": "read", "path": "/srv/app/src/auth/session.rs", "timestamp": "2026-03-01T10:10:31Z"});
    service.post(&format!("{path}/fallbacks"), &read).await.expect(201);
    let ended = service.post(&format!("{path}/resolve"), &json!({"timestamp": "2026-03-01T10:10:40Z"})).await;
    assert_eq!(ended.expect(200)["hints"], search["hints"]);
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    assert_eq!((&figures["hints"]["hints_shown"], &figures["hints"]["hints_read"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_file_that_is_gone_is_no_hint_until_it_is_touched_again() {
    let service = Service::open().await;
    first().tell(&service).await;
    let session = json!("src/auth/session.rs");
    let all = "root=/src/app&agent_session_id=new&min_score=0";
    assert!(paths(&service, "expire_session", all).await.contains(&session));
    let file = json!({"root": "/src/app", "path": "src/auth/session.rs"});
    service.post("/v1/associations/gone", &file).await.expect(200);
    assert!(!paths(&service, "expire_session", all).await.contains(&session));
    let steps = vec![Prompt("again"), reads("/src/app/src/auth/session.rs", "fn expire_session() {}")];
    Session { name: "later", root: "/src/app", minute: 20, steps }.tell(&service).await;
    assert!(paths(&service, "expire_session", all).await.contains(&session));
}

#[tokio::test]
async fn what_a_session_encountered_is_erased_with_it() {
    let service = Service::open().await;
    let steps = vec![
        Prompt("see secretfile.rs"),
        reads("/src/app/src/secretfile.rs", "fn secret_function() {}"),
        runs("ls", "other_secretfile.rs"),
    ];
    Session { name: "s", root: "/src/app", minute: 0, steps }.tell(&service).await;
    first().tell(&service).await;
    let rows = async || {
        let sql = "select (select count(*) from touched_files), (select count(*) from named_files)";
        let counts: (i64, i64) =
            sqlx::query_as(sql).fetch_one(&mut service.connection().await).await.expect("counts");
        counts
    };
    let (touched, named) = rows().await;
    service.delete("/v1/sessions/s").await.expect(200);
    assert_eq!(rows().await, (touched - 1, named - 1));
    assert!(!service.dump().await.contains("secretfile"));
    service.delete("/v1/sessions/first").await.expect(200);
    assert_eq!(rows().await, (0, 0));
}

#[tokio::test]
async fn the_path_of_a_hint_is_erased_with_the_last_session_that_has_touched_the_file() {
    let service = Service::open().await;
    let steps = vec![reads("/home/jane/app/src/auth/session.rs", "fn expire_session() {}")];
    let third = Session { name: "third", root: "/home/jane/app", minute: 5, steps };
    for session in [first(), third, second()] {
        session.tell(&service).await;
    }
    let path = format!("/v1/searches/{}", service.create("/v1/searches", asked()).await);
    let hints = async || {
        let search = service.get(&path).await.expect(200);
        column(search["hints"].as_array().expect("hints"), "path")
    };
    assert_eq!(hints().await, ["src/auth/session.rs"]);
    service.delete("/v1/sessions/first").await.expect(200);
    assert_eq!(hints().await, ["src/auth/session.rs"]);
    service.delete("/v1/sessions/third").await.expect(200);
    assert_eq!(hints().await, NONE);
}

#[tokio::test]
async fn the_path_of_a_hint_is_erased_with_the_last_sessions_that_have_touched_the_file_if_they_go_at_once() {
    let service = Service::open().await;
    let other = service.another();
    let steps = vec![reads("/home/jane/app/src/auth/session.rs", "fn expire_session() {}")];
    let third = Session { name: "third", root: "/home/jane/app", minute: 5, steps };
    for session in [first(), third, second()] {
        session.tell(&service).await;
    }
    let path = format!("/v1/searches/{}", service.create("/v1/searches", asked()).await);
    assert_eq!(service.get(&path).await.expect(200)["hints"][0]["path"], "src/auth/session.rs");
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    // An erasure deletes the threads last.
    holder.execute("lock table agent_threads in share mode").await.expect("locks");
    let release = async {
        service.blocked(2).await;
        holder.commit().await.expect("ends");
    };
    let (one, another, ()) =
        tokio::join!(service.delete("/v1/sessions/first"), other.delete("/v1/sessions/third"), release);
    one.expect(200);
    another.expect(200);
    assert_eq!(service.get(&path).await.expect(200)["hints"], json!([]));
}

/// Searches that get a hint, each with the session whose erasure takes the hint away: of a file that it has touched, and of an
/// association that it has taught.
async fn hinted(service: &Service) -> [(Value, &'static str); 2] {
    first().tell(service).await;
    second().tell(service).await;
    let taught = with(weak("login button", 0), &json!({"agent_session_id": "taught"}));
    find(service, taught, &["ui/Login.tsx"]).await;
    let other = with(asked(), &json!({"query": "login button", "root": "/src/app"}));
    [(asked(), "first"), (other, "taught")]
}

#[tokio::test]
async fn a_hint_whose_file_is_erased_before_the_search_is_stored_is_not_stored() {
    let service = Service::open().await;
    for (search, session) in hinted(&service).await {
        let mut connection = service.connection().await;
        let mut holder = connection.begin().await.expect("begins");
        // The hint is found before the search waits for its session.
        let of_second = "select from agent_threads where session = 'second' for update";
        holder.execute(of_second).await.expect("locks the thread");
        let erased = async {
            service.blocked(1).await;
            service.delete(&format!("/v1/sessions/{session}")).await.expect(200);
            holder.commit().await.expect("ends");
        };
        let (posted, ()) = tokio::join!(service.post("/v1/searches", &search), erased);
        let posted = posted.expect(201);
        assert_eq!(posted["hints"].as_array().map(Vec::len), Some(1), "{posted}");
        let path = format!("/v1/searches/{}", posted["id"].as_str().expect("an id"));
        assert_eq!(service.get(&path).await.expect(200)["hints"], json!([]), "{session}");
    }
}

#[tokio::test]
async fn a_hint_that_is_being_stored_while_its_file_is_erased_is_erased_too() {
    const LATE: &str = "
        create function wait() returns trigger language plpgsql as $$ begin
            perform pg_advisory_xact_lock(1);
            return null;
        end $$;
        create constraint trigger late after insert on searches deferrable initially deferred
            for each row execute function wait()";
    let service = Service::open().await;
    let hinted = hinted(&service).await;
    sqlx::raw_sql(LATE).execute(service.pool()).await.expect("a trigger");
    for (search, session) in hinted {
        let mut connection = service.connection().await;
        let mut holder = connection.begin().await.expect("begins");
        holder.execute("select pg_advisory_xact_lock(1)").await.expect("locks");
        let erased = async {
            service.blocked(1).await;
            let path = format!("/v1/sessions/{session}");
            let mut erased = pin!(service.delete(&path));
            tokio::select! {
                () = service.blocked(2) => holder.commit().await.expect("ends"),
                answer = &mut erased => panic!("it does not wait: {}", answer.text()),
            }
            erased.await.expect(200);
        };
        let (posted, ()) = tokio::join!(service.post("/v1/searches", &search), erased);
        let path = format!("/v1/searches/{}", posted.expect(201)["id"].as_str().expect("an id"));
        assert_eq!(service.get(&path).await.expect(200)["hints"], json!([]), "{session}");
    }
}

#[tokio::test]
async fn a_search_is_stored_without_hints_if_other_searches_take_too_long() {
    let service = Service::open().await;
    first().tell(&service).await;
    second().tell(&service).await;
    let places = service.holding_back_rankings().await;
    let without = service.post("/v1/searches", &asked()).await.expect(201);
    assert_eq!(without["hints"], json!([]));
    service.get("/v1/associations?query=expire_session&agent_session_id=second").await.expect(503);
    drop(places);
    let with = service.post("/v1/searches", &asked()).await.expect(201);
    assert_eq!(with["hints"][0]["path"], "src/auth/session.rs");
}

#[tokio::test]
async fn without_learning_nothing_that_a_session_encounters_is_stored() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"searches": {"learn": false}})).await.expect(200);
    first().tell(&service).await;
    assert!(!service.dump().await.contains("footer.rs"));
}

#[tokio::test]
async fn what_is_stored_of_a_session_and_of_a_file_is_limited() {
    let service = Service::open().await;
    let list: Vec<_> = (0..9_000).map(|number| format!("f{number}.rs")).collect();
    let command: Vec<_> = (0..1_010).map(|number| format!("cat src/f{number}.rs")).collect();
    let text: Vec<_> = (0..2_000).map(|number| format!("name_{number}")).collect();
    let mut steps = vec![Prompt("look at everything")];
    steps.extend(
        command.chunks(101).map(|some| Call("Bash", json!({"command": some.join("; ")}), json!("text"))),
    );
    steps.extend([
        Call("Bash", json!({"command": "ls"}), json!(list[..5_000].join("\n"))),
        Prompt("look again"),
        Call("Bash", json!({"command": "ls"}), json!(list[4_000..].join("\n"))),
        Call("Read", json!({"file_path": "/src/app/src/a.rs"}), json!(text.join(" "))),
    ]);
    let session = Session { name: "long", root: "/src/app", minute: 0, steps };
    session.tell(&service).await;
    session.report(&service).await;
    for number in 0..40 {
        let line = |kind: &str, content: Value| {
            json!({"type": kind, "sessionId": format!("s{number}"), "cwd": "/src/app",
                "timestamp": format!("2026-03-01T11:{number:02}:00Z"), "message": {"role": kind, "content": content}})
            .to_string()
        };
        let used = json!([{"type": "tool_use", "id": format!("u{number}"), "name": "Read", "input": {"file_path": "src/a.rs"}}]);
        let answer = json!([{"type": "tool_result", "tool_use_id": format!("u{number}"), "content": "text"}]);
        let path = format!("/v1/transcripts?agent=claude-code&source=s{number}");
        let lines = [line("assistant", used), line("user", answer)].join("\n");
        service.post_text(&path, "application/x-ndjson", lines).await.expect(200);
    }
    let sql = "select (select count(*) from touched_files where root = '/src/app' and path <> 'src/a.rs'),
            (select count(*) from touched_files where path = 'src/a.rs'),
            (select max(octet_length(identifiers)) from touched_files)::bigint,
            (select sum(cardinality(names)) from named_files)::bigint";
    let counts: (i64, i64, i64, i64) =
        sqlx::query_as(sql).fetch_one(&mut service.connection().await).await.expect("counts");
    let (files, sessions, identifiers, names) = counts;
    assert!((999..=1_000).contains(&files), "{counts:?}");
    assert_eq!((sessions, identifiers), (32, 4 * 1_024));
    assert!((8_000..=16_384).contains(&names), "{counts:?}");
}
