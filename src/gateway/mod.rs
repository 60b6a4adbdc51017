//! The gateway: requests as the official clients of providers send them are passed on, and the answers are given back
//! unchanged. What passed is kept as a send, and as an attempt of a generation log if the client says so.
//!
//! A request is read as far as the record needs it (`asked`) and goes on as it came, but for the name of its model where that
//! names the provider too, and for the turns that are dropped where the client asks for it. `passage` calls the provider,
//! `headers` says which headers go along, and `refusal` gives our own refusals the shape that the client expects.

mod asked;
mod headers;
mod passage;
mod record;
pub mod refusal;
pub mod routes;
mod stream;
