//! Erasure on request, over HTTP and by the command.

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use uuid::Uuid;

use super::{one_of_each, rows};
use crate::support::server::{folder, gleaner, run};
use crate::support::{Service, eventually};

fn log(n: u128, created_at: &str) -> Value {
    json!({"event": "generation", "id": Uuid::from_u128(n), "user_intent": "x", "domain_name": "cbu",
        "created_at": created_at, "session_id": "s"})
}

#[tokio::test]
async fn old_records_are_erased_on_request_and_counted() {
    let service = Service::open().await;
    service.project("other").await;
    let elsewhere = [("gleaner-project", "other")];
    let theirs = json!({"user_intent": "x", "domain_name": "cbu", "created_at": 0});
    service.call(Method::POST, "/v1/generations", &elsewhere, Some(&theirs)).await.expect(201);
    let logs: Vec<_> = (0..1_203).map(|n| log(n, "2020-01-01T00:00:00Z")).collect();
    service.accept(&logs).await;
    service.accept(&[log(5_000, "2024-01-01T00:00:00Z")]).await;
    for domain in ["suggestions", "searches", "messages", "memories"] {
        let path = format!("/v1/records?before=2021-01-01T00:00:00Z&domain={domain}");
        let answer = service.delete(&path).await.expect(200);
        assert!(answer["erased"].as_object().expect("counts").values().all(|count| count == 0), "{answer}");
    }
    let erased = |generations: i32| {
        json!({"erased": {"generations": generations, "attempts": 0, "suggestions": 0, "searches": 0, "pairs": 0,
            "sends": 0, "memories": 0, "queries": 0}, "more": false})
    };
    let path = "/v1/records?before=2021-01-01T00:00:00Z";
    assert_eq!(service.delete(path).await.expect(200), erased(1_203));
    assert_eq!(service.delete(path).await.expect(200), erased(0));
    assert_eq!(service.all("/v1/generations").await.len(), 1);
    let theirs = service.call(Method::GET, "/v1/generations", &elsewhere, None).await.expect(200);
    assert_eq!(theirs["data"].as_array().map(Vec::len), Some(1));
    service.delete("/v1/records").await.refused(422, &["/before"]);
    service.delete("/v1/records?before=x").await.refused(422, &["/before"]);
    service.delete("/v1/records?before=1700000000").await.expect(200);
    service.delete("/v1/records?before=2020-01-01T00:00:00Z&domain=weather").await.refused(422, &["/domain"]);
}

#[tokio::test]
async fn a_record_of_any_domain_is_erased_by_its_id_with_everything_that_belongs_to_it() {
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 1_000_000})).await.expect(201);
    service.accept(&one_of_each(100, "s")).await;
    for (nth, kind) in ["generations", "suggestions", "searches", "pairs", "sends", "memories", "queries"]
        .into_iter()
        .enumerate()
    {
        let path = format!("/v1/records/{}", Uuid::from_u128(100 + nth as u128));
        let erased = service.delete(&path).await.expect(200);
        assert_eq!(erased[kind], 1, "{erased}");
        service.delete(&path).await.refused(404, &[]);
    }
    let left: Vec<_> = rows(&service).await.into_iter().map(|(table, _)| table).collect();
    for table in
        ["attempts", "correction_pairs", "fallbacks", "associations", "suggestion_activity", "send_attempts"]
    {
        assert!(!left.iter().any(|other| other == table), "{left:?}");
    }
    let pair = json!({"event": "send", "id": Uuid::from_u128(1), "mode": "record", "user_text": "x", "model": "m",
        "pair_id": Uuid::from_u128(2)});
    service.accept(&[pair]).await;
    service.delete(&format!("/v1/records/{}", Uuid::from_u128(2))).await.refused(409, &[]);
}

#[tokio::test]
async fn a_send_in_progress_is_erased_with_its_session_and_not_by_its_id() {
    let service = Service::open().await;
    service.put("/v1/models/m", &json!({"context_window": 1_000_000})).await.expect(201);
    let send = |id: u128| {
        json!({"event": "send", "id": Uuid::from_u128(id), "pair_id": Uuid::from_u128(id + 1), "mode": "record",
            "user_text": "x", "model": "m", "session_id": "s"})
    };
    service.accept(&[send(1), send(3)]).await;
    for id in [1, 3].map(Uuid::from_u128) {
        for path in [format!("/v1/sends/{id}"), format!("/v1/records/{id}")] {
            service.delete(&path).await.refused(409, &[]);
        }
        assert_eq!(service.get(&format!("/v1/sends/{id}")).await.expect(200)["state"], "sending");
    }
    let path = format!("/v1/sends/{}", Uuid::from_u128(1));
    service.post(&format!("{path}/cancel"), &json!({})).await.expect(200);
    service.delete(&path).await.gone();
    let erased = service.delete("/v1/sessions/s").await.expect(200);
    assert_eq!((&erased["pairs"], &erased["sends"]), (&json!(2), &json!(1)), "{erased}");
}

