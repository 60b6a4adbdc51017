//! The results of a search in a tool's output: a text, content blocks as MCP servers send them, or an object.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::{MOST_PATH, OVERHEAD, Room};
use super::json::{self, Raw};
use crate::types::value;

/// The maximum number of results that are kept.
const RESULTS: usize = 100;
/// The maximum depth at which results are found, in texts that are JSON, too.
const DEPTH: usize = 4;
/// The maximum number of bytes of JSON that are parsed. Parsed, it takes some thirty times as much memory.
const MOST_JSON: usize = 1 << 20;
/// The maximum number of bytes of an output that is not JSON and says that nothing was found.
const SHORT: usize = 500;

/// The members that contain results.
const LISTS: [&str; 9] =
    ["results", "matches", "hits", "items", "documents", "files", "filenames", "data", "structuredContent"];
const SCORES: [&str; 5] = ["score", "similarity", "relevance", "relevance_score", "_score"];
const PATHS: [&str; 6] = ["path", "file_path", "filePath", "file", "filename", "uri"];
const COUNTS: [&str; 4] = ["result_count", "numFiles", "total", "count"];

/// The results of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchOutput {
    /// The best score, if results have scores.
    pub best_score: Option<f64>,
    /// The number of results, if the output contains it.
    pub count: Option<u64>,
    /// The results that name a file.
    pub hits: Vec<SearchHit>,
}

impl SearchOutput {
    /// Returns whether the search found nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == Some(0)
    }

    /// Keeps the first hits for which there is room, without those whose path is longer than any.
    pub(super) fn bounded(mut self) -> Self {
        let mut room = Room::of_stored();
        self.hits.retain(|hit| hit.path.len() <= MOST_PATH && room.take(OVERHEAD + hit.path.len()));
        self
    }

    fn nothing() -> Self {
        Self { count: Some(0), ..Self::default() }
    }
}

/// A file in the results of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchHit {
    /// The path as the search wrote it.
    pub path: String,
    /// The score of the file, if the output contains it.
    pub score: Option<f64>,
}

/// Reads the results from a tool's output. Returns none if the output does not contain them.
pub(super) fn read(answer: Raw<'_>) -> Option<SearchOutput> {
    let written = answer?.get();
    match written.as_bytes().first()? {
        b'"' => {
            let start = written[1..].trim_start().trim_start_matches("\\n");
            let matters = written.len() <= SHORT || start.starts_with(['{', '[']);
            read_text(&json::text(answer).filter(|_| matters)?)
        }
        b'[' => {
            let blocks = json::elements(answer)?;
            let texts = blocks.iter().map(|block| {
                #[derive(Default, Deserialize)]
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
                read_json(written, DEPTH)
            } else {
                merge(texts.into_iter().map(|text| read(Some(text))))
            }
        }
        b'{' => read_json(written, DEPTH),
        _ => None,
    }
}

/// Reads the results from a text. Returns none if the text does not contain them.
pub(super) fn read_text(text: &str) -> Option<SearchOutput> {
    read_text_at(text, DEPTH)
}

fn read_text_at(text: &str, depth: usize) -> Option<SearchOutput> {
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        return read_json(text, depth);
    }
    says_nothing_found(text).then(SearchOutput::nothing)
}

/// Returns whether a text says that nothing was found.
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
    // A shell's grep that finds nothing reports it only by its status.
    const WHOLE: [&str; 3] = ["", "exit code 1", "error: exit code 1"];
    let text = text.get(..text.floor_char_boundary(60)).unwrap_or("").to_ascii_lowercase();
    WHOLE.contains(&text.as_str()) || PHRASES.iter().any(|phrase| text.starts_with(phrase))
}

fn read_json(text: &str, depth: usize) -> Option<SearchOutput> {
    if text.len() > MOST_JSON || depth == 0 {
        return None;
    }
    // Any text may be JSON, and most JSON has no results.
    if !LISTS.iter().chain(&SCORES).chain(&["stdout"]).any(|word| text.contains(word)) && text.trim() != "[]"
    {
        return None;
    }
    in_value(&value::parse_inner(text).ok()?, depth)
}

fn in_value(value: &Value, depth: usize) -> Option<SearchOutput> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Array(items) => {
            if items.is_empty() {
                return Some(SearchOutput::nothing());
            }
            let found = merge(items.iter().map(|item| match item {
                Value::String(path) => Some(one(Some(path), None)),
                item => in_item(item),
            }))?;
            Some(SearchOutput { count: Some(items.len() as u64), ..found })
        }
        Value::Object(members) => {
            if let Some(Value::String(output)) = members.get("stdout") {
                let silent =
                    members.get("stderr").is_none_or(|errors| errors.as_str().is_none_or(str::is_empty));
                return read_text_at(output, depth).filter(|_| silent);
            }
            let count = COUNTS.iter().find_map(|name| members.get(*name)?.as_u64());
            // If the lines that were found are in a text, there are no names of files beside it.
            let lines =
                members.get("content").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
            let found = LISTS.iter().find_map(|name| in_value(members.get(*name)?, depth));
            let (found, count) =
                (found.filter(|found| !lines || !found.is_empty()), count.filter(|_| !lines));
            match (found, count) {
                (Some(found), Some(count)) => Some(SearchOutput { count: Some(count), ..found }),
                (Some(found), None) => Some(found),
                (None, Some(0)) => Some(SearchOutput::nothing()),
                (None, _) => in_item(value),
            }
        }
        Value::String(text) => read_text_at(text, depth),
        _ => None,
    }
}

/// Reads one result, which has a path or a score.
fn in_item(item: &Value) -> Option<SearchOutput> {
    let metadata = item.get("metadata");
    let member =
        |names: &[&str]| names.iter().find_map(|name| item.get(name).or_else(|| metadata?.get(name)));
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let score = member(&SCORES).and_then(number).filter(|score| score.is_finite());
    let path = member(&PATHS).and_then(Value::as_str);
    (path.is_some() || score.is_some()).then(|| one(path, score))
}

fn one(path: Option<&str>, score: Option<f64>) -> SearchOutput {
    let path = path.map(|path| json::storable(path.strip_prefix("file://").unwrap_or(path).to_owned()));
    let hits = path.map(|path| SearchHit { path, score }).into_iter().collect();
    SearchOutput { best_score: score, count: Some(1), hits }
}

/// Merges several outputs. Returns none if none of them contains results.
fn merge(parts: impl IntoIterator<Item = Option<SearchOutput>>) -> Option<SearchOutput> {
    parts.into_iter().flatten().reduce(|mut all, part| {
        all.best_score = match (all.best_score, part.best_score) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        all.count = all.count.zip(part.count).map(|(one, other)| one.saturating_add(other));
        let room = RESULTS.saturating_sub(all.hits.len());
        all.hits.extend(part.hits.into_iter().take(room));
        all
    })
}
