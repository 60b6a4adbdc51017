//! The data set of search pairs.

use serde_json::{Value, json};

use super::{associations, find, weak};
use crate::support::{Answer, Service, column, encoded, with};

#[tokio::test]
async fn search_pairs_have_the_answer_and_what_did_not_help() {
    let service = Service::open().await;
    let results = json!([{"path": "Button.tsx", "score": 0.42}, {"path": "Link.tsx", "score": 0.4}]);
    let search = with(weak("login button", 0), &json!({"results": results, "result_count": 2}));
    find(&service, search, &["auth/LoginButton.tsx", "Link.tsx"]).await;
    find(&service, with(weak("logout", 100), &json!({"results": [], "root": null})), &["a.rs", "b.rs"]).await;
    let rows = service.get("/v1/exports/search-pairs").await.rows();
    // What was offered and then read has helped, if less.
    let unhelpful = json!(["Button.tsx"]);
    assert_eq!(
        rows,
        [
            json!({"query": "login button", "path": "auth/LoginButton.tsx", "unhelpful": unhelpful, "root": "/src/app"}),
            json!({"query": "login button", "path": "Link.tsx", "unhelpful": unhelpful, "root": "/src/app"}),
            json!({"query": "logout", "path": "b.rs", "unhelpful": [], "root": null}),
            json!({"query": "logout", "path": "a.rs", "unhelpful": [], "root": null}),
        ]
    );
    let triplets = service.get("/v1/exports/search-pairs.jsonl?format=triplets").await.rows();
    assert_eq!(
        triplets,
        [
            json!({"anchor": "login button", "positive": "auth/LoginButton.tsx", "negative": "Button.tsx"}),
            json!({"anchor": "login button", "positive": "Link.tsx", "negative": "Button.tsx"}),
        ]
    );
    find(&service, with(weak("logout", 200), &json!({"results": [], "root": null})), &["a.rs"]).await;
    let count = async |parameters: &str| {
        service.get(&format!("/v1/exports/search-pairs{parameters}")).await.rows().len()
    };
    assert_eq!(count("").await, 5);
    assert_eq!(count("?root=/src/app").await, 2);
    assert_eq!(count("?limit=2").await, 4);
    let mut split = Vec::new();
    for part in ["train", "validation", "test"] {
        split.push(count(&format!("?split={part}&split_by=session&holdout=0.5")).await);
    }
    split.sort_unstable();
    assert_eq!(split[..2], [0, 0], "one session stands in one part");
    assert_eq!(split[2], 5);
    let metadata = service.get("/v1/exports/search-pairs?include=metadata").await.rows();
    assert_eq!(metadata[0]["metadata"]["agent_session_id"], "s");
    let listed = service.get("/v1/exports").await.expect(200);
    let listed =
        listed["data"].as_array().expect("data").iter().find(|set| set["dataset"] == "search-pairs").cloned();
    assert_eq!(
        listed,
        Some(
            json!({"dataset": "search-pairs", "formats": ["raw", "triplets", "pairs"], "rows": 5, "rows_estimated": false,
            "skipped": 0, "skipped_estimated": false})
        )
    );
}

#[tokio::test]
async fn rows_of_searches_are_equal_if_all_that_is_exported_of_them_is() {
    let service = Service::open().await;
    let search = |at: i64, root: &str, offered: &[&str]| {
        let results: Vec<_> = offered.iter().map(|path| json!({"path": path, "score": 0.4})).collect();
        let more = json!({"root": root, "results": results, "result_count": results.len()});
        with(weak("login", at), &more)
    };
    for (at, root, offered) in [
        (0, "/one", &["x.rs"][..]),
        (100, "/two", &["x.rs"]),
        (200, "/two", &["x.rs", "y.rs"]),
        (300, "/two", &["y.rs", "x.rs"]),
    ] {
        find(&service, search(at, root, offered), &["login.rs"]).await;
    }
    let rows = async |query: &str| {
        service.get(&format!("/v1/exports/search-pairs?dedupe=exact&{query}")).await.rows()
    };
    assert_eq!(rows("format=pairs").await, [json!({"anchor": "login", "positive": "login.rs"})]);
    let triplet = |negative: &str| json!({"anchor": "login", "positive": "login.rs", "negative": negative});
    assert_eq!(rows("format=triplets").await, [triplet("x.rs"), triplet("y.rs")]);
    let raw = |root: &str, unhelpful: Value| json!({"query": "login", "path": "login.rs", "unhelpful": unhelpful, "root": root});
    let [one, both] = [json!(["x.rs"]), json!(["x.rs", "y.rs"])];
    assert_eq!(rows("format=raw").await, [raw("/one", one.clone()), raw("/two", one), raw("/two", both)]);
    assert_eq!(rows("format=pairs&root=/two").await.len(), 1);
}

#[tokio::test]
async fn a_file_that_was_reported_as_wrong_is_no_answer_until_it_is_useful_or_found_again() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs", "b.rs"]).await;
    let found = associations(&service, "login button").await;
    let wrong = found.iter().find(|found| found["path"] == "a.rs").expect("an association");
    let path = format!("/v1/associations/{}/feedback", wrong["id"].as_str().expect("an id"));
    let export = async |parameters: &str| service.get(&format!("/v1/exports/search-pairs{parameters}")).await;
    let files = async |parameters: &str| {
        let mut files = column(&export(parameters).await.rows(), "path");
        files.sort_by_key(ToString::to_string);
        files
    };
    let report = async |verdict: &str| service.post(&path, &json!({"verdict": verdict})).await.expect(200);
    let before = export("").await;
    assert_eq!(before.rows().len(), 2);
    report("wrong").await;
    for parameters in ["", "?dedupe=exact"] {
        assert_eq!(files(parameters).await, ["b.rs"], "{parameters}");
    }
    assert_eq!(export("?format=pairs").await.rows(), [json!({"anchor": "login button", "positive": "b.rs"})]);
    // What was exported before the report is exported again.
    let as_of =
        |answer: &Answer| format!("?as_of={}", encoded(answer.header("gleaner-as-of").expect("a time")));
    assert_eq!(export(&as_of(&before)).await.rows(), before.rows());
    let without = export("").await;
    report("useful").await;
    assert_eq!(files("").await, ["a.rs", "b.rs"]);
    assert_eq!(export(&as_of(&without)).await.rows(), without.rows());
    report("wrong").await;
    assert_eq!(files("").await, ["b.rs"]);
    // It is found in a later search, whatever its agent's clock says, which says nothing about what was exported before.
    let without = export("").await;
    assert_eq!(column(&without.rows(), "path"), ["b.rs"]);
    find(&service, weak("login button", 100), &["a.rs"]).await;
    assert_eq!(files("").await, ["a.rs", "a.rs", "b.rs"]);
    assert_eq!(export(&as_of(&without)).await.rows(), without.rows());
}
