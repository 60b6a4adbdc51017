//! The formats of exported rows: what trainers read unchanged. A data set yields examples of one [`Shape`] or another, and a
//! [`Format`] says which shapes it can write; so this file is all that a further format touches.

use std::borrow::Cow;
use std::fmt::Write as _;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::types::Timestamp;

/// How a row is written. A data set offers the formats that can write one of its shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Chat messages, as for supervised fine-tuning at `OpenAI` and everyone who took it over; what must not be learned
    /// has `weight` 0.
    Openai,
    /// `prompt` and `completion` messages of TRL: loss on the completion only.
    TrlPromptCompletion,
    /// Chat messages of one question, `Fix this DSL: … Error: …`, and its answer; the task is not told.
    FixPrompt,
    /// `prompt`, `chosen` and `rejected` messages of TRL.
    TrlPreference,
    /// `input`, `preferred_output` and `non_preferred_output`, as for DPO at `OpenAI`.
    OpenaiPreference,
    /// `prompt`, `completion` and whether it was chosen, unpaired, for TRL's KTO.
    TrlKto,
    /// A prompt, the steps taken, and whether each was right, for TRL's process rewards.
    TrlStepwise,
    /// `instruction`, `input` and `output` of Stanford Alpaca.
    Alpaca,
    /// Chat messages that end with the user, and a `reference_answer` for the grader.
    Rft,
    /// Lines of SVMrank: grade, `qid`, numbered features, a comment; read by scikit-learn and RankLib.
    Letor,
    /// A table with a header, for LightGBM with `group_column=name:qid`.
    LightgbmTsv,
    /// Decisions of a contextual bandit with their probabilities, for Vowpal Wabbit.
    VwDsjson,
    /// `anchor`, `positive` and `negative`, as sentence-transformers trains embeddings.
    Triplets,
    /// The data set's own columns.
    Raw,
}

/// The kind of example that a row is: what it has to teach, whatever the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A task and a solution that has passed its checks, so that a grader can compare with it.
    Solution,
    /// A prompt of any messages, and the answer that was taken.
    Answer,
    /// A task, a wrong solution, what was said to it, and the right one.
    Correction,
    /// A prompt, the answer that was chosen, and one that was rejected.
    Preference,
    /// A prompt, one answer, and whether it was chosen.
    Label,
    /// A task, the steps taken, and whether each was right.
    Steps,
    /// Candidates with grades and features.
    Ranking,
    /// The choice of a policy among candidates, with its probability and its cost.
    Decision,
    /// A text, one that belongs to it, and one that does not.
    Triplet,
    /// The data set's own columns.
    Raw,
}

/// One row, to be written in some format. `R` are the data set's own columns.
#[derive(Debug)]
pub enum Example<'a, R> {
    /// See [`Shape::Solution`]. Either all rows of an export have a system message, or none has.
    Solution {
        /// What the system said.
        system: Option<&'a str>,
        /// What the user wanted.
        task: &'a str,
        /// What solved it.
        solution: &'a str,
    },
    /// See [`Shape::Answer`]. Some rows may have a system message and others none.
    Answer {
        /// What was said before; the last message is the question.
        prompt: Vec<Message<'a>>,
        /// What should be answered.
        answer: &'a str,
    },
    /// See [`Shape::Correction`].
    Correction {
        /// What the user wanted.
        task: &'a str,
        /// What was answered first.
        wrong: &'a str,
        /// What was said to it, by the user or by a tool.
        feedback: Cow<'a, str>,
        /// What should have been answered.
        right: &'a str,
    },
    /// See [`Shape::Preference`].
    Preference {
        /// What was said before; the last message is the question.
        prompt: Vec<Message<'a>>,
        /// The better answer.
        chosen: &'a str,
        /// The worse answer.
        rejected: &'a str,
    },
    /// See [`Shape::Label`].
    Label {
        /// What was said before; the last message is the question.
        prompt: Vec<Message<'a>>,
        /// An answer.
        answer: &'a str,
        /// Whether it was chosen.
        chosen: bool,
    },
    /// See [`Shape::Steps`].
    Steps {
        /// What the user wanted.
        task: &'a str,
        /// The texts of the steps, in order.
        steps: Vec<String>,
        /// Whether each step was right.
        right: Vec<bool>,
    },
    /// See [`Shape::Ranking`].
    Ranking {
        /// The record, which names the query.
        id: Uuid,
        /// The number of the query in the export, from 1.
        query: i64,
        /// What the grades come from, in a word.
        origin: &'a str,
        /// The candidates that have a grade.
        candidates: Vec<Candidate>,
    },
    /// See [`Shape::Decision`].
    Decision(Decision<'a>),
    /// See [`Shape::Triplet`].
    Triplet {
        /// The text.
        anchor: &'a str,
        /// One that belongs to it.
        positive: &'a str,
        /// One that does not.
        negative: &'a str,
    },
    /// See [`Shape::Raw`].
    Raw(R),
}

