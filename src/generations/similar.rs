//! Similar solved examples: what an agent shows a model before it asks.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Rating;
use crate::app::App;
use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::extract::{Check, Checks, Query};

/// The path of similar examples.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(similar))
}

/// What to be similar to.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// The intent at hand.
    #[param(min_length = 1)]
    intent: String,
    /// Area of the language.
    domain_name: Option<String>,
    /// The model that solved it.
    model_used: Option<String>,
    /// The most examples, 1 to 100; 5 if not given.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<i64>,
    /// The least similarity, 0 to 1; 0.2 if not given.
    #[param(minimum = 0, maximum = 1)]
    min_similarity: Option<f64>,
    /// A log to leave out.
    exclude_id: Option<Uuid>,
    /// `messages`: as chat messages ready to be put into a prompt.
    #[param(inline)]
    format: Option<Shape>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Messages,
}

impl Check for Wanted {
    fn check(&self, checks: &mut Checks) {
        checks.require(!self.intent.is_empty(), "intent", "must not be empty");
        checks.require(
            self.limit.is_none_or(|limit| (1..=100).contains(&limit)),
            "limit",
            "must be 1 to 100",
        );
        let fits = self.min_similarity.is_none_or(|least| (0.0..=1.0).contains(&least));
        checks.require(fits, "min_similarity", "must be 0 to 1");
    }
}

/// A log that succeeded with an intent like the one at hand.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
struct Example {
    /// The log.
    generation_id: Uuid,
    /// Its intent.
    user_intent: String,
    /// Its program, as a reviewer corrected it if one did.
    valid_dsl: String,
    /// Area of the language.
    domain_name: String,
    /// How like the intents are, 0 to 1: the square root of the share of trigrams they have in common, since a paraphrase
    /// may share few of them.
    similarity: f64,
    /// A reviewer's verdict.
    #[schema(inline)]
    rating: Option<Rating>,
}

#[derive(Serialize, ToSchema)]
struct Examples {
    /// The best first; at most one for each intent and program, and a program a second time only after all others.
    data: Vec<Example>,
}

#[derive(Serialize, ToSchema)]
struct Messages {
    /// The examples in turn, each as what the user asked and what the assistant answers.
    messages: Vec<Message>,
}

/// The examples in the shape that was asked for.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Found {
    Examples(Examples),
    Messages(Messages),
}

#[derive(Serialize, ToSchema)]
struct Message {
    role: &'static str,
    content: String,
}

/// Solved examples similar to an intent: of logs that succeeded and that no reviewer found poor.
#[utoipa::path(get, path = "/v1/generations/similar", tag = "generations", params(Wanted),
    responses((status = 200, description = "The examples; with `format=messages`, as chat messages", body = Found), Refusals))]
async fn similar(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(wanted): Query<Wanted>,
) -> Result<axum::Json<Found>> {
    let data = find(&app.db, &caller.project, &wanted).await?;
    if wanted.format != Some(Shape::Messages) {
        return Ok(axum::Json(Found::Examples(Examples { data })));
    }
    let turns = data.into_iter().flat_map(|example| {
        [("user", example.user_intent), ("assistant", example.valid_dsl)]
            .map(|(role, content)| Message { role, content })
    });
    Ok(axum::Json(Found::Messages(Messages { messages: turns.collect() })))
}

async fn find(db: &PgPool, project: &str, wanted: &Wanted) -> Result<Vec<Example>> {
    const SQL: &str = "
        select * from (
            select *, row_number() over (partition by valid_dsl order by similarity desc, completed_at, generation_id) as nth from (
            select distinct on (g.pair_hash) g.id as generation_id, g.user_intent, g.completed_at,
                coalesce(g.corrected_dsl, g.final_valid_dsl) as valid_dsl, g.domain_name, g.rating,
                sqrt(similarity(g.user_intent, $2))::float8 as similarity
            from generations g
            where g.project = $1 and g.success and g.rating is distinct from 'poor'
                and ($3::text is null or g.domain_name = $3) and ($4::text is null or g.model_used = $4)
                and ($5::uuid is null or g.id <> $5)
            order by g.pair_hash, g.completed_at, g.id
            ) example
        ) example
        where similarity >= $6
        order by nth, similarity desc, completed_at, generation_id
        limit $7";
    Ok(sqlx::query_as(SQL)
        .bind(project)
        .bind(&wanted.intent)
        .bind(&wanted.domain_name)
        .bind(&wanted.model_used)
        .bind(wanted.exclude_id)
        .bind(wanted.min_similarity.unwrap_or(0.2))
        .bind(wanted.limit.unwrap_or(5))
        .fetch_all(db)
        .await?)
}
