//! `gleaner hook`: the settings of agents, and what they report.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::assert_whole;
use crate::support::server::{Server, folder, gleaner, run};

fn hook(folder: &TempDir, arguments: &[&str]) -> String {
    let mut command = gleaner(folder);
    let output =
        run(command.env_remove("GLEANER_BIND").arg("hook").args(arguments).current_dir(folder.path()), 0);
    String::from_utf8(output.stdout).expect("text")
}

fn settings(folder: &TempDir, file: &str) -> Value {
    let text = fs::read_to_string(folder.path().join(file)).expect(file);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn claude_code_posts_its_hooks_until_they_are_uninstalled() {
    let folder = folder();
    fs::create_dir(folder.path().join(".claude")).expect("a folder");
    let own =
        json!({"model": "large", "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]}});
    let file = folder.path().join(".claude/settings.json");
    fs::write(&file, own.to_string()).expect("writes");

    let said = hook(&folder, &["install", "claude-code"]);
    assert!(said.starts_with(&format!("{}:\n", file.display())), "{said}");
    assert_whole!("settings_of_claude_code", settings(&folder, ".claude/settings.json"));

    let written = fs::read(&file).expect("reads");
    assert!(hook(&folder, &["install", "claude-code"]).contains("nothing to change"));
    assert_eq!(fs::read(&file).expect("reads"), written);

    hook(&folder, &["install", "claude-code", "--url", "https://gleaner.example/"]);
    let text = fs::read_to_string(&file).expect("reads");
    assert_eq!(text.matches("https://gleaner.example/v1/hooks/claude-code").count(), 7);
    assert!(!text.contains("127.0.0.1"), "{text}");

    hook(&folder, &["uninstall", "claude-code"]);
    assert_eq!(fs::read_to_string(&file).expect("reads"), own.to_string());
    assert!(hook(&folder, &["uninstall", "claude-code"]).contains("nothing to change"));
    assert!(hook(&folder, &["uninstall", "codex"]).contains("nothing to change"));
    assert!(!folder.path().join(".codex").exists());
}

#[test]
fn hooks_request_help_only_for_events_whose_responses_the_agent_passes_on() {
    let folder = folder();
    let said = hook(&folder, &["install", "claude-code", "--suggest"]);
    assert!(said.contains("they receive what is likely to help"), "{said}");
    let text = fs::read_to_string(folder.path().join(".claude/settings.json")).expect("settings");
    assert_eq!(text.matches("/v1/hooks/claude-code?suggest=memories,files,examples\"").count(), 3, "{text}");
    assert_eq!(text.matches("/v1/hooks/claude-code\"").count(), 4, "{text}");
    hook(&folder, &["install", "claude-code"]);
    let text = fs::read_to_string(folder.path().join(".claude/settings.json")).expect("settings");
    assert_eq!(
        (text.matches("suggest=").count(), text.matches("/v1/hooks/claude-code\"").count()),
        (0, 7),
        "{text}"
    );
    assert!(hook(&folder, &["uninstall", "claude-code"]).contains("was removed"));
    hook(&folder, &["install", "codex", "--suggest"]);
    let text = fs::read_to_string(folder.path().join(".codex/hooks.json")).expect("settings");
    assert_eq!(
        (text.matches(" --suggest\"").count(), text.matches("hook send codex").count()),
        (2, 5),
        "{text}"
    );
    assert!(hook(&folder, &["uninstall", "codex"]).contains("was removed"));
}

#[test]
fn a_key_is_left_for_the_agent_to_fill_in() {
    let folder = folder();
    let mut install = gleaner(&folder);
    run(install.args(["hook", "install", "claude-code"]).env("GLEANER_KEY", "secret"), 0);
    let text = fs::read_to_string(folder.path().join(".claude/settings.json")).expect("settings");
    assert!(text.contains("Bearer $GLEANER_KEY") && !text.contains("secret"), "{text}");
}

#[test]
fn a_key_that_the_agent_fills_in_stays_when_hooks_are_installed_without_one() {
    let folder = folder();
    let install = |url: &str, key: &str| {
        let mut install = gleaner(&folder);
        let output =
            run(install.args(["hook", "install", "claude-code", "--url", url]).env("GLEANER_KEY", key), 0);
        let said = String::from_utf8(output.stdout).expect("text");
        let text = fs::read_to_string(folder.path().join(".claude/settings.json")).expect("settings");
        (
            text.matches("Bearer $GLEANER_KEY").count(),
            text.matches(url).count(),
            said.contains("keep the Authorization header"),
        )
    };
    assert_eq!(install("http://a.example", "secret"), (7, 7, false));
    assert_eq!(install("http://b.example", ""), (7, 7, true));
    assert!(hook(&folder, &["uninstall", "claude-code"]).contains("was removed"));
    assert!(!folder.path().join(".claude/settings.json").exists());
    assert_eq!(install("http://b.example", ""), (0, 7, false));
}

#[test]
fn who_has_comments_in_their_settings_is_told_that_the_agent_reads_none_of_them() {
    let folder = folder();
    fs::create_dir(folder.path().join(".claude")).expect("a folder");
    let file = folder.path().join(".claude/settings.json");
    for (settings, warned) in
        [("{\n  // Mine.\n  \"a\": 1\n}\n", true), ("{\"a\": [1,],}", true), ("{\"a\": 1}", false)]
    {
        fs::write(&file, settings).expect("writes");
        let output = run(gleaner(&folder).args(["hook", "install", "claude-code"]), 0);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(said.contains("passes over the whole file"), warned, "{settings}: {said}");
        hook(&folder, &["uninstall", "claude-code"]);
        assert_eq!(fs::read_to_string(&file).expect("reads"), settings);
    }
}

#[test]
fn codex_gets_a_timeout_that_it_allows_and_its_user_learns_how_to_trust_the_hooks() {
    let folder = folder();
    let said = hook(&folder, &["install", "codex"]);
    for words in ["trusted", "codex exec", "--dangerously-bypass-hook-trust"] {
        assert!(said.contains(words), "{said}");
    }
    assert_whole!("settings_of_codex", {
        let text = settings(&folder, ".codex/hooks.json").to_string();
        let command = format!("{} hook send codex", env!("CARGO_BIN_EXE_gleaner"));
        serde_json::from_str::<Value>(&text.replace(&command, "gleaner hook send codex")).expect("JSON")
    });
}

#[test]
fn a_server_that_never_answers_costs_an_agent_less_than_a_second() {
    let folder = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut send = gleaner(&folder);
    let begun = Instant::now();
    let output = run(send.args(["hook", "send", "codex", "--url", &url]).stdin(Stdio::null()), 0);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(output.stdout, b"{}\n");
}

#[test]
fn settings_that_cannot_be_read_are_left_as_they_are() {
    let folder = folder();
    let file = folder.path().join("hooks.json");
    fs::write(&file, "{\"hooks\": ").expect("writes");
    let mut install = gleaner(&folder);
    let output = run(install.args(["hook", "install", "codex"]).env("CODEX_HOME", folder.path()), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("hooks.json was left as it is: it is not JSON"), "{said}");
    assert_eq!(fs::read_to_string(&file).expect("reads"), "{\"hooks\": ");
}

/// Runs the command of a hook as Codex does, with the payload on standard input.
fn report(command: &str, payload: &Value) {
    let mut shell = std::process::Command::new("sh");
    let shell =
        shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = shell.spawn().expect("a shell");
    child.stdin.take().expect("piped").write_all(payload.to_string().as_bytes()).expect("takes input");
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"{}\n".as_slice()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_codex_reports_by_the_installed_command_is_learned_from() {
    let folder = folder();
    let server = Server::start(&folder);
    hook(&folder, &["install", "codex", "--here", "--url", &format!("http://{}", server.address)]);
    let hooks = settings(&folder, ".codex/hooks.json");
    let command =
        hooks["hooks"]["PostToolUse"][0]["hooks"][0]["command"].as_str().expect("a command").to_owned();
    let event = |name: &str, more: &Value| {
        let mut event =
            json!({"hook_event_name": name, "session_id": "s", "turn_id": "t", "cwd": "/srv/app"});
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        report(&command, &event);
    };
    let used = |id: &str, command: &str, response: &str| {
        let input = json!({"command": command});
        event(
            "PostToolUse",
            &json!({"tool_name": "Bash", "tool_input": input, "tool_use_id": id, "tool_response": response}),
        );
    };
    event("UserPromptSubmit", &json!({"prompt": "where is the needle?"}));
    used("a", "rg needle", "");
    used("b", "sed -n 1,50p src/hay.rs", "fn pin() {}");
    event("Stop", &json!({}));
    let (_, found) = server.get("/v1/associations?query=needle").await;
    let paths: Vec<_> =
        found["data"].as_array().expect("associations").iter().map(|row| &row["path"]).collect();
    assert_eq!(paths, ["src/hay.rs"], "{found}");

    // Nobody is there to report to: the agent does not notice.
    drop(server);
    event("Stop", &json!({}));
}

#[test]
fn what_is_no_plain_file_is_not_waited_for_nor_broken() {
    let folder = folder();
    let home = folder.path().join(".claude");
    fs::create_dir(&home).expect("a folder");
    let file = home.join("settings.json");
    let install = |status| {
        let output = run(gleaner(&folder).args(["hook", "install", "claude-code"]), status);
        String::from_utf8(output.stderr).expect("text")
    };

    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    assert!(install(1).contains("it is not a regular file"));
    fs::remove_file(&file).expect("removes");

    // A link that leads to nothing yet stays a link.
    std::os::unix::fs::symlink("dotfiles.json", &file).expect("a link");
    install(0);
    assert!(fs::symlink_metadata(&file).expect("a link").is_symlink());
    assert!(fs::read_to_string(home.join("dotfiles.json")).expect("settings").contains("PostToolUse"));
    fs::remove_file(&file).expect("removes");
    fs::write(home.join("dotfiles.json"), "{\"model\": \"large\"}\n").expect("writes");

    // Both names of a file stay its names.
    fs::hard_link(home.join("dotfiles.json"), &file).expect("a link");
    install(0);
    let read = |name: &str| fs::read_to_string(home.join(name)).expect("settings");
    assert_eq!(read("settings.json"), read("dotfiles.json"));
    assert!(read("settings.json").contains("PostToolUse"));
    fs::remove_file(&file).expect("removes");

    if nix::unistd::geteuid().is_root() {
        fs::write(&file, "{}\n").expect("writes");
        std::os::unix::fs::chown(&file, Some(1234), Some(1235)).expect("root may");
        install(0);
        let metadata = fs::metadata(&file).expect("settings");
        let owner =
            (std::os::unix::fs::MetadataExt::uid(&metadata), std::os::unix::fs::MetadataExt::gid(&metadata));
        assert_eq!(owner, (1234, 1235));
    }
}
