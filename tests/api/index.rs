//! `gleaner index`, and what it sends: files of source code as memories.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::server::{Server, folder, gleaner, run};
use crate::support::{Service, column, eventually};

fn chunk(symbol: &str, content: &str) -> Value {
    json!({"symbol": symbol, "content": content, "created_at": "2026-01-15T10:30:00Z"})
}

async fn put(service: &Service, path: &str, chunks: Value) -> Value {
    service
        .put("/v1/memories/code", &json!({"root": "/src/app", "path": path, "chunks": chunks}))
        .await
        .expect(200)
}

fn counts(added: u32, unchanged: u32, removed: u32) -> Value {
    json!({"added": added, "unchanged": unchanged, "removed": removed})
}

#[tokio::test]
async fn a_piece_that_was_changed_meanwhile_is_stored_again_as_it_is_in_the_file() {
    let service = Service::open().await;
    let piece = json!([chunk("a", "fn a() {}")]);
    put(&service, "a.rs", piece.clone()).await;
    let stored = service.get("/v1/memories").await.expect(200)["data"][0].clone();
    let path = format!("/v1/memories/{}", stored["id"].as_str().expect("an id"));
    for change in [
        json!({"content": "fn other() {}"}),
        json!({"symbol": "other"}),
        json!({"file_path": "other.rs"}),
        json!({"root": "/other"}),
    ] {
        service.patch(&path, &change).await.expect(200);
        assert_eq!(put(&service, "a.rs", piece.clone()).await, counts(1, 0, 0), "{change}");
        assert_eq!(service.get(&path).await.expect(200), stored, "{change}");
    }
    service.patch(&path, &json!({"importance": 0.9})).await.expect(200);
    assert_eq!(put(&service, "a.rs", piece).await, counts(0, 1, 0));
    assert_eq!(service.get(&path).await.expect(200)["importance"], 0.9);
}

#[tokio::test]
async fn a_piece_takes_the_place_of_a_memory_that_was_stored_under_its_id() {
    let service = Service::open().await;
    let piece = json!([chunk("a", "fn a() {}")]);
    put(&service, "a.rs", piece.clone()).await;
    let stored = service.get("/v1/memories").await.expect(200)["data"][0].clone();
    put(&service, "a.rs", json!([])).await;
    service.post("/v1/memories", &json!({"id": stored["id"], "content": "a note"})).await.expect(201);
    assert_eq!(put(&service, "a.rs", piece.clone()).await, counts(1, 0, 0));
    assert_eq!(service.all("/v1/memories").await, [stored]);
    assert_eq!(put(&service, "a.rs", piece).await, counts(0, 1, 0));
}

#[tokio::test]
async fn a_file_is_replaced_as_a_whole_and_keeps_what_has_not_changed() {
    let service = Service::open().await;
    let (a, b) = (chunk("a", "fn a() {}"), chunk("b", "fn b() {}"));
    assert_eq!(put(&service, "a.rs", json!([a, b])).await, counts(2, 0, 0));
    let before = service.get("/v1/memories?file_path=a.rs&source_type=code").await.expect(200);
    let memory = |list: &Value, symbol: &str| {
        let memories = list["data"].as_array().expect("a list");
        memories.iter().find(|memory| memory["symbol"] == symbol).cloned()
    };
    let first = memory(&before, "a").expect("it is stored");
    assert_eq!(
        (&first["root"], &first["created_at"]),
        (&json!("/src/app"), &json!("2026-01-15T10:30:00.000000Z"))
    );
    assert_eq!(put(&service, "a.rs", json!([a, b])).await, counts(0, 2, 0));
    // The same piece at a later time is the same; another text is another, under the same id.
    let (later, other) = (json!({"symbol": "a", "content": "fn a() {}"}), chunk("b", "fn b() { a() }"));
    assert_eq!(put(&service, "a.rs", json!([later, other])).await, counts(1, 1, 0));
    let after = service.get("/v1/memories?file_path=a.rs").await.expect(200);
    assert_eq!(memory(&after, "a"), Some(first));
    assert_eq!(
        memory(&after, "b").expect("it is stored")["id"],
        memory(&before, "b").expect("it was stored")["id"]
    );
    assert_eq!(memory(&after, "b").expect("it is stored")["content"], "fn b() { a() }");
    // Another file, and what was stored by itself, stay.
    assert_eq!(put(&service, "b.rs", json!([a])).await, counts(1, 0, 0));
    let own =
        json!({"content": "fn own() {}", "source_type": "code", "file_path": "a.rs", "root": "/src/app"});
    service.post("/v1/memories", &own).await.expect(201);
    assert_eq!(put(&service, "a.rs", json!([])).await, counts(0, 0, 2));
    let left = service.get("/v1/memories").await.expect(200);
    let mut left = column(left["data"].as_array().expect("a list"), "content");
    left.sort_by_key(Value::to_string);
    assert_eq!(left, [json!("fn a() {}"), json!("fn own() {}")]);
}

