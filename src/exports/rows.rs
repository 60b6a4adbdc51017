//! The rows of exported files: how a format writes an example.

use std::borrow::Cow;
use std::fmt::Write as _;

use anyhow::bail;
use serde::Serialize;
use serde_json::Value;

use super::chat::{Message, Prompt};
use super::columns::Columns;
use super::dsjson::Dsjson;
use super::format::{Candidate, Example, Format, Weights};

/// Where rows are written.
#[derive(Debug)]
pub enum Out<'a> {
    /// As lines of text.
    Lines(&'a mut Vec<u8>),
    /// As the columns of a table.
    Columns(&'a mut Columns),
}

impl Out<'_> {
    fn row(&mut self, row: &impl Serialize) -> anyhow::Result<()> {
        match self {
            Self::Lines(lines) => {
                serde_json::to_writer(&mut **lines, row)?;
                lines.push(b'\n');
            }
            Self::Columns(columns) => columns.push(row)?,
        }
        Ok(())
    }

    /// Writes lines that are not JSON.
    fn lines(&mut self, text: &str) -> anyhow::Result<()> {
        let Self::Lines(lines) = self else { bail!("the rows of this format have no columns") };
        lines.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Format {
    /// Writes one row. Fails if the format cannot write examples of that shape.
    pub fn write<R: Serialize>(
        self,
        weights: Weights,
        example: Example<'_, R>,
        metadata: Option<impl Serialize>,
        out: &mut Out<'_>,
    ) -> anyhow::Result<()> {
        match (self, example) {
            (Self::Raw, Example::Raw(row)) => write(out, row, metadata)?,
            (Self::TrlStepwise, Example::Steps { task, steps, right }) => {
                write(out, Stepwise { prompt: task, completions: steps, labels: right }, metadata)?;
            }
            (Self::Triplets, Example::Triplet { anchor, positive, negative }) => {
                write(out, Triplet { anchor, positive, negative }, metadata)?;
            }
            (Self::Pairs, Example::Pair { anchor, positive }) => {
                write(out, Pair { anchor, positive }, metadata)?;
            }
            (Self::VwDsjson, Example::Decision(decision)) => write(out, Dsjson::of(decision), metadata)?,
            (Self::Letor, Example::Ranking { id, query, origin, candidates }) => {
                let mut lines = String::new();
                for Candidate { index, grade, features, bias } in candidates {
                    write!(lines, "{grade} qid:{query}")?;
                    let mut numbered = (1..).zip(features);
                    numbered.try_for_each(|(number, feature)| write!(lines, " {number}:{feature}"))?;
                    write!(lines, " # docid={id}:{index} match={origin}")?;
                    let mut known = bias.into_iter().filter_map(|(name, value)| Some((name, value?)));
                    known.try_for_each(|(name, value)| write!(lines, " {name}={value}"))?;
                    lines.push('\n');
                }
                out.lines(&lines)?;
            }
            (Self::LightgbmTsv, Example::Ranking { query, candidates, .. }) => {
                let mut lines = String::new();
                for Candidate { grade, features, bias, .. } in candidates {
                    write!(lines, "{grade}\t{query}")?;
                    for (_, value) in bias {
                        lines.push('\t');
                        if let Some(value) = value {
                            write!(lines, "{value}")?;
                        }
                    }
                    features.iter().try_for_each(|feature| write!(lines, "\t{feature}"))?;
                    lines.push('\n');
                }
                out.lines(&lines)?;
            }
            (_, Example::Preference { prompt, chosen, rejected }) => {
                self.write_preference(prompt, said(chosen), said(rejected), metadata, out)?;
            }
            (_, Example::Label { prompt, answer, chosen }) => {
                self.write_label(prompt, said(answer), chosen, metadata, out)?;
            }
            (_, example) => self.write_chat(weights, example, metadata, out)?,
        }
        Ok(())
    }

    fn write_preference(
        self,
        prompt: Prompt<'_>,
        chosen: Message<'_>,
        rejected: Message<'_>,
        metadata: Option<impl Serialize>,
        out: &mut Out<'_>,
    ) -> anyhow::Result<()> {
        match self {
            Self::TrlPreference => {
                let Prompt { messages: prompt, tools } = prompt;
                write(out, Preference { prompt, chosen: [chosen], rejected: [rejected], tools }, metadata)?;
            }
            Self::OpenaiPreference => {
                let (preferred_output, non_preferred_output) = ([chosen], [rejected]);
                let input = Messages::of(prompt);
                write(out, OpenaiPreference { input, preferred_output, non_preferred_output }, metadata)?;
            }
            Self::LlamafactoryPreference => {
                write(
                    out,
                    LlamafactoryPreference { input: Messages::of(prompt), chosen, rejected },
                    metadata,
                )?;
            }
            _ => bail!(MISMATCH),
        }
        Ok(())
    }

    fn write_label<'a>(
        self,
        mut prompt: Prompt<'a>,
        answer: Message<'a>,
        chosen: bool,
        metadata: Option<impl Serialize>,
        out: &mut Out<'_>,
    ) -> anyhow::Result<()> {
        match self {
            Self::TrlKto => {
                let Prompt { messages: prompt, tools } = prompt;
                write(out, Label { prompt, completion: [answer], label: chosen, tools }, metadata)?;
            }
            Self::LlamafactoryKto => {
                prompt.messages.push(answer);
                write(out, LlamafactoryKto { input: Messages::of(prompt), kto_tag: chosen }, metadata)?;
            }
            _ => bail!(MISMATCH),
        }
        Ok(())
    }

    /// Writes an example that is a chat and ends with the answer to learn.
    fn write_chat<R>(
        self,
        weights: Weights,
        example: Example<'_, R>,
        metadata: Option<impl Serialize>,
        out: &mut Out<'_>,
    ) -> anyhow::Result<()> {
        match (self, example) {
            (Self::Rft, Example::Solution { prompt, solution }) => {
                let row = Rft { input: Messages::of(prompt), reference_answer: solution };
                write(out, row, metadata)?;
            }
            (Self::Rl, Example::Solution { prompt: Prompt { messages: prompt, tools }, solution }) => {
                write(out, Rl { prompt, reference_answer: solution, tools }, metadata)?;
            }
            (Self::Alpaca, Example::Solution { prompt, solution }) => {
                write(out, Alpaca::of(&prompt.messages, solution), metadata)?;
            }
            (Self::Alpaca, Example::Answer { prompt, answer }) => {
                let alpaca = Alpaca::of(&prompt.messages, answer);
                // Some prompts have a system message and others do not, but every row must have the same keys.
                let system = Some(alpaca.system.unwrap_or_default());
                write(out, Alpaca { system, ..alpaca }, metadata)?;
            }
            (Self::FixPrompt, Example::Correction { prompt, wrong, feedback, right }) => {
                let question = format!("Fix this DSL:\n{wrong}\n\nError: {feedback}");
                let system = prompt.messages.into_iter().filter(|message| message.role == "system");
                let messages = system.chain([Message::new("user", question), said(right)]).collect();
                write(out, Messages { messages, tools: vec![] }, metadata)?;
            }
            (Self::Openai, example) => {
                let Some(Chat { prompt: Prompt { mut messages, tools }, answer }) = Chat::of(example) else {
                    bail!(MISMATCH)
                };
                messages.push(answer);
                if weights == Weights::Openai {
                    weigh(&mut messages);
                }
                write(out, Messages { messages, tools }, metadata)?;
            }
            (Self::TrlPromptCompletion, example) => {
                let Some(Chat { prompt: Prompt { messages: prompt, tools }, answer }) = Chat::of(example)
                else {
                    bail!(MISMATCH)
                };
                write(out, PromptCompletion { prompt, completion: [answer], tools }, metadata)?;
            }
            _ => bail!(MISMATCH),
        }
        Ok(())
    }
}

const MISMATCH: &str = "the format cannot write examples of this shape";

/// Returns an answer as the last message of a chat.
fn said(answer: &str) -> Message<'_> {
    Message::new("assistant", answer)
}

