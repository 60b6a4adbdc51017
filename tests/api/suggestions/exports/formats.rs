//! Formats of preference pairs, accepted suggestions and rankings, byte for byte.

use serde_json::json;

use super::{ACCEPTED, PREFERENCES, RANKINGS, finished, four};
use crate::support::{Service, assert_text, assert_whole, bodies, column, with};

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
    let queries =
        ["", "format=letor", "format=lightgbm-tsv&match_type=prefix", "format=raw&match_type=partial"];
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
