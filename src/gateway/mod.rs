//! The gateway forwards the requests of the providers' official clients and returns the answers unchanged. It records
//! each request as a send, and the answer as an attempt of a generation log if the client asks for that.
//!
//! A request is parsed as far as its record needs it (`asked`) and forwarded unchanged, with two exceptions: a model
//! name with the provider's name in it is shortened, and turns are dropped if the client allows it. `passage` calls
//! the provider, `headers` says which headers are forwarded, and `refusal` gives the gateway's own errors the shape
//! that the client expects.
//!
//! # One request, step by step
//!
//! `POST /anthropic/v1/messages`:
//!
//! 1. `routes` authenticates the caller and reads the body, and `asked` parses a cleaned copy of it: the model, the messages
//!    and their positions.
//! 2. `passage` continues on a task of its own, so that the outcome is recorded even if the client disconnects.
//!    `record` has the writer commit the event that starts the send. Only then is the provider called.
//! 3. An answer that is not streamed is held until the event that ends the send is committed. A streamed one is forwarded
//!    piece by piece through a channel of eight (`stream`) and parsed on the way, and its last pieces are held for
//!    the commit. The task notices a client that disconnects by its channel, and a cancelled send by its `Flight`.
//!
//! A gateway send has the columns of other sends. Its selected pairs are the turns of the conversation, and no limit of a
//! model is needed. Its messages are a chain in `sent_messages` ([`passed`](crate::messages::passed)), so that a
//! conversation is stored once however often it is sent, and erasing a pair finds all copies of its text.

mod asked;
mod headers;
mod passage;
mod record;
pub mod refusal;
pub mod routes;
mod stream;
