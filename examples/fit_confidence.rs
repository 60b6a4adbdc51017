//! Fits the weights by which the confidence of a suggestion follows from the evidence.
//!
//! ```sh
//! cargo run --release --example fit_confidence -- DATA/*.jsonl.gz > coefficients.rs
//! mv coefficients.rs src/memories/rules/confidence/coefficients.rs
//! ```
//!
//! A line of a file is a store of memories with conversations over it: `{"store": [{"id", "content", "source_type",
//! "file_path"?, "symbol"?, "created_at"?}], "conversations": [{"turns": [{"query", "at"?, "relevant": [ids] | null}]}]}`, where
//! `relevant` is empty if nothing in the store belongs to the turn, and null if nobody has judged that. What the weights reach on
//! the same data, and on each file when they are fitted on the others, is told on the standard error.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use chrono::{DateTime, Utc};
use flate2::read::MultiGzDecoder;
use gleaner::memories::rules::confidence::{Coefficients, Standing, Verdicts, probability, recency};
use gleaner::memories::rules::context::Context;
use gleaner::memories::rules::ranking::{Compared, Evidence, Statistics, compare, score};
use gleaner::memories::rules::terms::Indexed;
use gleaner::retrieval::keys::KeyMap;
use serde::Deserialize;

/// The name of the project for which terms are made.
const PROJECT: &str = "fit";
/// How many queries a suggestion follows from, how many memories are compared by their texts, and how many are suggested.
const WINDOW: usize = 5;
const COMPARED: usize = 50;
const SUGGESTED: usize = 5;
/// How strongly a weight is drawn to 0, per standard deviation of what it is of.
const RIDGE: f64 = 10.0;
/// What the data cannot tell, as it has no importance, no folders and no verdicts, and its ages are those of the sets: chosen by
/// hand, such that a recent memory is preferred to an old one as in the seed, and neither outweighs the words.
const BY_HAND: Coefficients = Coefficients {
    intercept: 0.0,
    evidence: [0.0; 7],
    recency: 0.5,
    importance: 1.0,
    root: 0.5,
    verdicts: 1.5,
};
const NAMES: [&str; 7] = ["saturation", "lead", "grams", "phrases", "shared", "size", "earlier"];
/// The bounds of the bands in which what was said is compared with what was so.
const BANDS: [f64; 8] = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0 + 1e-9];

#[derive(Deserialize)]
struct Store {
    store: Vec<Memory>,
    conversations: Vec<Conversation>,
}

