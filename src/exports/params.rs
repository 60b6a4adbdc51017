//! The parameters of exports: the same ones, and the same documentation, for the endpoint and the command line.

use clap::{Args, ValueEnum};
use serde::Deserialize;
use sqlx::{Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::format::{Format, Shape, Weights};
use super::split::{Part, Sides, SplitBy};
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::types::Timestamp;

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
    /// Which records come first. Both orders have the same rows. A `cursor` is valid only for the order in which it
    /// was issued.
    #[arg(long)]
    #[param(inline)]
    pub order: Option<Order>,
    /// The maximum number of records. If there are more, the header Gleaner-Next-Cursor has the cursor of the next
    /// part.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[param(minimum = 1, example = 1000)]
    pub limit: Option<i64>,
    /// Where to continue an export: the Gleaner-Next-Cursor header of the previous response.
    #[arg(long)]
    pub cursor: Option<String>,
    /// The time whose state of the data is exported. The default is just before the oldest write in progress.
    #[serde(deserialize_with = "time_in_query")]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<Timestamp>)]
    pub as_of: Option<Timestamp>,
    /// Exports one part of the records. No intent and no program is in more than one part. If rows had to be dropped
    /// for that, the header Gleaner-Dropped says how many.
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
    /// Whether only the oldest of several equal rows is exported.
    #[arg(long)]
    #[param(inline)]
    pub dedupe: Option<Dedupe>,
    /// Adds the key metadata to every row. It contains ids, times, the model and other properties of the record.
    #[arg(long)]
    #[param(inline)]
    pub include: Option<Include>,
    /// A system message that every chat begins with. It replaces the chat's own system message.
    #[arg(long, value_name = "TEXT")]
    #[param(example = "You write programs for business units.")]
    pub system: Option<String>,
    /// Whether the assistant messages in chats of the format openai have a weight.
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
    /// The maximum number of records with the same answer, of which the oldest are exported. This keeps a frequent
    /// answer from dominating the data.
    #[arg(long, value_name = "N")]
    #[param(minimum = 1, example = 20)]
    pub max_per_answer: Option<u32>,
    /// Whether rows stay whose texts stand in another part too. It is for counting them, and no request has it.
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

/// How equal rows are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Dedupe {
    /// Equal rows are all exported.
    #[default]
    None,
    /// Of rows with the same texts, only the oldest is exported.
    Exact,
}

/// What rows contain besides the keys of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Include {
    /// Every row has the key `metadata`.
    Metadata,
}

/// Names of the parameters of [`Common`], to tell them from a data set's own.
pub const COMMON: [&str; 18] = [
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
    "include",
    "system",
    "weights",
    "min_chars",
    "max_chars",
    "max_per_answer",
];

impl Check for Common {
    fn check(&self, checks: &mut Checks) {
        checks.require(self.limit.is_none_or(|limit| limit >= 1), "limit", "must be 1 or more");
        checks.require(
            self.holdout.is_none_or(|share| (0.0..=1.0).contains(&share)),
            "holdout",
            "must be from 0 to 1",
        );
        checks.require(
            self.as_of.is_none_or(|at| at <= Timestamp::now()),
            "as_of",
            "must not be in the future",
        );
        checks.require(self.system.as_deref() != Some(""), "system", "must not be empty");
        checks.require(self.max_chars != Some(0), "max_chars", "must be 1 or more");
        checks.require(self.max_per_answer != Some(0), "max_per_answer", "must be 1 or more");
        check_range(checks, self.since, self.until);
        if self.split.is_none() {
            checks.require(
                self.holdout.is_none() && self.seed.is_none() && self.split_by.is_none(),
                "split",
                "holdout, seed and split_by need it",
            );
        }
    }
}

impl Common {
    /// Adds the conditions on the creation of a row's record, whose column is `created_at`, on its answer, and on its part of a split.
    pub fn push(&self, query: &mut QueryBuilder<Postgres>, created_at: &str, sides: &Sides<'_>) {
        if let Some(since) = self.since {
            query.push(format_args!(" and {created_at} >= ")).push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(format_args!(" and {created_at} < ")).push_bind(until);
        }
        if let Some(texts) = &sides.texts {
            self.push_answer(query, texts);
        }
        self.push_split(query, sides);
    }

    /// Refuses parameters that do not apply to rows of this format, or to a data set without texts.
    pub(super) fn check_shape(&self, format: Format, shape: Shape, has_texts: bool, checks: &mut Checks) {
        checks.require(
            self.system.is_none() || shape.is_chat(),
            "system",
            "the rows of this format are not chats",
        );
        let weighed = self.weights.is_none() || format == Format::Openai;
        checks.require(weighed, "weights", "only the format openai has them");
        for (name, given) in [
            ("min_chars", self.min_chars.is_some()),
            ("max_chars", self.max_chars.is_some()),
            ("max_per_answer", self.max_per_answer.is_some()),
        ] {
            checks.require(!given || has_texts, name, "the rows of this data set have no answer");
        }
    }

    /// Those that must not change between the pieces of one export: which records it has, and in which order.
    #[must_use]
    pub fn conditions(&self) -> Self {
        let weights = None;
        Self { format: None, limit: None, cursor: None, as_of: None, include: None, weights, ..self.clone() }
    }

    /// The order of the records.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order.unwrap_or_default()
    }

    /// How equal rows are treated.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.dedupe == Some(Dedupe::Exact)
    }

    /// Whether rows carry metadata.
    #[must_use]
    pub fn with_metadata(&self) -> bool {
        self.include.is_some()
    }
}
