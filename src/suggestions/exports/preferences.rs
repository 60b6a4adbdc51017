//! Preference pairs: what a user submitted, preferred to suggestions that they viewed but did not choose. The write
//! that finalizes a record stores which texts form pairs.

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::slates::{
    BY_REQUEST, INPUT, METADATA, MatchTypes, Metadata, REQUEST, SOURCE, TEXTS, Texts, WITHOUT_TEXT, kinds,
    push_conditions,
};
use crate::exports::chat::Message;
use crate::exports::format::{Example, Shape};
use crate::exports::groups::Comparison;
use crate::exports::params::Common;
use crate::exports::schema;
use crate::exports::selection::Selection;
use crate::exports::split::{self, Contents, Split};
use crate::exports::text::{QuestionAndAnswer, Text};
use crate::exports::{Dataset, Described, Description, Lines, RowKey};
use crate::http::{Checks, flag};
use crate::suggestions::MatchType;

/// The parameters of preference pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct PreferencePairs {
    /// How the submitted text relates to the slate: exact, partial, prefix or none, or several of these separated by
    /// commas. The default is exact.
    #[arg(long, value_name = "KINDS")]
    #[param(value_type = Option<String>, pattern = r"^(exact|partial|prefix|none)(,(exact|partial|prefix|none))*$",
        example = "exact,partial")]
    match_type: Option<MatchTypes>,
    /// Only records whose slate was made by this version of the prompt or node.
    #[arg(long, value_name = "NAME")]
    suggestion_node_version: Option<String>,
    /// Whether texts that users typed themselves are exported too. If match_type is not given, this adds texts that
    /// match in part or not at all.
    #[arg(long)]
    #[serde(deserialize_with = "flag")]
    include_typed: bool,
}

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    prompt: Vec<Message<'a>>,
    chosen: &'a str,
    rejected: &'a str,
    chosen_index: Option<i32>,
    rejected_index: i32,
    match_type: MatchType,
    suggestion_id: Uuid,
}

impl Described for PreferencePairs {
    const DESCRIPTION: Description = Description {
        name: "preference-pairs",
        summary: "Suggestions that users chose, each paired with one that they viewed but did not choose.",
        notes: "A row is a pair of texts, or in `trl-kto` a single text that was chosen or rejected. Suggestions that were not \
            viewed are left out. The prompt is `llm_request.messages` or `llm_request.input`, or the context as one user \
            message. By default, only exact matches are exported; for other match types, the chosen text is what the user typed.",
        shapes: &[Shape::Preference, Shape::Label, Shape::Raw],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata>),
        split: Split::ByTexts(&SOURCE),
        tables: &["suggestions", "preference_labels"],
        count: Some(
            "from suggestions s
            join preference_labels l on l.project = $1 and l.completed_at = s.completed_at and l.suggestion_id = s.id
            where s.project = $1 and s.state = 'finalized' and s.match_type = 'exact' and l.pair_hash is not null",
        ),
        skipped: Some(WITHOUT_TEXT),
    };
}

/// The rows, with the record `s`.
///
/// Because of `offset`, a record is found by its id. The planner expects a single record of a version that is not in its
/// statistics, and might otherwise read all records of it for each row.
const FROM: &str = "preference_labels l
    cross join lateral (select * from suggestions s where s.project = $1 and s.id = l.suggestion_id offset 0) s";

/// The text of a label: the one that was rejected, or what was submitted.
const LABELED: Text<'_> = Text {
    kind: "input",
    sql: "case when l.rejected_index < 0 then s.actual_input else s.suggestions ->> l.rejected_index end",
};

/// Returns the answer that a row teaches.
fn answer(shape: Shape) -> Text<'static> {
    if shape == Shape::Label { LABELED } else { INPUT }
}

impl Dataset for PreferencePairs {
    fn check(&self, _: Shape, checks: &mut Checks) {
        MatchTypes::check_typed(self.match_type.as_ref(), self.include_typed, checks);
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        let equal = match shape {
            Shape::Label => "older.label_hash = l.label_hash",
            _ => "older.pair_hash = l.pair_hash",
        };
        let rows = Selection {
            from: FROM,
            table: "preference_labels",
            alias: "l",
            key: &["completed_at", "suggestion_id", "rejected_index"],
            equal,
            answer: Some(answer(shape)),
            comparison: self.comparison(),
        };
        common.push_selection(query, &rows, |query| self.push_conditions(query, common, shape));
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["l.completed_at", "l.suggestion_id", "l.rejected_index"]
    }

    fn columns(&self, common: &Common, _: Shape) -> String {
        let metadata = if common.with_metadata() { METADATA } else { ", s.match_type, s.accepted_index" };
        format!("{TEXTS}{metadata}")
    }

    fn texts(&self, shape: Shape) -> Option<QuestionAndAnswer> {
        let column = (shape != Shape::Label).then_some("actual_input");
        Some([(REQUEST, None), (answer(shape), column)])
    }

    fn comparison(&self) -> Option<&'static Comparison> {
        Some(&BY_REQUEST)
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let texts = Texts::of(row)?;
        let metadata = Metadata::of(row, key, common)?;
        let prompt = texts.prompt().with_system(common.system.as_deref());
        let (chosen, rejected) = (texts.input, texts.suggestion(key.row));
        let example = match lines.shape() {
            Shape::Label => {
                Example::Label { prompt, answer: rejected.unwrap_or(chosen), chosen: rejected.is_none() }
            }
            Shape::Raw => Example::Raw(Raw {
                prompt: prompt.messages,
                chosen,
                rejected: rejected.unwrap_or_default(),
                chosen_index: row.try_get("accepted_index")?,
                rejected_index: key.row,
                match_type: row.try_get("match_type")?,
                suggestion_id: key.record_id,
            }),
            _ => Example::Preference { prompt, chosen, rejected: rejected.unwrap_or_default() },
        };
        lines.write(example, metadata)
    }
}

impl PreferencePairs {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        if shape != Shape::Label {
            query.push(" and l.pair_hash is not null");
        }
        let kinds = kinds(self.match_type.as_ref(), self.include_typed);
        // A label has no other text.
        let others = match shape {
            Shape::Label => "",
            _ => ", split_hash('input', s.suggestions ->> l.rejected_index)",
        };
        let texts = split::Texts {
            domain: SOURCE.domain,
            record: "s.id",
            question: REQUEST,
            answer: answer(shape),
            exported: answer(shape).sql,
            completed_at: "l.completed_at",
            others,
        };
        let version = self.suggestion_node_version.as_deref();
        push_conditions(query, Some(&kinds), version, common, Contents::Texts(texts));
    }
}