#[derive(Deserialize)]
struct Memory {
    id: String,
    content: String,
    file_path: Option<String>,
    symbol: Option<String>,
    created_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct Conversation {
    turns: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    query: String,
    at: Option<DateTime<Utc>>,
    relevant: Option<Vec<String>>,
    #[serde(default)]
    any_of: bool,
}

/// A memory that might be suggested in a turn.
struct Row {
    evidence: Evidence,
    standing: Standing,
    score: f64,
    belongs: bool,
}

/// A judged turn with the memories that might be suggested in it.
struct Judged {
    set: String,
    rows: Vec<Row>,
    relevant: usize,
    any_of: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut turns = Vec::new();
    for path in std::env::args().skip(1) {
        let set = path.rsplit('/').next().unwrap_or(&path).split('.').next().unwrap_or_default().to_owned();
        let file = File::open(&path)?;
        let reader: Box<dyn Read> = if Path::new(&path).extension().is_some_and(|extension| extension == "gz")
        {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        for line in BufReader::new(reader).lines() {
            judge(&set, &serde_json::from_str(&line?)?, &mut turns);
        }
    }
    let sets: HashSet<_> = turns.iter().map(|turn| turn.set.clone()).collect();
    let all: Vec<_> = turns.iter().collect();
    let fitted = fit(&all);
    report("fitted on all", &all, |_| fitted);
    let without: HashMap<_, _> = sets
        .iter()
        .map(|set| (set.clone(), fit(&turns.iter().filter(|turn| turn.set != *set).collect::<Vec<_>>())))
        .collect();
    report("each fitted on the others", &all, |turn| without[&turn.set]);
    print(&fitted, turns.len(), sets.len());
    Ok(())
}

/// Adds the judged turns of a store.
fn judge(set: &str, store: &Store, turns: &mut Vec<Judged>) {
    let texts: Vec<_> = store
        .store
        .iter()
        .map(|memory| {
            let parts =
                [Some(memory.content.as_str()), memory.file_path.as_deref(), memory.symbol.as_deref()];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        })
        .collect();
    let indexed: Vec<_> = texts.iter().map(|text| Indexed::of(PROJECT, [text.as_str()])).collect();
    let mut statistics = Statistics { memories: indexed.len() as f64, frequencies: KeyMap::default() };
    for key in indexed.iter().flat_map(|indexed| &indexed.keys) {
        *statistics.frequencies.entry(*key).or_default() += 1.0;
    }
    let all_turns = store.conversations.iter().flat_map(|conversation| &conversation.turns);
    let today = all_turns.filter_map(|turn| turn.at).min();
    for conversation in &store.conversations {
        for (place, turn) in conversation.turns.iter().enumerate() {
            let Some(relevant) = &turn.relevant else { continue };
            let queries = conversation.turns[..=place].iter().rev().take(WINDOW).map(|turn| &*turn.query);
            let context = Context::of(PROJECT, queries);
            let scores = score(&context, &indexed, &mut statistics);
            let mut best: Vec<_> = (0..scores.len()).filter(|&memory| scores[memory] > 0.0).collect();
            best.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
            best.truncate(COMPARED);
            let compared: Vec<_> = best
                .iter()
                .map(|&memory| Compared {
                    indexed: &indexed[memory],
                    score: scores[memory],
                    text: texts[memory].get(..6_000).unwrap_or(&texts[memory]),
                })
                .collect();
            let evidence = compare(PROJECT, &context, &compared, &statistics);
            let row = |(&memory, evidence): (&usize, Evidence)| {
                let age = today.zip(store.store[memory].created_at).map(|(today, made)| today - made);
                let days = age.map_or(0.0, |age| age.num_seconds() as f64 / 86_400.0);
                let standing = Standing {
                    recency: recency(days),
                    importance: 0.5,
                    same_root: None,
                    verdicts: Verdicts::default(),
                };
                let belongs = relevant.contains(&store.store[memory].id);
                Row { evidence, standing, score: scores[memory], belongs }
            };
            let rows = best.iter().zip(evidence).map(row).collect();
            turns.push(Judged { set: set.to_owned(), rows, relevant: relevant.len(), any_of: turn.any_of });
        }
    }
}

/// Returns the rows of a turn that are suggested, by these log odds.
fn suggested(turn: &Judged, log_odds: impl Fn(&Row) -> f64) -> Vec<(&Row, f64)> {
    let mut rows: Vec<_> = turn.rows.iter().map(|row| (row, log_odds(row))).collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    rows.truncate(SUGGESTED);
    rows
}

/// Fits a logistic regression to what is suggested, which depends on the weights, and therefore some times over.
fn fit(turns: &[&Judged]) -> Coefficients {
    let mut coefficients = BY_HAND;
    for round in 0..4 {
        let rows: Vec<_> = turns
            .iter()
            .flat_map(|turn| {
                suggested(turn, |row| {
                    if round == 0 { row.score } else { coefficients.log_odds(&row.evidence, &row.standing) }
                })
            })
            .map(|(row, _)| row)
            .collect();
        coefficients = regress(&rows);
    }
    coefficients
}

/// Newton's method on the penalised likelihood, with what is set by hand held as it is.
fn regress(rows: &[&Row]) -> Coefficients {
    const SIZE: usize = 8;
    let count = rows.len() as f64;
    let values: Vec<_> = rows.iter().map(|row| row.evidence.values()).collect();
    let mean: [f64; 7] = std::array::from_fn(|at| values.iter().map(|row| row[at]).sum::<f64>() / count);
    let deviation: [f64; 7] = std::array::from_fn(|at| {
        (values.iter().map(|row| (row[at] - mean[at]).powi(2)).sum::<f64>() / count).sqrt().max(1e-9)
    });
    let mut weights = [0.0; SIZE];
    for _ in 0..50 {
        let (mut gradient, mut hessian) = ([0.0; SIZE], [[0.0; SIZE]; SIZE]);
        for at in 0..SIZE - 1 {
            gradient[at] = RIDGE * weights[at];
            hessian[at][at] = RIDGE;
        }
        for (row, values) in rows.iter().zip(&values) {
            let features: [f64; SIZE] =
                std::array::from_fn(|at| if at == 7 { 1.0 } else { (values[at] - mean[at]) / deviation[at] });
            let by_hand = BY_HAND.log_odds(&row.evidence, &row.standing);
            let p = probability(by_hand + features.iter().zip(weights).map(|(f, w)| f * w).sum::<f64>());
            let off = p - f64::from(u8::from(row.belongs));
            for at in 0..SIZE {
                gradient[at] += off * features[at];
                for other in 0..SIZE {
                    hessian[at][other] += p * (1.0 - p) * features[at] * features[other];
                }
            }
        }
        let step = solve(hessian, gradient);
        for (weight, step) in weights.iter_mut().zip(step) {
            *weight -= step;
        }
        if step.iter().all(|step| step.abs() < 1e-9) {
            break;
        }
    }
    let evidence: [f64; 7] = std::array::from_fn(|at| weights[at] / deviation[at]);
    let intercept = weights[7] - (0..7).map(|at| evidence[at] * mean[at]).sum::<f64>();
    Coefficients { intercept, evidence, ..BY_HAND }
}

/// Solves a system of linear equations by elimination.
fn solve<const N: usize>(mut matrix: [[f64; N]; N], mut right: [f64; N]) -> [f64; N] {
    for at in 0..N {
        let pivot =
            (at..N).max_by(|&a, &b| matrix[a][at].abs().total_cmp(&matrix[b][at].abs())).unwrap_or(at);
        matrix.swap(at, pivot);
        right.swap(at, pivot);
        for row in 0..N {
            if row != at {
                let factor = matrix[row][at] / matrix[at][at];
                let pivot = matrix[at];
                for (value, pivot) in matrix[row].iter_mut().zip(pivot) {
                    *value -= factor * pivot;
                }
                right[row] -= factor * right[at];
            }
        }
    }
    std::array::from_fn(|at| right[at] / matrix[at][at])
}

/// Tells how good the weights are.
fn report(title: &str, turns: &[&Judged], weights: impl Fn(&Judged) -> Coefficients) {
    let mut recalls: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut said = Vec::new();
    let (mut alarms, mut silent) = (0, 0);
    for turn in turns {
        let weights = weights(turn);
        let rows = suggested(turn, |row| weights.log_odds(&row.evidence, &row.standing));
        let hits = rows.iter().filter(|(row, _)| row.belongs).count();
        if turn.relevant > 0 {
            let most = if turn.any_of { 1 } else { turn.relevant.min(SUGGESTED) };
            recalls.entry(&turn.set).or_default().push(hits.min(most) as f64 / most as f64);
        } else {
            silent += 1;
            alarms += u32::from(rows.iter().any(|(_, log_odds)| probability(*log_odds) >= 0.85));
        }
        said.extend(rows.iter().map(|(row, log_odds)| (probability(*log_odds), row.belongs)));
    }
    eprintln!("{title}: {} turns, {} suggestions", turns.len(), said.len());
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let by_set: Vec<_> = recalls.iter().map(|(set, values)| (*set, mean(values))).collect();
    for (set, recall) in &by_set {
        eprintln!("  recall@5 {recall:.3} {set}");
    }
    eprintln!("  recall@5 {:.3} mean", mean(&by_set.iter().map(|(_, recall)| *recall).collect::<Vec<_>>()));
    let share = |said: &[(f64, bool)]| {
        mean(&said.iter().map(|(_, hit)| f64::from(u8::from(*hit))).collect::<Vec<_>>())
    };
    let mut error = 0.0;
    for bounds in BANDS.windows(2) {
        let inside: Vec<_> =
            said.iter().copied().filter(|(p, _)| (bounds[0]..bounds[1]).contains(p)).collect();
        let told = mean(&inside.iter().map(|(p, _)| *p).collect::<Vec<_>>());
        error += (told - share(&inside)).abs() * inside.len() as f64;
        eprintln!(
            "  [{:.2}, {:.2}) {:5} said {told:.3} was {:.3}",
            bounds[0],
            bounds[1],
            inside.len(),
            share(&inside)
        );
    }
    let (mut wins, mut pairs) = (0.0, 0.0);
    said.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0.0;
    for (_, hit) in &said {
        if *hit {
            wins += below;
            pairs += 1.0;
        } else {
            below += 1.0;
        }
    }
    eprintln!(
        "  calibration error {:.3}, AUC {:.3}, false alarms {alarms}/{silent}",
        error / said.len().max(1) as f64,
        wins / f64::max(pairs * below, 1.0)
    );
}

/// Writes the weights as a file of the source.
fn print(weights: &Coefficients, turns: usize, sets: usize) {
    println!(
        "//! The weights of the model. `examples/fit_confidence.rs` has written this file; those of the evidence are fitted to {turns}"
    );
    println!(
        "//! turns of {sets} public sets (multi-turn questions over passages, web queries and functions, long chats, coding"
    );
    println!("//! sessions, commits and the fixes after them), the others are chosen by hand.");
    println!("\nuse super::Coefficients;\n");
    println!("/// The weights in force.\npub(super) const COEFFICIENTS: Coefficients = Coefficients {{");
    println!("    intercept: {:.4},", weights.intercept);
    println!("    // In this order: {}.", NAMES.join(", "));
    let values: Vec<_> = weights.evidence.iter().map(|value| format!("{value:.4}")).collect();
    println!("    evidence: [{}],", values.join(", "));
    println!(
        "    recency: {:?},\n    importance: {:?},\n    root: {:?},\n    verdicts: {:?},\n}};",
        weights.recency, weights.importance, weights.root, weights.verdicts
    );
}
