//! Bodies of another media type, compressed bodies and zip bombs.

use std::io::Write as _;

use axum::body::Body;
use axum::http::{Method, header};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{LOGS, count, line, log};
use crate::support::{Answer, Service, request};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("packs");
    encoder.finish().expect("packs")
}

async fn post_encoded(
    service: &Service,
    path: &str,
    media_type: &str,
    encoding: &str,
    body: Vec<u8>,
) -> Answer {
    let request = request(Method::POST, path)
        .header(header::CONTENT_TYPE, media_type)
        .header(header::CONTENT_ENCODING, encoding);
    service.send(request.body(Body::from(body)).expect("a request")).await
}

#[tokio::test]
async fn a_body_of_another_media_type_is_refused() {
    let service = Service::open().await;
    let body = log("Create a fund").to_string();
    for media_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "",
        "json",
        "application/x-ndjson",
    ] {
        let answer = service.post_text(LOGS, media_type, body.clone()).await;
        let problem = answer.refused(415, &[]);
        assert_eq!(problem["type"], "/problems/unsupported-media-type");
    }
    let missing = request(Method::POST, LOGS).body(Body::from(body.clone())).expect("a request");
    service.send(missing).await.refused(415, &[]);
    for media_type in
        ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"]
    {
        service.post_text(LOGS, media_type, body.clone()).await.expect(201);
    }
    let event = line("Create a fund").to_string();
    for media_type in ["text/plain", "application/xml", ""] {
        service.post_text("/v1/events", media_type, event.clone()).await.refused(415, &[]);
    }
    for media_type in ["application/x-ndjson", "application/jsonl", "application/jsonl; charset=utf-8"] {
        let summary = service.post_text("/v1/events", media_type, event.clone()).await.expect(200);
        assert_eq!(summary["accepted"], 1, "{media_type}");
    }
}

#[tokio::test]
async fn compressed_bodies_are_taken_and_broken_ones_refused() {
    let service = Service::open().await;
    let body = log("Create a fund").to_string().into_bytes();
    let events = [line("one").to_string(), line("two").to_string()].join("\n").into_bytes();
    let zstd = |text: &[u8]| zstd::encode_all(text, 1).expect("packs");
    for (encoding, packed, packed_events) in
        [("gzip", gzip(&body), gzip(&events)), ("zstd", zstd(&body), zstd(&events))]
    {
        let json = "application/json";
        let made = post_encoded(&service, LOGS, json, encoding, packed.clone()).await;
        assert_eq!(made.expect(201)["user_intent"], "Create a fund");
        let summary =
            post_encoded(&service, "/v1/events", "application/x-ndjson", encoding, packed_events).await;
        assert_eq!(summary.expect(200)["accepted"], 2);
        let mut corrupt = packed.clone();
        let middle = corrupt.len() / 2;
        corrupt[middle] ^= 0xff;
        corrupt[middle + 1] ^= 0xff;
        for broken in [body.clone(), packed[..packed.len() / 2].to_vec(), corrupt, b"\x1f\x8b".to_vec()] {
            post_encoded(&service, LOGS, json, encoding, broken).await.refused(400, &[]);
        }
    }
    for encoding in ["br", "deflate", "gzip, gzip", "snappy"] {
        let answer = post_encoded(&service, LOGS, "application/json", encoding, body.clone()).await;
        answer.refused(415, &[]);
    }
    assert_eq!(count(&service).await, 6);
}

#[tokio::test]
async fn a_body_of_several_packed_parts_is_read_to_its_end() {
    let service = Service::open().await;
    let lines =
        |intents: [&str; 2]| intents.map(|intent| line(intent).to_string() + "\n").concat().into_bytes();
    let zstd = |text: &[u8]| zstd::encode_all(text, 1).expect("packs");
    let [one, two] = [lines(["one", "two"]), lines(["three", "four"])];
    for (encoding, parts) in [
        ("gzip", [gzip(&one), gzip(&two)]),
        ("GZIP", [gzip(&one), gzip(&two)]),
        ("x-gzip", [gzip(&one), gzip(&two)]),
        ("zstd", [zstd(&one), zstd(&two)]),
    ] {
        let media_type = "application/x-ndjson";
        let post = |body| post_encoded(&service, "/v1/events", media_type, encoding, body);
        assert_eq!(post(parts.concat()).await.expect(200)["accepted"], 4, "{encoding}");
        let [first, _] = parts;
        post([first, b"no part".to_vec()].concat()).await.refused(400, &[]);
    }
}

#[tokio::test]
async fn a_frame_that_asks_for_a_large_window_is_refused() {
    let service = Service::open().await;
    let with_window = |log: u32, text: &[u8]| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
        encoder.window_log(log).expect("a window");
        encoder.write_all(text).expect("packs");
        encoder.finish().expect("packs")
    };
    let events = [line("one").to_string(), line("two").to_string()].join("\n").into_bytes();
    let media_type = "application/x-ndjson";
    let summary = post_encoded(&service, "/v1/events", media_type, "zstd", with_window(23, &events)).await;
    assert_eq!(summary.expect(200)["accepted"], 2);
    // What is allowed to the first frame of a body is not more than what is allowed to the others.
    let second = [with_window(20, &events), with_window(24, &events)].concat();
    for packed in [with_window(24, &events), with_window(27, &events), second] {
        let problem =
            post_encoded(&service, "/v1/events", media_type, "zstd", packed).await.refused(400, &[]);
        assert!(problem["detail"].as_str().expect("a text").contains("memory"), "{problem}");
    }
    let twice = [with_window(23, b"\n"), with_window(23, &events)].concat();
    let summary = post_encoded(&service, "/v1/events", media_type, "zstd", twice).await;
    assert_eq!(summary.expect(200)["accepted"], 2);
}

#[tokio::test]
async fn a_zip_bomb_is_too_large() {
    let service = Service::open().await;
    let zeros = vec![b' '; 65 << 20];
    for (encoding, bomb) in
        [("gzip", gzip(&zeros)), ("zstd", zstd::encode_all(&zeros[..], 1).expect("packs"))]
    {
        assert!(bomb.len() < 1 << 20);
        for (path, media_type) in [(LOGS, "application/json"), ("/v1/events", "application/x-ndjson")] {
            let answer = post_encoded(&service, path, media_type, encoding, bomb.clone()).await;
            answer.refused(413, &[]);
        }
    }
}
