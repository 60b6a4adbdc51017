//! Values behind names such as `API_KEY`, `password` or `token`: in code, configuration, JSON, YAML, XML, shells and forms.
//!
//! Expressions find where a value begins. Where it ends depends on how it begins, and is found by reading it.

use std::collections::HashSet;
use std::iter::once;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Match, Regex};

use super::random::{is_long_number, is_random, is_varied, is_very_random};
use super::{Pattern, builtin};

/// Words before `key` in the names of secrets.
pub(super) const KEY_WORDS: [&str; 38] = [
    "access",
    "account",
    "admin",
    "aes",
    "anthropic",
    "app",
    "auth",
    "aws",
    "azure",
    "cipher",
    "client",
    "consumer",
    "deploy",
    "encryption",
    "firebase",
    "gemini",
    "google",
    "hmac",
    "jwt",
    "license",
    "maps",
    "master",
    "openai",
    "pgp",
    "priv",
    "private",
    "role",
    "rsa",
    "secret",
    "sendgrid",
    "server",
    "service",
    "session",
    "shared",
    "signing",
    "ssh",
    "storage",
    "stripe",
];

/// Texts that most names of secrets have, besides those with [`KEY_WORDS`] and [`SHORT`].
const LONG: &[&str] = &[
    "_pass",
    "-pass",
    "-pw ",
    "<pass ",
    "bindpw",
    "pass_",
    "pass1",
    "pass2",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "securestring",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "api key",
    "api.key",
    "_key",
    "-key",
    "credential",
    "creds",
    "subscriptionkey",
    "subscription key",
    "supabasekey",
    "twiliokey",
    "_salt",
    "psk",
    "bw_session",
];

/// Names that are also words or beginnings of words, and what may be behind them in a name's place.
const SHORT: [&str; 4] = ["pass", "pw", "_auth", "_pat"];
const BEHIND_SHORT: [&str; 29] = [
    "  ", " =", " :", " ?", " |", " &", " <", " \"", " '", " `", " {", " str", "\t", "=", ":", "\"", "'",
    "`", "\\", ">", "(", ")", "[", "]", "{", ",", ";", "|", "?",
];

/// Returns the texts of which each name of a secret has one.
fn anchors() -> Vec<&'static str> {
    static ANCHORS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let keys =
            KEY_WORDS.iter().flat_map(|word| ["", ".", " ", ":"].map(|sign| format!("{word}{sign}key")));
        let short = SHORT.iter().flat_map(|name| BEHIND_SHORT.map(|behind| format!("{name}{behind}")));
        keys.chain(short).chain(LONG.iter().map(|&name| name.to_owned())).collect()
    });
    ANCHORS.iter().map(String::as_str).collect()
}

/// A name that is no secret's, although it looks like one.
const OTHER_NAME: &str = "(?:(?:application[_-]?server|cache|dedupe?|foreign|idempotency|image|object|partition|primary|pub|public|recv|restore\
    |row|sort|unique|verify|websocket)\
    [_-]?key|(?:cancellation|continuation|cursor|next|page|public[_-]?key|sync)[_-]?token\
    |(?:credential|key|token)[_-]?ids?|(?:credential|key|secret|token)[_-]?(?:arn|count|length|name|path|size|type|uri|url\
    |version))";

/// The ends of the names of secrets that may have anything behind them. These expressions have hardly any upper limits on
/// repetitions, with which the automata would be too large to be fast.
const WORDS: &str =
    "password|passwd|pass_?phrase|passcode|pwd|secret|securestring|token|api[_. -]?key|credential|creds";

/// Returns the expression of the ends of other names of secrets, which have no more than [`KEY_MORE`] behind them.
fn keys() -> String {
    let words = KEY_WORDS.join("|");
    format!(
        r"(?:[_-]key|_keys|(?:{words}|subscription|supabase|twilio)[. :]?keys?){KEY_MORE}\b|(?:_auth|_pat|_salt|(?:\b|_|wifi|wpa)psk|(?:\b|_|bind|root)pw|bw_session)\b"
    )
}

