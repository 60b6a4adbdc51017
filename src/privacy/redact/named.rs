//! Values behind names such as `API_KEY`, `password` or `token`: in code, configuration, JSON, YAML, XML, shells and forms.

use super::Pattern;
use super::random::is_random;

/// The texts of which each name of a secret has one.
const ANCHORS: [&str; 22] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "_key",
    "-key",
    "credential",
    "accesskey",
    "accountkey",
    "authkey",
    "encryptionkey",
    "masterkey",
    "privatekey",
    "secretkey",
    "sharedkey",
    "signingkey",
    "storagekey",
];

/// A name that is no secret's, although it ends like one. It is taken instead of the value behind it, and does not look
/// random.
const OTHER_NAME: &str = "([a-z0-9_.-]{0,60}(?:(?:cache|dedup|foreign|idempotency|partition|primary|public|restore|row|sort|\
    websocket)[_-]?key|(?:cancellation|continuation|cursor|next|page|sync)[_-]?token\
    |(?:credential|key|secret|token)[_-]?(?:arn|count|ids?|length|name|path|size|type|uri|url|version)))";

/// The name of a secret, or of the variable or member with one.
const NAME: &str = "(?:[a-z0-9_.-]{0,60}(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|credential)s?\
    (?:[_-][a-z0-9_-]{1,30}|key|value|string)?\
    |[a-z0-9_-]{0,60}(?:[_-]|access|account|auth|encryption|master|private|secret|shared|signing|storage)key)";

/// A quotation mark, also in the escapes of code, HTML and addresses.
const QUOTE: &str = r#"(?:\\{0,3}["'`]|&quot;|&\#3[49];|%2[27])"#;

/// A character of a value that is not in quotes.
const CHARACTER: &str = "[A-Za-z0-9_+/=~!@#$%^*.:-]";

/// The color of a terminal.
const COLOR: &str = r"(?:(?:\x1b|\\(?:u001[bB]|x1[bB]|e|033))\[[0-9;]{0,12}m)";

/// Returns the patterns of values behind names.
pub(super) fn patterns() -> Vec<Pattern> {
    // A sign, also behind a bracket, a type, or the length of an array.
    let assignment = format!(
        r"{QUOTE}?\]?\s{{0,40}}(?::=|=>|[!=]?==?|:|%3[AD])|(?:\[[0-9]*\])?\s{{0,3}}:\s{{0,3}}[^\s=:;,]{{1,30}}(?:\s[^\s=:;,]{{1,30}})?\s{{0,40}}=|\[[0-9]*\]\s{{0,40}}="
    );
    // The next argument of a call, or the only one.
    let argument = format!(r"{QUOTE}?\s?[,(]");
    // The element of XML, the value of a variable in a Kubernetes manifest.
    let element = r">|\s{1,40}value\s{0,3}:";
    let value = format!(
        r#"(?:[a-z_.:]{{1,30}}\(\s?|[a-z]{{1,2}})?{QUOTE}(?:{COLOR})?([^\s"'`\\<>&]{{8,200}})|(?:{COLOR})?({CHARACTER}{{8,}})(?:[^A-Za-z0-9_+/=~!@\#$%^*.:(-]|$)"#
    );
    let quoted = format!(r#"(?:[a-z_.:]{{1,30}}\(\s?|[a-z]{{1,2}})?{QUOTE}([^\s"'`\\<>&]{{8,200}})"#);
    let pattern = |regex: String| Pattern {
        anchors: ANCHORS.to_vec(),
        regex: format!("(?i){regex}"),
        begins_with_anchor: false,
        accepts: is_random,
    };
    vec![
        pattern(format!(
            r"(?:{OTHER_NAME}|{NAME})(?:{COLOR})?(?:{assignment}|{element})\s{{0,40}}(?:{value})"
        )),
        pattern(format!(r"(?:{OTHER_NAME}|{NAME})(?:{argument}|{QUOTE}?\s)\s{{0,40}}{quoted}")),
        // The options of commands, and the words of shells, Dockerfiles and C before a name and its value.
        pattern(format!(
            r"(?:--{NAME}|(?:\benv|\bsetx|\bset\s-[a-z]{{1,3}}|\#define)\s{{1,3}}{NAME})\s{{1,40}}{QUOTE}?({CHARACTER}{{8,}})(?:[^A-Za-z0-9_+/=~!@\#$%^*.:(-]|$)"
        )),
    ]
}
