//! The program's own items that tests use, gathered here so that a test names only `support`.

pub(crate) use gleaner::auth::keyring::Keyring;
pub(crate) use gleaner::auth::keys::{Secret, replace_first as replace_first_key};
pub(crate) use gleaner::background::Rounds;
pub(crate) use gleaner::db::kept::Refilling;
pub(crate) use gleaner::db::silence::LongestStatement;
pub(crate) use gleaner::db::{WRITER_NAME, begin, begin_snapshot, embedded, migrate, pool, writer_name};
pub(crate) use gleaner::embeddings::Embedder;
pub(crate) use gleaner::erasure::retention::Retention;
pub(crate) use gleaner::exports::datasets::{ALL as DATASETS, Entry};
pub(crate) use gleaner::exports::export::Export;
pub(crate) use gleaner::exports::params::COMMON;
pub(crate) use gleaner::exports::places::Limits;
pub(crate) use gleaner::exports::progress::lock;
pub(crate) use gleaner::exports::snapshots::build::build_due;
pub(crate) use gleaner::http::params::from_pairs;
pub(crate) use gleaner::http::serve::{Limits as Connections, serve};
pub(crate) use gleaner::messages::in_flight::InFlight;
pub(crate) use gleaner::messages::lease::interrupt;
pub(crate) use gleaner::messages::models::{self, Catalog};
pub(crate) use gleaner::privacy::capture::Capture;
pub(crate) use gleaner::projects::Defaults;
pub(crate) use gleaner::providers::Providers;
pub(crate) use gleaner::router::{openapi, router};
pub(crate) use gleaner::searches::expiry::{Failed, expire};
pub(crate) use gleaner::server::{Running, Settings};
pub(crate) use gleaner::sharing::Limits as Turns;
pub(crate) use gleaner::types::Timestamp;