/// What is behind `key` in names such as `ENCRYPTION_KEY_BASE64` and `STRIPE_KEY_LIVE`.
const KEY_MORE: &str = "(?:[_-]?(?:v?[0-9]+|b64|base64|content|data|dev|hex|json|live|local|new|old|pem|primary|prod|production|secondary\
    |staging|string|test))*";
/// What is behind the end of a name, in names such as `PASSWORD_2`, `API_KEY1` and `tokenValue`.
const MORE: &str = "[0-9]*(?:[_-][a-z0-9_-]+|(?:key|value|string|prod|dev|test|staging|confirm|confirmation|repeat|again|old|new)[0-9]*)?";
/// What is behind a word of [`WORDS`] in names such as `tokenGithub`, `tokens.github` and `tokens["github"]`.
const OF: &str = r#"(?-i:[A-Z][A-Za-z0-9]*|s\.[a-z0-9_]+)?(?:\[["'][a-z0-9_-]+["']\])?"#;

/// A quotation mark, also in the escapes of code, JSON, HTML and addresses.
pub(super) const QUOTE: &str = r#"(?:\\*(?:["'`]|u002[27]|&quot;|&\#(?:3[49]|x2[27]);)|%(?:25)*2[27])"#;

/// The type of a variable.
const TYPE: &str = r#"(?u:[^\s=:;,"`])+"#;

/// Returns the patterns of values behind names.
pub(super) fn patterns() -> Vec<Pattern> {
    let keys = keys();
    let value_first = format!(
        r#"\bvalue{QUOTE}\s*:\s*{QUOTE}((?u:[^\s"'\\]){{8,}}){QUOTE}\s*,\s*{QUOTE}(?:key|name){QUOTE}\s*:\s*{QUOTE}[a-z0-9_./-]*(?:{WORDS}|{keys})"#
    );
    // What was typed into a field, and what was wrong with a value, in objects of JSON that name the field in a string.
    let described = format!(
        r#"(?:{WORDS}){MORE}(?: [a-z0-9_-]+)*{QUOTE}\]?\s*,(?:\s*{QUOTE}[a-z]+{QUOTE}\s*:\s*{QUOTE}?[a-z0-9_.\# -]*{QUOTE}?\s*,){{0,3}}\s*{QUOTE}(?:text|value|received){QUOTE}\s*:\s*{QUOTE}((?u:[^\s"'\\]){{8,}}){QUOTE}"#
    );
    // An error of pydantic, whose first line is the name of a setting.
    let wrong = format!(
        r#"(?:{keys}|(?:{WORDS}){MORE})\r?\n(?u:[^\n])*?\binput_value=["']((?u:[^\s"'\\]){{8,}})["']"#
    );
    vec![
        Pattern::values(&anchors(), values).on_two_lines(),
        Pattern::matches(
            &["text\"", "text\\", "value\"", "value\\", "received\"", "received\\"],
            &format!("(?i-u){described}"),
            is_random,
        ),
        Pattern::values(&[" 0x", "{0x", "[0x", "(0x", ")0x"], keys_of_bytes).on_two_lines(),
        Pattern::matches(&["input_value="], &format!("(?i-u){wrong}"), is_random).on_two_lines(),
        // A list of names and values, in which the value is first.
        Pattern::matches(&["value\"", "value'", "value\\"], &format!("(?i-u){value_first}"), is_random)
            .on_two_lines(),
    ]
}

