//! `gleaner mcp`: the tools on standard input and output.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::server::{Server, folder, gleaner, run};

/// A client that has started the program.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    id: u64,
}

impl Client {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut client = Self { child, input, output, id: 0 };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        assert_eq!(client.ask("initialize", &hello)["serverInfo"]["name"], "gleaner");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn say(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{message}").and_then(|()| input.flush()).expect("it reads");
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}));
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(answer["id"], self.id, "{answer}");
        answer["result"].clone()
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Ends the input, and waits for the program to end.
    fn end(mut self) {
        self.input = None;
        assert_eq!(self.child.wait().expect("ends").code(), Some(0));
    }
}

fn mcp(folder: &TempDir) -> Command {
    let mut command = gleaner(folder);
    command
        .arg("mcp")
        .current_dir(folder.path())
        .env_remove("CLAUDE_CODE_SESSION_ID")
        .env_remove("CLAUDE_PROJECT_DIR");
    command
}

#[test]
fn the_tools_work_on_the_database_of_this_machine_and_know_the_session_from_the_environment() {
    let folder = folder();
    run(gleaner(&folder).arg("migrate"), 0);
    // Whoever can open the database needs no key.
    run(gleaner(&folder).args(["keys", "create", "--scope", "operator"]), 0);
    let mut client = Client::start(
        mcp(&folder).env("CLAUDE_CODE_SESSION_ID", "claude-1").env("CLAUDE_PROJECT_DIR", "/src/app"),
    );
    assert_eq!(client.ask("tools/list", &json!({}))["tools"].as_array().map(Vec::len), Some(8));
    let stored = client.call("store_memory", &json!({"content": "The staging database is on port 5433."}));
    let memory = &stored["structuredContent"];
    assert_eq!(
        (&memory["session_id"], &memory["root"]),
        (&json!("claude-1"), &json!("/src/app")),
        "{stored}"
    );
    client.end();

    let mut client = Client::start(&mut mcp(&folder));
    let found = client.call("search_memories", &json!({"query": "port of the staging database"}));
    assert_eq!(found["structuredContent"]["data"][0]["memory_id"], memory["id"], "{found}");
    let stored = client.call("store_memory", &json!({"content": "x"}));
    let here = folder.path().canonicalize().expect("a folder");
    assert_eq!(stored["structuredContent"]["root"], here.to_str().expect("text"), "{stored}");
    assert_eq!(stored["structuredContent"]["session_id"], Value::Null);
    client.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tools_work_by_way_of_a_server_with_its_key() {
    let folder = folder();
    let server = Server::start(&folder);
    let elsewhere = crate::support::server::folder();
    let url = format!("http://{}", server.address);
    let mut client = Client::start(mcp(&elsewhere).args(["--url", &url]));
    let stored = client.call("store_memory", &json!({"content": "Deploys happen on Tuesdays."}));
    let id = stored["structuredContent"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(server.get(&format!("/v1/memories/{id}")).await.0, 200);
    let refused = client.call("store_memory", &json!({"content": "x", "importance": 7}));
    assert_eq!((&refused["isError"], &refused["structuredContent"]["status"]), (&json!(true), &json!(422)));
    drop(server);
    let gone = client.call("learner_stats", &json!({}));
    assert_eq!(gone["isError"], true, "{gone}");
    assert!(
        gone["content"][0]["text"].as_str().is_some_and(|text| text.contains("does not answer")),
        "{gone}"
    );
    client.end();
}

#[test]
fn without_a_server_or_a_database_the_program_says_where_it_looked() {
    let folder = folder();
    let output = run(&mut mcp(&folder), 1);
    let complaint = String::from_utf8(output.stderr).expect("text");
    assert!(complaint.contains("no server answers") && output.stdout.is_empty(), "{complaint}");
}
