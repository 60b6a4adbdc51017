//! The data sets of suggestion records: what users took, what they preferred it to, and the records themselves.

mod accepted;
mod history;
mod preferences;
mod rankings;
mod slates;

use crate::exports::{Described as _, Description};

pub use accepted::AcceptedSuggestions;
pub use history::SuggestionHistory;
pub use preferences::PreferencePairs;
pub use rankings::Rankings;

/// The data sets with texts of suggestion records.
pub(crate) const DATASETS: [&Description; 4] = [
    &AcceptedSuggestions::DESCRIPTION,
    &PreferencePairs::DESCRIPTION,
    &Rankings::DESCRIPTION,
    &SuggestionHistory::DESCRIPTION,
];
