//! Help for a conversation: the memories that belong to it, and beside them files and solved examples, which other domains
//! have. It is asked for ([`routes`]), or it comes by itself as the answer to an agent's hook ([`unasked`]).

pub mod routes;
mod text;
pub mod unasked;
