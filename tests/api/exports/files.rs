//! Snapshots: exports kept as files, downloaded in parts, and marked when a record of them is erased.

use std::io::Read as _;

use axum::http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::schemas::{everything, of_json};
use super::{TRAINING, solved};
use crate::support::program::{Limits, Settings};
use crate::support::{Answer, Service, assert_text, encoded, eventually, failed, passed, settings, with};

pub(super) const SNAPSHOTS: &str = "/v1/snapshots";

/// Asks for a snapshot, and waits until it is built or cannot be.
pub(crate) async fn built(service: &Service, new: &Value) -> Value {
    let answer = service.post(SNAPSHOTS, new).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let address = answer.header("location").expect("an address").to_owned();
    settled(service, &address).await
}

pub(super) async fn settled(service: &Service, address: &str) -> Value {
    let mut snapshot = Value::Null;
    eventually("the snapshot is built", async || {
        snapshot = service.get(address).await.expect(200);
        ["complete", "failed"].contains(&snapshot["state"].as_str().expect("a state"))
    })
    .await;
    snapshot
}

pub(super) fn path(snapshot: &Value) -> &str {
    snapshot["path"].as_str().expect("a path")
}

async fn part(service: &Service, path: &str, range: &str) -> Answer {
    service.call(Method::GET, path, &[("range", range)], None).await
}

pub(super) fn logs(count: u128) -> Vec<Value> {
    let log = |number| {
        let chain = [
            failed(1, &format!("(x {number})"), "e"),
            passed(2, &format!("(program {number} {})", "y".repeat(40))),
        ];
        solved(number, &format!("intent {number}"), &chain)
    };
    (1..=count).map(log).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The rows of a Parquet file, as JSON.
fn parquet_rows(bytes: Vec<u8>) -> Vec<Value> {
    let reader =
        parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(bytes), 1_000);
    let mut writer = arrow_json::LineDelimitedWriter::new(Vec::new());
    for batch in reader.expect("a Parquet file") {
        writer.write(&batch.expect("rows")).expect("JSON");
    }
    writer.finish().expect("JSON");
    let text = String::from_utf8(writer.into_inner()).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// A row as Parquet has it: without nulls, and with what has no fixed members as text.
fn as_in_parquet(row: &Value, schema: &Value) -> Value {
    match (row, schema["properties"].as_object()) {
        (Value::Object(members), Some(properties)) => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), as_in_parquet(value, &properties[name])))
            .collect(),
        (Value::Array(items), _) if schema["items"]["properties"].is_object() => {
            items.iter().map(|item| as_in_parquet(item, &schema["items"])).collect()
        }
        (Value::Array(_), _) if schema["items"]["type"] == "object" => row.to_string().into(),
        (Value::Object(_), None) => row.to_string().into(),
        _ => row.clone(),
    }
}

#[tokio::test]
async fn every_file_has_the_rows_of_the_export_with_the_types_of_its_schema() {
    let service = everything().await;
    for (dataset, format) in of_json(&service).await {
        if format == "vw-dsjson" {
            continue;
        }
        let query = if dataset.ends_with("-pairs") && format == "openai" { "&prompt=sent" } else { "" };
        let export = format!("/v1/exports/{dataset}?format={format}&include=metadata{query}");
        let schema = format!("/v1/exports/{dataset}/schema?format={format}&include=metadata{query}");
        let schema = service.get(&schema).await.expect(200);
        for file in ["jsonl", "jsonl.gz", "parquet"] {
            let mut new = json!({"dataset": dataset, "format": format, "file": file, "include": "metadata"});
            if !query.is_empty() {
                new["prompt"] = "sent".into();
            }
            let snapshot = built(&service, &new).await;
            assert_eq!(snapshot["state"], "complete", "{snapshot}");
            let answer = service
                .get(&format!("{export}&as_of={}", encoded(snapshot["as_of"].as_str().expect("a time"))))
                .await;
            let (text, rows) = (answer.text(), answer.rows());
            let downloaded = service.get(path(&snapshot)).await;
            assert_eq!(snapshot["rows"], rows.len(), "{snapshot}");
            match file {
                "jsonl" => assert_eq!(downloaded.text(), text),
                "jsonl.gz" => {
                    let mut unpacked = String::new();
                    let mut reader = flate2::read::GzDecoder::new(downloaded.body.as_slice());
                    reader.read_to_string(&mut unpacked).expect("gzip");
                    assert_eq!(unpacked, text);
                }
                _ => {
                    let expected: Vec<_> = rows.iter().map(|row| as_in_parquet(row, &schema)).collect();
                    let found = parquet_rows(downloaded.body);
                    assert_eq!(found.len(), expected.len());
                    for (found, expected) in found.iter().zip(&expected) {
                        crate::support::assert_close(found, expected);
                    }
                }
            }
            // A project may have fewer than this test makes.
            let address = format!("{SNAPSHOTS}/{}", snapshot["id"].as_str().expect("an id"));
            assert_eq!(service.delete(&address).await.status, 204);
        }
    }
}

