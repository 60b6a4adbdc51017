//! The worst of each kind that strangers can send, all at once, to a server whose address space is limited: it lives, and
//! answers others meanwhile.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::future::{join_all, select};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::support::server::{Client, Server, folder};
use crate::support::{encoded, eventually};

/// The address space of the server in KiB. Half of it is what the allocator and the threads reserve and do not use.
const ADDRESS_SPACE: u64 = 3 << 20;
/// The most memory that the server may really have used, in KiB, with 128 MiB for bodies.
const RESIDENT: u64 = 512 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worst_of_each_kind_at_once_takes_bounded_memory_and_holds_up_nobody() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let address = server.address.clone();
    fill(&address).await;
    let _silent = silent(&address).await;
    let _readers = readers(&address).await;
    let worst = join_all([
        tokio::spawn(compressed(address.clone())),
        tokio::spawn(windows(address.clone())),
        tokio::spawn(long_lines(address.clone())),
        tokio::spawn(long_texts(address.clone())),
        tokio::spawn(deep(address.clone())),
        tokio::spawn(odd_methods(address.clone())),
        tokio::spawn(forged(address.clone())),
        tokio::spawn(hooks(address.clone())),
        tokio::spawn(many_values(address.clone())),
        tokio::spawn(many_actions(address.clone())),
        tokio::spawn(many_results(address.clone())),
    ]);
    let mut answered = 0;
    let others = async {
        let client = Client::new();
        loop {
            let began = Instant::now();
            let log = json!({"user_intent": "Create a fund", "domain_name": "cbu"});
            let (made, _) =
                client.send(format!("http://{address}/v1/generations"), Some(&log)).await.expect("an answer");
            let (listed, said) =
                client.send(format!("http://{address}/v1/sessions"), None).await.expect("an answer");
            assert_eq!((made.as_u16(), listed.as_u16()), (201, 200), "{said}");
            assert!(began.elapsed() < Duration::from_mins(1), "others wait for {:?}", began.elapsed());
            answered += 1;
        }
    };
    match select(Box::pin(worst), Box::pin(others)).await {
        futures_util::future::Either::Left((ended, _)) => {
            for task in ended {
                task.expect("no assertion fails");
            }
        }
        futures_util::future::Either::Right((never, _)) => never,
    }
    assert!(answered > 5, "others were answered {answered} times");
    let used = server.peak();
    assert!(used < RESIDENT, "the server has used {used} KiB");
}

