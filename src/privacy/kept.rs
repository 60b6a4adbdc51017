//! [`Kept`]: proof that a value may be written.

use std::ops::Deref;

/// A value that may be written: what the project's policy has left of it.
///
/// Only [`Policy::keep`](super::policy::Policy::keep) makes one, and the functions that write accept nothing
/// else. So no way into the service can bypass the project's privacy settings.
#[derive(Debug, Clone, Copy)]
pub struct Kept<T> {
    value: T,
    redacted: u32,
}

impl<T> Kept<T> {
    pub(super) fn new(value: T, redacted: u32) -> Self {
        Self { value, redacted }
    }

    /// Returns how many spans of the value's texts were redacted.
    #[must_use]
    pub fn redacted(&self) -> u32 {
        self.redacted
    }

    /// Returns a part of the kept value, if the value has that part. The part is kept as well.
    pub fn part<'a, P>(&'a self, part: impl FnOnce(&'a T) -> Option<&'a P>) -> Option<Kept<&'a P>> {
        part(&self.value).map(|value| Kept { value, redacted: self.redacted })
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
