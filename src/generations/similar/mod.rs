//! Similar solved examples: what an agent shows a model before it asks.
//!
//! Bounded work, however many logs there are: `keys` are what a log is found by, a `sample` tells how common they are, a
//! `plan` picks those that about a thousand logs have, Postgres finds these by one index, and `rank` ranks them here.

pub(super) mod keys;
mod matrix;
mod plan;
mod rank;
pub mod sample;
mod text;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use sqlx::{Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Rating;
use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::http::{Check, Checks, Query};
use crate::state::App;
use plan::{MOST, Plan};
use rank::{Solved, rank};
pub use sample::Samples;
use sample::Scope;

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
    /// How similar, 0 to 1: 1 where the intents are the same; otherwise the more, the more rare parts the intents have in
    /// common, and the more the program is like those of other logs with such intents.
    #[sqlx(skip)]
    similarity: f64,
    /// A reviewer's verdict.
    #[schema(inline)]
    rating: Option<Rating>,
}

#[derive(Serialize, ToSchema)]
struct Examples {
    /// The most similar first; at most one for each intent and program, and rather different programs than one again and
    /// again.
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
    let data = find(&app, &caller.project, &wanted).await?;
    if wanted.format != Some(Shape::Messages) {
        return Ok(axum::Json(Found::Examples(Examples { data })));
    }
    let turns = data.into_iter().flat_map(|example| {
        [("user", example.user_intent), ("assistant", example.valid_dsl)]
            .map(|(role, content)| Message { role, content })
    });
    Ok(axum::Json(Found::Messages(Messages { messages: turns.collect() })))
}

/// Finds, ranks and fetches the examples.
async fn find(app: &App, project: &Arc<str>, wanted: &Wanted) -> Result<Vec<Example>> {
    const SQL: &str = "
        select id as generation_id, user_intent, coalesce(corrected_dsl, final_valid_dsl) as valid_dsl, domain_name, rating
        from generations where project = $1 and id = any($2)";
    let limit = wanted.limit.unwrap_or(5).try_into().unwrap_or(usize::MAX);
    let least = wanted.min_similarity.unwrap_or(0.2);
    let intent: String = wanted.intent.chars().take(LONGEST_INTENT).collect();
    let candidates = candidates(app, project, wanted, &intent).await?;
    // That takes the processor for milliseconds: not on a thread that answers requests.
    let ranked = tokio::task::spawn_blocking(move || {
        let solved: Vec<_> = candidates.iter().map(Candidate::solved).collect();
        let ranked = rank(&intent, &solved, limit, least);
        ranked.into_iter().map(|(place, similarity)| (candidates[place].id, similarity)).collect::<Vec<_>>()
    });
    let ranked = ranked.await.map_err(anyhow::Error::from)?;
    let ids: Vec<_> = ranked.iter().map(|(id, _)| *id).collect();
    let examples: Vec<Example> = sqlx::query_as(SQL).bind(&**project).bind(ids).fetch_all(&app.db).await?;
    let mut examples: HashMap<_, _> =
        examples.into_iter().map(|example| (example.generation_id, example)).collect();
    let with_similarity =
        |(id, similarity)| examples.remove(&id).map(|example| Example { similarity, ..example });
    Ok(ranked.into_iter().filter_map(with_similarity).collect())
}

/// How many characters of an intent, and of a program, are compared.
const LONGEST_INTENT: usize = 1_000;
const LONGEST_PROGRAM: usize = 2_000;
/// When so many are found, less telling keys are not asked for.
const ENOUGH: usize = 100;
/// Among how many of the newest logs solved ones are looked for, to fill up.
const NEWEST: usize = 5 * MOST;

/// A log that may be an example.
#[derive(sqlx::FromRow)]
struct Candidate {
    id: Uuid,
    intent: String,
    program: String,
    rating: Option<Rating>,
}

impl Candidate {
    fn solved(&self) -> Solved<'_> {
        Solved { intent: &self.intent, program: &self.program, praised: self.rating == Some(Rating::Good) }
    }
}

/// The logs that are looked at closely, the oldest first: those that the plan finds, filled up with the newest where these are
/// likely to be of use, as there are few logs or too many that fit.
async fn candidates(
    app: &App,
    project: &Arc<str>,
    wanted: &Wanted,
    intent: &str,
) -> sqlx::Result<Vec<Candidate>> {
    let whole = Scope { project: Arc::clone(project), domain_name: None };
    let scope = Scope { domain_name: wanted.domain_name.clone(), ..whole.clone() };
    let of_project = app.samples.of(&app.db, &whole).await?;
    let sample = app.samples.of(&app.db, &scope).await?;
    let plan = Plan::new(intent, &scope, &sample, &of_project);

    let mut found: Vec<Candidate> = Vec::new();
    let add = async |found: &mut Vec<Candidate>, mut query: QueryBuilder<Postgres>| {
        push_conditions(&mut query, &scope, wanted);
        query.push(" limit ").push_bind(i64::try_from(MOST - found.len()).unwrap_or_default());
        let logs: Vec<Candidate> = query.build_query_as().fetch_all(&app.db).await?;
        let known: HashSet<_> = found.iter().map(|log| log.id).collect();
        found.extend(logs.into_iter().filter(|log| !known.contains(&log.id)));
        Ok::<_, sqlx::Error>(())
    };
    for (having, keys) in [("&&", plan.any), ("@>", plan.all)] {
        if !keys.is_empty() && found.len() < ENOUGH {
            // Only keys are looked for in the index (`offset 0` holds the other conditions back): given another, Postgres may
            // want to combine it with an index of the other columns, which means reading all of a project or domain.
            let mut query = select();
            query
                .push(format_args!(" where success and search_keys {having} "))
                .push_bind(keys)
                .push(" offset 0");
            add(&mut found, query).await?;
        }
    }
    if found.is_empty() || plan.newest && found.len() < ENOUGH || sample.is_of_few() && found.len() < MOST {
        let mut query = select();
        query.push(" where ");
        scope.push(&mut query);
        query.push(format_args!(" order by created_at desc, id desc limit {NEWEST}"));
        add(&mut found, query).await?;
    }
    found.sort_unstable_by_key(|log| log.id);
    Ok(found)
}

/// Begins to select what is looked at of logs.
fn select() -> QueryBuilder<Postgres> {
    // To count characters, as `left` does, costs more than to read the row.
    let cut = |text: &str, most: usize| {
        format!("case when octet_length({text}) <= {most} then {text} else left({text}, {most}) end")
    };
    QueryBuilder::new(format!(
        "select id, {} as intent, {} as program, rating from (
            select id, project, domain_name, model_used, success, rating, user_intent,
                coalesce(corrected_dsl, final_valid_dsl) as program
            from generations",
        cut("user_intent", LONGEST_INTENT),
        cut("program", LONGEST_PROGRAM)
    ))
}

/// Ends the choice of logs, and of these leaves what may be an example.
fn push_conditions(query: &mut QueryBuilder<Postgres>, scope: &Scope, wanted: &Wanted) {
    query.push(
        ") log where success and rating is distinct from 'poor' and user_intent is not null and program is not null and ",
    );
    scope.push(query);
    if let Some(model_used) = &wanted.model_used {
        query.push(" and model_used = ").push_bind(model_used.clone());
    }
    if let Some(id) = wanted.exclude_id {
        query.push(" and id <> ").push_bind(id);
    }
}
