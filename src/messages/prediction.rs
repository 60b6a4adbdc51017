//! The prediction of a send from what is stored: the visible pairs and their sizes, the model's limits, and the quotas.

use std::collections::HashMap;

use sqlx::{PgConnection, Postgres, QueryBuilder};
use uuid::Uuid;

use super::event::StartSend;
use super::models::{self, Known, ModelLimits};
use super::passed::Passed;
use super::rules::budget::{Budget, Prediction};
use super::rules::estimate::{Learned, Length, Scale};
use super::rules::quota::{self, Name, Quota, Spent};
use super::send::MOST_PAIRS;
use super::settings::{InForce, Rules};
use super::visible::Visible;
use super::{GivenPair, named};
use crate::error::{Error, FieldError, Special};

/// A pair that a send may carry, without its texts.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The pair's id: of a stored one, or the client's name for one that it sent along.
    pub id: String,
    /// The id of a stored pair; nil for one that was sent along.
    pub key: Uuid,
    /// Which text of the pair this is.
    pub revision: i32,
    /// The pair's model.
    pub model: Option<String>,
    /// The length of what a send carries of the pair.
    pub length: Length,
    /// The pair's size as measured, and of which model, if of one.
    pub measured: Option<(i64, Option<String>)>,
    /// The texts of a pair that was sent along.
    pub given: Option<GivenPair>,
}

crate::texts! {
    Candidate: given;
}

impl Candidate {
    /// Takes a pair that was sent along.
    #[must_use]
    pub fn given(pair: GivenPair) -> Self {
        let answer = pair.assistant_text.as_deref().map_or_else(Length::default, Length::of);
        Self {
            id: pair.id.clone(),
            key: Uuid::nil(),
            revision: 0,
            model: None,
            length: Length::of(&pair.user_text).and(answer),
            measured: pair.tokens.map(|tokens| (tokens, None)),
            given: Some(pair),
        }
    }

    /// Takes a turn of a conversation that goes through the gateway.
    fn turn(id: Uuid, length: Length) -> Self {
        Self { id: id.to_string(), key: id, revision: 0, model: None, length, measured: None, given: None }
    }

    /// Removes the texts.
    pub fn forget(&mut self) {
        if let Some(pair) = &mut self.given {
            pair.user_text.clear();
            pair.assistant_text = None;
        }
    }

    fn measured_for(&self, model: Option<&str>) -> Option<i64> {
        let (tokens, of) = self.measured.as_ref()?;
        of.as_deref().is_none_or(|of| Some(of) == model).then_some(*tokens)
    }
}

/// What a prediction is asked for.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The model, if it is named.
    pub model: Option<&'a str>,
    /// The model's limit, where it is given instead of the model.
    pub model_limit: Option<i64>,
    /// The visible pairs, the oldest first.
    pub pairs: Vec<Candidate>,
    /// The length of the new message.
    pub user: Length,
    /// The length of the system message.
    pub system: Length,
    /// The settings.
    pub settings: InForce,
}

/// What a send is predicted to carry.
#[derive(Debug)]
pub struct Predicted {
    /// The model. None if only its limit was given.
    pub model: Option<String>,
    /// The visible pairs, the oldest first.
    pub pairs: Vec<Candidate>,
    /// The sizes of the visible pairs.
    pub sizes: Vec<i64>,
    /// Whether the size of each visible pair was measured.
    pub measured: Vec<bool>,
    /// The limits.
    pub budget: Budget,
    /// How many of the newest pairs fit, and their size.
    pub prediction: Prediction,
    /// How many of these are dropped before the first call.
    pub preflight: usize,
    /// The most pairs that overflows may drop.
    pub max_trims: i32,
    /// The size of the new message.
    pub aut: i64,
    /// How lengths became tokens.
    pub scale: Scale,
    /// How many characters are a token in these texts.
    pub chars_per_token: Option<f64>,
    /// The quotas of the model, before the send.
    pub quota: Quota,
}

impl Predicted {
    /// The index of the oldest pair that fits.
    #[must_use]
    pub fn boundary(&self) -> usize {
        self.pairs.len() - self.prediction.count
    }

    /// How many tokens a unit was taken to be, where sizes were estimated by units.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match self.scale {
            Scale::Ratio(ratio) => Some(ratio),
            Scale::CharsPerToken(_) => None,
        }
    }

    /// The pairs that fit, the oldest first.
    #[must_use]
    pub fn included(&self) -> &[Candidate] {
        &self.pairs[self.boundary()..]
    }
}

/// Why there is no prediction.
#[derive(Debug)]
pub enum Failed {
    /// The database failed.
    Database(sqlx::Error),
    /// The request is refused.
    Refused(Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Database(error) => error.into(),
            Failed::Refused(error) => error,
        }
    }
}