/// A candidate of a ranking.
#[derive(Debug)]
pub struct Candidate {
    /// Its number among all that were offered, from 0.
    pub index: i32,
    /// How good it turned out to be; 0 is worst.
    pub grade: u8,
    /// Its features, in the order in which the data set names them.
    pub features: Vec<i64>,
}

/// A decision of a contextual bandit: which of the actions came first, and what came of it.
#[derive(Debug)]
pub struct Decision<'a> {
    /// The record.
    pub id: Uuid,
    /// When it was taken.
    pub at: Timestamp,
    /// The policy that took it, if that is known.
    pub policy: Option<&'a str>,
    /// What was known beforehand.
    pub context: Features<'a>,
    /// The kind of thing that the actions are, which names their features' namespace.
    pub actions_are: &'static str,
    /// What was known of each action; the first was taken.
    pub actions: Vec<Features<'a>>,
    /// The probability with which the policy would have taken each.
    pub probabilities: Vec<f64>,
    /// What the action that was taken cost; less is better.
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

/// A message of a chat.
#[derive(Debug, Clone, Serialize)]
pub struct Message<'a> {
    role: Cow<'a, str>,
    content: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u8>,
}

impl<'a> Message<'a> {
    /// Makes a message that somebody said.
    pub fn new(role: impl Into<Cow<'a, str>>, content: impl Into<Cow<'a, str>>) -> Self {
        Self { role: role.into(), content: content.into(), weight: None }
    }
}

