//! The parameters of exports. The endpoint and the command line have the same ones, with the same documentation.

use clap::{Args, ValueEnum};
use serde::Deserialize;
use sqlx::{Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::format::{Format, Shape, Weights};
use super::split::{Contents, Part, Sides, Split, SplitBy};
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::privacy::redact::{GroupName as _, Redaction, Texts as _};
use crate::types::Timestamp;

/// The largest number of records with the same answer that a request can allow. For each row, as many earlier records with
/// its answer are looked at.
const MOST_PER_ANSWER: u32 = 100;
/// The maximum number of characters of a system message, which is written into every row.
const LONGEST_SYSTEM: usize = 64 << 10;

/// The parameters that every data set has.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct Common {
    /// The format of the rows. The default is the data set's first format.
    #[arg(long)]
    #[param(inline)]
    pub format: Option<Format>,
    /// Only records created at this time or later, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<Timestamp>)]
    pub since: Option<Timestamp>,
    /// Only records created before this time, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<Timestamp>)]
    pub until: Option<Timestamp>,
    /// The order of the records. A `cursor` is valid only for its own order.
    #[arg(long)]
    #[param(inline)]
    pub order: Option<Order>,
    /// The maximum number of records. If there are more, the header Gleaner-Next-Cursor has the cursor of the next
    /// part.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[param(minimum = 1, example = 1000)]
    pub limit: Option<i64>,
    /// Where to continue: the Gleaner-Next-Cursor of the previous part.
    #[arg(long)]
    pub cursor: Option<String>,
    /// The time whose state of the data is exported. The default is just before the oldest write in progress.
    #[serde(deserialize_with = "time_in_query")]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<Timestamp>)]
    pub as_of: Option<Timestamp>,
    /// Exports one part of the records. No intent and no program is in two parts. The header Gleaner-Dropped counts
    /// the rows dropped for that.
    #[arg(long)]
    #[param(inline)]
    pub split: Option<Part>,
    /// What must not occur in more than one part of a split.
    #[arg(long)]
    #[param(inline)]
    pub split_by: Option<SplitBy>,
    /// The share that is held out of training, from 0 to 1. Half of it is for validation and half for testing. The
    /// default is 0.1.
    #[arg(long, value_name = "SHARE")]
    #[param(minimum = 0, maximum = 1)]
    pub holdout: Option<f64>,
    /// The seed of the split. The default is 0.
    #[arg(long, value_name = "N")]
    pub seed: Option<u32>,
    /// Whether only the oldest of several equal rows, or of several similar rows, is exported.
    #[arg(long)]
    #[param(inline)]
    pub dedupe: Option<Dedupe>,
    /// With dedupe=near, the similarity from which a row is left out: the share of words that two texts have in common, from
    /// 0.5 to 1. The default is 0.8.
    #[arg(long, value_name = "SHARE")]
    #[param(minimum = 0.5, maximum = 1)]
    pub near_threshold: Option<f64>,
    /// The id of a snapshot. Rows whose question or answer is in that snapshot are left out.
    #[arg(long, value_name = "ID")]
    pub exclude: Option<Uuid>,
    /// Adds the key metadata to every row, with ids, times and other properties.
    #[arg(long)]
    #[param(inline)]
    pub include: Option<Include>,
    /// A system message for every chat, instead of its own, of at most 65,536 characters. In a URL, there is only room for what
    /// fits in the head of a request.
    #[arg(long, value_name = "TEXT")]
    #[param(example = "You write programs for business units.")]
    pub system: Option<String>,
    /// Whether assistant messages in the format openai have a weight.
    #[arg(long)]
    #[param(inline)]
    pub weights: Option<Weights>,
    /// The minimum number of characters in the answer of a row.
    #[arg(long, value_name = "N")]
    #[param(minimum = 0, example = 2)]
    pub min_chars: Option<u32>,
    /// The maximum number of characters in the answer of a row.
    #[arg(long, value_name = "N")]
    #[param(minimum = 1, example = 20_000)]
    pub max_chars: Option<u32>,
    /// The maximum number of records with the same answer, up to 100. The oldest ones are exported.
    #[arg(long, value_name = "N")]
    #[param(minimum = 1, maximum = 100, example = 20)]
    pub max_per_answer: Option<u32>,
    /// Whether rows stay whose texts are also in another part. It is only used for counting, and cannot be set by a
    /// request.
    #[serde(skip)]
    #[arg(skip)]
    #[param(ignore)]
    pub with_overlaps: bool,
}

/// The order of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The record that was finalized first comes first.
    #[default]
    Oldest,
    /// The record that was finalized last comes first.
    Newest,
}

impl Order {
    /// Returns the direction of SQL.
    #[must_use]
    pub fn direction(self) -> &'static str {
        match self {
            Self::Oldest => "asc",
            Self::Newest => "desc",
        }
    }
}

