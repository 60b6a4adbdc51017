//! How suggestion records are written: many events in a few statements.
//!
//! # The end of a slate
//!
//! The match is a rule in Rust (`rules/matching.rs`), so finalizing suggestion records takes two looks
//! before the write: the records, locked in id order, and then, in statements that see what was added while the first
//! waited, what was looked at and the slates, one after the other. From both follows the `Conclusion`: the views in order, the match, and the labels that
//! `preference-pairs` reads later, with the hashes that `dedupe=exact` goes by. Views stay as they were sent and are resolved
//! on each read of a pending record; an ended one takes no more of them.

use std::collections::{HashMap, HashSet};

use chrono::TimeDelta;
use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::activity::Activity;
use super::event::{Ending, hash_all};
use super::rules::outcome::{Conclusion, Slate};
use super::rules::views::resolve;
use super::tables::{self, Append, Counts, EndRow, Locked, StartRow, highest};
use super::{Action, Event, State};
use crate::db::receipt::{Receipt, Written};
use crate::db::replays::judge_starts;
use crate::db::steps::{self, Batched};
use crate::error::Error;
use crate::privacy::hash_key::{HASH, HashKey};
use crate::privacy::kept::Kept;
use crate::sharing::Pauses;

/// Writes events of one project in one transaction. Returns their verdicts in the order of the events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    steps::write(connection, project, events).await
}

/// The kinds of events, in the order in which they happen to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The record begins.
    Start,
    /// The user looks at suggestions, or types.
    Append,
    /// The record is finalized or discarded.
    Finalize,
    /// Something is added to the record.
    Amend,
}

impl Batched for Event {
    type Kind = Kind;
    /// The ids of the activities of each record that one statement adds.
    type Joined = HashMap<Uuid, HashSet<Uuid>>;
    const START: Kind = Kind::Start;
    const TABLE: &'static str = "suggestions";

    fn record(&self) -> Uuid {
        self.suggestion_id
    }

    fn kind(&self) -> Kind {
        match &self.action {
            Action::Start(_) => Kind::Start,
            Action::Append { .. } => Kind::Append,
            Action::Finalize { .. } => Kind::Finalize,
            Action::Amend(_) => Kind::Amend,
        }
    }

    /// Returns whether the statement that adds the previous activities can add these, too. It cannot if an id
    /// comes again, because it could not tell which of the two activities it has added.
    fn joins(&self, names: &mut HashMap<Uuid, HashSet<Uuid>>) -> bool {
        let Some((record, activities, _)) = self.as_append() else {
            return false;
        };
        let names = names.entry(record).or_default();
        let joins = activities.iter().all(|activity| !names.contains(&activity.id));
        if !joins {
            names.clear();
        }
        names.extend(activities.iter().map(|activity| activity.id));
        joins
    }

    fn is_one_statement(kind: Kind, events: &[Kept<&Self>]) -> bool {
        match kind {
            Kind::Start => {
                let ends = starts(events).into_iter().filter_map(|row| row.start.conclusion.as_ref());
                ends.into_iter().all(|end| end.labels.is_empty())
            }
            Kind::Append | Kind::Amend => true,
            Kind::Finalize => false,
        }
    }

    async fn write(
        connection: &mut PgConnection,
        project: &str,
        kind: Kind,
        events: &[Kept<&Self>],
    ) -> sqlx::Result<Vec<Option<Written>>> {
        match kind {
            Kind::Start => {
                let created = tables::insert(connection, project, &starts(events)).await?;
                Ok(accepted(events, |event| created.contains(&event.suggestion_id)))
            }
            Kind::Append => {
                let appends: Vec<_> = events.iter().filter_map(|event| event.as_append()).collect();
                let added = tables::append(connection, project, &appends).await?;
                Ok(appends.iter().map(|append| is_added(append, &added).then_some(Ok(NEW))).collect())
            }
            Kind::Finalize => finalize(connection, project, events).await,
            Kind::Amend => {
                let amendments: Vec<_> = events.iter().filter_map(|event| event.as_amendment()).collect();
                let amended = tables::amend(connection, project, &amendments).await?;
                Ok(accepted(events, |event| amended.contains(&event.suggestion_id)))
            }
        }
    }

