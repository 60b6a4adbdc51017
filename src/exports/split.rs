//! Splits: training, validation and test parts of which no two share a text.
//!
//! The same intent is often repeated, and the same program often satisfies differently worded intents. Records are
//! therefore put into [groups](super::groups), and a hash of the seed and the group decides which part a record is in.
//! Groups cannot prevent every overlap. Remaining overlaps are **dropped** from the part that is held out: a row is left
//! out if its question or one of its answers is in the training part. On eight public data sets of paraphrased intents
//! and five of repair logs, with a tenth held out, between 0 and 5 % of the rows were dropped.
//!
//! Searches, memory suggestions and conversations are divided by a hash of their question alone, and no rows are
//! dropped. The files and memories that answer a query are not texts to be learned, so they may answer queries of every
//! part. The question of a conversation is its first message. Records without texts are divided by session.
//!
//! Texts are compared by their [hashes](super::text).

use std::ops::Range;

use clap::ValueEnum;
use serde::Deserialize;
use sqlx::{Postgres, QueryBuilder};
use utoipa::ToSchema;

use super::groups::Source;
use super::params::Common;
use super::text::Text;
use crate::http::Checks;

/// The default share that is held out of training.
const HOLDOUT: f64 = 0.1;
/// The number of groups of a text that are looked at one by one to find one that is in an earlier part. Usually the second
/// or third one is.
const LOOKED_AT: u32 = 32;

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
    /// The name of the record's domain.
    pub domain: &'a str,
    /// The id of the row's record.
    pub record: &'a str,
    /// The question.
    pub question: Text<'a>,
    /// The answer that the row teaches.
    pub answer: Text<'a>,
    /// The answer as it is exported, whose length can be limited.
    pub exported: &'a str,
    /// The time when the record was finalized.
    pub completed_at: &'a str,
    /// The hashes of the other answers in the row, each after a comma.
    pub others: &'a str,
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

    /// Returns the numbers of a part.
    fn range(self, part: Part) -> Range<i64> {
        match part {
            Part::Validation => 0..self.half,
            Part::Test => self.half..self.held_out,
            Part::Train => self.held_out..Self::END,
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

    /// Adds the conditions on the length of a row's answer.
    pub(super) fn push_answer(&self, query: &mut QueryBuilder<Postgres>, texts: &Texts<'_>) {
        for (bound, comparison) in [(self.min_chars, ">="), (self.max_chars, "<=")] {
            if let Some(bound) = bound {
                query.push(format_args!(" and char_length({}) {comparison} ", texts.exported));
                query.push_bind(i64::from(bound));
            }
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
                "(select split_group::text from split_texts where project = $1 and domain = '{}' and record = {} limit 1)",
                texts.domain, texts.record
            ),
        };
        query.push(" and ");
        self.push_in(query, &key, bounds, &[part]);
        let (SplitBy::Auto, Contents::Texts(Texts { question, answer, others, .. })) = (by, contents) else {
            return;
        };
        let before: Vec<_> =
            part.before().iter().copied().filter(|part| !bounds.range(*part).is_empty()).collect();
        if before.is_empty() || self.with_overlaps {
            return;
        }
        // A text may be in very many records of one group. The index leads from each group of a text to the next one. No
        // index leads to a group in one of the parts before, because the seed decides on the part of a group. Hardly any
        // group of a text may be in them. So if none of the first ones is, all texts in these parts are read, once for all
        // rows of a statement.
        query.push(format_args!(
            " and not exists (select from unnest(array[{}, {}{others}]) as text (hash)
                cross join lateral (
                    with recursive found as (
                        (select t.split_group, t.completed_at, 1 as number from split_texts t
                            where t.project = $1 and t.hash = text.hash
                            order by t.split_group, t.completed_at limit 1)
                        union all
                        select next.*, found.number + 1 from found cross join lateral (
                            select t.split_group, t.completed_at from split_texts t
                            where t.project = $1 and t.hash = text.hash and t.split_group > found.split_group
                            order by t.split_group, t.completed_at limit 1) next
                        where found.number < {LOOKED_AT}
                    )
                    select * from found
                ) other
                where other.completed_at < ",
            question.hash(),
            answer.hash()
        ));
        query.push_bind(self.as_of).push(" and ");
        self.push_in(query, "other.split_group::text", bounds, &before);
        query.push(format_args!(
            " or other.number = {LOOKED_AT} and text.hash in (
                select t.hash from split_texts t where t.project = $1 and t.completed_at < "
        ));
        query.push_bind(self.as_of).push(" and ");
        self.push_in(query, "t.split_group::text", bounds, &before);
        query.push("))");
    }

    /// Adds the condition that a key is in one of these parts.
    fn push_in(&self, query: &mut QueryBuilder<Postgres>, key: &str, bounds: Bounds, parts: &[Part]) {
        for (number, part) in parts.iter().enumerate() {
            let Range { start, end } = bounds.range(*part);
            query.push(if number == 0 { "(" } else { " or " });
            // The first 32 bits of an MD5 as a number: the same on every version of Postgres.
            query.push("('x' || left(md5(").push_bind(self.seed.unwrap_or(0).to_string());
            query.push(format_args!(" || ':' || {key}), 8))::bit(32)::bigint between ")).push_bind(start);
            query.push(" and ").push_bind(end - 1);
        }
        query.push(")");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_parts_share_no_number_and_leave_none(holdout in 0.0..=1.0_f64) {
            let bounds = Bounds::of(holdout);
            let ranges = [Part::Validation, Part::Test, Part::Train].map(|part| bounds.range(part));
            prop_assert_eq!((ranges[0].start, ranges[2].end), (0, Bounds::END));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert!(ranges.iter().all(|range| range.start <= range.end));
        }
    }
}