/// Predicts what a send carries.
pub async fn predict(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    asked: Asked<'_>,
) -> Result<Predicted, Failed> {
    let model =
        named(asked.model).or_else(|| asked.pairs.iter().rev().find_map(|pair| pair.model.as_deref()));
    let model = model.or(rules.settings.default_model.as_deref()).filter(|model| !model.is_empty());
    let model = model.map(str::to_owned);
    let known = match &model {
        Some(model) => models::known(connection, project, model, &rules.catalog).await?,
        None => Known::default(),
    };
    let limits = known.limits;
    let max_context = match (asked.model_limit, limits, &model) {
        (Some(limit), ..) => limit,
        (None, Some(limits), _) => Budget::limit(limits.context_window, limits.tpm),
        (None, None, Some(model)) => {
            return Err(unknown_model(model).into());
        }
        (None, None, None) => {
            let detail = "must be given, as no visible pair names one and there is no default";
            return Err(Error::invalid("/model", detail).into());
        }
    };
    let ignores_quota = asked.settings.ignore_quota;
    let mut predicted = fit(asked, model, known, max_context)?;
    if let (Some(model), Some(limits)) = (&predicted.model, limits) {
        let needed = predicted.sizes[predicted.boundary() + predicted.preflight..].iter().sum::<i64>()
            + predicted.aut
            + predicted.budget.system;
        let (quota, broken) = quotas(connection, project, model, &limits, needed).await?;
        predicted.quota = quota;
        if let Some(name) = broken.filter(|_| !ignores_quota) {
            return Err(quota_broken(model, name, &predicted.quota).into());
        }
    }
    Ok(predicted)
}

/// Works out what fits, from what is known.
fn fit(asked: Asked<'_>, model: Option<String>, known: Known, max_context: i64) -> Result<Predicted, Error> {
    let Asked { pairs, user, system, settings, .. } = asked;
    let given: Vec<_> = pairs.iter().map(|pair| pair.measured_for(model.as_deref())).collect();
    let mut scale = known.scale(settings.chars_per_token);
    if let Scale::Ratio(ratio) = scale {
        // Measured sizes say how the texts of this chat relate to tokens, more than those of others do.
        let measured = || pairs.iter().zip(&given).filter_map(|(pair, tokens)| Some((pair, (*tokens)?)));
        let estimated: i64 = measured().map(|(pair, _)| scale.tokens(pair.length)).sum();
        let tokens: i64 = measured().map(|(_, tokens)| tokens).sum();
        if estimated > 0 {
            scale = Scale::Ratio(known.learned.learn(ratio, estimated, tokens).ratio);
        }
    }
    let sizes: Vec<_> = pairs
        .iter()
        .zip(&given)
        .map(|(pair, tokens)| tokens.unwrap_or_else(|| scale.tokens(pair.length)))
        .collect();
    let (aut, system_tokens) = (scale.tokens(user), scale.tokens(system));
    let budget = Budget { max_context, allowance: settings.user_request_allowance, system: system_tokens };
    if !budget.takes_prompt(aut) {
        return Err(prompt_too_large(aut, max_context));
    }
    let prediction = budget.predict(&sizes);
    let boundary = pairs.len() - prediction.count;
    let preflight = if settings.preflight_trim { budget.preflight(&sizes[boundary..], aut) } else { 0 };
    let length = pairs[boundary..].iter().fold(user.and(system), |sum, pair| sum.and(pair.length));
    let chars_per_token = scale.chars_per_token(length, prediction.history + aut + system_tokens);
    Ok(Predicted {
        measured: given.iter().map(Option::is_some).collect(),
        model,
        pairs,
        sizes,
        budget,
        prediction,
        preflight,
        max_trims: settings.max_trim_attempts,
        aut,
        scale,
        chars_per_token,
        quota: Quota::new(),
    })
}

/// Tells the sizes of a request to the gateway, which carries all that it has: the model's limit is not asked for.
pub(super) fn passed(start: &StartSend, passed: &Passed, learned: Learned, settings: InForce) -> Predicted {
    let scale = settings.chars_per_token.map_or(Scale::Ratio(learned.ratio), Scale::CharsPerToken);
    let pairs: Vec<_> = passed.turns.iter().map(|&(turn, length)| Candidate::turn(turn, length)).collect();
    let sizes: Vec<_> = pairs.iter().map(|pair| scale.tokens(pair.length)).collect();
    let (user, system) = (passed.user, passed.overhead);
    let prediction = Prediction { count: pairs.len(), history: sizes.iter().sum() };
    let (aut, system_tokens) = (scale.tokens(user), scale.tokens(system));
    let length = pairs.iter().fold(user.and(system), |sum, pair| sum.and(pair.length));
    Predicted {
        model: start.new.model.as_deref().map(str::to_owned),
        measured: vec![false; pairs.len()],
        budget: Budget { max_context: 0, allowance: 0, system: system_tokens },
        chars_per_token: scale.chars_per_token(length, prediction.history + aut + system_tokens),
        prediction,
        preflight: 0,
        max_trims: settings.max_trim_attempts,
        aut,
        scale,
        quota: Quota::new(),
        pairs,
        sizes,
    }
}

