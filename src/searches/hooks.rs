//! Hooks: reports of agents while they work. Gleaner learns the same from them as from the agent's transcript. What
//! both report is learned once, because it has the same ids.
//!
//! # How fast a hook gets its response
//!
//! A hook gets its response within a quarter of a second, whatever the database does: up to a thousand reports are
//! processed in the background, in the order of their session. An agent reports a tool before it runs (`PreToolUse`)
//! and how long it ran (`duration_ms`), so that an agent whose build takes minutes does not count as silent.

use std::collections::HashMap;
use std::sync::Arc;

use super::intake_errors::{self, Fault};
use super::intake_pool::IntakePool;
use super::transcripts::{Origin, source_id};
use super::write;
use crate::agents::{Activity, Agent, Entry, Passage, PassageSource};
use crate::db::retry::repeat;
use crate::error::Result;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::sharing::{Kind, Work};
use crate::types::{Timestamp, derived_id};

/// The report of a hook, parsed and ready to be learned from.
#[derive(Debug)]
pub struct Report {
    origin: Kept<Origin>,
    said: Said,
    received: Timestamp,
}

/// The content of a hook's payload.
#[derive(Debug)]
enum Said {
    /// An action of the agent, in one entry or two.
    Entries(Vec<Kept<Entry>>),
    /// A payload that is not understood.
    Malformed { bytes: usize },
}

impl Report {
    /// Makes a report from the entry that a hook's payload of so many `bytes` contains, with its time, or from a
    /// payload that is not understood. Returns none if the project stores nothing of it.
    #[must_use]
    pub async fn of(
        tenant: &Arc<Tenant>,
        agent: &'static Agent,
        entry: Option<Entry>,
        bytes: usize,
        received: Timestamp,
    ) -> Option<Self> {
        let source = format!("hooks/{}", agent.name);
        let origin = tenant.keep(Origin { agent, source, learn: None }).await?;
        let said = match entry {
            Some(entry) => {
                let mut entries = Vec::new();
                for step in steps(entry) {
                    entries.extend(tenant.keep(step).await);
                }
                Said::Entries(entries)
            }
            None => Said::Malformed { bytes },
        };
        Some(Self { origin, said, received })
    }

    /// Learns from the report. Reports of one session wait for each other, in the order in which they arrived.
    pub async fn learn(self, pool: &IntakePool, work: &Work, tenant: &Tenant) -> Result<()> {
        let Said::Entries(entries) = &self.said else { return self.note_malformed(pool, tenant).await };
        let Some(first) = entries.first() else { return Ok(()) };
        let session = first.session.as_deref().unwrap_or_default();
        let queue = derived_id(&[self.origin.source.as_bytes(), session.as_bytes()]);
        let _order = pool.turn(&tenant.name, queue).await;
        let _turn = work.turn(&tenant.name, Kind::Parse).await;
        repeat(|| self.replay(pool, tenant, entries)).await
    }

    /// Learns from entries. A hook that reports a tool's result reports the whole call, so incomplete calls need not
    /// be stored.
    async fn replay(&self, pool: &IntakePool, tenant: &Tenant, entries: &[Kept<Entry>]) -> Result<()> {
        let (_place, mut transaction) = pool.begin(&tenant.name).await?;
        let source = &self.origin.source;
        let counts = write::replay(&mut transaction, tenant, source, &mut HashMap::new(), entries).await?;
        tenant.room.take(counts.records, tenant.quotas.rows)?;
        Ok(transaction.commit().await?)
    }

    /// Counts the payload as a malformed line of the agent's hooks.
    async fn note_malformed(&self, pool: &IntakePool, tenant: &Tenant) -> Result<()> {
        let Said::Malformed { bytes } = self.said else { return Ok(()) };
        let fault = Fault::of_hook(self.origin.agent, bytes, self.received);
        let source = source_id(&self.origin.source);
        let (_place, mut transaction) = pool.begin(&tenant.name).await?;
        intake_errors::note(&mut transaction, &tenant.name, source, &[fault], 1).await?;
        Ok(transaction.commit().await?)
    }
}

/// Returns the steps in a hook's entry. If the tool reports how long it ran, its call is dated before its result by
/// that duration, because the agent was not silent in between, as in a transcript.
fn steps(mut entry: Entry) -> Vec<Entry> {
    let Some((lasted, at)) = entry.lasted.take().zip(entry.at) else { return vec![entry] };
    let is_use = |activity: &Activity| matches!(activity, Activity::ToolUse { .. });
    let (uses, answers) = std::mem::take(&mut entry.activities).into_iter().partition(is_use);
    let is_written = |passage: &Passage| matches!(passage.source, PassageSource::Written(_));
    let (written, told) = std::mem::take(&mut entry.passages).into_iter().partition(is_written);
    let begun =
        Entry { at: at.plus(-lasted).or(Some(at)), activities: uses, passages: written, ..entry.clone() };
    vec![begun, Entry { activities: answers, passages: told, ..entry }]
}
