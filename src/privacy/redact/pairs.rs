//! Secrets beside the identifiers of their keys, which have known forms: in calls, lists, tables, addresses and files.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::pattern::{BASE64_CODE, CODE, Pattern};
use super::random::is_very_random;

/// The identifiers of access keys of AWS, Tencent, DigitalOcean, Google and Alibaba, and how long their secrets are.
const PAIRS: [(&str, usize); 5] = [
    ("A[KS]IA[A-Z0-9]{16}", 40),
    ("AKID[A-Za-z0-9]{32}", 32),
    ("DO00[A-Z0-9]{16}", 43),
    ("GOOG[A-Z0-9]{20,57}", 40),
    ("LTAI[A-Za-z0-9]{12,26}", 30),
];

/// The numbers of bytes before and behind an identifier in which its whole secret is. There may be names, quotation marks and
/// line ends between them. The address of a signed request has more between a name that looks random and the identifier.
const NEAR: (usize, usize) = (80, 100);

/// Returns the pattern of such secrets.
pub(super) fn pattern() -> Pattern {
    Pattern::values(&["AKIA", "AKID", "ASIA", "DO00", "GOOG", "LTAI"], secrets)
}

/// Returns the secrets of a text near an identifier. Others of the same length are checksums, which are hexadecimal, and paths.
fn secrets(text: &str) -> Vec<Range<usize>> {
    static PATTERNS: LazyLock<[(Expression, Expression); PAIRS.len()]> = LazyLock::new(|| {
        PAIRS.map(|(id, length)| {
            let secret = format!(
                r"(?:^|[^A-Za-z0-9/+_-]|{CODE})((?:[A-Za-z0-9/+]|{BASE64_CODE}){{{length}}})(?:[^A-Za-z0-9/+=_-]|$)"
            );
            (Expression::builtin(id), Expression::builtin(&secret))
        })
    });
    let mut secrets = Vec::new();
    for (id, secret) in &*PATTERNS {
        for id in id.find_iter(text) {
            let mut at = text.floor_char_boundary(id.start().saturating_sub(NEAR.0));
            let end = text.ceil_char_boundary(text.len().min(id.end() + NEAR.1));
            while let Some(found) = secret.captures_at(&text[..end], at).and_then(|found| found.get(1)) {
                let is_whole = found.end() < end || end == text.len();
                if is_whole && is_very_random(found.as_str()) {
                    secrets.push(found.range());
                }
                at = found.end();
            }
        }
    }
    secrets
}
