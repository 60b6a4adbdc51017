//! The formats of exported rows, in the form that trainers read. A data set yields examples of one or more
//! [`Shape`]s, and a [`Format`] says which shapes it can write.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::chat::Prompt;
use super::dsjson::Decision;

/// The format of exported rows. A data set offers the formats that can write one of its shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Chat messages for supervised fine-tuning, in the format of `OpenAI` that many other trainers also read. A
    /// message that must not be learned has `weight` 0.
    Openai,
    /// `prompt` and `completion` messages for TRL, which computes the loss on the completion only.
    TrlPromptCompletion,
    /// Chat messages with a single question, `Fix this DSL: … Error: …`, and its answer. The intent is not included.
    FixPrompt,
    /// `prompt`, `chosen` and `rejected` messages for TRL.
    TrlPreference,
    /// `input`, `preferred_output` and `non_preferred_output`, for DPO at `OpenAI`.
    OpenaiPreference,
    /// `prompt`, `completion` and `label`, which says whether the completion was chosen, for TRL's KTO. The rows are
    /// not paired.
    TrlKto,
    /// `messages`, and one message each as `chosen` and `rejected`, for preference training with LLaMA-Factory.
    LlamafactoryPreference,
    /// `messages` that end with the answer, and `kto_tag`, for KTO with LLaMA-Factory.
    LlamafactoryKto,
    /// A prompt, the steps taken, and whether each step was correct, for TRL's process reward models.
    TrlStepwise,
    /// `instruction`, `input` and `output` of Stanford Alpaca.
    Alpaca,
    /// Chat messages that end with the user's message, and a `reference_answer` for the grader.
    Rft,
    /// `prompt` messages and a `reference_answer`, for TRL's GRPO and RLOO.
    Rl,
    /// Lines in the format of SVMrank: grade, `qid`, numbered features and a comment. scikit-learn and RankLib read
    /// them.
    Letor,
    /// A tab-separated table with a header, for LightGBM with `group_column=name:qid`.
    LightgbmTsv,
    /// Decisions of a contextual bandit with their probabilities, for Vowpal Wabbit.
    VwDsjson,
    /// `anchor`, `positive` and `negative`, for training embeddings with sentence-transformers.
    Triplets,
    /// `anchor` and `positive`, for losses of sentence-transformers that use the other rows of a batch as negatives.
    Pairs,
    /// The data set's own columns.
    Raw,
}

/// Whether the assistant messages in chats of the format `openai` have a `weight`, which says whether to train on the
/// message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// Chats with several assistant messages have weights: 1 for the last one and 0 for the earlier ones.
    #[default]
    Openai,
    /// No message has a weight, so that data sets with and without earlier answers have the same columns.
    None,
}

/// The kind of example that a row is, independent of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A task and a solution that has passed its checks, so that a grader can compare with it.
    Solution,
    /// A prompt of any messages, and the answer that was accepted.
    Answer,
    /// A task, a wrong solution, the feedback on it, and the right solution.
    Correction,
    /// A prompt, the answer that was chosen, and one that was rejected.
    Preference,
    /// A prompt, one answer, and whether it was chosen.
    Label,
    /// A task, the steps taken, and whether each was right.
    Steps,
    /// Candidates with grades and features.
    Ranking,
    /// The choice of a policy among candidates, with its probability and cost.
    Decision,
    /// A text, a matching text, and a text that does not match.
    Triplet,
    /// A text and a matching text.
    Pair,
    /// The data set's own columns.
    Raw,
}

impl Shape {
    /// Whether such an example is written as messages, which can begin with a system message.
    #[must_use]
    pub fn is_chat(self) -> bool {
        matches!(self, Self::Solution | Self::Answer | Self::Correction | Self::Preference | Self::Label)
    }
}

/// One row before it is written in a format. `R` is the type of the data set's own columns.
#[derive(Debug)]
pub enum Example<'a, R> {
    /// See [`Shape::Solution`].
    Solution {
        /// The messages that were sent to the model.
        prompt: Prompt<'a>,
        /// The program that solved the task.
        solution: &'a str,
    },
    /// See [`Shape::Answer`].
    Answer {
        /// The messages of the chat. The last one is the question.
        prompt: Prompt<'a>,
        /// The answer to learn.
        answer: &'a str,
    },
    /// See [`Shape::Correction`].
    Correction {
        /// The messages that were sent to the model.
        prompt: Prompt<'a>,
        /// The wrong answer.
        wrong: &'a str,
        /// The reply to the wrong answer, by the user or a tool.
        feedback: Cow<'a, str>,
        /// The right answer.
        right: &'a str,
    },
    /// See [`Shape::Preference`].
    Preference {
        /// The messages of the chat. The last one is the question.
        prompt: Prompt<'a>,
        /// The better answer.
        chosen: &'a str,
        /// The worse answer.
        rejected: &'a str,
    },
    /// See [`Shape::Label`].
    Label {
        /// The messages of the chat. The last one is the question.
        prompt: Prompt<'a>,
        /// An answer.
        answer: &'a str,
        /// Whether it was chosen.
        chosen: bool,
    },
    /// See [`Shape::Pair`].
    Pair {
        /// A text.
        anchor: &'a str,
        /// A matching text.
        positive: &'a str,
    },
    /// See [`Shape::Steps`].
    Steps {
        /// The intent of the user.
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
        /// The source of the grades, in a word.
        origin: &'a str,
        /// The candidates that have a grade.
        candidates: Vec<Candidate>,
    },
    /// See [`Shape::Decision`].
    Decision(Decision<'a>),
    /// See [`Shape::Triplet`].
    Triplet {
        /// A text.
        anchor: &'a str,
        /// A matching text.
        positive: &'a str,
        /// A text that does not match.
        negative: &'a str,
    },
    /// See [`Shape::Raw`].
    Raw(R),
}

