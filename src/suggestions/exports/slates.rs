//! What the data sets of suggestion records share: which rows they have, and how these are read and described.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::exports::RowKey;
use crate::exports::chat::Prompt;
use crate::exports::groups::{Comparison, Source};
use crate::exports::params::Common;
use crate::exports::selection::Selection;
use crate::exports::split::{Contents, Sides};
use crate::exports::text::Text;
use crate::http::Checks;
use crate::suggestions::MatchType;
use crate::suggestions::rules::prompt;
use crate::types::Timestamp;

/// Kinds of matches, separated by commas.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct MatchTypes(Vec<MatchType>);

impl fmt::Debug for MatchTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MatchTypes {
    type Err = String;

    /// Their order does not matter.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut kinds = text.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
        kinds.sort_unstable();
        kinds.dedup();
        Ok(Self(kinds))
    }
}

impl<'de> Deserialize<'de> for MatchTypes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl MatchTypes {
    /// Rejects kinds of matches without an accepted suggestion, unless typed texts are included.
    pub(super) fn check_typed(kinds: Option<&Self>, include_typed: bool, checks: &mut Checks) {
        let typed = kinds.is_some_and(|kinds| kinds.0.contains(&MatchType::None));
        checks.require(include_typed || !typed, "include_typed", "must be true if match_type includes none");
    }
}

/// Adds the conditions on the record `s`: it is finalized, and has one of these kinds of matches and this version.
pub(super) fn push_conditions(
    query: &mut QueryBuilder<Postgres>,
    kinds: Option<&[MatchType]>,
    version: Option<&str>,
    common: &Common,
    contents: Contents<'_>,
) {
    query.push(" and s.state = 'finalized'");
    if let Some(kinds) = kinds {
        let names: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        query.push(" and s.match_type = any(").push_bind(names).push(")");
    }
    if let Some(version) = version {
        query.push(" and s.suggestion_node_version = ").push_bind(version.to_owned());
    }
    common.push(query, "s.created_at", &Sides { session: SESSION, contents });
}

/// The records `s` as rows, of which equal ones have the same slate.
pub(super) const SLATES: Selection<'_> = Selection {
    from: "suggestions s",
    table: "suggestions",
    alias: "s",
    key: &["completed_at", "id"],
    equal: "older.state = 'finalized' and older.slate_hash = s.slate_hash",
    answer: None,
    comparison: None,
};

/// The SQL of the records that are left out of data sets of exact matches because, without their text, it is not
/// known whether they are one.
pub(super) const WITHOUT_TEXT: &str =
    "from suggestions where project = $1 and state = 'finalized' and slate_hash is null
        and (match_type = 'exact' or match_type is null)";

/// The SQL of what decides on the part of a split, if texts do not.
const SESSION: &str = "coalesce(s.session_name, s.id::text)";

/// The messages that were sent to the model, as a question.
pub(super) const REQUEST: Text<'_> =
    Text { kind: "prompt", sql: "prompt_text(prompt_of(s.llm_request, s.request_is_readable, s.context))" };

/// The context, as a question.
pub(super) const CONTEXT: Text<'_> = Text { kind: "prompt", sql: "prompt_text(s.context)" };

/// What was submitted, as an answer.
pub(super) const INPUT: Text<'_> = Text { kind: "input", sql: "s.actual_input" };

/// The source of the texts of records: the prompts of models, and what users chose and did not choose.
pub(super) static SOURCE: Source = Source {
    domain: "suggestions",
    sql: "
        select s.id as record, s.completed_at,
            split_hash('prompt', prompt_text(prompt_of(s.llm_request, s.request_is_readable, s.context))) as question,
            array(
                select split_hash('prompt', prompt_text(s.context))
                union all select split_hash('input', s.actual_input) where has_text(s.actual_input)
                union all select split_hash('input', offered.text) from preference_labels l
                    join json_array_elements_text(s.suggestions) with ordinality as offered (text, number)
                        on offered.number - 1 = l.rejected_index
                    where l.project = $1 and l.completed_at = s.completed_at and l.suggestion_id = s.id
            ) as answers
        from (
            select s.*, sum(own.effort) over (order by s.completed_at, s.id) - own.effort as before
            from (
                select * from suggestions s
                where s.project = $1 and s.state = 'finalized' and s.slate_hash is not null and s.completed_at < $4
                    and (s.completed_at, s.id) >
                        (coalesce($2, '-infinity'), coalesce($3, '00000000-0000-0000-0000-000000000000'))
                order by s.completed_at, s.id limit $5
            ) s cross join lateral (
                select s.suggestion_count + coalesce(sum(octet_length(text)), 0) / 1024 as effort
                from (values (s.context::text), (s.llm_request::text), (s.suggestions::text), (s.actual_input)) own (text)
            ) own
        ) s
        where s.before < 20000 order by s.completed_at, s.id",
    comparisons: &[&BY_REQUEST, &BY_CONTEXT],
};

/// The comparison of records by the messages that were sent to the model, and what was submitted.
pub(super) static BY_REQUEST: Comparison = Comparison {
    work: "near suggestions",
    sql: "
        select s.id as record, s.completed_at,
            left(prompt_of(s.llm_request, s.request_is_readable, s.context)::text, 16384)
                || E'\n' || left(s.actual_input, 16384) as text
        from suggestions s
        where s.project = $1 and s.state = 'finalized' and s.slate_hash is not null and s.completed_at < $4
            and (s.completed_at, s.id) >
                (coalesce($2, '-infinity'), coalesce($3, '00000000-0000-0000-0000-000000000000'))
        order by s.completed_at, s.id limit $5",
};

