//! Creates sends and adds their calls.

use std::collections::HashMap;

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::receipt::{Receipt, Written};
use crate::error::Error;
use crate::messages::begun::LockedSend;
use crate::messages::candidates;
use crate::messages::event::{Append, StartSend};
use crate::messages::prediction::{self, Asked, Predicted};
use crate::messages::refusals::{Failed, expect_failed};
use crate::messages::rules::estimate::{DEFAULT_RATIO, Length, Scale};
use crate::messages::rules::trimming::{Failure, Stage, Trimming};
use crate::messages::settings::Rules;
use crate::messages::tables::{
    self, AttemptRow, MessageRow, PairRow, Reasked, SendRow, StoredAttempt, Table,
};
use crate::messages::{Action, Event, PairState, State, named};
use crate::privacy::kept::Kept;
use crate::sharing::Pauses;

/// A send that is about to be made.
struct Planned<'a> {
    id: Uuid,
    start: &'a StartSend,
    predicted: Predicted,
    reasked: Option<Reasked>,
}

impl Planned<'_> {
    fn topic_id(&self) -> Option<&str> {
        let own = named(self.start.new.topic_id.as_deref());
        own.or_else(|| self.reasked.as_ref()?.topic_id.as_deref())
    }

    fn session_id(&self) -> Option<&str> {
        let own = named(self.start.new.session_id.as_deref());
        own.or_else(|| self.reasked.as_ref()?.session_id.as_deref())
    }

    fn user(&self) -> Length {
        let again = self.reasked.as_ref().map(Reasked::length).unwrap_or_default();
        self.start.user.unwrap_or(again)
    }

    fn model(&self) -> &str {
        self.predicted.model.as_deref().unwrap_or_default()
    }

    /// Returns the send as it is once it has begun at the gateway.
    fn begun(&self) -> LockedSend {
        let Predicted { sizes, measured, .. } = &self.predicted;
        let tokens = |wanted: bool| {
            sizes.iter().zip(measured).filter(|(_, is)| **is == wanted).map(|(size, _)| size).sum()
        };
        LockedSend {
            id: self.id,
            state: State::Sending,
            stage: Stage::Initial,
            mode: self.start.mode,
            model: self.model().to_owned(),
            pair_id: self.start.pair_id,
            system_tokens: self.predicted.budget.system,
            max_trim_attempts: self.predicted.max_trims,
            ratio: self.predicted.ratio(),
            selected: i32::try_from(self.predicted.pairs.len()).unwrap_or(i32::MAX),
            measured_tokens: tokens(true),
            estimated_tokens: tokens(false),
            aut: self.predicted.aut,
            input_tokens: None,
            preflight_count: 0,
            trimmed_count: 0,
            attempts_used: 0,
            outcome_hash: None,
        }
    }

    fn row(&self) -> SendRow<'_> {
        let Self { id, start, predicted, .. } = self;
        let (topic_id, session_id) = (self.topic_id(), self.session_id());
        let sent_before = self.reasked.as_ref().and_then(|pair| pair.send_id);
        SendRow { id: *id, start, model: self.model(), topic_id, session_id, sent_before, predicted }
    }

    fn pair(&self) -> PairRow<'_> {
        let reasked = self.reasked.as_ref();
        let again = || reasked?.user_text.as_deref();
        let passed = self.start.passed.as_ref();
        PairRow {
            id: self.start.pair_id,
            topic_id: self.topic_id(),
            session_id: self.session_id(),
            model: Some(self.model()),
            user_text: self.start.new.user_text.as_deref().or_else(again).filter(|_| self.start.keeps_text),
            assistant_text: None,
            user: self.user(),
            assistant: Length::default(),
            star: 0,
            color_flag: None,
            state: PairState::Sending,
            tokens: None,
            has_media: passed
                .map_or_else(|| reasked.is_some_and(|pair| pair.has_media), |passed| passed.has_media),
            // An erasure of the pair finds the copies of the one that it replaces.
            turn: passed.map_or_else(|| reasked?.turn, |passed| passed.turn),
            said: passed.map_or_else(|| reasked?.said, |passed| passed.said),
            send_id: Some(self.id),
            created_at: self.start.created_at,
            hash: &self.start.hash,
        }
    }
}