/// The expressions that end where a value begins. The groups are its quotation marks, if it has some.
static SIGNS: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    // The mark may be in brackets, in the argument of one or several calls, also in a named one, or behind the prefix of a
    // string.
    const OPENS: &str = r"(?:(?:new\s+)?(?:(?:\[[0-9]*\])?[a-z_][a-z0-9_.:]*(?:\([a-z0-9_., ]*\)[a-z0-9_.:?]*)*)?[(\[{]|-|<!\[cdata\[)\s*";
    // The prefix of a string is short. Before a quotation mark at the end, a whole value of letters looks like one.
    const PREFIX: &str = r"[a-z@$\#]{0,3}";
    const KEYWORD: &str = r#"(?:(?:(?:[a-z_]+\s*=\s*)?[a-z0-9_."'\[\]]+\s*,\s*){0,2}(?:default|default_?value|fallback)\s*[=:]|-string\s|string(?:\([0-9]+\))?\s)\s*"#;
    let quoted =
        format!(r"(?:{OPENS})?(?:{OPENS})?(?:{KEYWORD}(?:{OPENS})?)?{PREFIX}({QUOTE})(?:{QUOTE}?({QUOTE}))?");
    // A key comes first, because `secret` is also the beginning of `secret key`.
    let keys = keys();
    let name = format!("(?:{keys}|(?:{WORDS})s?{MORE}{OF}|pass{MORE})");
    let signs = [
        // The value of a variable or member, an element of XML, a value in a manifest that has names and values, the next
        // argument of a call, the only one, or what is taken without a variable.
        format!(
            r"(?:(?<other>[a-z0-9_.-]*{OTHER_NAME})|{name})(?:{typed}\s*{quoted}|(?:{sign}|{pair})\s*(?:\\\r?\n\s*)?(?:{quoted}|{bare})|{argument}\s*{quoted}|{element}\s*(?:{quoted}|{bare})|(?<attributes>{QUOTE}?\s))",
            // The type, which may be one of several, or the methods of a property are between the name and the sign.
            typed = format_args!(
                r"(?:\[[0-9]*\])?\??(?:[ \t]*(?::[ \t]*|[ \t]){TYPE}(?:[ \t]{TYPE})?(?:[ \t]*[|&][ \t]*{TYPE}){{0,3}})?(?:\s*\{{[a-z; ]*\}})?[ \t]*="
            ),
            sign = format_args!(
                r"{QUOTE}*[\])*?]*{QUOTE}?\s*(?::=|=>|<-|(?:\|\||&&|\?\??)=|[!=]?==?|:(?:\*\*)?|(?u:：)|%(?:25)*3[AD])"
            ),
            // Also as a block of YAML, a list, or a section of XML.
            bare = format_args!(r"(?:(?:[|>][+-]?|&[a-z0-9_]+|<<[-~]?[a-z_]+|-)\s+|<!\[cdata\[|<string>)?"),
            argument = format_args!(
                r"(?:{QUOTE}?\s?[,({{]|{QUOTE}?\s|[\])]*{QUOTE}?[\])]*(?:\s*(?:\bor\b|\|\||\?\?|\?:|\{{)|{QUOTE}?\)?\s*\.(?:unwrap_or(?:_else)?|or_?else(?:_?get)?|getorelse)\((?:\|_\||\(\)\s?->)?\s*\{{?|\.(?:fill|type|send_?keys)\()|{QUOTE};s:[0-9]+:)"
            ),
            pair = format_args!(
                r"{QUOTE}?\s*[,;]?(?:\s*[a-z_]+:[ \t]*[a-z_]+[ \t]*\r?\n){{0,2}}\s*{QUOTE}?\b(?:(?:[a-z]+:|parameter)?value|content){QUOTE}?\s*[:=]"
            ),
            element = format_args!(
                r"(?:{QUOTE}?(?:>|\\+u003e|&gt;)(?:\s*<value>)?|</key>|</(?:param-)?name>\s*<(?:param-)?value>)"
            ),
        ),
        // The options of commands, the words of shells, Dockerfiles and C before a name and its value, and the default of a
        // variable in shells.
        format!(
            r"(?:--?|(?:(?:\b|\\[nrt])(?:(?:set)?env|fastcgi_param|setx|set\s-[a-z]+)|\#define)\s+)[a-z0-9_-]*{name}\s+(?:\\\r?\n\s*)?({QUOTE})?|\$\{{[a-z0-9_]*(?:{keys}|{WORDS}|pass)[a-z0-9_]*-({QUOTE})?"
        ),
    ];
    signs.map(|regex| builtin(&format!("(?i-u){regex}")))
});

