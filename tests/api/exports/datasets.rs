//! The list of data sets, and parameters that a data set does not offer.

use super::{CORRECTIONS, TRAINING, solved};
use crate::support::{Service, assert_whole, failed, passed};

#[tokio::test]
async fn a_data_set_refuses_what_it_does_not_offer() {
    let service = Service::open().await;
    for (path, pointer) in [
        (format!("{TRAINING}?colour=red"), "/colour"),
        (format!("{TRAINING}?pairing=fix"), "/pairing"),
        (format!("{TRAINING}?format=trl-preference"), "/format"),
        (format!("{TRAINING}?format=parquet"), "/format"),
        (format!("{TRAINING}?min_rating=great"), "/min_rating"),
        (format!("{TRAINING}?include=everything"), "/include"),
        (format!("{TRAINING}?dedupe=fuzzy"), "/dedupe"),
        (format!("{TRAINING}?split=tests"), "/split"),
        (format!("{TRAINING}?split_by=intent"), "/split"),
        (format!("{TRAINING}?split=train&split_by=words"), "/split_by"),
        (format!("{TRAINING}?holdout=0.2"), "/split"),
        (format!("{TRAINING}?split=train&holdout=1.5"), "/holdout"),
        (format!("{TRAINING}?split=train&holdout=NaN"), "/holdout"),
        (format!("{TRAINING}?split=train&seed=-1"), "/seed"),
        (format!("{TRAINING}?limit=0"), "/limit"),
        (format!("{TRAINING}?limit=-1"), "/limit"),
        (format!("{TRAINING}?limit=many"), "/limit"),
        (format!("{TRAINING}?since=2&until=1"), "/since"),
        (format!("{TRAINING}?as_of=soon"), "/as_of"),
        (format!("{CORRECTIONS}?format=raw&system=s"), "/system"),
        (format!("{CORRECTIONS}?format=alpaca"), "/format"),
        (format!("{CORRECTIONS}?pairing=last"), "/pairing"),
        (format!("{CORRECTIONS}?format=trl-stepwise&pairing=fix"), "/pairing"),
        (format!("{CORRECTIONS}.jsonl?colour=red"), "/colour"),
    ] {
        service.get(&path).await.refused(422, &[pointer]);
    }
    for path in ["/v1/exports/rumours", "/v1/exports/rumours.jsonl", "/v1/exports/training-pairs.csv"] {
        service.get(path).await.refused(404, &[]);
    }
}

#[tokio::test]
async fn data_sets_are_listed_with_their_formats_and_counts() {
    let service = Service::open().await;
    service
        .accept(&[
            solved(1, "one", &[failed(1, "x", "e"), failed(2, "z", "e"), passed(3, "y")]),
            solved(2, "two", &[passed(1, "y")]),
        ])
        .await;
    assert_whole!("data_sets", service.get("/v1/exports").await.expect(200));
}
