//! Sends that Gleaner performs, answered whole or as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;
use utoipa::ToSchema;
use uuid::Uuid;

use super::sends::{address, stored};
use crate::db::rows;
use crate::error::{Error, Result};
use crate::http::memory::Memory;
use crate::http::reply::Created;
use crate::messages::in_flight::Flight;
use crate::messages::perform::{Listener, Performed, Progress, Script};
use crate::messages::prediction::{self, Asked};
use crate::messages::refusals::expect_failed;
use crate::messages::rules::estimate::Length;
use crate::messages::store::Plan;
use crate::messages::{CancelReason, Event, NewSend, Pair, SendError, State, store};
use crate::messages::{candidates, failure, payload};
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::sharing::{Entry, Place, while_wanted};
use crate::state::App;
use crate::types::FreeForm;
use crate::writing::Writing;

/// For how long the server tries to read what a send needs.
const PLANNING: Duration = Duration::from_secs(8);
/// The pause before what a send needs is read again.
const PAUSE: Duration = Duration::from_secs(1);

/// The response for a send that is not recorded.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = UnkeptSend)]
struct Unkept {
    /// The state of the send.
    state: State,
    /// What the model answered.
    assistant_text: Option<String>,
    /// Why there is no answer.
    error: Option<SendError>,
    /// The usage that the provider reported.
    usage: Option<FreeForm>,
    /// The number of calls.
    attempts_used: usize,
    /// The number of predicted pairs that were dropped.
    trimmed_count: usize,
}

impl From<Performed> for Unkept {
    fn from(performed: Performed) -> Self {
        Self {
            state: if performed.error.is_some() { State::Error } else { State::Complete },
            assistant_text: performed.text,
            error: performed.error,
            usage: performed.usage,
            attempts_used: performed.trimming.attempts_used,
            trimmed_count: performed.trimming.trimmed,
        }
    }
}

/// Makes and performs a send.
pub(super) async fn start(writing: Writing, new: NewSend) -> Result<Response> {
    if let Some(model) = new.model.as_deref().filter(|model| !model.is_empty())
        && writing.app.providers.find(None, model).is_none()
    {
        return Err(Error::NotFound("model in the providers file"));
    }
    let place = writing.app.place_at_providers(&writing.caller.project)?;
    let streams = new.stream == Some(true);
    let (system, user) = (new.system.clone(), new.user_text.clone());
    let project = Arc::clone(&writing.caller.project);
    let app = writing.app.clone();
    let again = asked_again(&writing, &new).await?;
    if writing.caller.tenant.policy.capture(crate::domain::Domain::Messages) == Capture::Off {
        let script = unkept(&writing, &new, again).await?;
        return perform(&writing, script.id, async { Ok(script) }, None, place, streams).await;
    }
    let event = Event::send(new, writing.id("sends", None));
    let id = event.id;
    let flight = app.in_flight.begin(&project, id);
    let receipt = writing.write(event).await?;
    if receipt.replayed {
        // The task that performs the send continues, so that no call is paid for twice.
        drop(flight);
        let shown = writing.show(async || stored(&app, &project, id, writing.memory()).await).await?;
        return Ok(Created { shown, address: None }.into_response());
    }
    // What is asked again may be kept no longer.
    let user = user.or_else(|| again?.user_text);
    let memory = writing.memory().clone();
    let tenant = Arc::clone(&writing.caller.tenant);
    let script = async move { Ok(Script::of(plan(&app, &tenant, id, &memory).await?, system, user)) };
    perform(&writing, id, script, Some(flight), place, streams).await
}

