//! What a request to the gateway carries: a whole conversation, of which all but the end was carried before. Its messages are
//! a chain, each named by a hash of the one before it and of itself, so that each is stored once however often it is sent.

use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::begun::Begun;
use super::rules::estimate::Length;
use crate::privacy::redact::{Redaction, Texts as _};
use crate::types::derived_id;

/// What a request to the gateway carries besides its new message.
#[derive(Debug, Default)]
pub struct Passed {
    /// The messages, the oldest first.
    pub messages: Vec<SentMessage>,
    /// What was said before the new message, the oldest first: each human message with what followed it is a turn, which
    /// has the id of that message.
    pub turns: Vec<(Uuid, Length)>,
    /// The id of the new message, which may also stand beside the result of a tool and then begins no turn of those above. None
    /// if no human has said anything, or an agent asks for itself.
    pub turn: Option<Uuid>,
    /// Identifies that message in the session whatever came before it.
    pub said: Option<Uuid>,
    /// Whether that message has pictures, sound or other files beside its text.
    pub has_media: bool,
    /// The length of that message and of what followed it.
    pub user: Length,
    /// The length of what every request of the conversation carries: the system message and the tools.
    pub overhead: Length,
    /// Whether the provider is given more than these lengths tell: what it remembers, pictures or sound.
    pub has_more: bool,
    /// The id of the generation log in which the answer is an attempt.
    pub generation_id: Option<Uuid>,
    /// Where the writer puts what it began.
    pub begun: Begun,
}

/// A message as it went through the gateway.
#[derive(Debug)]
pub struct SentMessage {
    /// The message's id.
    pub id: Uuid,
    /// The message before it.
    pub parent: Option<Uuid>,
    /// The human message that it is or follows, also one that stands beside the result of a tool.
    pub turn: Option<Uuid>,
    /// Identifies the message in the session whatever came before it, which clients leave out when a conversation is long. A
    /// human message is identified by what the person says in it, because agents add something else each time.
    pub content: Uuid,
    /// The message as it was sent.
    pub message: Box<RawValue>,
}

impl SentMessage {
    /// Makes the message that follows `parent` in a session, or what the provider remembers under the name `remembered`, if
    /// that is not empty.
    #[must_use]
    pub fn new(
        session: Option<&str>,
        parent: Option<&Self>,
        remembered: &str,
        value: Value,
        message: Box<RawValue>,
    ) -> Self {
        let before = parent.map(|parent| parent.id);
        // As long as it was sent, so that it need not grow.
        let mut text = Vec::with_capacity(message.get().len());
        serde_json::to_writer(&mut text, &same_when_sent_again(value)).expect("a value is JSON");
        let session = session.unwrap_or_default().as_bytes();
        let after = before.as_ref().map_or(remembered.as_bytes(), |id| id.as_bytes());
        Self {
            id: derived_id(&[session, after, &text]),
            parent: before,
            turn: parent.and_then(|parent| parent.turn),
            content: derived_id(&[session, &text]),
            message,
        }
    }

    /// Makes the message that of a person who says these words in it.
    pub fn say(&mut self, session: Option<&str>, words: &str) {
        self.turn = Some(self.id);
        if !words.is_empty() {
            self.content = derived_id(&[session.unwrap_or_default().as_bytes(), b"said", words.as_bytes()]);
        }
    }

    fn ids(&mut self) -> impl Iterator<Item = &mut Uuid> {
        [&mut self.id, &mut self.content].into_iter().chain(&mut self.parent).chain(&mut self.turn)
    }
}

/// Leaves out of a message what clients change about it from one request to the next: where the cached part of the prompt ends,
/// and whether a text stands by itself or as the only block.
fn same_when_sent_again(mut message: Value) -> Value {
    fn forget_cache(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(forget_cache),
            Value::Object(block) => {
                block.remove("cache_control");
                block.get_mut("content").into_iter().for_each(forget_cache);
            }
            _ => {}
        }
    }
    forget_cache(&mut message);
    if let Some(content) = message.get_mut("content")
        && let [block] = content.as_array().map_or(&[][..], Vec::as_slice)
        && block["type"] == "text"
        && block.as_object().is_some_and(|block| block.len() == 2)
    {
        *content = block["text"].clone();
    }
    message
}

impl Passed {
    fn ids(&mut self) -> impl Iterator<Item = &mut Uuid> {
        let turns = self.turns.iter_mut().map(|(turn, _)| turn);
        self.messages
            .iter_mut()
            .flat_map(SentMessage::ids)
            .chain(turns)
            .chain(&mut self.turn)
            .chain(&mut self.said)
    }

    /// Replaces in every message what the project's rules say. Ids are made of what was sent, so they are hidden.
    pub(super) fn redact(&mut self, redaction: &mut Redaction<'_>) {
        self.ids().for_each(|id| redaction.hide_id(id));
        self.messages.iter_mut().for_each(|message| message.message.texts(redaction));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(message: &Value) -> Uuid {
        let raw = serde_json::value::to_raw_value(message).expect("JSON");
        SentMessage::new(Some("s"), None, "", message.clone(), raw).id
    }

    #[test]
    fn a_message_is_the_same_wherever_the_cached_part_ends_and_however_its_text_stands() {
        let plain = id(&json!({"role": "user", "content": "hello"}));
        let block = json!({"role": "user", "content": [{"type": "text", "text": "hello"}]});
        let cached = json!({"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]});
        assert_eq!([id(&block), id(&cached)], [plain; 2]);
        let result = |cached: Value| json!({"role": "user", "content": [{"type": "tool_result", "content": [cached]}]});
        let with = result(json!({"type": "text", "text": "x", "cache_control": {}}));
        assert_eq!(id(&with), id(&result(json!({"type": "text", "text": "x"}))));
        assert_ne!(id(&json!({"role": "assistant", "content": "hello"})), plain);
    }
}
