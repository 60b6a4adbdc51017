//! Suggestions of memories for conversations of a few queries, alone and beside 100 new memories per second, compared
//! to a search by trigrams; and the intents of such conversations.

use std::cell::Cell;
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::Plan;
use crate::data::{Class, Maker};
use crate::load::{Connection, Latencies, ndjson, request};
use crate::machine::Machine;
use crate::table::Line;

/// How many conversations of each kind ask for suggestions, and how many of the baseline's queries are measured.
const CONVERSATIONS: usize = 300;
const BASELINE_QUERIES: usize = 3;
/// After how many seconds a query of the baseline is given up.
const PATIENCE: u64 = 20;
/// A request for suggestions that are not likely, too, so that there are some to record.
const ASKED: &str = r#"{"confidence_threshold": 0}"#;
/// How many queries a conversation has before it asks.
const QUERIES: usize = 3;
/// Every so many-th memory is one that conversations are about.
const TALKED_ABOUT: usize = 100;
/// Over how many seconds of the past memories are spread: two years.
const AGES: f64 = 2.0 * 365.0 * 86_400.0;

/// What a conversation is about.
#[derive(Debug, Clone, Copy)]
enum About {
    /// Words of a memory, among others.
    AMemory,
    /// Words that hardly any memory has.
    RareWords,
    /// Words that very many memories have.
    CommonWords,
    /// Long texts, as if a file were pasted.
    LongTexts,
}

impl About {
    fn name(self) -> &'static str {
        match self {
            Self::AMemory => "about a memory",
            Self::RareWords => "in rare words",
            Self::CommonWords => "in common words",
            Self::LongTexts => "of 4 KB texts",
        }
    }
}

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    let subjects = load(machine, plan.scale).await;
    // The first question of a project has its memories sampled.
    let _ = ask(machine, &subjects, About::AMemory, 50).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let most = if plan.scale > 100_000 { 150.0 } else { 100.0 };
    let took = intents(machine, &subjects).await;
    let line = Line::new("the intent of a conversation of three queries".to_owned(), took.summary());
    let mut lines = vec![line.goal("p99 < 5 ms", took.percentile(99) < 5.0)];
    for beside in [false, true] {
        for about in [About::AMemory, About::RareWords, About::CommonWords, About::LongTexts] {
            let asked = ask(machine, &subjects, about, CONVERSATIONS);
            let (took, found) = if beside { beside_memories(machine, asked).await } else { asked.await };
            let company = if beside { ", beside 100 new memories/s" } else { "" };
            let what = format!(
                "suggestions among {} memories, conversations {}{company} ({found} of {CONVERSATIONS} get any)",
                plan.scale,
                about.name()
            );
            let line = Line::new(what, took.summary())
                .goal(&format!("p99 < {most:.0} ms"), took.percentile(99) < most);
            let baseline = if beside { String::new() } else { by_trigrams(machine, &subjects, about).await };
            lines.push(line.baseline(baseline));
        }
    }
    lines
}

/// A memory of a few words up to two kilobytes: a note, or a function of a file.
fn memory(maker: &mut Maker, nth: usize) -> (Value, String) {
    let text = maker.text([120, 250, 500, 900, 2_000][nth % 5]);
    let root = format!("/home/jane/{}", maker.domain());
    let age = AGES * (nth % 9_973) as f64 / 9_973.0;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs_f64();
    let mut memory = json!({"event": "memory", "id": Uuid::now_v7(), "root": root, "created_at": now - age,
        "importance": (nth % 10) as f64 / 10.0});
    let content = if nth.is_multiple_of(3) {
        let name = maker.intent(Class::Short).replace(' ', "_");
        memory["source_type"] = json!("code");
        memory["file_path"] = json!(format!("src/{}.rs", maker.domain()));
        memory["symbol"] = json!(name);
        format!("fn {name}() {{\n    {text}\n}}")
    } else {
        text
    };
    memory["content"] = json!(content);
    (memory, content)
}

