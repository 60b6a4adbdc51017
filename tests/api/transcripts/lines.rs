//! Lines of a transcript: in pieces, again, at the same time, malformed, or not to be learned from.

use axum::body::Body;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Connection as _;

use super::{hook, learned, line, prompt, send, session, text, uses};
use crate::support::Service;

#[tokio::test]
async fn lines_may_come_in_any_pieces_and_be_sent_again() {
    let (whole, pieces) = (Service::open().await, Service::open().await);
    let lines = session();
    send(&whole, "a", text(&lines)).await;
    let mut sums = json!({});
    for (end, back) in [(1, 0), (3, 1), (4, 3), (5, 0), (8, 5), (10, 9)] {
        let start = [0, 1, 3, 4, 5, 8][[1, 3, 4, 5, 8, 10].iter().position(|at| *at == end).expect("an end")];
        let counts = send(&pieces, "a", text(&lines[start - back.min(start)..end])).await;
        for (name, count) in counts.as_object().expect("counts") {
            sums[name] = json!(sums[name].as_u64().unwrap_or(0) + count.as_u64().expect("a count"));
        }
    }
    let counts = send(&whole, "b", text(&lines)).await;
    for name in ["bad_lines", "tool_uses", "tool_results", "matched", "human_turns"] {
        assert_eq!(sums[name], counts[name], "{name}");
    }
    assert_eq!(sums["lines"].as_u64().expect("lines") - sums["duplicates"].as_u64().expect("duplicates"), 10);
    assert_eq!(learned(&whole).await, learned(&pieces).await);
}

#[tokio::test]
async fn calls_for_one_source_at_the_same_time_count_each_line_once() {
    let service = Service::open().await;
    let lines = text(&session());
    let counts = join_all((0..8).map(|_| send(&service, "a", lines.clone()))).await;
    let sum = |name: &str| counts.iter().map(|count| count[name].as_u64().expect("a count")).sum::<u64>();
    let names = [
        "lines",
        "duplicates",
        "tool_uses",
        "matched",
        "human_turns",
        "searches_started",
        "searches_resolved",
    ];
    assert_eq!(names.map(sum), [80, 70, 3, 3, 2, 1, 1]);
}

#[tokio::test]
async fn lines_sent_through_two_servers_at_once_count_once() {
    let service = Service::open().await;
    let other = service.another();
    let lines = session();
    send(&service, "a", text(&lines[..1])).await;
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    sqlx::query("select from transcripts for update").execute(&mut *holder).await.expect("locks the source");
    let release = async {
        service.blocked(2).await;
        holder.rollback().await.expect("ends");
    };
    let rest = text(&lines[1..]);
    let (here, there, ()) =
        tokio::join!(send(&service, "a", rest.clone()), send(&other, "a", rest.clone()), release);
    let sum = |name: &str| here[name].as_u64().expect("a count") + there[name].as_u64().expect("a count");
    let names = ["lines", "duplicates", "tool_uses", "matched", "human_turns", "searches_resolved"];
    assert_eq!(names.map(sum), [18, 9, 3, 3, 2, 1]);
}

#[tokio::test]
async fn a_body_is_taken_in_pieces_wherever_it_is_cut() {
    let service = Service::open().await;
    let filler = "x".repeat(3_000);
    let mut lines = Vec::new();
    for at in 0..2_000 {
        lines.push(line(
            "assistant",
            at % 3_000,
            &json!([{"type": "text", "text": format!("{at} {filler}")}]),
        ));
    }
    lines.extend(session());
    let body = text(&lines);
    assert!(body.len() > 6 << 20);
    let chunks: Vec<_> =
        body.into_bytes().chunks(99_991).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
    let counts = send(&service, "a", Body::from_stream(futures_util::stream::iter(chunks))).await;
    assert_eq!((&counts["lines"], &counts["matched"]), (&json!(2_010), &json!(3)));
    assert_eq!(send(&service, "b", text(&session()).trim_end().to_owned()).await["lines"], 10);
}

