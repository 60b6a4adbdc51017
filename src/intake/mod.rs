//! What agents report of their work: hooks while they work ([`hook`]), transcripts afterwards ([`transcript`]). Searches learn from
//! what tools found, conversations from what persons ask, and a hook may be answered with [help](crate::help).

pub mod hook;
pub mod prompts;
pub mod routes;
pub mod transcript;
