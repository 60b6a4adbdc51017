//! A send as the writer knows it while nobody else changes it.

use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use super::rules::trimming::Stage;
use super::{GivenPair, Mode, State};

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
    pub(super) selected_ids: Vec<Uuid>,
    pub(super) selected_tokens: Vec<i64>,
    pub(super) measured: Vec<bool>,
    #[sqlx(json(nullable))]
    pub(super) given_pairs: Option<Vec<GivenPair>>,
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
