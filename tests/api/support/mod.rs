//! What tests share: a database each, the service on it, requests to it, and the program as a process.

mod answer;
mod database;
mod json;
mod line;
pub(crate) mod program;
pub(crate) mod provider;
mod psql;
pub(crate) mod server;
mod service;
mod snapshot;
mod wait;

pub(crate) use answer::{Answer, request};
pub(crate) use json::{assert_close, column, encoded, failed, passed, with};
pub(crate) use line::Line;
pub(crate) use service::{Service, settings};
pub(crate) use snapshot::{assert_text, assert_whole, bodies, scrub};
pub(crate) use wait::eventually;