/// Marks the last message as the one to learn, if the model has said something before.
fn weigh(messages: &mut [Message<'_>]) {
    let Some((answer, before)) = messages.split_last_mut() else { return };
    let mut earlier = before.iter_mut().filter(|message| message.role == "assistant").peekable();
    if earlier.peek().is_some() {
        answer.weight = Some(1);
        earlier.for_each(|message| message.weight = Some(0));
    }
}

/// A chat that ends with an answer to learn.
struct Chat<'a> {
    prompt: Prompt<'a>,
    answer: Message<'a>,
}

impl<'a> Chat<'a> {
    /// Writes an example as a chat. In a correction, the wrong answer is an earlier message.
    fn of<R>(example: Example<'a, R>) -> Option<Self> {
        let (prompt, answer) = match example {
            Example::Solution { prompt, solution } => (prompt, solution),
            Example::Answer { prompt, answer } => (prompt, answer),
            Example::Correction { mut prompt, wrong, feedback, right } => {
                prompt.messages.extend([said(wrong), Message::new("user", feedback)]);
                (prompt, right)
            }
            _ => return None,
        };
        Some(Self { prompt, answer: said(answer) })
    }
}

#[derive(Serialize)]
struct Messages<'a> {
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
}

impl<'a> Messages<'a> {
    fn of(Prompt { messages, tools }: Prompt<'a>) -> Self {
        Self { messages, tools }
    }
}

