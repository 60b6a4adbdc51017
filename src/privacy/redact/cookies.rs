//! Cookies (RFC 6265): in headers, in the stores of browsers and clients, and in what programs give to these.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::headers::{GAP, sets};
use super::named::QUOTE;
use super::pattern::{CODE, Pattern};
use super::random::is_random;
use super::value_ends::beginning;

/// Returns the patterns of cookies.
pub(super) fn patterns() -> [Pattern; 16] {
    let sets = sets();
    // Names and values.
    let pairs = r#"[a-z0-9_.%-]+=[^\s;,"'|<\\]*(?:;\s?[a-z0-9_.%-]+=[^\s;,"'|<\\]*)*"#;
    let stored = format!(r#"(?:{QUOTE}|(?-u:\b))value{QUOTE}?\s*:\s*{QUOTE}([^\s"'\\]{{16,}}){QUOTE}"#);
    [
        Pattern::matches(
            &["cookie"],
            &format!(r"(?i)(?-u:\b)cookie{QUOTE}?\s*,?\s*{QUOTE}?value{QUOTE}?\s*[:=]\s*{QUOTE}?({pairs})"),
            has_random_value,
        )
        .on_two_lines(),
        Pattern::matches(
            &["cookie"],
            &format!(
                r"(?i)(?:(?-u:\b)cookie(?:[*`]{{0,2}}:[*`]{{0,2}}[ \t]|[ \t]?\|[ \t]?|\t)|(?:http_|(?-u:\b))cookies?{QUOTE}?\]?\s*[:=]>?\s*{QUOTE}?|<cookie\s)({pairs})"
            ),
            has_random_value,
        ),
        // A line of headers, in whose values there may be strings, before which is another sign than before the mark that ends it.
        Pattern::matches(
            &["cookie"],
            r#"(?im)^[<>*\s]*(?:set-)?cookie: ([a-z0-9_.%-]+(?:[{:,\[=]["'][^"'\r\n\\]*["']|[^\r\n"'\\])*)"#,
            has_random_value,
        ),
        Pattern::matches(
            &["cookie"],
            &format!(
                r#"(?i)(?:(?-u:\b)|(?-u:\b)set_|{CODE})(?:cookies?{sets}|cookie(?:{QUOTE}?:(?:{GAP})?{QUOTE}?|=\[))((?:=\\*"[^"\r\n\\]*\\*"|[^\r\n"'\\&]|\\+/|&(?:[^\s"'\\q#]|q[^\s"'\\u])){{8,}})"#
            ),
            has_random_value,
        ),
        Pattern::values(&["cookie"], in_brackets),
        // A header below its name, as browsers show it.
        Pattern::matches(&["cookie:"], &format!(r"(?im)^\s*cookie:[ \t]*\r?\n[ \t]*({pairs})"), has_random_value)
            .on_two_lines(),
        // A cookie in the store of a browser or the argument of one that a program drives.
        Pattern::matches(
            &["domain"],
            &format!(r"(?i){stored}\s*,\s*{QUOTE}?domain{QUOTE}?\s*:"),
            is_random,
        )
        .on_two_lines(),
        // The same with its members in another order, of which only cookies have one.
        Pattern::matches(
            &["httponly"],
            &format!(r"(?i){QUOTE}httponly{QUOTE}\s*:[^{{}}]{{0,300}}?{stored}|{stored}[^{{}}]{{0,300}}?{QUOTE}httponly{QUOTE}\s*:"),
            is_random,
        )
        .on_two_lines(),
        // A line of curl's cookies.
        Pattern::matches(
            &["\ttrue\t", "\tfalse\t"],
            r"(?im)^(?:#httponly_)?[^\s]+\t(?:true|false)\t/[^\t\n]*\t(?:true|false)\t[0-9]+\t[^\t\n]+\t([^\s]{12,})\s*$",
            is_random,
        ),
        // What a server sets, without the name of the header, and the sessions of usual frameworks.
        Pattern::matches(
            &["httponly", "samesite"],
            r#"(?i)(?-u:\b)([a-z0-9_.-]+=[^\s;,"'<>\\]{12,})(?:;\s?(?:path|domain|expires|max-age|secure|priority)[^;\n"']{0,64}){0,6};\s?(?:httponly|samesite)"#,
            has_random_value,
        ),
        Pattern::matches(
            &["phpsessid", "jsessionid", "net_sessionid", "connect.sid", "laravel_session", "gitlab_session", "grafana_session"],
            &format!(
                r#"(?i)(?:phpsessid|jsessionid|net_sessionid|connect\.sid|(?:laravel|gitlab|grafana)_session){QUOTE}?\]?\s*(?:=>?|:|,)\s*{QUOTE}?([^\s"'\\;,&]{{16,}})"#
            ),
            is_random,
        ),
        // A variable of the environment, and a string behind a name. What a log writes behind such a name is often an id.
        Pattern::matches(&["_cookie"], r"(?-u:\b)[A-Z0-9_]+_COOKIE=([^\s\x22'\\;]{16,})", is_random),
        Pattern::matches(
            &["_cookie", "sessioncookie", "session-cookie", "authcookie", "auth-cookie"],
            &format!(r#"(?i)(?:_|(?:session|auth)-?)cookie{QUOTE}?\s*[:=]\s*{QUOTE}([^\s"'\\;]{{16,}}){QUOTE}"#),
            is_random,
        ),
        // The argument of curl, as browsers copy a request, and without quotation marks.
        Pattern::matches(
            &["curl"],
            r#"(?i)(?-u:\b)curl(?:[^\n|;&]|[\\`^]\r?\n){0,400}?\s(?:-b|--cookie)[ =]([a-z0-9_.-]+=[^\s"'\\;]{12,})"#,
            has_random_value,
        ),
        Pattern::matches(
            &["-b '", "-b \"", "-b $'", "-b \\", "--cookie '", "--cookie \"", "--cookie \\"],
            &format!(r#"(?i)(?:^|\s)(?:-b|--cookie)\s\$?\\*["']({pairs})"#),
            has_random_value,
        ),
        // The same for the command line of Windows, with the sign of its escapes.
        Pattern::matches(
            &["-b ^"],
            &format!(r#"(?i)(?:^|\s)-b\s\^\\*"({})"#, pairs.replace("|<", "|<^")),
            has_random_value,
        ),
    ]
}

/// Returns whether one of a cookie's values looks random.
fn has_random_value(cookie: &str) -> bool {
    cookie.split(['=', ';', ' ', ',', '"', '\'']).any(is_random)
}

/// Returns the values of cookies that are strings in the brackets behind a name of cookies: in an object, a list or a call.
fn in_brackets(text: &str) -> Vec<Range<usize>> {
    /// The maximum number of bytes between the brackets.
    const LONGEST: usize = 8 << 10;
    /// Members of packages that are named after cookies, and of cookies beside their values.
    const OTHERS: &str = "integrity|resolved|hash|shasum|sha[0-9]*|checksum|digest|rev|commit|githead|etag|version|url|path|domain|_?id|image|expires\
        |[a-z]+at|creation|lastaccessed";
    static OPEN: LazyLock<Expression> = LazyLock::new(|| {
        const TYPE: &str = r"\s*:\s*[a-z][a-z_.]*(?:[\[<][a-z_, ]*[\]>])?\s*=";
        Expression::builtin(&format!(
            r"(?i-u)cookies?(?:\(\)\)?)?(?:(?:jar)?(?:\.|::|->)[a-z_]{{1,16}})?{QUOTE}?(?:{TYPE}|\s*(?::=|=>|[:=]))?\s*(?:new\s|&|\$)?[a-z_.]{{0,16}}[\[({{]"
        ))
    });
    static STRING: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(
            r#"(?i-u)(?:[\s"'`,{{(](?<other>{OTHERS}){QUOTE}?\s*[:=]\s*(?:(?:new\s)?[a-z]+\()?)?["'`]((?u:[^\s"'`\\;]){{16,}})(?:;(?u:[^"'`\\\n])*)?\\*["'`]"#
        ))
    });
    let (mut values, mut at) = (Vec::new(), 0);
    while let Some(open) = OPEN.captures_at(text, at).map(|open| open.get_match().end()) {
        let inside = beginning(&text[open..], LONGEST);
        let length = closed(inside);
        at = open + length;
        // A package in Elixir's list, which has its digests at certain places.
        if inside.starts_with(":hex,") {
            continue;
        }
        let strings = STRING.captures_iter(&inside[..length]).filter(|string| string.name("other").is_none());
        let strings = strings.filter_map(|string| string.meant());
        let cookies =
            strings.filter(|string| has_random_value(string.as_str()) && !is_other(string.as_str()));
        values.extend(cookies.map(|cookie| open + cookie.start()..open + cookie.end()));
    }
    values
}

/// Returns where the bracket is closed that is open before a text. If a value is assigned to what is in brackets, as in
/// `cookies["sid"] = …`, that is the end of the line.
fn closed(text: &str) -> usize {
    let mut open = 1;
    let closing = text.bytes().position(|byte| {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open -= 1,
            _ => {}
        }
        open == 0
    });
    let Some(end) = closing.map(|at| at + 1) else { return text.len() };
    let rest = text[end..].trim_start_matches(' ');
    let is_set = rest.starts_with('=') && !rest.starts_with("==");
    if is_set { text[end..].find('\n').map_or(text.len(), |line| end + line) } else { end }
}

/// Returns whether a text is the digest of a package, which has the name of its algorithm before it, or a time (RFC 3339).
fn is_other(text: &str) -> bool {
    static OTHER: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(r"^(?:sha[0-9]*[-:]|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:)"));
    OTHER.is_match(text)
}