/// Returns the beginning of a send that an event is.
fn start_of<'a>(event: &'a Kept<&Event>) -> Option<(Uuid, &'a StartSend)> {
    match &event.action {
        Action::Send(start) => Some((event.id, start)),
        _ => None,
    }
}

/// Creates the sends of requests to the gateway together, each with its pair. The gateway chooses their ids itself, so they
/// are always new.
pub(super) async fn begin(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let models = events.iter().filter_map(|event| start_of(event)?.1.new.model.as_deref());
    let learned = rules.ratios.of(&mut *connection, project, models.collect()).await?;
    let planned: Vec<_> = events
        .iter()
        .filter_map(|event| {
            let (id, start) = start_of(event)?;
            let model = start.new.model.as_deref().unwrap_or_default();
            let learned = learned.get(model).copied().unwrap_or_default();
            let settings = rules.settings.with(&start.new.settings.clone().unwrap_or_default());
            let predicted = prediction::passed(start, start.passed.as_ref()?, learned, settings);
            Some(Planned { id, start, predicted, reasked: None })
        })
        .collect();
    insert(connection, project, &planned).await
}

/// Creates sends, each with its pair, one after the other. The prediction is made here, so that it includes everything written
/// before: what earlier sends use of a quota, and that the pair which one of them asks again is gone.
pub(super) async fn start(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    let stored = tables::request_hashes(connection, project, Table::Sends, &ids).await?;
    let again = |hash: &[u8], start: &StartSend| {
        if *hash == *start.hash {
            return Ok(Receipt::replayed(None));
        }
        Err(Error::Conflict("a send with this id already exists with a different body".to_owned()))
    };
    let mut written = Vec::with_capacity(events.len());
    for (id, start) in events.iter().filter_map(start_of) {
        if let Some(hash) = stored.get(&id) {
            written.push(again(hash, start));
            continue;
        }
        let first = written.len();
        match plan(connection, project, rules, id, start).await {
            Ok(planned) => written.extend(insert(connection, project, &[planned]).await?),
            Err(Failed::Refused(error)) => written.push(Err(error)),
            Err(Failed::Database(error)) => return Err(error),
        }
        // The same request may have made it meanwhile, and taken the pair.
        if let Some(refused @ Err(_)) = written.get_mut(first) {
            let stored = tables::request_hashes(connection, project, Table::Sends, &[id]).await?;
            if let Some(hash) = stored.get(&id) {
                *refused = again(hash, start);
            }
        }
    }
    Ok(written)
}

/// Inserts sends, each with its pair, and deletes the pairs that they ask again, of which other sends keep their copies.
async fn insert(
    connection: &mut PgConnection,
    project: &str,
    planned: &[Planned<'_>],
) -> sqlx::Result<Vec<Written>> {
    let pairs: Vec<_> = planned.iter().map(Planned::pair).collect();
    let rows: Vec<_> = planned.iter().map(Planned::row).collect();
    let messages = planned.iter().flat_map(|plan| {
        let passed = plan.start.passed.as_ref();
        passed.into_iter().flat_map(|passed| MessageRow::of(plan.id, &passed.messages))
    });
    let inserted = tables::insert_sends(connection, project, &pairs, &rows, messages.collect()).await?;
    let (mut written, mut gone) = (Vec::with_capacity(planned.len()), Vec::new());
    for plan in planned {
        let pair = plan.start.pair_id;
        written.push(if !inserted.pairs.contains(&pair) {
            Err(Error::Conflict(format!("the pair {pair} already exists")))
        } else if inserted.sends.contains(&plan.id) {
            gone.extend(plan.reasked.as_ref().map(|pair| pair.id));
            plan.start.passed.iter().for_each(|passed| passed.begun.note(plan.begun()));
            Ok(Receipt::created(None))
        } else {
            // Another server has made a send with this id meanwhile.
            gone.push(pair);
            Err(Error::Unavailable("another request is creating this send; try again"))
        });
    }
    if !gone.is_empty() {
        tables::delete_pairs(connection, project, &gone).await?;
    }
    Ok(written)
}

/// Predicts what a send carries.
async fn plan<'a>(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    id: Uuid,
    start: &'a StartSend,
) -> Result<Planned<'a>, Failed> {
    let new = &start.new;
    let reasked = match new.reask_of {
        None => None,
        Some(pair) => {
            let locked = tables::lock_pair(connection, project, pair).await?;
            expect_failed(pair, locked.as_ref().map(|pair| pair.state))?;
            locked
        }
    };
    let pairs = match (&start.given, start.found.get(), &new.visible) {
        (Some(given), ..) => given.clone(),
        (None, Some(found), _) => candidates::still_there(connection, project, found, new.reask_of).await?,
        (None, None, Some(visible)) => {
            candidates::visible(connection, project, visible, new.reask_of).await?
        }
        (None, None, None) => Vec::new(),
    };
    let own = named(new.model.as_deref()).or_else(|| reasked.as_ref()?.model.as_deref());
    let asked = Asked {
        model: own,
        model_limit: None,
        pairs,
        user: start.user.or_else(|| reasked.as_ref().map(Reasked::length)).unwrap_or_default(),
        system: start.system,
        settings: rules.settings.with(&new.settings.clone().unwrap_or_default()),
    };
    let predicted = prediction::predict(connection, project, rules, asked).await?;
    Ok(Planned { id, start, predicted, reasked })
}

