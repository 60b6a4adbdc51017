//! Hooks: what an agent reports while it works. Gleaner learns the same from it as from the agent's transcript. What
//! is reported both ways is learned once, because the agent's own ids name it.
//!
//! # How fast a hook is answered
//!
//! Hooks are answered within a quarter of a second, whatever the database does: reports are processed in the
//! background, in the order of their session, and there may be a thousand of them. A tool is told before it runs
//! (`PreToolUse`) and how long it ran (`duration_ms`), so that an agent whose build takes minutes has not fallen
//! silent.

use std::collections::HashMap;

use sqlx::PgPool;

use super::intake_errors::{self, Fault};
use super::intake_pool::IntakePool;
use super::transcripts::{Origin, source_id};
use super::write;
use crate::agents::{Activity, Agent, Entry, Passage, PassageSource};
use crate::db::retry::Losses;
use crate::error::Result;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::types::{Timestamp, derived_id};

/// What a hook has reported, read and ready to be learned from.
#[derive(Debug)]
pub struct Report {
    origin: Kept<Origin>,
    said: Said,
    received: Timestamp,
}

/// What a hook's payload says.
#[derive(Debug)]
enum Said {
    /// Something that an agent did, in one entry or two.
    Entries(Vec<Kept<Entry>>),
    /// Nothing that is understood.
    Malformed { bytes: usize },
}

impl Report {
    /// Makes a report of the entry that a hook's payload of so many `bytes` is, with its time, or of a payload that is none. Returns
    /// none if the project keeps nothing of it.
    #[must_use]
    pub fn of(
        tenant: &Tenant,
        agent: &'static Agent,
        entry: Option<Entry>,
        bytes: usize,
        received: Timestamp,
    ) -> Option<Self> {
        let source = format!("hooks/{}", agent.name);
        let origin = tenant.policy.keep(Origin { agent, source, learn: None })?;
        let said = match entry {
            Some(entry) => Said::Entries(
                steps(entry).into_iter().filter_map(|entry| tenant.policy.keep(entry)).collect(),
            ),
            None => Said::Malformed { bytes },
        };
        Some(Self { origin, said, received })
    }

    /// Learns from the report. Reports of one session wait for each other, in the order in which they came in.
    pub async fn learn(self, pool: &IntakePool, tenant: &Tenant) -> Result<()> {
        let Said::Entries(entries) = &self.said else { return self.note_malformed(&pool.db, tenant).await };
        let Some(first) = entries.first() else { return Ok(()) };
        let session = first.session.as_deref().unwrap_or_default();
        let queue = derived_id(&[self.origin.source.as_bytes(), session.as_bytes()]);
        let _turn = pool.turn(&tenant.name, queue).await;
        let mut losses = Losses::default();
        loop {
            match self.replay(&pool.db, tenant, entries).await {
                Err(error) if losses.again(&error).await => {}
                result => return Ok(result?),
            }
        }
    }

    /// Learns from entries. A hook that reports a tool's result reports the whole call, so no half of a call is
    /// remembered.
    async fn replay(&self, db: &PgPool, tenant: &Tenant, entries: &[Kept<Entry>]) -> sqlx::Result<()> {
        let mut transaction = db.begin().await?;
        let source = &self.origin.source;
        write::replay(&mut transaction, tenant, source, &mut HashMap::new(), entries).await?;
        transaction.commit().await
    }

    /// Counts the payload as a malformed line of the agent's hooks.
    async fn note_malformed(&self, db: &PgPool, tenant: &Tenant) -> Result<()> {
        let Said::Malformed { bytes } = self.said else { return Ok(()) };
        let fault = Fault::of_hook(self.origin.agent, bytes, self.received);
        let source = source_id(&self.origin.source);
        let mut transaction = db.begin().await?;
        intake_errors::note(&mut transaction, &tenant.name, source, &[fault], 1).await?;
        Ok(transaction.commit().await?)
    }
}

/// The steps that an entry of a hook tells. A tool that says how long it ran began so long before it answered: as in a transcript,
/// the agent was not silent meanwhile.
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
