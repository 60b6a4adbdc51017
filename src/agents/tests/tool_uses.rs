use serde_json::json;

use super::*;

#[test]
fn tools_search_read_and_edit() {
    let search = |tool, query: &str, path: Option<&str>| {
        vec![ToolAction::Search { tool, query: query.to_owned(), path: path.map(str::to_owned) }]
    };
    let path = "/a/b.rs".to_owned();
    let query = json!({"query": "login button", "top_k": 5});
    for (name, input, expected) in [
        ("Read", json!({"file_path": "/a/b.rs", "offset": 3}), vec![ToolAction::Read { path: path.clone() }]),
        (
            "Edit",
            json!({"file_path": "/a/b.rs", "old_string": ""}),
            vec![ToolAction::Edit { path: path.clone() }],
        ),
        (
            "Write",
            json!({"content": "x", "file_path": "/a/b.rs"}),
            vec![ToolAction::Edit { path: path.clone() }],
        ),
        ("NotebookEdit", json!({"notebook_path": "/a/b.rs"}), vec![ToolAction::Edit { path: path.clone() }]),
        (
            "Grep",
            json!({"pattern": "log.*in", "path": "/a"}),
            search(SearchTool::Grep, "log.*in", Some("/a")),
        ),
        ("Glob", json!({"pattern": "**/*.tsx"}), search(SearchTool::Glob, "**/*.tsx", None)),
        ("mcp__ultrasync__jit_search", query.clone(), search(SearchTool::Index, "login button", None)),
        ("mcp__code__semantic_search", query, search(SearchTool::Index, "login button", None)),
        ("Bash", json!({"command": "cat /a/b.rs", "timeout": 5}), vec![ToolAction::Read { path }]),
        ("WebFetch", json!({"url": "x"}), vec![]),
        ("Read", json!({"file_path": 3}), vec![]),
        ("Grep", json!({"pattern": " "}), vec![]),
        ("Bash", json!("cat a"), vec![]),
    ] {
        assert_eq!(does(name, &input), expected, "{name} {input}");
    }
}

#[test]
fn what_an_agent_adds_to_its_index_is_told_by_the_tool() {
    let indexed = || vec![ToolAction::Index { path: "/a/b.rs".to_owned() }];
    let add = json!({"name": "login", "source_code": "fn login() {}", "file_path": "/a/b.rs"});
    for (name, input, expected) in [
        ("mcp__ultrasync__jit_index_file", json!({"path": "/a/b.rs"}), indexed()),
        ("mcp__code__jit_add_symbol", add, indexed()),
        ("mcp__code__jit_add_symbol", json!({"name": "login", "source_code": ""}), vec![]),
        ("jit_index_file", json!({"path": "/a/b.rs"}), vec![]),
    ] {
        assert_eq!(does(name, &input), expected, "{name} {input}");
    }
}

#[test]
fn a_pattern_fits_with_any_characters_for_its_stars() {
    for (pattern, name, expected) in [
        ("Grep", "Grep", true),
        ("Grep", "Greps", false),
        ("mcp__*search*", "mcp__index__search_files", true),
        ("mcp__*search*", "mcp__index__research", true),
        ("mcp__*search*", "mcp__index__find", false),
        ("mcp__*search*", "mcp__gleaner__search_memories", false),
        ("*_search", "code_search", true),
        ("*_search", "code_search_all", false),
        ("a*b*b", "ab", false),
        ("a*b*b", "abb", true),
        ("*", "", true),
    ] {
        let patterns = ToolPatterns::new([pattern]);
        assert_eq!(patterns.matches(name), expected, "{pattern} {name}");
    }
    let all_but_web = ToolPatterns::new(["!*web*", "*search*"]);
    assert!(all_but_web.matches("search_files") && !all_but_web.matches("WebSearch"));
}

#[test]
fn a_server_s_search_for_something_else_than_files_is_no_search_unless_a_setting_says_so() {
    let default = ToolPatterns::default();
    for name in ["mcp__ultrasync__jit_search", "mcp__code__search", "mcp__webstorm__search_in_files_by_text"]
    {
        assert!(default.matches(name), "{name}");
    }
    for name in [
        "mcp__github__search_issues",
        "mcp__github__search_pull_requests",
        "mcp__atlassian__searchJiraIssuesUsingJql",
        "mcp__context7__search-docs",
        "mcp__brave-search__local_search",
        "mcp__exa__web_search_exa",
    ] {
        assert!(!default.matches(name), "{name}");
        assert!(ToolPatterns::new([name]).matches(name), "{name}");
    }
}

#[test]
fn a_path_is_joined_to_no_folder_that_is_longer_than_any() {
    let read = |cwd: String| {
        let mut line = assistant(
            &json!([{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}]),
        );
        line["cwd"] = json!(cwd);
        size_of_actions(&claude(&line))
    };
    assert!(read(format!("/{}", "x".repeat(4_000))) > 4_000);
    assert!(read(format!("/{}", "x".repeat(5_000))) < 200);
}
