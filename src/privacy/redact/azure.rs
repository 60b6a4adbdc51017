//! Keys of the services of Azure.

use super::pattern::{CODE, Pattern, always};
use super::random::is_random;

/// Returns the patterns of such keys.
pub(super) fn patterns() -> [Pattern; 10] {
    [
        // These have a mark behind 33, 42, 44, 52 or 76 characters.
        Pattern::matches(
            &["AzFu"],
            &format!("(?:^|[^A-Za-z0-9_-]|{CODE})([A-Za-z0-9_-]{{44}}AzFu[A-Za-z0-9_-]{{5}}[AQgw]==)"),
            always,
        ),
        Pattern::matches(
            &["AZDO"],
            &format!(
                "(?:^|[^A-Za-z0-9+/]|{CODE})([A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}})(?:[^A-Za-z0-9+/=]|$)"
            ),
            always,
        ),
        Pattern::matches(
            &["JQQJ99"],
            &format!("(?:^|[^A-Za-z0-9]|{CODE})([A-Za-z0-9]{{52}}JQQJ99[A-Za-z0-9]{{26}})"),
            always,
        ),
        Pattern::matches(
            &["APIM", "ACDb", "+ABa", "+AMC", "+ASt"],
            &format!(
                r"(?:^|[^A-Za-z0-9+/]|{CODE})([A-Za-z0-9+/]{{76}}(?:APIM|ACDb|\+ABa|\+AMC|\+ASt)[A-Za-z0-9+/]{{5}}[AQgw]==)"
            ),
            always,
        ),
        Pattern::matches(
            &["AzCa", "AIoT", "+ASb", "+AEh", "+ARm"],
            &format!(
                r"(?:^|[^A-Za-z0-9+/]|{CODE})([A-Za-z0-9+/]{{33}}(?:AzCa|AIoT|\+ASb|\+AEh|\+ARm)[A-D][A-Za-z0-9+/]{{5}}=)"
            ),
            always,
        ),
        Pattern::matches(
            &["AzSe", "+ACR"],
            &format!(
                r"(?:^|[^A-Za-z0-9+/]|{CODE})([A-Za-z0-9+/]{{42}}(?:AzSe|\+ACR)[A-D][A-Za-z0-9+/]{{5}})(?:[^A-Za-z0-9+/=]|$)"
            ),
            always,
        ),
        Pattern::matches(
            &["account.key."],
            r#"(?i)account\.key\.[a-z0-9.-]+\\*["']?\s*[=:,]\s*\\*["']?([a-z0-9+/=]{40,})"#,
            is_random,
        ),
        // Those without a mark, in the output of its program, in which a primary key is none of a table.
        Pattern::matches(
            &["primarykey", "secondarykey", "key1", "key2"],
            r#"(?i)\b(?:primarykey|secondarykey|key[12])\\*"\s*:\s*\\*"([a-z0-9+/_-]{43}=|[0-9a-f]{32})\\*""#,
            is_random,
        ),
        // Those in settings, also of accounts and hubs, whose name is otherwise one of a table's.
        Pattern::matches(
            &["primary_key", "primary-key", "primarykey"],
            r#"(?i)primary[_-]?key\\*["']?(?:\s*[:=]\s*|\s+)\\*["']?([a-z0-9+/]{43}=|[a-z0-9+/]{86}==)"#,
            is_random,
        ),
        // Those of a storage account, in a list of them.
        Pattern::matches(
            &["keyname"],
            r#"(?i)keyname[\\"']+\s*:\s*[\\"']+key[12][^{}]*?value[\\"']+\s*:\s*[\\"']+([a-z0-9+/=]{40,})"#,
            is_random,
        ),
    ]
}
