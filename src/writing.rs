//! [`Writing`], the extractor of handlers that write events.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use uuid::Uuid;

use crate::auth::{Caller, Write};
use crate::db::receipt::Receipt;
use crate::domain::Event;
use crate::error::{Error, Result};
use crate::http::memory::Memory;
use crate::http::reply::{Changed, Created, Prefer, Shown};
use crate::http::{IdempotencyKey, Replaced};
use crate::privacy::capture::Capture;
use crate::state::App;

/// A request to write events: the caller, the request's `Idempotency-Key`, and whether the client wants the
/// record.
///
/// In the OpenAPI document, it represents the headers `Prefer` and `Idempotency-Key`. An operation that creates no id
/// names [`Prefer`] alone.
pub struct Writing {
    /// The state that handlers share.
    pub app: App,
    /// The caller, who has the scope to write.
    pub caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    memory: Memory,
    replaced: Replaced,
    is_for_readers: bool,
}

impl FromRequestParts<App> for Writing {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let key = IdempotencyKey::from_request_parts(parts, app).await?;
        let Ok(prefer) = Prefer::from_request_parts(parts, app).await;
        let memory = Memory::of(&parts.extensions);
        let replaced = Replaced::of(&parts.extensions);
        Ok(Self { app: app.clone(), caller, key, prefer, memory, replaced, is_for_readers: false })
    }
}

impl IntoParams for Writing {
    fn into_params(parameter_in: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        [Prefer::into_params(&parameter_in), IdempotencyKey::into_params(&parameter_in)].concat()
    }
}

impl Writing {
    /// Returns the id that is derived from the request's `Idempotency-Key`, if it has one. `route` distinguishes the
    /// kinds of records, and `parent` is the record to which the new one belongs.
    #[must_use]
    pub fn id(&self, route: &str, parent: Option<Uuid>) -> Option<Uuid> {
        self.caller.tenant.id_of(&self.key, route, parent)
    }

    /// Returns the request's share of the memory for bodies.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Shows the record only to a caller who may read, because its id can be computed by those who have not posted it.
    #[must_use]
    pub fn for_readers(self) -> Self {
        Self { is_for_readers: true, ..self }
    }

    /// Returns whether the client wants to see the record, and may.
    #[must_use]
    pub fn shows_record(&self) -> bool {
        !self.prefer.minimal() && (!self.is_for_readers || self.caller.may_read())
    }

    /// Writes an event that creates a record, and responds with its `address`, if there is one. `record` gets the
    /// body of the response. It is called after the event is committed, and only if the client wants the record.
    pub async fn create<T>(
        &self,
        event: impl Into<Event>,
        address: impl Into<Option<String>>,
        record: impl AsyncFnOnce(Receipt) -> Result<T>,
    ) -> Result<Created<T>> {
        let receipt = self.write(event).await?;
        let is_new = !receipt.replayed && receipt.kept != Capture::Off;
        let address = address.into().filter(|_| is_new);
        Ok(Created { shown: self.show_kept(receipt, record).await?, address })
    }

    /// Writes an event that changes a record. `record` gets the body of the response, as in [`Writing::create`].
    pub async fn change<T>(
        &self,
        event: impl Into<Event>,
        record: impl AsyncFnOnce(Receipt) -> Result<T>,
    ) -> Result<Changed<T>> {
        let receipt = self.write(event).await?;
        Ok(Changed(self.show_kept(receipt, record).await?))
    }

    /// Writes an event, and counts the redacted spans in the response.
    pub async fn write(&self, event: impl Into<Event>) -> Result<Receipt> {
        let receipt = self.app.writer.write(&self.caller.tenant, event, &self.memory).await?;
        self.replaced.add_redacted(receipt.redacted);
        Ok(receipt)
    }

    async fn show_kept<T>(
        &self,
        receipt: Receipt,
        record: impl AsyncFnOnce(Receipt) -> Result<T>,
    ) -> Result<Shown<T>> {
        match receipt.kept {
            Capture::Off => Ok(Shown::NotKept),
            _ => self.show(async || record(receipt).await).await,
        }
    }

    /// Returns the record that was written, if the client wants it. The write is acknowledged even if the record is too large
    /// for a response, or if others keep it from being read.
    pub async fn show<T>(&self, record: impl AsyncFnOnce() -> Result<T>) -> Result<Shown<T>> {
        if !self.shows_record() {
            return Ok(Shown::Minimal);
        }
        // A request is as large as the largest of its parts that is not in a box, and many show nothing.
        let shown = Box::pin(record());
        match self.app.among_readers(&self.caller.project, &self.memory, shown).await {
            Err(Error::TooLarge(_) | Error::Unavailable(_)) => Ok(Shown::Minimal),
            shown => Ok(Shown::Record(shown?)),
        }
    }
}
