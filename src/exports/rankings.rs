//! Rankings: slates whose suggestions have grades, for learning to rank, and as decisions of a contextual bandit.

use std::fmt::Write as _;

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::IntoParams;
use uuid::Uuid;

use super::format::{self, Format, Message};
use super::params::Common;
use super::slates::{METADATA, MatchTypes, Metadata, TEXTS, Texts, first_word, plain, push_conditions};
use super::{Key, Records};
use crate::http::{Check, Checks};
use crate::suggestions::MatchType;
use crate::suggestions::rules::prompt;
use crate::types::Timestamp;

/// Which slates.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct Rankings {
    /// How what was submitted relates to the slate: exact, partial, prefix or none, separated by commas; any if not
    /// given.
    #[arg(long, value_name = "KINDS")]
    #[param(value_type = Option<String>)]
    match_type: Option<MatchTypes>,
    /// Version of the prompt or node that made the slate.
    #[arg(long, value_name = "NAME")]
    suggestion_node_version: Option<String>,
    /// In vw-dsjson: take slates without logged propensities too, as if each suggestion had been as likely to be first.
    #[arg(long)]
    assume_uniform: bool,
}

impl Check for Rankings {
    fn check(&self, _: &mut Checks) {}
}

/// What is known of a suggestion when it is offered, by the names of the columns.
const FEATURES: [&str; 6] =
    ["position", "characters", "words", "context_blocks", "typed_before", "same_command"];

/// What a slate's features are worked out from.
struct Typed {
    /// What was typed in the blocks of the context, oldest first.
    inputs: Vec<String>,
    blocks: i32,
}

impl Typed {
    fn features(&self, index: i32, text: &str) -> [i64; FEATURES.len()] {
        let command = first_word(text);
        let last = self.inputs.last().map(|input| first_word(input));
        [
            i64::from(index),
            i64::try_from(text.chars().count()).unwrap_or(i64::MAX),
            i64::try_from(text.split_whitespace().count()).unwrap_or(i64::MAX),
            i64::from(self.blocks),
            i64::from(self.inputs.iter().any(|input| input == text)),
            i64::from(!command.is_empty() && last == Some(command)),
        ]
    }
}

/// A suggestion with its grade.
#[derive(Serialize)]
struct Graded<'a> {
    index: i32,
    text: &'a str,
    label: u8,
    viewed: bool,
}

/// What was chosen and what was viewed and passed over, by place; what stood there once more with the same text is left
/// out, as it was neither.
fn grade<'a>(
    texts: &'a Texts<'_>,
    viewed: &[i32],
    matched: Option<MatchType>,
    accepted: Option<i32>,
) -> Vec<Graded<'a>> {
    let accepted_text = accepted.and_then(|index| texts.suggestion(index));
    let graded = (0_i32..).zip(&texts.suggestions).filter_map(|(index, text)| {
        let viewed = viewed.contains(&index);
        let label = match matched {
            Some(MatchType::Exact) if accepted == Some(index) => 2,
            _ if accepted == Some(index) => 1,
            _ if viewed && accepted_text != Some(text.as_str()) => 0,
            _ => return None,
        };
        Some(Graded { index, text, label, viewed })
    });
    graded.collect()
}

#[derive(Serialize)]
struct Raw<'a> {
    suggestion_id: Uuid,
    prompt: Vec<Message<'a>>,
    input: &'a str,
    match_type: Option<MatchType>,
    candidates: &'a [Graded<'a>],
}

#[derive(Serialize)]
struct Decision<'a> {
    #[serde(rename = "_label_cost")]
    cost: f64,
    #[serde(rename = "_label_probability")]
    probability: f64,
    #[serde(rename = "_label_Action")]
    action: u32,
    #[serde(rename = "_labelIndex")]
    index: u32,
    #[serde(rename = "Timestamp")]
    at: Timestamp,
    #[serde(rename = "Version")]
    version: &'static str,
    #[serde(rename = "EventId")]
    id: Uuid,
    a: Vec<usize>,
    c: Scene<'a>,
    p: Vec<f64>,
    #[serde(rename = "VWState")]
    state: Policy<'a>,
}

#[derive(Serialize)]
struct Scene<'a> {
    #[serde(rename = "Context")]
    context: Shared<'a>,
    #[serde(rename = "_multi")]
    actions: Vec<Choice<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    blocks: i32,
    last: std::borrow::Cow<'a, str>,
}

#[derive(Serialize)]
struct Choice<'a> {
    #[serde(rename = "Suggestion")]
    features: ChoiceFeatures<'a>,
}

#[derive(Serialize)]
struct ChoiceFeatures<'a> {
    command: std::borrow::Cow<'a, str>,
    characters: i64,
    words: i64,
    typed_before: i64,
    same_command: i64,
}

#[derive(Serialize)]
struct Policy<'a> {
    m: &'a str,
}

impl Records for Rankings {
    const NAME: &'static str = "rankings";
    const FORMATS: &'static [Format] = &[Format::Letor, Format::LightgbmTsv, Format::VwDsjson, Format::Raw];