impl Format {
    /// The shapes of examples that this format can write.
    #[must_use]
    pub fn shapes(self) -> &'static [Shape] {
        match self {
            Self::Openai | Self::TrlPromptCompletion => &[Shape::Solution, Shape::Answer, Shape::Correction],
            Self::FixPrompt => &[Shape::Correction],
            Self::TrlPreference | Self::OpenaiPreference => &[Shape::Preference],
            Self::TrlKto => &[Shape::Label],
            Self::TrlStepwise => &[Shape::Steps],
            Self::Alpaca => &[Shape::Solution, Shape::Answer],
            Self::Rft => &[Shape::Solution],
            Self::Letor | Self::LightgbmTsv => &[Shape::Ranking],
            Self::VwDsjson => &[Shape::Decision],
            Self::Triplets => &[Shape::Triplet],
            Self::Raw => &[Shape::Raw],
        }
    }

    /// The formats that can write one of these shapes: those of the first shape first, of which the first is the default.
    pub fn of(shapes: &[Shape]) -> impl Iterator<Item = Self> {
        let all = <Self as clap::ValueEnum>::value_variants();
        let first = |format: Self| shapes.iter().position(|shape| format.shapes().contains(shape));
        (0..shapes.len())
            .flat_map(move |number| all.iter().copied().filter(move |it| first(*it) == Some(number)))
    }

    /// The one of these shapes that this format writes, if it can write any: the first that it can.
    #[must_use]
    pub fn choose(self, shapes: &[Shape]) -> Option<Shape> {
        shapes.iter().copied().find(|shape| self.shapes().contains(shape))
    }

    /// The name of the format, as requests give it.
    #[must_use]
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether a row is a JSON object, which can carry metadata.
    #[must_use]
    pub fn is_json(self) -> bool {
        self.media_type().is_none()
    }

    /// The media type of the rows, where they are not NDJSON.
    #[must_use]
    pub fn media_type(self) -> Option<&'static str> {
        match self {
            Self::Letor => Some("text/plain; charset=utf-8"),
            Self::LightgbmTsv => Some("text/tab-separated-values; charset=utf-8"),
            _ => None,
        }
    }

    /// What stands before the first row; `features` are the names of the features of candidates.
    #[must_use]
    pub fn header(self, features: &[&str]) -> Option<String> {
        match self {
            Self::Letor => {
                let numbered = (1..).zip(features).map(|(number, name)| format!(" {number}:{name}"));
                Some(format!("# features:{}\n", numbered.collect::<String>()))
            }
            Self::LightgbmTsv => Some(format!("label\tqid\t{}\n", features.join("\t"))),
            _ => None,
        }
    }

    /// Writes one row, with a line break at its end. Fails where the format cannot write examples of that shape.
    pub fn write<R: Serialize>(
        self,
        example: Example<'_, R>,
        metadata: Option<impl Serialize>,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        match (self, example) {
            (Self::Raw, Example::Raw(row)) => write(out, row, metadata)?,
            (Self::TrlPreference, Example::Preference { prompt, chosen, rejected }) => {
                let (chosen, rejected) = (said(chosen), said(rejected));
                write(out, Preference { prompt, chosen, rejected }, metadata)?;
            }
            (Self::OpenaiPreference, Example::Preference { prompt, chosen, rejected }) => {
                let (preferred_output, non_preferred_output) = (said(chosen), said(rejected));
                let input = Messages { messages: prompt };
                write(out, OpenaiPreference { input, preferred_output, non_preferred_output }, metadata)?;
            }
            (Self::TrlKto, Example::Label { prompt, answer, chosen }) => {
                write(out, Label { prompt, completion: said(answer), label: chosen }, metadata)?;
            }
            (Self::TrlStepwise, Example::Steps { task, steps, right }) => {
                write(out, Stepwise { prompt: task, completions: steps, labels: right }, metadata)?;
            }
            (Self::Rft, Example::Solution { system, task, solution }) => {
                let row = Rft { messages: told(system, task), reference_answer: solution };
                write(out, row, metadata)?;
            }
            (Self::Alpaca, Example::Solution { system, task, solution }) => {
                write(out, Alpaca::of(&told(system, task), solution), metadata)?;
            }
            (Self::Alpaca, Example::Answer { prompt, answer }) => {
                let alpaca = Alpaca::of(&prompt, answer);
                // Some prompts have a system message and others none: the same keys on every row.
                let system = Some(alpaca.system.unwrap_or_default());
                write(out, Alpaca { system, ..alpaca }, metadata)?;
            }
            (Self::Triplets, Example::Triplet { anchor, positive, negative }) => {
                write(out, Triplet { anchor, positive, negative }, metadata)?;
            }
            (Self::VwDsjson, Example::Decision(decision)) => write(out, Dsjson::of(decision), metadata)?,
            (Self::Letor | Self::LightgbmTsv, Example::Ranking { id, query, origin, candidates }) => {
                let mut lines = String::new();
                for Candidate { index, grade, features } in candidates {
                    if self == Self::LightgbmTsv {
                        write!(lines, "{grade}\t{query}")?;
                        features.iter().try_for_each(|feature| write!(lines, "\t{feature}"))?;
                    } else {
                        write!(lines, "{grade} qid:{query}")?;
                        let mut numbered = (1..).zip(features);
                        numbered.try_for_each(|(number, feature)| write!(lines, " {number}:{feature}"))?;
                        write!(lines, " # docid={id}:{index} match={origin}")?;
                    }
                    lines.push('\n');
                }
                out.extend(lines.into_bytes());
            }
            (Self::FixPrompt, Example::Correction { wrong, feedback, right, .. }) => {
                let question = format!("Fix this DSL:\n{wrong}\n\nError: {feedback}");
                let messages = vec![Message::new("user", question), Message::new("assistant", right)];
                write(out, Messages { messages }, metadata)?;
            }
            (Self::Openai, example) => {
                let Some(Chat { mut prompt, answer }) = Chat::of(example) else { bail!(MISMATCH) };
                prompt.push(answer);
                write(out, Messages { messages: prompt }, metadata)?;
            }
            (Self::TrlPromptCompletion, example) => {
                let Some(Chat { mut prompt, mut answer }) = Chat::of(example) else { bail!(MISMATCH) };
                // The loss is on the completion anyway.
                prompt.iter_mut().chain([&mut answer]).for_each(|message| message.weight = None);
                write(out, PromptCompletion { prompt, completion: [answer] }, metadata)?;
            }
            _ => bail!(MISMATCH),
        }
        Ok(())
    }
}

