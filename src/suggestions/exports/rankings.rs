//! Rankings: slates whose suggestions have grades, for learning to rank, and as decisions of a contextual bandit.

use clap::{Args, ValueEnum};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Postgres, QueryBuilder, Row as _};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::slates::{METADATA, MatchTypes, Metadata, SLATES, TEXTS, Texts, first_word, push_conditions};
use crate::error::Result;
use crate::exports::chat::Message;
use crate::exports::dsjson::{Decision, Feature};
use crate::exports::format::{Candidate, Example, Format, Shape};
use crate::exports::params::Common;
use crate::exports::schema;
use crate::exports::split::{Contents, Split};
use crate::exports::{Dataset, Described, Description, Lines, RowKey};
use crate::http::{Checks, flag};
use crate::suggestions::rules::prompt;
use crate::suggestions::{MatchType, POSITIONS};
use crate::types::Timestamp;

/// The parameters of rankings.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct Rankings {
    /// How the submitted text relates to the slate: exact, partial, prefix or none, or several of these separated by
    /// commas. By default, all of them are exported.
    #[arg(long, value_name = "KINDS")]
    #[param(value_type = Option<String>, pattern = r"^(exact|partial|prefix|none)(,(exact|partial|prefix|none))*$",
        example = "exact,partial")]
    match_type: Option<MatchTypes>,
    /// Only records whose slate was made by this version of the prompt or node.
    #[arg(long, value_name = "NAME")]
    suggestion_node_version: Option<String>,
    /// In the format vw-dsjson, whether slates without propensities are exported too, as if each suggestion had been
    /// equally likely to be shown first.
    #[arg(long)]
    #[serde(deserialize_with = "flag")]
    assume_uniform: bool,
    /// The minimum number of suggestions with a grade in a slate. A slate with only one teaches no order. The default
    /// is 1.
    #[arg(long, value_name = "N")]
    #[param(minimum = 1, example = 1)]
    min_candidates: Option<u32>,
    /// How the position of a suggestion is exported. The default is bias.
    #[arg(long)]
    #[param(inline)]
    position: Option<PositionAs>,
    /// Whether each suggestion has the propensity of its position: the share of the project's finalized slates with
    /// that position in which the suggestion there was viewed. It is empty for positions with fewer than 100 slates.
    #[arg(long)]
    #[serde(deserialize_with = "flag")]
    propensities: bool,
    /// The propensities of the positions, after they were read.
    #[serde(skip)]
    #[arg(skip)]
    #[param(ignore)]
    looked_at: Vec<Option<f64>>,
}

/// How the position of a suggestion is exported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum PositionAs {
    /// As a bias that a trainer corrects: in the comment in letor, and in the column bias_position in lightgbm-tsv.
    #[default]
    Bias,
    /// As a feature, from which a model learns to prefer what was shown first.
    Feature,
}

/// The names of the properties of a suggestion that are known when it is shown. The first is its position.
const FEATURES: [&str; 6] =
    ["position", "characters", "words", "context_blocks", "typed_before", "same_command"];

/// The minimum number of slates from which a propensity is computed.
const ENOUGH: i64 = 100;

/// What the features of a slate are computed from.
struct Typed {
    /// The texts that were typed in the blocks of the context, oldest first.
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

/// A suggestion with its grade: 2 for an exact match, 1 for a partial one or a prefix, 0 for a suggestion that was
/// viewed but not chosen.
#[derive(Serialize, ToSchema)]
struct Graded<'a> {
    index: i32,
    text: &'a str,
    label: u8,
    viewed: bool,
    /// The propensity of the suggestion's position, if it is requested and known.
    #[expect(clippy::option_option, reason = "absent where nobody asks, and null where it is not known")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, extensions(("x-may-be-absent" = json!(true))))]
    propensity: Option<Option<f64>>,
}

/// What was chosen and what was viewed but not chosen, by index. A suggestion with the text of the one that was
/// chosen is left out, as it was neither.
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
        Some(Graded { index, text, label, viewed, propensity: None })
    });
    graded.collect()
}

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    suggestion_id: Uuid,
    prompt: Vec<Message<'a>>,
    input: &'a str,
    match_type: Option<MatchType>,
    candidates: Vec<Graded<'a>>,
}