    async fn judge(
        connection: &mut PgConnection,
        project: &str,
        kind: Kind,
        events: &[Kept<&Self>],
    ) -> sqlx::Result<Vec<Written>> {
        match kind {
            Kind::Start => {
                let rows = starts(events);
                let hashes: Vec<_> = rows.iter().map(|row| (row.id, row.start.hash.as_slice())).collect();
                judge_starts(connection, project, ("suggestions", "suggestion"), &hashes).await
            }
            Kind::Append => {
                let appends: Vec<_> = events.iter().filter_map(|event| event.as_append()).collect();
                judge_appends(connection, project, &appends).await
            }
            Kind::Amend => judge_amendments(connection, project, events).await,
            Kind::Finalize => Ok(events
                .iter()
                .map(|_| Err(anyhow::anyhow!("an event was left unwritten").into()))
                .collect()),
        }
    }
}

/// The receipt of a new event. The events of this domain have no numbers.
const NEW: Receipt = Receipt::created(None);

/// Returns the verdicts on the events that were written.
fn accepted(events: &[Kept<&Event>], written: impl Fn(&Event) -> bool) -> Vec<Option<Written>> {
    events.iter().map(|event| written(event).then_some(Ok(NEW))).collect()
}

/// Returns the records that begin.
fn starts<'a>(events: &[Kept<&'a Event>]) -> Vec<StartRow<'a>> {
    let starts = events.iter().filter_map(|event| event.as_start());
    starts.map(|(id, start)| StartRow { id, start }).collect()
}

/// Returns whether all activities of an event were added.
fn is_added((record, activities, _): &Append<'_>, added: &HashSet<(Uuid, Uuid)>) -> bool {
    activities.iter().all(|activity| added.contains(&(*record, activity.id)))
}

/// Returns the state in words for error messages, or none for a pending record.
fn ended(state: State) -> Option<&'static str> {
    match state {
        State::Pending => None,
        State::Finalized => Some("finalized"),
        State::Discarded => Some("discarded"),
    }
}

const NO_SUCH_INDEX: &str = "is not the index of a suggestion";

/// Judges activities that were not added: repeated ones, conflicts, and events of which only some activities
/// are new.
async fn judge_appends(
    connection: &mut PgConnection,
    project: &str,
    appends: &[Append<'_>],
) -> sqlx::Result<Vec<Written>> {
    let ids: Vec<_> = appends.iter().map(|(record, ..)| *record).collect();
    let records = tables::lock(connection, project, &ids).await?;
    let stored = tables::stored_activities(connection, project, appends).await?;
    let mut counts = tables::stored_counts(connection, project, &ids).await?;
    let news: Vec<Vec<Activity>> = appends
        .iter()
        .map(|(record, activities, _)| {
            let is_new = |activity: &&Activity| !stored.contains_key(&(*record, activity.id));
            activities.iter().filter(is_new).cloned().collect()
        })
        .collect();
    let mut verdicts: Vec<Option<Written>> = appends
        .iter()
        .zip(&news)
        .map(|(append, new)| {
            let counts = counts.entry(append.0).or_default();
            verdict_on_append(append, new, records.get(&append.0), &stored, counts)
        })
        .collect();
    let rest: Vec<Append<'_>> = appends
        .iter()
        .zip(&news)
        .zip(&verdicts)
        .filter(|(_, verdict)| verdict.is_none())
        .map(|(((record, _, received_at), new), _)| (*record, new.as_slice(), *received_at))
        .collect();
    if !rest.is_empty() {
        let added = tables::append(connection, project, &rest).await?;
        let mut rest = rest.iter();
        for verdict in verdicts.iter_mut().filter(|verdict| verdict.is_none()) {
            *verdict = rest.next().filter(|append| is_added(append, &added)).map(|_| Ok(NEW));
        }
    }
    let unwritten = || Err(anyhow::anyhow!("activities that are new could not be added").into());
    Ok(verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(unwritten)).collect())
}

