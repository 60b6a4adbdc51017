//! Decides whether an answer is the whole of what a model had to say.

/// The reasons to stop that providers give if the model has ended its answer by itself. There are many more others, and providers
/// invent new ones: for limits, for answers that were withheld or interrupted, and for those that go on later.
const WHOLE: [&str; 17] = [
    "complete",
    "completed",
    "done",
    "end",
    "end_of_turn",
    "end_turn",
    "endoftext",
    "eos",
    "eos_token",
    "finish",
    "finished",
    "normal",
    "stop",
    "stop_sequence",
    "stop_token",
    "success",
    "succeeded",
];

/// Returns whether an answer that stopped for this reason may be a part of one, or none. Half of an answer is worse to learn from
/// than none. Reasons are compared without case, and with `-` as `_`.
#[must_use]
pub fn is_partial(reason: &str) -> bool {
    let reason = reason.trim().replace('-', "_");
    !WHOLE.iter().any(|whole| reason.eq_ignore_ascii_case(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_the_model_ended_by_itself_is_whole() {
        for reason in [
            "stop",
            "STOP",
            "end_turn",
            "stop_sequence",
            "completed",
            "done",
            "COMPLETE",
            "eos_token",
            "end-turn",
        ] {
            assert!(!is_partial(reason), "{reason}");
        }
        for reason in [
            "length",
            "max_tokens",
            "content_filter",
            "content-filter",
            "refusal",
            "pause_turn",
            "incomplete",
            "model_context_window_exceeded",
            "SAFETY",
            "tool_calls",
            "sensitive",
            "network_error",
            "insufficient_system_resource",
            "abort",
            "unknown",
        ] {
            assert!(is_partial(reason), "{reason}");
        }
    }
}
