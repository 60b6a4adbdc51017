//! Values behind names such as `API_KEY`, `password` or `token`: in code, configuration, JSON, YAML, XML, shells and forms.

use super::Pattern;
use super::random::is_random;

/// The texts of which each name of a secret has one.
const ANCHORS: [&str; 29] = [
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
    "clientkey",
    "consumerkey",
    "deploykey",
    "encryptionkey",
    "hmackey",
    "licensekey",
    "masterkey",
    "privatekey",
    "secretkey",
    "servicekey",
    "sessionkey",
    "sharedkey",
    "signingkey",
    "storagekey",
];

/// A name that is no secret's, although it ends like one.
const OTHER_NAME: &str = "(?<other>[a-z0-9_.-]{0,60}(?:(?:cache|dedup|foreign|idempotency|partition|primary|public|restore|\
    row|sort|websocket)[_-]?key|(?:cancellation|continuation|cursor|next|next[_-]page|sync)[_-]?token\
    |(?:credential|key|token)[_-]?ids?|(?:credential|key|secret|token)[_-]?(?:arn|count|length|name|path|size|type|uri|url|version)))";

/// The name of a secret, or of the variable or member with one.
const NAME: &str = "(?:[a-z0-9_.-]{0,60}(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|credential)s?\
    (?:[_-][a-z0-9_-]{1,30}|key|value|string)?\
    |[a-z0-9_-]{0,60}(?:[_-]|access|account|auth|client|consumer|deploy|encryption|hmac|license|master|private|secret\
    |service|session|shared|signing|storage)key)";

/// A quotation mark, also in the escapes of code, HTML and addresses.
const QUOTE: &str = r#"(?:\\{0,3}["'`]|&quot;|&\#3[49];|%2[27])"#;

/// A character of a value that is not in quotes, and what is behind its last one. A name before a parenthesis is that of a
/// function.
const CHARACTER: &str = "[A-Za-z0-9_+/=~!@#$%^*.:-]";
const BEHIND: &str = "(?:[^A-Za-z0-9_+/=~!@#$%^*.:(-]|$)";

/// The color of a terminal.
const COLOR: &str = r"(?:(?:\x1b|\\(?:u001[bB]|x1[bB]|e|033))\[[0-9;]{0,12}m)";

/// The type of a variable.
const TYPE: &str = r#"[^\s=:;,"`]{1,30}"#;

/// Returns the patterns of values behind names.
pub(super) fn patterns() -> Vec<Pattern> {
    let patterns = [
        // The value of a variable or member, an element of XML, a value in a manifest that has names and values.
        format!(
            r#"(?:{OTHER_NAME}|{NAME})(?:{COLOR})?(?:{typed}|{sign}|{element})\s{{0,40}}(?:{quoted}|(?:{COLOR})?{block}({CHARACTER}{{8,}}){BEHIND})"#,
            // The type is between the name and the sign.
            typed = format_args!(
                r"(?:\[[0-9]*\])?\??(?::\s{{0,3}}|\s){TYPE}(?:\s{TYPE})?\s{{0,40}}=|\[[0-9]*\]\s{{0,40}}="
            ),
            sign = format_args!(r"(?:{QUOTE}|[\])*?]){{0,3}}\s{{0,40}}(?::=|=>|<-|[!=]?==?|:|%3[AD])"),
            element = format_args!(
                r"[^<>\n]{{0,60}}>|</key>|{QUOTE}?\s{{0,40}}[,;]?\s{{0,40}}{QUOTE}?\bvalue{QUOTE}?\s{{0,3}}[:=]"
            ),
            quoted = quoted(),
            block = r"(?:(?:[|>][+-]?|&[a-z0-9_]{1,20}|-)\s{1,40}|<!\[cdata\[|<string>)?",
        ),
        // The next argument of a call, the only one, or what is taken without a variable.
        format!(
            r"(?:{OTHER_NAME}|{NAME})(?:{QUOTE}?\s?[,(]|{QUOTE}?\s|{QUOTE}\)\s{{0,3}}(?:or|\|\||\?\?))\s{{0,40}}{}",
            quoted()
        ),
        // The options of commands, and the words of shells, Dockerfiles and C before a name and its value.
        format!(
            r"(?:--?{NAME}|(?:\benv|\bsetx|\bset\s-[a-z]{{1,3}}|\#define)\s{{1,3}}{NAME})\s{{1,40}}{QUOTE}?({CHARACTER}{{8,}}){BEHIND}"
        ),
    ];
    let pattern = |regex: String| Pattern {
        anchors: ANCHORS.to_vec(),
        regex: format!("(?i){regex}"),
        begins_with_anchor: false,
        accepts: is_random,
    };
    patterns.map(pattern).into()
}

/// Returns the expression of a value in quotes, also in brackets, as the argument of a call, or with the prefix of a string.
fn quoted() -> String {
    const OPENS: &str = r"(?:(?:[a-z_][a-z0-9_.:]{0,30})?[(\[{]|-|<!\[cdata\[)\s{0,40}";
    format!(r#"(?:{OPENS}){{0,2}}[a-z@$\#]{{0,3}}{QUOTE}{{1,3}}(?:{COLOR})?([^\s"'`\\<>&]{{8,200}})"#)
}
