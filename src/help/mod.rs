//! Help for a conversation: relevant memories, and beside them files and solved examples from other domains. A client
//! requests it ([`routes`]), or an agent's hook gets it in its response ([`unasked`]).

pub mod routes;
mod text;
pub mod unasked;
