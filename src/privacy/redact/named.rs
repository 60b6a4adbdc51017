//! Values behind names such as `API_KEY`, `password` or `token`: in code, configuration, JSON, YAML, XML, shells and forms.
//!
//! Expressions find where a value begins. Where it ends depends on how it begins (see [`super::value_ends`]).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::lists::{OPENS, behind_words, changed, elements, is_of_lines_below};
use super::near_names::near;
use super::other_forms::{is_checksum, is_in_arn, is_no_secret, is_of_other_form, is_source};
use super::pattern::Pattern;
use super::random::{is_in_random_word, is_long_number, is_random, is_very_random};
use super::replacements::{end_of_replacement, is_in_replacement};
use super::value_ends::{LONGEST, WIDE_MARKS, bare, content, quoted};

/// Words before `key` in the names of secrets.
pub(super) const KEY_WORDS: [&str; 40] = [
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
    "decryption",
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
    "validation",
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
const BEHIND_SHORT: [&str; 31] = [
    "\n", "\r", "  ", " =", " :", " ?", " |", " &", " <", " \"", " '", " `", " {", " str", "\t", "=", ":",
    "\"", "'", "`", "\\", ">", "(", ")", "[", "]", "{", ",", ";", "|", "?",
];

/// Returns the texts of which each name of a secret has one.
pub(super) fn anchors() -> Vec<&'static str> {
    static ANCHORS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let keys =
            KEY_WORDS.iter().flat_map(|word| ["", ".", " ", ":"].map(|sign| format!("{word}{sign}key")));
        let short = SHORT.iter().flat_map(|name| BEHIND_SHORT.map(|behind| format!("{name}{behind}")));
        keys.chain(short).chain(LONG.iter().map(|&name| name.to_owned())).collect()
    });
    ANCHORS.iter().map(String::as_str).collect()
}

/// A name that is no secret's, although it looks like one.
pub(super) const OTHER_NAME: &str = "(?:(?:application[_-]?server|cache|dedupe?|foreign|idempotency|image|object|partition|primary|pub|public|recv|restore\
    |row|sort|unique|verify|websocket)\
    [_-]?keys?|(?:ignored|trusted)-key|(?:cancellation|client[_-]?request|continuation|cursor|next|page|public[_-]?key|starting|sync)[_-]?tokens?\
    |(?:credential|key|reset|token|user[_-]?secrets)[_-]?ids?|(?:credential|key|secret|token)[_-]?(?:algorithm|arn|count|factory|length|name|path|size|type|uri\
    |url|version))";

/// The ends of the names of secrets that may have anything behind them. These expressions have hardly any upper limits on
/// repetitions, with which the automata would be too large to be fast.
pub(super) const WORDS: &str =
    "password|passwd|pass_?phrase|passcode|pwd|secret|securestring|token|api[_. -]?key|credential|creds";

/// Returns the expression of the ends of other names of secrets, which have no more than [`KEY_MORE`] behind them.
pub(super) fn keys() -> String {
    let words = KEY_WORDS.join("|");
    format!(
        r"(?:[_-]key|_keys|(?:{words}|subscription|supabase|twilio)[. :]?keys?){KEY_MORE}\b|(?:_auth|_pat|_salt|(?:\b|_|wifi|wpa)psk|(?:\b|_|bind|root)pw|(?-i:[a-z](?:Pw|PW))|bw_session)\b"
    )
}

/// What is behind `key` in names such as `ENCRYPTION_KEY_BASE64` and `STRIPE_KEY_LIVE`.
const KEY_MORE: &str = "(?:[_-]?(?:v?[0-9]+|b64|base64|content|data|dev|hex|json|live|local|new|old|pem|primary|prod|production|secondary\
    |staging|string|test))*";
/// What is behind the end of a name, in names such as `PASSWORD_2`, `API_KEY1` and `tokenValue`.
pub(super) const MORE: &str = "[0-9]*(?:[_-][a-z0-9_-]+|(?:key|value|string|prod|dev|test|staging|confirm|confirmation|repeat|again|old|new)[0-9]*)?";
/// What is behind a word of [`WORDS`] in names such as `tokenGithub`, `tokens.github` and `tokens["github"]`.
const OF: &str = r#"(?-i:[A-Z][A-Za-z0-9]*|s\.[a-z0-9_]+)?(?:\[["'][a-z0-9_-]+["']\])?"#;