#[tokio::test]
async fn a_file_is_downloaded_whole_and_in_parts_that_are_the_same_bytes() {
    let service = Service::open().await;
    let mut random = fastrand::Rng::with_seed(1);
    let long = |number: u128, random: &mut fastrand::Rng| {
        let program: String = std::iter::repeat_with(|| random.alphanumeric()).take(3_000).collect();
        solved(number, &format!("intent {number}"), &[passed(1, &program)])
    };
    let logs: Vec<_> = (0..800).map(|number| long(number, &mut random)).collect();
    service.accept(&logs).await;
    let snapshot =
        built(&service, &json!({"dataset": "training-pairs", "file": "jsonl", "name": "train"})).await;
    let path = path(&snapshot).to_owned();
    assert!(path.ends_with("/train.jsonl"));
    let whole = service.call(Method::GET, &path, &[("accept-encoding", "gzip")], None).await;
    let length = whole.body.len();
    assert!(length > 2 << 20, "more than two pieces");
    let hash = hex(&Sha256::digest(&whole.body));
    let tag = format!("\"{hash}\"");
    assert_eq!((&snapshot["sha256"], &snapshot["bytes"]), (&json!(hash), &json!(length)));
    assert_eq!(
        (whole.status.as_u16(), whole.header("etag"), whole.header("accept-ranges")),
        (200, Some(&*tag), Some("bytes"))
    );
    assert_eq!(
        (whole.header("content-length"), whole.header("content-encoding")),
        (Some(&*length.to_string()), None)
    );
    assert_eq!(whole.header("content-type"), Some("application/jsonl"));
    // A range has a meaning only for GET.
    for headers in [&[][..], &[("range", "bytes=0-1")], &[("range", "bytes=99999999-")]] {
        let head = service.call(Method::HEAD, &path, headers, None).await;
        assert_eq!(
            (head.status.as_u16(), head.body.len(), head.header("content-length"), head.header("etag")),
            (200, 0, Some(&*length.to_string()), Some(&*tag))
        );
    }

    // A download that is cut ten times at any place, and resumed where it ended.
    let mut taken: Vec<u8> = Vec::new();
    while taken.len() < length {
        let answer = part(&service, &path, &format!("bytes={}-", taken.len())).await;
        let (status, from) = if taken.is_empty() { (206, 0) } else { (206, taken.len()) };
        assert_eq!(answer.status.as_u16(), status);
        assert_eq!(answer.header("content-range"), Some(&*format!("bytes {from}-{}/{length}", length - 1)));
        let cut = random.usize(1..=length / 8).min(answer.body.len());
        taken.extend(&answer.body[..cut]);
    }
    assert_eq!(taken, whole.body);
    for (range, from, to) in [
        ("bytes=0-0".to_owned(), 0, 1),
        ("bytes=-5".to_owned(), length - 5, length),
        (format!("bytes=1048570-{}", 1 << 20), 1_048_570, (1 << 20) + 1),
        (format!("bytes=7-{}", length * 2), 7, length),
    ] {
        let answer = part(&service, &path, &range).await;
        assert_eq!((answer.status.as_u16(), answer.body.as_slice()), (206, &whole.body[from..to]), "{range}");
        assert_eq!(answer.header("content-length"), Some(&*(to - from).to_string()));
    }
    for range in ["bytes=0-1,5-6", "lines=1-2", "bytes=x"] {
        assert_eq!(part(&service, &path, range).await.status, 200, "{range}");
    }
    let beyond = part(&service, &path, &format!("bytes={length}-")).await;
    assert_eq!(beyond.header("content-range"), Some(&*format!("bytes */{length}")));
    beyond.refused(416, &[]);
    let with = async |headers: &[(&str, &str)]| {
        service.call(Method::GET, &path, headers, None).await.status.as_u16()
    };
    assert_eq!(with(&[("if-none-match", &tag)]).await, 304);
    assert_eq!(with(&[("if-none-match", "\"other\"")]).await, 200);
    assert_eq!(with(&[("range", "bytes=0-1"), ("if-range", &tag)]).await, 206);
    assert_eq!(with(&[("range", "bytes=0-1"), ("if-range", "\"other\"")]).await, 200);
    service.get(&path.replace("train.jsonl", "train.parquet")).await.refused(404, &[]);
}

