//! Private keys in PEM (RFC 7468), of OpenPGP (RFC 9580), of SSH2, .NET and PuTTY, and the numbers that OpenSSL prints of them, also as the lines of a listing, a comparison or a
//! program. Of one that was cut off, the first or the last lines are missing. In an address or a form, all but letters and
//! digits may be codes.

use std::iter::once;
use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::pattern::{BASE64_CODE, CODE, Pattern, always};
use super::value_ends::ending;

/// The number of characters from which on a word is a line of a key: fewer than those of a whole line, and more than those of
/// most words and paths.
const LONG: usize = 40;
/// The number of characters from which on the next word of a key that was cut off belongs to it.
const CUT: usize = 16;
/// The maximum number of lines with headers, and of blank ones, before a key.
const HEADERS: usize = 7;
/// The maximum number of short lines at the end of a key. The last ones may be what a listing or a program has before the end.
const LAST: usize = 4;
/// The maximum number of lines of a program between two lines of a key.
const BETWEEN: usize = 1;
/// The maximum number of bytes of a key of which only the end is there.
const LONGEST: usize = 1 << 20;

/// A blank, also in an address or a form (RFC 3986 and the URL Standard), or one inside another one.
const BLANK: &str = r"(?: |\+|%(?:25)*2[0Bb])";

/// Returns the patterns of private keys.
pub(super) fn patterns() -> [Pattern; 6] {
    [
        Pattern::values(&["-----BEGIN", "-----END", "---- BEGIN", "---- END"], keys),
        numbers(),
        encoded(),
        // A key of OpenVPN, in lines of hexadecimal digits.
        Pattern::matches(
            &["-----BEGIN OpenVPN"],
            r"-----BEGIN OpenVPN Static key V1-----((?:(?:\s|\\+[nr])+[0-9a-f]{32})+)",
            always,
        )
        .on_two_lines(),
        // The private members of an RSA key in XML, as .NET writes it.
        Pattern::matches(
            &["<RSAKeyValue>"],
            r"<(?:D|P|Q|DP|DQ|InverseQ)>\s*([A-Za-z0-9+/]{40,}={0,2})\s*</",
            always,
        ),
        Pattern::matches(
            &["Private-Lines:"],
            r"Private-Lines: [0-9]+((?:(?:\s|\\+[nr])+[A-Za-z0-9+/=]{40,})+(?:(?:\s|\\+[nr])+[A-Za-z0-9+/=]{1,63}(?:\s|\\+[nr])+Private-MAC)?)",
            always,
        ),
    ]
}

/// Returns the pattern of the private numbers of a key, as OpenSSL prints them with colons between the bytes.
fn numbers() -> Pattern {
    Pattern::matches(
        &["priv:", "privateExponent:", "prime1:", "prime2:", "exponent1:", "exponent2:", "coefficient:"],
        r"(?:priv|privateExponent|prime[12]|exponent[12]|coefficient):((?:(?:\s|\\+[nr])+(?:[0-9a-f]{2}:)*[0-9a-f]{2}:?)+)",
        |numbers| numbers.len() >= LONG,
    )
    .on_two_lines()
}

/// Returns the pattern of keys in base64 without the lines before and behind them: those in PKCS #8 (RFC 5958) and PKCS #1 (RFC
/// 8017), and of elliptic curves (RFC 5915), which begin with their version and algorithm.
fn encoded() -> Pattern {
    const RSA: &str = "MII[A-Za-z0-9+/]{3}(?:IBADANBgkqhkiG9w0BAQEFAASC|IBAAK[BC])";
    const CURVES: &str = "M(?:HcCAQEEI|HQCAQEEI|IGkAgEBBD|IHcAgEBBE)|MI[GH][A-Za-z0-9+/]AgEAMB[AM]GByqGSM49";
    const EDWARDS: &str = "MC4CAQAwBQYDK2V[a-z]BCIEI|MFMCAQEwBQYDK2V[a-z]BCIEI";
    const END: &str = r"[ \t]*(?:\r?\n|(?:\\+r)?\\+n)[ \t]*";
    const CHARACTER: &str = "[A-Za-z0-9+/]";
    let begun = format!("(?:{RSA}|{CURVES}|{EDWARDS}){CHARACTER}{{30,}}(?:{END}{CHARACTER}{{60,}})*");
    // The last line has a whole number of bytes, as names before a sign seldom look.
    let ended = format!("{begun}{END}(?:{CHARACTER}{{4}}){{1,18}}(?:{CHARACTER}{{3}}=|{CHARACTER}{{2}}==)");
    Pattern::matches(
        &["CAQ", "IBAAK", "IBADAN", "AgEAMB", "AgEBB"],
        &format!("(?:^|[^A-Za-z0-9+/]|{BASE64_CODE}|{CODE})(?:({ended})(?:[\\s\\\\]|$)|({begun}={{0,2}})(?:[^A-Za-z0-9+/=]|$))"),
        |key| key.len() >= LONG,
    )
    .on_two_lines()
}

