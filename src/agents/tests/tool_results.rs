use serde_json::json;

use super::*;

#[test]
fn scores_are_read_from_content_blocks_with_json() {
    let results = json!({"results": [{"path": "Button.tsx", "score": 0.42}, {"file": "file:///b.tsx", "score": "0.3"}]});
    let expected = SearchOutput {
        best_score: Some(0.42),
        count: Some(2),
        hits: vec![hit("Button.tsx", 0.42), hit("/b.tsx", 0.3)],
    };
    for content in [
        json!([{"type": "text", "text": results.to_string()}]),
        json!(results.to_string()),
        json!([{"type": "text", "text": results["results"].to_string()}]),
        json!([
            {"type": "text", "text": results["results"][0].to_string()},
            {"type": "text", "text": results["results"][1].to_string()},
        ]),
    ] {
        assert_eq!(answers(&content, false), (true, Some(expected.clone())), "{content}");
    }
}

#[test]
fn a_search_that_finds_nothing_says_so_in_many_ways() {
    for content in [
        "No files found",
        "No matches found\n\nFound 0 total occurrences across 0 files.",
        "",
        "(Bash completed with no output)",
        "{\"results\": []}",
        "[]",
    ] {
        assert_eq!(answers(&json!(content), false), (true, Some(nothing())), "{content}");
    }
    assert_eq!(
        answers(&json!([{"type": "text", "text": "No results for this"}]), false),
        (true, Some(nothing()))
    );
    // The status of a grep that finds nothing.
    assert_eq!(answers(&json!("Exit code 1"), true), (true, Some(nothing())));
    assert_eq!(answers(&json!("Exit code 2\ngrep: x: No such file"), true), (false, None));
    assert_eq!(answers(&json!("src/a.rs:1:x"), false), (true, None));
    assert_eq!(answers(&json!("{\"name\": \"package\", \"files\": 3}"), false), (true, None));
}

#[test]
fn files_found_are_named_by_the_structured_result() {
    let mut line =
        user(&json!([{"type": "tool_result", "tool_use_id": "t1", "content": "SearchOutput 2 files\na\nb"}]));
    line["toolUseResult"] = json!({"mode": "files_with_matches", "filenames": ["a", "b"], "numFiles": 2});
    let hits = ["a", "b"].map(|path| SearchHit { path: path.to_owned(), score: None }).to_vec();
    let found = Some(SearchOutput { best_score: None, count: Some(2), hits });
    assert_eq!(
        claude(&line).activities,
        [Activity::ToolResult { id: Some("t1".to_owned()), ok: true, output: found }]
    );
    // Where lines are shown, files are not.
    line["toolUseResult"] = json!({"mode": "content", "filenames": [], "numFiles": 0, "content": "a:1: x"});
    assert_eq!(
        claude(&line).activities,
        [Activity::ToolResult { id: Some("t1".to_owned()), ok: true, output: None }]
    );
}

#[test]
fn a_structured_result_belongs_to_no_one_of_several_results() {
    let block = |id| json!({"type": "tool_result", "tool_use_id": id, "content": "src/a.rs:1:x"});
    let mut line = user(&json!([block("t1"), block("t2")]));
    line["toolUseResult"] = json!({"filenames": ["a"]});
    let result = |id: &str| Activity::ToolResult { id: Some(id.to_owned()), ok: true, output: None };
    assert_eq!(claude(&line).activities, [result("t1"), result("t2")]);
}

#[test]
fn what_a_result_has_found_takes_bounded_memory() {
    let found = |length: usize, count: usize| {
        let paths: Vec<_> = (0..count).map(|number| format!("{number:0length$}")).collect();
        answers(&json!(json!({"files": paths}).to_string()), false).1.expect("an output")
    };
    let (long, many, few) = (found(10_000, 100), found(4_000, 100), found(100, 100));
    assert_eq!((long.hits.len(), long.count), (0, Some(100)));
    assert_eq!((many.hits.len(), many.count), (8, Some(100)));
    assert_eq!(few.hits.len(), 100);
}
