//! Requests that agents make for themselves in the session of a person: for a title, a summary of the conversation, what the
//! person might say next, the rest of an answer that was cut off, what a page or the web says, or what is worth remembering. A
//! question that a person asks beside the conversation is one of them, because nothing later follows from it.

/// Beginnings of human messages that ask for such a thing.
const ASKED: [&str; 17] = [
    // Claude Code.
    "<system-reminder>This is a side question from the user.",
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
    "Describe your most recent action in 3-5 words using present tense",
    "IMPORTANT: This message and these instructions are NOT part of the actual user conversation.",
    "Output token limit hit. Resume directly",
    "Perform a web search for the query: ",
    "Please write a 5-10 word title for the following conversation",
    "The user stepped away and is coming back. Recap in ",
    "Web page content:\n---\n",
    "You are now acting as the memory extraction subagent.",
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
const TOLD: [&str; 10] = [
    // Claude Code.
    "Analyze if this message indicates a new conversation topic",
    "Extract any file paths that this command reads or modifies",
    "Generate a concise, sentence-case title",
    "Summarize this coding conversation in under 50 characters",
    "You are an assistant for performing a web search tool use",
    "You are coming up with a succinct title and git branch name for a coding session",
    "You are evaluating a hook in Claude Code.",
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