/// How equal rows are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Dedupe {
    /// Equal rows are all exported.
    #[default]
    None,
    /// Only the oldest of equal rows is exported. Rows are equal if their questions and answers are: in logs, the intent and
    /// the programs, whatever the error, the prompt as sent and the raw response are.
    Exact,
    /// Only the oldest of several similar records is exported. Records are similar if their questions and answers
    /// have most words, and pairs of adjacent words, in common (MinHash).
    Near,
}

/// What rows contain besides the keys of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Include {
    /// Every row has the key `metadata`.
    Metadata,
}

/// Names of the parameters of [`Common`], to tell them from a data set's own.
pub const COMMON: [&str; 20] = [
    "format",
    "since",
    "until",
    "order",
    "limit",
    "cursor",
    "as_of",
    "split",
    "split_by",
    "holdout",
    "seed",
    "dedupe",
    "near_threshold",
    "exclude",
    "include",
    "system",
    "weights",
    "min_chars",
    "max_chars",
    "max_per_answer",
];

/// Applies a project's rules to the value of the parameter with this name. What is stored is redacted, so it is found by
/// what is left of a name.
pub fn redact(name: &str, value: &mut String, redaction: &mut Redaction<'_>) {
    match name {
        "session" | "server" | "topic_id" => value.group_name(redaction),
        _ => value.texts(redaction),
    }
}

impl Check for Common {
    fn check(&self, checks: &mut Checks) {
        checks.require(self.limit.is_none_or(|limit| limit >= 1), "limit", "must be 1 or more");
        checks.require(
            self.holdout.is_none_or(|share| (0.0..=1.0).contains(&share)),
            "holdout",
            "must be from 0 to 1",
        );
        checks.require(
            self.near_threshold.is_none_or(|share| (0.5..=1.0).contains(&share)),
            "near_threshold",
            "must be from 0.5 to 1",
        );
        let has_threshold = self.near_threshold.is_some();
        checks.require(self.is_near() || !has_threshold, "dedupe", "must be near if near_threshold is given");
        if let Some(system) = &self.system {
            checks.text("system", system, LONGEST_SYSTEM);
        }
        checks.require(self.max_chars != Some(0), "max_chars", "must be 1 or more");
        let few = 1..=MOST_PER_ANSWER;
        checks.require(
            self.max_per_answer.is_none_or(|most| few.contains(&most)),
            "max_per_answer",
            &format!("must be from 1 to {MOST_PER_ANSWER}"),
        );
        check_range(checks, self.since, self.until);
        if self.split.is_none() {
            checks.require(
                self.holdout.is_none() && self.seed.is_none() && self.split_by.is_none(),
                "split",
                "must be given with holdout, seed or split_by",
            );
        }
    }
}

impl Common {
    /// Adds the conditions on a row's answer, on its part of a split, and on the creation of its record, whose column
    /// is `created_at`.
    pub fn push(&self, query: &mut QueryBuilder<Postgres>, created_at: &str, sides: &Sides<'_>) {
        if let Some(since) = self.since {
            query.push(format_args!(" and {created_at} >= ")).push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(format_args!(" and {created_at} < ")).push_bind(until);
        }
        if let Contents::Texts(texts) = &sides.contents {
            self.push_answer(query, texts);
            self.push_exclude(query, texts);
        }
        self.push_split(query, sides);
    }

    /// Rejects parameters that do not apply to rows of this format, or to a data set without texts.
    pub(super) fn check_shape(&self, format: Format, shape: Shape, split: Split, checks: &mut Checks) {
        checks.require(
            self.system.is_none() || shape.is_chat(),
            "system",
            "the rows of this format are not chats",
        );
        split.check(self.split_by, checks);
        let weighed = self.weights.is_none() || format == Format::Openai;
        checks.require(weighed, "weights", "only the format openai has weights");
        let has_texts = split.source().is_some();
        for (name, given) in [
            ("min_chars", self.min_chars.is_some()),
            ("max_chars", self.max_chars.is_some()),
            ("max_per_answer", self.max_per_answer.is_some()),
            ("exclude", self.exclude.is_some()),
            ("dedupe", self.is_near()),
        ] {
            checks.require(!given || has_texts, name, "the rows of this data set have no answer");
        }
    }

    /// Returns the parameters that must stay the same in all parts of one export, because they decide on its records
    /// and their order.
    #[must_use]
    pub fn conditions(&self) -> Self {
        let weights = None;
        Self { format: None, limit: None, cursor: None, as_of: None, include: None, weights, ..self.clone() }
    }

    /// Returns the order of the records.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order.unwrap_or_default()
    }

    /// Returns how equal rows are treated.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.dedupe == Some(Dedupe::Exact)
    }

    /// Returns whether rows that are similar to an older one are left out.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.dedupe == Some(Dedupe::Near)
    }

    /// Returns whether rows have metadata.
    #[must_use]
    pub fn with_metadata(&self) -> bool {
        self.include.is_some()
    }
}
