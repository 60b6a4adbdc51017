//! How a domain's events are written. Those of one batch are sorted into steps, and each step takes as few
//! statements as possible, such that the events of one record take effect in their order.
//!
//! A step first writes the events that are certainly new. The others (sent before, in conflict, about an
//! unknown record) are judged afterwards, again together.
//!
//! # Waves and steps
//!
//! [`write()`] sorts one project's events into steps. A step is a kind (start, append, finalize, review, in
//! this order) within a wave; each is one statement for all its members. An event goes into the current wave of its log if
//! its kind comes after that of the log's event before it, or if both are appends; otherwise into the next wave. So
//! events of one log take effect in the order in which they were handed over, and a batch that starts a thousand logs,
//! appends to them and finalizes them is three steps. A step that is one statement and stands alone is its own
//! transaction, which saves two round trips where one client waits alone.
//!
//! **Locks.** A transaction of several steps first locks the records that it changes and does not begin, in the order of
//! their ids. Each step locks in that order too, but two transactions whose steps lock the same records in another order
//! would wait for each other, for the second that Postgres takes to notice.
//!
//! **Fast statement, then judging.** The statement writes what is plainly new: rows come in as arrays, each a column's, logs
//! are locked in id order (`for no key update`), `on conflict do nothing`, and `returning` names what was written. Whatever it
//! did not return is judged in a second look, again with one statement for all: not found, sent before, in conflict, already
//! finalized, or new after all. One attempt alone has a statement of its own, at half the price. The replay check comes before the state check, so an attempt whose answer was lost is a 200 also after finalize.
//! The common case costs one statement, and the rare cases need no cleverness in it.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

use super::receipt::Written;
use crate::privacy::kept::Kept;

/// A domain's event, as [`write()`] handles it.
pub trait Batched: Sized {
    /// The kinds of events of the domain, in the order in which they can happen to a record.
    type Kind: Copy + Ord;
    /// The state by which [`Batched::joins`] decides.
    type Joined: Default;
    /// The kind of the event with which a record begins.
    const START: Self::Kind;
    /// The table of the records.
    const TABLE: &'static str;

    /// Returns the id of the record that the event happens to.
    fn record(&self) -> Uuid;

    /// Returns the event's kind.
    fn kind(&self) -> Self::Kind;

    /// Returns whether one statement can write the event together with the events of the same kind directly
    /// before it on the same record.
    fn joins(&self, joined: &mut Self::Joined) -> bool;

    /// Returns whether a single statement writes all these events. It is then a transaction on its own, which saves
    /// the round trips of `begin` and `commit` where one client waits alone.
    fn is_one_statement(kind: Self::Kind, events: &[Kept<&Self>]) -> bool;

    /// Writes those events of one kind that are certainly new. Returns the verdicts in the order of the
    /// events, with none for an event that was not written.
    fn write(
        connection: &mut PgConnection,
        project: &str,
        kind: Self::Kind,
        events: &[Kept<&Self>],
    ) -> impl Future<Output = sqlx::Result<Vec<Option<Written>>>> + Send;

    /// Judges events of one kind that [`Batched::write`] has left, and writes those that are new after all.
    /// Returns the verdicts in the order of the events.
    fn judge(
        connection: &mut PgConnection,
        project: &str,
        kind: Self::Kind,
        events: &[Kept<&Self>],
    ) -> impl Future<Output = sqlx::Result<Vec<Written>>> + Send;
}

/// Writes events of one project in one transaction. Returns their verdicts in the order of the events.
pub async fn write<E: Batched + Sync>(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&E>],
) -> sqlx::Result<Vec<Written>>
where
    E::Kind: Send + Sync,
{
    let mut verdicts: Vec<Option<Written>> = events.iter().map(|_| None).collect();
    let mut joined = E::Joined::default();
    let steps = plan(events.iter().map(|event| (event.record(), event.kind(), event.joins(&mut joined))));
    drop(joined);
    if let [step] = steps.as_slice()
        && E::is_one_statement(step.kind, &step.of(events))
    {
        step.write(connection, project, events, &mut verdicts).await?;
        if verdicts.iter().any(Option::is_none) {
            let mut transaction = connection.begin().await?;
            step.judge(&mut transaction, project, events, &mut verdicts).await?;
            transaction.commit().await?;
        }
    } else {
        let mut transaction = connection.begin().await?;
        lock(&mut transaction, project, events).await?;
        for step in &steps {
            step.write(&mut transaction, project, events, &mut verdicts).await?;
            step.judge(&mut transaction, project, events, &mut verdicts).await?;
        }
        transaction.commit().await?;
    }
    Ok(verdicts.into_iter().map(|verdict| verdict.expect("every event is written or judged")).collect())
}

