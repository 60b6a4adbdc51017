//! Credentials in headers (RFC 9110) and forms (RFC 7578), as clients send them and as programs, documents and tables show them.

use super::named::QUOTE;
use super::pattern::{CODE, Pattern};
use super::random::{is_random, is_very_random};

/// Returns the patterns of credentials in headers.
pub(super) fn patterns() -> [Pattern; 9] {
    const SCHEMES: &str = "(?:apikey|basic|bearer|bot|key|ssws|token)";
    const NAME: &str = "(?:authorization|auth[_-]?header)(?:[_-]?header)?";
    let sets = sets();
    // The name of the header, and what is between it and its value, which may be the only one in a list.
    let authorization = format!(r"{NAME}(?:{QUOTE}?\]?\s*[:=]>?(?:{GAP})?(?:[\[{{(]\s*)?{QUOTE}?|{sets})");
    // What tables, documents and programs have between the name of the header and its value.
    let between = format!(r"(?:{QUOTE}|[\s:=>|*\\\[\](){{}},-]|string\([0-9]+\)|</?[a-z][^<>\n]{{0,40}}>)");
    [
        // The credentials of an Authorization header (RFC 9110), also in the quotes and escapes of code.
        Pattern::matches(
            &["authorization", "auth_header", "auth-header", "authheader"],
            &format!(r"(?i){authorization}{SCHEMES}{GAP}{JOINED}({CREDENTIALS})"),
            is_credential,
        ),
        Pattern::matches(
            &["authorization"],
            &format!(r"(?i)authorization{between}{{1,40}}{SCHEMES}(?:[ \t]|%20|[+\\]){{1,3}}({CREDENTIALS})"),
            is_random,
        ),
        // The value of the header in another member of an object, or another attribute of an element, than its name.
        Pattern::matches(
            &["authorization"],
            &format!(
                r"(?i)authorization{QUOTE}?\s*,?\s*(?:</name>\s*<)?{QUOTE}?value{QUOTE}?\s*[:=>]\s*{QUOTE}?(?:[a-z0-9-]{{2,20}}\s+)?({CREDENTIALS})"
            ),
            is_token,
        )
        .on_two_lines(),
        // What a program in Swift sets a header to, whose name follows.
        Pattern::matches(
            &["forhttpheaderfield"],
            r#"(?i)value\(\s*\\*"(?:[a-z0-9-]{2,20}\s)?([^\s"\\]{12,})\\*"\s*,\s*forhttpheaderfield:\s*\\*"[a-z0-9-]*(?:auth|key|secret|token)"#,
            is_random,
        ),
        // The value of the header in programs for .NET.
        Pattern::matches(
            &["headervalue("],
            r#"(?i)headervalue\(\s*"[a-z0-9-]{2,20}"\s*,\s*[$@]?"([^"\s\\]{12,})""#,
            is_random,
        ),
        // The user and the password of clients of Confluent's registry.
        Pattern::matches(
            &["auth.user.info"],
            &format!(r#"(?i)auth\.user\.info{QUOTE}?\s*[:=]\s*{QUOTE}?[^\s:"']+:([^\s"'\\]{{12,}})"#),
            is_random,
        ),
        // A user and a password, as files of clients have them.
        Pattern::matches(
            &["authorization"],
            r#"(?im)authorization:[ \t]*(?:basic|digest)[ \t]+[^\s:"'`$,]+[ \t:][ \t]*([^\s:"'`\\,]{8,})\s*$"#,
            is_random,
        ),
        Pattern::matches(
            &["authorization", "auth_header", "auth-header", "authheader", "basic ", "bearer "],
            &format!(
                r"(?i)(?:{authorization}(?:[a-z0-9-]{{2,20}}{GAP}{JOINED})?|(?:(?-u:\b)|{CODE})bearer{GAP}{JOINED}|{QUOTE}basic{GAP}{JOINED})({CREDENTIALS})"
            ),
            is_token,
        ),
        // A field of a form that has several parts (RFC 7578).
        Pattern::matches(
            &["form-data"],
            &format!(
                r#"(?i)form-data;\s*name={QUOTE}?[a-z0-9_.\[\]-]*(?:pass|pwd|secret|token|key|auth|cred)[a-z0-9_.\[\]-]*{QUOTE}?{END}(?:content-[a-z-]+:[^\r\n\\]*{END}){{0,3}}{END}([^\s"'\\]{{8,}})"#
            ),
            is_random,
        )
        .on_two_lines(),
    ]
}

/// What is in code between the name of a header and its value: the end of a string, a sign, and the beginning of the next string, also
/// in a call.
pub(super) fn sets() -> String {
    format!(
        r"{QUOTE}?[\])]?\s*(?:[:=]>?|,|[ \t])\s*(?:[a-z_:.]+\()?(?:\[[a-z]*\][a-z]*)?(?:[\[{{(]\s*)?[a-z]{{0,2}}{QUOTE}"
    )
}

/// The end of a line, also in a string, with what traces have before the next one.
const END: &str = r"(?:\r?\n|(?:\\+r)?\\+n)[<> \t]{0,4}";

/// What is before a part of a header, which may go on in the next line if that begins with a blank (RFC 9112, section 5.2).
pub(super) const GAP: &str = r"[ \t]*(?:\r?\n)?[ \t]+";

/// What is in code between the scheme and its credentials if they are two strings, and what is around the latter in a text.
const JOINED: &str = r#"(?:\\*["'`]\s*[+.]\s*\\*["'`]|(?:%[sv]|\{\})\\*["'`](?:\.format\(|\s*,)\s*\\*["'`]|(?:\\*["'`]){1,3})?"#;

/// Credentials in a header: a token68, or what servers that do not keep to the standard accept. A slash may be escaped.
/// Those of Unleash may begin with a star for all projects.
const CREDENTIALS: &str = r"(?:\*:)?(?:\*\.)?(?:[A-Za-z0-9._~+/=|:!%@-]|\\+/){12,}";

/// Returns whether the text after a scheme is a credential, rather than a description of one.
fn is_credential(text: &str) -> bool {
    const WORDS: [&str; 8] = ["token", "key", "your", "secret", "example", "password", "xxx", "credential"];
    let lower = text.to_ascii_lowercase();
    let is_long = text.len() >= 20 || text.bytes().any(|byte| byte.is_ascii_digit());
    is_random(text) || is_long && !text.contains("://") && !WORDS.iter().any(|word| lower.contains(word))
}

/// Returns whether a text is a credential without a scheme, rather than the name of the next header in a list of them.
fn is_token(text: &str) -> bool {
    let mut parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    (is_random(text) || parts.any(is_very_random)) && !text.starts_with("X-") && !text.starts_with("x-")
}