/// The comparison of records by the context, and what was submitted.
pub(super) static BY_CONTEXT: Comparison = Comparison {
    work: "near suggestions by context",
    sql: "
        select s.id as record, s.completed_at,
            left(s.context::text, 16384) || E'\n' || left(s.actual_input, 16384) as text
        from suggestions s
        where s.project = $1 and s.state = 'finalized' and s.slate_hash is not null and s.completed_at < $4
            and (s.completed_at, s.id) >
                (coalesce($2, '-infinity'), coalesce($3, '00000000-0000-0000-0000-000000000000'))
        order by s.completed_at, s.id limit $5",
};

/// Returns the kinds of matches that are exported: by default exact ones, and with `include_typed` also others.
pub(super) fn kinds(asked: Option<&MatchTypes>, include_typed: bool) -> Vec<MatchType> {
    match asked {
        Some(MatchTypes(kinds)) => kinds.clone(),
        None if include_typed => vec![MatchType::Exact, MatchType::Partial, MatchType::None],
        None => vec![MatchType::Exact],
    }
}

impl MatchTypes {
    pub(super) fn as_slice(&self) -> &[MatchType] {
        &self.0
    }
}

/// The columns of [`Texts`].
pub(super) const TEXTS: &str = "s.context, s.llm_request, s.suggestions, s.actual_input";

/// The texts of a record.
pub(super) struct Texts<'r> {
    pub(super) context: &'r str,
    pub(super) llm_request: Option<&'r str>,
    pub(super) suggestions: Vec<String>,
    pub(super) input: &'r str,
}

impl<'r> Texts<'r> {
    pub(super) fn of(row: &'r PgRow) -> sqlx::Result<Self> {
        let Json(suggestions) = row.try_get("suggestions")?;
        Ok(Self {
            context: object(row, "context")?.map_or("{}", RawValue::get),
            llm_request: object(row, "llm_request")?.map(RawValue::get),
            suggestions,
            input: row.try_get("actual_input")?,
        })
    }

    /// The messages that were sent to the model.
    pub(super) fn prompt(&self) -> Prompt<'r> {
        prompt::told(self.llm_request, self.context)
    }

    /// The context as one message of the user.
    pub(super) fn context_as_prompt(&self) -> Prompt<'r> {
        Prompt::of(self.context)
    }

    /// Returns the suggestion with this index.
    pub(super) fn suggestion(&self, index: i32) -> Option<&str> {
        self.suggestions.get(usize::try_from(index).ok()?).map(String::as_str)
    }
}

/// A client's own object, as it was sent.
pub(super) fn object<'r>(row: &'r PgRow, column: &str) -> sqlx::Result<Option<&'r RawValue>> {
    Ok(row.try_get::<Option<Json<&RawValue>>, _>(column)?.map(|Json(object)| object))
}

/// Returns an object without line breaks. In JSON, they can only be between values, where a space is the same.
pub(super) fn on_one_line(object: Option<&RawValue>) -> serde_json::Result<Option<Cow<'_, RawValue>>> {
    let Some(object) = object.filter(|object| object.get().contains(['\n', '\r'])) else {
        return Ok(object.map(Cow::Borrowed));
    };
    RawValue::from_string(object.get().replace(['\n', '\r'], " ")).map(|object| Some(Cow::Owned(object)))
}

/// The columns of [`Metadata`].
pub(super) const METADATA: &str = ", s.session_name, s.server_name, s.suggestion_node_version, s.policy_id, s.model,
    s.temperature, s.total_tokens, s.prompt_tokens, s.completion_tokens, s.context_block_count, s.trigger_block_number,
    s.result_block_number, s.created_at, s.match_type, s.accepted_index, s.viewed_indices, s.cycle_count, s.displayed_index, s.time_to_action_ms";

/// The properties of a record besides its texts.
#[derive(Serialize, ToSchema, sqlx::FromRow)]
pub(super) struct Metadata {
    #[sqlx(rename = "key_record_id")]
    suggestion_id: Uuid,
    session_name: Option<String>,
    server_name: Option<String>,
    suggestion_node_version: Option<String>,
    policy_id: Option<String>,
    model: Option<String>,
    temperature: Option<f64>,
    total_tokens: Option<i64>,
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
    context_block_count: Option<i32>,
    trigger_block_number: Option<i32>,
    result_block_number: Option<i32>,
    created_at: Timestamp,
    #[sqlx(skip)]
    completed_at: Option<Timestamp>,
    match_type: Option<MatchType>,
    accepted_index: Option<i32>,
    viewed_indices: Vec<i32>,
    cycle_count: i32,
    #[sqlx(rename = "displayed_index")]
    displayed_index_at_submit: i32,
    time_to_action_ms: Option<f64>,
}

impl Metadata {
    /// Reads the metadata of a row, if it is requested.
    pub(super) fn of(row: &PgRow, key: RowKey, common: &Common) -> sqlx::Result<Option<Self>> {
        if !common.with_metadata() {
            return Ok(None);
        }
        Ok(Some(Self { completed_at: Some(key.completed_at), ..sqlx::FromRow::from_row(row)? }))
    }
}

/// Returns the beginning of a text up to its first white space.
pub(super) fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}