/// Returns the values that look random behind the names of a text.
fn values(text: &str) -> Vec<Range<usize>> {
    let mut values = Vec::new();
    for sign in &*SIGNS {
        let mut at = 0;
        while let Some(found) = sign.captures_at(text, at) {
            at = found.get_match().end();
            // A path in code has two colons.
            let is_path = found.get_match().as_str().ends_with(':') && text[at..].starts_with(':');
            if is_path || found.name("other").is_some() || is_in_arn(&text[..found.get_match().start()]) {
                continue;
            }
            if found.name("attributes").is_some() {
                // Between a name and the content of its element are other names.
                values.extend(content(text, at).and_then(|content| bare(text, content).ok()));
                continue;
            }
            let mut marks = found.iter().skip(1).flatten();
            let read = match (marks.next(), marks.next()) {
                (None, _) => bare(text, at),
                (Some(mark), None) => quoted(text, at, mark.as_str()),
                // The value may begin with the second mark, or each of its ends may have two.
                (Some(outer), Some(inner)) => {
                    quoted(text, outer.end(), outer.as_str()).or_else(|_| quoted(text, at, inner.as_str()))
                }
            };
            match read {
                Ok(value) if is_something_else(&text[value.clone()]) => (),
                Ok(value) => {
                    at = value.end;
                    values.push(value);
                }
                // A short value may be the name of another one.
                Err(end) if end - at > LONGEST => at = end,
                // What looks like a variable and its value may be the attribute of an element.
                Err(_) => values.extend(content(text, at).and_then(|content| bare(text, content).ok())),
            }
        }
    }
    near(text, &mut values);
    values
}

/// Returns whether a text ends with the beginning of the name of a resource of AWS. The name of a secret is not one itself.
fn is_in_arn(before: &str) -> bool {
    const LONGEST_ARN: usize = 64;
    let name = &before[before.floor_char_boundary(before.len().saturating_sub(LONGEST_ARN))..];
    name.ends_with(':')
        && name
            .rsplit(|c: char| c.is_whitespace() || "\"'`".contains(c))
            .next()
            .is_some_and(|arn| arn.starts_with("arn:"))
}

/// Returns the lists of bytes that are the values of keys, such as those of a program for a device.
fn keys_of_bytes(text: &str) -> Vec<Range<usize>> {
    static LIST: LazyLock<Regex> = LazyLock::new(|| {
        const BYTE: &str = r"(?:\(byte\)\s*)?0x[0-9a-f]{1,2}";
        let words = KEY_WORDS.join("|");
        builtin(&format!(
            r"(?i-u)(?:(?:{words}|app_?s|nwk_?s|nwk)_?key|secret|password)[0-9]*(?:\[[a-z0-9_ ]*\])*\s*:?=\s*(?:new\s)?[a-z0-9_ ]*(?:\[[0-9]*\][a-z0-9_]*)?\s*[\[{{(]+\s*({BYTE}(?:\s*,\s*{BYTE}){{15,}})"
        ))
    });
    let lists = LIST.captures_iter(text).filter_map(|list| list.get(1));
    lists.filter(|list| are_random(list.as_str())).map(|list| list.range()).collect()
}

/// Returns whether a list of bytes is not one that somebody has counted or repeated.
fn are_random(list: &str) -> bool {
    const FIRST: usize = 16;
    let digits = |byte: &str| u8::from_str_radix(byte.rsplit("0x").next()?.trim(), 16).ok();
    let list = list.to_ascii_lowercase();
    let bytes: Vec<_> = list.split(',').take(FIRST).filter_map(digits).collect();
    let different: HashSet<_> = bytes.iter().collect();
    let ascents = bytes.windows(2).filter(|pair| pair[0] < pair[1]).count();
    different.len() * 4 >= FIRST * 3 && ascents * 4 <= FIRST * 3
}