#[tokio::test]
async fn pieces_without_a_name_are_known_by_their_place_and_names_may_come_twice() {
    let service = Service::open().await;
    let unnamed = |content: &str| json!({"content": content});
    let twice = chunk("add", "int add(int a) { return a; }");
    let chunks =
        json!([unnamed("one"), unnamed("two"), twice, chunk("add", "int add(float a) { return a; }")]);
    assert_eq!(put(&service, "a.md", chunks.clone()).await, counts(4, 0, 0));
    assert_eq!(put(&service, "a.md", chunks).await, counts(0, 4, 0));
    assert_eq!(put(&service, "a.md", json!([unnamed("one"), unnamed("three")])).await, counts(1, 1, 2));
    let refused = json!({"root": "/src", "path": "", "chunks": [{"content": ""}]});
    service.put("/v1/memories/code", &refused).await.refused(422, &["/path", "/chunks/0/content"]);
}

#[tokio::test]
async fn a_file_may_be_sent_in_a_batch_and_is_stored_as_the_project_says() {
    let service = Service::open().await;
    let line = json!({"event": "memory_code", "root": "/src/app", "path": "a.rs", "chunks": [chunk("a", "fn needle() {}")]});
    let summary = service.events(&[line.clone(), line.clone()]).await.expect(200);
    assert_eq!(summary, json!({"accepted": 1, "duplicates": 1, "rejected": []}));
    service.put("/v1/projects/default", &json!({"capture": {"memories": "metadata"}})).await.expect(200);
    service.delete("/v1/sessions/none").await.expect(200);
    let hidden = json!([chunk("secret_name", "fn other_needle() {}")]);
    assert_eq!(put(&service, "b.rs", hidden.clone()).await, counts(1, 0, 0));
    assert_eq!(put(&service, "b.rs", hidden).await, counts(0, 1, 0));
    let dump = service.dump().await;
    assert!(!dump.contains("other_needle") && !dump.contains("secret_name"), "{dump}");
    service.put("/v1/projects/default", &json!({"capture": {"memories": "off"}})).await.expect(200);
    service.put("/v1/memories/code", &json!({"root": "/src", "path": "c.rs", "chunks": []})).await.gone();
}

/// A folder with source code, a text, and what is not to be indexed.
fn project() -> TempDir {
    let folder = folder();
    let write = |path: &str, text: &[u8]| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("makes");
        fs::write(path, text).expect("writes");
    };
    write(
        "src/auth.py",
        b"def verify_jwt(token):\n    return decode(token)\n\n\ndef refresh(token):\n    return token\n",
    );
    write("README.md", b"# Notes\n\nThe staging database is on port 5433.\n");
    write("image.png", b"\x89PNG\0\0");
    write(".gitignore", b"generated/\n");
    write("generated/out.py", b"def generated():\n    pass\n");
    write("bundle.js", "x".repeat(9_000).as_bytes());
    folder
}

fn index(state: &TempDir, project: &TempDir) -> Command {
    let mut command = gleaner(state);
    command.arg("index").arg(project.path()).env("GLEANER_STATE_DIR", state.path().join("state"));
    command
}

fn said(command: &mut Command) -> String {
    String::from_utf8(run(command, 0).stderr).expect("text").trim_end().to_owned()
}