/// Locks the records that events happen to, without those that begin with one of the events.
async fn lock<E: Batched>(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&E>],
) -> sqlx::Result<()> {
    let (starts, others): (Vec<&E>, Vec<&E>) =
        events.iter().map(|event| &***event).partition(|event| event.kind() == E::START);
    let begun: HashSet<_> = starts.into_iter().map(E::record).collect();
    let records: HashSet<_> = others.into_iter().map(E::record).collect();
    let records: Vec<_> = records.difference(&begun).copied().collect();
    if records.len() > 1 {
        let table = E::TABLE;
        let sql =
            format!("select from {table} where project = $1 and id = any($2) order by id for no key update");
        sqlx::query(AssertSqlSafe(sql)).bind(project).bind(records).execute(connection).await?;
    }
    Ok(())
}

/// Events of one kind that are written together.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<K> {
    /// The kind of the events.
    pub kind: K,
    /// The events, by their index in the batch.
    pub members: Vec<usize>,
}

impl<K: Copy + Ord> Step<K> {
    /// Returns the events of the step.
    pub fn of<'a, E>(&self, events: &[Kept<&'a E>]) -> Vec<Kept<&'a E>> {
        self.members.iter().map(|&index| events[index]).collect()
    }

    async fn write<E: Batched<Kind = K>>(
        &self,
        connection: &mut PgConnection,
        project: &str,
        events: &[Kept<&E>],
        verdicts: &mut [Option<Written>],
    ) -> sqlx::Result<()> {
        let written = E::write(connection, project, self.kind, &self.of(events)).await?;
        for (&index, written) in self.members.iter().zip(written) {
            verdicts[index] = written;
        }
        Ok(())
    }

    /// Judges those events of the step that have no verdict yet.
    async fn judge<E: Batched<Kind = K>>(
        &self,
        connection: &mut PgConnection,
        project: &str,
        events: &[Kept<&E>],
        verdicts: &mut [Option<Written>],
    ) -> sqlx::Result<()> {
        let left: Vec<_> = self.members.iter().copied().filter(|&index| verdicts[index].is_none()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let step = Self { kind: self.kind, members: left };
        let judged = E::judge(connection, project, self.kind, &step.of(events)).await?;
        for (index, verdict) in step.members.into_iter().zip(judged) {
            verdicts[index] = Some(verdict);
        }
        Ok(())
    }
}

/// Sorts events, each given as its record, its kind and whether it joins the events before it, into as few
/// steps as keep the order within each record. Steps run in waves, and within a wave in the order of the
/// kinds. An event that cannot follow its record's previous event in that order is left to the next wave.
pub fn plan<K: Copy + Ord>(events: impl IntoIterator<Item = (Uuid, K, bool)>) -> Vec<Step<K>> {
    let mut last: HashMap<Uuid, (usize, K)> = HashMap::new();
    let mut steps: BTreeMap<(usize, K), Vec<usize>> = BTreeMap::new();
    for (index, (record, kind, joins)) in events.into_iter().enumerate() {
        let step = match last.get(&record) {
            None => (0, kind),
            Some(&(wave, before)) if kind > before || (kind == before && joins) => (wave, kind),
            Some(&(wave, _)) => (wave + 1, kind),
        };
        last.insert(record, step);
        steps.entry(step).or_default().push(index);
    }
    steps.into_iter().map(|((_, kind), members)| Step { kind, members }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_event_is_in_one_step_and_those_of_a_record_in_their_order(
            events in proptest::collection::vec((0..4_u128, 0..3_u8, any::<bool>()), 0..40),
        ) {
            let steps = plan(events.iter().map(|&(record, kind, joins)| (Uuid::from_u128(record), kind, joins)));
            let order: Vec<_> = steps.iter().enumerate()
                .flat_map(|(step, Step { members, .. })| members.iter().map(move |&member| (member, step)))
                .collect();
            prop_assert_eq!(order.len(), events.len());
            let position: HashMap<_, _> = order.into_iter().collect();
            prop_assert_eq!(position.len(), events.len());
            for (later, &(record, kind, joins)) in events.iter().enumerate() {
                prop_assert_eq!(steps[position[&later]].kind, kind);
                let before = (0..later).rfind(|&before| events[before].0 == record);
                if let Some(before) = before {
                    let together = joins && events[before].1 == kind;
                    prop_assert!(position[&before] < position[&later] || together && position[&before] == position[&later]);
                }
            }
        }
    }
}
