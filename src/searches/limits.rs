//! Limits on the characters and entries that are stored of what clients post and agents write.

/// The maximum number of characters of a query or pattern.
pub(super) const MOST_QUERY: usize = 2_000;
/// The maximum number of characters of a path.
pub(super) const MOST_PATH: usize = 4_096;
/// The maximum number of results that a search may name.
pub(super) const MOST_RESULTS: usize = 500;
/// The maximum number of characters of a name that an agent gives: longer ones are cut.
pub const MOST_NAME: usize = 200;

/// Cuts a text after this many characters.
pub fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}
