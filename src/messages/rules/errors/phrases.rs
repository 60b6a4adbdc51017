//! The phrases of providers' errors.

use std::sync::LazyLock;

use regex::RegexSet;

use super::Kind;

/// Phrases of one kind. Each is a regular expression over the text in lower case, without quoting and line breaks.
pub(super) struct Phrases {
    pub(super) kind: Kind,
    pub(super) set: RegexSet,
}

impl Phrases {
    fn new(kind: Kind, phrases: &[&str]) -> Self {
        Self { kind, set: RegexSet::new(phrases).expect("the phrases are regular expressions") }
    }
}

/// The names of a request's length and of its limits.
const LENGTH: &str = r"(context|prompt|input|messages?|conversation|sequence|request(ed)?( token| body)?|token|text|question)s?";

/// The phrases of all kinds, the most specific first.
pub(super) static ORDER: LazyLock<Vec<Phrases>> = LazyLock::new(|| {
    let exceeds = r"(exceed(s|ed|ing)?|surpass(es|ed)?|overflow(s|ed)?|(is|are|was|were) (over|above|beyond)|larger than|longer than|greater than|more than)";
    let overflow = [
        // Codes and names of exceptions.
        "context_length_exceeded",
        "context_?window_?exceeded",
        "exceed_context_size",
        "context_?overflow",
        "max_prompt_tokens_exceeded",
        "tokens_limit_reached",
        "context_limit_(reached|exceeded)",
        "prompt_too_long",
        "input_too_long",
        // The request is longer than the limit.
        &format!(
            r"{LENGTH}\b[^.;]{{0,80}}\b{exceeds}\b[^.;]{{0,60}}\b(context|model'?s? (token )?limit|max(imum)? (number of )?(input |prompt |allowed |sequence |total )?(tokens|length)|token limit|tokens? (allowed|permitted|supported))"
        ),
        r"(exceed(s|ed)?|larger than|longer than|greater than|cannot fit( in(to)?)?|not fit in(to)?) (the |this |its |your )?((available|maximum|max|configured|model'?s?|total|allowed|input) ){0,3}(context|sequence|prompt|input)( |_)?(window|length|size|limit|token)",
        r"(context|prompt|input|sequence)( |_)?(window|length|size)? (size )?(was |is |has been |have been )?(exceed(s|ed)|overflow(s|ed))",
        r"exceeded (this )?model'?s? (token|context)[a-z ]{0,10} limit",
        r"exceeds? the (configured |model )?(token )?limit of \d+",
        r"(input|prompt)s?,? tokens? (count )?(\(?\d+\)? )?(exceed|is over|is above|is greater|is larger|cannot exceed)",
        r"number of (input |prompt )?tokens[^.;]{0,40}(exceed|greater than|cannot exceed)",
        r"input token count[^.;]{0,60}(exceeds|only supports)",
        r"(prompt|input|context|conversation|messages?|text|question|history)( tokens?)?( \([^)]*\)| length)? (is |are |was |were )?too (long|large|big)\b",
        r"too long (to fit|for (the |this |requested )?model)",
        r"too (large|long) for model with",
        r"too many (input |prompt )?tokens[:.,]? ?(total|size|max|in (the|your) (prompt|request|input))",
        r"too many (input|prompt) tokens",
        r"token indices sequence length is longer",
        // The limit, with what it was compared with.
        r"(maximum|max) (context|prompt|input|sequence|model)( |_)?(len(gth)?|size|window)[^.;]{0,60}(tokens)?[.,;]? (but|however|and) (the |you|your)",
        r"maximum context length (is|of) \d+",
        r"maximum context length \d+ tokens",
        r"maximum prompt length is \d+ but",
        r"(input|prompt|inputs`) tokens \+ `?max_(new_)?tokens`? must be",
        r"input length and `?max_tokens`? exceed",
        r"`?inputs`? must have less than \d+ tokens",
        r"range of input length should be",
        r"(reduce|shorten) (the |your )?(length of |size of )?(the |your )?((input |chat )?messages|prompt|input|context|conversation)",
        r"input tokens exceeded",
        r"ran out of room in the model'?s context",
        r"context (is|was) (full|exhausted)",
        r"when context (the )?overflows",
        r"greater than the context (length|window|size)",
        r"(longer|larger|greater) than (the )?max(imum)?_?( )?(model|seq|sequence|input|context|prompt)_?( )?(len|length|size)",
        r"larger than the maximum model length",
        r"exceeds max(imum)?( input| prompt| sequence| model)? len",
        r"prompt exceeds max",
        r"context window exceeds limit",
    ];
    let overflow: Vec<&str> = overflow.iter().map(AsRef::as_ref).collect();
    vec![
        Phrases::new(
            Kind::Billing,
            &[
                r"insufficient_quota",
                r"credit balance",
                r"(insufficient|not enough|out of|no|more|low on) (account )?(credits?|balance|funds)\b",
                r"requires more credits",
                r"can only afford",
                r"payment required",
                r"billing_(hard_)?limit|billing hard limit|billing_not_active",
                r"spend(ing)?_?( )?(limit|cap)",
                r"plans? (&|and) billing to upgrade",
                r"keys? (and create a key )?with a higher limit",
                r"account (balance|is not active)|arrear(s|age)",
                r"exceeded_current_quota_error",
                r"exceeded your current quota, please check your plan and billing details\. for more information on this error, read",
            ],
        ),
        // More than is let through in a minute will not fit in a minute's time either.
        Phrases::new(
            Kind::RequestTooLarge,
            &[
                r"(request|input|prompt|context|conversation|messages?)( is| are)? too large for",
                r"request_too_large",
                r"request (body|payload|entity|size)?( size)? ?(exceeds|too large|is too large|larger than)[^.]{0,40}(max|size|limit|bytes|byte|mb\b|large)",
                r"payload too large|content too large|entity too large",
                r"request exceeds the maximum (allowed )?(size|number of bytes)",
            ],
        ),
        Phrases::new(
            Kind::RateLimit,
            &[
                r"rate[ _-]?limit",
                r"too many requests",
                r"too many (tokens|concurrent)[^.]{0,30}(please wait|per (min|day|hour)|before trying)",
                r"(requests|tokens|quota)[a-z_ ]{0,20} per[ _]?(min|minute|day|hour|second)",
                r"throttl(ed|ing)",
                r"resource[ _]?(has been )?exhausted",
                r"quota (exceeded|metric)|quota_?metric|exceeded your (current )?quota|quota_exceeded|usage limit",
                r"please (try again|retry) (in|after) [\d.]+ ?(ms|s|m|h|sec)",
                r"(concurrency|concurrent request)s? limit",
            ],
        ),
        Phrases::new(Kind::ContextOverflow, &overflow),
        Phrases::new(
            Kind::OutputLimit,
            &[
                r"max(imum)?_?( )?(output|completion|new)?_?( )?tokens?[^.]{0,60}(exceed|too large|greater|larger|must be|at most|invalid|limit)",
            ],
        ),
        Phrases::new(
            Kind::ModelNotFound,
            &[
                r"model_not_found|model_not_exist|modelnotfound|deploymentnotfound|model_decommissioned|model_deprecated|invalid_model|unknown_model|unsupported_model|model_not_available|no_such_model",
                r"models?\b[^.;]{0,120}(does not|doesn'?t|not) exist",
                r"models?\b[^;]{0,160}(is |was |were |could |be )?(not|n't) (be )?found",
                r"models?\b[^;]{0,160}(deprecated|decommissioned|retired|removed|discontinued|end of life|no longer (supported|available)|shut ?down|sunset)",
                r"(unknown|invalid|unsupported|unrecognized|no such|no) model\b",
                r"model (name |id )?['`\x22]?[\w./:@-]+['`\x22]? (is )?(invalid|unknown|not (supported|available|valid|recognized))",
                r"not a valid model|model identifier is invalid|model is not (supported|available)|deployment for this resource does not exist",
                r"(does not|do not|don'?t) have access to (the )?model\b",
                r"no (endpoints|providers?|allowed providers)( are)? (found|available)",
            ],
        ),
        Phrases::new(
            Kind::ContentFilter,
            &[
                r"content[ _]?(filter|policy|management)|safety (system|filter|setting)|responsibleai|flagged|moderation|violat(es|ed|ing) (our|the|usage)|prohibited[ _]content|blocked by|guardrail",
            ],
        ),
        Phrases::new(
            Kind::Authentication,
            &[
                r"(invalid|incorrect|missing|no|bad|wrong|expired)[ _](x-)?(api|auth|access|security)[ _-]?(key|token|header)",
                r"api[ _-]?key[^.;]{0,60}(not valid|invalid|expired|incorrect|missing|not (set|found|provided)|required|must be set|suspended|option must)",
                r"api_key_invalid|invalid_api_key|authentication_error|authenticationerror|unauthenticated|unauthorized|not authenticated",
                r"\b(could not|couldn'?t|unable to|failed to) (authenticate|verify|(load|find|resolve)[^.]{0,20} credentials)",
                r"(default )?credentials?\b[^;]{0,60}(not found|missing|invalid|expired|could not)",
                r"(security |access |auth |bearer )?token[^.;]{0,20}(has |is |included in the request is )?(expired|invalid)",
                r"please (run /)?log ?in|sign in|no auth credentials",
            ],
        ),
        Phrases::new(
            Kind::Permission,
            &[
                r"permission[ _]?(denied|error)|permissiondenied|access[ _]?denied|accessdenied|not (authorized|allowed|permitted) to|forbidden|(do not|don'?t|does not) have (access|permission)|suspended|not supported in your (country|region)|unsupported_country",
            ],
        ),
        Phrases::new(
            Kind::Timeout,
            &[r"time[d ]?[ -]?out|timeout|etimedout|deadline[ _]exceeded|took too long"],
        ),
        Phrases::new(
            Kind::Overloaded,
            &[
                r"overloaded|over capacity|at capacity|high demand|no capacity|server is busy|currently unavailable|service[ _]?unavailable|temporarily unavailable|modelnotready|still loading|loading model",
            ],
        ),
        Phrases::new(
            Kind::Connection,
            &[
                r"econn(refused|reset|aborted)|enotfound|eai_again|epipe|ehostunreach|enetunreach|und_err",
                r"connection[ _]?(was |is |has been )?(error|refused|reset|aborted|closed|failed|lost|timed)|connecterror|connectionerror|apiconnectionerror",
                r"(failed|unable|could not|couldn'?t|cannot|can't) (to )?(connect|reach|resolve)|connect call failed",
                r"fetch failed|failed to fetch|network ?(error|is unreachable|failure)|networkerror|socket hang up|other side closed|peer closed|server disconnected|remote end closed|premature close|incomplete (chunked )?(read|message)|broken pipe|unexpected eof|stream (was )?(closed|interrupted|disconnected)",
                r"getaddrinfo|name resolution|name or service not known|dns|max retries exceeded|no route to host|error sending request|certificate|ssl|tls handshake",
            ],
        ),
        Phrases::new(
            Kind::ServerError,
            &[
                r"internal (server )?error|server_error|internalservererror|api_error|bad gateway|server had an error|gateway[ _]?time",
            ],
        ),
    ]
});
