//! Statistics of the rows of a data set, to be read before training: the lengths of texts, repeated texts, and the
//! shares of domains, models and so on.
//!
//! Of a large data set, a sample is read, which is chosen by a hash of the records' ids. A profile therefore takes about
//! as long as counting the rows. Records may have very different numbers of rows, and clients choose their ids, so a
//! sample may have far more rows than expected. It ends where they are twice as many, so that a profile takes bounded
//! memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher as _};

use serde::Serialize;
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use super::export::{Export, PAGE};
use super::format::{Example, Format};
use super::params::Include;
use super::reading::Arriving;
use crate::db::process::Process;
use crate::db::rows;
use crate::error::Result;
use crate::http::memory::Memory;
use crate::http::pace::STALL;
use crate::types::Timestamp;

/// The number of rows from which on a sample of about this size is read.
const MOST_ROWS: i64 = 50_000;
/// The number of rows after which a sample ends, approximately.
const MOST_SAMPLED: u64 = 2 * MOST_ROWS.unsigned_abs();
/// The maximum number of values of one kind that are counted separately, and the maximum number that are returned.
const MOST_VALUES: (usize, usize) = (1_000, 20);
/// The number of bytes that are kept of each row: hashes, counts and lengths.
const COUNTED: usize = 128;
/// The number of characters of an answer that are returned.
const SHOWN: usize = 200;

/// The kinds of shares, each with the names that they have in the metadata of data sets.
const SHARES: [(&str, &[&str]); 7] = [
    ("domain", &["domain_name"]),
    ("model", &["model_used", "model"]),
    ("error_stage", &["error_stage"]),
    ("rating", &["rating"]),
    ("match_type", &["match_type"]),
    ("source_type", &["source_type"]),
    ("verdict", &["verdict"]),
];

/// Statistics of the rows of a data set.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DatasetProfile)]
pub struct Report {
    /// The data set.
    dataset: &'static str,
    /// The format of the rows that were read.
    format: Format,
    /// The time whose state of the data the profile describes.
    as_of: Timestamp,
    /// The number of rows of the export.
    rows: i64,
    /// The number of rows that were read. All other numbers describe these rows.
    profiled: u64,
    /// Whether only a sample of the rows was read.
    sampled: bool,
    /// The length of a row in bytes.
    row_bytes: Option<Lengths>,
    /// The length of a row's question in characters, all of its messages together. Null if rows have no question.
    prompt_characters: Option<Lengths>,
    /// The length of a row's answer in characters. Null if rows have no answer.
    answer_characters: Option<Lengths>,
    /// The number of candidates in a row. Null if rows are not rankings.
    candidates: Option<Lengths>,
    /// The number of rows whose question is also in an earlier row.
    repeated_prompts: u64,
    /// The number of rows whose answer is also in an earlier row.
    repeated_answers: u64,
    /// The number of rows whose question and answer are both those of an earlier row.
    repeated_rows: u64,
    /// The answers that occur in more than one row, the most frequent first.
    most_frequent_answers: Vec<Share>,
    /// The distribution of rows over domains, models, error stages and other properties, by the name of the property.
    shares: BTreeMap<&'static str, Vec<Share>>,
}

/// The number of rows that have a value.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RowShare)]
struct Share {
    /// The value, shortened if it is long. Null for rows without a value.
    value: Option<String>,
    /// The number of rows with this value.
    rows: u64,
    /// The share of these rows among the rows that were read, from 0 to 1.
    share: f64,
}

/// The distribution of lengths.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LengthDistribution)]
struct Lengths {
    /// The minimum.
    min: u32,
    /// The mean.
    mean: f64,
    /// The median.
    p50: u32,
    /// The 90th percentile.
    p90: u32,
    /// The 99th percentile.
    p99: u32,
    /// The maximum.
    max: u32,
}

impl Lengths {
    fn of(mut lengths: Vec<u32>) -> Option<Self> {
        lengths.sort_unstable();
        let (&min, &max) = (lengths.first()?, lengths.last()?);
        let at = |percent: usize| lengths[(lengths.len() * percent).div_ceil(100) - 1];
        let sum: f64 = lengths.iter().map(|&length| f64::from(length)).sum();
        Some(Self { min, mean: sum / lengths.len() as f64, p50: at(50), p90: at(90), p99: at(99), max })
    }
}

/// A profile that is being made.
#[derive(Debug, Default)]
pub struct Profile {
    rows: u64,
    row_bytes: Vec<u32>,
    prompts: Vec<u32>,
    answers: Vec<u32>,
    candidates: Vec<u32>,
    /// The number of rows with each question, each answer, and each pair of both, by their hashes.
    seen: [HashMap<u64, u64>; 3],
    /// The beginnings of the answers that occur in most rows so far, if in several.
    repeated: HashMap<u64, String>,
    shares: [BTreeMap<Option<String>, u64>; SHARES.len()],
    has_shares: [bool; SHARES.len()],
}

