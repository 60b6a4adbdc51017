//! The parameters of exports: the same ones, and the same documentation, for the endpoint and the command line.

use clap::{Args, ValueEnum};
use serde::Deserialize;
use sqlx::{Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::format::Format;
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
    /// How a row is written; the data set's own first format, if not given.
    #[arg(long)]
    #[param(inline)]
    pub format: Option<Format>,
    /// Only records created then or later: RFC 3339, or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<Timestamp>)]
    pub since: Option<Timestamp>,
    /// Only records created before then.
    #[serde(deserialize_with = "time_in_query")]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<Timestamp>)]
    pub until: Option<Timestamp>,
    /// Which records come first. Newest is the order of oldest turned round: `newest` with `limit` has the latest records, a
    /// `cursor` of it goes on to the ones before them, and none that is finalized after `as_of` comes in between. A `cursor`
    /// belongs to the order that it was made in. The order changes nothing about which rows there are.
    #[arg(long)]
    #[param(inline)]
    pub order: Option<Order>,
    /// The most records (logs or slates), never cutting one in two; the header Gleaner-Next-Cursor says where to go on.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[param(minimum = 1, example = 1000)]
    pub limit: Option<i64>,
    /// Where to go on: Gleaner-Next-Cursor of the piece before.
    #[arg(long)]
    pub cursor: Option<String>,
    /// The state of the data then; by default just before the oldest write in flight.
    #[serde(deserialize_with = "time_in_query")]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<Timestamp>)]
    pub as_of: Option<Timestamp>,
    /// Only one part of the records. No intent and no program stands in two parts: of those held out, rows are dropped for
    /// that where there is no other way, and the header Gleaner-Dropped says how many.
    #[arg(long)]
    #[param(inline)]
    pub split: Option<Part>,
    /// What must not stand in two parts.
    #[arg(long)]
    #[param(inline)]
    pub split_by: Option<SplitBy>,
    /// The share that is held out of the training part, 0 to 1, half of it to validate and half to test with; 0.1 if not given.
    #[arg(long, value_name = "SHARE")]
    #[param(minimum = 0, maximum = 1)]
    pub holdout: Option<f64>,
    /// Another seed splits differently; 0 if not given.
    #[arg(long, value_name = "N")]
    pub seed: Option<u32>,
    /// Whether equal rows are left out but for the oldest.
    #[arg(long)]
    #[param(inline)]
    pub dedupe: Option<Dedupe>,
    /// Adds one key, metadata, to every row: ids, times, model, and what else is known of the record.
    #[arg(long)]
    #[param(inline)]
    pub include: Option<Include>,
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

/// Whether equal rows are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Dedupe {
    /// No.
    #[default]
    None,
    /// All but the oldest of rows with the same texts.
    Exact,
}

/// What rows carry besides the format's own keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Include {
    /// One key `metadata`.
    Metadata,
}

/// Names of the parameters of [`Common`], to tell them from a data set's own.
pub const COMMON: [&str; 13] = [
    "format", "since", "until", "order", "limit", "cursor", "as_of", "split", "split_by", "holdout", "seed",
    "dedupe", "include",
];

impl Check for Common {
    fn check(&self, checks: &mut Checks) {
        checks.require(self.limit.is_none_or(|limit| limit >= 1), "limit", "must be 1 or more");
        checks.require(
            self.holdout.is_none_or(|share| (0.0..=1.0).contains(&share)),
            "holdout",
            "must be 0 to 1",
        );
        checks.require(
            self.as_of.is_none_or(|at| at <= Timestamp::now()),
            "as_of",
            "must not be in the future",
        );
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
    /// Adds the conditions on the creation of a row's record, whose column is `created_at`, and on the row's part of a split.
    pub fn push(&self, query: &mut QueryBuilder<Postgres>, created_at: &str, sides: &Sides<'_>) {
        if let Some(since) = self.since {
            query.push(format_args!(" and {created_at} >= ")).push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(format_args!(" and {created_at} < ")).push_bind(until);
        }
        self.push_split(query, sides);
    }

    /// Those that must not change between the pieces of one export: which records it has, and in which order.
    #[must_use]
    pub fn conditions(&self) -> Self {
        Self { format: None, limit: None, cursor: None, as_of: None, include: None, ..self.clone() }
    }

    /// The order of the records.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order.unwrap_or_default()
    }

    /// Whether equal rows are left out.
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