#[test]
fn a_folder_is_indexed_once_and_then_only_what_changes() {
    let (state, project) = (folder(), project());
    run(gleaner(&state).arg("migrate"), 0);
    assert_eq!(
        said(&mut index(&state, &project)),
        "4 files: 2 sent, 0 gone; 3 pieces added, 0 unchanged, 0 removed"
    );
    assert_eq!(
        said(&mut index(&state, &project)),
        "4 files: 0 sent, 0 gone; 0 pieces added, 0 unchanged, 0 removed"
    );
    let auth = project.path().join("src/auth.py");
    fs::write(
        &auth,
        "def verify_jwt(token):\n    return decode(token, KEY)\n\n\ndef refresh(token):\n    return token\n",
    )
    .expect("writes");
    fs::remove_file(project.path().join("README.md")).expect("removes");
    assert_eq!(
        said(&mut index(&state, &project)),
        "3 files: 1 sent, 1 gone; 1 pieces added, 1 unchanged, 1 removed"
    );
    assert_eq!(
        said(index(&state, &project).arg("--from-start")),
        "3 files: 1 sent, 0 gone; 0 pieces added, 2 unchanged, 0 removed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_sends_to_a_server_and_finds_changes_while_it_watches_the_folder() {
    let (state, project) = (folder(), project());
    let server = Server::start(&state);
    let url = format!("http://{}", server.address);
    let mut watching = index(&state, &project).args(["--watch", "--url", &url]).spawn().expect("starts");
    let symbols = async || {
        let (_, list) = server.get("/v1/memories?source_type=code&limit=500").await;
        let mut symbols = column(list["data"].as_array().expect("a list"), "symbol");
        symbols.sort_by_key(Value::to_string);
        symbols
    };
    eventually("the folder is indexed", async || {
        symbols().await == [json!("refresh"), json!("verify_jwt"), json!(null)]
    })
    .await;
    fs::write(project.path().join("src/auth.py"), "def verify_token(token):\n    return token\n")
        .expect("writes");
    eventually("the change is noticed", async || symbols().await == [json!("verify_token"), json!(null)])
        .await;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(watching.id().try_into().expect("an id")),
        nix::sys::signal::Signal::SIGTERM,
    )
    .expect("it runs");
    assert_eq!(watching.wait().expect("ends").code(), Some(0));
}

#[test]
fn a_file_that_is_refused_keeps_no_other_from_being_indexed() {
    let (state, project) = (folder(), folder());
    run(gleaner(&state).arg("migrate"), 0);
    // In JSON, each of these characters has six bytes.
    fs::write(project.path().join("a.txt"), format!("a{}\n", "\u{1}".repeat(100)).repeat(9_000))
        .expect("writes");
    for number in 0..8 {
        fs::write(project.path().join(format!("b{number}.txt")), format!("Note {number}.")).expect("writes");
    }
    let refused = run(&mut index(&state, &project), 1);
    let said = String::from_utf8(refused.stderr).expect("text");
    assert!(said.contains("a.txt was rejected: the body has more than"), "{said}");
    fs::remove_file(project.path().join("a.txt")).expect("removes");
    assert_eq!(
        self::said(&mut index(&state, &project)),
        "8 files: 0 sent, 0 gone; 0 pieces added, 0 unchanged, 0 removed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_refused_is_sent_once_while_others_are_watched() {
    let (state, project) = (folder(), folder());
    let server = Server::start(&state);
    let url = format!("http://{}", server.address);
    fs::write(project.path().join("a.txt"), format!("a{}\n", "\u{1}".repeat(100)).repeat(9_000))
        .expect("writes");
    let mut command = index(&state, &project);
    let watching = command.args(["--watch", "--url", &url]).stderr(Stdio::piped()).spawn().expect("starts");
    for number in 0..2 {
        fs::write(project.path().join(format!("b{number}.txt")), format!("Note {number}.")).expect("writes");
        eventually("the other file is indexed", async || {
            let (_, list) = server.get("/v1/memories?source_type=code&limit=500").await;
            list["data"].as_array().expect("a list").len() == number + 1
        })
        .await;
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(watching.id().try_into().expect("an id")),
        nix::sys::signal::Signal::SIGTERM,
    )
    .expect("it runs");
    let ended = watching.wait_with_output().expect("ends");
    let said = String::from_utf8(ended.stderr).expect("text");
    assert_eq!((ended.status.code(), said.matches("a.txt was rejected").count()), (Some(0), 1), "{said}");
}

#[test]
fn what_is_no_folder_is_refused() {
    let state = folder();
    let output = run(gleaner(&state).args(["index", "nowhere"]), 1);
    assert!(String::from_utf8(output.stderr).expect("text").contains("opening nowhere"));
}
