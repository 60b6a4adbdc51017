//! Formats of preference pairs, accepted suggestions and rankings, byte for byte.

use serde_json::json;

use super::{ACCEPTED, PREFERENCES, RANKINGS, finished, four};
use crate::support::{Service, assert_text, assert_whole, bodies, column, eventually, with};

#[tokio::test]
async fn each_format_of_preference_pairs_is_byte_exact() {
    let service = four().await;
    let queries = [
        "",
        "format=trl-preference&match_type=exact",
        "match_type=partial",
        "match_type=prefix",
        "match_type=none&include_typed=true",
        "include_typed=true",
        "match_type=partial,exact",
        "format=openai-preference",
        "format=trl-kto&match_type=exact,prefix",
        "format=llamafactory-preference",
        "format=llamafactory-kto&match_type=exact",
        "format=trl-preference&system=Be+kind",
        "format=raw",
    ];
    assert_text!("preference_pairs", bodies(&service, PREFERENCES, &queries).await);
    service.get(&format!("{PREFERENCES}?match_type=none")).await.refused(422, &["/include_typed"]);
    service.get(&format!("{PREFERENCES}?match_type=near")).await.refused(422, &["/match_type"]);
    service.get(&format!("{PREFERENCES}?format=openai")).await.refused(422, &["/format"]);
}

#[tokio::test]
async fn each_format_of_accepted_suggestions_is_byte_exact() {
    let service = four().await;
    let queries = [
        "",
        "format=trl-prompt-completion",
        "format=alpaca&match_type=exact,prefix",
        "format=raw",
        "prompt=request",
        "prompt=context",
        "format=alpaca&prompt=context",
        "format=raw&prompt=context&match_type=partial",
    ];
    assert_text!("accepted_suggestions", bodies(&service, ACCEPTED, &queries).await);
    service.get(&format!("{ACCEPTED}?prompt=intent")).await.refused(422, &["/prompt"]);
    service.get(&format!("{PREFERENCES}?prompt=context")).await.refused(422, &["/prompt"]);
    let rows = service.get(&format!("{ACCEPTED}?include=metadata")).await.rows();
    assert_whole!("metadata_of_accepted_suggestions", rows[0]["metadata"]);
}