/// A candidate of a ranking.
#[derive(Debug)]
pub struct Candidate {
    /// The candidate's number among all suggestions of the record, from 0.
    pub index: i32,
    /// The grade. 0 is the worst.
    pub grade: u8,
    /// Its features, in the order in which the data set names them.
    pub features: Vec<i64>,
    /// Influences on the grade that must not be learned, such as the position: their names, and their values if they
    /// are known.
    pub bias: Vec<(&'static str, Option<f64>)>,
}

impl Format {
    /// Returns the shapes of examples that this format can write.
    #[must_use]
    pub fn shapes(self) -> &'static [Shape] {
        match self {
            Self::Openai | Self::TrlPromptCompletion => &[Shape::Solution, Shape::Answer, Shape::Correction],
            Self::FixPrompt => &[Shape::Correction],
            Self::TrlPreference | Self::OpenaiPreference | Self::LlamafactoryPreference => {
                &[Shape::Preference]
            }
            Self::TrlKto | Self::LlamafactoryKto => &[Shape::Label],
            Self::TrlStepwise => &[Shape::Steps],
            Self::Alpaca => &[Shape::Solution, Shape::Answer],
            Self::Rft | Self::Rl => &[Shape::Solution],
            Self::Pairs => &[Shape::Pair],
            Self::Letor | Self::LightgbmTsv => &[Shape::Ranking],
            Self::VwDsjson => &[Shape::Decision],
            Self::Triplets => &[Shape::Triplet],
            Self::Raw => &[Shape::Raw],
        }
    }

    /// Returns the formats that can write one of these shapes, beginning with those of the first shape. The first
    /// format is the default.
    pub fn of(shapes: &[Shape]) -> impl Iterator<Item = Self> {
        let all = <Self as clap::ValueEnum>::value_variants();
        let first = |format: Self| shapes.iter().position(|shape| format.shapes().contains(shape));
        (0..shapes.len())
            .flat_map(move |number| all.iter().copied().filter(move |it| first(*it) == Some(number)))
    }

    /// Returns the first of these shapes that this format can write, if there is one.
    #[must_use]
    pub fn choose(self, shapes: &[Shape]) -> Option<Shape> {
        shapes.iter().copied().find(|shape| self.shapes().contains(shape))
    }

    /// Returns the name of the format, as used in requests.
    #[must_use]
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns whether a row is a JSON object, to which metadata can be added.
    #[must_use]
    pub fn is_json(self) -> bool {
        self.media_type().is_none()
    }

    /// Returns the media type of the rows, unless they are NDJSON.
    #[must_use]
    pub fn media_type(self) -> Option<&'static str> {
        match self {
            Self::Letor => Some("text/plain; charset=utf-8"),
            Self::LightgbmTsv => Some("text/tab-separated-values; charset=utf-8"),
            _ => None,
        }
    }

    /// Returns the text before the first row of rankings. `features` are the names of the candidates' features, and
    /// `bias` the names of what must not be learned.
    #[must_use]
    pub fn header(self, bias: &[&str], features: &[&str]) -> Option<String> {
        match self {
            Self::Letor => {
                let numbered = (1..).zip(features).map(|(number, name)| format!(" {number}:{name}"));
                Some(format!("# features:{}\n", numbered.collect::<String>()))
            }
            Self::LightgbmTsv => {
                let columns = [&["label", "qid"], bias, features].concat();
                Some(format!("{}\n", columns.join("\t")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::exports::rows::Out;
    use crate::types::Timestamp;

    /// An example of each shape.
    fn examples() -> Vec<(Shape, Example<'static, u8>)> {
        let prompt = || Prompt::of("q");
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
            (Shape::Solution, Example::Solution { prompt: prompt(), solution: "a" }),
            (Shape::Answer, Example::Answer { prompt: prompt(), answer: "a" }),
            (
                Shape::Correction,
                Example::Correction { prompt: prompt(), wrong: "b", feedback: "no".into(), right: "a" },
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
            (Shape::Pair, Example::Pair { anchor: "q", positive: "a" }),
            (Shape::Raw, Example::Raw(1)),
        ]
    }

    #[test]
    fn a_format_writes_the_shapes_that_it_names_and_no_others() {
        for &format in Format::value_variants() {
            for (shape, example) in examples() {
                let written =
                    format.write(Weights::default(), example, None::<()>, &mut Out::Lines(&mut Vec::new()));
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
            ["openai", "trl-prompt-completion", "alpaca", "rft", "rl"]
        );
        assert_eq!(of(&[]), [""; 0]);
    }
}
