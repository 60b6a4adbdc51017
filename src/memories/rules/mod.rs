//! What follows from memories and queries, without a database. [`terms`] and [`grams`] take texts apart, [`context`] makes one question
//! of a conversation, and [`ranking`] compares memories with it. [`meaning`] adds what embeddings tell. From that follow a probability
//! ([`confidence`]) and a sentence ([`reasons`]). [`intent`] detects what a person wants.

pub mod confidence;
pub mod context;
pub mod grams;
pub mod intent;
pub mod meaning;
pub mod ranking;
pub mod reasons;
pub mod signs;
pub mod terms;
