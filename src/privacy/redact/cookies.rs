//! Cookies (RFC 6265): in headers, in the stores of browsers and clients, and in what programs give to these.

use super::headers::{GAP, sets};
use super::named::QUOTE;
use super::pattern::{CODE, Pattern};
use super::random::is_random;

/// Returns the patterns of cookies.
pub(super) fn patterns() -> [Pattern; 10] {
    let sets = sets();
    // Names and values.
    let pairs = r#"[a-z0-9_.%-]+=[^\s;,"'|<\\]*(?:;\s?[a-z0-9_.%-]+=[^\s;,"'|<\\]*)*"#;
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
                r"(?i)(?:(?-u:\b)cookie(?:[*`]{{0,2}}:[*`]{{0,2}}[ \t]|[ \t]?\|[ \t]?|\t)|http_cookie{QUOTE}?\]?\s*[:=]>?\s*{QUOTE}?)({pairs})"
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
                r#"(?i)(?:(?-u:\b)|{CODE})cookie(?:{sets}|{QUOTE}?:(?:{GAP})?{QUOTE}?|=\[)((?:=\\*"[^"\r\n\\]*\\*"|[^\r\n"'\\&]|\\+/|&(?:[^\s"'\\q#]|q[^\s"'\\u])){{8,}})"#
            ),
            has_random_value,
        ),
        // The cookies of a client in Python.
        Pattern::matches(
            &["cookies"],
            &format!(
                r#"(?i)cookies{QUOTE}?\s*[=:]\s*(?:dict\()?[\[{{(][^\])}}\n]{{0,400}}?{QUOTE}\s*[:,]\s*{QUOTE}([^\s"'\\;]{{16,}})"#
            ),
            is_random,
        ),
        // A header below its name, as browsers show it.
        Pattern::matches(&["cookie:"], &format!(r"(?im)^\s*cookie:[ \t]*\r?\n[ \t]*({pairs})"), has_random_value)
            .on_two_lines(),
        // A cookie in the store of a browser or the argument of one that a program drives, and a line of curl's cookies.
        Pattern::matches(
            &["domain"],
            &format!(
                r#"(?i)(?:{QUOTE}|(?-u:\b))value{QUOTE}?\s*:\s*{QUOTE}([^\s"'\\]{{16,}}){QUOTE}\s*,\s*{QUOTE}?domain{QUOTE}?\s*:"#
            ),
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["\ttrue\t", "\tfalse\t"],
            r"(?im)^(?:#httponly_)?[^\s]+\t(?:true|false)\t/[^\t\n]*\t(?:true|false)\t[0-9]+\t[^\t\n]+\t([^\s]{12,})\s*$",
            is_random,
        ),
        // The argument of curl, as browsers copy a request.
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
