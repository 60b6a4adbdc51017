//! Formats of preference pairs, accepted suggestions and rankings, byte for byte.

use serde_json::json;
use uuid::Uuid;

use super::{ACCEPTED, PREFERENCES, RANKINGS, finished, four};
use crate::support::{Service, column, with};

async fn text(service: &Service, path: &str) -> String {
    let answer = service.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text()
}

const CONTEXT: &str = r#"{"role":"user","content":"{\"blocks\":[{\"input\":\"git add .\"}]}"}"#;

const TOLD: &str = r#"{"role":"system","content":"Be brief"},{"role":"user","content":"Next?"}"#;

fn said(text: &str) -> String {
    format!(r#"[{{"role":"assistant","content":"{text}"}}]"#)
}

#[tokio::test]
async fn each_format_of_preference_pairs_is_byte_exact() {
    let service = four().await;
    let pair = |prompt: &str, chosen: &str, rejected: &str| {
        format!("{{\"prompt\":[{prompt}],\"chosen\":{},\"rejected\":{}}}\n", said(chosen), said(rejected))
    };
    let label = |prompt: &str, text: &str, label: bool| {
        format!("{{\"prompt\":[{prompt}],\"completion\":{},\"label\":{label}}}\n", said(text))
    };
    let exact = pair(TOLD, "git commit", "ls");
    let partial = pair(CONTEXT, "git push", "pwd");
    let none = pair(CONTEXT, "make", "ls");
    for (query, expected) in [
        ("", exact.clone()),
        ("?format=trl-preference&match_type=exact", exact.clone()),
        ("?match_type=partial", partial.clone()),
        ("?match_type=prefix", String::new()),
        ("?match_type=none&include_typed=true", none.clone()),
        ("?include_typed=true", format!("{exact}{partial}{none}")),
        ("?match_type=partial,exact", format!("{exact}{partial}")),
        (
            "?format=openai-preference",
            format!(
                "{{\"input\":{{\"messages\":[{TOLD}]}},\"preferred_output\":{},\"non_preferred_output\":{}}}\n",
                said("git commit"),
                said("ls")
            ),
        ),
        (
            "?format=trl-kto&match_type=exact,prefix",
            [label(TOLD, "git commit", true), label(TOLD, "ls", false), label(CONTEXT, "git", true)].concat(),
        ),
        (
            "?format=raw",
            format!(
                "{{\"prompt\":[{TOLD}],\"chosen\":\"git commit\",\"rejected\":\"ls\",\"chosen_index\":1,\
                 \"rejected_index\":0,\"match_type\":\"exact\",\"suggestion_id\":\"{}\"}}\n",
                Uuid::from_u128(1)
            ),
        ),
    ] {
        assert_eq!(text(&service, &format!("{PREFERENCES}{query}")).await, expected, "{query}");
    }
    service.get(&format!("{PREFERENCES}?match_type=none")).await.refused(422, &["/include_typed"]);
    service.get(&format!("{PREFERENCES}?match_type=near")).await.refused(422, &["/match_type"]);
    service.get(&format!("{PREFERENCES}?format=openai")).await.refused(422, &["/format"]);
}

#[tokio::test]
async fn each_format_of_accepted_suggestions_is_byte_exact() {
    let service = four().await;
    for (query, expected) in [
        ("", format!("{{\"messages\":[{TOLD},{}]}}\n", said("git commit").trim_matches(['[', ']']))),
        (
            "?format=trl-prompt-completion",
            format!("{{\"prompt\":[{TOLD}],\"completion\":{}}}\n", said("git commit")),
        ),
        (
            "?format=alpaca&match_type=exact,prefix",
            concat!(
                r#"{"instruction":"Next?","input":"","output":"git commit","system":"Be brief"}"#,
                "\n",
                r#"{"instruction":"{\"blocks\":[{\"input\":\"git add .\"}]}","input":"","output":"git","system":""}"#,
                "\n"
            )
            .to_owned(),
        ),
        (
            "?format=raw",
            format!(
                "{{\"prompt\":[{TOLD}],\"accepted\":\"git commit\",\"accepted_index\":1,\"match_type\":\"exact\",\
                 \"suggestion_id\":\"{}\"}}\n",
                Uuid::from_u128(1)
            ),
        ),
    ] {
        assert_eq!(text(&service, &format!("{ACCEPTED}{query}")).await, expected, "{query}");
    }
    let rows = service.get(&format!("{ACCEPTED}?include=metadata")).await.rows();
    let metadata = &rows[0]["metadata"];
    let expected = json!({"suggestion_id": Uuid::from_u128(1), "match_type": "exact", "accepted_index": 1,
        "viewed_indices": [0, 1], "cycle_count": 1, "displayed_index_at_submit": 1, "context_block_count": 1});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&metadata[name], value, "{name}");
    }
}

