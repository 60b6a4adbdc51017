//! File types and content encodings of an export.

use std::io::Read as _;

use axum::http::{Method, header};

use super::{CORRECTIONS, TRAINING, solved};
use crate::support::{Service, failed, passed};

#[tokio::test]
async fn an_export_comes_as_the_file_type_and_encoding_that_is_asked_for() {
    let service = Service::open().await;
    let logs: Vec<_> = (1..=40)
        .map(|id| solved(id, &format!("intent {id}"), &[failed(1, "x", "e"), passed(2, "y")]))
        .collect();
    service.accept(&logs).await;
    for path in [TRAINING, CORRECTIONS] {
        let query = "?format=raw&limit=30";
        let plain = service.get(&format!("{path}{query}")).await;
        assert_eq!(plain.rows().len(), 30);
        let file = service.get(&format!("{path}.jsonl{query}")).await;
        assert_eq!(file.body, plain.body);
        assert_eq!(file.header("content-type"), Some("application/x-ndjson"));
        let accept = [("accept", "application/jsonl")];
        let jsonl = service.call(Method::GET, &format!("{path}{query}"), &accept, None).await;
        assert_eq!(jsonl.body, plain.body);
        assert_eq!(jsonl.header("content-type"), Some("application/jsonl"));

        let unpack = |body: &[u8]| {
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(body).read_to_end(&mut text).expect("gzip");
            text
        };
        for accept in ["identity", "gzip, zstd, br"] {
            let headers = [("accept-encoding", accept)];
            let zipped = service.call(Method::GET, &format!("{path}.jsonl.gz{query}"), &headers, None).await;
            assert_eq!(zipped.header("content-type"), Some("application/gzip"));
            assert_eq!(zipped.header("content-encoding"), None, "not compressed twice");
            assert_eq!(unpack(&zipped.body), plain.body);
            assert!(zipped.header("gleaner-next-cursor").is_some());
        }
        for encoding in ["gzip", "zstd"] {
            let headers = [(header::ACCEPT_ENCODING.as_str(), encoding)];
            let packed = service.call(Method::GET, &format!("{path}{query}"), &headers, None).await;
            assert_eq!(packed.header("content-encoding"), Some(encoding));
            assert!(packed.body.len() < plain.body.len() / 2);
            let text = if encoding == "gzip" {
                unpack(&packed.body)
            } else {
                zstd::decode_all(packed.body.as_slice()).expect("zstd")
            };
            assert_eq!(text, plain.body);
        }
        let head = service.call(Method::HEAD, &format!("{path}{query}"), &[], None).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        assert!(head.header("gleaner-as-of").is_some());
    }
}