/// Reads what is needed to perform a send that has just been stored. If that fails, also when it is tried again, the send ends,
/// because whoever asks again gets what is stored, and would wait for somebody to perform it.
async fn plan(app: &App, tenant: &Arc<Tenant>, id: Uuid, memory: &Memory) -> Result<Plan> {
    let until = Instant::now() + PLANNING;
    let reading = memory.reading(rows::MOST);
    let read = async || store::plan(&mut *app.db.acquire().await?, &tenant.name, id, &reading).await;
    loop {
        match app.among_readers(&tenant.name, memory, Box::pin(reading.by(read))).await {
            Ok(plan) => return plan.ok_or(Error::NotFound("send")),
            Err(error) if error.is_transient() && Instant::now() < until => sleep(PAUSE).await,
            Err(error) => {
                let failure = if matches!(error, Error::TooLarge(_)) {
                    failure::too_large()
                } else {
                    failure::too_busy()
                };
                app.writer.write(tenant, Event::failed(id, failure, 0), memory).await?;
                return Err(error);
            }
        }
    }
}

/// Returns the pair that a send asks again, as it is before it is replaced. Its message is needed if the send has none.
async fn asked_again(writing: &Writing, new: &NewSend) -> Result<Option<Pair>> {
    let Some(id) = new.reask_of else { return Ok(None) };
    writing.memory().end_turn();
    let (app, project, reading) = (&writing.app, &writing.caller.project, writing.memory().reading_one());
    let read = async || store::pair(&mut *app.db.acquire().await?, project, id, &reading).await;
    let pair = app.among_readers(project, writing.memory(), Box::pin(reading.by(read))).await?;
    if new.user_text.is_none() && pair.as_ref().is_some_and(|pair| pair.user_text.is_none()) {
        let detail = "must be given, because the text of the pair in reask_of is not kept";
        return Err(Error::invalid("/user_text", detail));
    }
    Ok(pair)
}

/// Predicts a send that is not recorded. `again` is the pair that it asks again, which stays.
async fn unkept(writing: &Writing, new: &NewSend, again: Option<Pair>) -> Result<Script> {
    if let Some(pair) = new.reask_of {
        expect_failed(pair, again.as_ref().map(|pair| pair.lifecycle_state))?;
    }
    let user_text = new.user_text.clone().or_else(|| again.as_ref()?.user_text.clone());
    let model = crate::messages::named(new.model.as_deref()).or_else(|| again.as_ref()?.model.as_deref());
    // The names in a filter are compared with stored ones.
    let (visible, _) = writing.caller.tenant.redacted(new.visible.clone()).await;
    let app = &writing.app;
    writing.memory().end_turn();
    let memory = writing.memory();
    memory.enter(Entry::to_read(&writing.caller.project, app.keyring.reading(), &app.work)).await?;
    let mut connection = app.db.acquire().await?;
    let (project, rules) = (&*writing.caller.project, &writing.caller.tenant.messages);
    let pairs = match &visible {
        Some(visible) => candidates::visible(&mut connection, project, visible, new.reask_of).await?,
        None => Vec::new(),
    };
    let length = |text: &Option<String>| text.as_deref().map_or_else(Length::default, Length::of);
    let asked = Asked {
        model,
        model_limit: None,
        pairs,
        user: length(&user_text),
        system: length(&new.system),
        settings: rules.settings.with(&new.settings.clone().unwrap_or_default()),
    };
    let predicted = prediction::predict(&mut connection, project, rules, asked).await?;
    let keys: Vec<_> = predicted.included().iter().map(|pair| (pair.key, pair.revision)).collect();
    drop(connection);
    let reading = memory.reading(rows::MOST);
    let read = async || payload::texts(&mut *app.db.acquire().await?, project, &keys, &reading).await;
    let texts = reading.by(read).await?;
    memory.leave();
    Ok(Script::unkept(Uuid::now_v7(), &predicted, &texts, new.system.clone(), user_text))
}

/// Cancels a send whose client closed the connection before it ended.
struct HangUp {
    app: App,
    project: Arc<str>,
    id: Uuid,
}

impl Drop for HangUp {
    fn drop(&mut self) {
        self.app.in_flight.cancel(&self.project, self.id, CancelReason::ClientGone);
    }
}