#[tokio::test]
async fn what_was_suggested_is_erased_to_the_last_where_there_is_nothing_else() {
    let service = Service::open().await;
    let asked = json!({"event": "conversation_query", "session_id": "s", "query": "needle", "at": "2999-01-01T00:00:00Z"});
    service.accept(&[asked]).await;
    // One more than an erasure takes at a time.
    for some in (0..501_u128).collect::<Vec<_>>().chunks(20) {
        let suggest = async |n: &u128| {
            let body = json!({"id": Uuid::from_u128(1_000 + n)});
            service.post("/v1/conversations/s/suggest", &body).await.expect(200)
        };
        futures_util::future::join_all(some.iter().map(suggest)).await;
    }
    let erased = service.delete("/v1/records?before=2998-01-01T00:00:00Z&domain=memories").await.expect(200);
    assert_eq!(erased["more"], false);
    let left: Vec<_> =
        rows(&service).await.into_iter().filter(|(table, _)| table.contains("memor")).collect();
    assert_eq!(left, []);
}

#[tokio::test]
async fn an_erasure_that_waited_for_another_goes_on_with_what_that_one_left() {
    for (domain, table, number) in [
        ("generations", "generations", 1),
        ("suggestions", "suggestions", 1),
        ("searches", "searches", 1),
        ("messages", "pairs", 2),
        ("memories", "memories", 1),
    ] {
        let service = Service::open().await;
        service.put("/v1/models/m", &json!({"context_window": 1_000_000})).await.expect(201);
        service.accept(&one_of_each(100, "one")).await;
        let mut other = service.connection().await;
        let mut erasure = other.begin().await.expect("a transaction");
        erasure.execute(AssertSqlSafe(format!("delete from {table}"))).await.expect("deleted");
        let path = format!("/v1/records?before=2998-01-01T00:00:00Z&domain={domain}");
        let erased = service.delete(&path);
        let ended = async {
            service.blocked(1).await;
            service.accept(&one_of_each(200, "two")).await;
            erasure.commit().await.expect("the other one ends");
        };
        let (erased, ()) = futures_util::join!(erased, ended);
        assert_eq!(erased.expect(200)["erased"][table], number, "{domain}");
    }
}

#[tokio::test]
async fn an_open_search_that_is_erased_leaves_its_session_as_it_was() {
    let service = Service::open().await;
    let search = |n: u128| {
        json!({"event": "search", "id": Uuid::from_u128(n), "query": "login button", "best_score": 0.1, "result_count": 0,
            "agent_session_id": "s"})
    };
    service.accept(&[search(1), search(2)]).await;
    service.delete(&format!("/v1/records/{}", Uuid::from_u128(1))).await.expect(200);
    let path = format!("/v1/searches/{}", Uuid::from_u128(2));
    let read = json!({"kind": "read", "path": "login.rs"});
    service.post(&format!("{path}/fallbacks"), &read).await.expect(201);
    let ended = service.post(&format!("{path}/resolve"), &json!({})).await.expect(200);
    assert_eq!(ended["state"], "resolved");
}

