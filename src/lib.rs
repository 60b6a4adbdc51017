//! Gleaner keeps what coding agents do and gives back what can be learned from it.

pub mod db;
