//! Asks the model of embeddings what a query means.

use std::sync::Arc;
use std::time::Duration;

use super::embeddings::{LONGEST_TEXT, Meaning};
use super::rules::terms::terms;
use crate::domain::Domain;
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::sharing::while_wanted;
use crate::state::App;

/// How long a request waits for the embedding of its query, and how long help that nobody has asked for does.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);
pub(super) const PATIENCE_UNASKED: Duration = Duration::from_millis(50);

/// Returns the meaning of a query, which is redacted before it is sent, if the server has a model and the model responds in time.
pub(super) async fn of_query(
    app: &App,
    tenant: &Arc<Tenant>,
    query: &str,
    patience: Duration,
) -> Option<Meaning> {
    let embedder = app.embedder.as_ref()?;
    if tenant.policy.capture(Domain::Memories) != Capture::Full || terms(query).next().is_none() {
        return None;
    }
    // A secret is only recognized whole, so the text is cut afterwards.
    let (query, _) = tenant.redacted(query.to_owned()).await;
    let query: String = query.chars().take(usize::try_from(LONGEST_TEXT).unwrap_or_default()).collect();
    match while_wanted(tokio::time::timeout(patience, embedder.embed(&[&query]))).await {
        Ok(Ok(mut embeddings)) => {
            embeddings.pop().map(|embedding| Meaning { model: embedder.model.clone(), embedding })
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a query is compared without its embedding");
            None
        }
        Err(_) => {
            tracing::debug!("a query is compared without its embedding, because the model takes too long");
            None
        }
    }
}
