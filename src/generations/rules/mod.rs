//! What follows from attempts without a database: which errors are of one kind, and what repaired them.

pub mod changes;
pub mod errors;
pub mod kinds;
