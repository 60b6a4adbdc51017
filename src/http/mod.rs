//! What handlers take from a request and give back, each with the service's own [`Error`](crate::error::Error): bodies
//! ([`json`]), parameters ([`params`]), lists ([`page`]), answers to what was written ([`reply`]), and the connections
//! under them ([`serve`]).

pub mod check;
pub mod clean;
pub mod idempotency;
pub mod json;
pub mod line;
pub mod page;
pub mod params;
pub mod reply;
pub mod serve;

pub use check::{Check, Checks};
pub use clean::{Replaced, clean_json};
pub use idempotency::IdempotencyKey;
pub use json::{Json, NDJSON_LIMIT, null_as_default, utf8};
pub use params::{ById, Path, Query};