/// A quotation mark, also in the escapes of code, JSON, HTML and addresses.
pub(super) const QUOTE: &str = r#"(?:\\*(?:["'`]|u002[27]|&quot;|&\#(?:3[49]|x2[27]);)|%(?:25)*2[27])"#;

/// The type of a variable, which may be in quotation marks in Python.
const TYPE: &str =
    r#"(?:\[&?(?:'[a-z]+ )?[a-z_]+; ?[a-z0-9_]+\]|'[a-z_.\[\]]+'|(?u:[^\s=:;,"`'][^\s=:;,"`]*))"#;

/// The letters of a password for one application.
const LETTERS: &str = "[a-z]{4}(?:[ -][a-z]{4}){3}|[a-z]{16}";

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
    let named = format!(r"(?im-u)(?:\b|_)pass(?:word|wd)?{QUOTE}?");
    vec![
        Pattern::values(&anchors(), values).on_two_lines(),
        Pattern::matches(
            &["text\"", "text\\", "value\"", "value\\", "received\"", "received\\"],
            &format!("(?i-u){described}"),
            is_random,
        ),
        // What a program or a person says that a password is, at the end of the line.
        Pattern::matches(
            &["password"],
            &format!(
                r#"(?im)(?-u:\bpassword\b[ !#-&(-9;?-z|~]*?)(?:(?-u:\b)(?:is(?: now)?\s?:?|(?:changed|re?set|rotated) to)|->|→|(?:\.\s+new value)?:)(?:[ \t]+|(?:[ \t]*\r?\n){{1,2}}[ \t]*(?:(?:```|~~~)[a-z]*\r?\n)?)([^\s"'`<>{WIDE_MARKS}]{{11,}}[^\s"'`<>:{WIDE_MARKS}])[{WIDE_MARKS}]?[ \t]*\r?$"#
            ),
            is_said,
        )
        .on_two_lines(),
        // Passwords for one application, of Google and Apple. Behind a colon may also be words.
        Pattern::matches(
            &["pass"],
            &format!(r#"{named}\s*(?:=\s*|[:=]\s*{QUOTE})({LETTERS})(?:["'`\\]|[ \t,;]*\r?$)"#),
            |password| is_of_letters(password, 3),
        ),
        Pattern::matches(
            &["pass"],
            &format!(r"{named}\s*:\s*({LETTERS})[ \t,;]*\r?$"),
            |password| is_of_letters(password, 5),
        ),
        // Those of WordPress, in six groups.
        Pattern::matches(
            &["pass", "-u ", "auth"],
            r"(?:^|[^A-Za-z0-9])([A-Za-z0-9]{4}(?: [A-Za-z0-9]{4}){5})(?:$|[^A-Za-z0-9 ])",
            |groups| is_very_random(&groups.replace(' ', "")),
        ),
        Pattern::values(&[" 0x", "{0x", "[0x", "(0x", ")0x"], keys_of_bytes).on_two_lines(),
        Pattern::matches(&["input_value="], &format!("(?i-u){wrong}"), is_random).on_two_lines(),
        // A list of names and values, in which the value is first.
        Pattern::matches(&["value\"", "value'", "value\\"], &format!("(?i-u){value_first}"), is_random)
            .on_two_lines(),
    ]
}

