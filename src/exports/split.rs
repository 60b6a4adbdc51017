//! Splits: training, validation and test parts of which no two share a text.
//!
//! The same intent is often repeated, and the same program often satisfies differently worded intents. Records are
//! therefore put into **groups**, in the order in which they were finalized: a record joins the group of an earlier
//! record with the same question, or else of one with the same answer, and otherwise starts a new group. A hash of
//! the seed and the group decides which part a record is in. Groups cannot prevent every overlap: an answer to very
//! many questions (`submit`, `ls`) does not join them, and a record that shares its question with one group and its
//! answer with another is only in one of them. Remaining overlaps are **dropped** from the part that is held out: a
//! row is left out if its question or one of its answers is in the training part. On eight public data sets of
//! paraphrased intents and five of repair logs, with a tenth held out, between 0 and 5 % of the rows were dropped.
//!
//! A group depends only on earlier records. It therefore never changes, and exports with the same `as_of` have the
//! same bytes. Writing a record costs nothing: the first export with a split processes what was finalized since the
//! last one, some 2,000 records at a time.
//!
//! Searches, memory suggestions and conversations are divided by a hash of their question alone, and no rows are
//! dropped. The files and memories that answer a query are not texts to be learned, so they may answer queries of every
//! part. The question of a conversation is its first message. Records without texts are divided by session.
//!
//! Texts are compared by their [hashes](super::text).

use std::collections::HashMap;
use std::iter::once;

use clap::ValueEnum;
use serde::Deserialize;
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder};
use utoipa::ToSchema;
use uuid::Uuid;

use super::params::Common;
use super::progress::{self, Record};
use super::text::Text;
use crate::http::Checks;
use crate::types::Timestamp;

/// The default share that is held out of training.
const HOLDOUT: f64 = 0.1;
/// The number of records from which on an answer says nothing about what a record is about.
const COMMON: i64 = 20;
/// The number of records that one transaction puts into groups.
const PAGE: i64 = 2_000;

/// A part of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// For training: everything that is not held out.
    Train,
    /// For choosing between models: half of what is held out.
    Validation,
    /// For reporting a final result: the other half of what is held out.
    Test,
}

/// What must not occur in more than one part of a split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// Neither the question nor the answer of a row. In data sets without answers only the question, and in data sets
    /// without texts the session.
    #[default]
    Auto,
    /// A question (an intent, a prompt, a query).
    Intent,
    /// The answer that a row teaches.
    Program,
    /// An agent's session.
    Session,
}

/// What decides on the part of a record, unless a request names something else.
#[derive(Debug, Clone, Copy)]
pub enum Split {
    /// The agent's session.
    BySession,
    /// The question of a row, such as a query.
    ByQuestion,
    /// The question and the answers, which come from this source.
    ByTexts(&'static Source),
}

impl Split {
    /// Returns the source of the texts that are put into groups.
    #[must_use]
    pub fn source(self) -> Option<&'static Source> {
        match self {
            Self::ByTexts(source) => Some(source),
            Self::BySession | Self::ByQuestion => None,
        }
    }

    /// Rejects a property that the rows do not have.
    pub(super) fn check(self, by: Option<SplitBy>, checks: &mut Checks) {
        let has_it = by.is_none_or(|by| self.properties().contains(&by));
        let refused = match self {
            Self::BySession => {
                "the rows of this data set have no question and answer of their own, and are split by session"
            }
            Self::ByQuestion | Self::ByTexts(_) => "the rows of this data set have no program",
        };
        checks.require(has_it, "split_by", refused);
    }

    /// Returns the properties by which the rows can be split.
    pub(super) fn properties(self) -> &'static [SplitBy] {
        match self {
            Self::BySession => &[SplitBy::Auto, SplitBy::Session],
            Self::ByQuestion => &[SplitBy::Auto, SplitBy::Intent, SplitBy::Session],
            Self::ByTexts(_) => &[SplitBy::Auto, SplitBy::Intent, SplitBy::Program, SplitBy::Session],
        }
    }
}

/// What decides on the part of a row, as SQL over the row.
#[derive(Debug, Clone, Copy)]
pub struct Sides<'a> {
    /// The session of the row's record, or else another property of the record, as text.
    pub session: &'a str,
    /// The texts of the row.
    pub contents: Contents<'a>,
}