    const SKIPPED: Option<&'static str> = Some(
        "select count(*) from suggestions
        where project = $1 and state = 'finalized' and slate_hash is null and suggestion_count > 0",
    );

    fn check(&self, format: Format, checks: &mut Checks) {
        let fits = format == Format::VwDsjson || !self.assume_uniform;
        checks.require(fits, "assume_uniform", "only the format vw-dsjson has propensities");
    }

    fn from(&self, query: &mut QueryBuilder<Postgres>, project: &str, common: &Common, format: Format) {
        query.push(" from suggestions s where s.project = ").push_bind(project.to_owned());
        self.push_conditions(query, common, format);
        if common.is_exact() {
            query.push(" and not exists (select from (select s.* from suggestions s where s.project = ");
            query.push_bind(project.to_owned());
            self.push_conditions(query, common, format);
            query.push(") older where older.slate_hash = s.slate_hash");
            query.push(" and (older.completed_at, older.id) < (s.completed_at, s.id))");
        }
    }

    fn key(&self) -> [&'static str; 3] {
        ["s.completed_at", "s.id", "0"]
    }

    fn columns(&self, _: &Common, _: Format) -> String {
        format!("{TEXTS}, s.propensities{METADATA}")
    }

    fn header(&self, format: Format) -> Option<String> {
        match format {
            Format::Letor => {
                let numbered = (1..).zip(FEATURES).map(|(number, name)| format!(" {number}:{name}"));
                Some(format!("# features:{}\n", numbered.collect::<String>()))
            }
            Format::LightgbmTsv => Some(format!("label\tqid\t{}\n", FEATURES.join("\t"))),
            _ => None,
        }
    }

    fn write(
        &self,
        row: &PgRow,
        key: Key,
        common: &Common,
        format: Format,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let texts = Texts::of(row)?;
        let (matched, accepted) = (row.try_get("match_type")?, row.try_get("accepted_index")?);
        let blocks: Option<i32> = row.try_get("context_block_count")?;
        let typed = Typed { inputs: prompt::inputs(texts.context), blocks: blocks.unwrap_or(0) };
        let viewed: Vec<i32> = row.try_get("viewed_indices")?;
        let graded = grade(&texts, &viewed, matched, accepted);
        match format {
            Format::Letor | Format::LightgbmTsv => {
                let mut lines = String::new();
                for Graded { index, text, label, .. } in &graded {
                    let features = typed.features(*index, text);
                    if format == Format::LightgbmTsv {
                        write!(lines, "{label}\t{}", key.record)?;
                        features.iter().try_for_each(|feature| write!(lines, "\t{feature}"))?;
                    } else {
                        write!(lines, "{label} qid:{}", key.record)?;
                        let mut numbered = (1..).zip(features);
                        numbered.try_for_each(|(number, feature)| write!(lines, " {number}:{feature}"))?;
                        let kind = matched.map_or("none", MatchType::as_str);
                        write!(lines, " # docid={}:{index} match={kind}", key.id)?;
                    }
                    lines.push('\n');
                }
                out.extend(lines.into_bytes());
                Ok(())
            }
            Format::VwDsjson => {
                let metadata = Metadata::of(row, key, common)?;
                let decision = decision(row, key, &texts, &typed, (matched, accepted))?;
                Ok(format::write(out, decision, metadata)?)
            }
            _ => {
                let raw = Raw {
                    suggestion_id: key.id,
                    prompt: texts.prompt(),
                    input: texts.input,
                    match_type: matched,
                    candidates: &graded,
                };
                Ok(format::write(out, raw, Metadata::of(row, key, common)?)?)
            }
        }
    }
}

/// The decision that was logged: which suggestion came up first. It has earned its cost if it was what the user took, and
/// half of that if he changed it or took part of it.
fn decision<'a>(
    row: &'a PgRow,
    key: Key,
    texts: &'a Texts<'_>,
    typed: &'a Typed,
    (matched, accepted): (Option<MatchType>, Option<i32>),
) -> sqlx::Result<Decision<'a>> {
    let count = texts.suggestions.len();
    let logged: Option<Vec<f64>> = row.try_get("propensities")?;
    let p = logged.unwrap_or_else(|| vec![1.0 / count as f64; count]);
    let cost = match matched {
        Some(MatchType::Exact) if accepted == Some(0) => -1.0,
        Some(_) if accepted == Some(0) => -0.5,
        _ => 0.0,
    };
    let choice = |(index, text): (i32, &'a String)| {
        let [_, characters, words, _, typed_before, same_command] = typed.features(index, text);
        let command = plain(first_word(text));
        Choice { features: ChoiceFeatures { command, characters, words, typed_before, same_command } }
    };
    Ok(Decision {
        cost,
        probability: p.first().copied().unwrap_or(1.0),
        action: 1,
        index: 0,
        at: row.try_get("created_at")?,
        version: "1",
        id: key.id,
        a: (1..=count).collect(),
        c: Scene {
            context: Shared {
                blocks: typed.blocks,
                last: plain(typed.inputs.last().map_or("", |input| first_word(input))),
            },
            actions: (0_i32..).zip(&texts.suggestions).map(choice).collect(),
        },
        p,
        state: Policy { m: row.try_get::<Option<&str>, _>("policy_id")?.unwrap_or("n/a") },
    })
}

impl Rankings {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common, format: Format) {
        query.push(" and s.slate_hash is not null and s.suggestion_count > 0");
        query.push(" and (s.viewed_indices <> '{}' or s.accepted_index is not null)");
        if format == Format::VwDsjson && !self.assume_uniform {
            query.push(" and s.propensities is not null");
        }
        let kinds = self.match_type.as_ref().map(MatchTypes::as_slice);
        push_conditions(query, kinds, self.suggestion_node_version.as_deref(), common);
    }
}
