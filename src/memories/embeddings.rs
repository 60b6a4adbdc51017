//! Compares the embeddings of memories with that of a query. [`meaning`](super::meaning) asks for the latter, and
//! [`filling`](super::filling) stores the former.

use std::collections::HashMap;

use sqlx::PgPool;
use uuid::Uuid;

use crate::embeddings::cosine;

/// The number of characters of a text that are sent.
pub(super) const LONGEST_TEXT: i32 = 6_000;

/// The meaning of a query.
#[derive(Debug)]
pub(super) struct Meaning {
    /// The name of the model.
    pub(super) model: String,
    /// The embedding by that model.
    pub(super) embedding: Vec<f32>,
}

/// Returns the cosine of each memory's embedding with that of a query, if the memory has one.
pub(super) async fn cosines(
    db: &PgPool,
    project: &str,
    query: &Meaning,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, f64>> {
    const SQL: &str = "select memory_id, embedding from memory_embeddings where project = $1 and memory_id = any($2) and model = $3";
    let rows: Vec<(Uuid, Vec<f32>)> =
        sqlx::query_as(SQL).bind(project).bind(ids).bind(&query.model).fetch_all(db).await?;
    Ok(rows
        .into_iter()
        .filter_map(|(id, embedding)| Some((id, cosine(&embedding, &query.embedding)?)))
        .collect())
}
