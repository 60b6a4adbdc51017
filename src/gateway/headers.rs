//! The headers of requests and responses that are forwarded, and those that are meant for the gateway itself.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use utoipa::IntoParams;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::providers::Kind;

/// The header with the client's own `Authorization` for the provider.
const PROVIDER_KEY: &str = "gleaner-provider-key";

/// The headers of a request that are forwarded, besides those that begin with one of [`FAMILIES`].
const PASSED: [HeaderName; 3] = [header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT];
const FAMILIES: [&str; 3] = ["anthropic-", "openai-", "x-stainless-"];

/// The headers of a response that describe the connection to the provider, its host, or the transfer of the body.
const OF_CONNECTION: [HeaderName; 10] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::ALT_SVC,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
];

/// The headers in which agents name their session.
const SESSIONS: [&str; 4] = ["gleaner-session", "x-claude-code-session-id", "session_id", "session-id"];

/// The header in which Claude Code names a subagent, and the ones in which Codex says that a request is one of a subagent, and
/// names its thread.
const SUBAGENT: &str = "x-claude-code-agent-id";
const SUBAGENT_KIND: &str = "x-openai-subagent";
const THREAD: &str = "thread-id";

/// The options of a request for the gateway itself.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct Options {
    /// The name of the agent session that the request belongs to. Sessions of Claude Code and Codex are known without it.
    #[param(rename = "Gleaner-Session")]
    pub(super) session: Option<String>,
    /// The topic of the message pair that the request makes. Subagents of Claude Code and Codex have one of their own without it.
    #[param(rename = "Gleaner-Topic")]
    pub(super) topic: Option<String>,
    /// The id of an open generation log to which the answer is appended as an attempt.
    #[param(rename = "Gleaner-Generation-Id", value_type = String, required = false,
        pattern = "^([0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})?$")]
    pub(super) generation: Option<Uuid>,
    /// The number of the attempt in the generation log. The default is the next number.
    #[param(rename = "Gleaner-Attempt", value_type = String, required = false, pattern = "^(0*[1-9][0-9]{0,8})?$")]
    pub(super) attempt: Option<i32>,
    /// With `on`, the gateway drops the oldest turn and sends the rest again when the provider reports that the
    /// context is too long.
    #[param(rename = "Gleaner-Trim", value_type = String, required = false,
        pattern = "^(on|off|true|false|1|0|yes|no)?$")]
    pub(super) trims: bool,
    /// The `Authorization` value of the client's own account with the provider. It takes precedence over the server's
    /// key and is never stored.
    #[param(rename = "Gleaner-Provider-Key", value_type = Option<String>)]
    pub(super) provider_key: Option<HeaderValue>,
}

impl Options {
    /// Reads the options from the headers of a request. An invalid value is a 422.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self> {
        let text = |name: &str| match headers.get(name).map(HeaderValue::to_str) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(Err(_)) => Err(wrong(name, "has characters that are not ASCII")),
        };
        let name = |header: &str| match text(header)? {
            Some(name) if name.len() > 200 => Err(wrong(header, "must have at most 200 characters")),
            name => Ok(name.map(str::to_owned)),
        };
        let mut session = None;
        for header in SESSIONS {
            session = session.or(name(header)?);
        }
        // Agents do not know our rules, so that what they say for others is no error.
        let said = |header: &str| name(header).ok().flatten();
        let of_codex = || said(SUBAGENT_KIND).map(|kind| said(THREAD).unwrap_or(kind));
        let topic = name("gleaner-topic")?.or_else(|| said(SUBAGENT)).or_else(of_codex);
        let generation = text("gleaner-generation-id")?.map(str::parse).transpose();
        let attempt = text("gleaner-attempt")?.map(str::parse).transpose();
        let attempt =
            attempt.ok().filter(|number| number.is_none_or(|number| (1..=1_000_000_000).contains(&number)));
        let provider_key = headers.get(PROVIDER_KEY).cloned().map(|mut key| {
            key.set_sensitive(true);
            key
        });
        Ok(Self {
            session,
            topic,
            generation: generation.map_err(|_| wrong("gleaner-generation-id", "must be a UUID"))?,
            attempt: attempt.ok_or_else(|| wrong("gleaner-attempt", "must be from 1 to 1000000000"))?,
            trims: match text("gleaner-trim")?.map(str::to_ascii_lowercase).as_deref() {
                Some("on" | "true" | "1" | "yes") => true,
                None | Some("off" | "false" | "0" | "no") => false,
                Some(_) => return Err(wrong("gleaner-trim", "must be on or off")),
            },
            provider_key,
        })
    }
}

fn wrong(header: &str, detail: &str) -> Error {
    Error::invalid(format!("/{header}"), detail)
}

/// Makes the key that a client of Anthropic's sends our key, for the keyring: `x-api-key` is then what `Authorization` is
/// elsewhere. Where both are there, a key of ours counts.
pub(super) fn name_key(kind: Kind, headers: &mut HeaderMap) {
    if kind != Kind::Anthropic {
        return;
    }
    let Some(key) = headers.get("x-api-key").and_then(|key| key.to_str().ok()) else { return };
    let is_ours = key.starts_with(crate::auth::keys::BEGINNING);
    if (is_ours || !headers.contains_key(header::AUTHORIZATION))
        && let Ok(mut bearer) = HeaderValue::try_from(format!("Bearer {key}"))
    {
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
    }
}