#[tokio::test]
async fn malformed_lines_are_counted_and_passed_over() {
    let service = Service::open().await;
    let mut lines = text(&session());
    lines.push_str("\n  \n{\"type\": \"user\", \"mess\nnull\n[1]\n\u{0}\n");
    let mut bytes = lines.into_bytes();
    bytes.extend(b"{\"type\": \"\xff\"}\n");
    let counts = send(&service, "a", bytes).await;
    assert_eq!(
        (&counts["lines"], &counts["bad_lines"], &counts["matched"]),
        (&json!(15), &json!(5), &json!(3))
    );
    assert_eq!(service.get("/v1/analytics/searches").await.expect(200)["error_count"], 5);
    hook(&service, &json!({"hook_event_name": 1})).await;
    let answer = service.post_text("/v1/hooks/codex", "text/plain", "no JSON").await;
    assert_eq!(answer.expect(200), json!({}));
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    assert_eq!(figures["error_count"], 7);
    let of_line = |number: usize, bytes: usize| {
        format!("new line {number} of a transcript of Claude Code, of {bytes} bytes, is not a JSON object")
    };
    let of_hook = |agent: &str, bytes: usize| {
        format!(
            "the payload of a hook of {agent}, of {bytes} bytes, is not a JSON object that names its event"
        )
    };
    let expected = [
        of_line(11, 22),
        of_line(12, 4),
        of_line(13, 3),
        of_line(14, 1),
        of_line(15, 13),
        of_hook("Claude Code", 21),
        of_hook("Codex CLI", 7),
    ];
    assert_eq!(figures["errors"], json!(expected));
}

#[tokio::test]
async fn the_last_twenty_errors_are_kept_and_quote_nothing() {
    let service = Service::open().await;
    let lines: Vec<_> = (0..30).map(|number| format!("secret{number}")).collect();
    send(&service, "a", lines.join("\n")).await;
    send(&service, "b", "secret".repeat(50)).await;
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    let errors = figures["errors"].as_array().expect("errors");
    assert_eq!((&figures["error_count"], errors.len()), (&json!(31), 20));
    assert!(errors[19].as_str().expect("a text").contains("of 300 bytes"), "{errors:?}");
    assert!(errors[18].as_str().expect("a text").starts_with("new line 30 "), "{errors:?}");
    assert!(!service.dump().await.contains("secret"));
}

#[tokio::test]
async fn malformed_lines_leave_no_rows_and_the_last_of_them_count_once() {
    let service = Service::open().await;
    let size = async || {
        let sql = "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'm')";
        let size: i64 =
            sqlx::query_scalar(sql).fetch_one(&mut service.connection().await).await.expect("a size");
        size
    };
    send(&service, "a", text(&session())).await;
    let before = size().await;
    let bad: Vec<_> = (0..60_000).map(|number| format!("{number:x}")).collect();
    let counts = send(&service, "a", bad.join("\n")).await;
    assert_eq!((&counts["lines"], &counts["bad_lines"]), (&json!(60_000), &json!(60_000)));
    let grown = size().await - before;
    assert!(grown < 1 << 17, "the tables have grown by {grown} bytes");
    // A file whose last line was cut off, and that is sent again.
    let lines = format!("{}{{\"type\": \"us", text(&session()));
    for (bad_lines, duplicates) in [(1, 0), (0, 11)] {
        let counts = send(&service, "b", lines.clone()).await;
        assert_eq!((&counts["bad_lines"], &counts["duplicates"]), (&json!(bad_lines), &json!(duplicates)));
    }
}