/// Stores so many memories. Returns the texts of some of them.
async fn load(machine: &Machine, memories: usize) -> Vec<String> {
    let (mut maker, mut connection) = (Maker::new(21), Connection::open(&machine.address).await);
    let (begun, mut subjects, mut lines) = (Instant::now(), Vec::new(), String::new());
    for nth in 0..memories {
        let (memory, content) = memory(&mut maker, nth);
        let _ = writeln!(lines, "{memory}");
        if nth % TALKED_ABOUT == 0 {
            subjects.push(content);
        }
        if nth % 1_000 == 999 || nth + 1 == memories {
            connection.send(&ndjson("default", &std::mem::take(&mut lines))).await;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!("stored {memories} memories in {seconds:.1} s ({:.0}/s)", memories as f64 / seconds);
    // As autovacuum would have after a while.
    let vacuum = sqlx::raw_sql("vacuum analyze memories");
    vacuum.execute(&mut machine.connect().await).await.expect("a vacuum");
    subjects
}

/// The next query of a conversation.
fn query(maker: &mut Maker, about: About, subject: &str, turn: usize) -> String {
    match about {
        About::AMemory => {
            let words: Vec<_> = subject.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let some: Vec<_> = words
                .iter()
                .filter(|word| !word.is_empty())
                .skip(turn)
                .step_by(QUERIES)
                .take(5)
                .copied()
                .collect();
            format!("why does {} {}?", some.join(" "), maker.intent(Class::Short))
        }
        About::RareWords => maker.intent(Class::Rare),
        About::CommonWords => maker.intent(Class::Common),
        About::LongTexts => maker.text(4_000),
    }
}

/// Has so many conversations ask for suggestions. Returns how long it took, and how many got any.
async fn ask(
    machine: &Machine,
    subjects: &[String],
    about: About,
    conversations: usize,
) -> (Latencies, usize) {
    let mut maker = Maker::new(22);
    let mut connection = Connection::open(&machine.address).await;
    let (mut took, mut found, begun) = (Vec::new(), 0, Instant::now());
    for nth in 0..conversations {
        let (subject, session) = (&subjects[nth % subjects.len()], Uuid::now_v7());
        for turn in 0..QUERIES {
            let query =
                json!({"query": query(&mut maker, about, subject, turn), "root": "/home/jane/domain-1"});
            let path = format!("/v1/conversations/{session}/queries");
            connection.send(&request("default", &path, Some(("application/json", &query.to_string())))).await;
        }
        let path = format!("/v1/conversations/{session}/suggest");
        let sent = Instant::now();
        let answer = connection.send(&request("default", &path, Some(("application/json", ASKED)))).await;
        took.push(sent.elapsed().as_secs_f64() * 1e3);
        found += usize::from(!answer.contains(r#""total_suggestions":0"#));
    }
    (Latencies::new(took, begun.elapsed().as_secs_f64()), found)
}

/// Asks for the intents of conversations about memories. Returns how long the answers took.
async fn intents(machine: &Machine, subjects: &[String]) -> Latencies {
    let (mut maker, mut connection) = (Maker::new(24), Connection::open(&machine.address).await);
    let (mut took, begun) = (Vec::new(), Instant::now());
    for nth in 0..CONVERSATIONS {
        let subject = &subjects[nth % subjects.len()];
        let queries = (0..QUERIES).map(|turn| query(&mut maker, About::AMemory, subject, turn));
        let body = json!({"recent_queries": queries.collect::<Vec<_>>()}).to_string();
        let sent = Instant::now();
        connection.send(&request("default", "/v1/intents/detect", Some(("application/json", &body)))).await;
        took.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    Latencies::new(took, begun.elapsed().as_secs_f64())
}

/// Does something while memories come in.
async fn beside_memories<T>(machine: &Machine, work: impl Future<Output = T>) -> T {
    let done = Cell::new(false);
    let ingest = async {
        let mut maker = Maker::new(23);
        let mut connection = Connection::open(&machine.address).await;
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        for nth in 0.. {
            if done.get() {
                break;
            }
            tick.tick().await;
            connection.send(&ndjson("default", &memory(&mut maker, nth).0.to_string())).await;
        }
    };
    let work = async {
        let result = work.await;
        done.set(true);
        result
    };
    futures_util::join!(ingest, work).1
}

/// The plain way: the memories whose trigrams are most like those of the last query. Returns how long it takes.
async fn by_trigrams(machine: &Machine, subjects: &[String], about: About) -> String {
    const CANCELED: &str = "57014";
    let sql = "select id, content from memories where project = 'default' and content % $1
        order by similarity(content, $1) desc limit 5";
    let (mut maker, mut connection) = (Maker::new(22), machine.connect().await);
    let patience = format!("set statement_timeout = '{PATIENCE}s'");
    sqlx::query(AssertSqlSafe(patience)).execute(&mut connection).await.expect("a setting");
    let (mut took, begun) = (Vec::new(), Instant::now());
    for subject in subjects.iter().take(BASELINE_QUERIES) {
        let asked = query(&mut maker, about, subject, QUERIES - 1);
        let sent = Instant::now();
        match sqlx::query(sql).bind(asked).fetch_all(&mut connection).await {
            Ok(_) => took.push(sent.elapsed().as_secs_f64() * 1e3),
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(CANCELED) => {
                return format!("more than {PATIENCE} s");
            }
            Err(error) => panic!("the baseline fails: {error}"),
        }
    }
    format!("p50 {:.0} ms", Latencies::new(took, begun.elapsed().as_secs_f64()).percentile(50))
}