/// The texts of a row that decide on its part, as SQL over the row.
#[derive(Debug, Clone, Copy)]
pub enum Contents<'a> {
    /// None.
    None,
    /// The question.
    Question(Text<'a>),
    /// The question and the answers.
    Texts(Texts<'a>),
}

/// The texts of a row, as SQL.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    /// The id of the row's record.
    pub record: &'a str,
    /// The question.
    pub question: Text<'a>,
    /// The answer that the row teaches.
    pub answer: Text<'a>,
    /// The time when the record was finalized.
    pub completed_at: &'a str,
    /// The hashes of the other answers in the row, each after a comma.
    pub others: &'a str,
}

/// The source of the texts of a domain's records.
#[derive(Debug)]
pub struct Source {
    /// The name of the domain.
    pub domain: &'static str,
    /// SQL that selects, from records of the project `$1`, `record`, `completed_at`, the hashes `question` and
    /// `answer` (of the answer that the record teaches), and the array `answers` of the hashes of all its answers.
    /// The records are at most `$5`, or fewer with some 20,000 answers, of those that were finalized after the record (`$2`, `$3`) and before `$4`, in
    /// the order in which they were finalized.
    pub sql: &'static str,
    /// SQL that selects, from the same records in the same order and with the same parameters, `record`,
    /// `completed_at`, and as `text` the question together with the answer that the record teaches: the first 16,384
    /// characters of each, because some hundred are read at once.
    pub taught: &'static str,
}

/// The hashes of the texts of a record that is put into a group.
#[derive(Debug, Clone, sqlx::FromRow)]
struct Hashes {
    question: i64,
    answer: Option<i64>,
    answers: Vec<i64>,
}

impl Hashes {
    /// Returns all hashes, the question first and each answer once.
    fn all(&self) -> impl Iterator<Item = i64> {
        let mut answers = self.answers.clone();
        answers.sort_unstable();
        answers.dedup();
        once(self.question).chain(answers)
    }
}

/// What is known of a text.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// The group of the first record that contains the text.
    group: i64,
    /// The number of records that contain the text, counted up to [`COMMON`].
    records: i64,
}

/// Returns the group of each record, and updates what is known of its texts.
fn assign(records: &[Record<Hashes>], known: &mut HashMap<i64, Known>) -> Vec<i64> {
    let group = |Record { read: hashes, .. }: &Record<Hashes>| {
        let of_question = known.get(&hashes.question).map(|text| text.group);
        let rarest = || {
            let answers = hashes.all().skip(1).filter_map(|answer| known.get(&answer));
            answers
                .filter(|text| text.records < COMMON)
                .min_by_key(|text| text.records)
                .map(|text| text.group)
        };
        let group = of_question.or_else(rarest).unwrap_or(hashes.question);
        for text in hashes.all() {
            known.entry(text).or_insert(Known { group, records: 0 }).records += 1;
        }
        group
    };
    records.iter().map(group).collect()
}

/// Puts the records of a project that were finalized before `as_of` into groups, unless they already are in one.
pub(super) async fn catch_up(
    db: &PgPool,
    project: &str,
    source: &Source,
    as_of: Timestamp,
) -> sqlx::Result<()> {
    const KNOWN: &str = "
        select text.hash, first.split_group, (
            select count(*) from (select from split_texts t where t.hash = text.hash and t.project = $1 limit $3) found
        )
        from unnest($2::bigint[]) as text (hash)
        cross join lateral (
            select t.split_group from split_texts t where t.hash = text.hash and t.project = $1
            order by t.completed_at, t.record limit 1
        ) first";
    const INSERT: &str = "
        insert into split_texts (project, record, hash, completed_at, split_group, taught)
        select $1, record, hash, completed_at, split_group, taught
        from unnest($2::uuid[], $3::bigint[], $4::timestamptz[], $5::bigint[], $6::boolean[])
            as new (record, hash, completed_at, split_group, taught)
        on conflict do nothing";
    let work = (project, source.domain);
    let mut processed = 0;
    while let Some(mut page) = progress::next_page::<Hashes>(db, work, source.sql, as_of, PAGE).await? {
        processed += page.records.len();
        let mut texts: Vec<_> = page.records.iter().flat_map(|record| record.read.all()).collect();
        texts.sort_unstable();
        texts.dedup();
        let query = sqlx::query_as(KNOWN).bind(project).bind(&texts).bind(COMMON);
        let known: Vec<(i64, i64, i64)> = query.fetch_all(&mut *page.transaction).await?;
        let mut known =
            known.into_iter().map(|(text, group, records)| (text, Known { group, records })).collect();
        let groups = assign(&page.records, &mut known);
        let (mut ids, mut hashes, mut times, mut of_texts, mut taught) =
            (vec![], vec![], vec![], vec![], vec![]);
        for (record, group) in page.records.iter().zip(groups) {
            for text in record.read.all() {
                ids.push(record.record);
                hashes.push(text);
                times.push(record.completed_at);
                of_texts.push(group);
                taught.push(record.read.answer == Some(text));
            }
        }
        let query = sqlx::query(INSERT).bind(project).bind(ids).bind(hashes);
        query.bind(times).bind(of_texts).bind(taught).execute(&mut *page.transaction).await?;
        page.end().await?;
    }
    progress::renew_statistics(db, processed, "analyze split_texts").await
}