impl LockedSend {
    /// Returns how far trimming has come.
    pub(super) fn trimming(&self) -> Trimming {
        let count = |count: i32| usize::try_from(count).unwrap_or_default();
        Trimming {
            predicted: count(self.selected),
            preflight: count(self.preflight_count),
            trimmed: count(self.trimmed_count),
            attempts_used: count(self.attempts_used),
            max_trims: count(self.max_trim_attempts),
        }
    }

    /// Returns what a call carries that does not say it.
    pub(super) fn carried(&self) -> Carried {
        Carried { trimmed: self.trimming().trimmed, tokens: self.measured_tokens + self.estimated_tokens }
    }

    /// Returns what a call carries that included these of the pairs with these names and sizes. It is none if they are not the
    /// newest of those that are left.
    fn carried_with(&self, included: &[String], names: &[String], sizes: &[i64]) -> Option<Carried> {
        let left = names.get(self.trimming().trimmed..).unwrap_or_default();
        let trimmed = names.len().checked_sub(included.len())?;
        let carried = || Carried { trimmed, tokens: sizes.iter().skip(trimmed).sum() };
        left.ends_with(included).then(carried)
    }
}

/// What a call carries of the selected pairs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried {
    /// How many pairs it leaves out, the oldest ones.
    trimmed: usize,
    /// The size of the others.
    tokens: i64,
}

/// Makes the row of the next call of a send.
pub(super) fn row<'a>(send: &'a LockedSend, append: &'a Append, carried: Carried) -> AttemptRow<'a> {
    let Carried { trimmed: before, tokens: history } = carried;
    let mut trimming = Trimming { trimmed: before, ..send.trimming() };
    let failure = append.failure.as_ref();
    let (stage, _) = trimming
        .attempt(failure.map(|(_, meaning)| Failure { class: meaning.class, overflow: meaning.overflow }));
    let small = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let total = history + send.aut;
    let estimated = total + send.system_tokens;
    let answer = || Scale::Ratio(send.ratio.unwrap_or(DEFAULT_RATIO)).tokens(append.answer);
    AttemptRow {
        send: send.id,
        attempt: small(trimming.attempts_used),
        line_id: append.line_id,
        model: &send.model,
        stage,
        trimmed_count: small(before),
        history,
        total,
        error: failure.map(|(error, _)| error),
        overflow: failure.is_some_and(|(_, meaning)| meaning.overflow),
        usage: append.new.usage.as_ref(),
        tokens: append.tokens.input.unwrap_or(estimated) + append.tokens.output.unwrap_or_else(answer),
        latency_ms: append.new.latency_ms,
        at: append.at,
        hash: &append.hash,
        trimmed_after: small(trimming.trimmed),
        reported: (append.tokens.input, append.tokens.output),
    }
}

