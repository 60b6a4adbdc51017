//! Gleaner keeps what coding agents do and gives back what can be learned from it: one program and one Postgres.
//!
//! # The map
//!
//! - [`cli`] is the command line, [`config`] its settings, [`app`] the service: state, router, start and stop.
//! - A domain is a folder: `mod.rs` says what a thing is, `store.rs` and `write.rs` how it is kept, `routes.rs` how it is
//!   reached. So far there are [`generations`], [`suggestions`] and [`searches`]; [`projects`] keeps tenants apart.
//! - What all domains stand on: [`connections`], [`error`], [`extract`], [`answer`], [`page`], [`auth`], [`value`],
//!   [`batch`], [`statistics`], and in [`db`] the connection, the private Postgres and the group commit.
//! - [`exports`] streams what was learned; [`operations`] answers those who run the service.
//!
//! # One request, walked
//!
//! `POST /v1/generations/{id}/attempts`:
//!
//! 1. [`app::router`] gives it an id and a span; [`auth::guard_open`] keeps strangers from an open server.
//! 2. `generations::routes::append` says what it needs in its arguments: a [`auth::Caller`] who may write, a path with an
//!    id, and [`extract::Json`], which cleans, parses and checks the body. Whatever does not fit is an [`error::Error`]
//!    by now, and [`error::Refused`] makes a problem document of it.
//! 3. [`generations::Event::append`] makes id, time, verdict and hash, and hands over to [`db::writer::Writer::write`].
//! 4. A writer takes all events that wait; [`generations::write::write`] writes them in one transaction.
//! 5. After the commit [`answer::Prefer`] answers 201, with the attempt if it is wanted: a 2xx means committed.

pub mod agents;
pub mod auth;
pub mod batch;
pub mod cli;
pub mod config;
pub mod db;
pub mod domain;
pub mod error;
pub mod exports;
pub mod generations;
pub mod health;
pub mod http;
pub mod openapi;
pub mod privacy;
pub mod projects;
pub mod retrieval;
pub mod router;
pub mod searches;
pub mod server;
pub mod sessions;
pub mod state;
pub mod statistics;
pub mod suggestions;
pub mod telemetry;
pub mod types;
pub mod writer;
pub mod writing;
