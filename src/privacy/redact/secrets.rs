//! The built-in rule `secrets`: keys and tokens by the forms that their issuers have published, and passwords by the
//! names before them and by their places.

use super::pattern::Pattern;
use super::{
    addresses, azure, camel_case, commands, cookies, headers, manifests, marks, members, named, pairs,
    private_keys, shapes, tables,
};

/// Returns the patterns of the rule.
pub(super) fn patterns() -> Vec<Pattern> {
    shapes::patterns()
        .chain(marks::patterns())
        .chain([pairs::pattern()])
        .chain(private_keys::patterns())
        .chain(azure::patterns())
        .chain(headers::patterns())
        .chain(cookies::patterns())
        .chain(addresses::patterns())
        .chain(named::patterns())
        .chain([camel_case::pattern()])
        .chain(members::patterns())
        .chain(manifests::patterns())
        .chain(tables::patterns(&named::anchors()))
        .chain(commands::patterns())
        .collect()
}