/// Returns whether a value is of a form that no secret has.
fn is_something_else(value: &str) -> bool {
    is_path(value) || is_time(value) || is_account(value) || is_type(value) || is_number(value)
}

/// Returns whether a value is a path in code or the name of a type of keys, as behind the name of a variable.
fn is_type(value: &str) -> bool {
    const ENDS: [&str; 8] = ["Config", "Header", "Key", "KeyPair", "Pair", "Scheme", "Secret", "Token"];
    let name = value.trim_end_matches(|c: char| c.is_ascii_punctuation());
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:".contains(&byte);
    let is_digits = |part: &str| part.len() >= 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_name = |part: &str| !is_very_random(part) && !is_digits(part);
    let stem = ENDS.iter().find_map(|end| name.strip_suffix(end));
    name.bytes().all(is_of_name)
        && stem.unwrap_or(name).split(':').all(is_name)
        && (stem.is_some() || name.contains("::"))
}

/// Returns whether a value is a number of at most 64 bits, as languages write it.
fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    let digits = digits.map(|digits| digits.trim_end_matches(['u', 'U', 'l', 'L', 'n', ';', ',', ')']));
    digits.is_some_and(|digits| digits.len() <= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns whether a value is the address of an account or a contract (ERC-55), which may be one of a token.
pub(super) fn is_account(value: &str) -> bool {
    let digits = value.strip_prefix("0x").filter(|digits| digits.len() == 40);
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns whether a value is the path of a file: from a folder at the root, or up to the extension of a name. The number of
/// a line may follow.
fn is_path(value: &str) -> bool {
    let value = value.trim_end_matches(|c: char| c.is_ascii_digit() || ":-".contains(c));
    let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./~".contains(&byte);
    let is_lower = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    let from_root = value.strip_prefix('/').and_then(|path| path.split_once('/'));
    let file = value.rsplit_once('/').and_then(|(_, file)| file.rsplit_once('.'));
    let is_from_root = from_root.is_some_and(|(folder, _)| folder.len() >= 3 && is_lower(folder));
    let is_file =
        file.is_some_and(|(_, extension)| (2..=5).contains(&extension.len()) && is_lower(extension));
    value.bytes().all(is_of_path) && (is_from_root || is_file)
}

/// Returns whether a value is a time (RFC 3339), as logs have before each line.
fn is_time(value: &str) -> bool {
    let is_date = |date: &str| {
        let digits = |(place, byte): (usize, u8)| {
            if [4, 7].contains(&place) { byte == b'-' } else { byte.is_ascii_digit() }
        };
        date.len() == "2006-01-02".len() && date.bytes().enumerate().all(digits)
    };
    value
        .split_once('T')
        .is_some_and(|(date, time)| is_date(date) && time.starts_with(|c: char| c.is_ascii_digit()))
}

/// The maximum number of bytes of a value with characters that also end values.
const LONGEST: usize = 256;

/// Returns the beginning of a text, of about this many bytes.
fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.ceil_char_boundary(bytes.min(text.len()))]
}

/// Returns where the content begins of an element of XML in whose attributes a position is.
fn content(text: &str, at: usize) -> Option<usize> {
    let before = &text[text.floor_char_boundary(at.saturating_sub(LONGEST))..at];
    before.rfind(['<', '>']).filter(|tag| before[*tag..].starts_with('<'))?;
    let rest = beginning(&text[at..], LONGEST);
    let end = rest.find(['<', '>', '\n']).filter(|end| rest[*end..].starts_with('>'))?;
    let content = rest[end + 1..].trim_start();
    let content = content.strip_prefix("<value>").unwrap_or(content);
    Some(at + rest.len() - content.len())
}

