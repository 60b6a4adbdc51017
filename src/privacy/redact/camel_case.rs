//! Keys of services whose names are in camel case, such as `weatherKey`. Programs call much else so, so that only a value is replaced
//! that looks like nothing but a key.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::named::{OTHER_NAME, QUOTE};
use super::pattern::Pattern;
use super::random::is_key;

/// The last words before `Key` in the names of what is called so, and is no secret.
const OTHERS: &str = "action address avatar checksum commit component content contract cursor device etag event file folder group hash host \
    identity index issue item lookup matched message mint next node p256dh page peer post project publishable query registry row \
    s3 sheet site spreadsheet style stylesheet usage validator";

/// Returns the pattern of such keys.
pub(super) fn pattern() -> Pattern {
    Pattern::values(&["key=", "key:", "key =", "key :", "key\"", "key'", "key`", "key\\"], keys)
}

fn keys(text: &str) -> Vec<Range<usize>> {
    static KEY: LazyLock<Expression> = LazyLock::new(|| {
        const VALUE: &str = "[A-Za-z0-9_+/=-]{16,}";
        Expression::builtin(&format!(
            r"(?m-u)\b(?<name>[a-z][A-Za-z0-9]*Key){QUOTE}?\s*[:=]\s*(?:{QUOTE}(?<quoted>{VALUE}){QUOTE}|(?<bare>{VALUE})\s*$)"
        ))
    });
    static OTHER: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(&format!("(?i-u){OTHER_NAME}$")));
    let values = KEY.captures_iter(text).filter_map(|found| {
        let value = found.name("quoted").or_else(|| found.name("bare"))?;
        let name = found.name("name")?.as_str();
        let last = last_word(name);
        let is_other = OTHER.is_match(name) || OTHERS.split(' ').any(|other| other == last);
        let is_public = ["0x", "pk_", "phc_"].iter().any(|beginning| value.as_str().starts_with(beginning));
        (is_key(value.as_str()) && !is_other && !is_public).then(|| value.range())
    });
    values.collect()
}

/// Returns the last word before `Key` in a name.
fn last_word(name: &str) -> String {
    let before = name.strip_suffix("Key").unwrap_or(name);
    before[before.rfind(|c: char| c.is_ascii_uppercase()).unwrap_or(0)..].to_ascii_lowercase()
}
