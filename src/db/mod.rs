//! The database: a private one, when no other is given.

pub mod embedded;