#[tokio::test]
async fn a_snapshot_never_changes_and_is_marked_when_a_record_of_it_is_erased() {
    let service = Service::open().await;
    service.accept(&logs(30)).await;
    let new = json!({"dataset": "training-pairs", "format": "openai", "licence": "apache-2.0", "split": "train",
        "holdout": 0.2, "name": "train"});
    let snapshot = built(&service, &new).await;
    assert_eq!(
        (&snapshot["state"], &snapshot["erased_records"]),
        (&json!("complete"), &json!(0)),
        "{snapshot}"
    );
    let before = service.get(path(&snapshot)).await;
    let id = snapshot["id"].as_str().expect("an id");
    let card = format!("{SNAPSHOTS}/{id}/README.md");
    let rows =
        service.get(&format!("{TRAINING}?split=train&holdout=0.2&format=raw&include=metadata")).await.rows();
    let inside: Vec<_> = rows.iter().map(|row| row["metadata"]["generation_id"].clone()).collect();
    let outside = (1..=30).map(|number| json!(Uuid::from_u128(number))).find(|id| !inside.contains(id));
    // One that is not in it, one by its id, and one by its age with all the others.
    service
        .delete(&format!("/v1/generations/{}", outside.expect("one").as_str().expect("an id")))
        .await
        .gone();
    assert_eq!(service.get(&format!("{SNAPSHOTS}/{id}")).await.expect(200)["erased_records"], 0);
    let first = inside[0].as_str().expect("an id");
    service.delete(&format!("/v1/memories/{first}")).await.refused(404, &[]);
    for _ in 0..2 {
        service.delete(&format!("/v1/records/{first}")).await;
    }
    assert_eq!(service.get(&format!("{SNAPSHOTS}/{id}")).await.expect(200)["erased_records"], 1);
    let answer = service.get(&card).await;
    assert_eq!(answer.header("content-type"), Some("text/markdown; charset=utf-8"));
    let text = answer.text();
    let hash = snapshot["sha256"].as_str().expect("a hash");
    let text = text.replace(hash, "<sha256>").replace(snapshot["as_of"].as_str().expect("a time"), "<time>");
    let text = text.replace(&snapshot["bytes"].to_string(), "<bytes>");
    let rows = &snapshot["rows"];
    let text = text.replace(&format!("| rows | {rows} |"), "| rows | <rows> |");
    let text = text.replace(&format!("num_examples: {rows}"), "num_examples: <rows>");
    assert_text!("card", text);
    service.delete("/v1/records?before=2100-01-01T00:00:00Z&domain=generations").await.expect(200);
    let marked = service.get(&format!("{SNAPSHOTS}/{id}")).await.expect(200);
    assert_eq!(marked["erased_records"], inside.len());
    assert_eq!(service.get(path(&snapshot)).await.body, before.body);
}

#[tokio::test]
async fn the_same_request_returns_the_same_snapshot_and_another_is_a_conflict() {
    let service = Service::open().await;
    service.accept(&logs(2)).await;
    let id = Uuid::from_u128(7);
    let new = json!({"id": id, "dataset": "training-pairs", "file": "jsonl", "min_chars": 2, "split": null});
    let snapshot = built(&service, &new).await;
    assert_eq!(service.post(SNAPSHOTS, &new).await.expect(200), snapshot);
    service.post(SNAPSHOTS, &with(new.clone(), &json!({"file": "parquet"}))).await.refused(409, &[]);
    for (more, pointer) in [
        (json!({"dataset": "rumours"}), "/dataset"),
        (json!({"file": "csv"}), "/file"),
        (json!({"format": "letor"}), "/format"),
        (json!({"dataset": "rankings", "format": "letor", "min_chars": null}), "/format"),
        (json!({"colour": "red"}), "/colour"),
        (json!({"cursor": "x"}), "/cursor"),
        (json!({"min_chars": [1]}), "/min_chars"),
        (json!({"min_chars": -1}), "/min_chars"),
        (json!({"keep_days": 0}), "/keep_days"),
        (json!({"name": "a/b"}), "/name"),
        (json!({"system": "x".repeat(65_537)}), "/system"),
        (json!({"as_of": "2100-01-01T00:00:00Z"}), "/as_of"),
        (json!({"exclude": Uuid::from_u128(8)}), "/exclude"),
        (json!({"dataset": "rankings", "min_chars": 2}), "/min_chars"),
    ] {
        let new = with(with(new.clone(), &json!({"id": null})), &more);
        service.post(SNAPSHOTS, &new).await.refused(422, &[pointer]);
    }
    let listed = service.get(&format!("{SNAPSHOTS}?dataset=training-pairs&state=complete")).await.expect(200);
    assert_eq!(listed["data"], json!([snapshot]));
    assert_eq!(service.get(&format!("{SNAPSHOTS}?state=failed")).await.expect(200)["data"], json!([]));
    service.delete(&format!("{SNAPSHOTS}/{id}")).await.gone();
    service.delete(&format!("{SNAPSHOTS}/{id}")).await.refused(404, &[]);
    service.get(path(&snapshot)).await.refused(404, &[]);
    let audit = service.get("/v1/audit").await.expect(200);
    let actions: Vec<_> =
        audit["data"].as_array().expect("data").iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["snapshot_deleted", "snapshot_made"]);
    for table in ["snapshots", "snapshot_chunks", "snapshot_contents"] {
        let sql = format!("select count(*) from {table}");
        let count: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(service.pool()).await.expect("a count");
        assert_eq!(count, 0, "{table}");
    }
}

