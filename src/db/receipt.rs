//! The outcome of an event that was to be written.

use crate::error::Result;
use crate::privacy::capture::Capture;

/// The confirmation that an event is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Whether the event had been sent before, so that nothing was changed.
    pub replayed: bool,
    /// The event's number within its record, for kinds that are numbered.
    pub number: Option<i32>,
    /// How much of the event is kept.
    pub kept: Capture,
    /// How many spans of its texts were redacted.
    pub redacted: u32,
}

impl Receipt {
    /// Confirms an event that is new.
    #[must_use]
    pub const fn created(number: Option<i32>) -> Self {
        Self { replayed: false, number, kept: Capture::Full, redacted: 0 }
    }

    /// Confirms an event that had been sent before.
    #[must_use]
    pub const fn replayed(number: Option<i32>) -> Self {
        Self { replayed: true, number, kept: Capture::Full, redacted: 0 }
    }

    /// Returns whether what is now stored is exactly what the request said.
    #[must_use]
    pub fn is_as_sent(&self) -> bool {
        !self.replayed && self.kept == Capture::Full && self.redacted == 0
    }
}

/// The outcome of one event.
pub type Written = Result<Receipt>;
