//! The data set of searches: queries with the files that answered them.

mod pairs;

use crate::exports::{Described as _, Description};

pub use pairs::SearchPairs;

/// The data sets with texts of searches.
pub(crate) const DATASETS: [&Description; 1] = [&SearchPairs::DESCRIPTION];
