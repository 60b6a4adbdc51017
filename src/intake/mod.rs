//! What agents report about their work: hooks while they work ([`hook`]), and transcripts afterwards
//! ([`transcript`]). Searches learn from the results of tools, conversations learn from prompts, and the response to
//! a hook may contain [help](crate::help).

pub mod hook;
pub mod prompts;
pub mod routes;
pub mod transcript;
