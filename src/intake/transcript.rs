//! Transcripts that this program reads itself, without HTTP.

use std::sync::Arc;

use crate::error::Result;
use crate::intake::prompts::Conversations;
use crate::projects::Tenant;
use crate::searches::transcripts::{Intake, Origin};
use crate::searches::write::TranscriptCounts;
use crate::state::App;

/// Stores lines as the endpoint does: at most a few megabytes, or one line.
pub async fn take(
    app: &App,
    tenant: &Arc<Tenant>,
    origin: Origin,
    lines: Vec<u8>,
) -> Result<TranscriptCounts> {
    let Some(origin) = tenant.keep(origin).await else { return Ok(TranscriptCounts::default()) };
    let listener = Conversations { key: None };
    let (counts, ..) = Intake::new(&app.searches, tenant, origin, listener).take(lines.into()).await?;
    Ok(counts)
}
