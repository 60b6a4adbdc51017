//! The longest texts: an index takes a third of a page, and whatever a field allows has to fit into it.

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::LOGS;
use crate::support::{Answer, Service, encoded, provider, with};

/// A text of so many characters, each of four bytes, that no compression makes much shorter.
fn long(characters: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    (0..characters).map(|_| char::from_u32(random.u32(0x20000..0x2a000)).expect("a character")).collect()
}

/// A service, and a key of a project that has the longest name.
struct Named {
    service: Service,
    key: String,
}

impl Named {
    async fn new() -> Self {
        let (service, _) = provider::service().await;
        let operator = service.first_key().await;
        let authorization = format!("Bearer {operator}");
        let headers = [("authorization", authorization.as_str())];
        let project = "p".repeat(200);
        let path = format!("/v1/projects/{project}x");
        service.call(Method::PUT, &path, &headers, Some(&json!({}))).await.refused(422, &["/project"]);
        let path = format!("/v1/projects/{project}");
        service.call(Method::PUT, &path, &headers, Some(&json!({}))).await.expect(201);
        let key = json!({"name": "k", "project": project, "scopes": ["write", "read", "admin"]});
        let made = service.call(Method::POST, "/v1/keys", &headers, Some(&key)).await.expect(201);
        Self { service, key: format!("Bearer {}", made["key"].as_str().expect("a secret")) }
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.service.call(method, path, &[("authorization", &self.key)], Some(body)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    /// Posts a text of the most characters that a field allows, which is taken, and one more, which is refused by its name. The
    /// body is made of the text; returns what is answered to the first.
    async fn longest(&self, path: &str, pointer: &str, most: usize, body: impl Fn(&str) -> Value) -> Value {
        let taken = self.post(path, &body(&long(most))).await;
        assert!(taken.status.is_success(), "{path} {pointer}: {}", taken.text());
        self.post(path, &body(&long(most + 1))).await.refused(422, &[pointer]);
        taken.json()
    }

    async fn transcript(&self, source: &str, lines: &[Value]) -> Answer {
        let path = format!("/v1/transcripts?agent=claude-code&source={}", encoded(source));
        let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
        let request = crate::support::request(Method::POST, &path)
            .header("authorization", &self.key)
            .header("content-type", "application/jsonl");
        self.service.send(request.body(lines.join("\n").into()).expect("a request")).await
    }
}

#[tokio::test]
async fn the_longest_text_of_every_indexed_column_is_taken_and_a_longer_one_refused() {
    let named = Named::new().await;
    let log = |member: &str, text: &str| {
        with(json!({"user_intent": "i", "domain_name": "d"}), &json!({member: text}))
    };
    named.longest(LOGS, "/domain_name", 50, |text| log("domain_name", text)).await;
    for member in ["session_id", "cbu_id", "instance_id"] {
        named.longest(LOGS, &format!("/{member}"), 200, |text| log(member, text)).await;
    }
    // It has no limit but that of the body. Texts of up to 2 000 bytes are indexed by their trigrams, one for nearly each byte.
    let mut random = fastrand::Rng::with_seed(8);
    let words: String = (0..2_000).map(|at| if at % 3 == 2 { ' ' } else { random.alphanumeric() }).collect();
    for intent in [words, long(500), long(500_000)] {
        named.post(LOGS, &log("user_intent", &intent)).await.expect(201);
    }
    let attempts =
        |text: &str| with(log("domain_name", "d"), &json!({"iterations": [{"prompt_template": text}]}));
    named.longest(LOGS, "/iterations/0/prompt_template", 200, attempts).await;
    let body = json!({"template_text": "t", "domain_name": "d"});
    for (characters, status) in [(200, 201), (201, 422)] {
        let path = format!("/v1/prompt-templates/{}", encoded(&long(characters)));
        assert_eq!(named.send(Method::PUT, &path, &body).await.status, status);
        let path = format!("/v1/models/{}", encoded(&long(characters)));
        let model = json!({"context_window": 1_000_000});
        assert_eq!(named.send(Method::PUT, &path, &model).await.status, status);
    }
    let suggestion = |text: &str| json!({"context": {}, "suggestions": ["a"], "session_name": text});
    named.longest("/v1/suggestions", "/session_name", 200, suggestion).await;
    let pair = json!({"user_text": "u", "assistant_text": "a"});
    for member in ["topic_id", "session_id"] {
        let body = |text: &str| with(pair.clone(), &json!({member: text}));
        named.longest("/v1/pairs", &format!("/{member}"), 200, body).await;
    }
    named
        .post("/v1/pairs", &json!({"user_text": long(200_000), "assistant_text": long(200_000)}))
        .await
        .expect(201);
    let asked = json!({"mode": "record", "model": long(200), "user_text": "u"});
    named
        .longest("/v1/sends", "/session_id", 200, |text| with(asked.clone(), &json!({"session_id": text})))
        .await;
    let sent =
        named.longest("/v1/sends", "/model", 200, |text| with(asked.clone(), &json!({"model": text}))).await;
    let path = format!("/v1/sends/{}", sent["id"].as_str().expect("an id"));
    let usage = json!({"usage": {"prompt_tokens": 29, "completion_tokens": 10}});
    named.post(&format!("{path}/attempts"), &usage).await.expect(201);
    named.post(&format!("{path}/finalize"), &with(usage, &json!({"assistant_text": "a"}))).await.expect(200);
    check_searches(&named).await;
    check_transcripts(&named).await;
    check_memories(&named).await;
    check_gateway(&named).await;

    let mut connection = named.service.connection().await;
    let columns: Vec<String> = sqlx::query_scalar(INDEXED).fetch_all(&mut connection).await.expect("columns");
    let mut lengths = Vec::new();
    for column in columns {
        let (table, name) = column.split_once('.').expect("a table's column");
        let sql = format!("select coalesce(max(octet_length({name})), 0)::int from {table}");
        let bytes: i32 =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.expect("a length");
        lengths.push((column, bytes));
    }
    let expected: Vec<_> = LONGEST.iter().map(|(column, bytes)| ((*column).to_owned(), *bytes)).collect();
    assert_eq!(lengths, expected, "a column that is in an index has its longest text posted by this test");
}

/// The columns of texts that stand in an index of a table of records, but for projects, whose longest name is in every row.
const INDEXED: &str = "
    select distinct t.relname || '.' || a.attname
    from pg_index i
    join pg_class t on t.oid = i.indrelid and t.relnamespace = 'public'::regnamespace
    cross join unnest(i.indkey) as part
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = part
    where a.atttypid in ('text'::regtype, 'varchar'::regtype) and a.attname <> 'project'
        and t.relname not in ('projects', 'keys') and a.attname not in ('kind', 'state')
    order by 1";

/// How many bytes the longest text of each has.
const LONGEST: [(&str, i32); 31] = [
    ("agent_threads.session", 800),
    ("association_queries.repository", 800),
    ("attempts.prompt_template", 800),
    ("conversation_memories.session_id", 800),
    ("conversation_queries.session_id", 800),
    ("generations.cbu_id", 800),
    ("generations.domain_name", 200),
    ("generations.instance_id", 800),
    ("generations.session_id", 800),
    ("generations.user_intent", 2_000_000),
    ("memories.session_id", 800),
    ("memory_suggests.session_id", 800),
    ("model_ratios.model", 800),
    ("models.name", 800),
    ("near_texts.work", 0),
    ("near_twins.work", 0),
    ("pairs.session_id", 800),
    ("pairs.topic_id", 800),
    ("prompt_templates.template_id", 800),
    ("searches.agent_session_id", 800),
    ("send_attempts.model", 800),
    ("sends.model", 800),
    ("sends.session_id", 800),
    ("split_texts.domain", 0),
    ("suggestions.session_name", 800),
    ("text_progress.work", 0),
    ("tool_calls.session", 800),
    ("touched_files.repository", 800),
    ("transcript_lines.session", 800),
    ("transcripts.session", 800),
    ("unasked_help.session_id", 0),
];

/// Requests to the gateway with the longest names of a model, a session and a topic, which headers have in ASCII.
async fn check_gateway(named: &Named) {
    let path = "/openai/v1/chat/completions";
    let chat = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
    for (characters, status) in [(200, 200), (201, 422)] {
        assert_eq!(named.post(path, &chat(&long(characters))).await.status, status);
    }
    for header in ["gleaner-session", "gleaner-topic"] {
        for (characters, status) in [(200, 200), (201, 422)] {
            let headers = [("authorization", &*named.key), (header, &*"n".repeat(characters))];
            let answer = named.service.call(Method::POST, path, &headers, Some(&chat("m"))).await;
            assert_eq!(answer.status, status, "{header}: {}", answer.text());
        }
    }
}

/// Memories and a conversation with the longest names and texts.
async fn check_memories(named: &Named) {
    for (member, most) in
        [("session_id", 200), ("symbol", 200), ("file_path", 4_096), ("root", 4_096), ("content", 262_144)]
    {
        let body = |text: &str| with(json!({"content": "x"}), &json!({member: text}));
        named.longest("/v1/memories", &format!("/{member}"), most, body).await;
    }
    let tags = |text: &str| json!({"content": "x", "tags": [text]});
    let memory = named.longest("/v1/memories", "/tags/0", 200, tags).await;
    let session = format!("/v1/conversations/{}", encoded(&long(200)));
    for (member, most) in [("root", 4_096), ("query", 262_144)] {
        let body = |text: &str| with(json!({"query": "x"}), &json!({member: text}));
        named.longest(&format!("{session}/queries"), &format!("/{member}"), most, body).await;
    }
    named.post(&format!("{session}/suggest"), &json!({})).await.expect(200);
    let verdict = json!({"memory_id": memory["id"], "verdict": "used"});
    named.post(&format!("{session}/feedback"), &verdict).await.expect(200);
}

/// A search with the longest names and paths, of which something is learned that the next one is told.
async fn check_searches(named: &Named) {
    let search = json!({"query": "login button", "best_score": 0.1, "result_count": 0});
    for (member, most) in
        [("agent_session_id", 200), ("agent_id", 200), ("turn_id", 200), ("root", 4_096), ("query", 2_000)]
    {
        let body = |text: &str| with(search.clone(), &json!({member: text}));
        named.longest("/v1/searches", &format!("/{member}"), most, body).await;
    }
    let (root, path) = (long(4_096), long(4_096));
    let body = with(search, &json!({"agent_session_id": long(200), "root": root}));
    let id = named.post("/v1/searches", &body).await.expect(201)["id"].as_str().expect("an id").to_owned();
    let fallback = |text: &str| json!({"kind": "read", "path": text});
    named.longest(&format!("/v1/searches/{id}/fallbacks"), "/path", 4_096, fallback).await;
    let resolved = named.post(&format!("/v1/searches/{id}/resolve"), &json!({})).await.expect(200);
    assert_eq!(resolved["state"], "resolved");
    let body = with(body, &json!({"agent_session_id": "another"}));
    let hints = named.post("/v1/searches", &body).await.expect(201)["hints"].clone();
    assert_eq!((hints[0]["path"].as_str(), hints[0]["root"].as_str()), (Some(&*path), Some(&*root)));
    let gone = named.post("/v1/associations/gone", &json!({"root": root, "path": path})).await.expect(200);
    assert_eq!(gone, json!({"gone": 1}));
}

/// A transcript whose source has the longest name, and whose lines have names that are longer than any that is kept.
async fn check_transcripts(named: &Named) {
    let line = |kind: &str, second: u32, content: Value| {
        json!({"type": kind, "sessionId": long(5_000), "cwd": long(5_000), "promptId": long(5_000), "agentId": long(5_000),
            "timestamp": format!("2026-03-01T10:00:{second:02}Z"), "message": {"role": kind, "content": content}})
    };
    let uses = |id: &str, name: &str, input: &Value| json!([{"type": "tool_use", "id": id, "name": name, "input": input}]);
    let answers = |id: &str, text: &str| json!([{"type": "tool_result", "tool_use_id": id, "content": text}]);
    let (first, second) = (format!("1{}", long(5_000)), format!("2{}", long(5_000)));
    let results = json!({"results": [{"path": long(4_096), "score": 0.1}]}).to_string();
    let lines = [
        line("assistant", 1, uses(&first, "mcp__index__search", &json!({"query": long(2_001)}))),
        line("user", 2, answers(&first, &results)),
        line("assistant", 3, uses(&second, "Read", &json!({"file_path": format!("/{}", "p".repeat(4_090))}))),
        line("user", 4, answers(&second, "text")),
        // A use without its answer is remembered.
        line("assistant", 5, uses(&long(5_000), "Read", &json!({"file_path": "a"}))),
        line("user", 6, json!("never mind")),
    ];
    let counts = named.transcript(&long(1_000), &lines).await.expect(200);
    assert_eq!((&counts["matched"], &counts["searches_resolved"]), (&json!(2), &json!(1)), "{counts}");
    named.transcript(&long(1_001), &lines).await.refused(422, &["/source"]);
    let counts = named.transcript(&long(1_000), &lines).await.expect(200);
    assert_eq!(counts["duplicates"], 6);
    let payload = json!({"session_id": long(5_000), "cwd": long(5_000), "hook_event_name": "PostToolUse", "tool_name": "Read",
        "tool_use_id": long(5_001), "tool_input": {"file_path": format!("/{}", "p".repeat(4_090))}, "tool_response": {}});
    named.post("/v1/hooks/claude-code", &payload).await.expect(200);
}
