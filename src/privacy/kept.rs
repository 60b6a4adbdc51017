//! [`Kept`]: what may be written.

use std::ops::Deref;

/// Something that may be written: what the project's policy has left of it.
///
/// Whoever has one has passed [`Policy::keep`](super::policy::Policy::keep), which alone makes it; the functions that write
/// take nothing else. So no way in can forget what a project does not want kept.
#[derive(Debug, Clone, Copy)]
pub struct Kept<T>(T);

impl<T> Kept<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }

    /// A part of what is kept, if it has that part: it is kept, too.
    pub fn part<'a, P>(&'a self, part: impl FnOnce(&'a T) -> Option<&'a P>) -> Option<Kept<&'a P>> {
        part(&self.0).map(Kept)
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
