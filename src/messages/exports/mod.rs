//! The data set of chats.

mod conversations;

pub use conversations::Conversations;
