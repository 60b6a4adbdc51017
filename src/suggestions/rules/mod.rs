//! The rules of suggestion records, without a database: how a submitted text relates to a slate
//! ([`matching`]), which suggestions were viewed ([`views`]), the outcome of a record ([`outcome`]), what a
//! model was told ([`prompt`]), and the seed's own line of a record ([`history`]).

pub mod history;
pub mod matching;
pub mod outcome;
pub mod prompt;
pub mod views;
