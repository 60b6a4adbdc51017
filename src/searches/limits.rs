//! Limits on the characters and entries that are stored of what clients post and agents write.

use super::SearchResult;

/// The maximum number of characters of a query or pattern.
pub(super) const MOST_QUERY: usize = 2_000;
/// The maximum number of characters of a path.
pub(super) const MOST_PATH: usize = 4_096;
/// The maximum number of results that a search may name.
pub(super) const MOST_RESULTS: usize = 500;
/// The maximum number of bytes of the paths of a search's results together. While the search is open, each event of its agent reads
/// them.
pub(super) const MOST_OF_RESULTS: usize = 128 << 10;
/// The maximum number of bytes of the paths of a result that is in a line of a transcript. A line has many results, and paths that
/// are joined to the folder of a call are much longer than in the line.
pub(super) const MOST_OF_CALL: usize = 64 << 10;
/// The maximum number of characters of a name that an agent gives: longer ones are cut.
pub const MOST_NAME: usize = 200;

/// Returns the first of a search's results: at most [`MOST_RESULTS`], with at most so many bytes of paths.
pub(super) fn first_results(results: impl Iterator<Item = SearchResult>, most: usize) -> Vec<SearchResult> {
    let mut bytes = 0;
    let fitting = results.take(MOST_RESULTS).take_while(|result| {
        bytes += result.path.len();
        bytes <= most
    });
    fitting.collect()
}

/// Cuts a text after this many characters.
pub fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}
