//! The data set of suggestions.

mod memory_suggestions;

use crate::exports::{Described as _, Description};

pub use memory_suggestions::MemorySuggestions;

/// The data sets with texts of memories and queries.
pub(crate) const DATASETS: [&Description; 1] = [&MemorySuggestions::DESCRIPTION];
