//! What became of an event that was to be written.

use crate::error::Result;
use crate::privacy::capture::Capture;

/// That an event is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// It had been sent before; nothing was changed.
    pub replayed: bool,
    /// The number it has within its record, where its kind has one.
    pub number: Option<i32>,
    /// How much of it is kept.
    pub kept: Capture,
}

impl Receipt {
    /// It is new.
    #[must_use]
    pub const fn created(number: Option<i32>) -> Self {
        Self { replayed: false, number, kept: Capture::Full }
    }

    /// It was there.
    #[must_use]
    pub const fn replayed(number: Option<i32>) -> Self {
        Self { replayed: true, number, kept: Capture::Full }
    }

    /// Whether what is now stored is what the request said, no more and no less.
    #[must_use]
    pub fn is_as_sent(&self) -> bool {
        !self.replayed && self.kept == Capture::Full
    }
}

/// What became of one event.
pub type Written = Result<Receipt>;
