//! Gleaner records what coding agents do and serves what can be learned from it: one program and one Postgres.
//!
//! # The map
//!
//! A domain is one kind of record and the events that can happen to it: [`generations`], [`suggestions`],
//! [`searches`], [`messages`] and [`memories`].
//! Each is a folder with the same parts: `mod.rs` has the records and the bodies that clients post, `event` makes events of
//! them, `rules` says what follows without a database, `write` and `tables` write events, `store` has the queries, `exports`
//! the data sets, and `routes` the endpoints. [`domain`] lists the domains and asks each the same questions.
//!
//! To find or to add something (`CONTRIBUTING.md` has the steps, `ARCHITECTURE.md` the reasons):
//!
//! | what | where |
//! |---|---|
//! | a domain | its own folder, a migration, the matches in [`domain`], a line in [`router`](mod@router) and a tag in [`openapi`] |
//! | an event kind | the domain's folder: the body in `mod.rs`, then `event`, `write`, `tables` and `routes` |
//! | a data set to export | a file in the domain's `exports` folder and a line in [`exports::datasets`] |
//! | an export format | [`exports::format`](mod@exports::format) and its rows and [`schema`](exports::schema): data sets name shapes, and a format says which it writes |
//! | a kind of file for snapshots | [`exports::snapshots`] |
//! | an agent | a file in [`agents`] and a line in its table `ALL`; new names of tools in `agents/tool.rs`, of hooks in `agents/hook.rs` |
//! | a setting of the server | [`config`] |
//! | a setting of a project | [`projects::Settings`]; a member of [`projects::Tenant`] brings it to requests and writers; [`searches::settings`] for learning |
//! | a limit on requests | [`http::json`] for size, [`http::page`] for pages, [`exports::places`] for exports |
//! | a timeout | [`server::Settings`], [`http::serve`] |
//! | a limit on a field | its `#[schema]` and the `Check` of the body that has it ([`http::check`]), in the domain's `mod.rs` |
//! | an error that clients see | [`error`] |
//! | a tool of MCP | the table in `mcp/tools.rs`, which names an operation of the API |
//! | a metric | where it is counted, and its description in [`telemetry`] |
//!
//! The rest is what all domains share:
//!
//! - [`cli`] is the command line. [`server`] starts and stops the service, [`state`] is what handlers share,
//!   [`router`](mod@router) has the endpoints with the middleware around them, [`openapi`] their document, [`docs`]
//!   the page that shows it, and [`telemetry`] traces and metrics.
//! - [`http`] has extractors and responses, [`auth`] the callers and their keys, [`audit`] who has changed what,
//!   [`writing`] the extractor of requests that write events, [`batch`] many events in one request, and [`sessions`]
//!   the records of an agent session in all domains.
//! - [`erasure`] erases records of all domains by session, age and id, and automatically after a number of days.
//!   [`background`] runs periodic work until the server stops, [`outage`] defines why a database fails, and
//!   [`recurring`] logs conditions that many requests meet.
//! - [`writer`] commits events in batches. [`db`] connects to Postgres, runs a private one, and makes the statements.
//! - [`intake`] receives what agents report by hooks and transcripts, from which searches and conversations learn,
//!   and [`help`] finds what is relevant to a conversation, on request or without one.
//! - [`mcp`] serves operations of the API to models as tools.
//! - [`gateway`] forwards requests of clients to model providers, and records them as sends. [`providers`] calls
//!   model providers, and [`embeddings`] an API that returns vectors for texts. [`retrieval`] finds texts that are
//!   similar to a given one, [`statistics`] has the mathematics of the analytics, and [`types`] the values that every
//!   domain uses.
//!
//! # One request, step by step
//!
//! `POST /v1/generations/{id}/attempts`:
//!
//! 1. [`router::router`] gives the request an id and a span, and refuses unknown query parameters. [`auth::guard_open`]
//!    protects a server that has no keys yet.
//! 2. The handler in `generations::routes` says in its arguments what it needs: [`writing::Writing`], that is a caller
//!    with the scope to write ([`auth::Caller`]), the id in the path, and [`http::Json`], which cleans, parses and checks
//!    the body. A request that does not fit becomes an [`error::Error`], of which [`error::Refused`] makes a problem document.
//! 3. [`generations::Event::append`] makes the event, with its id, time, verdict and hash, and [`writing::Writing::create`]
//!    hands it to [`writer::Writer::write`].
//! 4. The project's policy decides what is kept ([`privacy::kept::Kept`]). A writer takes all events that wait and writes
//!    those of a project and domain in one transaction ([`domain::write`], [`db::steps`]).
//! 5. After the commit the handler answers [`http::reply::Created`], with the record if the client wants it. A 2xx
//!    response means that the event is committed.

pub mod agents;
pub mod audit;
pub mod auth;
pub mod background;
pub mod batch;
pub mod cli;
pub mod config;
pub mod db;
pub mod docs;
pub mod domain;
pub mod embeddings;
pub mod erasure;
pub mod error;
pub mod exports;
pub mod gateway;
pub mod generations;
pub mod health;
pub mod help;
pub mod http;
pub mod intake;
pub mod mcp;
pub mod memories;
pub mod messages;
pub mod openapi;
pub mod outage;
pub mod privacy;
pub mod projects;
pub mod providers;
pub mod recurring;
pub mod retrieval;
pub mod router;
pub mod searches;
pub mod server;
pub mod sessions;
pub mod sharing;
pub mod state;
pub mod statistics;
pub mod suggestions;
pub mod telemetry;
pub mod types;
pub mod writer;
pub mod writing;
