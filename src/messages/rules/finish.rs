//! Decides whether an answer is the whole of what a model had to say.

/// The reasons to stop that providers give if a model has reached a limit, if its answer was withheld, or if it goes on later.
const PARTIAL: [&str; 24] = [
    "blocklist",
    "cancelled",
    "content_filter",
    "content_filtered",
    "error",
    "function_call",
    "guardrail_intervened",
    "incomplete",
    "language",
    "length",
    "malformed_function_call",
    "max_output_tokens",
    "max_tokens",
    "model_context_window_exceeded",
    "model_length",
    "other",
    "pause_turn",
    "prohibited_content",
    "recitation",
    "refusal",
    "safety",
    "spii",
    "tool_calls",
    "tool_use",
];

/// Returns whether an answer that stopped for this reason is a part of one, or none. Half of an answer is worse to learn from
/// than none.
#[must_use]
pub fn is_partial(reason: &str) -> bool {
    PARTIAL.iter().any(|partial| reason.eq_ignore_ascii_case(partial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_reached_a_limit_was_withheld_or_goes_on_is_partial() {
        for reason in ["stop", "STOP", "end_turn", "stop_sequence", "completed", "done"] {
            assert!(!is_partial(reason), "{reason}");
        }
        for reason in [
            "length",
            "max_tokens",
            "content_filter",
            "refusal",
            "pause_turn",
            "incomplete",
            "model_context_window_exceeded",
            "SAFETY",
            "tool_calls",
        ] {
            assert!(is_partial(reason), "{reason}");
        }
    }
}
