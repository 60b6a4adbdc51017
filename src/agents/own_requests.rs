//! Requests that agents make for themselves in the session of a person: for a title, a summary of the conversation, what the
//! person might say next, the rest of an answer that was cut off, or what a page or the web says.

/// Beginnings of human messages that ask for such a thing.
const ASKED: [&str; 12] = [
    // Claude Code.
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
    "Output token limit hit. Resume directly",
    "Perform a web search for the query: ",
    "Please write a 5-10 word title for the following conversation",
    "Web page content:\n---\n",
    "Your task is to create a detailed summary of the conversation so far",
    "Your task is to create a detailed summary of the RECENT portion of the conversation",
    "Your task is to create a detailed summary of this conversation",
    "[SUGGESTION MODE:",
    // Codex.
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
    // OpenCode.
    "Generate a title for this conversation:",
    "Provide a detailed prompt for continuing our conversation above",
];

/// The whole message with which Claude Code fills the cache of the provider when it starts.
const WARMUP: &str = "Warmup";

/// Beginnings of lines in the system messages of such requests, which may have the person's own message as their only
/// one.
const TOLD: [&str; 8] = [
    // Claude Code.
    "Analyze if this message indicates a new conversation topic",
    "Extract any file paths that this command reads or modifies",
    "Generate a concise, sentence-case title",
    "Summarize this coding conversation in under 50 characters",
    "You are an assistant for performing a web search tool use",
    "Your task is to process Bash commands that an AI coding agent wants to run",
    // Claude Code and OpenCode.
    "You are a helpful AI assistant tasked with summarizing conversations",
    "You are a title generator",
];

/// Returns whether what stands in a human message is an agent's own request.
#[must_use]
pub fn is_asked_by_agent(text: &str) -> bool {
    text.trim() == WARMUP || begins_with_one_of(text, &ASKED)
}

/// Returns whether a system message makes a request one of an agent's own.
#[must_use]
pub fn is_told_by_agent(system: &str) -> bool {
    system.lines().any(|line| begins_with_one_of(line, &TOLD))
}

fn begins_with_one_of(text: &str, heads: &[&str]) -> bool {
    let text = text.trim_start();
    heads.iter().any(|head| text.starts_with(head))
}
