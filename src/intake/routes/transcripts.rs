//! The endpoint of transcripts.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use futures_util::StreamExt as _;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Write};
use crate::error::{Error, Refusals, Result};
use crate::http::json::{self, Recheck, expect_media_type};
use crate::http::memory::Memory;
use crate::http::pieces::Pieces;
use crate::http::reply::{NotKept, Shown};
use crate::http::{NDJSON_LIMIT, Query, Replaced, line};
use crate::intake::prompts::Conversations;
use crate::searches::transcripts::{Intake, Origin};
use crate::searches::write::TranscriptCounts;
use crate::sharing::{Kind, Pauses};
use crate::state::App;

/// How many bytes of lines are taken at once, or one line if that is longer.
const PIECE: usize = 2 << 20;
/// How long a sender may send nothing: others of the same source are waiting.
const STALL: Duration = Duration::from_mins(1);

/// A piece of a transcript as the OpenAPI document shows it.
const EXAMPLE: &str = concat!(
    r#"{"type": "user", "sessionId": "my-session", "cwd": "/home/jane/my-project", "timestamp": "2025-01-15T10:30:00Z", "#,
    r#""message": {"role": "user", "content": "Draw the login button in blue"}}"#,
    "\n",
);

/// Returns the endpoint of transcripts.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(append_transcript))
}

/// Receives lines of a transcript in order, in any number of requests. Lines may be sent again.
///
/// Lines that were stored before a failure stay stored, so sending all of them again is enough. A last line without a
/// newline counts as a line. If it was cut off, it counts as malformed, and the complete line is new when it arrives
/// later.
#[utoipa::path(post, path = "/v1/transcripts", tag = "searches", params(Origin),
    request_body(content(
        (String = "application/x-ndjson", example = json!(EXAMPLE)),
        (String = "application/jsonl"),
        (inline(line::File) = "application/octet-stream"),
    )),
    responses(
        (status = 200, description = "The outcome of the lines", body = TranscriptCounts),
        NotKept,
        Refusals,
    ))]
async fn append_transcript(
    State(app): State<App>,
    caller: Caller<Write>,
    Query(origin): Query<Origin>,
    request: Request,
) -> Result<Shown<TranscriptCounts>> {
    expect_media_type(request.headers(), line::LINES)?;
    let replaced = request.extensions().get::<Replaced>().cloned().unwrap_or_default();
    let Some(origin) = caller.tenant.keep(origin).await else { return Ok(Shown::NotKept) };
    let listener = Conversations { key: caller.key() };
    let intake = Intake::new(&app.searches, &caller.tenant, origin, listener);
    let (head, body) = request.into_parts();
    let mut chunks = body.into_data_stream();
    let mut counts = TranscriptCounts::default();
    let mut lines = Pieces::default();
    let memory = Memory::of(&head.extensions);
    let (mut begun, mut pauses) = (Instant::now(), Pauses::begin());
    loop {
        let chunk = tokio::time::timeout(STALL, chunks.next())
            .await
            .map_err(|_| Error::Malformed("nothing was sent for a minute".to_owned()))?;
        let chunk = chunk.transpose().map_err(|error| json::unreadable(&error))?;
        let last = chunk.is_none();
        json::expect_pace(begun, lines.len())?;
        pauses.pause().await;
        // The bytes that belong to a piece of whole lines, and those behind it.
        let mut bytes = chunk.unwrap_or_default();
        let newline = memchr::memrchr(b'\n', &bytes);
        let is_piece = newline.is_some() && lines.len() + bytes.len() >= PIECE;
        let rest = newline.filter(|_| is_piece).map(|newline| bytes.split_off(newline + 1));
        lines.add(&bytes, &memory, 2).await?;
        if newline.is_none() && lines.len() > NDJSON_LIMIT {
            return Err(Error::TooLarge(format!("a line has more than {NDJSON_LIMIT} bytes")));
        }
        if is_piece || last && !lines.is_empty() {
            let piece = Bytes::from(std::mem::take(&mut lines).join());
            Recheck::run(&head.extensions).await?;
            let turn = app.work.turn(&caller.project, Kind::Parse).await;
            let (piece, characters, redacted) = intake.take(piece).await?;
            drop(turn);
            begun = Instant::now();
            counts.add(piece);
            replaced.add(characters);
            replaced.add_redacted(redacted);
        }
        lines.add(&rest.unwrap_or_default(), &memory, 2).await?;
        if last {
            return Ok(Shown::Record(counts));
        }
    }
}