const MISMATCH: &str = "the format cannot write examples of this shape";

/// The messages of a task.
fn told<'a>(system: Option<&'a str>, task: &'a str) -> Vec<Message<'a>> {
    let system = system.map(|text| Message::new("system", text));
    system.into_iter().chain([Message::new("user", task)]).collect()
}

/// An answer, as the last message of a chat.
fn said(answer: &str) -> [Message<'_>; 1] {
    [Message::new("assistant", answer)]
}

/// A chat that ends with an answer to learn.
struct Chat<'a> {
    prompt: Vec<Message<'a>>,
    answer: Message<'a>,
}

impl<'a> Chat<'a> {
    /// Tells an example as a chat. In that of a correction the wrong answer is said first and has weight 0.
    fn of<R>(example: Example<'a, R>) -> Option<Self> {
        let (prompt, answer, weight) = match example {
            Example::Solution { system, task, solution } => (told(system, task), solution, None),
            Example::Answer { prompt, answer } => (prompt, answer, None),
            Example::Correction { task, wrong, feedback, right } => {
                let wrong = Message { weight: Some(0), ..Message::new("assistant", wrong) };
                (vec![Message::new("user", task), wrong, Message::new("user", feedback)], right, Some(1))
            }
            _ => return None,
        };
        Some(Self { prompt, answer: Message { weight, ..Message::new("assistant", answer) } })
    }
}

#[derive(Serialize)]
struct Messages<'a> {
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct PromptCompletion<'a> {
    prompt: Vec<Message<'a>>,
    completion: [Message<'a>; 1],
}

#[derive(Serialize)]
struct Preference<'a> {
    prompt: Vec<Message<'a>>,
    chosen: [Message<'a>; 1],
    rejected: [Message<'a>; 1],
}

#[derive(Serialize)]
struct OpenaiPreference<'a> {
    input: Messages<'a>,
    preferred_output: [Message<'a>; 1],
    non_preferred_output: [Message<'a>; 1],
}

#[derive(Serialize)]
struct Label<'a> {
    prompt: Vec<Message<'a>>,
    completion: [Message<'a>; 1],
    label: bool,
}

#[derive(Serialize)]
struct Stepwise<'a> {
    prompt: &'a str,
    completions: Vec<String>,
    labels: Vec<bool>,
}

#[derive(Serialize)]
struct Rft<'a> {
    messages: Vec<Message<'a>>,
    reference_answer: &'a str,
}

#[derive(Serialize)]
struct Triplet<'a> {
    anchor: &'a str,
    positive: &'a str,
    negative: &'a str,
}

/// A row of Stanford Alpaca, with the system column that LLaMA-Factory added.
#[derive(Serialize)]
struct Alpaca<'a> {
    instruction: Cow<'a, str>,
    input: &'a str,
    output: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Cow<'a, str>>,
}

