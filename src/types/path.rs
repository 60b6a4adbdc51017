//! What is known of a path by its text alone.

/// Returns whether a path of Unix or Windows begins at a root, a drive, a server or a home folder.
#[must_use]
pub fn is_absolute(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.starts_with(r"\\") || has_drive(path)
}

/// Returns whether a path begins like `C:`.
#[must_use]
pub fn has_drive(path: &str) -> bool {
    matches!(path.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}