#[tokio::test]
async fn lines_that_are_not_to_be_learned_from_are_only_counted() {
    let service = Service::open().await;
    let path = "/v1/transcripts?agent=claude-code&source=a&learn=false";
    let counts = service.post_text(path, "application/jsonl", text(&session())).await.expect(200);
    assert_eq!(
        (&counts["matched"], &counts["human_turns"], &counts["searches_started"]),
        (&json!(3), &json!(2), &json!(0))
    );
    assert_eq!(service.all("/v1/searches").await, [] as [Value; 0]);
    let again = service.post_text(path, "application/jsonl", text(&session())).await.expect(200);
    assert_eq!((&again["duplicates"], &again["matched"]), (&json!(10), &json!(0)));
    // They are not used up: who learns from them takes them for new ones.
    let learned = send(&service, "a", text(&session())).await;
    assert_eq!(
        (&learned["duplicates"], &learned["matched"], &learned["searches_resolved"]),
        (&json!(0), &json!(3), &json!(1))
    );
    let again = service.post_text(path, "application/jsonl", text(&session())).await.expect(200);
    assert_eq!(again["duplicates"], 10);
    for (learn, status) in [("no", 200), ("OFF", 200), ("0", 200), ("yes", 200), ("maybe", 422)] {
        let path = format!("/v1/transcripts?agent=claude-code&source=b&learn={learn}");
        assert_eq!(service.post_text(&path, "application/jsonl", "{}").await.status, status, "{learn}");
    }
}

#[tokio::test]
async fn erasing_a_session_forgets_that_its_lines_were_taken() {
    let service = Service::open().await;
    let lines = text(&session());
    let first = send(&service, "a", lines.clone()).await;
    service.delete("/v1/sessions/s").await.expect(200);
    let dump = service.dump().await;
    assert!(!dump.to_lowercase().contains("login"), "{dump}");
    assert_eq!(send(&service, "a", lines).await, first);
}

#[tokio::test]
async fn no_call_without_a_result_outlives_its_session_or_its_age() {
    let service = Service::open().await;
    let left = async || -> i64 {
        let sql = "select (select count(*) from tool_calls) + (select count(*) from transcript_lines)";
        sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count")
    };
    let of = |session: &str, mut line: Value| {
        line["sessionId"] = json!(session);
        line
    };
    let read = |id: &str| uses(1, id, "Read", &json!({"file_path": "/src/app/secret.rs"}));
    let mut nameless = read("t1");
    nameless.as_object_mut().expect("an object").remove("sessionId");
    send(&service, "a", text(&[nameless, of("first", prompt(2, "hello"))])).await;
    service.delete("/v1/sessions/first").await.expect(200);
    assert_eq!(left().await, 0, "the lines before the first that names the session belong to it");

    send(&service, "a", text(&[of("first", read("t2")), of("second", prompt(3, "hello"))])).await;
    service.delete("/v1/sessions/second").await.expect(200);
    assert_eq!(left().await, 2, "the line and the call of the other session are left");
    let dump = service.dump().await;
    assert!(!dump.contains("second"), "{dump}");
    service.delete("/v1/records?before=2998-01-01T00:00:00Z&domain=searches").await.expect(200);
    assert_eq!(left().await, 0, "they are erased by their age");
}

#[tokio::test]
async fn a_transcript_of_nobody_known_or_of_no_name_is_refused() {
    let service = Service::open().await;
    for (parameters, pointer) in [
        ("agent=claude-code", "/source"),
        ("source=a", "/agent"),
        ("agent=other&source=a", "/agent"),
        ("agent=codex&source=a&from=1", "/from"),
    ] {
        let path = format!("/v1/transcripts?{parameters}");
        service.post_text(&path, "application/x-ndjson", "{}").await.refused(422, &[pointer]);
    }
    service.post_text("/v1/transcripts?agent=codex&source=a", "text/plain", "{}").await.refused(415, &[]);
}

#[tokio::test]
async fn blank_lines_are_passed_over_without_a_transaction() {
    let service = Service::open().await;
    let path = "/v1/transcripts?agent=codex&source=s";
    let answer = service.post_text(path, "application/x-ndjson", " \r\n\n".repeat(10_000)).await.expect(200);
    assert_eq!(answer["lines"], 0);
    let sources: i64 = sqlx::query_scalar("select count(*) from transcripts")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    assert_eq!(sources, 0);
}