impl<'a> Alpaca<'a> {
    /// Takes what the system said by itself, and all else as the instruction.
    fn of(prompt: &'a [Message<'_>], output: &'a str) -> Self {
        let joined = |is_system: bool| {
            let said = prompt.iter().filter(move |message| (message.role == "system") == is_system);
            let mut texts = said.map(|message| &*message.content);
            let first = texts.next().map(Cow::Borrowed);
            first.map(|first| texts.fold(first, |all, text| Cow::Owned(format!("{all}\n\n{text}"))))
        };
        Self { instruction: joined(false).unwrap_or_default(), input: "", output, system: joined(true) }
    }
}

/// A line of Vowpal Wabbit's decision service JSON, by the names that its parser knows.
#[derive(Serialize)]
struct Dsjson<'a> {
    #[serde(rename = "_label_cost")]
    cost: f64,
    #[serde(rename = "_label_probability")]
    probability: f64,
    /// Numbered from 1.
    #[serde(rename = "_label_Action")]
    action: u32,
    /// Numbered from 0.
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
    fn of(decision: Decision<'a>) -> Self {
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

/// A text as a value of Vowpal Wabbit, where some characters have a meaning of their own.
fn without_syntax(text: &str) -> Cow<'_, str> {
    let special = |c: char| c.is_whitespace() || c == '|' || c == ':';
    if text.contains(special) { text.replace(special, "_").into() } else { text.into() }
}

/// A row with the one key that `include=metadata` adds.
#[derive(Serialize)]
struct WithMetadata<R, M> {
    #[serde(flatten)]
    row: R,
    metadata: M,
}

fn write(out: &mut Vec<u8>, row: impl Serialize, metadata: Option<impl Serialize>) -> serde_json::Result<()> {
    // Flattening buffers every value; rows without metadata, which is nearly all, need none of that.
    match metadata {
        None => serde_json::to_writer(&mut *out, &row)?,
        Some(metadata) => serde_json::to_writer(&mut *out, &WithMetadata { row, metadata })?,
    }
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// An example of each shape.
    fn examples() -> Vec<(Shape, Example<'static, u8>)> {
        let prompt = || vec![Message::new("user", "q")];
        let decision = Decision {
            id: Uuid::nil(),
            at: Timestamp::now(),
            policy: None,
            context: vec![],
            actions_are: "Choice",
            actions: vec![],
            probabilities: vec![],
            cost: 0.0,
        };
        vec![
            (Shape::Solution, Example::Solution { system: None, task: "q", solution: "a" }),
            (Shape::Answer, Example::Answer { prompt: prompt(), answer: "a" }),
            (
                Shape::Correction,
                Example::Correction { task: "q", wrong: "b", feedback: "no".into(), right: "a" },
            ),
            (Shape::Preference, Example::Preference { prompt: prompt(), chosen: "a", rejected: "b" }),
            (Shape::Label, Example::Label { prompt: prompt(), answer: "a", chosen: true }),
            (Shape::Steps, Example::Steps { task: "q", steps: vec![], right: vec![] }),
            (
                Shape::Ranking,
                Example::Ranking { id: Uuid::nil(), query: 1, origin: "exact", candidates: vec![] },
            ),
            (Shape::Decision, Example::Decision(decision)),
            (Shape::Triplet, Example::Triplet { anchor: "q", positive: "a", negative: "b" }),
            (Shape::Raw, Example::Raw(1)),
        ]
    }

    #[test]
    fn a_format_writes_the_shapes_that_it_names_and_no_others() {
        for &format in Format::value_variants() {
            for (shape, example) in examples() {
                let written = format.write(example, None::<()>, &mut Vec::new());
                assert_eq!(written.is_ok(), format.shapes().contains(&shape), "{format:?} {shape:?}");
            }
        }
    }

    #[test]
    fn formats_come_in_the_order_of_the_shapes_and_each_once() {
        let of = |shapes: &[Shape]| Format::of(shapes).map(Format::name).collect::<Vec<_>>();
        assert_eq!(of(&[Shape::Raw, Shape::Triplet]), ["raw", "triplets"]);
        assert_eq!(
            of(&[Shape::Solution, Shape::Answer]),
            ["openai", "trl-prompt-completion", "alpaca", "rft"]
        );
        assert_eq!(of(&[]), [""; 0]);
    }
}
