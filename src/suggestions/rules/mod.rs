//! The rules of suggestion records, without a database: how an input relates to a slate ([`matching`]), what was looked at
//! ([`views`]), what follows from the end of a record ([`outcome`]), what a model was told ([`prompt`]), and the seed's own
//! line of a record ([`history`]).

pub mod history;
pub mod matching;
pub mod outcome;
pub mod prompt;
pub mod views;
