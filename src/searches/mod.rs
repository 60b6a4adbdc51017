//! Searches that came back weak, and what the agent then read until it found the file.

pub mod shell;
pub mod transcript;