#[tokio::test]
async fn snapshots_are_of_one_project_and_not_more_than_allowed() {
    let exports = Limits { most_snapshots: 2, ..settings().exports };
    let service = Service::with(Settings { exports, ..settings() }).await;
    service.project("other").await;
    let new = json!({"dataset": "training-pairs"});
    let snapshot = built(&service, &new).await;
    built(&service, &new).await;
    let refused = service.post(SNAPSHOTS, &new).await.refused(409, &[]);
    assert_eq!(refused["detail"], "the project has 2 snapshots, and 2 are allowed; delete one first");
    let other = [("gleaner-project", "other")];
    service.call(Method::POST, SNAPSHOTS, &other, Some(&new)).await.expect(202);
    for path in [path(&snapshot), snapshot["card"].as_str().expect("a path")] {
        service.call(Method::GET, path, &other, None).await.refused(404, &[]);
    }
    service
        .call(
            Method::DELETE,
            &format!("{SNAPSHOTS}/{}", snapshot["id"].as_str().expect("an id")),
            &other,
            None,
        )
        .await
        .refused(404, &[]);
    let query = format!("{TRAINING}?exclude={}", snapshot["id"].as_str().expect("an id"));
    service.call(Method::GET, &query, &other, None).await.refused(422, &["/exclude"]);
}

#[tokio::test]
async fn snapshots_are_deleted_after_their_keep_days() {
    let service = Service::open().await;
    let [kept, old] =
        [json!({}), json!({"keep_days": 1})].map(|more| with(json!({"dataset": "training-pairs"}), &more));
    let (kept, old) = (built(&service, &kept).await, built(&service, &old).await);
    assert_eq!((kept["keep_until"].is_null(), old["keep_until"].is_string()), (true, true));
    let sql = "update snapshots set keep_until = now() - interval '1 second' where keep_until is not null";
    sqlx::query(sql).execute(service.pool()).await.expect("a day passes");
    service.build_snapshots().await;
    service.get(path(&old)).await.refused(404, &[]);
    assert_eq!(service.get(path(&kept)).await.status, 200);
}

#[tokio::test]
async fn a_secret_in_a_parameter_is_neither_stored_nor_in_the_file() {
    let service = Service::open().await;
    service.accept(&logs(1)).await;
    let secret = format!("ghp_{}", "a1B2c3".repeat(6));
    let new = json!({"dataset": "training-pairs", "file": "jsonl", "system": format!("the key is {secret}")});
    let snapshot = built(&service, &new).await;
    let file = service.get(path(&snapshot)).await;
    assert_eq!(file.rows()[0]["messages"][0]["content"], "the key is [redacted:secrets]");
    assert!(!service.dump().await.contains(&secret));
}

#[tokio::test]
async fn secrets_in_the_name_and_the_licence_of_a_snapshot_are_not_stored() {
    const TOKEN: &str = "ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI";
    let service = Service::open().await;
    service.accept(&logs(1)).await;
    let new = json!({"dataset": "training-pairs", "file": "jsonl", "name": TOKEN, "licence": format!("by {TOKEN}")});
    let snapshot = built(&service, &new).await;
    let (name, licence) = (snapshot["name"].as_str(), snapshot["licence"].as_str());
    assert_eq!((name, licence), (Some("-redacted-secrets-"), Some("by [redacted:secrets]")));
    assert_eq!(service.get(path(&snapshot)).await.rows().len(), 1);
    assert!(!service.dump().await.contains(TOKEN));
}
