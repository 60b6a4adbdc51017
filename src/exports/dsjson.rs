//! Decisions of a contextual bandit, and their lines in the JSON format of Vowpal Wabbit's decision service.

use std::borrow::Cow;

use serde::Serialize;
use uuid::Uuid;

use crate::types::Timestamp;

/// A decision of a contextual bandit: which action came first, and the outcome.
#[derive(Debug)]
pub struct Decision<'a> {
    /// The id of the record.
    pub id: Uuid,
    /// The time of the decision.
    pub at: Timestamp,
    /// The policy that made the decision, if it is known.
    pub policy: Option<&'a str>,
    /// The features that were known before the decision.
    pub context: Features<'a>,
    /// The kind of thing that the actions are, which names the namespace of their features.
    pub actions_are: &'static str,
    /// The features of each action. The first action was chosen.
    pub actions: Vec<Features<'a>>,
    /// The probability with which the policy would have chosen each action.
    pub probabilities: Vec<f64>,
    /// The cost of the chosen action. Less is better.
    pub cost: f64,
}

/// Named features, in order.
pub type Features<'a> = Vec<(&'static str, Feature<'a>)>;

/// The value of a feature.
#[derive(Debug)]
pub enum Feature<'a> {
    /// A quantity.
    Number(i64),
    /// One of many words.
    Word(&'a str),
}

/// A line in the JSON format of Vowpal Wabbit's decision service, with the names that its parser knows.
#[derive(Serialize)]
pub(super) struct Dsjson<'a> {
    #[serde(rename = "_label_cost")]
    cost: f64,
    #[serde(rename = "_label_probability")]
    probability: f64,
    /// The number of the chosen action, from 1.
    #[serde(rename = "_label_Action")]
    action: u32,
    /// The number of the chosen action, from 0.
    #[serde(rename = "_labelIndex")]
    index: u32,
    #[serde(rename = "Timestamp")]
    at: Timestamp,
    #[serde(rename = "Version")]
    version: &'static str,
    #[serde(rename = "EventId")]
    id: Uuid,
    #[serde(rename = "a")]
    numbers: Vec<usize>,
    #[serde(rename = "c")]
    seen: DsjsonSeen<'a>,
    #[serde(rename = "p")]
    probabilities: Vec<f64>,
    #[serde(rename = "VWState")]
    state: DsjsonState<'a>,
}

#[derive(Serialize)]
struct DsjsonSeen<'a> {
    #[serde(rename = "Context")]
    context: DsjsonFeatures<'a>,
    #[serde(rename = "_multi")]
    actions: Vec<DsjsonAction<'a>>,
}

struct DsjsonAction<'a> {
    namespace: &'static str,
    features: DsjsonFeatures<'a>,
}

struct DsjsonFeatures<'a>(Features<'a>);

#[derive(Serialize)]
struct DsjsonState<'a> {
    m: &'a str,
}

impl<'a> Dsjson<'a> {
    pub(super) fn of(decision: Decision<'a>) -> Self {
        let namespace = decision.actions_are;
        let actions = decision.actions.into_iter();
        let actions: Vec<_> =
            actions.map(|features| DsjsonAction { namespace, features: DsjsonFeatures(features) }).collect();
        Self {
            cost: decision.cost,
            probability: decision.probabilities.first().copied().unwrap_or(1.0),
            action: 1,
            index: 0,
            at: decision.at,
            version: "1",
            id: decision.id,
            numbers: (1..=actions.len()).collect(),
            seen: DsjsonSeen { context: DsjsonFeatures(decision.context), actions },
            probabilities: decision.probabilities,
            state: DsjsonState { m: decision.policy.unwrap_or("n/a") },
        }
    }
}

impl Serialize for DsjsonAction<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.namespace, &self.features)])
    }
}

impl Serialize for DsjsonFeatures<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, feature)| (name, feature)))
    }
}

impl Serialize for Feature<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Word(word) => serializer.serialize_str(&without_syntax(word)),
        }
    }
}

/// Returns a text without the characters that have a meaning in Vowpal Wabbit's values.
fn without_syntax(text: &str) -> Cow<'_, str> {
    let special = |c: char| c.is_whitespace() || c == '|' || c == ':';
    if text.contains(special) { text.replace(special, "_").into() } else { text.into() }
}
