//! IP addresses of other machines.

use std::iter;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::LazyLock;

use super::expression::{Expression, Match};
use super::pattern::Pattern;

/// Returns the patterns of addresses of both versions.
pub(super) fn patterns() -> [Pattern; 2] {
    [Pattern::values(&[], of_version_4), Pattern::values(&[], of_version_6)]
}

/// Returns the addresses of version 4, also before a port or behind the number of a line. The numbers of a path in SVG look like some.
fn of_version_4(text: &str) -> Vec<Range<usize>> {
    static ADDRESS: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r"(?:^|[^0-9A-Za-z.]|\\[nrt])((?:[0-9]{1,3}\.){3}[0-9]{1,3})(?:$|[^0-9A-Za-z.]|\.(?:$|[^0-9A-Za-z]))",
        )
    });
    // A path begins with the letter of a move (SVG 2, section 9.3).
    static PATH: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r#"(?:\A|["'`])\s*[Mm][0-9\s.,-]+[AaCcHhLlQqSsTtVv][0-9AaCcHhLlMmQqSsTtVvZz\s.,+-]*(?:["'`\\]|\z)"#,
        )
    });
    let mut addresses: Vec<_> = candidates(&ADDRESS, text)
        .filter(|found| is_address(found.as_str()))
        .map(|found| found.range())
        .collect();
    if !addresses.is_empty() {
        let paths: Vec<_> = PATH.find_iter(text).map(|path| path.range()).collect();
        addresses.retain(|address| {
            let path = paths.get(paths.partition_point(|path| path.end <= address.start));
            path.is_none_or(|path| address.start < path.start)
        });
    }
    addresses
}

/// Returns the addresses of version 6, also with one of version 4 as their end (RFC 4291, section 2.2). The number of a line may be before
/// one, which looks like a part of it.
fn of_version_6(text: &str) -> Vec<Range<usize>> {
    static ADDRESS: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r"(?:^|[^0-9A-Za-z.]|\\[nrt])((?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[0-9A-Fa-f]{0,4}))(?:$|[^0-9A-Za-z.:]|[.:](?:$|[^0-9A-Za-z]))",
        )
    });
    let address = |found: Match<'_>| {
        let behind_number = found.as_str().split_once(':').map(|(_, behind)| behind);
        let own = iter::once(found.as_str()).chain(behind_number).find(|own| is_address(own))?;
        Some(found.end() - own.len()..found.end())
    };
    candidates(&ADDRESS, text).filter_map(address).collect()
}

/// Returns what an expression finds in a text. What is behind something may also be before the next one.
fn candidates<'t>(expression: &Expression, text: &'t str) -> impl Iterator<Item = Match<'t>> {
    let mut at = 0;
    iter::from_fn(move || {
        let found = expression.captures_at(text, at)?.meant()?;
        at = found.end();
        Some(found)
    })
}

/// Returns whether a text is an address of another machine. Of version 6, these are the ranges that are in use (IANA, "IPv6 Global
/// Unicast", and RFC 6890), because paths and slices in code look like addresses, too.
fn is_address(text: &str) -> bool {
    match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => !address.is_loopback() && !address.is_unspecified(),
        Ok(IpAddr::V6(address)) => match address.segments() {
            [0x2000..=0x3fff | 0x5f00 | 0xfc00..=0xfdff | 0xfe80..=0xfeff | 0xff00..=0xffff, ..]
            | [0x64, 0xff9b, ..] => true,
            _ => text.contains('.'),
        },
        Err(_) => false,
    }
}