impl Profile {
    /// Adds a row, as an example, and its metadata.
    pub(super) fn see<R>(&mut self, format: Format, example: &Example<'_, R>, metadata: Option<&Value>) {
        self.rows += 1;
        if let Some((prompt, answer)) = sides(format, example) {
            let hashes = [hash(&prompt), hash(&answer), hash(&(&prompt, answer))];
            self.prompts.push(length(prompt.iter().map(|text| text.chars().count()).sum()));
            self.answers.push(length(answer.chars().count()));
            for (seen, hash) in self.seen.iter_mut().zip(hashes) {
                *seen.entry(hash).or_default() += 1;
            }
            if self.seen[1][&hashes[1]] > 1 && !self.repeated.contains_key(&hashes[1]) {
                self.repeated.insert(hashes[1], answer.chars().take(SHOWN).collect());
                self.forget_rare();
            }
        }
        match example {
            Example::Ranking { candidates, .. } => self.candidates.push(length(candidates.len())),
            Example::Decision(decision) => self.candidates.push(length(decision.actions.len())),
            _ => {}
        }
        for (number, (_, names)) in SHARES.iter().enumerate() {
            let Some(value) = metadata.and_then(|all| names.iter().find_map(|name| all.get(*name))) else {
                continue;
            };
            self.has_shares[number] = true;
            let value = value.as_str().map(|text| text.chars().take(SHOWN).collect());
            let values = &mut self.shares[number];
            // Rare values are counted together once there are very many.
            let value = if values.len() < MOST_VALUES.0 || values.contains_key(&value) {
                value
            } else {
                Some("(other)".to_owned())
            };
            *values.entry(value).or_default() += 1;
        }
    }

    /// Forgets the beginnings of rare answers if there are many. If such an answer occurs again, it is known again.
    fn forget_rare(&mut self) {
        if self.repeated.len() < 2 * MOST_VALUES.0 {
            return;
        }
        let order = |hash: &u64| (self.seen[1][hash], *hash);
        let mut counted: Vec<_> = self.repeated.keys().map(order).collect();
        let (_, &mut rare, _) = counted.select_nth_unstable_by(MOST_VALUES.0, |a, b| b.cmp(a));
        self.repeated.retain(|hash, _| order(hash) > rare);
    }

    /// Adds the length of the row that was added last, as it is written.
    pub(super) fn measure(&mut self, bytes: usize) {
        self.row_bytes.push(length(bytes));
    }

    fn repeats(&self) -> [u64; 3] {
        self.seen.each_ref().map(|seen| seen.values().map(|count| count - 1).sum())
    }

    fn share(&self, value: Option<String>, rows: u64) -> Share {
        Share { value, rows, share: rows as f64 / self.rows as f64 }
    }

    fn frequent(&self) -> Vec<Share> {
        let counted = self.repeated.iter().map(|(hash, text)| (Some(text.clone()), self.seen[1][hash]));
        self.shown(counted.collect())
    }

    fn shown(&self, mut values: Vec<(Option<String>, u64)>) -> Vec<Share> {
        values.sort_by(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));
        values.truncate(MOST_VALUES.1);
        values.into_iter().map(|(value, rows)| self.share(value, rows)).collect()
    }
}

impl Export {
    /// Reads the rows, or a sample of them if there are many.
    pub(super) async fn profile(
        mut self,
        connection: &mut PgConnection,
        pool: &PgPool,
        dataset: &'static str,
        memory: &Memory,
        arriving: &Arriving,
    ) -> Result<Report> {
        let rows = self.count(connection).await?;
        if rows > MOST_ROWS {
            #[expect(clippy::cast_possible_truncation, reason = "a share of 2^32")]
            let sample = (2_f64.powi(32) * MOST_ROWS as f64 / rows as f64) as i64;
            self.sample = Some(sample);
        }
        let counted = usize::try_from(rows.unsigned_abs().min(MOST_SAMPLED)).unwrap_or(usize::MAX);
        // Memory is held for twice as much.
        let counted = counted * COUNTED / 2;
        memory.hold(counted).await?;
        let process = Process::of(connection).await?;
        // The shares need the metadata, even if the request does not.
        self.rows.common.include = Some(Include::Metadata);
        let mut profile = Profile::default();
        let mut line = Vec::new();
        loop {
            let mut query = self.next_page("")?;
            let query = query.build();
            let mut page = query.fetch(&mut *connection);
            let (mut count, mut waiting, mut has_left_out) = (0, None, false);
            let (mut place, mut keeps) = (None, false);
            while let Some((row, taken)) = arriving.row(&mut page).await? {
                place = taken;
                has_left_out = self.leaves_out(&row, 0)?;
                if has_left_out {
                    break;
                }
                // The metadata becomes JSON values besides.
                let long = rows::long(&row).map(|bytes| 2 * bytes);
                waiting = long.map(|bytes| bytes + counted).filter(|bytes| !memory.try_hold(*bytes));
                if waiting.is_some() {
                    break;
                }
                place = None;
                // The connection keeps the room of a very long row until the page ends.
                keeps |= rows::is_very_long(&row);
                self.write(&row, &mut line, Some(&mut profile))?;
                drop(row);
                profile.measure(line.len());
                line.clear();
                count += 1;
                if long.is_some() {
                    line = Vec::new();
                    if !keeps {
                        memory.give_back();
                        memory.hold(counted).await?;
                    }
                }
            }
            if waiting.is_some() || has_left_out {
                arriving.end(place, &mut page, pool, process).await?;
            }
            drop(page);
            rows::shrink(connection).await?;
            if keeps {
                memory.give_back();
                memory.hold(counted).await?;
            }
            self.confirm(connection).await?;
            if let Some(bytes) = waiting {
                // The next page begins with this row.
                memory.hold_late(bytes, STALL).await?;
                continue;
            }
            if count < PAGE && !has_left_out || profile.rows >= MOST_SAMPLED {
                break;
            }
        }
        let [repeated_prompts, repeated_answers, repeated_rows] = profile.repeats();
        let shares = SHARES.iter().zip(profile.has_shares).zip(&profile.shares);
        let shares = shares.filter(|((_, has), _)| *has).map(|(((name, _), _), values)| {
            (*name, profile.shown(values.iter().map(|(value, rows)| (value.clone(), *rows)).collect()))
        });
        Ok(Report {
            dataset,
            format: self.rows.format,
            as_of: self.as_of(),
            rows,
            profiled: profile.rows,
            sampled: self.sample.is_some(),
            repeated_prompts,
            repeated_answers,
            repeated_rows,
            most_frequent_answers: profile.frequent(),
            shares: shares.collect(),
            row_bytes: Lengths::of(profile.row_bytes),
            prompt_characters: Lengths::of(profile.prompts),
            answer_characters: Lengths::of(profile.answers),
            candidates: Lengths::of(profile.candidates),
        })
    }
}