#[tokio::test]
async fn each_format_of_rankings_is_byte_exact() {
    let service = four().await;
    let queries = [
        "",
        "format=letor&position=feature",
        "format=lightgbm-tsv&match_type=prefix",
        "format=lightgbm-tsv&match_type=exact&propensities=true",
        "format=lightgbm-tsv&match_type=exact&position=feature",
        "format=raw&match_type=partial",
    ];
    assert_text!("rankings", bodies(&service, RANKINGS, &queries).await);
    let mut pieces = String::new();
    let mut cursor = String::new();
    loop {
        let piece = service.get(&format!("{RANKINGS}?limit=1{cursor}")).await;
        pieces.push_str(&piece.text());
        let Some(next) = piece.header("gleaner-next-cursor") else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(
        pieces,
        service.get(RANKINGS).await.text(),
        "pieces count on, and only the first has the header"
    );
    service.get(&format!("{RANKINGS}?include=metadata")).await.refused(422, &["/include"]);
    service.get(&format!("{RANKINGS}?assume_uniform=true")).await.refused(422, &["/assume_uniform"]);
    service.get(&format!("{RANKINGS}?format=raw&position=bias")).await.refused(422, &["/position"]);
    service
        .get(&format!("{RANKINGS}?format=vw-dsjson&propensities=true"))
        .await
        .refused(422, &["/propensities"]);
    service.get(&format!("{RANKINGS}?min_candidates=0")).await.refused(422, &["/min_candidates"]);
}

#[tokio::test]
async fn a_slate_has_as_many_candidates_as_are_asked_for() {
    let service = four().await;
    // What was looked at twice, and what has the text of the one that was chosen, counts once.
    service
        .accept(&[
            finished(5, &["ls", "pwd"], &[0, 0], "ls"),
            finished(6, &["make", "make", "pwd"], &[0, 1], "make"),
        ])
        .await;
    let ids = async |least: &str| {
        let rows = service.get(&format!("{RANKINGS}?format=raw{least}")).await.rows();
        let graded = |row: &serde_json::Value| row["candidates"].as_array().expect("candidates").len();
        rows.iter().map(graded).collect::<Vec<_>>()
    };
    // An export ends before the oldest write in progress, which may be one of the service's own.
    eventually("all are exported", async || ids("").await.len() == 6).await;
    assert_eq!(ids("").await, [2, 2, 1, 1, 1, 1]);
    assert_eq!(ids("&min_candidates=1").await, [2, 2, 1, 1, 1, 1]);
    assert_eq!(ids("&min_candidates=2").await, [2, 2]);
    assert_eq!(ids("&min_candidates=3").await, [0; 0]);
    let lines = service.get(&format!("{RANKINGS}?format=lightgbm-tsv&min_candidates=2")).await.text();
    assert_eq!(lines.lines().count(), 1 + 4);
}

#[tokio::test]
async fn the_propensity_of_a_position_is_how_often_it_was_looked_at_where_enough_slates_say() {
    let service = Service::open().await;
    // Two suggestions in 100 slates, a third one in only 60 of them.
    let slate = |number: u128| {
        let suggestions: &[&str] = if number < 60 { &["a", "b", "c"] } else { &["a", "b"] };
        let viewed: &[i32] = if number.is_multiple_of(4) { &[0, 1] } else { &[0] };
        finished(number, suggestions, viewed, "a")
    };
    service.accept(&(0..99).map(slate).collect::<Vec<_>>()).await;
    let of_first = async || {
        let rows =
            service.get(&format!("{RANKINGS}?format=raw&propensities=true&min_candidates=2")).await.rows();
        let candidates = rows[0]["candidates"].as_array().expect("candidates").clone();
        candidates.iter().map(|candidate| candidate["propensity"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of_first().await, [json!(null), json!(null)], "too few");
    service.accept(&[slate(99)]).await;
    assert_eq!(of_first().await, [json!(1.0), json!(0.25)]);
    let lines = service.get(&format!("{RANKINGS}?propensities=true&min_candidates=2&limit=1")).await.text();
    let second = lines.lines().nth(2).expect("a line");
    assert!(second.ends_with(" match=exact bias_position=1 propensity=0.25"), "{second}");
    let without = service.get(&format!("{RANKINGS}?format=raw&limit=1")).await.rows();
    assert_eq!(without[0]["candidates"][0].get("propensity"), None);
}

#[tokio::test]
async fn bandit_decisions_need_logged_propensities_or_the_word_that_none_are_assumed() {
    let service = Service::open().await;
    let logged = with(
        finished(1, &["git status", "ls"], &[0], "git status"),
        &json!({"propensities": [0.8, 0.2], "policy_id": "policy-1", "created_at": 1_704_067_200}),
    );
    service.accept(&[logged, finished(2, &["ls", "pwd"], &[0, 1], "pwd")]).await;
    let path = format!("{RANKINGS}?format=vw-dsjson");
    assert_whole!("a_bandit_decision", json!(service.get(&path).await.rows()));
    let all = service.get(&format!("{path}&assume_uniform=true")).await.rows();
    assert_eq!(column(&all, "p"), [json!([0.8, 0.2]), json!([0.5, 0.5])]);
    assert_eq!(column(&all, "_label_cost"), [json!(-1.0), json!(0.0)]);
}

#[tokio::test]
async fn a_first_suggestion_with_the_text_of_the_one_that_was_accepted_costs_as_little() {
    let service = Service::open().await;
    let second = finished(1, &["make", "make"], &[0, 1], "make");
    service.accept(&[with(second, &json!({"match_type": "exact", "accepted_index": 1}))]).await;
    let rows = service.get(&format!("{RANKINGS}?format=vw-dsjson&assume_uniform=true")).await.rows();
    assert_eq!(column(&rows, "_label_cost"), [json!(-1.0)]);
}
