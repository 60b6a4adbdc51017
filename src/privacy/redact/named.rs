//! Values behind names such as `API_KEY`, `password` or `token`: in code, configuration, JSON, YAML, XML, shells and forms.

use super::Pattern;
use super::random::is_random;

/// The texts of which each name of a secret has one.
const ANCHORS: [&str; 37] = [
    "_pass",
    "-pass",
    "pass=",
    "pass =",
    "pass:",
    "pass\"",
    "pass'",
    "pass\\",
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

/// A name that is no secret's, although it looks like one.
const OTHER_NAME: &str = "(?<other>[a-z0-9_.-]*(?:(?:cache|dedup|foreign|idempotency|partition|primary|public|restore|row|sort|websocket)\
    [_-]?key|(?:cancellation|continuation|cursor|next|next[_-]page|sync)[_-]?token\
    |(?:credential|key|token)[_-]?ids?|(?:credential|key|secret|token)[_-]?(?:arn|count|length|name|path|size|type|uri|url\
    |version)))";

/// The end of the name of a secret, or of the variable or member with one. These expressions have hardly any upper
/// limits on repetitions, with which the automata would be too large to be fast.
const NAME: &str = "(?:(?:password|passwd|passphrase|pass|pwd|secret|token|api[_-]?key|credential)s?\
    (?:[_-][a-z0-9_-]+|key|value|string)?\
    |(?:[_-]|access|account|auth|client|consumer|deploy|encryption|hmac|license|master|private|secret|service|session\
    |shared|signing|storage)key)";

/// A quotation mark, also in the escapes of code, HTML and addresses.
const QUOTE: &str = r#"(?:\\*["'`]|&quot;|&\#3[49];|%2[27])"#;

/// A character of a value that is not in quotes, and what is behind its last one. A name before a parenthesis is that of a
/// function.
const CHARACTER: &str = "[A-Za-z0-9_+/=~!@#$%^*.:-]";
const BEHIND: &str = "(?:(?u:[^A-Za-z0-9_+/=~!@#$%^*.:(-])|$)";

/// A value in quotes.
const QUOTED: &str = r#"((?u:[^\s"'`\\<>&]){8,})"#;

/// The color of a terminal.
const COLOR: &str = r"(?:(?:\x1b|\\(?:u001b|x1b|e|033))\[[0-9;]*m)";

/// The type of a variable.
const TYPE: &str = r#"(?u:[^\s=:;,"`])+"#;

/// Returns the patterns of values behind names.
pub(super) fn patterns() -> Vec<Pattern> {
    let patterns = [
        // The value of a variable or member, an element of XML, a value in a manifest that has names and values.
        format!(
            r"(?:{OTHER_NAME}|{NAME}){COLOR}?(?:{typed}|{sign}|{element})\s*(?:{quoted}|{bare}{BEHIND})",
            // The type is between the name and the sign.
            typed = format_args!(r"(?:\[[0-9]*\])?\??(?::\s*|\s){TYPE}(?:\s{TYPE})?\s*=|\[[0-9]*\]\s*="),
            sign = format_args!(r"{QUOTE}*[\])*?]*{QUOTE}?\s*(?::=|=>|<-|[!=]?==?|:(?:\*\*)?|%3[AD])"),
            element =
                format_args!(r"(?u:[^<>\n])*>|</key>|{QUOTE}?\s*[,;]?\s*{QUOTE}?\bvalue{QUOTE}?\s*[:=]"),
            quoted = quoted(),
            // Also as a block of YAML, a list, or a section of XML.
            bare = format_args!(
                r"{COLOR}?(?:(?:[|>][+-]?|&[a-z0-9_]+|-)\s+|<!\[cdata\[|<string>)?({CHARACTER}{{8,}})"
            ),
        ),
        // The next argument of a call, the only one, or what is taken without a variable.
        format!(
            r"(?:{OTHER_NAME}|{NAME})(?:{QUOTE}?\s?[,(]|{QUOTE}?\s|{QUOTE}\)\s*(?:or|\|\||\?\?))\s*{}",
            quoted()
        ),
        // The options of commands, and the words of shells, Dockerfiles and C before a name and its value.
        format!(
            r"(?:--?|(?:\benv|\bsetx|\bset\s-[a-z]+|\#define)\s+)[a-z0-9_-]*{NAME}\s+{QUOTE}?({CHARACTER}{{8,}}){BEHIND}"
        ),
    ];
    let pattern = |regex: String| Pattern {
        anchors: ANCHORS.to_vec(),
        regex: format!("(?i-u){regex}"),
        begins_with_anchor: false,
        accepts: is_random,
    };
    patterns.map(pattern).into()
}

/// Returns the expression of a value in quotes, also in brackets, as the argument of a call, or with the prefix of a string.
fn quoted() -> String {
    const OPENS: &str = r"(?:(?:[a-z_][a-z0-9_.:]*)?[(\[{]|-|<!\[cdata\[)\s*";
    format!(r"(?:{OPENS})?(?:{OPENS})?[a-z@$\#]*{QUOTE}{{1,3}}{COLOR}?{QUOTED}")
}
