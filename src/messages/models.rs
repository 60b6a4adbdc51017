//! The limits of models, from the providers file or set for a project, and the ratios learned from reported usage.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor};
use utoipa::ToSchema;

use super::check_tokens;
use super::rules::estimate::{Learned, Scale};
use crate::error::Result;
use crate::http::{Check, Checks};
use crate::types::Timestamp;

/// The limits of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema, sqlx::FromRow)]
#[serde(deny_unknown_fields)]
pub struct ModelLimits {
    /// The size of the model's context window, in tokens.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub context_window: i64,
    /// The maximum number of tokens per minute.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_i64)]
    pub tpm: Option<i64>,
    /// The maximum number of requests per minute.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_i64)]
    pub rpm: Option<i64>,
    /// The maximum number of tokens per day.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_i64)]
    pub tpd: Option<i64>,
    /// The number of characters per token. By default, sizes are estimated from the kind of text and the usage that
    /// the provider reported for the model.
    #[schema(minimum = 0.1, maximum = 100)]
    pub chars_per_token: Option<f64>,
}

impl Check for ModelLimits {
    fn check(&self, checks: &mut Checks) {
        checks.require(self.context_window >= 1, "context_window", "must be 1 or more");
        check_tokens(checks, "context_window", Some(self.context_window.max(1)));
        for (field, limit) in [("tpm", self.tpm), ("rpm", self.rpm), ("tpd", self.tpd)] {
            let fits = limit.is_none_or(|limit| (1..=1_000_000_000_000).contains(&limit));
            checks.require(fits, field, "must be from 1 to 1000000000000");
        }
        let fits = self.chars_per_token.is_none_or(|chars| (0.1..=100.0).contains(&chars));
        checks.require(fits, "chars_per_token", "must be from 0.1 to 100");
    }
}

/// A model with its limits.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Model {
    /// The model's name.
    pub model: String,
    /// The size of the model's context window, in tokens.
    pub context_window: i64,
    /// The maximum number of tokens per minute.
    pub tpm: Option<i64>,
    /// The maximum number of requests per minute.
    pub rpm: Option<i64>,
    /// The maximum number of tokens per day.
    pub tpd: Option<i64>,
    /// The number of characters per token.
    pub chars_per_token: Option<f64>,
    /// The source of the limits.
    pub source: ModelSource,
    /// The learned correction of size estimates: the ratio of reported tokens to estimated ones. Null if no usage was
    /// reported.
    pub ratio: Option<f64>,
    /// When the limits were set for the project.
    pub updated_at: Option<Timestamp>,
}

impl Model {
    /// Returns the model's limits.
    #[must_use]
    pub fn limits(&self) -> ModelLimits {
        let Self { context_window, tpm, rpm, tpd, chars_per_token, .. } = *self;
        ModelLimits { context_window, tpm, rpm, tpd, chars_per_token }
    }
}

/// The source of a model's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelSource {
    /// The project has set them.
    Project,
    /// The limits are in the providers file.
    File,
}

/// The models in the providers file, with their limits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog(HashMap<String, ModelLimits>);

impl Catalog {
    /// Makes the catalog of these models. Of those with the same name, the first counts.
    pub fn new(models: impl IntoIterator<Item = (String, ModelLimits)>) -> Self {
        let mut known = HashMap::new();
        for (name, limits) in models {
            known.entry(name).or_insert(limits);
        }
        Self(known)
    }

    /// Returns the limits of a model, which may be named as `provider/model`.
    #[must_use]
    pub fn find(&self, model: &str) -> Option<ModelLimits> {
        self.0.get(model).or_else(|| self.0.get(model.split_once('/')?.1)).copied()
    }

    /// Returns whether any model has a quota.
    pub(super) fn has_quotas(&self) -> bool {
        self.0.values().any(|limits| limits.rpm.or(limits.tpm).or(limits.tpd).is_some())
    }

    fn iter(&self) -> impl Iterator<Item = (&String, &ModelLimits)> {
        self.0.iter()
    }
}

/// How long a learned ratio is used before it is read again, because another server may have learned something.
const FRESH: Duration = Duration::from_secs(10);
/// How many ratios are remembered before all are forgotten: clients choose the names of models.
const MANY_RATIOS: usize = 10_000;

/// The learned ratios of models that were read lately, so that a request to the gateway does not wait for them.
#[derive(Debug, Default)]
pub struct Ratios(Mutex<HashMap<(String, String), (Learned, Instant)>>);

impl Ratios {
    fn all(&self) -> MutexGuard<'_, HashMap<(String, String), (Learned, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the ratio of a project's model.
    pub(super) fn note(&self, project: &str, model: &str, learned: Learned) {
        let mut all = self.all();
        if all.len() >= MANY_RATIOS {
            all.clear();
        }
        all.insert((project.to_owned(), model.to_owned()), (learned, Instant::now()));
    }

    fn fresh(&self, project: &str, model: &str) -> Option<Learned> {
        let found = self.all().get(&(project.to_owned(), model.to_owned())).copied();
        found.filter(|(_, read)| read.elapsed() < FRESH).map(|(learned, _)| learned)
    }