/// The refusal of a model whose limit is not known.
fn unknown_model(model: &str) -> Error {
    Error::Special(Box::new(Special {
        status: 422,
        kind: "model-unknown",
        title: "Model unknown",
        detail: format!("the context window of {model:?} is not known: PUT /v1/models/{{model}} tells it"),
        errors: Vec::new(),
        members: [("model".to_owned(), model.into())].into_iter().collect(),
        retry_after_s: None,
        headers: Vec::new(),
    }))
}

/// The refusal of a prompt that is larger than the model's limit by itself.
fn prompt_too_large(aut: i64, max_context: i64) -> Error {
    let detail = "the message alone, with the system message, is larger than the model's limit";
    Error::Special(Box::new(Special {
        status: 422,
        kind: "user-prompt-too-large",
        title: "User prompt too large",
        detail: format!("{detail}: {aut} of {max_context} tokens"),
        errors: vec![FieldError { pointer: "/user_text".to_owned(), detail: detail.to_owned() }],
        members: [
            ("kind".to_owned(), "user_prompt_too_large".into()),
            ("aut".to_owned(), aut.into()),
            ("max_context".to_owned(), max_context.into()),
        ]
        .into_iter()
        .collect(),
        retry_after_s: None,
        headers: Vec::new(),
    }))
}

/// The refusal of a send that would break a quota.
fn quota_broken(model: &str, name: Name, quota: &Quota) -> Error {
    let resets_in_s = quota.get(&name).map_or(1, |quota| quota.resets_in_s);
    Error::Special(Box::new(Special {
        status: 429,
        kind: "quota",
        title: "Quota",
        detail: format!(
            "this send would break the quota of {name} of {model:?}; it will not in {resets_in_s} seconds"
        ),
        errors: Vec::new(),
        members: [("quota".to_owned(), serde_json::to_value(quota).unwrap_or_default())]
            .into_iter()
            .collect(),
        retry_after_s: Some(resets_in_s),
        headers: Vec::new(),
    }))
}

/// Returns the quotas of a model before a send that needs so many tokens, and the one that the send would break.
pub async fn quotas(
    connection: &mut PgConnection,
    project: &str,
    model: &str,
    limits: &ModelLimits,
    needed: i64,
) -> sqlx::Result<(Quota, Option<Name>)> {
    // Of a day, calls of the same minute are taken together.
    const MINUTE: &str = "
        select greatest(floor(extract(epoch from now() - at)), 0)::bigint, tokens from send_attempts
        where project = $1 and model = $2 and at > now() - interval '1 minute' order by at";
    const DAY: &str = "
        select min(greatest(floor(extract(epoch from now() - at)), 0))::bigint, sum(tokens)::bigint from send_attempts
        where project = $1 and model = $2 and at > now() - interval '1 day'
        group by date_trunc('minute', at) order by 1 desc";
    let (mut quota, mut broken) = (Quota::new(), None);
    for (name, limit) in [(Name::Rpm, limits.rpm), (Name::Tpm, limits.tpm), (Name::Tpd, limits.tpd)] {
        let Some(limit) = limit else { continue };
        let sql = if name == Name::Tpd { DAY } else { MINUTE };
        let rows: Vec<(i64, i64)> =
            sqlx::query_as(sql).bind(project).bind(model).fetch_all(&mut *connection).await?;
        let spent = |(age, tokens)| Spent { age, amount: if name == Name::Rpm { 1 } else { tokens } };
        let spent: Vec<_> = rows.into_iter().map(spent).collect();
        let needed = if name == Name::Rpm { 1 } else { needed };
        let (used, breaks) = quota::measure(name, limit, &spent, needed);
        quota.insert(name, used);
        broken = broken.or(breaks.then_some(name));
    }
    Ok((quota, broken))
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    revision: i32,
    model: Option<String>,
    chars: i64,
    units: f64,
    tokens: Option<i64>,
    tokens_model: Option<String>,
}

impl From<Row> for Candidate {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.to_string(),
            key: row.id,
            revision: row.revision,
            model: row.model,
            length: Length { chars: row.chars, units: row.units },
            measured: row.tokens.map(|tokens| (tokens, row.tokens_model)),
            given: None,
        }
    }
}

