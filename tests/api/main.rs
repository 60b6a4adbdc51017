//! The service through its real router on a real Postgres, a database for each test.

mod auth;
mod bad_input;
mod capture;
mod command_line;
mod contract;
mod erasure;
mod exports;
mod faults;
mod gateway;
mod generations;
mod hook;
mod messages;
mod openapi;
mod private_postgres;
mod process;
mod redaction;
mod retrieval;
mod searches;
mod seed_000;
mod seed_001;
mod seed_004;
mod suggestions;
mod support;
mod transcripts;
mod watch;
