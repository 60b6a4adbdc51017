//! The program's commands, each run as a process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::eventually;
use crate::support::server::{Server, folder, gleaner, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_server_closes_when_the_command_line_makes_a_key_beside_it() {
    let folder = folder();
    let server = Server::start(&folder);
    assert_eq!(server.get("/v1/generations").await.0, StatusCode::OK);
    let made = run(gleaner(&folder).args(["keys", "create", "--name", "first", "--scope", "operator"]), 0);
    let key = String::from_utf8(made.stdout).expect("text");
    eventually("the server is closed", async || {
        let (status, _) = server.get("/v1/generations").await;
        status == StatusCode::UNAUTHORIZED
    })
    .await;
    let listed = run(gleaner(&folder).args(["keys", "list"]), 0);
    let listed = String::from_utf8(listed.stdout).expect("text");
    assert!(listed.contains("first  operator") && listed.contains("active"), "{listed}");
    assert!(!listed.contains(key.trim()), "the secret is shown once");
    let id = listed.split_whitespace().next().expect("an id");
    run(gleaner(&folder).args(["keys", "revoke", id]), 0);
    let listed = run(gleaner(&folder).args(["keys", "list"]), 0);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("revoked"));
}

/// The number of connections to the database that a server has for each of these purposes.
fn connections(server: &Server, pools: [&str; 2]) -> [usize; 2] {
    let mut metrics = String::new();
    let mut connection = TcpStream::connect(&server.address).expect("a connection");
    connection.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n").expect("sends");
    connection.read_to_string(&mut metrics).expect("a response");
    pools.map(|pool| {
        let name = format!("gleaner_db_connections{{pool=\"{pool}\",state=\"open\"}} ");
        let open = metrics.lines().find_map(|line| line.strip_prefix(&name));
        open.expect(&metrics).parse().expect("a number")
    })
}