#[derive(Serialize)]
struct PromptCompletion<'a> {
    prompt: Vec<Message<'a>>,
    completion: [Message<'a>; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
}

#[derive(Serialize)]
struct Preference<'a> {
    prompt: Vec<Message<'a>>,
    chosen: [Message<'a>; 1],
    rejected: [Message<'a>; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
}

#[derive(Serialize)]
struct OpenaiPreference<'a> {
    input: Messages<'a>,
    preferred_output: [Message<'a>; 1],
    non_preferred_output: [Message<'a>; 1],
}

#[derive(Serialize)]
struct LlamafactoryPreference<'a> {
    #[serde(flatten)]
    input: Messages<'a>,
    chosen: Message<'a>,
    rejected: Message<'a>,
}

#[derive(Serialize)]
struct Label<'a> {
    prompt: Vec<Message<'a>>,
    completion: [Message<'a>; 1],
    label: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
}

#[derive(Serialize)]
struct LlamafactoryKto<'a> {
    #[serde(flatten)]
    input: Messages<'a>,
    kto_tag: bool,
}

#[derive(Serialize)]
struct Stepwise<'a> {
    prompt: &'a str,
    completions: Vec<String>,
    labels: Vec<bool>,
}

#[derive(Serialize)]
struct Rft<'a> {
    #[serde(flatten)]
    input: Messages<'a>,
    reference_answer: &'a str,
}

#[derive(Serialize)]
struct Rl<'a> {
    prompt: Vec<Message<'a>>,
    reference_answer: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
}

#[derive(Serialize)]
struct Pair<'a> {
    anchor: &'a str,
    positive: &'a str,
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
    /// Separates the system message from the rest, which is the instruction.
    fn of(prompt: &'a [Message<'_>], output: &'a str) -> Self {
        let joined = |is_system: bool| {
            let said = prompt.iter().filter(move |message| (message.role == "system") == is_system);
            let mut texts = said.map(|message| &*message.content);
            let first = texts.next().map(Cow::Borrowed);
            first.map(|first| {
                texts.fold(first, |mut all, text| {
                    all.to_mut().extend(["\n\n", text]);
                    all
                })
            })
        };
        Self { instruction: joined(false).unwrap_or_default(), input: "", output, system: joined(true) }
    }
}

/// A row with the one key that `include=metadata` adds.
#[derive(Serialize)]
struct WithMetadata<R, M> {
    #[serde(flatten)]
    row: R,
    metadata: M,
}

fn write(out: &mut Out<'_>, row: impl Serialize, metadata: Option<impl Serialize>) -> anyhow::Result<()> {
    // Flattening buffers every value, which rows without metadata do not need.
    match metadata {
        None => out.row(&row),
        Some(metadata) => out.row(&WithMetadata { row, metadata }),
    }
}
