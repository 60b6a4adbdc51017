//! The data sets of suggestion records: what users took, what they preferred it to, and the records themselves.

mod accepted;
mod history;
mod preferences;
mod rankings;
mod slates;

pub use accepted::AcceptedSuggestions;
pub use history::SuggestionHistory;
pub use preferences::PreferencePairs;
pub use rankings::Rankings;