/// The expressions that end where a value begins. The groups are its quotation marks, if it has some.
static SIGNS: LazyLock<[Expression; 2]> = LazyLock::new(|| {
    // The prefix of a string is short. Before a quotation mark at the end, a whole value of letters looks like one.
    const PREFIX: &str = r"[a-z@$\#]{0,3}";
    const KEYWORD: &str = r#"(?:(?:(?:[a-z_]+\s*=\s*)?[a-z0-9_."'\[\]]+\s*,\s*){0,2}(?:default|default_?value|fallback)\s*[=:]|-string\s|string(?:\([0-9]+\))?\s)\s*"#;
    let quoted =
        format!(r"(?:{OPENS}\s*){{0,3}}(?:{KEYWORD}(?:{OPENS}\s*)?)?{PREFIX}({QUOTE})(?:{QUOTE}?({QUOTE}))?");
    // What is on the lines below may be comments, and then the elements of a list.
    let opened = format!(r"(?:{OPENS}[ \t]*){{1,3}}\r?\n\s*");
    // A key comes first, because `secret` is also the beginning of `secret key`.
    let keys = keys();
    let name = format!("(?:{keys}|(?:{WORDS})s?{MORE}{OF}|pass{MORE})");
    let signs = [
        // The value of a variable or member, an element of XML, a value in a manifest that has names and values, the next
        // argument of a call, the only one, or what is taken without a variable.
        format!(
            r"(?:(?<other>[a-z0-9_.-]*{OTHER_NAME}|(?-i:-- PASS))|{name})(?:{typed}\s*(?:{quoted}|{opened})|(?:{below}|{sign}|{pair})\s*(?:\\\r?\n\s*)?(?:{block}|{quoted}|{opened}|{bare})|{argument}\s*{quoted}|{element}\s*(?:{quoted}|{bare})|(?<attributes>{QUOTE}?\s))",
            // The type, which may be one of several, or the methods of a property are between the name and the sign.
            typed = format_args!(
                r"(?:\[[0-9]*\])?\??(?:[ \t]*(?::[ \t]*|[ \t]){TYPE}(?:[ \t]{TYPE}){{0,2}}(?:[ \t]*[|&][ \t]*{TYPE}){{0,3}})?(?:\s*\{{[a-z; ]*\}})?[ \t]*="
            ),
            sign = format_args!(
                r"{QUOTE}*[\])*?]*{QUOTE}?\s*(?::=|=>|<-|(?:\|\||&&|\?\??)=|[!=]?==?|:(?:\*\*)?|(?u:：)|%(?:25)*3[AD])"
            ),
            // Also as a block of YAML, or a section of XML.
            bare = format_args!(
                r"(?:(?:[|>][+-]?|&[a-z0-9_]+|<<[-~]?[a-z_]+|[*-]|[0-9]\.)\s+|<!\[cdata\[|<string>)?"
            ),
            // The beginning of a block of Markdown or HTML.
            block =
                format_args!(r"(?:(?:```|~~~)[a-z]*\r?\n[ \t]*|<(?:pre|code)>\s*(?:<code>\s*)?)({QUOTE})?"),
            argument = format_args!(
                r"(?:{QUOTE}?\s?[,({{]|{QUOTE}?\s|[\])]*{QUOTE}?[\])]*(?:\s*(?:\bor\b|\|\||\?\?|\?:|\{{)|{QUOTE}?\)?\s*\.(?:unwrap_or(?:_else)?|or_?else(?:_?get)?|getorelse)\((?:\|_\||\(\)\s?->)?\s*\{{?|\.(?:fill|type|send_?keys)\()|{QUOTE};s:[0-9]+:)"
            ),
            pair = format_args!(
                r"{QUOTE}?(?:\s*->\s*null)?\s*[,;]?(?:\s*[a-z_]+:[ \t]*[a-z_]+[ \t]*\r?\n){{0,2}}\s*(?:[~+-]\s+)?{QUOTE}?\b(?:(?:[a-z]+:|parameter)?value|content){QUOTE}?\s*[:=]"
            ),
            below = format_args!(r"{QUOTE}?:[ \t]*\r?\n[ \t]+{QUOTE}?value{QUOTE}?\s*:"),
            element = format_args!(
                r"(?:{QUOTE}?(?:>|\\+u003e|&gt;)(?:\s*<value>)?|</key>|</(?:param-)?name>\s*<(?:param-)?value>)"
            ),
        ),
        // The options of commands, also with their values in a list, the words of shells, Dockerfiles and C before a name and its
        // value, and the default of a variable in shells.
        format!(
            r"(?:(?:\B|\\[nrt])--?|(?:(?:\b|\\[nrt])(?:(?:set)?env|fastcgi_param|setx|set\s-[a-z]+)|\#define)\s+)(?:(?<other>[a-z0-9_-]*{OTHER_NAME})|[a-z0-9_-]*{name})\s+(?:\\\r?\n\s*|-[ \t]+)?({QUOTE})?|\$\{{[a-z0-9_]*(?:{keys}|{WORDS}|pass)[a-z0-9_]*-({QUOTE})?"
        ),
    ];
    signs.map(|regex| Expression::builtin(&format!("(?i-u){regex}")))
});