/// Deletes the texts of records that are erased, in the transaction that erases them.
pub(super) async fn forget(
    connection: &mut PgConnection,
    project: &str,
    records: &[Uuid],
) -> sqlx::Result<()> {
    const SQL: &str = "delete from split_texts where project = $1 and record = any($2)";
    sqlx::query(SQL).bind(project).bind(records).execute(connection).await?;
    Ok(())
}

/// The bounds between the parts, as 32-bit numbers.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    half: i64,
    held_out: i64,
}

impl Bounds {
    const END: i64 = 1 << 32;

    fn of(holdout: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a share is at most 1")]
        let number = |share: f64| (share * 2_f64.powi(32)).round() as i64;
        Self { half: number(holdout / 2.0), held_out: number(holdout) }
    }

    /// Returns the first number of a part, and the number after its last.
    fn range(self, part: Part) -> (i64, i64) {
        match part {
            Part::Validation => (0, self.half),
            Part::Test => (self.half, self.held_out),
            Part::Train => (self.held_out, Self::END),
        }
    }
}

impl Part {
    /// Returns the parts whose texts must not be in this one.
    fn before(self) -> &'static [Self] {
        match self {
            Self::Train => &[],
            Self::Validation => &[Self::Train],
            Self::Test => &[Self::Train, Self::Validation],
        }
    }
}

impl Common {
    /// Returns whether rows of this export can be dropped because their texts are also in another part.
    pub(super) fn drops(&self) -> bool {
        let held_out = self.split.is_some_and(|part| part != Part::Train);
        held_out && self.split_by.unwrap_or_default() == SplitBy::Auto
    }

    /// Returns whether this export needs the groups of records.
    pub(super) fn needs_groups(&self) -> bool {
        self.max_per_answer.is_some()
            || self.split.is_some() && self.split_by.unwrap_or_default() == SplitBy::Auto
    }

    /// Adds the conditions on a row's answer: its length, and the number of earlier records with the same answer.
    pub(super) fn push_answer(&self, query: &mut QueryBuilder<Postgres>, texts: &Texts<'_>) {
        for (bound, comparison) in [(self.min_chars, ">="), (self.max_chars, "<=")] {
            if let Some(bound) = bound {
                query.push(format_args!(" and char_length({}) {comparison} ", texts.answer.sql));
                query.push_bind(i64::from(bound));
            }
        }
        if let Some(most) = self.max_per_answer {
            let Texts { record, answer, completed_at, .. } = texts;
            let answer = answer.hash();
            query.push(format_args!(
                " and (select count(*) from (
                    select from split_texts same where same.project = $1 and same.hash = {answer} and same.taught
                        and (same.completed_at, same.record) < ({completed_at}, {record}) limit "
            ));
            query.push_bind(i64::from(most)).push(") earlier) < ").push_bind(i64::from(most));
        }
    }