impl Described for Rankings {
    const DESCRIPTION: Description = Description {
        name: "rankings",
        summary: "Slates of suggestions with grades, for learning to rank.",
        notes: "An exact match has grade 2, a partial match or a prefix grade 1, and a suggestion that was viewed but not chosen \
            grade 0. Suggestions that were neither viewed nor submitted are left out. The position of a suggestion is a bias \
            and not a feature, unless `position=feature` is given. `vw-dsjson` has only slates with propensities, unless `assume_uniform` is true.",
        shapes: &[Shape::Ranking, Shape::Decision, Shape::Raw],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata>),
        split: Split::BySession,
        tables: &["suggestions"],
        count: None,
        skipped: Some(
            "from suggestions
                where project = $1 and state = 'finalized' and slate_hash is null and suggestion_count > 0",
        ),
    };
}

impl Dataset for Rankings {
    fn check(&self, shape: Shape, checks: &mut Checks) {
        let fits = shape == Shape::Decision || !self.assume_uniform;
        checks.require(fits, "assume_uniform", "only the format vw-dsjson supports it");
        checks.require(self.min_candidates != Some(0), "min_candidates", "must be 1 or more");
        let fits = shape != Shape::Raw || self.position.is_none();
        checks.require(fits, "position", "the rows of this format have no features");
        let fits = shape != Shape::Decision || !self.propensities;
        checks.require(fits, "propensities", "this format has the propensities that were logged");
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        common.push_selection(query, &SLATES, |query| self.push_conditions(query, common, shape));
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["s.completed_at", "s.id", "0"]
    }

    fn columns(&self, _: &Common, _: Shape) -> String {
        format!("{TEXTS}, s.propensities{METADATA}")
    }

    fn header(&self, format: Format) -> Option<String> {
        let bias: Vec<_> = self.bias(0).into_iter().map(|(name, _)| name).collect();
        format.header(&bias, self.features(&FEATURES))
    }

    fn prepare<'a>(
        &'a mut self,
        db: &'a PgPool,
        project: &'a str,
        as_of: Timestamp,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.propensities {
                self.looked_at = propensities(db, project, as_of).await?;
            }
            Ok(())
        })
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let texts = Texts::of(row)?;
        let (matched, accepted) = (row.try_get("match_type")?, row.try_get("accepted_index")?);
        let blocks: Option<i32> = row.try_get("context_block_count")?;
        let typed = Typed { inputs: prompt::inputs(texts.context), blocks: blocks.unwrap_or(0) };
        let viewed: Vec<i32> = row.try_get("viewed_indices")?;
        let mut graded = grade(&texts, &viewed, matched, accepted);
        if self.propensities {
            for graded in &mut graded {
                graded.propensity = Some(self.propensity(graded.index));
            }
        }
        let example = match lines.shape() {
            Shape::Decision => {
                let decision = self.decision(row, key, &texts, &typed, (matched, accepted))?;
                Example::Decision(decision)
            }
            Shape::Raw => Example::Raw(Raw {
                suggestion_id: key.record_id,
                prompt: texts.prompt().messages,
                input: texts.input,
                match_type: matched,
                candidates: graded,
            }),
            _ => Example::Ranking {
                id: key.record_id,
                query: key.record,
                origin: matched.map_or("none", MatchType::as_str),
                candidates: graded.iter().map(|graded| self.candidate(&typed, graded)).collect(),
            },
        };
        lines.write(example, Metadata::of(row, key, common)?)
    }
}

/// Reads the propensity of each position from the slates that were finalized before a time.
async fn propensities(db: &PgPool, project: &str, as_of: Timestamp) -> Result<Vec<Option<f64>>> {
    const SQL: &str = "
        select count(*), count(*) filter (where position = any(s.viewed_indices))
        from suggestions s cross join lateral generate_series(0, least(s.suggestion_count, $3) - 1) as position
        where s.project = $1 and s.state = 'finalized' and s.completed_at < $2
        group by position order by position";
    let query = sqlx::query_as(SQL).bind(project).bind(as_of).bind(POSITIONS);
    let counts: Vec<(i64, i64)> = query.fetch_all(db).await?;
    let share = |(slates, viewed): (i64, i64)| {
        (slates >= ENOUGH && viewed > 0).then(|| viewed as f64 / slates as f64)
    };
    Ok(counts.into_iter().map(share).collect())
}