/// Performs a send on a task of its own, so that it is ended even if the client disconnects.
async fn perform(
    writing: &Writing,
    id: Uuid,
    script: impl Future<Output = Result<Script>> + Send + 'static,
    flight: Option<Flight>,
    place: Place,
    streams: bool,
) -> Result<Response> {
    let (app, tenant) = (writing.app.clone(), Arc::clone(&writing.caller.tenant));
    let keeps = flight.is_some();
    let project = Arc::clone(&writing.caller.project);
    let mut flight = flight.unwrap_or_else(|| app.in_flight.begin(&project, id));
    let (listener, progress) = Listener::new();
    let listener = streams.then_some(listener);
    let memory = writing.memory().clone();
    let task = tokio::spawn(async move {
        let performed = script.await?.perform(&app, &tenant, &mut flight, listener, &memory).await;
        drop((flight, place));
        performed
    });
    let app = writing.app.clone();
    let hang_up = HangUp { app: app.clone(), project: Arc::clone(&project), id };
    let ended = async move {
        let performed = task.await.map_err(anyhow::Error::from)??;
        drop(hang_up);
        Ok::<_, Error>(performed)
    };
    if streams {
        let memory = writing.memory().clone();
        return Ok(events(app, project, id, keeps, memory, progress, ended));
    }
    let performed = while_wanted(ended).await?;
    if !keeps {
        return Ok(axum::Json(Unkept::from(performed)).into_response());
    }
    let shown = writing.show(async || stored(&app, &project, id, writing.memory()).await).await?;
    Ok(Created { shown, address: Some(address(id)) }.into_response())
}

/// The remaining events of a send: its progress, and then its end.
enum Told<F> {
    Still(mpsc::Receiver<Progress>, F),
    All,
}

/// Returns the progress as server-sent events. The last one is sent after the commit. If the send cannot be read then, it has only
/// what is known of it, because whoever is told of a failure performs the send again, and pays twice.
fn events(
    app: App,
    project: Arc<str>,
    id: Uuid,
    keeps: bool,
    memory: Memory,
    progress: mpsc::Receiver<Progress>,
    ended: impl Future<Output = Result<Performed>> + Send + 'static,
) -> Response {
    let send = async move {
        let performed = ended.await?;
        if !keeps {
            return Ok(json!(Unkept::from(performed)));
        }
        let read = async { app.longest_statement.while_heard(stored(&app, &project, id, &memory)).await? };
        let read = Box::pin(read);
        match app.among_readers(&project, &memory, read).await {
            Ok(send) => return Ok(json!(send)),
            Err(Error::Internal(cause)) => {
                tracing::error!(cause = format!("{cause:#}"), "a send could not be read");
            }
            Err(_) => {}
        }
        let mut known = json!(Unkept::from(performed));
        known["id"] = json!(id);
        Ok(known)
    };
    let last = async move {
        match send.await {
            Ok(send) if send["error"].is_null() => named("done", &json!({"send": send})),
            Ok(send) => named("error", &json!({"error": send["error"], "send": send})),
            Err(error) => {
                if let Error::Internal(cause) = &error {
                    tracing::error!(cause = format!("{cause:#}"), "a send could not be kept");
                }
                named("error", &json!({"error": error.problem(), "send": null}))
            }
        }
    };
    let told = stream::unfold(Told::Still(progress, Box::pin(last)), async |told| match told {
        Told::Still(mut progress, last) => Some(match progress.recv().await {
            Some(step) => (Ok::<_, Infallible>(shown(&step)), Told::Still(progress, last)),
            None => (Ok(last.await), Told::All),
        }),
        Told::All => None,
    });
    Sse::new(told).keep_alive(KeepAlive::default()).into_response()
}

fn shown(progress: &Progress) -> SseEvent {
    match progress {
        Progress::Attempt { attempt, stage, attempt_total_tokens } => named(
            "attempt",
            &json!({"attempt": attempt, "stage": stage, "attempt_total_tokens": attempt_total_tokens}),
        ),
        Progress::Delta(text) => named("delta", &json!({"text": text})),
        Progress::Trimmed { id, trimmed_count, counter } => {
            named("trimmed", &json!({"id": id, "trimmed_count": trimmed_count, "counter": counter}))
        }
    }
}

fn named(name: &str, data: &serde_json::Value) -> SseEvent {
    SseEvent::default().event(name).data(data.to_string())
}