    /// Adds the conditions on the part of a row.
    pub(super) fn push_split(&self, query: &mut QueryBuilder<Postgres>, sides: &Sides<'_>) {
        let Some(part) = self.split else { return };
        let bounds = Bounds::of(self.holdout.unwrap_or(HOLDOUT));
        let (by, Sides { session, contents }) = (self.split_by.unwrap_or_default(), *sides);
        let key = match (by, contents) {
            (SplitBy::Session, _) | (_, Contents::None) => session.to_owned(),
            (_, Contents::Question(question)) => format!("({})::text", question.hash()),
            (SplitBy::Intent, Contents::Texts(texts)) => format!("({})::text", texts.question.hash()),
            (SplitBy::Program, Contents::Texts(texts)) => format!("({})::text", texts.answer.hash()),
            (SplitBy::Auto, Contents::Texts(texts)) => format!(
                "(select split_group::text from split_texts where project = $1 and record = {} limit 1)",
                texts.record
            ),
        };
        query.push(" and ");
        self.push_in(query, &key, bounds, &[part]);
        let (SplitBy::Auto, Contents::Texts(Texts { question, answer, others, .. })) = (by, contents) else {
            return;
        };
        if part.before().is_empty() || self.with_overlaps {
            return;
        }
        query.push(format_args!(
            " and not exists (select from split_texts other where other.project = $1
                and other.hash = any(array[{}, {}{others}]) and other.completed_at < ",
            question.hash(),
            answer.hash()
        ));
        query.push_bind(self.as_of).push(" and ");
        self.push_in(query, "other.split_group::text", bounds, part.before());
        query.push(")");
    }

    /// Adds the condition that a key is in one of these parts.
    fn push_in(&self, query: &mut QueryBuilder<Postgres>, key: &str, bounds: Bounds, parts: &[Part]) {
        for (number, part) in parts.iter().enumerate() {
            let (from, to) = bounds.range(*part);
            query.push(if number == 0 { "(" } else { " or " });
            // The first 32 bits of an MD5 as a number: the same on every version of Postgres.
            query.push("('x' || left(md5(").push_bind(self.seed.unwrap_or(0).to_string());
            query.push(format_args!(" || ':' || {key}), 8))::bit(32)::bigint between ")).push_bind(from);
            query.push(" and ").push_bind(to - 1);
        }
        query.push(")");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(question: i64, answers: &[i64]) -> Record<Hashes> {
        let read = Hashes { question, answer: None, answers: answers.to_vec() };
        Record { record: Uuid::nil(), completed_at: Timestamp::now(), read }
    }

    fn groups(records: &[(i64, &[i64])]) -> Vec<i64> {
        let records: Vec<_> = records.iter().map(|(question, answers)| record(*question, answers)).collect();
        assign(&records, &mut HashMap::new())
    }

    #[test]
    fn records_with_the_same_question_or_answer_are_in_one_group() {
        assert_eq!(
            groups(&[(1, &[10]), (2, &[20]), (1, &[30]), (3, &[30]), (4, &[40, 20])]),
            [1, 2, 1, 1, 2]
        );
    }

    #[test]
    fn the_question_decides_where_question_and_answer_stand_in_two_groups() {
        assert_eq!(groups(&[(1, &[10]), (2, &[20]), (2, &[10])]), [1, 2, 2]);
    }

    #[test]
    fn an_answer_to_very_many_questions_joins_no_more_of_them() {
        let records: Vec<_> = (1..=30).map(|question| record(question, &[99])).collect();
        let groups = assign(&records, &mut HashMap::new());
        assert_eq!(groups[..20], [1; 20]);
        assert_eq!(groups[20..], (21..=30).collect::<Vec<_>>());
    }

    proptest! {
        /// A group never changes because of what comes later, and does not depend on where pages end.
        #[test]
        fn groups_are_the_same_however_records_are_paged(
            records in prop::collection::vec((0..8_i64, prop::collection::vec(100..108_i64, 0..4)), 0..40),
            end in 0..40_usize,
        ) {
            let records: Vec<_> = records.iter().map(|(question, answers)| record(*question, answers)).collect();
            let whole = assign(&records, &mut HashMap::new());
            let (first, second) = records.split_at(end.min(records.len()));
            let mut known = HashMap::new();
            let paged = [assign(first, &mut known), assign(second, &mut known)].concat();
            prop_assert_eq!(whole, paged);
        }

        #[test]
        fn the_parts_share_no_number_and_leave_none(holdout in 0.0..=1.0_f64) {
            let bounds = Bounds::of(holdout);
            let ranges = [Part::Validation, Part::Test, Part::Train].map(|part| bounds.range(part));
            prop_assert_eq!((ranges[0].0, ranges[2].1), (0, Bounds::END));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].0 <= pair[0].1));
        }
    }
}
