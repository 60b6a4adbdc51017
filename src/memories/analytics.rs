//! The statistics of suggestions, which show whether the confidence is accurate.

use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::SourceType;
use super::help::ItemKind;
use super::rules::intent::IntentType;
use crate::db;
use crate::error::Result;
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::statistics::{compare, rate, wilson};
use crate::types::Timestamp;

/// The bounds of the bands of confidence.
const BANDS: [f64; 8] = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0];

/// The suggestions that the statistics are computed from.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Scope {
    /// Only suggestions made at this time or later, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only suggestions made before this time, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    until: Option<Timestamp>,
}

impl Check for Scope {
    fn check(&self, checks: &mut Checks) {
        check_range(checks, self.since, self.until);
    }
}

/// The statistics of suggestions. A rate is null if its denominator is 0.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MemoryAnalytics)]
pub(super) struct Figures {
    /// The number of requests for suggestions.
    requests: i64,
    /// The number of these requests that returned suggestions.
    answered: i64,
    /// The mean confidence in the detected intent.
    mean_intent_confidence: Option<f64>,
    /// The median time for finding suggestions, in milliseconds.
    p50_took_ms: Option<f64>,
    /// The 99th percentile of the time for finding suggestions, in milliseconds.
    p99_took_ms: Option<f64>,
    /// The outcomes of all suggestions.
    total: Outcomes,
    /// The outcomes of suggestions by confidence. If the confidence is accurate, the rate in each band is close to
    /// the mean confidence.
    by_confidence: Vec<BandFigures>,
    /// The outcomes of suggestions by detected intent.
    by_intent_type: Vec<IntentFigures>,
    /// The outcomes of suggestions by kind of memory.
    by_source_type: Vec<SourceFigures>,
    /// The use of the help that agents got without a request, by kind of help.
    unasked: Vec<HelpFigures>,
}

/// The use of one kind of the help that agents got without a request. Help counts as used if the agent later opened
/// the file, or wrote something that the help mentions and the prompt does not.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnaskedHelpFigures)]
struct HelpFigures {
    /// The kind of help.
    kind: ItemKind,
    /// The use of help that was shown.
    shown: Uses,
    /// The use of help that was found but withheld, in the sessions that the setting `holdout` selects.
    held_out: Uses,
    /// The difference between the `used_rate` of shown and of withheld help. Null unless there are both.
    difference: Option<f64>,
    /// The 95 % interval of `difference`.
    difference_interval: Option<[f64; 2]>,
}

/// The use of help, shown or withheld.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnaskedHelpUses)]
struct Uses {
    /// The number of sessions with such help.
    sessions: i64,
    /// The number of times that there was such help.
    count: i64,
    /// The number of these times in which its use can be recognized.
    recognizable: i64,
    /// The number of these times in which it was used.
    used: i64,
    /// The share of used help among the help whose use can be recognized.
    used_rate: Option<f64>,
    /// The 95 % Wilson interval of `used_rate`.
    used_interval: Option<[f64; 2]>,
}

/// Help of one kind, shown or withheld.
#[derive(sqlx::FromRow)]
struct HelpRow {
    kind: ItemKind,
    held_out: bool,
    sessions: i64,
    count: i64,
    recognizable: i64,
    used: i64,
}

impl HelpFigures {
    fn of(kind: ItemKind, rows: &[HelpRow]) -> Self {
        let uses = |held_out| Uses::of(rows.iter().find(|row| row.kind == kind && row.held_out == held_out));
        let (shown, held_out) = (uses(false), uses(true));
        let compared = compare((shown.used, shown.recognizable), (held_out.used, held_out.recognizable));
        let (difference, difference_interval) =
            compared.map(|compared| (compared.difference, compared.interval)).unzip();
        Self { kind, shown, held_out, difference, difference_interval }
    }
}

impl Uses {
    fn of(row: Option<&HelpRow>) -> Self {
        let (sessions, count, recognizable, used) =
            row.map_or((0, 0, 0, 0), |row| (row.sessions, row.count, row.recognizable, row.used));
        Self {
            sessions,
            count,
            recognizable,
            used,
            used_rate: rate(used, recognizable),
            used_interval: wilson(used, recognizable),
        }
    }
}

/// The outcomes of suggestions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionOutcomes)]
struct Outcomes {
    /// The number of suggested memories.
    suggested: i64,
    /// The number of suggested memories that were used.
    used: i64,
    /// The number of suggested memories that were dismissed.
    dismissed: i64,
    /// The share of used memories among those with a verdict.
    used_rate: Option<f64>,
    /// The 95 % Wilson interval of `used_rate`.
    used_interval: Option<[f64; 2]>,
    /// The mean confidence.
    mean_confidence: Option<f64>,
}

/// The outcomes of suggestions of similar confidence.
#[derive(Debug, Serialize, ToSchema)]
struct BandFigures {
    /// The lower bound of the confidence.
    from: f64,
    /// The upper bound of the confidence, which belongs to the next band unless it is 1.
    to: f64,
    #[serde(flatten)]
    outcomes: Outcomes,
}

