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
    /// How many parts of what it replaces were added, are unchanged and were removed, for an event that replaces several.
    pub counts: Option<[u32; 3]>,
    /// How much of the event is kept.
    pub kept: Capture,
    /// How many spans of its texts were redacted.
    pub redacted: u32,
}

impl Receipt {
    /// Confirms an event that is new.
    #[must_use]
    pub const fn created(number: Option<i32>) -> Self {
        Self { replayed: false, number, counts: None, kept: Capture::Full, redacted: 0 }
    }

    /// Confirms an event that replaces several parts: how many it added, left unchanged and removed. It is a replay if
    /// all is as it was.
    #[must_use]
    pub const fn counted(added: u32, unchanged: u32, removed: u32) -> Self {
        let replayed = added == 0 && removed == 0;
        Self { replayed, counts: Some([added, unchanged, removed]), ..Self::created(None) }
    }

    /// Confirms an event that had been sent before.
    #[must_use]
    pub const fn replayed(number: Option<i32>) -> Self {
        Self { replayed: true, ..Self::created(number) }
    }

    /// Returns whether what is now stored is exactly what the request said.
    #[must_use]
    pub fn is_as_sent(&self) -> bool {
        !self.replayed && self.kept == Capture::Full && self.redacted == 0
    }
}

/// The outcome of one event.
pub type Written = Result<Receipt>;