/// Returns the value behind a quotation mark if it looks random, or the end of its first word.
fn quoted(text: &str, at: usize, mark: &str) -> Result<Range<usize>, usize> {
    let rest = &text[at..];
    let word = rest.find(|c: char| c.is_whitespace() || r#""'`\<>&"#.contains(c)).unwrap_or(rest.len());
    let line = beginning(rest, word.max(LONGEST)).lines().next().unwrap_or_default();
    // A text with the codes of characters is no password, unless it has those of random bytes.
    let is_code = |length: &usize| [r"\x", r"\u", r"\U"].iter().any(|code| line[..*length].contains(code));
    let closing = closing(line, mark);
    if let Some(length) = closing.filter(|length| are_bytes(&line[..*length])) {
        return Ok(at..at + length);
    }
    let whole = closing.filter(|length| !is_code(length));
    longest(rest, whole.into_iter().chain([word])).map(|length| at..at + length).ok_or(at + word)
}

/// Returns whether a text is that of random bytes, as languages write it: codes of many bytes, and hardly any words.
fn are_bytes(text: &str) -> bool {
    const CODE: &str = r"\x";
    const LEAST: usize = 4;
    const LONGEST_WORD: usize = 4;
    let codes = text.matches(CODE).count();
    let mut parts = text.split(CODE);
    let first = parts.next().unwrap_or_default();
    let others = parts.map(|part| part.get(2..).unwrap_or_default());
    let mut words = once(first).chain(others).flat_map(|part| part.split(|c: char| !c.is_ascii_alphabetic()));
    codes >= LEAST && is_varied(text) && words.all(|word| word.len() <= LONGEST_WORD)
}

/// Returns the longest of some beginnings of a text if it looks random, or if a shorter one does that would leave a rest of
/// the same word.
fn longest(text: &str, lengths: impl IntoIterator<Item = usize>) -> Option<usize> {
    let mut whole = None;
    lengths.into_iter().find_map(|length| {
        let is_word = !text[..length].contains(char::is_whitespace);
        whole = whole.or(is_word.then_some(length));
        is_random(&text[..length]).then(|| whole.unwrap_or(length).max(length))
    })
}

/// Returns where the quotation mark is that belongs to the one before a text. Each JSON text within a string of another one
/// has twice as many backslashes, and one more before each mark.
fn closing(text: &str, mark: &str) -> Option<usize> {
    let plain = mark.trim_start_matches('\\');
    let escapes = mark.len() - plain.len();
    let backslashes = |at: usize| at - text[..at].trim_end_matches('\\').len();
    let mut marks = text.match_indices(plain).map(|(at, _)| at);
    marks.find(|at| backslashes(*at) % (2 * escapes + 2) == escapes).map(|at| at - escapes)
}

/// The characters that end a value without quotes where a name, a blank or the end is behind them.
const ENDS: [char; 11] = ['&', '(', ')', ',', ';', '?', '{', '}', '[', ']', '|'];

/// Returns the value without quotes that begins at `at` if it looks random, or the end of its first word.
fn bare(text: &str, at: usize) -> Result<Range<usize>, usize> {
    let rest = &text[at..];
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || "_+/=~!@#$%^*.:-".contains(c);
    let word = rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
    // A name before parentheses is that of a function.
    let arguments = beginning(&rest[word..], LONGEST).lines().next().unwrap_or_default();
    let is_call = arguments.starts_with('(') && (arguments == "(" || arguments.contains(')'));
    let others = run(rest).into_iter().chain([word]).filter(|_| !is_call);
    let value = longest(rest, line(text, at).into_iter().chain(others));
    value.map(|length| at..at + length).ok_or(at + word)
}

/// Returns whether a text ends with the number of a line.
fn is_place(text: &str) -> bool {
    const MOST_DIGITS: usize = 7;
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (1..=MOST_DIGITS).contains(&digits)
}

/// Returns the length of the value that begins at `at`, if its name and itself are all of a line, besides what a listing, a
/// comparison or a command has before them, or all of what is between two quotation marks.
fn line(text: &str, at: usize) -> Option<usize> {
    const COMMANDS: [&str; 6] = ["export", "set", "env", "-e", "Environment=", "-"];
    let before = &text[text.floor_char_boundary(at.saturating_sub(LONGEST))..at];
    let before = before.rsplit('\n').next()?.trim_end().strip_suffix(['=', ':'])?.trim_end();
    let name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let before = before.strip_suffix(|c: char| name(c))?.trim_end_matches(name);
    let value = beginning(&text[at..], LONGEST).lines().next()?.trim_end();
    if let Some(mark) = before.chars().next_back().filter(|c| r#""'"#.contains(*c)) {
        let escapes = before.len() - 1 - before[..before.len() - 1].trim_end_matches('\\').len();
        let length = closing(value, &before[before.len() - 1 - escapes..]);
        return length.filter(|length| !value[..*length].contains([' ', '\t', mark]));
    }
    let listed = before.trim();
    let is_listed = listed.is_empty()
        || listed.ends_with(['→', '|', '>', '+', '#'])
        || listed.strip_suffix(':').is_some_and(is_place)
        || COMMANDS.iter().any(|command| listed.ends_with(command));
    let is_alone = is_listed && value.len() < LONGEST && !value.contains(char::is_whitespace);
    is_alone.then(|| value.trim_end_matches([',', ';']).len())
}

/// Returns the length of the characters with which a text begins that are neither blanks nor marks of strings and elements,
/// up to one that ends a value, unless they are too many.
fn run(text: &str) -> Option<usize> {
    let text = beginning(text, LONGEST);
    let run = text.find(|c: char| !c.is_ascii_graphic() || r#""'`\<>"#.contains(c)).unwrap_or(text.len());
    let ends = |at: &usize| {
        let next = text[*at..run].trim_start_matches(ENDS);
        let sign = next.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_.-".contains(c));
        next.is_empty() || sign.len() < next.len() && sign.starts_with(['=', ':'])
    };
    let end = text[..run].match_indices(ENDS).map(|(at, _)| at).find(ends);
    end.or((run < LONGEST).then_some(run))
}

/// The number of bytes behind a name in which a token is probably its value, and the maximum number of bytes of the token.
const NEAR: usize = 80;
const LONGEST_TOKEN: usize = 200;
/// The number of digits of a hexadecimal number that names a commit.
const COMMIT: usize = 40;
/// The maximum number of words in the head of a column of a table.
const MOST_WORDS: usize = 3;
/// The maximum number of bytes of [`OTHER_NAME`].
const LONGEST_OTHER: usize = 24;

/// Adds the tokens that hardly anything but secrets looks like, and strings of hexadecimal digits, wherever they are behind a
/// name in the same line.
fn near(text: &str, values: &mut Vec<Range<usize>>) {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| builtin(&format!(r"(?i-u)(?:(?:{WORDS}|[_-]pass){MORE}|{})\b", keys())));
    static OTHER: LazyLock<Regex> = LazyLock::new(|| builtin(&format!("(?i-u){OTHER_NAME}$")));
    let is_secret = |name: &Match<'_>| {
        let end = text.floor_char_boundary(name.end().saturating_sub(LONGEST_OTHER));
        !OTHER.is_match(&text[end..name.end()])
    };
    let mut names = NAME.find_iter(text).filter(is_secret).peekable();
    let mut read = 0;
    while let Some(name) = names.next() {
        let line = name.end() + reach(&text[..name.end()], beginning(&text[name.end()..], NEAR));
        // What is behind the next name belongs to that.
        let end = names.peek().map_or(line, |next| next.start().min(line));
        let mut at = read.max(name.end());
        while at < end {
            let rest = &text[at..];
            let token = rest.find(|c: char| !is_of_token(c)).unwrap_or(rest.len());
            let padding = rest[token..].bytes().take_while(|byte| *byte == b'=').count();
            if token <= LONGEST_TOKEN
                && (is_very_random(&rest[..token])
                    || is_string_of_digits(text, at..at + token)
                    || token != COMMIT && is_next(&text[name.end()..at]) && is_long_number(&rest[..token]))
                && !is_something_else(&rest[..token])
                && !is_other(&text[name.end()..at], rest)
            {
                values.push(at..at + token + padding);
            }
            // The letter of an escape is not part of a token.
            let gap = if rest[token..].starts_with('\\') { 2 } else { 1 };
            at += token + rest[token..].chars().take(gap).map(char::len_utf8).sum::<usize>();
        }
        read = at.max(read);
    }
}

