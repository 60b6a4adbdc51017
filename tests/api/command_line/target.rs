//! One rule for what commands talk to: the server named, the database named, a server that runs, the database of this
//! machine; and only three commands make one.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{command, complaint, fed, said};
use crate::support::eventually;
use crate::support::server::{Server, folder, gleaner, run};

const LOGS: &str = r#"{"event": "generation", "user_intent": "one", "domain_name": "cbu", "success": true, "final_valid_dsl": "(one)"}
{"event": "generation", "user_intent": "two", "domain_name": "cbu", "success": true, "final_valid_dsl": "(two)"}
{"event": "generation", "user_intent": "two", "domain_name": "cbu", "success": true, "final_valid_dsl": "(two)"}
[1, 2]
"#;

const ROWS: &str = r#"{"user_intent":"one","valid_dsl":"(one)"}
{"user_intent":"two","valid_dsl":"(two)"}
{"user_intent":"two","valid_dsl":"(two)"}
"#;

#[test]
fn only_three_commands_make_a_database_and_the_others_say_where_they_looked() {
    let folder = folder();
    for line in ["export training-pairs", "keys list", "keys create --scope read", "watch --once ."] {
        let output = run(&mut command(&folder, line), 1);
        let complaint = complaint(&output);
        let data = folder.path().join("data");
        for part in [
            "no server answers at http://127.0.0.1:9",
            "DATABASE_URL is not set",
            &data.display().to_string(),
        ] {
            assert!(
                complaint.starts_with("gleaner: ") && complaint.contains(part),
                "{line}: {part}: {complaint}"
            );
        }
        assert_eq!(said(&output), "");
        assert!(!data.exists(), "{line} has made a folder");
    }
    run(&mut command(&folder, "migrate"), 0);
    assert_eq!(said(&run(&mut command(&folder, "export training-pairs"), 0)), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_export_and_keys_work_by_way_of_a_server_as_they_do_on_its_database() {
    let folder = folder();
    let server = Server::start(&folder);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let remote = |line: &str| {
        let mut command = command(&elsewhere, line);
        command.env("GLEANER_URL", format!("http://{}/", server.address));
        command
    };
    let output = fed(remote("import -"), LOGS.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let expected = "accepted 3, duplicates 0, rejected 1\n  1 x a line is one event, a JSON object; an array of events is \
                    sent whole, as application/json (first: standard input, line 4)\n";
    assert_eq!(said(&output), expected);
    // Equal lines have the same names on every way in, so what is known is not stored again.
    let again = fed(command(&folder, "import -"), LOGS.as_bytes());
    assert!(said(&again).starts_with("accepted 0, duplicates 3, rejected 1\n"), "{}", said(&again));
    let again = fed(remote("import -"), LOGS.as_bytes());
    assert!(said(&again).starts_with("accepted 0, duplicates 3, rejected 1\n"), "{}", said(&again));

    // Members of that name in the parts of a record name nothing, and neither does null.
    let named = r#"{"event": "generation", "user_intent": "one", "domain_name": "cbu", "metadata": {"line_id": 7}}
{"event": "generation", "user_intent": "two", "domain_name": "cbu", "line_id": null}
"#;
    assert!(said(&fed(remote("import -"), named.as_bytes())).starts_with("accepted 2, duplicates 0,"));
    for import in [remote("import -"), command(&folder, "import -")] {
        let again = fed(import, named.as_bytes());
        assert!(said(&again).starts_with("accepted 0, duplicates 2,"), "{}", said(&again));
    }

    let export = "export training-pairs --format raw";
    let output = run(&mut remote(export), 0);
    assert_eq!(said(&output), ROWS);
    assert!(complaint(&output).starts_with("3 rows of training-pairs as of "), "{}", complaint(&output));
    assert_eq!(said(&run(&mut command(&folder, export), 0)), ROWS);
    let piece = run(&mut remote("export training-pairs --limit 1 --dedupe exact --include metadata"), 0);
    assert_eq!(said(&piece).lines().count(), 1);
    let row: Value = serde_json::from_str(&said(&piece)).expect("a row");
    assert!(row["metadata"].is_object(), "{row}");
    assert!(complaint(&piece).contains("there is more: --cursor "), "{}", complaint(&piece));
    run(&mut remote("export training-pairs --output rows.jsonl"), 0);
    assert_eq!(
        std::fs::read_to_string(elsewhere.path().join("rows.jsonl")).expect("rows").lines().count(),
        3
    );

    let refused = run(&mut remote("export training-pairs --limit 0"), 1);
    let expected = format!("gleaner: http://{} answered 422: --limit must be 1 or more\n", server.address);
    assert_eq!(complaint(&refused), expected);

    let key = said(&run(&mut remote("keys create --name first --scope operator"), 0));
    eventually("the server is closed", async || {
        server.get("/v1/generations").await.0 == StatusCode::UNAUTHORIZED
    })
    .await;
    let refused = run(&mut remote("keys list"), 1);
    assert!(
        complaint(&refused).contains("answered 401") && complaint(&refused).contains("--key"),
        "{}",
        complaint(&refused)
    );
    let listed = run(remote("keys list").env("GLEANER_KEY", key.trim()), 0);
    assert!(said(&listed).contains("first  operator"), "{}", said(&listed));
    let id = said(&listed).split_whitespace().next().expect("an id").to_owned();
    let output = run(remote(&format!("keys revoke {id}")).env("GLEANER_KEY", key.trim()), 0);
    assert_eq!(complaint(&output), format!("revoked {id}\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_runs_is_preferred_and_whoever_has_its_data_needs_no_key() {
    let (here, there) = (folder(), folder());
    run(&mut command(&there, "migrate"), 0);
    let server = Server::start(&here);
    // Whoever does not say otherwise means the server, also where other data are at hand.
    let export = |folder, line: &str| {
        let mut command = command(folder, line);
        command.env("GLEANER_BIND", &server.address);
        said(&run(&mut command, 0)).lines().count()
    };
    let new = json!({"user_intent": "i", "domain_name": "d", "success": true, "final_valid_dsl": "(p)"});
    let line = format!("{{\"event\": \"generation\", {}", new.to_string().trim_start_matches('{'));
    let mut import = gleaner(&there);
    import.args(["import", "-"]).env("GLEANER_BIND", &server.address);
    assert!(said(&fed(import, line.as_bytes())).starts_with("accepted 1,"));
    assert_eq!(export(&there, "export training-pairs"), 1);
    let data = there.path().join("data");
    assert_eq!(export(&there, &format!("export training-pairs --data-dir {}", data.display())), 0);

    run(&mut command(&here, "keys create --scope operator"), 0);
    eventually("the server is closed", async || {
        server.get("/v1/generations").await.0 == StatusCode::UNAUTHORIZED
    })
    .await;
    assert_eq!(export(&here, "export training-pairs"), 1);
}
