//! The formats of exported rows: what trainers read unchanged. One enum, and all that depends on it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a row is written. A data set offers some of these; the first it names is its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Chat messages, as for supervised fine-tuning at `OpenAI` and everyone who took it over; what must not be learned
    /// has `weight` 0.
    Openai,
    /// `prompt` and `completion` messages of TRL: loss on the completion only.
    TrlPromptCompletion,
    /// `prompt`, `chosen` and `rejected` messages of TRL.
    TrlPreference,
    /// `input`, `preferred_output` and `non_preferred_output`, as for DPO at `OpenAI`.
    OpenaiPreference,
    /// `prompt`, `completion` and whether it was chosen, unpaired, for TRL's KTO.
    TrlKto,
    /// A prompt, the steps taken, and whether each was right, for TRL's process rewards.
    TrlStepwise,
    /// `instruction`, `input` and `output`.
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

impl Format {
    /// Whether a row is a JSON object, which can carry metadata.
    #[must_use]
    pub fn is_json(self) -> bool {
        !matches!(self, Self::Letor | Self::LightgbmTsv)
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
}

/// Something to learn: a prompt, what to answer, and perhaps what not to.
#[derive(Debug)]
pub struct Example<'a> {
    /// What was said before; the last message is the question.
    pub prompt: Vec<Message<'a>>,
    /// What was answered first, and what was wrong with it.
    pub rejected: Option<Rejected<'a>>,
    /// What should have been answered.
    pub chosen: &'a str,
}

/// An answer that was wrong.
#[derive(Debug)]
pub struct Rejected<'a> {
    /// The answer.
    pub text: &'a str,
    /// What the user, or a tool in his place, said to it; none where it was passed over without a word.
    pub feedback: Option<&'a str>,
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
    /// What somebody said.
    pub fn new(role: impl Into<Cow<'a, str>>, content: impl Into<Cow<'a, str>>) -> Self {
        Self { role: role.into(), content: content.into(), weight: None }
    }
}

fn answer(text: &str) -> [Message<'_>; 1] {
    [Message::new("assistant", text)]
}

/// Writes an answer that was chosen or not, by itself, for KTO.
pub fn write_label(
    out: &mut Vec<u8>,
    prompt: Vec<Message<'_>>,
    text: &str,
    label: bool,
    metadata: Option<impl Serialize>,
) -> serde_json::Result<()> {
    write(out, Label { prompt, completion: answer(text), label }, metadata)
}

impl<'a> Example<'a> {
    /// The conversation before the right answer: with a wrong one in it that was objected to, if there is one.
    fn told(&self) -> Vec<Message<'a>> {
        let mut messages = self.prompt.clone();
        if let Some(Rejected { text, feedback: Some(feedback) }) = self.rejected {
            messages.extend([Message::new("assistant", text), Message::new("user", feedback)]);
        }
        messages
    }

    /// Writes the example as one JSON object. `raw` is written instead where the format is the data set's own.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        format: Format,
        metadata: Option<impl Serialize>,
        raw: impl Serialize,
    ) -> serde_json::Result<()> {
        let rejected = self.rejected.as_ref().map_or("", |rejected| rejected.text);
        match format {
            Format::Openai => {
                let mut messages = self.told();
                if let Some(wrong) = messages.get_mut(self.prompt.len()) {
                    wrong.weight = Some(0);
                }
                let weight = (messages.len() > self.prompt.len()).then_some(1);
                messages.push(Message { weight, ..Message::new("assistant", self.chosen) });
                write(out, Messages { messages }, metadata)
            }
            Format::TrlPromptCompletion => write(
                out,
                PromptCompletion { prompt: self.told(), completion: answer(self.chosen) },
                metadata,
            ),
            Format::TrlPreference => write(
                out,
                Preference { prompt: &self.prompt, chosen: answer(self.chosen), rejected: answer(rejected) },
                metadata,
            ),
            Format::OpenaiPreference => write(
                out,
                OpenaiPreference {
                    input: Messages { messages: self.prompt.clone() },
                    preferred_output: answer(self.chosen),
                    non_preferred_output: answer(rejected),
                },
                metadata,
            ),
            Format::Alpaca => write(out, self.alpaca(), metadata),
            Format::Rft => {
                let row = Rft { messages: &self.prompt, reference_answer: self.chosen };
                write(out, row, metadata)
            }
            Format::TrlStepwise
            | Format::TrlKto
            | Format::Letor
            | Format::LightgbmTsv
            | Format::VwDsjson
            | Format::Triplets
            | Format::Raw => write(out, raw, metadata),
        }
    }

    /// What the system said by itself, and all else as the instruction.
    pub fn alpaca(&self) -> Alpaca<'_> {
        let of = |is_system: bool| {
            let said = self.prompt.iter().filter(move |message| (message.role == "system") == is_system);
            let mut texts = said.map(|message| &*message.content);
            let first = texts.next().map(Cow::Borrowed);
            first.map(|first| texts.fold(first, |all, text| Cow::Owned(format!("{all}\n\n{text}"))))
        };
        Alpaca {
            instruction: of(false).unwrap_or_default(),
            input: "",
            output: self.chosen,
            system: of(true),
        }
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
    prompt: &'a [Message<'a>],
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

/// A row of Stanford Alpaca, with the system column that LLaMA-Factory added.
#[derive(Debug, Serialize)]
pub struct Alpaca<'a> {
    /// The task.
    pub instruction: Cow<'a, str>,
    /// What it is about, where that stands apart.
    pub input: &'a str,
    /// The answer.
    pub output: &'a str,
    /// What the system said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Rft<'a> {
    messages: &'a [Message<'a>],
    reference_answer: &'a str,
}

/// A row with the one key that `include=metadata` adds.
#[derive(Serialize)]
struct Row<R, M> {
    #[serde(flatten)]
    row: R,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<M>,
}

/// Writes one line.
pub fn write(
    out: &mut Vec<u8>,
    row: impl Serialize,
    metadata: Option<impl Serialize>,
) -> serde_json::Result<()> {
    // Flattening buffers every value; rows without metadata, which is nearly all, need none of that.
    match metadata {
        None => serde_json::to_writer(&mut *out, &row)?,
        Some(_) => serde_json::to_writer(&mut *out, &Row { row, metadata })?,
    }
    out.push(b'\n');
    Ok(())
}
