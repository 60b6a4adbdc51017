//! Parses numbers in providers' errors and headers: how long to wait, and limits.

use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use regex::Regex;

/// Returns the seconds, rounded up, after which the text of an error, in lower case, says that it may be tried again.
#[must_use]
pub fn in_text(text: &str) -> Option<i64> {
    static WAIT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?:try again|retry|retry your request|wait)(?: your request)? ?(?:in|after|for)?:? (?:about |at least )?((?:\d+(?:\.\d+)? ?(?:ms|milliseconds?|h(?:ours?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b ?)+|\d+(?:h\d+)?(?:m\d+)?(?:\.\d+)?s\b)|retry_?-?(?:delay|after)\W{0,4}(?:\{ ?)?(?:seconds\W{0,3})?(\d+(?:\.\d+)? ?(?:ms|s)?)",
        )
        .expect("a regular expression")
    });
    let captures = WAIT.captures(text)?;
    let found = captures.iter().skip(1).flatten().next()?;
    seconds(found.as_str()).map(whole)
}

/// Returns the seconds after which the headers of a response say that it may be tried again. `header` finds one by its
/// name in lower case.
#[must_use]
pub fn in_headers<'a>(header: impl Fn(&str) -> Option<&'a str>, now: DateTime<Utc>) -> Option<i64> {
    let at = |time: DateTime<Utc>| (time - now).as_seconds_f64().max(0.0);
    let millis = || header("retry-after-ms")?.trim().parse::<f64>().ok().map(|millis| millis / 1_000.0);
    let after = || {
        let value = header("retry-after")?.trim();
        value.parse().ok().or_else(|| DateTime::parse_from_rfc2822(value).ok().map(|time| at(time.to_utc())))
    };
    let used_up = |remaining: &str| header(remaining).is_some_and(|left| left.trim() == "0");
    let reset = || {
        ["requests", "tokens", "input-tokens", "output-tokens"].into_iter().find_map(|what| {
            let theirs = || {
                used_up(&format!("anthropic-ratelimit-{what}-remaining")).then_some(())?;
                let reset = header(&format!("anthropic-ratelimit-{what}-reset"))?;
                DateTime::parse_from_rfc3339(reset.trim()).ok().map(|time| at(time.to_utc()))
            };
            let common = || {
                used_up(&format!("x-ratelimit-remaining-{what}")).then_some(())?;
                seconds(header(&format!("x-ratelimit-reset-{what}"))?)
            };
            theirs().or_else(common)
        })
    };
    millis().or_else(after).or_else(reset).map(whole)
}

/// Returns the limit in tokens that the text of an error, in lower case, names.
#[must_use]
pub fn limit_tokens(text: &str) -> Option<i64> {
    static LIMIT: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        [
            r"exceed context limit: \d+ \+ \d+ > (\d[\d,]*)",
            r"maximum (?:context|prompt|input|model|sequence) (?:length|size|window)(?: is| of|:)? ?\(?(\d[\d,]*)",
            r"> ?(\d[\d,]*) ?maximum",
            r"tokens? allowed[ :]*\(?(\d[\d,]*)",
            r"only supports up to (\d[\d,]*)",
            r"context (?:window|length|size|limit)(?: of(?: only)?|:| is)? ?\(?(\d[\d,]*)",
            r"(?:model|token) (?:token )?limit(?: of|:| is)? ?(\d[\d,]*)",
            r"\blimit:? (?:of )?(\d[\d,]*)",
            r"max(?:imum)?(?: input| prompt)? (?:tokens|length|size)(?: of|:| is)? ?\(?(\d[\d,]*)",
            r"with (\d[\d,]*) maximum context",
            r"must be <= (\d[\d,]*)",
            r"exceeds? (?:the |a )?(?:limit|maximum)[a-z ]* of (\d[\d,]*)",
        ]
        .iter()
        .map(|pattern| Regex::new(pattern).expect("a regular expression"))
        .collect()
    });
    let digits = LIMIT.iter().find_map(|pattern| pattern.captures(text)?.get(1))?;
    digits.as_str().replace(',', "").parse().ok()
}

/// Reads a duration such as `1h2m3.5s`, `174ms`, `6 seconds` or `44`, which are seconds.
fn seconds(text: &str) -> Option<f64> {
    static PART: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(\d+(?:\.\d+)?) ?([a-z]*)").expect("a regular expression"));
    let mut sum = None;
    for captures in PART.captures_iter(text) {
        let number: f64 = captures[1].parse().ok()?;
        let unit = match &captures[2] {
            unit if unit.starts_with("ms") || unit.starts_with("milli") => 0.001,
            unit if unit.starts_with('h') => 3_600.0,
            unit if unit.starts_with('m') => 60.0,
            unit if unit.starts_with('d') => 86_400.0,
            _ => 1.0,
        };
        *sum.get_or_insert(0.0) += number * unit;
    }
    sum
}

/// Rounds seconds up. A wait is a second at least, and a year at most.
#[expect(clippy::cast_possible_truncation, reason = "it is bounded")]
fn whole(seconds: f64) -> i64 {
    seconds.ceil().clamp(1.0, 31_536_000.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_from_texts() {
        for (text, expected) in [
            ("please try again in 18.642s. visit", Some(19)),
            ("please try again in 174ms. visit", Some(1)),
            ("please try again in 1m26.4s.", Some(87)),
            ("please try again in 1h2m3s", Some(3_723)),
            ("please retry after 6 seconds.", Some(6)),
            ("retrydelay: 44s", Some(44)),
            ("retry_delay { seconds: 44 }", Some(44)),
            ("retry-after: 12", Some(12)),
            ("please wait 2 minutes", Some(120)),
            ("please try again later", None),
            ("max retries exceeded with url", None),
        ] {
            assert_eq!(in_text(text), expected, "{text}");
        }
    }

    #[test]
    fn waits_are_read_from_headers() {
        let now = DateTime::parse_from_rfc3339("2026-03-01T12:00:00Z").expect("a time").to_utc();
        for (headers, expected) in [
            (&[("retry-after", "7")][..], Some(7)),
            (&[("retry-after", "Sun, 01 Mar 2026 12:00:30 GMT")], Some(30)),
            (&[("retry-after-ms", "1500"), ("retry-after", "9")], Some(2)),
            (&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], Some(360)),
            (&[("x-ratelimit-remaining-tokens", "5"), ("x-ratelimit-reset-tokens", "6m0s")], None),
            (
                &[
                    ("anthropic-ratelimit-requests-remaining", "0"),
                    ("anthropic-ratelimit-requests-reset", "2026-03-01T12:01:00Z"),
                ],
                Some(60),
            ),
            (&[], None),
        ] {
            let header =
                |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            assert_eq!(in_headers(header, now), expected, "{headers:?}");
        }
    }

    #[test]
    fn limits_are_read_from_texts() {
        for (text, expected) in [
            ("this model's maximum context length is 4097 tokens. however", Some(4_097)),
            ("prompt is too long: 207791 tokens > 200000 maximum", Some(200_000)),
            ("exceeds the maximum number of tokens allowed (131072).", Some(131_072)),
            ("requested tokens (2285) exceed context window of 2048", Some(2_048)),
            ("exceeds the available context size (4096 tokens)", Some(4_096)),
            ("on tokens per min (tpm): limit 30000, requested 37313.", Some(30_000)),
            ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000", Some(200_000)),
            ("too long", None),
        ] {
            assert_eq!(limit_tokens(text), expected, "{text}");
        }
    }
}