/// Copies headers. A value is a part of the buffer in which it came, and HTTP/2 keeps values for later requests of a connection
/// (RFC 7541, section 2.3.2), so that a few bytes would keep hundreds of kilobytes.
fn copied<'a>(headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> HeaderMap {
    let copy = |value: &HeaderValue| {
        let mut copy = HeaderValue::from_bytes(value.as_bytes()).expect("it is a value");
        copy.set_sensitive(value.is_sensitive());
        copy
    };
    headers.map(|(name, value)| (name.as_str().parse().expect("it is a name"), copy(value))).collect()
}

/// Returns the headers of a request that are forwarded to the provider. They include no keys.
pub(super) fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let passes = |name: &HeaderName| {
        PASSED.contains(name) || FAMILIES.iter().any(|family| name.as_str().starts_with(family))
    };
    copied(headers.iter().filter(|(name, _)| passes(name)))
}

/// Returns the headers of a provider's response that are forwarded to the client. What a header of ours says comes from us, and
/// which web pages may read a response is not for the provider to say.
pub(super) fn returned(headers: &HeaderMap) -> HeaderMap {
    const OURS: [&str; 2] = ["gleaner-", "access-control-"];
    // A provider may name others that are meant for the connection (RFC 9110, section 7.6.1).
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|named| named.to_str().ok());
    let named: Vec<_> = named.flat_map(|named| named.split(',')).map(str::trim).collect();
    let passes = |name: &HeaderName| {
        !OF_CONNECTION.contains(name)
            && *name != "keep-alive"
            && !OURS.iter().any(|ours| name.as_str().starts_with(ours))
            && !named.iter().any(|named| name.as_str().eq_ignore_ascii_case(named))
    };
    copied(headers.iter().filter(|(name, _)| passes(name)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn keys_do_not_pass_and_what_the_client_tells_the_provider_does() {
        let sent = headers(&[
            ("authorization", "Bearer glnr_x"),
            ("x-api-key", "glnr_x"),
            ("gleaner-provider-key", "theirs"),
            ("cookie", "c"),
            ("accept-encoding", "gzip"),
            ("anthropic-beta", "b"),
            ("openai-organization", "o"),
            ("content-type", "application/json"),
        ]);
        let mut passed: Vec<_> = forwarded(&sent).keys().map(ToString::to_string).collect();
        passed.sort();
        assert_eq!(passed, ["anthropic-beta", "content-type", "openai-organization"]);
        let options = Options::of(&sent).expect("reads");
        assert!(!format!("{options:?}").contains("theirs"));
    }

    #[test]
    fn what_passes_keeps_nothing_of_what_it_came_in() {
        let buffer = Bytes::from("x-part: answer".repeat(1_000));
        let name = HeaderName::from_bytes(&buffer[..6]).expect("a name");
        let value = HeaderValue::from_maybe_shared(buffer.slice(8..14)).expect("a value");
        let answered = HeaderMap::from_iter([(name, value)]);
        let passed = returned(&answered);
        assert_eq!(passed["x-part"], "answer");
        drop(answered);
        assert!(buffer.is_unique());
    }

    #[test]
    fn no_provider_speaks_in_our_name() {
        let answered = headers(&[
            ("gleaner-recorded", "no"),
            ("x-request-id", "r"),
            ("content-length", "5"),
            ("connection", "close, X-Hop"),
            ("x-hop", "h"),
            ("set-cookie", "c"),
            ("access-control-allow-origin", "*"),
            ("date", "d"),
        ]);
        let mut passed: Vec<_> = returned(&answered).keys().map(ToString::to_string).collect();
        passed.sort();
        assert_eq!(passed, ["date", "x-request-id"]);
    }

    #[test]
    fn a_header_of_ours_that_is_wrong_is_named() {
        for (name, value) in [
            ("gleaner-generation-id", "x"),
            ("gleaner-attempt", "0"),
            ("gleaner-attempt", "x"),
            ("gleaner-trim", "perhaps"),
        ] {
            let error = Options::of(&headers(&[(name, value)])).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
        let named =
            Options::of(&headers(&[("session_id", "codex"), ("gleaner-session", " ")])).expect("reads");
        assert_eq!(named.session.as_deref(), Some("codex"));
        let long = "a".repeat(201).leak();
        for (sent, topic) in [
            (&[("x-claude-code-agent-id", "a1")][..], "a1"),
            (&[("x-openai-subagent", "review"), ("thread-id", "t1")], "t1"),
            (&[("x-openai-subagent", "review")], "review"),
            (&[("x-claude-code-agent-id", "a1"), ("gleaner-topic", "mine")], "mine"),
            (&[("x-claude-code-agent-id", &*long), ("x-openai-subagent", "review")], "review"),
        ] {
            assert_eq!(Options::of(&headers(sent)).expect("reads").topic.as_deref(), Some(topic));
        }
        assert_eq!(Options::of(&headers(&[("thread-id", "t1")])).expect("reads").topic, None);
    }

    #[test]
    fn a_key_of_ours_counts_wherever_a_client_of_anthropics_puts_it() {
        for (sent, counts) in [
            (&[("x-api-key", "any")][..], "Bearer any"),
            (&[("x-api-key", "any"), ("authorization", "Bearer other")], "Bearer other"),
            (&[("x-api-key", "glnr_1"), ("authorization", "Bearer other")], "Bearer glnr_1"),
        ] {
            let mut sent = headers(sent);
            name_key(Kind::Anthropic, &mut sent);
            assert_eq!(sent[header::AUTHORIZATION], counts);
        }
    }
}