#[tokio::test]
async fn each_format_of_rankings_is_byte_exact() {
    let service = four().await;
    let id = |number: u128| Uuid::from_u128(number);
    let letor = format!(
        "# features: 1:position 2:characters 3:words 4:context_blocks 5:typed_before 6:same_command\n\
         0 qid:1 1:0 2:2 3:1 4:1 5:0 6:0 # docid={0}:0 match=exact\n\
         2 qid:1 1:1 2:10 3:2 4:1 5:0 6:1 # docid={0}:1 match=exact\n\
         1 qid:2 1:0 2:3 3:1 4:1 5:0 6:1 # docid={1}:0 match=partial\n\
         0 qid:2 1:1 2:3 3:1 4:1 5:0 6:0 # docid={1}:1 match=partial\n\
         1 qid:3 1:0 2:7 3:2 4:1 5:0 6:1 # docid={2}:0 match=prefix\n\
         0 qid:4 1:0 2:2 3:1 4:1 5:0 6:0 # docid={3}:0 match=none\n",
        id(1),
        id(2),
        id(3),
        id(4)
    );
    let answer = service.get(RANKINGS).await;
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.text(), letor);
    assert_eq!(
        text(&service, &format!("{RANKINGS}?format=lightgbm-tsv&match_type=prefix")).await,
        "label\tqid\tposition\tcharacters\twords\tcontext_blocks\ttyped_before\tsame_command\n\
         1\t1\t0\t7\t2\t1\t0\t1\n"
    );
    assert_eq!(
        text(&service, &format!("{RANKINGS}?format=raw&match_type=partial")).await,
        format!(
            "{{\"suggestion_id\":\"{}\",\"prompt\":[{CONTEXT}],\"input\":\"git push\",\"match_type\":\"partial\",\
             \"candidates\":[{{\"index\":0,\"text\":\"git\",\"label\":1,\"viewed\":true}},\
             {{\"index\":1,\"text\":\"pwd\",\"label\":0,\"viewed\":true}}]}}\n",
            id(2)
        )
    );
    let mut pieces = String::new();
    let mut cursor = String::new();
    loop {
        let piece = service.get(&format!("{RANKINGS}?limit=1{cursor}")).await;
        pieces.push_str(&piece.text());
        let Some(next) = piece.header("gleaner-next-cursor") else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pieces, letor, "pieces count on, and only the first has the header");
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
    let first = json!({"_label_cost": -1.0, "_label_probability": 0.8, "_label_Action": 1, "_labelIndex": 0,
        "Timestamp": "2024-01-01T00:00:00.000000Z", "Version": "1", "EventId": Uuid::from_u128(1), "a": [1, 2],
        "c": {"Context": {"blocks": 1, "last": "git"}, "_multi": [
            {"Suggestion": {"command": "git", "characters": 10, "words": 2, "typed_before": 0, "same_command": 1}},
            {"Suggestion": {"command": "ls", "characters": 2, "words": 1, "typed_before": 0, "same_command": 0}}]},
        "p": [0.8, 0.2], "VWState": {"m": "policy-1"}});
    assert_eq!(service.get(&path).await.rows(), [first]);
    let all = service.get(&format!("{path}&assume_uniform=true")).await.rows();
    assert_eq!(column(&all, "p"), [json!([0.8, 0.2]), json!([0.5, 0.5])]);
    assert_eq!(column(&all, "_label_cost"), [json!(-1.0), json!(0.0)]);
}
