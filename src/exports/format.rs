//! The formats of exported rows: what trainers read unchanged. One enum, and all that depends on it.

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
    /// A prompt, the steps taken, and whether each was right, for TRL's process rewards.
    TrlStepwise,
    /// `instruction`, `input` and `output`.
    Alpaca,
    /// Chat messages that end with the user, and a `reference_answer` for the grader.
    Rft,
    /// `anchor`, `positive` and `negative`, as sentence-transformers trains embeddings.
    Triplets,
    /// The data set's own columns.
    Raw,
}

/// Something to learn: a prompt, what to answer, and perhaps what not to.
#[derive(Debug)]
pub struct Example<'a> {
    /// Said before everything else, if anything.
    pub system: Option<&'a str>,
    /// What the user asked.
    pub user: &'a str,
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
    /// What the user, or a tool in his place, said to it.
    pub feedback: &'a str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u8>,
}

fn message<'a>(role: &'static str, content: &'a str) -> Message<'a> {
    Message { role, content, weight: None }
}

impl<'a> Example<'a> {
    /// The question alone.
    fn question(&self) -> Vec<Message<'a>> {
        let system = self.system.map(|text| message("system", text));
        system.into_iter().chain([message("user", self.user)]).collect()
    }

    /// The conversation before the right answer: with a wrong one in it, if there is one.
    fn prompt(&self) -> Vec<Message<'a>> {
        let mut messages = self.question();
        if let Some(Rejected { text, feedback }) = self.rejected {
            messages.extend([message("assistant", text), message("user", feedback)]);
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
        let answer = |text| [message("assistant", text)];
        let rejected = self.rejected.as_ref().map_or("", |rejected| rejected.text);
        match format {
            Format::Openai => {
                let mut messages = self.prompt();
                messages.push(message("assistant", self.chosen));
                if self.rejected.is_some() {
                    let answers = messages.iter_mut().filter(|message| message.role == "assistant");
                    answers.zip([0, 1]).for_each(|(answer, weight)| answer.weight = Some(weight));
                }
                write(out, Messages { messages }, metadata)
            }
            Format::TrlPromptCompletion => write(
                out,
                PromptCompletion { prompt: self.prompt(), completion: answer(self.chosen) },
                metadata,
            ),
            Format::TrlPreference => write(
                out,
                Preference {
                    prompt: self.question(),
                    chosen: answer(self.chosen),
                    rejected: answer(rejected),
                },
                metadata,
            ),
            Format::OpenaiPreference => write(
                out,
                OpenaiPreference {
                    input: Messages { messages: self.question() },
                    preferred_output: answer(self.chosen),
                    non_preferred_output: answer(rejected),
                },
                metadata,
            ),
            Format::Alpaca => {
                let row =
                    Alpaca { instruction: self.user, input: "", output: self.chosen, system: self.system };
                write(out, row, metadata)
            }
            Format::Rft => {
                write(out, Rft { messages: self.question(), reference_answer: self.chosen }, metadata)
            }
            Format::Raw | Format::TrlStepwise | Format::Triplets => write(out, raw, metadata),
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
struct Alpaca<'a> {
    instruction: &'a str,
    input: &'a str,
    output: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
}

#[derive(Serialize)]
struct Rft<'a> {
    messages: Vec<Message<'a>>,
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
