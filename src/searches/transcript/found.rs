//! What a search found, read from the tool's answer: a text, content blocks as MCP servers send them, or an object.

use serde_json::Value;

use super::json::{self, Raw};
use super::{Found, Hit};

/// How many results are kept.
const RESULTS: usize = 100;
/// How deep results are looked for.
const DEPTH: usize = 4;
/// An answer longer than this, in bytes, that is no JSON is not one that says that nothing was found.
const SHORT: usize = 500;

/// Members that hold results.
const LISTS: [&str; 9] =
    ["results", "matches", "hits", "items", "documents", "files", "filenames", "data", "structuredContent"];
const SCORES: [&str; 5] = ["score", "similarity", "relevance", "relevance_score", "_score"];
const PATHS: [&str; 6] = ["path", "file_path", "filePath", "file", "filename", "uri"];
const COUNTS: [&str; 4] = ["result_count", "numFiles", "total", "count"];

/// What `answer` says that was found; none if it does not say.
pub(super) fn found(answer: Raw<'_>) -> Option<Found> {
    let written = answer?.get();
    match written.as_bytes().first()? {
        b'"' => {
            let start = written[1..].trim_start().trim_start_matches("\\n");
            let matters = written.len() <= SHORT || start.starts_with(['{', '[']);
            found_in_text(&json::text(answer).filter(|_| matters)?)
        }
        b'[' => {
            let blocks = json::elements(answer)?;
            let texts = blocks.iter().map(|block| {
                #[derive(Default, serde::Deserialize)]
                #[serde(default)]
                struct Block<'a> {
                    #[serde(borrow)]
                    text: Raw<'a>,
                }
                let text = json::member::<Block<'_>>(Some(block))?.text?;
                text.get().starts_with('"').then_some(text)
            });
            let texts: Vec<_> = texts.flatten().collect();
            if texts.is_empty() {
                found_in_json(written)
            } else {
                merge(texts.into_iter().map(|text| found(Some(text))))
            }
        }
        b'{' => found_in_json(written),
        _ => None,
    }
}

/// What a text says that was found.
pub(super) fn found_in_text(text: &str) -> Option<Found> {
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        return found_in_json(text);
    }
    says_nothing_found(text).then(|| Found { count: Some(0), ..Found::default() })
}

/// Whether this is how a tool says that it found nothing.
fn says_nothing_found(text: &str) -> bool {
    const PHRASES: [&str; 7] = [
        "no matches",
        "no files found",
        "no results",
        "found 0 ",
        "0 results",
        "0 matches",
        "(bash completed with no output)",
    ];
    // A shell's grep that finds nothing says so by its status alone.
    const WHOLE: [&str; 3] = ["", "exit code 1", "error: exit code 1"];
    let text = text.get(..text.floor_char_boundary(60)).unwrap_or("").to_ascii_lowercase();
    WHOLE.contains(&text.as_str()) || PHRASES.iter().any(|phrase| text.starts_with(phrase))
}

fn found_in_json(text: &str) -> Option<Found> {
    // Anything may be JSON; most of it has no results.
    if !LISTS.iter().chain(&SCORES).chain(&["stdout"]).any(|word| text.contains(word)) && text.trim() != "[]"
    {
        return None;
    }
    in_value(&serde_json::from_str(text).ok()?, DEPTH)
}

fn in_value(value: &Value, depth: usize) -> Option<Found> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Array(items) => {
            if items.is_empty() {
                return Some(Found { count: Some(0), ..Found::default() });
            }
            let found = merge(items.iter().map(|item| match item {
                Value::String(path) => Some(one(Some(path), None)),
                item => in_item(item),
            }))?;
            Some(Found { count: Some(items.len() as u64), ..found })
        }
        Value::Object(members) => {
            if let Some(Value::String(output)) = members.get("stdout") {
                let silent =
                    members.get("stderr").is_none_or(|errors| errors.as_str().is_none_or(str::is_empty));
                return found_in_text(output).filter(|_| silent);
            }
            let count = COUNTS.iter().find_map(|name| members.get(*name)?.as_u64());
            // Lines that were found stand in a text, and then no names of files beside it.
            let lines =
                members.get("content").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
            let found = LISTS.iter().find_map(|name| in_value(members.get(*name)?, depth));
            let (found, count) =
                (found.filter(|found| !lines || !found.is_empty()), count.filter(|_| !lines));
            match (found, count) {
                (Some(found), Some(count)) => Some(Found { count: Some(count), ..found }),
                (Some(found), None) => Some(found),
                (None, Some(0)) => Some(Found { count: Some(0), ..Found::default() }),
                (None, _) => in_item(value),
            }
        }
        Value::String(text) => found_in_text(text),
        _ => None,
    }
}

/// One result: it has a path or a score.
fn in_item(item: &Value) -> Option<Found> {
    let metadata = item.get("metadata");
    let member =
        |names: &[&str]| names.iter().find_map(|name| item.get(name).or_else(|| metadata?.get(name)));
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let score = member(&SCORES).and_then(number).filter(|score| score.is_finite());
    let path = member(&PATHS).and_then(Value::as_str);
    (path.is_some() || score.is_some()).then(|| one(path, score))
}

fn one(path: Option<&str>, score: Option<f64>) -> Found {
    let path = path.map(|path| path.strip_prefix("file://").unwrap_or(path).to_owned());
    let results = path.map(|path| Hit { path, score }).into_iter().collect();
    Found { best_score: score, count: Some(1), results }
}

/// Several answers as one; none if none says anything.
fn merge(parts: impl IntoIterator<Item = Option<Found>>) -> Option<Found> {
    parts.into_iter().flatten().reduce(|mut all, part| {
        all.best_score = match (all.best_score, part.best_score) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        all.count = all.count.zip(part.count).map(|(one, other)| one.saturating_add(other));
        let room = RESULTS.saturating_sub(all.results.len());
        all.results.extend(part.results.into_iter().take(room));
        all
    })
}
