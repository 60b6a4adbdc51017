//! Passwords, tokens and keys in addresses (RFC 3986).

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::pattern::Pattern;
use super::random::{is_key, is_random};

/// Returns the patterns of what is secret in an address.
pub(super) fn patterns() -> [Pattern; 4] {
    [
        // A password in an address (RFC 3986, section 3.2.1), also with an at sign that should be a percent code. One that
        // begins with a dollar sign is a variable.
        Pattern::matches(
            &["://", r":\/\/"],
            r#"[A-Za-z][A-Za-z0-9+.-]+:\\?/\\?/([^\s:/"'<>{}$`]*:[^\s/@"'<>{}$`][^\s/"<>{}`]{2,})@"#,
            is_login,
        ),
        // One with a slash that should be a percent code, too.
        Pattern::matches(
            &["://", r":\/\/"],
            r#"[A-Za-z][A-Za-z0-9+.-]+:\\?/\\?/[^\s:/@"'<>{}$`]*:([^\s/@"'<>{}$`][^\s@"'<>{}`]{7,200})@[A-Za-z0-9\[]"#,
            is_password_with_slash,
        ),
        // A key in the query of an address, by the names that such have besides those that say it everywhere.
        Pattern::matches(
            &[
                "?key=",
                "&key=",
                ";key=",
                "u0026key=",
                "?appid=",
                "&appid=",
                ";appid=",
                "u0026appid=",
                "?ak=",
                "&ak=",
                "?sk=",
                "&sk=",
                "?auth=",
                "&auth=",
                "?jwt=",
                "&jwt=",
                "?sid=",
                "&sid=",
                "?phpsessid=",
                "&phpsessid=",
            ],
            r"(?i)(?:[?&;]|u0026)(?:key|appid|[as]k|auth|jwt|(?:phpses)?sid)=([a-z0-9._~-]{16,})",
            is_query_key,
        ),
        Pattern::values(&["://", r":\/\/"], users),
    ]
}

/// Returns the users of addresses that are tokens, without a password or with one that says nothing. The keys in the addresses
/// of Sentry, whose path is the number of a project, are public.
fn users(text: &str) -> Vec<Range<usize>> {
    static USER: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r#"(?:(?:git\+)?https?|nats|rediss?|amqps?):\\?/\\?/([^\s:/"'<>{}$`@]{16,200})(?::(?:X|x-oauth-basic)?)?@(sentry\.|o[0-9]+\.ingest)?[A-Za-z0-9.-]+(?::[0-9]+)?(?:(\\?/[0-9]+)(?:[^A-Za-z0-9_/.-]|$))?"#,
        )
    });
    let found = USER.captures_iter(text).filter(|found| found.get(2).or(found.get(3)).is_none());
    let users = found.filter_map(|found| found.get(1)).filter(|user| is_key(user.as_str()));
    users.map(|user| user.range()).collect()
}

/// Returns whether a value in a query looks like nothing but a key. Some have an odd number of hexadecimal digits.
fn is_query_key(text: &str) -> bool {
    const DIGITS: usize = 31;
    is_key(text)
        || text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_random(text)
}

/// Returns whether what is between a colon and an at sign in an address is a password that has a slash, rather than a port and a path.
fn is_password_with_slash(text: &str) -> bool {
    text.split_once('/').is_some_and(|(port, _)| !port.bytes().all(|byte| byte.is_ascii_digit()))
        && is_random(text)
}

/// Returns whether a user and a password in an address are probably real. Examples repeat the user's name or use a
/// word as the password.
fn is_login(login: &str) -> bool {
    const EXAMPLES: [&str; 20] = [
        "pass", "password", "passwd", "secret", "postgres", "root", "admin", "user", "test", "example",
        "changeme", "guest", "gleaner", "xxx", "xxxx", "pwd", "redacted", "hidden", "masked", "removed",
    ];
    let (user, password) = login.split_once(':').unwrap_or(("", login));
    // The reference of an image has a version and a digest, as in `docker://alpine:3.20@sha256:…`.
    let is_version =
        password.contains('.') && password.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    password != user
        && !is_version
        && !EXAMPLES.contains(&password.to_ascii_lowercase().as_str())
        && !password.bytes().all(|byte| byte == b'*')
}