/// Returns the texts of an example's question and of the answer to learn, if it has both.
fn sides<'e, R>(format: Format, example: &'e Example<'_, R>) -> Option<(Vec<&'e str>, &'e str)> {
    Some(match example {
        Example::Correction { prompt, wrong, feedback, right } => {
            // The format fix-prompt asks nothing but to correct the program.
            let prompt = prompt
                .messages
                .iter()
                .filter(|message| format != Format::FixPrompt || message.role == "system");
            let prompt = prompt.map(|message| &*message.content);
            (prompt.chain([*wrong, &**feedback]).collect(), *right)
        }
        Example::Solution { prompt, solution: answer }
        | Example::Answer { prompt, answer }
        | Example::Preference { prompt, chosen: answer, .. }
        | Example::Label { prompt, answer, .. } => {
            (prompt.messages.iter().map(|message| &*message.content).collect(), *answer)
        }
        Example::Pair { anchor, positive } | Example::Triplet { anchor, positive, .. } => {
            (vec![*anchor], *positive)
        }
        Example::Steps { task, steps, .. } => (vec![*task], steps.last()?.as_str()),
        Example::Ranking { .. } | Example::Decision(_) | Example::Raw(_) => return None,
    })
}

fn hash(text: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn length(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::chat::Prompt;

    #[test]
    fn lengths_are_those_of_the_row_at_each_rank() {
        let lengths = Lengths::of((1..=200).rev().collect()).expect("there are some");
        let Lengths { min, p50, p90, p99, max, mean } = lengths;
        assert_eq!((min, p50, p90, p99, max), (1, 100, 180, 198, 200));
        assert!((mean - 100.5).abs() < 1e-9);
        let one = Lengths::of(vec![7]).expect("there is one");
        assert_eq!((one.min, one.p50, one.p99, one.max), (7, 7, 7, 7));
        assert!(Lengths::of(vec![]).is_none());
    }

    #[test]
    fn values_beyond_the_thousandth_are_counted_together() {
        let mut profile = Profile::default();
        for number in 0..1_200 {
            let metadata = serde_json::json!({"model_used": format!("m{number}")});
            profile.see(Format::Raw, &Example::Raw(()), Some(&metadata));
        }
        let other = profile.shares[1][&Some("(other)".to_owned())];
        assert_eq!((profile.shares[1].len(), other), (1_001, 200));
    }

    #[test]
    fn the_most_frequent_answers_are_found_among_any_number_in_bounded_memory() {
        let mut profile = Profile::default();
        let mut see = |answer: &str| {
            profile.see::<()>(Format::Raw, &Example::Answer { prompt: Prompt::of("q"), answer }, None);
        };
        let often = |number: usize| format!("often {number}");
        // The frequent ones are rare at first.
        for number in 0..30 {
            see(&often(number));
            see(&often(number));
        }
        for number in 0..10_000 {
            see(&format!("twice {number}"));
            see(&format!("twice {number}"));
            see(&format!("twice {number}"));
        }
        for number in 0..30 {
            (0..=number).for_each(|_| see(&often(number)));
        }
        assert!(profile.repeated.len() < 2 * MOST_VALUES.0);
        let found: Vec<_> = profile.frequent().into_iter().map(|share| (share.value, share.rows)).collect();
        let expected: Vec<_> =
            (10..30).rev().map(|number| (Some(often(number)), number as u64 + 3)).collect();
        assert_eq!(found, expected);
    }
}