#[test]
fn a_server_has_its_connections_to_the_database_before_it_serves() {
    let folder = folder();
    let server = Server::start(&folder);
    assert_eq!(connections(&server, ["reading", "searches"]), [24, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_have_more_connections_than_postgres_leaves_some_to_exports() {
    let folder = folder();
    let server = Server::start_with(&folder, &[("GLEANER_DB_CONNECTIONS", "100")]);
    let [reading, _] = connections(&server, ["reading", "searches"]);
    assert!(reading < 50, "{reading}");
    let log = json!({"user_intent": "a", "domain_name": "d"});
    assert_eq!(server.post("/v1/generations", &log).await.0, StatusCode::CREATED);
    assert_eq!(server.get("/v1/exports/training-pairs").await.0, StatusCode::OK);
}

fn lines(folder: &TempDir, name: &str, lines: &[Value]) -> PathBuf {
    let place = folder.path().join(name);
    let text = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    std::fs::write(&place, text).expect("writes");
    place
}

#[test]
fn what_is_imported_is_exported_and_importing_it_again_changes_nothing() {
    let folder = folder();
    let log = |n: i32| {
        json!({"event": "generation", "user_intent": format!("intent {n}"), "domain_name": "cbu", "success": true,
            "final_valid_dsl": format!("(program {n})")})
    };
    // Two lines that are the same are two logs, on every run the same two.
    let plain = lines(&folder, "plain.jsonl", &[log(1), log(2), log(2)]);
    let zipped = folder.path().join("zipped.jsonl.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(format!("{}\n\n", log(3)).as_bytes()).expect("packs");
    std::fs::write(&zipped, encoder.finish().expect("packs")).expect("writes");
    let summary = |accepted: i32, duplicates: i32| {
        let output = run(gleaner(&folder).arg("import").arg(&plain).arg(&zipped), 0);
        let expected = format!("accepted {accepted}, duplicates {duplicates}, rejected 0\n");
        assert_eq!(String::from_utf8(output.stdout).expect("text"), expected);
    };
    summary(4, 0);
    summary(0, 4);

    let exported = run(gleaner(&folder).args(["export", "training-pairs", "--format", "raw"]), 0);
    let row = |n: i32| format!("{{\"user_intent\":\"intent {n}\",\"valid_dsl\":\"(program {n})\"}}\n");
    let expected = [row(1), row(2), row(2), row(3)].concat();
    assert_eq!(String::from_utf8(exported.stdout).expect("text"), expected);

    let place = folder.path().join("out.jsonl.gz");
    let dedupe = ["export", "training-pairs", "--format", "raw", "--dedupe", "exact", "--output"];
    run(gleaner(&folder).args(dedupe).arg(&place), 0);
    let mut text = String::new();
    let file = std::fs::File::open(&place).expect("the file is there");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("unpacks");
    assert_eq!(text, [row(1), row(2), row(3)].concat());
    assert!(!Path::new(&format!("{}.part", place.display())).exists());
}

#[test]
fn history_files_are_imported_from_standard_input_and_come_back() {
    let folder = folder();
    let line = |ts: f64, input: &str| {
        json!({"ts": ts, "session": "s", "server": "local", "trigger_block": 1, "result_block": 2, "context": {"a": 1},
            "llm_request": null, "llm_response": null, "suggestions": ["x"], "suggestion_node_version": null,
            "viewed_indices": [0], "cycle_count": 0, "displayed_index_at_submit": 0, "accepted_index": null,
            "actual_input": input, "match_type": "none", "time_to_action_ms": 1.5})
    };
    // Equal lines of two files are two records.
    let given = [line(1_704_067_200.25, "x"), line(1_704_067_201.0, "y"), line(1_704_067_200.25, "x")];
    let text = std::fs::read(lines(&folder, "suggestion_history.jsonl", &given)).expect("reads");
    for expected in ["accepted 3, duplicates 0, rejected 0\n", "accepted 0, duplicates 3, rejected 0\n"] {
        let mut command = gleaner(&folder);
        let mut import = command
            .args(["import", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        import.stdin.take().expect("piped").write_all(&text).expect("takes input");
        let output = import.wait_with_output().expect("ends");
        assert_eq!(String::from_utf8(output.stdout).expect("text"), expected);
    }
    let exported = run(gleaner(&folder).args(["export", "suggestion-history"]), 0);
    let exported = String::from_utf8(exported.stdout).expect("text");
    let back: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(back, given);

    let more = lines(&folder, "more.jsonl", &[line(1_704_067_202.0, "z")]);
    let output = run(gleaner(&folder).env("GLEANER_CAPTURE", "off").arg("import").arg(more), 0);
    assert_eq!(
        String::from_utf8(output.stdout).expect("text"),
        "accepted 0, duplicates 0, rejected 0\nskipped 1: the project's capture setting stores nothing of them\n"
    );
}

#[test]
fn an_import_tells_which_lines_it_refused_and_why_and_keeps_the_others() {
    let folder = folder();
    let good = json!({"event": "generation", "user_intent": "i", "domain_name": "d"});
    let place =
        lines(&folder, "mixed.jsonl", &[json!({"event": "nonsense"}), good, json!({"event": "nonsense"})]);
    let mut command = gleaner(&folder);
    let mut import =
        command.args(["import", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let text = std::fs::read(place).expect("reads");
    import.stdin.take().expect("piped").write_all(&text).expect("takes input");
    let output = import.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stdout).expect("text"),
        "accepted 1, duplicates 0, rejected 2\n  2 x /event: \"nonsense\" is not the name of an event \
         (first: standard input, line 1)\n"
    );
}

#[test]
fn without_postgres_or_a_key_where_one_is_needed_the_program_ends_with_one_sentence() {
    let folder = folder();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    let output = run(gleaner(&folder).args(["migrate", "--pg-bindir"]).arg(&empty), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.starts_with("gleaner: ") && said.contains("DATABASE_URL"), "{said}");

    let output = run(gleaner(&folder).args(["serve", "--bind", "0.0.0.0:0"]), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("GLEANER_ADMIN_KEY"), "{said}");

    let output = run(gleaner(&folder).args(["serve", "--admin-key", "short"]), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("at least 32") && !said.contains("short"), "{said}");

    let output = run(gleaner(&folder).args(["migrate", "--database-url", "nonsense:secret"]), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("DATABASE_URL") && !said.contains("secret"), "{said}");
}

#[test]
fn healthcheck_tells_by_its_exit_status_whether_a_server_is_ready() {
    let folder = folder();
    let server = Server::start(&folder);
    let output = run(gleaner(&folder).args(["healthcheck", "--bind", &server.address]), 0);
    assert_eq!(String::from_utf8(output.stdout).expect("text"), "{\"status\":\"ready\"}\n");
    let address = server.address.clone();
    drop(server);
    run(gleaner(&folder).args(["healthcheck", "--bind", &address]), 1);
}