#[tokio::test]
async fn more_calls_than_are_in_memory_at_once_are_matched_with_their_results() {
    let service = Service::open().await;
    let numbers: Vec<_> = (0..6_000).collect();
    let lines = |block: &dyn Fn(u32) -> Value, kind: &str| {
        let lines =
            numbers.chunks(500).map(|some| line(kind, 1, &some.iter().map(|it| block(*it)).collect()));
        text(&lines.collect::<Vec<_>>())
    };
    let read = |number: u32| {
        json!({"type": "tool_use", "id": format!("t{number}"), "name": "Read",
        "input": {"file_path": format!("/src/app/{number}.rs")}})
    };
    let made = send(&service, "a", lines(&read, "assistant")).await;
    let result =
        |number: u32| json!({"type": "tool_result", "tool_use_id": format!("t{number}"), "content": "x"});
    let answered = send(&service, "a", lines(&result, "user")).await;
    assert_eq!((&made["tool_uses"], &made["matched"]), (&json!(6_000), &json!(0)));
    assert_eq!((&answered["tool_results"], &answered["matched"]), (&json!(6_000), &json!(6_000)));
}

#[tokio::test]
async fn a_zero_byte_in_the_json_of_a_text_is_replaced() {
    let service = Service::open().await;
    let arguments = json!({"file_path": "/src/a\0b"}).to_string();
    let call = json!({"type": "function_call", "name": "read_file", "call_id": "c1", "arguments": arguments});
    let line = json!({"timestamp": "2026-03-01T10:00:00Z", "type": "response_item", "payload": call});
    let path = "/v1/transcripts?agent=codex&source=r";
    let counts = service.post_text(path, "application/x-ndjson", text(&[line])).await.expect(200);
    assert_eq!(counts["tool_uses"], 1);
}

#[tokio::test]
async fn more_actions_than_are_learned_from_together_teach_what_they_teach_one_by_one() {
    let (whole, pieces) = (Service::open().await, Service::open().await);
    let command = |id: u32| format!("rg -l login{id}; cat {}", "src/a.rs src/b.rs ".repeat(20));
    let block = |id: u32| json!({"type": "tool_use", "id": format!("t{id}"), "name": "Bash", "input": {"command": command(id)}});
    let result = |id: u32| json!({"type": "tool_result", "tool_use_id": format!("t{id}"), "content": ""});
    let used = line("assistant", 20, &(100..140).map(block).collect());
    let answered = line("user", 21, &(100..140).map(result).collect());
    let lines = [&session()[..9], &[used, answered, prompt(90, "great")]].concat();
    send(&whole, "a", text(&lines)).await;
    for line in &lines {
        send(&pieces, "a", text(std::slice::from_ref(line))).await;
    }
    let learned_of_whole = learned(&whole).await;
    assert!(learned_of_whole.len() > 15, "{} searches", learned_of_whole.len());
    assert_eq!(learned_of_whole, learned(&pieces).await);
}

#[tokio::test]
async fn the_results_of_a_search_are_kept_up_to_a_size_however_long_the_folder_is() {
    let service = Service::open().await;
    let found = json!({"results": (0..100).map(|number| json!({"path": format!("{number}"), "score": 0.1})).collect::<Vec<_>>()});
    let mut lines =
        super::call(2, "t1", "mcp__code__search", &json!({"query": "login"}), &json!(found.to_string()));
    for line in &mut lines {
        line["cwd"] = json!(format!("/{}", "\u{20000}".repeat(1_000)));
    }
    send(&service, "a", text(&[prompt(1, "go"), lines[0].clone(), lines[1].clone()])).await;
    let searches = learned(&service).await;
    let results = searches[0]["results"].as_array().expect("results");
    let bytes: usize = results.iter().map(|result| result["path"].as_str().expect("a path").len()).sum();
    assert!(!results.is_empty() && bytes <= 64 << 10, "{} results of {bytes} bytes", results.len());
    assert_eq!(searches[0]["result_count"], 100);
}