impl Rankings {
    /// The features that a candidate has, of all of them.
    fn features<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        if self.position == Some(PositionAs::Feature) { all } else { &all[1..] }
    }

    fn propensity(&self, index: i32) -> Option<f64> {
        self.looked_at.get(usize::try_from(index).ok()?).copied().flatten()
    }

    /// Returns the properties of a candidate that must not be learned.
    fn bias(&self, index: i32) -> Vec<(&'static str, Option<f64>)> {
        let mut bias = Vec::new();
        if self.position != Some(PositionAs::Feature) {
            bias.push(("bias_position", Some(f64::from(index))));
        }
        if self.propensities {
            bias.push(("propensity", self.propensity(index)));
        }
        bias
    }

    fn candidate(&self, typed: &Typed, graded: &Graded<'_>) -> Candidate {
        let features = self.features(&typed.features(graded.index, graded.text)).to_vec();
        let bias = self.bias(graded.index);
        Candidate { index: graded.index, grade: graded.label, features, bias }
    }

    /// Makes the decision that was logged: which suggestion came first. Its cost is -1 if the user accepted that suggestion or
    /// one with the same text, -0.5 if they changed it or accepted a part of it, and 0 otherwise.
    fn decision<'a>(
        &self,
        row: &'a PgRow,
        key: RowKey,
        texts: &'a Texts<'_>,
        typed: &'a Typed,
        (matched, accepted): (Option<MatchType>, Option<i32>),
    ) -> sqlx::Result<Decision<'a>> {
        let count = texts.suggestions.len();
        let logged: Option<Vec<f64>> = row.try_get("propensities")?;
        // A suggestion with the text of the one that was accepted is as good.
        let accepted = accepted.and_then(|index| texts.suggestion(index));
        let takes_first = accepted.is_some() && accepted == texts.suggestion(0);
        let cost = match matched {
            Some(MatchType::Exact) if takes_first => -1.0,
            Some(_) if takes_first => -0.5,
            _ => 0.0,
        };
        let action = |(index, text): (i32, &'a String)| {
            let [position, characters, words, _, typed_before, same_command] = typed.features(index, text);
            let mut features = vec![
                ("command", Feature::Word(first_word(text))),
                ("characters", Feature::Number(characters)),
                ("words", Feature::Number(words)),
                ("typed_before", Feature::Number(typed_before)),
                ("same_command", Feature::Number(same_command)),
            ];
            if self.position == Some(PositionAs::Feature) {
                features.push(("position", Feature::Number(position)));
            }
            features
        };
        let last = typed.inputs.last().map_or("", |input| first_word(input));
        Ok(Decision {
            id: key.record_id,
            at: row.try_get("created_at")?,
            policy: row.try_get("policy_id")?,
            context: vec![("blocks", Feature::Number(typed.blocks.into())), ("last", Feature::Word(last))],
            actions_are: "Suggestion",
            actions: (0_i32..).zip(&texts.suggestions).map(action).collect(),
            probabilities: logged.unwrap_or_else(|| vec![1.0 / count as f64; count]),
            cost,
        })
    }

    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        query.push(" and s.slate_hash is not null and s.suggestion_count > 0");
        query.push(" and (s.viewed_indices <> '{}' or s.accepted_index is not null)");
        if shape == Shape::Decision && !self.assume_uniform {
            query.push(" and s.propensities is not null");
        }
        if let Some(least) = self.min_candidates.filter(|least| *least > 1) {
            // Only suggestions with a grade.
            query.push(
                // The text that was accepted is read once.
                " and (select count(*) from json_array_elements_text(s.suggestions) with ordinality as offered (text, number)
                    where offered.number - 1 = s.accepted_index
                        or offered.number - 1 in (select unnest(s.viewed_indices)) and (s.accepted_index is null
                            or offered.text is distinct from (select s.suggestions ->> s.accepted_index))) >= ",
            );
            query.push_bind(i64::from(least));
        }
        let kinds = self.match_type.as_ref().map(MatchTypes::as_slice);
        push_conditions(query, kinds, self.suggestion_node_version.as_deref(), common, Contents::None);
    }
}