    /// Returns the learned ratios of these models. Those that were not read lately are read from the database.
    pub(super) async fn of(
        &self,
        db: impl PgExecutor<'_>,
        project: &str,
        models: BTreeSet<&str>,
    ) -> sqlx::Result<HashMap<String, Learned>> {
        let mut ratios = HashMap::new();
        let mut stale = Vec::new();
        for model in models {
            match self.fresh(project, model) {
                Some(learned) => drop(ratios.insert(model.to_owned(), learned)),
                None => stale.push(model),
            }
        }
        if stale.is_empty() {
            return Ok(ratios);
        }
        let mut found = all_learned(db, project, &stale).await?;
        for model in stale {
            let learned = found.remove(model).unwrap_or_default();
            self.note(project, model, learned);
            ratios.insert(model.to_owned(), learned);
        }
        Ok(ratios)
    }
}

/// What predictions use for a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// The model's limits, if they are known.
    pub limits: Option<ModelLimits>,
    /// The ratio learned from reported usage.
    pub learned: Learned,
}

impl Known {
    /// Returns how lengths become tokens. `chars_per_token` is what the settings say.
    #[must_use]
    pub fn scale(&self, chars_per_token: Option<f64>) -> Scale {
        let own = self.limits.and_then(|limits| limits.chars_per_token);
        chars_per_token.or(own).map_or(Scale::Ratio(self.learned.ratio), Scale::CharsPerToken)
    }
}

/// Returns a model's limits and ratio.
pub async fn known(
    connection: &mut PgConnection,
    project: &str,
    model: &str,
    catalog: &Catalog,
) -> sqlx::Result<Known> {
    let sql =
        "select context_window, tpm, rpm, tpd, chars_per_token from models where project = $1 and name = $2";
    let limits: Option<ModelLimits> =
        sqlx::query_as(sql).bind(project).bind(model).fetch_optional(&mut *connection).await?;
    let learned = learned(connection, project, model).await?;
    Ok(Known { limits: limits.or_else(|| catalog.find(model)), learned })
}

/// Returns what was learned of these models, by their names. Models of which nothing was learned are missing.
async fn all_learned(
    db: impl PgExecutor<'_>,
    project: &str,
    models: &[&str],
) -> sqlx::Result<HashMap<String, Learned>> {
    let sql = "select model, ratio, weight from model_ratios where project = $1 and model = any($2)";
    let found: Vec<(String, f64, f64)> = sqlx::query_as(sql).bind(project).bind(models).fetch_all(db).await?;
    Ok(found.into_iter().map(|(model, ratio, weight)| (model, Learned { ratio, weight })).collect())
}

/// Returns the learned ratio of a model.
pub async fn learned(db: impl PgExecutor<'_>, project: &str, model: &str) -> sqlx::Result<Learned> {
    let sql = "select ratio, weight from model_ratios where project = $1 and model = $2";
    let found: Option<(f64, f64)> = sqlx::query_as(sql).bind(project).bind(model).fetch_optional(db).await?;
    Ok(found.map_or_else(Learned::default, |(ratio, weight)| Learned { ratio, weight }))
}

/// Sets the limits of a model. Returns whether the project had none of it before.
pub async fn put(db: impl PgExecutor<'_>, project: &str, model: &str, limits: &ModelLimits) -> Result<bool> {
    // In a row version that no update has made, `xmax` is zero.
    let sql = "insert into models (project, name, context_window, tpm, rpm, tpd, chars_per_token, updated_at)
               values ($1, $2, $3, $4, $5, $6, $7, $8)
               on conflict (name, project) do update set context_window = excluded.context_window, tpm = excluded.tpm,
                   rpm = excluded.rpm, tpd = excluded.tpd, chars_per_token = excluded.chars_per_token,
                   updated_at = excluded.updated_at
               returning xmax = 0";
    Ok(sqlx::query_scalar(sql)
        .bind(project)
        .bind(model)
        .bind(limits.context_window)
        .bind(limits.tpm)
        .bind(limits.rpm)
        .bind(limits.tpd)
        .bind(limits.chars_per_token)
        .bind(Timestamp::now())
        .fetch_one(db)
        .await?)
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    #[sqlx(flatten)]
    limits: ModelLimits,
    updated_at: Timestamp,
}

/// Returns every model with known limits, ordered by name.
pub async fn list(connection: &mut PgConnection, project: &str, catalog: &Catalog) -> Result<Vec<Model>> {
    let sql = "select name, context_window, tpm, rpm, tpd, chars_per_token, updated_at from models where project = $1";
    let own: Vec<Row> = sqlx::query_as(sql).bind(project).fetch_all(&mut *connection).await?;
    // Clients choose the names of models, so that far more may have a ratio than are known.
    let names: Vec<_> = own.iter().map(|row| &row.name).chain(catalog.0.keys()).map(String::as_str).collect();
    let learned = all_learned(connection, project, &names).await?;
    let model = |name: &str, limits: ModelLimits, updated_at: Option<Timestamp>| Model {
        model: name.to_owned(),
        context_window: limits.context_window,
        tpm: limits.tpm,
        rpm: limits.rpm,
        tpd: limits.tpd,
        chars_per_token: limits.chars_per_token,
        source: if updated_at.is_some() { ModelSource::Project } else { ModelSource::File },
        ratio: learned.get(name).map(|learned| learned.ratio),
        updated_at,
    };
    let mut models: Vec<_> =
        own.iter().map(|row| model(&row.name, row.limits, Some(row.updated_at))).collect();
    let of_file = catalog.iter().filter(|(name, _)| own.iter().all(|row| row.name != **name));
    models.extend(of_file.map(|(name, limits)| model(name, *limits, None)));
    models.sort_unstable_by(|a, b| a.model.cmp(&b.model));
    Ok(models)
}
