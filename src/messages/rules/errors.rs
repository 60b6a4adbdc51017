//! Classifies a provider's error: its class, its kind, and whether a shorter history would help.
//!
//! Providers word the same error in many ways, and wrap it in each other's bodies and in client exceptions. So an
//! error is classified by its status and code and by phrases about limits, the most specific first: a rate limit that
//! mentions "too many tokens" is not an overflow, and neither is a limit on the answer.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::waits;
use crate::privacy::cut::beginning;

/// The class of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = ErrorClass)]
pub enum Class {
    /// The key is missing, wrong or not allowed to make the request.
    Auth,
    /// A limit was reached: of the context, of a rate, or of what is paid for.
    Quota,
    /// The provider could not be reached, or did not answer in time.
    Net,
    /// The model does not exist, or no longer exists.
    Model,
    /// Anything else.
    Unknown,
}

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[schema(as = ErrorKind)]
pub enum Kind {
    /// The request is longer than the model's context.
    ContextOverflow,
    /// The request is larger than any single request may be, in tokens per minute or in bytes.
    RequestTooLarge,
    /// Too many requests or tokens were sent in a period. Waiting helps.
    RateLimit,
    /// What is paid for is used up.
    Billing,
    /// The key is missing or wrong.
    Authentication,
    /// The key may not do this.
    Permission,
    /// There is no such model.
    ModelNotFound,
    /// The provider could not be reached, or the connection broke.
    Connection,
    /// The provider did not answer in time.
    Timeout,
    /// The provider is overloaded.
    Overloaded,
    /// The provider failed.
    ServerError,
    /// The provider's content policy rejected the request or the answer.
    ContentFilter,
    /// The requested answer is longer than the model may write.
    OutputLimit,
    /// The request is wrong in some other way.
    InvalidRequest,
    /// The new message alone is larger than the context. Gleaner found this before any call.
    UserPromptTooLarge,
    /// The context was too long, and nothing more may be dropped.
    ContextOverflowAfterTrimming,
    /// The send was cancelled.
    Cancelled,
    /// The send was never ended.
    Interrupted,
    /// The answer was interrupted.
    CutStream,
    /// Anything else.
    Unknown,
}

impl Kind {
    /// Returns the class that errors of this kind have.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Self::ContextOverflow
            | Self::RequestTooLarge
            | Self::RateLimit
            | Self::Billing
            | Self::UserPromptTooLarge
            | Self::ContextOverflowAfterTrimming => Class::Quota,
            Self::Authentication | Self::Permission => Class::Auth,
            Self::ModelNotFound => Class::Model,
            Self::Connection | Self::Timeout | Self::CutStream => Class::Net,
            Self::Overloaded
            | Self::ServerError
            | Self::ContentFilter
            | Self::OutputLimit
            | Self::InvalidRequest
            | Self::Cancelled
            | Self::Interrupted
            | Self::Unknown => Class::Unknown,
        }
    }
}

impl Class {
    /// Returns the name of the class.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::Net => "net",
            Self::Model => "model",
            Self::Unknown => "unknown",
        }
    }
}

/// A provider's error, as it came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said<'a> {
    /// The HTTP status.
    pub status: Option<u16>,
    /// The code or type that the provider gave.
    pub code: Option<&'a str>,
    /// The body of the error, or its message, of which the first 8 KiB are read.
    pub message: &'a str,
}

/// The meaning of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ErrorMeaning)]
pub struct Meaning {
    /// The class of the error.
    pub class: Class,
    /// The kind of the error.
    pub kind: Kind,
    /// Whether the context was too long, so that a shorter history would help.
    pub overflow: bool,
    /// The limit in tokens that the error message names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_tokens: Option<i64>,
    /// The number of seconds after which the provider allows another try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<i64>,
    /// A short text to show to users.
    pub label: String,
}

