//! Decides whether an answer is the whole of what a model had to say.

/// The reasons to stop that providers give if the model has ended its answer by itself, or where the client has told it to.
const ENDS: [&str; 8] =
    ["stop", "end_turn", "stop_sequence", "completed", "complete", "eos", "eos_token", "end_of_text"];

/// Returns whether an answer that stopped for this reason is whole. It may also have reached a limit, been withheld, or be
/// continued later. Reasons that are not known here are taken for such, because half of an answer is worse to learn from than
/// none.
#[must_use]
pub fn ends_answer(reason: &str) -> bool {
    ENDS.iter().any(|end| reason.eq_ignore_ascii_case(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_reached_a_limit_was_withheld_or_goes_on_is_not_whole() {
        for reason in ["stop", "STOP", "end_turn", "stop_sequence", "completed"] {
            assert!(ends_answer(reason), "{reason}");
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
            assert!(!ends_answer(reason), "{reason}");
        }
    }
}
