//! A send as the writer knows it while nobody else changes it.

use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use super::rules::trimming::Stage;
use super::{Mode, State};

/// A send that nobody else changes, because it is locked, or that this server has just begun.
#[derive(Debug, sqlx::FromRow)]
pub struct LockedSend {
    pub(super) id: Uuid,
    pub(super) state: State,
    pub(super) stage: Stage,
    pub(super) mode: Mode,
    pub(super) model: String,
    pub(super) pair_id: Uuid,
    pub(super) system_tokens: i64,
    pub(super) max_trim_attempts: i32,
    pub(super) ratio: Option<f64>,
    /// The number of selected pairs. They may be very many, so that only this and their sums are known.
    pub(super) selected: i32,
    /// The tokens of the selected pairs that are left and whose sizes were measured.
    pub(super) measured_tokens: i64,
    /// The tokens of the other selected pairs that are left.
    pub(super) estimated_tokens: i64,
    pub(super) aut: i64,
    pub(super) input_tokens: Option<i64>,
    pub(super) preflight_count: i32,
    pub(super) trimmed_count: i32,
    pub(super) attempts_used: i32,
    pub(super) outcome_hash: Option<Vec<u8>>,
}

/// What the writer knows about a send that it has recorded for the gateway. The event that ends the send carries it, so that
/// the writer need not read and lock the send first. It is empty until the send is recorded, and for all other sends.
#[derive(Debug, Clone, Default)]
pub struct Begun(Arc<OnceLock<LockedSend>>);

impl Begun {
    pub(super) fn note(&self, send: LockedSend) {
        // A transaction that is tried again says the same as before.
        let _ = self.0.set(send);
    }

    pub(super) fn send(&self) -> Option<&LockedSend> {
        self.0.get()
    }
}