/// Returns what an error means. `retry_after` is what the headers of the response say.
#[must_use]
pub fn classify(said: &Said<'_>, retry_after: Option<i64>) -> Meaning {
    let text = plain(said);
    let status = said.status.or_else(|| status_in(&text));
    let (kind, overflow) = kind(&text, status);
    let class = kind.class();
    let label = label(class, said.message);
    let limited = overflow || kind == Kind::RateLimit;
    Meaning {
        class,
        kind,
        overflow,
        limit_tokens: if limited { waits::limit_tokens(&text) } else { None },
        retry_after_s: retry_after.or_else(|| waits::in_text(&text)),
        label,
    }
}

/// Returns the text about an error for users: its class and a short message.
#[must_use]
pub fn label(class: Class, message: &str) -> String {
    let short = short(message);
    let space = if short.is_empty() { "" } else { " " };
    format!("[error: {}]{space}{short}", class.name())
}

/// Decides the kind of an error, and whether a shorter history would help.
fn kind(text: &str, status: Option<u16>) -> (Kind, bool) {
    let mut found: Vec<Kind> = phrases::ORDER
        .iter()
        .filter(|phrases| phrases.set.is_match(text))
        .map(|phrases| phrases.kind)
        .collect();
    let server_failed = matches!(status, Some(500..=599));
    let has = |found: &[Kind], kind| found.contains(&kind);
    // A server error says nothing about the request unless it has a number or a code.
    if server_failed && !OVERFLOW_FIGURES.is_match(text) {
        found.retain(|kind| *kind != Kind::ContextOverflow);
    }
    if has(&found, Kind::ContextOverflow) {
        // A rate limit may mention tokens, but it also gives a waiting time or a period.
        let throttled = has(&found, Kind::RateLimit) && !CODES.is_match(text);
        if !throttled && !has(&found, Kind::Billing) && !asks_for_output_only(text) {
            return (Kind::ContextOverflow, true);
        }
    }
    if NEGATIVE_OUTPUT.is_match(text) {
        // Nothing is left for the answer, since the prompt alone is longer than the context.
        return (Kind::InvalidRequest, true);
    }
    found.retain(|kind| *kind != Kind::ContextOverflow);
    if has(&found, Kind::RequestTooLarge) && !has(&found, Kind::Billing) {
        return (Kind::RequestTooLarge, true);
    }
    let by_status = match status {
        Some(401) => Some(Kind::Authentication),
        Some(403) => Some(Kind::Permission),
        Some(402) => Some(Kind::Billing),
        Some(408 | 504 | 524) => Some(Kind::Timeout),
        Some(413) => Some(Kind::RequestTooLarge),
        Some(429) => Some(Kind::RateLimit),
        Some(503 | 529) => Some(Kind::Overloaded),
        Some(500..=599) => Some(Kind::ServerError),
        _ => None,
    };
    let told = found.first().copied();
    // For some statuses, the text is more specific than the status.
    let more_telling: &[Kind] = match by_status {
        Some(Kind::RateLimit) => &[Kind::Billing, Kind::Overloaded],
        Some(Kind::Authentication | Kind::Permission) if MODEL_CODES.is_match(text) => &[
            Kind::Billing,
            Kind::RateLimit,
            Kind::ContentFilter,
            Kind::Authentication,
            Kind::Permission,
            Kind::ModelNotFound,
        ],
        Some(Kind::Authentication | Kind::Permission) => {
            &[Kind::Billing, Kind::RateLimit, Kind::ContentFilter, Kind::Authentication, Kind::Permission]
        }
        Some(Kind::ServerError | Kind::Overloaded) => &[
            Kind::Overloaded,
            Kind::ModelNotFound,
            Kind::RateLimit,
            Kind::Billing,
            Kind::ContentFilter,
            Kind::Timeout,
        ],
        _ => &[],
    };
    let kind = told.filter(|told| more_telling.contains(told)).or(by_status).or(told).or(match status {
        Some(404) if text.contains("model") => Some(Kind::ModelNotFound),
        Some(400..=499) => Some(Kind::InvalidRequest),
        _ => None,
    });
    let kind = kind.unwrap_or(Kind::Unknown);
    (kind, kind == Kind::RequestTooLarge)
}

