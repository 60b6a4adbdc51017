//! Patches in the form of `apply_patch`.

use crate::agents::action::MOST_ACTIONS;

/// Returns the first files that a patch in the form of `apply_patch` adds or changes.
pub(in crate::agents) fn patched_files(patch: &str) -> impl Iterator<Item = &str> {
    let files = patch.lines().filter_map(|line| {
        let file = line.strip_prefix("*** ")?;
        ["Update File: ", "Add File: ", "Move to: "]
            .iter()
            .find_map(|head| file.strip_prefix(head))
            .map(str::trim)
    });
    files.take(MOST_ACTIONS)
}
