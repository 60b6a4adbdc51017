//! Errors as providers word them, and those that look like others.

use super::*;

#[track_caller]
fn check(status: Option<u16>, message: &str, kind: Kind, overflow: bool) {
    let meaning = classify(&Said { status, code: None, message }, None);
    assert_eq!((meaning.kind, meaning.overflow), (kind, overflow), "{status:?} {message}");
    assert_eq!(meaning.class, kind.class());
}

#[test]
fn overflows_are_seen_in_the_words_of_each_provider() {
    for message in [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion).",
        r#"{"error": {"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"}}"#,
        "prompt is too long: 201000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        "The input token count (140000) exceeds the maximum number of tokens allowed (131072).",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "ValidationException: Input is too long for requested model.",
        "This endpoint's maximum context length is 65536 tokens. However, you requested about 70000 tokens",
        "the request exceeds the available context size (4096 tokens), try increasing it",
        "request (5000 tokens) exceeds the available context size (4096 tokens)",
        "the input length exceeds the context length",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "Requested tokens (3000) exceed context window of 2048",
        "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
        "too many tokens: total number of tokens in the request exceeds 4081",
        "Invalid request: Your request exceeded model token limit: 8192",
        "Please reduce the length of the messages or completion.",
    ] {
        check(None, message, Kind::ContextOverflow, true);
        check(Some(400), message, Kind::ContextOverflow, true);
    }
    check(
        Some(429),
        "Request too large for gpt-4.1 (for limit gpt-4.1) on tokens per min (TPM): Limit 30000, Requested 40000. The input must be reduced.",
        Kind::RequestTooLarge,
        true,
    );
    check(Some(413), "", Kind::RequestTooLarge, true);
    check(Some(400), "max_tokens must be at least 1, got -12.", Kind::InvalidRequest, true);
}

#[test]
fn what_looks_like_an_overflow_is_none() {
    for (status, message, kind) in [
        (Some(429), "Too many tokens, please wait before trying again.", Kind::RateLimit),
        (None, "ThrottlingException: Too many tokens, please wait before trying again.", Kind::RateLimit),
        (
            Some(429),
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 20000, Requested 12000. Please try again in 4s.",
            Kind::RateLimit,
        ),
        (Some(500), "error while computing the maximum context length", Kind::ServerError),
        (Some(400), "The maximum tokens you requested exceeds the model limit of 4096", Kind::OutputLimit),
        (
            Some(400),
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
            Kind::OutputLimit,
        ),
        (
            None,
            "max_tokens limit exceeded: 9000 > 800. To increase, create a key with a higher limit",
            Kind::Billing,
        ),
        (
            Some(402),
            "This request requires more credits, or fewer max_tokens. You can only afford 500",
            Kind::Billing,
        ),
        (Some(401), "token expired", Kind::Authentication),
    ] {
        check(status, message, kind, false);
    }
}

#[test]
fn errors_have_the_kind_that_they_tell_of() {
    for (status, message, kind) in [
        (Some(401), r#"{"message": "Unauthorized"}"#, Kind::Authentication),
        (None, "The api_key client option must be set", Kind::Authentication),
        (Some(400), "API key not valid. Please pass a valid API key.", Kind::Authentication),
        (Some(403), "Permission denied", Kind::Permission),
        (
            Some(404),
            r#"{"error":{"code":"model_not_found","message":"The model `x` does not exist"}}"#,
            Kind::ModelNotFound,
        ),
        (None, "model \"qwen\" not found, try pulling it first", Kind::ModelNotFound),
        (Some(400), "The model `x` has been decommissioned and is no longer supported.", Kind::ModelNotFound),
        (None, "connect ECONNREFUSED 127.0.0.1:11434", Kind::Connection),
        (None, "Request timed out.", Kind::Timeout),
        (
            Some(529),
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Kind::Overloaded,
        ),
        (Some(500), "Overloaded", Kind::Overloaded),
        (Some(500), "The server had an error while processing your request", Kind::ServerError),
        (Some(429), "You exceeded your current quota (insufficient_quota)", Kind::Billing),
        (Some(400), "Your credit balance is too low", Kind::Billing),
        (Some(400), "The response was filtered due to content management policy", Kind::ContentFilter),
        (Some(400), "messages: roles must alternate", Kind::InvalidRequest),
        (None, "something odd", Kind::Unknown),
    ] {
        check(status, message, kind, false);
    }
}

#[test]
fn a_label_has_the_class_and_the_innermost_message() {
    let body = r#"400 {"error":{"message":"{\n \"error\": {\n \"message\": \"The input token count (9) exceeds the maximum number of tokens allowed (8).\"}}"}}"#;
    let meaning = classify(&Said { status: None, code: None, message: body }, None);
    assert_eq!(
        meaning.label,
        "[error: quota] The input token count (9) exceeds the maximum number of tokens allowed (8)."
    );
    assert_eq!(meaning.limit_tokens, Some(8));
    assert_eq!(label(Class::Net, ""), "[error: net]");
    assert_eq!(label(Class::Net, &"x".repeat(500)).chars().count(), "[error: net] ".len() + SHORT + 1);
}

#[test]
fn a_wait_in_the_headers_goes_before_one_in_the_text() {
    let said = Said { status: Some(429), code: None, message: "Please try again in 20s" };
    assert_eq!(classify(&said, None).retry_after_s, Some(20));
    assert_eq!(classify(&said, Some(7)).retry_after_s, Some(7));
}

#[test]
fn only_the_beginning_of_a_long_message_is_read() {
    let filler = "and so on ".repeat(1_000);
    check(None, &format!("{filler}context_length_exceeded"), Kind::Unknown, false);
    check(None, &format!("context_length_exceeded {filler}"), Kind::ContextOverflow, true);
    let body = format!(r#"{{"message": "the first"}} {filler} {{"message": "the last"}}"#);
    assert_eq!(label(Class::Net, &body), "[error: net] the first");
}

#[test]
fn phrases_are_found_beside_letters_of_other_alphabets() {
    for (message, kind) in [
        ("Das Modell „größer“: model “größer” does not exist", Kind::ModelNotFound),
        ("模型 (model qwen) 不存在: not found", Kind::ModelNotFound),
        ("not enough credits — кредиты закончились", Kind::Billing),
        ("not enough creditsы", Kind::Unknown),
    ] {
        check(None, message, kind, false);
        assert!(plain(&Said { message, ..Said::default() }).is_ascii(), "{message}");
    }
}