/// Sends a request, and reads the status of its answer. None if the connection was closed without one.
pub(super) async fn exchange(address: &str, head: &str, body: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let head =
        format!("{head}\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // A server that has read enough closes the connection, after its answer.
    let (mut reader, mut writer) = stream.split();
    let sends = async {
        let _ = writer.write_all(head.as_bytes()).await;
        let _ = writer.write_all(body).await;
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    let reads = async {
        let _ = (&mut reader).take(1 << 20).read_to_end(&mut answer).await;
    };
    select(Box::pin(sends), Box::pin(reads)).await;
    let text = String::from_utf8_lossy(&answer);
    text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// Sends the same several times at once; each is answered with one of these statuses.
async fn all(address: &str, times: usize, head: &str, body: &[u8], statuses: &[u16]) {
    let sent = join_all((0..times).map(|_| exchange(address, head, body))).await;
    for status in sent.into_iter().flatten() {
        assert!(statuses.contains(&status), "{status} to {head}");
    }
}

pub(super) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("packs");
    encoder.finish().expect("packs")
}

/// What readers read slowly.
pub(super) async fn fill(address: &str) {
    let program = "(create fund) ".repeat(2_000);
    let line = |number: u32| {
        json!({"event": "generation", "user_intent": format!("intent {number}"), "domain_name": "d", "success": true,
            "final_valid_dsl": program})
    };
    let lines: Vec<_> = (0..600).map(|number| line(number).to_string()).collect();
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson";
    assert_eq!(exchange(address, head, lines.join("\n").as_bytes()).await, Some(200));
}

/// Connections that say nothing, or next to nothing.
async fn silent(address: &str) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for number in 0..400 {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream
            .write_all([&b""[..], b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"][number % 3])
            .await
            .expect("sends");
        silent.push(stream);
    }
    silent
}

/// Readers of exports who read nothing.
async fn readers(address: &str) -> Vec<TcpStream> {
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let head = format!(
            "GET /v1/exports/training-pairs HTTP/1.1\r\nHost: {address}\r\nAccept-Encoding: identity\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("sends");
        readers.push(stream);
    }
    readers
}

/// Lines that are nothing but many, and bodies that are small until they are unpacked.
async fn compressed(address: String) {
    let events = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson\r\nContent-Encoding: gzip";
    let lines = gzip(&b"1\n".repeat(30 << 20));
    let objects = gzip(&b"{}\n".repeat(20 << 20));
    for body in [&lines, &objects] {
        all(&address, 3, events, body, &[413, 503]).await;
    }
    let json = "POST /v1/events HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip";
    all(&address, 3, json, &gzip(&[b"[".as_slice(), &b"1,".repeat(30 << 20), b"1]"].concat()), &[413, 503])
        .await;
    let transcript = "POST /v1/transcripts?agent=claude-code&source=a HTTP/1.1\r\nContent-Type: application/jsonl\r\n\
        Content-Encoding: gzip";
    all(&address, 2, transcript, &gzip(&b"{}\n".repeat(1 << 20)), &[200, 503]).await;
}

/// Frames that ask for windows of 128 MiB, with and without something in them.
async fn windows(address: String) {
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson\r\nContent-Encoding: zstd";
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(27).expect("a window");
    encoder.write_all(&vec![b'\n'; 32 << 20]).expect("packs");
    let packed = encoder.finish().expect("packs");
    all(&address, 64, head, &packed, &[400, 503]).await;
    let transcript = "POST /v1/transcripts?agent=codex&source=b HTTP/1.1\r\nContent-Type: application/jsonl\r\n\
        Content-Encoding: zstd";
    all(&address, 64, transcript, &packed, &[400, 503]).await;
}

/// Lines of transcripts that never end, and one with more parts than any message has.
async fn long_lines(address: String) {
    let endless = gzip(&vec![b' '; 65 << 20]);
    let heads = (0..3).map(|number| {
        format!(
            "POST /v1/transcripts?agent=codex&source=long{number} HTTP/1.1\r\nContent-Type: application/jsonl\r\n\
            Content-Encoding: gzip"
        )
    });
    let heads: Vec<_> = heads.collect();
    join_all(heads.iter().map(|head| all(&address, 1, head, &endless, &[413, 503]))).await;
    let parts = [
        br#"{"type": "assistant", "message": {"content": ["#.as_slice(),
        &br#"{"type": "tool_use", "id": "i", "name": "Read", "input": {}},"#.repeat(1 << 19),
        b"1]}}\n",
    ]
    .concat();
    let results = [
        br#"{"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "i", "content": {"results": ["#
            .as_slice(),
        &b"0,".repeat(16 << 20),
        b"0]}}]}}\n",
    ]
    .concat();
    for body in [gzip(&parts), gzip(&results)] {
        let head = "POST /v1/transcripts?agent=claude-code&source=wide HTTP/1.1\r\nContent-Type: application/jsonl\r\n\
            Content-Encoding: gzip";
        all(&address, 2, head, &body, &[200, 503]).await;
    }
}

/// The longest texts in columns that are indexed, and one text that fills a body.
async fn long_texts(address: String) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut long = |count: usize| -> String {
        (0..count).map(|_| char::from_u32(random.u32(0x20000..0x2a000)).expect("a character")).collect()
    };
    let json = "Content-Type: application/json";
    let search = json!({"query": long(2_000), "best_score": 0.1, "agent_session_id": long(200), "root": long(4_096),
        "results": (0..7).map(|_| json!({"path": long(4_096), "score": 0.1})).collect::<Vec<_>>()});
    let head = format!("POST /v1/searches HTTP/1.1\r\n{json}");
    all(&address, 32, &head, search.to_string().as_bytes(), &[201, 503]).await;
    let body = json!({"user_intent": long(500_000), "domain_name": "d"}).to_string();
    let head = format!("POST /v1/generations HTTP/1.1\r\n{json}");
    // More of them would keep Postgres busy for minutes: each has half a million trigrams to index.
    all(&address, 4, &head, body.as_bytes(), &[201, 503]).await;
    let name = json!({"event": long(1 << 20)}).to_string();
    let lines = [name.as_str(); 8].join("\n");
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/jsonl";
    all(&address, 4, head, lines.as_bytes(), &[200, 503]).await;
    let source = encoded(&long(1_000));
    let head = format!(
        "POST /v1/transcripts?agent=codex&source={source} HTTP/1.1\r\nContent-Type: application/jsonl"
    );
    all(&address, 8, &head, b"{}\n", &[200, 503]).await;
}

/// JSON that is nested deeper than any stack, and objects of nothing but names.
async fn deep(address: String) {
    let names: Vec<_> = (0..200_000).map(|number| format!("\"{number}\":0")).collect();
    let names = names.join(",");
    for body in [
        "[".repeat(2 << 20),
        "{\"a\":".repeat(400_000),
        format!("{{\"metadata\": {}", "[".repeat(1 << 20)),
        format!("{{{names},\"user_intent\": 1}}"),
    ] {
        for path in ["/v1/generations", "/v1/suggestions", "/v1/sends", "/v1/context/predict", "/v1/events"] {
            let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
            all(&address, 2, &head, body.as_bytes(), &[400, 413, 422, 503]).await;
        }
    }
}

/// Methods that nobody has heard of.
async fn odd_methods(address: String) {
    for number in 0..400 {
        let head = format!("ODD{number} /v1/generations HTTP/1.1");
        all(&address, 1, &head, b"", &[405, 503]).await;
    }
    let (status, _) = Client::new().send(format!("http://{address}/metrics"), None).await.expect("an answer");
    assert_eq!(status, 200);
}

/// Cursors that nobody has given.
async fn forged(address: String) {
    for cursor in ["x".repeat(60_000), "MTo5MjIzMzcyMDM2ODU0Nzc1ODA3OjA".to_owned(), "AAAA".repeat(2_000)] {
        for path in ["/v1/generations", "/v1/searches", "/v1/pairs", "/v1/exports/training-pairs"] {
            let head = format!("GET {path}?cursor={cursor} HTTP/1.1");
            all(&address, 8, &head, b"", &[400, 414, 422, 431, 503]).await;
        }
    }
}

/// Reports of hooks that are large, and commands that do very much, also in folders that are longer than any.
async fn hooks(address: String) {
    let command = "cat a;".repeat(4 << 20);
    let report = json!({"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "t",
        "tool_input": {"command": command}, "tool_response": {}});
    let head =
        "POST /v1/hooks/claude-code HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip";
    all(&address, 8, head, &gzip(report.to_string().as_bytes()), &[200]).await;
    for (bytes, command) in [
        (8 << 20, format!("cat {}", "a ".repeat(1_000))),
        (1 << 20, "cd a;".repeat(50_000)),
        (4_000, "(cd a; cat b);".repeat(18_000)),
        (1, format!("cd {}; cat {}", "a".repeat(100_000), "a ".repeat(1_000))),
    ] {
        let report = json!({"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_use_id": "t", "cwd": "/".repeat(bytes), "tool_input": {"command": command}});
        all(&address, 4, head, &gzip(report.to_string().as_bytes()), &[200]).await;
    }
}

/// Uses of tools with as many files as they may have, in lines of as many uses as are read, and then all of their results.
async fn many_actions(address: String) {
    let folder = "/w".repeat(2_000);
    let command = format!("cat {}", "ab ".repeat(1_000));
    let block = |number| json!({"type": "tool_use", "id": format!("t{number}"), "name": "Bash", "input": {"command": command}});
    let result = |number| json!({"type": "tool_result", "tool_use_id": format!("t{number}")});
    let line = |kind, blocks: Value| json!({"type": kind, "sessionId": "s", "cwd": folder, "message": {"content": blocks}});
    let all_of = |line: &dyn Fn(u32) -> Value| {
        (0..4).map(|number| line(number).to_string() + "\n").collect::<String>()
    };
    let of = |number: u32| number * 1_000..(number + 1) * 1_000;
    let uses = all_of(&|number| line("assistant", of(number).map(block).collect()));
    let results = all_of(&|number| line("user", of(number).map(result).collect()));
    let head = "POST /v1/transcripts?agent=claude-code&source=actions HTTP/1.1\r\n\
                Content-Type: application/x-ndjson\r\nContent-Encoding: gzip";
    for lines in [uses, results] {
        all(&address, 1, head, &gzip(lines.as_bytes()), &[200, 503]).await;
    }
}

/// Results of which each has found as much as is kept, and then all of their uses; and results that share what they have found.
async fn many_results(address: String) {
    let head = "POST /v1/transcripts?agent=claude-code&source=results HTTP/1.1\r\n\
                Content-Type: application/x-ndjson\r\nContent-Encoding: gzip";
    let line = |kind, blocks: Value| json!({"type": kind, "sessionId": "r", "message": {"content": blocks}});
    let paths = |bytes: usize| (0..100).map(|number| format!("{number:0bytes$}")).collect::<Vec<_>>();
    let found = json!({"files": paths(220)}).to_string();
    let result = |number: u32| {
        let block = json!({"type": "tool_result", "tool_use_id": format!("t{number}"), "content": found});
        line("user", json!([block])).to_string() + "\n"
    };
    let block = |number: u32| {
        let input = json!({"query": "q"});
        json!({"type": "tool_use", "id": format!("t{number}"), "name": "mcp__code__search", "input": input})
    };
    let results: String = (0..4_000).map(result).collect();
    let uses: String = (0..4)
        .map(|part| {
            line("assistant", (part * 1_000..(part + 1) * 1_000).map(block).collect()).to_string() + "\n"
        })
        .collect();
    let empty = json!({"type": "tool_result", "tool_use_id": "one of many"});
    let mut shared = line("user", json!(vec![empty; 1_000]));
    shared["toolUseResult"] = json!({"filenames": paths(10_000)});
    for lines in [shared.to_string(), results, uses] {
        all(&address, 1, head, &gzip(lines.as_bytes()), &[200, 503]).await;
    }
}

/// Short texts of JSON that take a hundred times as much memory when they are parsed.
async fn many_values(address: String) {
    let body = |before: &str, value: &str, bytes: usize, after: &str| {
        let values = value.repeat(bytes / value.len());
        gzip(format!("{before}{}{after}", values.trim_end_matches(',')).as_bytes())
    };
    for (path, before, after, statuses) in [
        ("/openai/v1/chat/completions", r#"{"model": "m", "messages": ["#, "]}", &[413, 503][..]),
        ("/anthropic/v1/messages", r#"{"model": "m", "system": ["#, "]}", &[413, 503]),
        (
            "/v1/generations",
            r#"{"user_intent": "a", "domain_name": "d", "iterations": ["#,
            "]}",
            &[413, 422, 503],
        ),
        ("/v1/context/predict", r#"{"model_limit": 1, "pairs": ["#, "]}", &[413, 422, 503]),
        ("/v1/snapshots", r#"{"dataset": "training-pairs", "x": ["#, "]}", &[413, 503]),
        (
            "/mcp",
            r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "log_generation", "arguments": {"x": ["#,
            "]}}}",
            &[200, 413, 503],
        ),
        ("/v1/hooks/codex", r#"{"hook_event_name": "PostToolUse", "tool_response": ["#, "]}", &[200]),
    ] {
        let bytes = if path.starts_with("/v1/") || path == "/mcp" { 2_000_000 } else { 31 << 20 };
        let head = format!(
            "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
            Accept: application/json, text/event-stream"
        );
        for value in ["{},", "0,", r#"{"":0},"#] {
            all(&address, 4, &head, &body(before, value, bytes, after), statuses).await;
        }
    }
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/jsonl\r\nContent-Encoding: gzip";
    let tags = r#"{"event": "memory", "content": "c", "source_type": "memory", "tags": ["#;
    all(&address, 4, head, &body(tags, "\"\",", 60 << 20, "]}"), &[200, 503]).await;
    let log = r#"{"event": "generation", "user_intent": "a", "domain_name": "d", "iterations": ["#;
    all(&address, 4, head, &body(log, "{},", 60 << 20, "]}"), &[200, 503]).await;
    let own = r#"{"event": "generation", "user_intent": "a", "domain_name": "d", "metadata": {"a": ["#;
    all(&address, 4, head, &body(own, r#"{"":0},"#, 60 << 20, "]}}"), &[200, 503]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_with_a_long_system_message_in_every_row_is_built_in_little_memory() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--log", "off"]);
    let line = |number: u32| {
        json!({"event": "generation", "user_intent": format!("intent {number}"), "domain_name": "d", "success": true,
            "final_valid_dsl": "(a)"})
    };
    let lines: Vec<_> = (0..400).map(|number| line(number).to_string()).collect();
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson";
    assert_eq!(exchange(&server.address, head, lines.join("\n").as_bytes()).await, Some(200));
    let before = server.peak();
    for file in ["jsonl.gz", "parquet"] {
        let new = json!({"dataset": "training-pairs", "file": file, "system": "\u{1}".repeat(64 << 10)});
        let (status, snapshot) = server.post("/v1/snapshots", &new).await;
        assert_eq!(status, 202, "{snapshot}");
        let address = format!("/v1/snapshots/{}", snapshot["id"].as_str().expect("an id"));
        eventually("the snapshot is complete", async || server.get(&address).await.1["state"] == "complete")
            .await;
    }
    // A row has 384 KiB as JSON, and all rows have 150 MiB.
    let taken = server.peak() - before;
    assert!(taken < 96 << 10, "the snapshots take {taken} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_that_follow_every_open_search_are_learned_from_in_little_memory() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--log", "off"]);
    let head =
        "POST /v1/transcripts?agent=claude-code&source=steps HTTP/1.1\r\nContent-Type: application/x-ndjson";
    let line = |kind, blocks: Vec<Value>| {
        json!({"type": kind, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "message": {"content": blocks}}).to_string()
    };
    // Each search is weak and is followed, and is also a step of the 64 searches before it.
    let command = "rg a;".repeat(106);
    let block = |number| json!({"type": "tool_use", "id": format!("t{number}"), "name": "Bash", "input": {"command": command}});
    let result = |number| json!({"type": "tool_result", "tool_use_id": format!("t{number}"), "content": ""});
    let uses = line("assistant", (0..300).map(block).collect());
    assert_eq!(exchange(&server.address, head, uses.as_bytes()).await, Some(200));
    let before = server.peak();
    let results = line("user", (0..300).map(result).collect());
    assert_eq!(exchange(&server.address, head, results.as_bytes()).await, Some(200));
    let taken = server.peak() - before;
    assert!(taken < 96 << 10, "the steps take {taken} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_in_very_many_domains_of_long_texts_take_little_memory() {
    const DOMAINS: u32 = 24;
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--log", "off"]);
    let mut random = fastrand::Rng::with_seed(1);
    // The intents of a domain have as many letters in different words as a sample has.
    let mut intent = || -> String {
        (0..1_000).map(|place| if place % 6 == 5 { ' ' } else { random.lowercase() }).collect()
    };
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson";
    for domain in 0..DOMAINS {
        let mut line = || {
            json!({"event": "generation", "user_intent": intent(), "domain_name": format!("d{domain}"),
                "success": true, "final_valid_dsl": "(a)"})
        };
        let lines: Vec<_> = (0..300).map(|_| line().to_string()).collect();
        assert_eq!(exchange(&server.address, head, lines.join("\n").as_bytes()).await, Some(200));
    }
    let before = server.peak();
    for domain in 0..DOMAINS {
        let path = format!("/v1/generations/similar?intent={}&domain_name=d{domain}", encoded(&intent()));
        assert_eq!(server.get(&path).await.0, 200);
    }
    let taken = server.peak() - before;
    assert!(taken < 128 << 10, "the searches take {taken} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_very_many_short_lines_take_the_memory_that_their_events_need() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let before = server.peak();
    let line = json!({"event": "send_attempt", "send_id": Uuid::from_u128(1), "error": {"kind": "timeout"}});
    let lines = format!("{line}\n").repeat(20_000);
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson";
    all(&server.address, 6, head, lines.as_bytes(), &[200, 503]).await;
    assert_eq!(exchange(&server.address, head, lines.as_bytes()).await, Some(200));
    // The project has 64 MiB.
    let taken = server.peak() - before;
    assert!(taken < 112 << 10, "the lines take {taken} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_bodies_of_very_many_values_wait_for_memory_before_they_are_read() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let before = server.peak();
    let log =
        json!({"user_intent": "x", "domain_name": "d", "iterations": vec![json!({}); 5_300]}).to_string();
    let head = "POST /v1/generations HTTP/1.1\r\nContent-Type: application/json\r\nPrefer: return=minimal";
    all(&server.address, 100, head, log.as_bytes(), &[201, 503]).await;
    assert_eq!(exchange(&server.address, head, log.as_bytes()).await, Some(201));
    let taken = server.peak() - before;
    assert!(taken < 128 << 10, "the bodies take {taken} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_a_row_of_very_many_cells_is_read_in_little_memory() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--log", "off"]);
    let before = server.peak();
    let text = format!("password,user\n{}", ",".repeat(7_000_000));
    let line = json!({"event": "generation", "user_intent": text, "domain_name": "d"}).to_string();
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson";
    all(&server.address, 1, head, line.as_bytes(), &[200]).await;
    let taken = server.peak() - before;
    assert!(taken < 112 << 10, "the row takes {taken} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lines_of_which_an_error_says_what_is_wrong_are_refused_in_little_memory() {
    let head = "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson";
    // A character that takes six times as many to be shown.
    let long = "\u{7f}".repeat(8_000_000);
    for line in
        [format!("{{\"event\": \"{long}\"}}"), format!("{{\"event\": \"generation\", \"{long}\": 1}}")]
    {
        let folder = folder();
        let server = Server::start_within(&folder, ADDRESS_SPACE, &["--log", "off"]);
        let before = server.peak();
        let lines = [line.as_str(); 8].join("\n");
        assert_eq!(exchange(&server.address, head, lines.as_bytes()).await, Some(200));
        // The lines have 61 MiB.
        let taken = server.peak() - before;
        assert!(taken < 256 << 10, "the lines take {taken} KiB");
    }
}
