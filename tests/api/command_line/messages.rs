//! What commands and the service say when something is wrong: what, where and what to do, in words.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::process::Stdio;

use serde_json::json;

use super::{command, complaint, fed, said};
use crate::support::Service;
use crate::support::server::{folder, run};

#[test]
fn formats_that_a_data_set_does_not_have_are_told_in_words() {
    let folder = folder();
    for format in ["csv", "letor"] {
        let output = run(&mut command(&folder, &format!("export training-pairs --format {format}")), 2);
        let complaint = complaint(&output);
        let known = "[possible values: openai, trl-prompt-completion, alpaca, rft, rl, pairs, raw]";
        assert!(complaint.contains(&format!("invalid value '{format}'")), "{complaint}");
        assert!(complaint.contains(known) && !complaint.contains("/format"), "{complaint}");
    }
}

#[test]
fn values_that_an_option_cannot_have_are_answered_with_what_it_wants() {
    let folder = folder();
    let address = "it must be an IP address and a port, such as 127.0.0.1:8080";
    for (line, expected) in [
        ("serve --bind 8080", address),
        ("healthcheck --bind localhost", address),
        ("serve --learn-threshold high", "it must be a number"),
        ("keys revoke first", "it is not the id of a key, which `gleaner keys list` shows"),
    ] {
        let complaint = complaint(&run(&mut command(&folder, line), 2));
        assert!(complaint.contains(expected), "{line}: {complaint}");
    }
    let refused = complaint(&run(&mut command(&folder, "serve --learn-half-life 0"), 1));
    assert_eq!(refused, "gleaner: --learn-half-life must be from 0.05 to 36500\n");
    let refused = complaint(&run(&mut command(&folder, "hook install claude-code --url gleaner.example"), 1));
    assert_eq!(
        refused,
        "gleaner: gleaner.example is not the address of a server; an address begins with http:// or https://\n"
    );
}

#[test]
fn a_server_does_not_start_with_a_wrong_address_of_a_provider_and_says_which() {
    let folder = folder();
    let file = folder.path().join("providers.toml");
    fs::write(
        &file,
        "[[providers]]\nname = \"local\"\nkind = \"openai\"\nbase_url = \"models.example/v1\"\n",
    )
    .expect("a file");
    let refused = run(&mut command(&folder, &format!("serve --providers-file {}", file.display())), 1);
    let expected = format!(
        "gleaner: the providers file {} cannot be used: the base_url \"models.example/v1\" of the provider \"local\" must be \
         an HTTP address without a query, such as https://api.openai.com/v1\n",
        file.display()
    );
    assert_eq!(complaint(&refused), expected);
    assert!(!folder.path().join("data").exists(), "nothing is made before the file is read");
}

#[test]
fn an_address_at_which_something_else_answers_is_told_as_such() {
    let folder = folder();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address");
    std::thread::spawn(move || {
        for connection in other.incoming() {
            let mut connection = connection.expect("a client");
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(
                b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 6\r\n\r\n<html>",
            );
        }
    });
    for (url, expected) in [
        (
            format!("http://{address}"),
            format!(
                "http://{address} answered 400, which is not a response of Gleaner; check the address: <html>"
            ),
        ),
        (
            format!("https://{address}"),
            format!("https://{address} does not speak TLS; is its address http://{address}?"),
        ),
    ] {
        let refused =
            complaint(&run(&mut command(&folder, &format!("export training-pairs --url {url}")), 1));
        assert_eq!(refused, format!("gleaner: {expected}\n"));
    }
}

#[test]
fn files_that_cannot_be_read_or_written_are_named_with_the_reason() {
    let folder = folder();
    run(&mut command(&folder, "migrate"), 0);
    fs::create_dir(folder.path().join("taken")).expect("a folder");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    for (line, expected) in [
        ("export training-pairs -o taken", "gleaner: taken is a folder; --output names the file to write\n"),
        ("export training-pairs -o none/rows", "gleaner: cannot write none/rows: there is no folder none\n"),
        (
            "export training-pairs -o pipe",
            "gleaner: pipe is not a regular file; --output would put one in its place\n",
        ),
        ("export training-pairs --limit 0", "gleaner: --limit must be 1 or more\n"),
        ("import none.jsonl", "gleaner: opening none.jsonl: No such file or directory\n"),
        ("import taken", "gleaner: opening taken: Is a directory\n"),
    ] {
        let complaint = complaint(&run(&mut command(&folder, line), 1));
        assert!(complaint.ends_with(expected), "{line}: {complaint}");
    }
    assert!(fs::metadata(pipe).expect("it is there").file_type().is_fifo());
    // A link stays, and leads to the rows.
    symlink("rows", folder.path().join("link")).expect("a link");
    run(&mut command(&folder, "export training-pairs -o link"), 0);
    assert!(folder.path().join("link").is_symlink() && folder.path().join("rows").is_file());
}

#[test]
fn lines_that_are_no_events_have_reasons_that_help() {
    let folder = folder();
    let text = b"\xef\xbb\xbf{\"event\": \"generation\"}\n[{\"event\": \"generation\"}]\n\x1f\x8b\x08\xff\n7\n{\"event\": 7}\n";
    let output = fed(command(&folder, "import -"), text);
    let said = said(&output);
    for reason in [
        "begins with a byte order mark (BOM), which is not JSON; send UTF-8 without one (first: standard input, line 1)",
        "a line is one event, a JSON object; an array of events is sent whole, as application/json (first: standard input, line 2)",
        "it looks like gzip",
        "must be an object, not 7 (first: standard input, line 4)",
        "/event: must be a string, not 7 (first: standard input, line 5)",
    ] {
        assert!(said.contains(reason), "{reason}: {said}");
    }
    assert!(!said.contains("expected") && !said.contains("struct"), "{said}");
}

#[test]
fn an_export_whose_reader_goes_ends_in_silence() {
    let folder = folder();
    let line = json!({"event": "generation", "user_intent": "x".repeat(1_000), "domain_name": "d", "success": true,
        "final_valid_dsl": "(p)"});
    let text = format!("{line}\n").repeat(2_000);
    assert_eq!(fed(command(&folder, "import -"), text.as_bytes()).status.code(), Some(0));
    let mut export = command(&folder, "export training-pairs");
    let mut export = export.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut out = export.stdout.take().expect("piped");
    out.read_exact(&mut [0; 10]).expect("the first row");
    drop(out);
    let output = export.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(141));
    let complaint = complaint(&output);
    assert!(!complaint.contains("gleaner:") && !complaint.contains("rows of"), "{complaint}");
}

#[tokio::test]
async fn refusals_name_no_types_of_the_program() {
    let service = Service::open().await;
    let log = service.create("/v1/generations", json!({"user_intent": "i", "domain_name": "d"})).await;
    let attempts = format!("/v1/generations/{log}/attempts");
    for (body, pointer, detail) in [
        (json!({"parse_result": 7}), "/parse_result", "must be an object, not 7"),
        (json!({"extracted_dsl": {}}), "/extracted_dsl", "must be a string, not an object"),
        (json!({"attempt": "one"}), "/attempt", "must be a whole number within its range, not a string"),
        (json!({"parse_result": {}}), "/parse_result/success", "is missing"),
    ] {
        let answer = service.post(&attempts, &body).await;
        assert_eq!(answer.status, 422, "{body}");
        let errors = &answer.json()["errors"];
        assert_eq!(errors, &json!([{"pointer": pointer, "detail": detail}]), "{body}");
    }
}
