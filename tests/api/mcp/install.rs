//! `gleaner mcp install`: the settings of agents.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::server::{folder, gleaner, run};

fn mcp(folder: &TempDir, arguments: &[&str]) -> String {
    let mut command = gleaner(folder);
    command.env_remove("GLEANER_BIND").arg("mcp").args(arguments).current_dir(folder.path());
    String::from_utf8(run(&mut command, 0).stdout).expect("text")
}

#[test]
fn claude_code_gets_the_tools_until_they_are_uninstalled() {
    let folder = folder();
    let file = folder.path().join(".claude.json");
    let own = "{\n  \"numStartups\": 3,\n  \"mcpServers\": {}\n}\n";
    fs::write(&file, own).expect("writes");
    let said = mcp(&folder, &["install", "claude-code"]);
    assert!(said.starts_with(&format!("{}:\n  gleaner: added\n", file.display())), "{said}");
    assert!(
        said.contains("have the tools of http://127.0.0.1:8080") && said.contains("GLEANER_KEY"),
        "{said}"
    );
    let settings: Value = serde_json::from_str(&fs::read_to_string(&file).expect("reads")).expect("JSON");
    let server = &settings["mcpServers"]["gleaner"];
    assert_eq!(server["command"], env!("CARGO_BIN_EXE_gleaner"));
    assert_eq!(server["args"], serde_json::json!(["mcp", "--url", "http://127.0.0.1:8080"]));
    assert!(mcp(&folder, &["install", "claude-code"]).contains("nothing to change"));
    assert!(
        mcp(&folder, &["install", "claude-code", "--url", "https://gleaner.example/"])
            .contains("gleaner: replaced")
    );
    assert!(fs::read_to_string(&file).expect("reads").contains("\"https://gleaner.example\""));
    assert!(mcp(&folder, &["uninstall", "claude-code"]).contains("gleaner: removed"));
    assert_eq!(fs::read_to_string(&file).expect("reads"), own);
    assert!(mcp(&folder, &["uninstall", "claude-code"]).contains("nothing to change"));
}

#[test]
fn codex_and_a_single_project_have_files_of_their_own() {
    let folder = folder();
    fs::create_dir(folder.path().join(".codex")).expect("a folder");
    let file = folder.path().join(".codex/config.toml");
    let own = "# Mine.\nmodel = \"large\"\n";
    fs::write(&file, own).expect("writes");
    mcp(&folder, &["install", "codex"]);
    let text = fs::read_to_string(&file).expect("reads");
    let expected = "\n[mcp_servers.gleaner]\ncommand = ";
    assert!(
        text.starts_with(own) && text.contains(expected) && text.contains("env_vars = [\"GLEANER_KEY\"]"),
        "{text}"
    );
    mcp(&folder, &["uninstall", "codex"]);
    assert_eq!(fs::read_to_string(&file).expect("reads"), own);

    assert!(mcp(&folder, &["install", "claude-code", "--here"]).starts_with(".mcp.json:\n"));
    assert!(folder.path().join(".mcp.json").exists());
    assert!(mcp(&folder, &["uninstall", "claude-code", "--here"]).contains("was removed"));
    assert!(!folder.path().join(".mcp.json").exists() && !folder.path().join(".claude.json").exists());
}

#[test]
fn settings_that_cannot_be_understood_are_left_as_they_are() {
    let folder = folder();
    let file = folder.path().join(".claude.json");
    for text in ["{", "{\"mcpServers\": []}"] {
        fs::write(&file, text).expect("writes");
        let output = run(gleaner(&folder).args(["mcp", "install", "claude-code"]), 1);
        let complaint = String::from_utf8(output.stderr).expect("text");
        assert!(complaint.contains("was left as it is"), "{complaint}");
        assert_eq!(fs::read_to_string(&file).expect("reads"), text);
    }
}
