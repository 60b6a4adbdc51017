//! Suggestion history: finalized records as lines of the file `suggestion_history.jsonl`, each of which is complete
//! by itself.

use std::borrow::Cow;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::{IntoParams, ToSchema};

use super::slates::{METADATA, Metadata, SLATES, TEXTS, Texts, object, on_one_line, push_conditions};
use crate::exports::format::{Example, Shape};
use crate::exports::params::Common;
use crate::exports::schema;
use crate::exports::selection::Selection;
use crate::exports::split::{Contents, Split};
use crate::exports::{Dataset, Described, Description, Lines, RowKey};
use crate::http::Checks;
use crate::suggestions::{MatchType, Reported};

/// The parameters of the suggestion history.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct SuggestionHistory {
    /// Only records of this agent session.
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only records of sessions on this server.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
}

/// A line, with the names and the order of the seed.
#[derive(Serialize, ToSchema)]
struct Line<'a> {
    ts: f64,
    session: Option<&'a str>,
    server: Option<&'a str>,
    trigger_block: Option<i32>,
    result_block: Option<i32>,
    #[schema(value_type = Option<Object>)]
    context: Option<Cow<'a, RawValue>>,
    #[schema(value_type = Option<Object>)]
    llm_request: Option<Cow<'a, RawValue>>,
    #[schema(value_type = Option<Object>)]
    llm_response: Option<Cow<'a, RawValue>>,
    suggestions: Vec<String>,
    suggestion_node_version: Option<&'a str>,
    viewed_indices: Vec<i32>,
    cycle_count: i32,
    displayed_index_at_submit: i32,
    accepted_index: Option<i32>,
    actual_input: &'a str,
    match_type: Option<MatchType>,
    time_to_action_ms: Option<f64>,
}

impl Described for SuggestionHistory {
    const DESCRIPTION: Description = Description {
        name: "suggestion-history",
        summary: "Finalized records as self-contained lines of `suggestion_history.jsonl`.",
        notes: "`gleaner import` and `POST /v1/events` accept these lines. Values that a client reported itself are exported as reported.",
        shapes: &[Shape::Raw],
        raw: Some(schema::of::<Line<'_>>),
        metadata: Some(schema::of::<Metadata>),
        split: Split::BySession,
        tables: &["suggestions"],
        count: None,
        skipped: Some("from suggestions where project = $1 and state = 'finalized' and slate_hash is null"),
    };
}

impl Dataset for SuggestionHistory {
    fn check(&self, _: Shape, _: &mut Checks) {}

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, _: Shape) {
        query.push(" from suggestions s where s.project = $1");
        self.push_conditions(query, common);
        if common.is_exact() {
            // A posted record has its own time, so that only lines that were imported can be equal.
            query.push(" and (s.reported is null or (true");
            let equal = "older.state = 'finalized' and older.reported is not null and older.request_hash = s.request_hash";
            Selection { equal, ..SLATES }.push_oldest(query, |query| {
                self.push_conditions(query, common);
                query.push(" and s.reported is not null");
            });
            query.push("))");
        }
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["s.completed_at", "s.id", "0"]
    }

    fn columns(&self, _: &Common, _: Shape) -> String {
        format!("{TEXTS}, s.llm_response, s.reported{METADATA}")
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let texts = Texts::of(row)?;
        let reported: Option<Json<Reported>> = row.try_get("reported")?;
        let reported = reported.map(|Json(reported)| reported).unwrap_or_default();
        let judged = reported.match_type.is_some() || reported.accepted_index.is_some();
        let (match_type, accepted_index) = if judged {
            (reported.match_type, reported.accepted_index)
        } else {
            (row.try_get("match_type")?, row.try_get("accepted_index")?)
        };
        let ours: Option<f64> = row.try_get("time_to_action_ms")?;
        let line = Line {
            ts: reported.ts.unwrap_or(key.completed_at.micros() as f64 / 1e6),
            session: row.try_get("session_name")?,
            server: row.try_get("server_name")?,
            trigger_block: row.try_get("trigger_block_number")?,
            result_block: row.try_get("result_block_number")?,
            context: on_one_line(object(row, "context")?)?,
            llm_request: on_one_line(object(row, "llm_request")?)?,
            llm_response: on_one_line(object(row, "llm_response")?)?,
            suggestions: texts.suggestions,
            suggestion_node_version: row.try_get("suggestion_node_version")?,
            viewed_indices: reported.viewed_indices.map_or_else(|| row.try_get("viewed_indices"), Ok)?,
            cycle_count: reported.cycle_count.map_or_else(|| row.try_get("cycle_count"), Ok)?,
            displayed_index_at_submit: reported
                .displayed_index_at_submit
                .map_or_else(|| row.try_get("displayed_index"), Ok)?,
            accepted_index,
            actual_input: texts.input,
            match_type,
            time_to_action_ms: reported.time_to_action_ms.or(ours),
        };
        lines.write(Example::Raw(line), Metadata::of(row, key, common)?)
    }
}

impl SuggestionHistory {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common) {
        query.push(" and s.slate_hash is not null");
        for (column, value) in [("session_name", &self.session), ("server_name", &self.server)] {
            if let Some(value) = value {
                query.push(format_args!(" and s.{column} = ")).push_bind(value.clone());
            }
        }
        push_conditions(query, None, None, common, Contents::None);
    }
}