/// Returns whether there is nothing but blanks and the bar of a table between a name and a token.
fn is_next(between: &str) -> bool {
    !between.is_empty() && between.chars().all(|c| " \t|│".contains(c))
}

/// Returns whether a part of a text is a string that is a long hexadecimal number, between quotation marks.
fn is_string_of_digits(text: &str, part: Range<usize>) -> bool {
    const MARKS: [char; 3] = ['"', '\'', '`'];
    let digits = &text[part.clone()];
    is_long_number(digits)
        && text[..part.start].ends_with(MARKS)
        && text[part.end..].trim_start_matches('\\').starts_with(MARKS)
}

/// Returns how much of what is behind a name belongs to it: the rest of the line, the row below the head of a table, and
/// the next members of an object in JSON.
fn reach(before: &str, text: &str) -> usize {
    let mut lines = text.split(r"\n").next().unwrap_or_default().split_inclusive('\n');
    let rest = lines.next().unwrap_or_default();
    let start = &before[before.ceil_char_boundary(before.len().saturating_sub(NEAR))..];
    let head = [start.rsplit('\n').next().unwrap_or_default(), rest].concat();
    let is_cell = |cell: &str| {
        cell.split_whitespace().count() <= MOST_WORDS
            && cell.chars().all(|c| c.is_ascii_alphanumeric() || "_.-#()*\"' \r\n".contains(c))
    };
    let cells = || head.split([',', ';', '\t', '|', '│']).flat_map(|cell| cell.split("  "));
    let is_head = cells().nth(1).is_some() && cells().all(is_cell);
    let is_member =
        |line: &str| line.trim_start().split_once("\":").is_some_and(|(name, _)| name.starts_with('"'));
    let more = lines.enumerate().take_while(|(number, line)| *number < 2 && (is_member(line) || is_head));
    rest.len() + more.map(|(_, line)| line.len()).sum::<usize>()
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_+/~.-".contains(c)
}

/// Returns whether a token has a name of its own, rather than the last word of a sentence about it, or is a checksum in a lock
/// file, before which is the name of its algorithm.
fn is_other(before: &str, token: &str) -> bool {
    let open = |c: char| c == ' ' || r#""'`\"#.contains(c);
    let named =
        before.trim_end_matches(open).strip_suffix([':', '=']).unwrap_or_default().trim_end_matches(open);
    let (named, sign) = before.split_at(named.len());
    let (said, name) =
        named.split_at(named.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len());
    let is_said = (sign.ends_with(": ") || sign.ends_with(" = "))
        && !sign.contains(['"', '\'', '`'])
        && !said.trim_end_matches(' ').ends_with([',', ';', '{', '(', '[', '|', '&', '"', '\'', '\n']);
    // What is before a colon may also be the first of two values of which one is chosen.
    let is_choice = sign.contains(':')
        && said
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_.".contains(c))
            .trim_end()
            .ends_with('?');
    let name = name.to_ascii_lowercase();
    let is_value = is_choice || name.is_empty() || name.ends_with("value") || name.ends_with("default");
    token.starts_with("sha") || !is_value && !is_said
}