/// Returns whether a further call may follow one of this stage.
fn goes_on(stage: Stage) -> bool {
    matches!(stage, Stage::Initial | Stage::Preflight | Stage::OverflowInitial | Stage::OverflowRetry)
}

/// Adds calls to sends, one to each.
pub(super) async fn append(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let appends: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Attempt(append) => Some((event.id, &**append)),
            _ => None,
        })
        .collect();
    let ids: Vec<_> = appends.iter().map(|(id, _)| *id).collect();
    let sends = tables::lock_sends(connection, project, &ids).await?;
    let named: Vec<_> = appends
        .iter()
        .map(|(id, append)| (*id, append.new.attempt, append.line_id))
        .filter(|(_, number, line_id)| number.is_some() || line_id.is_some())
        .collect();
    let stored = if named.is_empty() {
        HashMap::new()
    } else {
        tables::stored_attempts(connection, project, &named).await?
    };
    let carried = carried(connection, project, &appends, &sends).await?;
    let mut written = Vec::with_capacity(appends.len());
    let mut rows = Vec::new();
    for (id, append) in &appends {
        written.push(match sends.get(id) {
            None => Err(Error::NotFound("send")),
            Some(send) => match judge(send, append, stored.get(id)) {
                Ok(Some(receipt)) => Ok(receipt),
                Ok(None) => {
                    let carried = carried.get(id).copied().unwrap_or_else(|| Some(send.carried()));
                    let problem = "are not the newest of the pairs that are left";
                    carried.ok_or_else(|| Error::invalid("/included_ids", problem)).map(|carried| {
                        let row = row(send, append, carried);
                        let number = row.attempt;
                        rows.push(row);
                        Receipt::created(Some(number))
                    })
                }
                Err(error) => Err(error),
            },
        });
    }
    tables::insert_attempts(connection, project, &rows).await?;
    tables::note_attempts(connection, project, &rows).await?;
    Ok(written)
}

/// Returns what those calls carry that say it, by their sends: none if the pairs are not the newest that are left.
async fn carried(
    connection: &mut PgConnection,
    project: &str,
    appends: &[(Uuid, &Append)],
    sends: &HashMap<Uuid, LockedSend>,
) -> sqlx::Result<HashMap<Uuid, Option<Carried>>> {
    let included = appends.iter().filter_map(|(id, append)| Some((*id, append.new.included_ids.as_deref()?)));
    let included: HashMap<_, _> = included.collect();
    let mut carried = HashMap::with_capacity(included.len());
    if included.is_empty() {
        return Ok(carried);
    }
    let ids: Vec<_> = included.keys().copied().collect();
    let (mut selections, mut pauses) = (tables::selections(connection, project, &ids), Pauses::begin());
    while let Some((id, names, sizes)) = selections.try_next().await? {
        pauses.pause().await;
        if let (Some(send), Some(included)) = (sends.get(&id), included.get(&id)) {
            carried.insert(id, send.carried_with(included, &names, &sizes));
        }
    }
    Ok(carried)
}

/// Returns the receipt of a call that was reported before, or none if it is new.
fn judge(
    send: &LockedSend,
    append: &Append,
    stored: Option<&StoredAttempt>,
) -> Result<Option<Receipt>, Error> {
    let (id, next) = (send.id, send.attempts_used + 1);
    if let Some(StoredAttempt { number, request_hash, .. }) = stored {
        return if *request_hash == append.hash {
            Ok(Some(Receipt::replayed(Some(*number))))
        } else {
            let detail = format!("attempt {number} of the send {id} already exists with a different body");
            Err(Error::Conflict(detail))
        };
    }
    if append.new.attempt.is_some_and(|number| number != next) {
        return Err(Error::Conflict(format!("the next attempt of the send {id} is number {next}")));
    }
    if send.state != State::Sending {
        return Err(Error::Conflict(format!("the send {id} has ended; no attempt can be added")));
    }
    if !goes_on(send.stage) {
        return Err(Error::Conflict(format!("the last attempt ended the send {id}; finalize the send")));
    }
    Ok(None)
}
