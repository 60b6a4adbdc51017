//! What follows from memories and queries, without a database. [`terms`] and [`grams`] take texts apart, [`context`] makes one question
//! of a conversation, and [`ranking`] compares memories with it. From that follow a probability ([`confidence`]) and a sentence
//! ([`reasons`]). [`intent`] tells what a person wants.

pub mod confidence;
pub mod context;
pub mod grams;
pub mod intent;
pub mod ranking;
pub mod reasons;
pub mod signs;
pub mod terms;
