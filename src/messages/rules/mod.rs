//! The rules of chats that need no database: which pairs fit ([`budget`]), how large texts are ([`estimate`]), what a
//! provider's error means ([`errors`], [`waits`]), whether an answer is whole ([`finish`]), what comes after an attempt
//! ([`trimming`]), and how long to wait for a quota ([`quota`]).

pub mod budget;
pub mod errors;
pub mod estimate;
pub mod finish;
pub mod quota;
pub mod trimming;
pub mod waits;