/// Returns the visible pairs, without those that are being sent and without `except`. The oldest comes first, or they
/// come in the order in which they are named.
pub async fn visible(
    connection: &mut PgConnection,
    project: &str,
    visible: &Visible,
    except: Option<Uuid>,
) -> Result<Vec<Candidate>, Failed> {
    // An answer that is not complete is not sent, so neither does it count.
    let mut query = QueryBuilder::<Postgres>::new(
        "select p.id, p.revision, p.model, p.tokens, p.tokens_model,
            p.user_chars + case when p.lifecycle_state = 'complete' then p.assistant_chars else 0 end as chars,
            p.user_units + case when p.lifecycle_state = 'complete' then p.assistant_units else 0 end as units
        from pairs p where p.project = ",
    );
    query.push_bind(project.to_owned());
    let unsent = |query: &mut QueryBuilder<Postgres>| {
        query.push(" and p.lifecycle_state <> 'sending' and p.id is distinct from ").push_bind(except);
    };
    if let Some(ids) = &visible.ids {
        let mut known =
            QueryBuilder::<Postgres>::new("select id, user_text is not null from pairs where project = ");
        known.push_bind(project.to_owned()).push(" and id = any(").push_bind(ids.clone()).push(")");
        let known: Vec<(Uuid, bool)> = known.build_query_as().fetch_all(&mut *connection).await?;
        let known: HashMap<_, _> = known.into_iter().collect();
        let wrong = ids.iter().enumerate().filter_map(|(index, id)| {
            let detail = match known.get(id) {
                Some(true) => return None,
                Some(false) => "names a pair whose text is not kept",
                None => "names no pair of this project",
            };
            Some(FieldError { pointer: format!("/visible/ids/{index}"), detail: detail.to_owned() })
        });
        let wrong: Vec<_> = wrong.collect();
        if !wrong.is_empty() {
            return Err(Error::Invalid(wrong).into());
        }
        query.push(" and p.id = any(").push_bind(ids.clone()).push(")");
        unsent(&mut query);
        let rows: Vec<Row> = query.build_query_as().fetch_all(connection).await?;
        let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.id, row)).collect();
        return Ok(ids.iter().filter_map(|id| rows.remove(id)).map(Candidate::from).collect());
    }
    query.push(" and p.user_text is not null");
    unsent(&mut query);
    if let Some(filter) = &visible.filter {
        filter.push(&mut query);
    }
    let most = i64::try_from(MOST_PAIRS).unwrap_or(i64::MAX);
    query.push(" order by p.created_at, p.id limit ").push_bind(most + 1);
    let rows: Vec<Row> = query.build_query_as().fetch_all(connection).await?;
    if rows.len() > MOST_PAIRS {
        return Err(Error::invalid("/visible/filter", "lets more than 10000 pairs through").into());
    }
    Ok(rows.into_iter().map(Candidate::from).collect())
}

/// A message as models take it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
}

/// Returns the messages of a call: the system message, those of the pairs in their order, and the new one. Blank texts
/// make none.
#[must_use]
pub fn messages<'a>(
    system: Option<&'a str>,
    pairs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    user: Option<&'a str>,
) -> Vec<Message> {
    let pairs = pairs.into_iter().flat_map(|(user, answer)| [("user", Some(user)), ("assistant", answer)]);
    [("system", system)]
        .into_iter()
        .chain(pairs)
        .chain([("user", user)])
        .filter_map(|(role, text)| {
            let text = text.filter(|text| !text.trim().is_empty())?;
            Some(Message { role, content: text.to_owned() })
        })
        .collect()
}

/// The texts of a stored pair as they were when it was sent.
pub type Texts = HashMap<(Uuid, i32), (String, Option<String>)>;

/// Returns the texts of stored pairs, each of its revision. Those of erased pairs are missing, as are those that are not
/// kept.
pub async fn texts(
    connection: &mut PgConnection,
    project: &str,
    keys: &[(Uuid, i32)],
) -> sqlx::Result<Texts> {
    // An answer that came after the pair was sent has a revision of its own.
    const SQL: &str = "
        with sought as materialized (select unnest($2::uuid[]) as id, unnest($3::int[]) as revision)
        select s.id, s.revision, p.user_text, case when p.lifecycle_state = 'complete' then p.assistant_text end
        from sought s join pairs p on p.project = $1 and p.id = s.id and p.revision = s.revision
        where p.user_text is not null
        union all
        select s.id, s.revision, r.user_text, r.assistant_text
        from sought s join pair_revisions r on r.project = $1 and r.pair_id = s.id and r.revision = s.revision
        where r.user_text is not null";
    let (ids, revisions): (Vec<_>, Vec<_>) = keys.iter().copied().unzip();
    let rows: Vec<(Uuid, i32, String, Option<String>)> =
        sqlx::query_as(SQL).bind(project).bind(ids).bind(revisions).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(id, revision, user, answer)| ((id, revision), (user, answer))).collect())
}