static CODES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("context_length_exceeded|contextwindowexceeded|exceed_context_size|max_prompt_tokens_exceeded|maximum context length")
        .expect("a regular expression")
});

static MODEL_CODES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("model_not_found|modelnotfound|deploymentnotfound|have access to (the )?model")
        .expect("a regular expression")
});

static OVERFLOW_FIGURES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\d{3,}|context_length_exceeded|exceed_context_size|contextwindowexceeded|exceeds? (the |this |model'?s? |maximum |available )*context|too (long|large)|(reduce|shorten)")
        .expect("a regular expression")
});

static NEGATIVE_OUTPUT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"max_(completion_|new_)?tokens`?'? must be at least 1, got -\d+")
        .expect("a regular expression")
});

/// Returns whether only the requested length of the answer does not fit, so that even an empty history would not
/// help.
fn asks_for_output_only(text: &str) -> bool {
    static OUTPUT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(max_(completion_|new_)?tokens'?`?( or 'max_completion_tokens')? (is )?too large: (?P<asked>\d+)[^\d]*(?P<limit>\d+))|maximum tokens you requested exceed",
        )
        .expect("a regular expression")
    });
    let Some(captures) = OUTPUT.captures(text) else {
        return false;
    };
    let number = |name| captures.name(name).and_then(|digits| digits.as_str().parse::<i64>().ok());
    number("asked").is_none_or(|asked| number("limit").is_none_or(|limit| asked >= limit))
}

/// The number of bytes of a message that are read to find out what it means.
const MOST_READ: usize = 8 << 10;

/// Returns the beginning of the text of an error in lower case, without the quoting and line breaks of the bodies that it was
/// wrapped in. Other characters than ASCII are replaced, because a search for the bounds of words is many times slower in a
/// text that has any, and no phrase has one.
fn plain(said: &Said<'_>) -> String {
    let whole = format!("{} {}", said.code.unwrap_or_default(), beginning(said.message, MOST_READ));
    let mut text = String::with_capacity(whole.len());
    let mut escaped = false;
    for c in whole.chars() {
        match c {
            '\\' => escaped = true,
            'n' | 'r' | 't' if escaped => {
                text.push(' ');
                escaped = false;
            }
            _ => {
                escaped = false;
                if c.is_whitespace() {
                    if !text.ends_with(' ') {
                        text.push(' ');
                    }
                } else if c != '"' {
                    text.push(match c {
                        c if c.is_ascii() => c.to_ascii_lowercase(),
                        c if c.is_alphanumeric() => 'x',
                        _ => '?',
                    });
                }
            }
        }
    }
    text
}

/// Finds an HTTP status in the text of an error.
fn status_in(text: &str) -> Option<u16> {
    static STATUS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"^\W*(?:(?:api |http |\w+ )?error:? )?([45]\d\d)\b|(?:status|status_code|http|error|code|response|invalid: ?)(?: code)?\W{0,3}\(?([45]\d\d)\b|[(\[]([45]\d\d) [a-z]|invalid: ([45]\d\d)\b",
        )
        .expect("a regular expression")
    });
    let captures = STATUS.captures(text)?;
    captures.iter().skip(1).flatten().next()?.as_str().parse().ok()
}

/// The maximum number of characters of a short message.
const SHORT: usize = 160;

/// Returns the innermost message of an error, on one line, cut where it is long.
fn short(message: &str) -> String {
    static MESSAGE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"(?s)\\*["']message\\*["']\s*:\s*\\*"((?:[^"\\]|\\[^"])*)"#)
            .expect("a regular expression")
    });
    let message = beginning(message, MOST_READ);
    let found = MESSAGE.captures_iter(message).last();
    let inner = found.and_then(|captures| captures.get(1)).map_or(message, |inner| inner.as_str());
    let inner = if inner.trim_matches(['\\', ' ', '{', 'n']).is_empty() { message } else { inner };
    let line = inner.replace("\\n", " ");
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('\\');
    match line.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

mod phrases;
#[cfg(test)]
mod tests;
