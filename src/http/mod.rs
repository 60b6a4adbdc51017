//! Extractors and responses that handlers share, whose refusals are the service's own
//! [`Error`](crate::error::Error): bodies ([`json`], [`mod@line`]), parameters ([`params`]), lists ([`page`]) and
//! responses to writes ([`reply`]). [`serve`] accepts the connections, and [`send`] sends what they are answered.

pub mod check;
pub mod clean;
pub mod end_line;
mod frames;
mod http2_limits;
pub mod idempotency;
pub mod json;
pub mod line;
mod linger;
pub mod memory;
pub mod pace;
pub mod page;
pub mod params;
pub mod pieces;
pub mod received;
pub mod reply;
pub mod send;
pub mod serve;
mod strict;
pub mod unpack;
mod words;

pub use check::{Check, Checks};
pub use clean::{Replaced, clean_json};
pub use idempotency::IdempotencyKey;
pub use json::{Json, NDJSON_LIMIT, null_as_default, utf8};
pub use params::{ById, Path, Query, boolean, flag};