/// Returns the verdict on the activities of one event of which only `new` are not stored yet, or none if
/// these can be added. `stored` says of the others whether they are the same as the stored ones. `counts` says how many the record has until then, and those that can be added are added
/// to it.
fn verdict_on_append(
    (id, activities, _): &Append<'_>,
    new: &[Activity],
    record: Option<&Locked>,
    stored: &HashMap<(Uuid, Uuid), bool>,
    counts: &mut Counts,
) -> Option<Written> {
    let Some(record) = record else {
        return Some(Err(Error::NotFound("suggestion")));
    };
    if activities.iter().any(|activity| stored.get(&(*id, activity.id)) == Some(&false)) {
        let detail = format!("the suggestion {id} already has a different move with the same id or time");
        return Some(Err(Error::Conflict(detail)));
    }
    if new.is_empty() {
        return Some(Ok(Receipt::replayed(None)));
    }
    if let Some(state) = ended(record.state) {
        let detail = format!("the suggestion {id} is {state}; nothing can be added");
        return Some(Err(Error::Conflict(detail)));
    }
    let count = record.suggestion_count;
    if highest(new).is_some_and(|highest| highest >= count) {
        let outside = |activity: &Activity| activity.act.index().is_some_and(|index| index >= count);
        let position = activities.iter().position(outside).unwrap_or_default();
        let pointer =
            if activities.len() == 1 { "/index".to_owned() } else { format!("/views/{position}/index") };
        return Some(Err(Error::invalid(pointer, NO_SUCH_INDEX)));
    }
    let mut with = *counts;
    with.add(new);
    if let Some(excess) = with.excess() {
        let detail = format!("the suggestion {id} would have {excess}");
        return Some(Err(Error::Conflict(detail)));
    }
    *counts = with;
    None
}

/// Judges amendments that were not written.
async fn judge_amendments(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let ids: Vec<_> = events.iter().map(|event| event.suggestion_id).collect();
    let records = tables::lock(connection, project, &ids).await?;
    let verdict = |id: &Uuid| {
        Err(match records.get(id) {
            Some(_) => Error::Conflict(format!("the suggestion {id} is discarded")),
            None => Error::NotFound("suggestion"),
        })
    };
    Ok(ids.iter().map(verdict).collect())
}

/// Finalizes those records that are pending and fit their outcomes.
async fn finalize(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Option<Written>>> {
    let endings: Vec<_> = events.iter().filter_map(|event| event.as_ending()).collect();
    let ids: Vec<_> = endings.iter().map(|ending| ending.id).collect();
    let records = tables::lock(connection, project, &ids).await?;
    let viewed = |record: &Locked, looks| -> Vec<i32> {
        let count = usize::try_from(record.suggestion_count).unwrap_or(0);
        resolve(count, looks).iter().map(|view| view.index).collect()
    };
    let mut views = HashMap::new();
    // The views are read by a second statement, because the first one does not see what was added while it
    // waited for the locks.
    tables::each_looks(connection, project, &ids, |id, looks| {
        if let Some(record) = records.get(&id) {
            views.insert(id, viewed(record, looks));
        }
    })
    .await?;
    // Where texts are not kept, hashes tell the match, and these need the project's key.
    let needs_key = |record: &Locked| record.state == State::Pending && !record.has_texts;
    let key = if records.values().any(needs_key) {
        Some(tables::hash_key(connection, project).await?)
    } else {
        None
    };
    let mut conclude = |ending: &Ending<'_>, record: &Locked, slate: Option<&[String]>| {
        let viewed = views.remove(&ending.id).unwrap_or_else(|| viewed(record, Vec::new()));
        conclude(record, slate, viewed, ending, key.as_ref())
    };
    let by_id: HashMap<_, _> = endings.iter().map(|ending| (ending.id, ending)).collect();
    let (mut concluded, mut pauses) = (HashMap::new(), Pauses::begin());
    let mut slates = tables::slates(connection, project, &ids);
    while let Some((id, Json(slate))) = slates.try_next().await? {
        pauses.pause().await;
        if let (Some(ending), Some(record)) = (by_id.get(&id), records.get(&id)) {
            concluded.insert(id, conclude(ending, record, Some(&slate)));
        }
    }
    drop(slates);
    let (mut verdicts, mut ends) = (Vec::with_capacity(endings.len()), Vec::new());
    for (ending, later) in endings.into_iter().zip(0..) {
        let id = ending.id;
        verdicts.push(Some(match records.get(&id) {
            None => Err(Error::NotFound("suggestion")),
            Some(record) => match ended(record.state) {
                Some(_) if record.outcome_hash.as_deref() == Some(ending.hash) => Ok(Receipt::replayed(None)),
                Some(state) => Err(Error::Conflict(format!(
                    "the suggestion {id} is already {state} with a different body"
                ))),
                None => {
                    let end = concluded.remove(&id).unwrap_or_else(|| conclude(&ending, record, None));
                    match end {
                        Ok(end) => {
                            // Exports are ordered by this time. It is the database's, and no two records of a
                            // batch have the same.
                            let completed_at = record.now.plus(TimeDelta::microseconds(later));
                            ends.push(EndRow {
                                ending,
                                end,
                                completed_at: completed_at.unwrap_or(record.now),
                            });
                            Ok(NEW)
                        }
                        Err(refusal) => Err(refusal),
                    }
                }
            },
        }));
    }
    if !ends.is_empty() {
        tables::finalize(connection, project, &ends).await?;
    }
    Ok(verdicts)
}

