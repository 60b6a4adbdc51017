//! The data set of searches: queries with the files that answered them.

mod pairs;

pub use pairs::SearchPairs;
