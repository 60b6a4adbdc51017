//! Whole answers, compared with files under `snapshots` beside the test.
//!
//! An answer that differs from its file, or has none, fails its test. After a change that is meant,
//! `INSTA_UPDATE=always cargo test NAME` writes the files anew; what has changed in them is read before it is committed.

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::Service;

/// Asserts that a JSON answer, with its ids and times scrubbed, is the one in the file of this name.
macro_rules! assert_whole {
    ($name:expr, $answer:expr) => {
        let answer = $crate::support::scrub(&$answer);
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_json_snapshot!($name, answer);
        });
    };
}

/// Asserts that a text is the one in the file of this name, byte for byte.
macro_rules! assert_text {
    ($name:expr, $text:expr) => {
        let text: String = $text;
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!($name, text);
        });
    };
}

pub(crate) use {assert_text, assert_whole};

/// The same JSON without what differs from run to run: ids that the service made are replaced by `id-1`, `id-2` in the
/// order they appear, and times of the last hour by `time`. Ids and times that a test chose stay.
pub(crate) fn scrub(value: &Value) -> Value {
    fn walk(value: &Value, ids: &mut Vec<String>) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| walk(item, ids)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, member)| (name.clone(), walk(member, ids))).collect()
            }
            Value::String(text) if is_made_id(text) => {
                let place = ids.iter().position(|id| id == text).unwrap_or_else(|| {
                    ids.push(text.clone());
                    ids.len() - 1
                });
                format!("id-{}", place + 1).into()
            }
            Value::String(text) if is_recent(text) => "time".into(),
            other => other.clone(),
        }
    }
    walk(value, &mut Vec::new())
}

/// Whether a text is a UUID that was drawn or derived: those that tests make of small numbers begin with zeros.
fn is_made_id(text: &str) -> bool {
    Uuid::parse_str(text).is_ok_and(|id| id.as_u64_pair().0 != 0)
}

fn is_recent(text: &str) -> bool {
    let age = DateTime::parse_from_rfc3339(text).map(|time| Utc::now() - time.to_utc());
    age.is_ok_and(|age| age.abs() < TimeDelta::hours(1))
}

/// What a data set answers to each of these query strings, below the request and the media type.
///
/// Snapshots ignore blank space at their end; so each body is asserted to be empty or to end with one line feed.
pub(crate) async fn bodies(service: &Service, path: &str, queries: &[&str]) -> String {
    let mut shown = String::new();
    for query in queries {
        let answer = service.get(&format!("{path}?{query}")).await;
        let body = answer.text();
        assert_eq!(answer.status, 200, "{query}: {body}");
        assert!(body.is_empty() || body.ends_with('\n') && !body.ends_with("\n\n"), "{query}: {body:?}");
        let media_type = answer.header("content-type").expect("a media type");
        let _ = write!(shown, "GET {path}?{query}\n{media_type}\n\n{body}\n");
    }
    shown
}