/// Derives the outcome of a pending record. The suggestions that were viewed are `viewed`, and all of them are `stored` if they are kept
/// as texts. Fails if the request does not fit its slate.
fn conclude(
    record: &Locked,
    stored: Option<&[String]>,
    viewed: Vec<i32>,
    ending: &Ending<'_>,
    key: Option<&HashKey>,
) -> Result<Conclusion, Error> {
    let outcome = ending.outcome;
    let count = usize::try_from(record.suggestion_count).unwrap_or(0);
    if !outcome.is_within(count) {
        return Err(Error::invalid("/displayed_index_at_submit", NO_SUCH_INDEX));
    }
    let another_slate = || Error::invalid("/suggestions", "is not the slate that the record began with");
    let known = match (stored, outcome.suggestions.as_deref(), key) {
        (Some(stored), Some(sent), _) if stored != sent => return Err(another_slate()),
        (Some(stored), ..) => Some(stored),
        (None, Some(sent), Some(key)) => {
            if record.suggestion_hashes.as_deref() != Some(&hash_all(key, sent)) {
                return Err(another_slate());
            }
            Some(sent)
        }
        (None, ..) => None,
    };
    let fetch_end_ts = record.fetch_end_ts;
    let Some(suggestions) = known else {
        let input = key.map(|key| key.hash(outcome.actual_input.as_bytes()));
        let hashes = record.suggestion_hashes.as_deref().unwrap_or_default();
        let shown = outcome.displayed_index_at_submit.or(viewed.last().copied());
        let is_same = |index: &i32| {
            let own = usize::try_from(*index).ok().and_then(|index| hashes.chunks(HASH).nth(index));
            !outcome.actual_input.is_empty()
                && own.is_some()
                && own == input.as_ref().map(<[u8; HASH]>::as_slice)
        };
        let accepted = shown.filter(is_same).or_else(|| (0..record.suggestion_count).find(is_same));
        return Ok(Conclusion::of_hashes(fetch_end_ts, viewed, accepted, outcome));
    };
    let [prompt_hash, context_hash] =
        [record.prompt_hash, record.context_hash].map(Option::unwrap_or_default);
    let slate = Slate { suggestions, fetch_end_ts, prompt_hash, context_hash };
    let conclusion = Conclusion::of(&slate, viewed, None, outcome);
    let kept = ending.input_hash.is_none() && stored.is_some();
    Ok(if kept { conclusion } else { conclusion.without_text() })
}
