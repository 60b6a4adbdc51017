//! The data of the benchmarks: intents whose words are as unevenly distributed as those of people, and programs for
//! them.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::load::{Connection, ndjson};
use crate::machine::Machine;

/// The number of words.
const WORDS: usize = 50_000;
/// The number of domains.
const DOMAINS: usize = 20;

/// Makes words, intents and programs, which are the same each time.
pub(crate) struct Maker(fastrand::Rng);

/// The kind of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Short,
    Medium,
    Long,
    Rare,
    Common,
}

impl Maker {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns the word of a rank, whose syllables are always the same.
    fn word(rank: usize) -> String {
        const SYLLABLES: [&str; 24] = [
            "ka", "to", "mi", "re", "su", "na", "lo", "ve", "di", "pa", "ro", "te", "fi", "gu", "ha", "le",
            "bo", "ci", "da", "er", "in", "on", "ar", "ul",
        ];
        let mut word = String::new();
        let mut rest = rank + SYLLABLES.len();
        while rest > 0 {
            word.push_str(SYLLABLES[rest % SYLLABLES.len()]);
            rest /= SYLLABLES.len();
        }
        word
    }

    /// Draws a rank between two bounds: the first ten are as frequent as the next ninety (Zipf).
    fn rank(&mut self, from: usize, to: usize) -> usize {
        let (from, to) = ((from + 1) as f64, (to + 1) as f64);
        let rank = from * (to / from).powf(self.0.f64());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between the two"
        )]
        return rank as usize - 1;
    }

    pub(crate) fn intent(&mut self, class: Class) -> String {
        let (words, from, to) = match class {
            Class::Short => (self.0.usize(1..=2), 0, WORDS),
            Class::Medium => (self.0.usize(5..=10), 0, WORDS),
            Class::Long => (self.0.usize(25..=40), 0, WORDS),
            Class::Rare => (self.0.usize(3..=6), 20_000, WORDS),
            Class::Common => (self.0.usize(3..=6), 0, 50),
        };
        let words: Vec<_> = (0..words).map(|_| Self::word(self.rank(from, to))).collect();
        words.join(" ")
    }

    pub(crate) fn domain(&mut self) -> String {
        format!("domain-{}", self.rank(0, DOMAINS - 1))
    }

    /// Returns a program for an intent, as an S-expression.
    fn program(&mut self, intent: &str) -> String {
        let mut words = intent.split(' ');
        let mut program = format!("({}.create", words.next().unwrap_or("it"));
        for word in words {
            let _ = write!(
                program,
                "\n  ({}.add :name \"{word}\" :share {})",
                Self::word(self.rank(0, 200)),
                self.0.u8(..)
            );
        }
        program.push(')');
        program
    }

    /// Returns a text of this many bytes that compresses as prompts do.
    pub(crate) fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            text.push_str(&Self::word(self.rank(0, WORDS)));
            text.push(' ');
        }
        text.truncate(bytes);
        text
    }
}

/// Returns a line that stores a solved log, with an attempt that failed and one that passed.
fn solved_log(maker: &mut Maker, id: Uuid) -> Value {
    let class = if maker.0.u8(..) < 32 { Class::Long } else { Class::Medium };
    let intent = maker.intent(class);
    let (wrong, right) = (maker.program(&intent), maker.program(&intent));
    let lint = json!({"valid": false, "errors": ["Unknown verb"], "warnings": []});
    json!({"event": "generation", "id": id, "user_intent": intent, "domain_name": maker.domain(), "model_used": "m-1",
    "success": true, "iterations": [
        {"attempt": 1, "extracted_dsl": wrong, "parse_result": {"success": true}, "lint_result": lint},
        {"attempt": 2, "extracted_dsl": right, "parse_result": {"success": true}},
    ]})
}

/// Returns this many lines with a solved log each, which are the same for the same seed.
pub(crate) fn solved_logs(seed: u64, count: u64) -> String {
    let mut maker = Maker::new(seed);
    let mut lines = String::new();
    for _ in 0..count {
        let mut id = [0; 16];
        maker.0.fill(&mut id);
        let log = solved_log(&mut maker, uuid::Builder::from_random_bytes(id).into_uuid());
        let _ = writeln!(lines, "{log}");
    }
    lines
}

/// Stores this many solved logs.
pub(crate) async fn load(machine: &Machine, logs: usize) {
    let (mut maker, mut connection) = (Maker::new(1), Connection::open(&machine.address).await);
    let begun = Instant::now();
    let mut done = 0;
    while done < logs {
        let batch = (logs - done).min(1_000);
        let mut lines = String::new();
        for _ in 0..batch {
            let _ = writeln!(lines, "{}", solved_log(&mut maker, Uuid::now_v7()));
        }
        connection.send(&ndjson("default", &lines)).await;
        done += batch;
    }
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!(
        "stored {logs} solved logs with 2 attempts each in {seconds:.1} s ({:.0}/s)",
        logs as f64 / seconds
    );
    // Autovacuum would do this after a while.
    sqlx::raw_sql("vacuum analyze generations, attempts, correction_pairs")
        .execute(&mut machine.connect().await)
        .await
        .expect("a vacuum");
}
