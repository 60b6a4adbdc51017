//! The data set of suggestions.

mod memory_suggestions;

pub use memory_suggestions::MemorySuggestions;
