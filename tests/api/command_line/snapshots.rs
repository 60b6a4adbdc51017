//! Snapshots on the command line: made, listed, downloaded, also from where a download ended, and deleted; and a server that
//! dies over one.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{command, complaint, fed, said};
use crate::support::server::{Client, Server, folder, run};
use crate::support::{Service, eventually};

fn logs(count: usize, length: usize) -> String {
    let mut random = fastrand::Rng::with_seed(3);
    let line = |number: usize| {
        let program: String = std::iter::repeat_with(|| random.alphanumeric()).take(length).collect();
        let log = json!({"event": "generation", "user_intent": format!("i{number}"), "domain_name": "d", "success": true,
            "final_valid_dsl": program});
        format!("{log}\n")
    };
    (0..count).map(line).collect()
}

fn read(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).expect("a file")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_made_and_downloaded_by_way_of_a_server_as_on_its_database() {
    let here = folder();
    fed(command(&here, "import -"), logs(3, 10).as_bytes());
    let made = run(
        &mut command(
            &here,
            "export training-pairs --snapshot jsonl --licence mit --min-chars 2 -o rows.jsonl",
        ),
        0,
    );
    assert!(complaint(&made).contains("3 rows in rows.jsonl"), "{}", complaint(&made));
    let rows = String::from_utf8(read(&here, "rows.jsonl")).expect("text");
    assert_eq!(rows, said(&run(&mut command(&here, "export training-pairs"), 0)));

    let server = Server::start(&here);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let remote = |line: &str| {
        let mut command = command(&elsewhere, line);
        command.env("GLEANER_URL", format!("http://{}", server.address));
        command
    };
    let made = run(&mut remote("export training-pairs --snapshot --keep-days 3"), 0);
    let id = said(&made).trim().to_owned();
    let listed = said(&run(&mut remote("snapshots"), 0));
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let newest = listed.lines().next().expect("a line");
    assert!(
        newest.starts_with(&id) && newest.contains("complete  training-pairs  openai  parquet  3 rows"),
        "{listed}"
    );
    run(&mut remote(&format!("snapshots download {id}")), 0);
    let whole = read(&elsewhere, "training-pairs.parquet");
    // A download that ended in the middle goes on there; one of other bytes is found out.
    fs::write(elsewhere.path().join("again.parquet.part"), &whole[..100]).expect("a part");
    run(&mut remote(&format!("snapshots download {id} -o again.parquet")), 0);
    assert_eq!(read(&elsewhere, "again.parquet"), whole);
    fs::write(elsewhere.path().join("other.parquet.part"), [0; 100]).expect("a part");
    let refused = run(&mut remote(&format!("snapshots download {id} -o other.parquet")), 1);
    assert!(complaint(&refused).contains("is not the file of the snapshot"), "{}", complaint(&refused));
    run(&mut remote(&format!("snapshots download {id} -o other.parquet")), 0);
    run(&mut command(&here, &format!("snapshots download {id} -o local.parquet")), 0);
    assert_eq!((read(&elsewhere, "other.parquet"), read(&here, "local.parquet")), (whole.clone(), whole));

    run(&mut remote(&format!("snapshots delete {id}")), 0);
    assert_eq!(said(&run(&mut command(&here, "snapshots list"), 0)).lines().count(), 1);
    let refused = run(&mut command(&here, &format!("snapshots delete {id}")), 1);
    assert!(complaint(&refused).contains("there is no snapshot"), "{}", complaint(&refused));
    let refused = run(&mut remote("export training-pairs --snapshot --limit 0"), 1);
    assert!(
        complaint(&refused).ends_with("answered 422: --limit must be 1 or more\n"),
        "{}",
        complaint(&refused)
    );
    let refused = run(&mut remote("export training-pairs --licence mit"), 2);
    assert!(complaint(&refused).contains("--snapshot"), "{}", complaint(&refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_soon_ends_leaves_snapshots_to_the_server() {
    let service = Service::open().await;
    let building = service.holding_back_snapshots().await;
    let waiting = service.post("/v1/snapshots", &json!({"dataset": "training-pairs"})).await.expect(202);
    let here = folder();
    let mut import = command(&here, "import -");
    import.env("DATABASE_URL", service.url());
    let imported = fed(import, logs(1, 10).as_bytes());
    assert!(imported.status.success(), "{}", complaint(&imported));
    let attempts: i32 =
        sqlx::query_scalar("select attempts from snapshots").fetch_one(service.pool()).await.expect("one");
    assert_eq!(attempts, 0);
    drop(building);
    service.build_snapshots().await;
    let id = waiting["id"].as_str().expect("an id");
    assert_eq!(service.get(&format!("/v1/snapshots/{id}")).await.expect(200)["state"], "complete");
}

#[test]
fn a_file_that_another_command_writes_is_left_to_it() {
    let here = folder();
    fed(command(&here, "import -"), logs(1, 10).as_bytes());
    let other = fs::File::create(here.path().join("rows.jsonl.part")).expect("a file");
    other.lock().expect("a lock");
    let refused = run(&mut command(&here, "export training-pairs -o rows.jsonl"), 1);
    assert!(complaint(&refused).contains("another command writes it"), "{}", complaint(&refused));
    drop(other);
    run(&mut command(&here, "export training-pairs -o rows.jsonl"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_over_a_snapshot_builds_it_anew_when_it_has_started_again() {
    let here = folder();
    fed(command(&here, "import -"), logs(6_000, 2_000).as_bytes());
    let mut server = Server::start(&here);
    let new = json!({"dataset": "training-pairs", "file": "jsonl"});
    let sent = Client::new().send(format!("http://{}/v1/snapshots", server.address), Some(&new)).await;
    let (_, made) = sent.expect("the server answers");
    let id = made["id"].as_str().expect("an id").to_owned();
    let address = format!("/v1/snapshots/{id}");
    eventually("it is being built", async || {
        let (_, snapshot) = server.get(&address).await;
        snapshot["bytes"].as_i64().is_some_and(|bytes| bytes > 0)
    })
    .await;
    server.signal(Signal::SIGKILL);
    server.ended();
    let server = Server::start(&here);
    let mut snapshot = Value::Null;
    // Nobody else may build it until the lease of the one that died has ended.
    eventually("it is complete", async || {
        snapshot = server.get(&address).await.1;
        snapshot["state"] == "complete"
    })
    .await;
    assert_eq!(snapshot["rows"], 6_000, "{snapshot}");
    drop(server);
    run(&mut command(&here, &format!("snapshots download {id} -o rows.jsonl")), 0);
    let as_of = snapshot["as_of"].as_str().expect("a time");
    let exported = said(&run(&mut command(&here, &format!("export training-pairs --as-of {as_of}")), 0));
    assert_eq!(String::from_utf8(read(&here, "rows.jsonl")).expect("text"), exported);
}