/// The outcomes of suggestions for one detected intent type.
#[derive(Debug, Serialize, ToSchema)]
struct IntentFigures {
    /// The detected intent type.
    intent_type: IntentType,
    #[serde(flatten)]
    outcomes: Outcomes,
}

/// The outcomes of suggestions for one kind of memory.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SourceTypeFigures)]
struct SourceFigures {
    /// The kind of text in the memories.
    source_type: SourceType,
    #[serde(flatten)]
    outcomes: Outcomes,
}

#[derive(sqlx::FromRow)]
struct Requests {
    requests: i64,
    answered: i64,
    confidence: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
}

/// The suggestions of one band, intent and kind.
#[derive(sqlx::FromRow)]
struct Row {
    band: i32,
    intent_type: IntentType,
    source_type: SourceType,
    suggested: i64,
    used: i64,
    dismissed: i64,
    confidence: f64,
}

impl Outcomes {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let (mut suggested, mut used, mut dismissed, mut confidence) = (0, 0, 0, 0.0);
        for row in rows {
            suggested += row.suggested;
            used += row.used;
            dismissed += row.dismissed;
            confidence += row.confidence;
        }
        Self {
            suggested,
            used,
            dismissed,
            used_rate: rate(used, used + dismissed),
            used_interval: wilson(used, used + dismissed),
            mean_confidence: (suggested > 0).then(|| confidence / suggested as f64),
        }
    }
}

/// Computes the statistics of a project's suggestions.
pub(super) async fn read(db: &PgPool, project: &str, scope: &Scope) -> Result<Figures> {
    let mut query = QueryBuilder::<Postgres>::new(
        "select count(*) as requests,
            count(*) filter (where exists (
                select from conversation_memories c where c.project = $1 and c.suggest_id = s.id)) as answered,
            avg(s.intent_confidence) as confidence,
            percentile_cont(0.5) within group (order by s.took_ms) as p50,
            percentile_cont(0.99) within group (order by s.took_ms) as p99
        from memory_suggests s where s.project = ",
    );
    query.push_bind(project.to_owned());
    scope.push(&mut query, "s.created_at");
    let mut snapshot = db::begin_snapshot(db).await?;
    let requests: Requests = query.build_query_as().fetch_one(&mut *snapshot).await?;
    let mut query = QueryBuilder::<Postgres>::new(
        "select least(width_bucket(c.confidence, array[0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1]::float8[]), 7) as band,
            c.intent_type, c.source_type, count(*) as suggested,
            count(*) filter (where c.verdict = 'used') as used,
            count(*) filter (where c.verdict = 'dismissed') as dismissed, sum(c.confidence) as confidence
        from conversation_memories c where c.suggest_id is not null and c.project = ",
    );
    query.push_bind(project.to_owned());
    scope.push(&mut query, "c.shown_at");
    query.push(" group by 1, 2, 3 order by 1, 2, 3");
    let rows: Vec<Row> = query.build_query_as().fetch_all(&mut *snapshot).await?;
    let mut query = QueryBuilder::<Postgres>::new(
        "select h.kind, h.held_out, count(distinct h.session_id) as sessions, count(*) as count,
            count(*) filter (where h.signs is distinct from '{}') as recognizable,
            count(*) filter (where h.used_at is not null) as used
        from unasked_help h where h.project = ",
    );
    query.push_bind(project.to_owned());
    scope.push(&mut query, "h.shown_at");
    query.push(" group by 1, 2");
    let help: Vec<HelpRow> = query.build_query_as().fetch_all(&mut *snapshot).await?;
    let bands = (1_i32..).zip(BANDS.windows(2)).map(|(band, bounds)| BandFigures {
        from: bounds[0],
        to: bounds[1],
        outcomes: Outcomes::of(rows.iter().filter(|row| row.band == band)),
    });
    let intents = IntentType::ALL.map(|intent_type| IntentFigures {
        intent_type,
        outcomes: Outcomes::of(rows.iter().filter(|row| row.intent_type == intent_type)),
    });
    let sources = [SourceType::Memory, SourceType::Code].map(|source_type| SourceFigures {
        source_type,
        outcomes: Outcomes::of(rows.iter().filter(|row| row.source_type == source_type)),
    });
    Ok(Figures {
        requests: requests.requests,
        answered: requests.answered,
        mean_intent_confidence: requests.confidence,
        p50_took_ms: requests.p50,
        p99_took_ms: requests.p99,
        total: Outcomes::of(rows.iter()),
        by_confidence: bands.collect(),
        by_intent_type: intents.into_iter().collect(),
        by_source_type: sources.into_iter().collect(),
        unasked: ItemKind::ALL.map(|kind| HelpFigures::of(kind, &help)).into_iter().collect(),
    })
}

impl Scope {
    fn push(&self, query: &mut QueryBuilder<Postgres>, at: &str) {
        if let Some(since) = self.since {
            query.push(format_args!(" and {at} >= ")).push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(format_args!(" and {at} < ")).push_bind(until);
        }
    }
}