#[tokio::test]
async fn a_search_without_a_session_is_erased_with_its_agent() {
    let service = Service::open().await;
    let search = json!({"query": "login button", "best_score": 0.1, "agent_id": "needle", "turn_id": "needle",
        "root": "/needle"});
    let id = service.create("/v1/searches", search).await;
    let read = json!({"kind": "read", "path": "needle.rs"});
    service.post(&format!("/v1/searches/{id}/fallbacks"), &read).await.expect(201);
    service.delete(&format!("/v1/records/{id}")).await.expect(200);
    let left: i64 = sqlx::query_scalar("select count(*) from agent_threads")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    let dump = service.dump().await;
    assert!(left == 0 && !dump.contains("needle"), "{left} {dump}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_erases_by_session_by_age_and_by_id() {
    let service = Service::open().await;
    let folder = folder();
    service
        .accept(&[
            log(1, "2020-01-01T00:00:00Z"),
            log(2, "2024-01-01T00:00:00Z"),
            log(3, "2025-01-01T00:00:00Z"),
        ])
        .await;
    let erase = |line: &str, status: i32| {
        let mut command = gleaner(&folder);
        command.arg("erase").args(line.split(' ')).args(["--database-url", &service.url()]);
        let output = run(&mut command, status);
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(erase("--before 2021-01-01T00:00:00Z --domain generations", 0), "attempts 0\ngenerations 1\n");
    let id = format!("--id {}", Uuid::from_u128(2));
    assert!(erase(&id, 0).contains("generations 1\n"));
    assert_eq!(erase(&id, 1), "");
    assert!(erase("--session s", 0).contains("generations 1\n"));
    assert!(erase("--session s", 0).contains("generations 0\n"));
    for line in ["--session s --before 0", "--domain generations", "--id 1", "--before yesterday"] {
        erase(line, 2);
    }
}

#[tokio::test]
async fn an_erasure_that_meets_a_deadlock_is_done_again() {
    let service = Service::open().await;
    let events = [
        json!({"event": "generation", "user_intent": "i", "domain_name": "d", "session_id": "s"}),
        json!({"event": "search", "query": "q", "best_score": 0.1, "agent_session_id": "s"}),
    ];
    service.accept(&events).await;
    let mut connection = service.connection().await;
    let mut other = connection.begin().await.expect("begins");
    sqlx::query("select from agent_threads for update").execute(&mut *other).await.expect("locks the thread");
    // The erasure has the log and waits for the thread; this one has the thread and waits for the log.
    let crosses = async {
        service.blocked(1).await;
        sqlx::query("update generations set metadata = '{}'").execute(&mut *other).await.expect("waits");
        other.commit().await.expect("ends");
    };
    let (erased, ()) = tokio::join!(service.delete("/v1/sessions/s"), crosses);
    let erased = erased.expect(200);
    assert_eq!((&erased["generations"], &erased["searches"]), (&json!(1), &json!(1)), "{erased}");
}

#[tokio::test]
async fn a_path_that_an_erased_session_has_taught_is_gone_from_the_answers_to_others() {
    let service = Service::open().await;
    let search = |session: &str| json!({"query": "login button color", "best_score": 0.2, "agent_session_id": session, "root": "/app"});
    let first = format!("/v1/searches/{}", service.create("/v1/searches", search("a")).await);
    service
        .post(&format!("{first}/fallbacks"), &json!({"kind": "read", "path": "/app/ui/Login.tsx"}))
        .await
        .expect(201);
    service.post(&format!("{first}/resolve"), &json!({})).await.expect(200);
    let second = format!("/v1/searches/{}", service.create("/v1/searches", search("b")).await);
    assert_eq!(service.get(&second).await.expect(200)["hints"][0]["path"], "ui/Login.tsx");
    service.call(Method::DELETE, "/v1/sessions/a", &[], None).await.expect(200);
    assert_eq!(service.get(&second).await.expect(200)["hints"], json!([]));
}

#[tokio::test]
async fn a_session_that_is_larger_than_a_batch_is_erased_whole() {
    const MANY: usize = 600;
    let service = Service::open().await;
    let of_session = |number: usize| {
        let (query, content) = (format!("q{number}"), format!("needle {number}"));
        [
            json!({"event": "search", "query": query, "best_score": 0.1, "agent_session_id": "s"}),
            json!({"event": "generation", "user_intent": content, "domain_name": "d", "session_id": "s"}),
            json!({"event": "memory", "content": content, "session_id": "s"}),
            json!({"event": "pair", "user_text": content, "assistant_text": "a", "session_id": "s"}),
        ]
    };
    service.accept(&(0..MANY).flat_map(of_session).collect::<Vec<_>>()).await;
    let erased = service.delete("/v1/sessions/s").await.expect(200);
    for kind in ["searches", "generations", "memories", "pairs"] {
        assert_eq!(erased[kind], MANY, "{erased}");
    }
    assert!(!service.dump().await.contains("needle"));
    assert_eq!(service.delete("/v1/sessions/s").await.expect(200)["searches"], 0);
    let left: i64 = sqlx::query_scalar("select count(*) from agent_threads")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    assert_eq!(left, 0);
}

#[tokio::test]
async fn what_is_erased_before_an_erasure_fails_is_in_the_audit_log() {
    const FAILS_IN_THE_THIRD_PIECE: &str = "
        create function refuse() returns trigger language plpgsql as $$ begin
            if (select count(*) from generations) < 20 then raise 'the disk is full'; end if;
            return null;
        end $$;
        create trigger refuse after delete on generations for each statement execute function refuse()";
    let service = Service::open().await;
    let line = |number| json!({"event": "generation", "user_intent": format!("i{number}"), "domain_name": "d", "session_id": "s"});
    service.accept(&(0..1_050).map(line).collect::<Vec<_>>()).await;
    sqlx::raw_sql(FAILS_IN_THE_THIRD_PIECE).execute(service.pool()).await.expect("a trigger");
    let noted = async || {
        let log = service.get("/v1/audit").await.expect(200);
        let entries = log["data"].as_array().expect("entries").iter();
        let erased = entries.filter(|entry| entry["action"] == "records_erased");
        erased.map(|entry| entry["details"]["erased"]["generations"].clone()).collect::<Vec<_>>()
    };
    service.delete("/v1/sessions/s").await.expect(500);
    assert_eq!(noted().await, [1_000]);
    sqlx::raw_sql("drop trigger refuse on generations").execute(service.pool()).await.expect("no trigger");
    service.delete("/v1/sessions/s").await.expect(200);
    assert_eq!(noted().await, [50, 1_000]);
}

#[tokio::test]
async fn the_transcript_of_a_session_is_erased_without_reading_those_of_others() {
    const LINES: &str = "
        insert into transcript_lines (project, source, line, session)
        select 'default', md5((number / 100)::text)::uuid, md5(number::text)::uuid, 'of ' || number / 100
        from generate_series(1, 50000) as number";
    const READ: &str = "
        select n_tup_del, seq_tup_read + idx_tup_fetch from pg_stat_user_tables where relname = 'transcript_lines'";
    let service = Service::open().await;
    sqlx::query(LINES).execute(service.pool()).await.expect("inserts");
    let lines = [json!({"type": "summary", "summary": "x"}), json!({"type": "user", "sessionId": "s"})];
    let lines = lines.map(|line| line.to_string()).join("\n");
    let source = "/v1/transcripts?agent=claude-code&source=a";
    service.post_text(source, "application/x-ndjson", lines).await.expect(200);
    let mut connection = service.connection().await;
    connection.execute("vacuum analyze transcript_lines").await.expect("analyzes");
    connection.execute("select pg_stat_reset()").await.expect("resets");
    service.delete("/v1/sessions/s").await.expect(200);
    let mut read = 0;
    eventually("the deletions are counted", async || {
        let (deleted, tuples): (i64, i64) =
            sqlx::query_as(READ).fetch_one(&mut service.connection().await).await.expect("counts");
        read = tuples;
        deleted == 2
    })
    .await;
    assert!(read < 1_000, "{read} lines were read");
}

#[tokio::test]
async fn a_search_that_two_erasures_of_its_session_meet_is_counted_once() {
    let service = Service::open().await;
    let other = service.another();
    service.create("/v1/searches", json!({"query": "q", "best_score": 0.1, "agent_session_id": "s"})).await;
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    holder.execute("select from agent_threads for update").await.expect("locks the thread");
    let release = async {
        service.blocked(2).await;
        holder.commit().await.expect("ends");
    };
    let path = "/v1/sessions/s";
    let (one, another, ()) = tokio::join!(service.delete(path), other.delete(path), release);
    let count = |erased: &Value| erased["searches"].as_i64().expect("a number");
    assert_eq!(count(&one.expect(200)) + count(&another.expect(200)), 1);
}

#[tokio::test]
async fn a_session_whose_name_is_longer_than_what_is_kept_of_it_is_erased_by_it() {
    let service = Service::open().await;
    let settings = json!({"redact": {"builtin": ["emails"]}});
    service.put("/v1/projects/default", &settings).await.expect(200);
    // The second is too long once it is redacted.
    for name in ["n".repeat(250), format!("{}-ann@example.org", "n".repeat(180))] {
        let prompt = json!({"session_id": name, "cwd": "/app", "hook_event_name": "UserPromptSubmit", "prompt": "find the needle"});
        service.post("/v1/hooks/claude-code", &prompt).await.expect(200);
        eventually("the prompt is stored", async || service.dump().await.contains("needle")).await;
        service.delete(&format!("/v1/sessions/{name}")).await.expect(200);
        assert!(!service.dump().await.contains("needle"), "{name}");
    }
}

#[tokio::test]
async fn an_erasure_of_a_session_locks_its_transcripts_before_its_threads_as_who_stores_lines_does() {
    let service = Service::open().await;
    let line = json!({"type": "user", "sessionId": "s", "cwd": "/app", "timestamp": "2026-03-01T10:00:00Z",
        "message": {"role": "user", "content": "where is it?"}});
    let source = "/v1/transcripts?agent=claude-code&source=a";
    service.post_text(source, "application/x-ndjson", line.to_string()).await.expect(200);
    let mut connection = service.connection().await;
    let mut intake = connection.begin().await.expect("begins");
    let source = intake.execute("select from transcripts for update").await.expect("locks the source");
    assert_eq!(source.rows_affected(), 1);
    let goes_on = async {
        service.blocked(1).await;
        let threads = intake.execute("select from agent_threads for update nowait").await;
        assert_eq!(threads.expect("nobody has locked the thread").rows_affected(), 1);
        intake.commit().await.expect("ends");
    };
    let (erased, ()) = tokio::join!(service.delete("/v1/sessions/s"), goes_on);
    erased.expect(200);
}