/// Returns the values that look random behind the names of a text.
fn values(text: &str) -> Vec<Range<usize>> {
    let mut values = Vec::new();
    for sign in &*SIGNS {
        let mut at = 0;
        while let Some(found) = sign.captures_at(text, at) {
            let name = found.get_match();
            at = name.end();
            let before = &text[..name.start()];
            // A path in code has two colons.
            let is_path = name.as_str().ends_with(':') && text[at..].starts_with(':');
            let is_other = found.name("other").is_some()
                || is_in_arn(before)
                || is_source(before, name.as_str())
                || is_in_random_word(before, name.as_str())
                || is_in_replacement(text, name.start());
            if is_path || is_other {
                at = behind_long_word(text, at);
                continue;
            }
            if found.name("attributes").is_some() {
                // Between a name and the content of its element are other names.
                values.extend(in_element(text, at));
                continue;
            }
            values.extend(changed(text, at));
            let mut marks = found.groups();
            let read = match (marks.next(), marks.next()) {
                (None, _) => match behind_words(text, at) {
                    Some((first, read)) => {
                        at = first;
                        read
                    }
                    None => bare(text, at),
                },
                (Some(mark), None) => quoted(text, at, mark.as_str()),
                // The value may begin with the second mark, or each of its ends may have two.
                (Some(outer), Some(inner)) => {
                    quoted(text, outer.end(), outer.as_str()).or_else(|_| quoted(text, at, inner.as_str()))
                }
            };
            let replaced = end_of_replacement(text, at).map(|end| at..end);
            let is_new = replaced.is_none();
            match replaced.map_or(read, Ok) {
                Ok(value)
                    if is_new
                        && (is_no_secret(text, value.clone())
                            || is_checksum(
                                before,
                                &text[name.start()..value.start],
                                &text[value.clone()],
                            )
                            || is_of_lines_below(text, name.range(), &value)) =>
                {
                    at = behind_long_word(text, at);
                }
                Ok(value) => {
                    let elements = elements(text, at, &value);
                    at = elements.last().map_or(value.end, |last| last.end);
                    values.extend(is_new.then_some(value).into_iter().chain(elements));
                }
                // A short value may be the name of another one.
                Err(end) if end - at > LONGEST => at = end,
                // What looks like a variable and its value may be the attribute of an element.
                Err(_) => values.extend(in_element(text, at)),
            }
        }
    }
    near(text, &mut values);
    values
}

/// Returns the value that is the content of an element of XML in whose beginning a position is.
fn in_element(text: &str, at: usize) -> Option<Range<usize>> {
    let value = bare(text, content(text, at)?).ok()?;
    (!is_no_secret(text, value.clone())).then_some(value)
}

/// Returns whether what a sentence says that a password is looks random, and is neither the name of something nor the number of
/// a commit or a container.
fn is_said(value: &str) -> bool {
    const NUMBERS: [usize; 2] = [40, 64];
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let looks_random = is_very_random(value) || is_long_number(value) && !NUMBERS.contains(&value.len());
    (looks_random || value.len() < 16 && digits > 1 && is_random(value))
        && !value.contains('/')
        && !is_of_other_form(value)
}

/// Returns whether hardly any words have the letters of a text as they are: there are more than so many times as many as vowels.
fn is_of_letters(text: &str, times: usize) -> bool {
    let vowels = text.bytes().filter(|byte| b"aeiou".contains(byte)).count();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    text.bytes().all(|byte| !byte.is_ascii_uppercase()) && vowels * times < letters
}

/// Returns the end of the word at a position if it is long, because the expression would read it again for each name in it.
fn behind_long_word(text: &str, at: usize) -> usize {
    let word = text[at..].find(|c: char| !c.is_ascii_alphanumeric() && !"_.:".contains(c));
    let end = word.map_or(text.len(), |length| at + length);
    if end - at > LONGEST { end } else { at }
}

/// Returns the lists of bytes that are the values of keys, such as those of a program for a device.
fn keys_of_bytes(text: &str) -> Vec<Range<usize>> {
    static LIST: LazyLock<Expression> = LazyLock::new(|| {
        const BYTE: &str = r"(?:\(byte\)\s*)?0x[0-9a-f]{1,2}";
        let words = KEY_WORDS.join("|");
        Expression::builtin(&format!(
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
