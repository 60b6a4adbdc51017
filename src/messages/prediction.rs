//! The prediction of a send from what is stored: the visible pairs and their sizes, the model's limits, and the quotas.

use sqlx::PgConnection;

use super::candidates::Candidate;
use super::event::StartSend;
use super::models::{self, Catalog, Known, ModelLimits};
use super::named;
use super::passed::Passed;
use super::refusals::{Failed, prompt_too_large, quota_broken, unknown_model};
use super::rules::budget::{Budget, Prediction};
use super::rules::estimate::{Learned, Length, Scale};
use super::rules::quota::{self, Name, Quota, Spent};
use super::settings::{InForce, Rules};
use crate::error::Error;

/// The input of a prediction.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The model, if it is named.
    pub model: Option<&'a str>,
    /// The limit, if it is given instead of the model.
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

/// The result of a prediction.
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
    /// The limits that the prediction used.
    pub budget: Budget,
    /// The number of newest pairs that fit, and their size.
    pub prediction: Prediction,
    /// The number of these pairs that are dropped before the first call.
    pub preflight: usize,
    /// The maximum number of pairs that overflows may drop.
    pub max_trims: i32,
    /// The size of the new message.
    pub aut: i64,
    /// How lengths became tokens.
    pub scale: Scale,
    /// Whether the provider counts more than these lengths, so that its usage says nothing of the scale.
    pub has_more: bool,
    /// The number of characters per token in these texts.
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

    /// The number of tokens per unit, if sizes were estimated by units and the usage can tell how well.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match self.scale {
            Scale::Ratio(ratio) if !self.has_more => Some(ratio),
            _ => None,
        }
    }

    /// The pairs that fit, the oldest first.
    #[must_use]
    pub fn included(&self) -> &[Candidate] {
        &self.pairs[self.boundary()..]
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
            let detail = "must be given because no visible pair names a model and there is no default";
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

/// The maximum number of characters that one send carries.
const MOST_CHARS: i64 = 16 << 20;

/// Computes what fits.
fn fit(asked: Asked<'_>, model: Option<String>, known: Known, max_context: i64) -> Result<Predicted, Error> {
    let Asked { pairs, user, system, settings, .. } = asked;
    let given: Vec<_> = pairs.iter().map(|pair| pair.measured_for(model.as_deref())).collect();
    let mut scale = known.scale(settings.chars_per_token);
    if let Scale::Ratio(ratio) = scale {
        // Measured sizes of this chat predict the ratio of its texts to tokens better than those of other chats.
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
    if length.chars > MOST_CHARS {
        let detail = format!("matches pairs with more than {MOST_CHARS} characters, which no model accepts");
        return Err(Error::invalid("/visible", detail));
    }
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
        has_more: false,
        chars_per_token,
        quota: Quota::new(),
    })
}

/// Returns the sizes of a request to the gateway, which contains all of its messages, so that no limit is needed.
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
        has_more: passed.has_more,
        quota: Quota::new(),
        pairs,
        sizes,
    }
}

/// Lets one transaction at a time begin sends in a project in which a model may have quotas, so that each knows what the others
/// use.
pub(super) async fn lock_quotas(
    connection: &mut PgConnection,
    project: &str,
    catalog: &Catalog,
) -> sqlx::Result<()> {
    const LOCK: &str = "
        select pg_advisory_xact_lock(hashtext('gleaner quotas of ' || $1))
        where $2 or exists (select from models where project = $1 and coalesce(rpm, tpm, tpd) is not null)";
    sqlx::query(LOCK).bind(project).bind(catalog.has_quotas()).execute(connection).await?;
    Ok(())
}

/// Returns the quotas of a model before a send that needs so many tokens, and the quota that the send would exceed.
pub async fn quotas(
    connection: &mut PgConnection,
    project: &str,
    model: &str,
    limits: &ModelLimits,
    needed: i64,
) -> sqlx::Result<(Quota, Option<Name>)> {
    // A send whose next call has not been reported uses what that call is estimated to. One that was cancelled, or whose server
    // has gone, may have had a call under way that the provider counts, unless the client makes the calls.
    // Calls of the same second, or minute of a day, are taken together.
    const CALLS: &str = "
        with call as (
            select at, tokens from send_attempts
            where project = $1 and model = $2 and at > now() - $3 * interval '1 second'
            union all
            select created_at, aut + system_tokens
                + (select coalesce(sum(size), 0) from unnest(selected_tokens[trimmed_count + 1:]) size)
            from sends
            where project = $1 and model = $2 and created_at > now() - $3 * interval '1 second' and (
                state = 'sending' and stage in ('initial', 'preflight', 'overflow_initial', 'overflow_retry')
                or stage in ('cancelled', 'interrupted') and mode <> 'record')
        )
        select min(greatest(floor(extract(epoch from now() - at)), 0))::bigint, count(*), sum(tokens)::bigint
        from call group by date_trunc($4, at) order by 1 desc";
    let (mut quota, mut broken) = (Quota::new(), None);
    for (name, limit) in [(Name::Rpm, limits.rpm), (Name::Tpm, limits.tpm), (Name::Tpd, limits.tpd)] {
        let Some(limit) = limit else { continue };
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(CALLS)
            .bind(project)
            .bind(model)
            .bind(name.period())
            .bind(if name == Name::Tpd { "minute" } else { "second" })
            .fetch_all(&mut *connection)
            .await?;
        let is_requests = name == Name::Rpm;
        let spent = |(age, calls, tokens)| Spent { age, amount: if is_requests { calls } else { tokens } };
        let spent: Vec<_> = rows.into_iter().map(spent).collect();
        let (used, breaks) = quota::measure(name, limit, &spent, if is_requests { 1 } else { needed });
        quota.insert(name, used);
        broken = broken.or(breaks.then_some(name));
    }
    Ok((quota, broken))
}