/// What else keys are named in such lines: those of NATS, of the tunnels of Cloudflare, and of OpenVPN.
const OTHERS: &str = "[A-Z]+ NKEY SEED|ARGO TUNNEL TOKEN|OpenVPN tls-crypt-v2 (?:client|server) key";

/// Returns the private keys of a text, from the end of their first line to the end of their last one. Between two of these
/// marks, the text is read once in each direction.
fn keys(text: &str) -> Vec<Range<usize>> {
    static MARK: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(
            "----[ -](?:BEGIN|(END)){BLANK}(?:(?:[A-Z0-9-]+{BLANK})*PRIVATE{BLANK}KEY(?:{BLANK}BLOCK)?|{OTHERS})[ -]----"
        ))
    });
    let mut keys = Vec::new();
    let (mut from, mut is_begun) = (0, false);
    let marks = MARK.captures_iter(text).map(|mark| (mark.get_match().range(), mark.get(1).is_some()));
    for (mark, ends) in
        marks.map(|(mark, ends)| (mark, Some(ends))).chain(once((text.len()..text.len(), None)))
    {
        let body = &text[from..mark.start];
        let ends = ends == Some(true);
        match if is_begun { begun(body) } else { None } {
            Some((end, is_whole)) => keys.push(from..if is_whole && ends { mark.end } else { from + end }),
            None if ends => keys.extend(ended(body).map(|start| from + start..mark.end)),
            None => (),
        }
        (from, is_begun) = (mark.end, !ends);
    }
    keys
}

/// Returns where the key ends with which a text begins, and whether nothing else is behind it.
fn begun(text: &str) -> Option<(usize, bool)> {
    static HEADER: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!("(?::|%(?:25)*3[Aa]){BLANK}")));
    let (mut end, mut before, mut last, mut is_cut) = (None, 0, 0, false);
    for line in lines(text) {
        let words = || words(&text[line.clone()]).map(|word| line.start + word.start..line.start + word.end);
        let is_long = words().any(|word| word.len() >= LONG);
        let goes_on = last <= BETWEEN && !is_cut;
        if is_long && goes_on {
            // Behind a whole line may be the beginning of the next one.
            end = words().filter(|word| word.len() >= CUT).last().map(|word| word.end);
            last = 0;
        } else if let Some(until) = end {
            // A single character is a sign of a program, or the prefix of a string.
            let is_alone = words().filter(|word| word.len() > 1).count() == 1;
            let only = words().find(|word| goes_on && is_alone && word.len() >= CUT);
            end = Some(only.map_or(until, |word| word.end));
            is_cut |= words().any(|word| word.len() >= CUT);
            last += 1;
            if is_long || last > LAST {
                return Some((until, false));
            }
        } else {
            let is_header = HEADER.is_match(&text[line.clone()]) || words().all(|word| word.len() < CUT / 2);
            before += 1;
            if !is_header || before > HEADERS {
                return None;
            }
        }
    }
    end.map(|end| (end, true))
}

/// Returns where the key begins with which a text ends.
fn ended(text: &str) -> Option<usize> {
    let (mut start, mut short) = (None, 0);
    let from = text.len() - ending(text, LONGEST).len();
    let lines: Vec<_> = lines(&text[from..]).map(|line| from + line.start..from + line.end).collect();
    for line in lines.into_iter().rev() {
        let mut long = words(&text[line.clone()]).filter(|word| word.len() >= LONG);
        if let Some(word) = long.next() {
            (start, short) = (Some(line.start + word.start), 0);
            continue;
        }
        short += 1;
        if short > if start.is_some() { BETWEEN } else { LAST } {
            break;
        }
    }
    start
}

/// Returns the lines of a text, also those that escapes of other formats separate. Between two lines that are strings of a
/// program are the end of the first one, the end of its line in the program, and the marks around them.
fn lines(text: &str) -> impl Iterator<Item = Range<usize>> {
    static END: LazyLock<Expression> = LazyLock::new(|| {
        const END: &str = r"(?:[\r\n]|\\+[nr]|<br ?/?>|&#(?:10|13|x[AaDd]);|%(?:25)*0[ADad])";
        Expression::builtin(&format!(r#"{END}(?:[\s"'`+.,;\\()>]*{END})*"#))
    });
    let mut from = 0;
    let ends = END.find_iter(text).map(|end| end.range()).chain(once(text.len()..text.len()));
    ends.map(move |end| {
        let line = from..end.start;
        from = end.end;
        line
    })
}

/// Returns the words of a line that consist of the characters of base64.
fn words(line: &str) -> impl Iterator<Item = Range<usize>> {
    static WORD: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!("(?:[A-Za-z0-9+/=]|{BASE64_CODE})+")));
    WORD.find_iter(line).map(|word| word.range())
}
