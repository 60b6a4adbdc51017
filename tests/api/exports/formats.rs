//! Formats of training and correction pairs, byte for byte.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{CORRECTIONS, TRAINING, rows, solved};
use crate::support::{Service, assert_text, assert_whole, bodies, column, failed, passed, with};

#[tokio::test]
async fn each_format_of_training_pairs_is_byte_exact() {
    let service = Service::open().await;
    let mut attempt = passed(1, "(cbu.create\n  :name \"Ünï 😀\")");
    attempt["raw_response"] = "needle".into();
    service
        .accept(&[
            solved(1, "Create \"fund\"\\\t<b>", &[attempt]),
            solved(2, "Second", &[failed(1, "(x)", "wrong"), passed(2, "(y)")]),
        ])
        .await;
    let queries = [
        "",
        "format=openai",
        "system=Be+%22exact%22",
        "format=trl-prompt-completion",
        "format=trl-prompt-completion&system=Be+%22exact%22&limit=1",
        "format=alpaca",
        "format=alpaca&system=s&limit=1",
        "format=rft",
        "format=rl&system=s",
        "format=pairs",
        "format=raw",
    ];
    assert_text!("training_pairs", bodies(&service, TRAINING, &queries).await);
}

#[tokio::test]
async fn each_format_of_correction_pairs_is_byte_exact() {
    let service = Service::open().await;
    let mut bad = failed(1, "(bad)", "Unknown verb");
    bad["lint_result"]["errors"] = json!(["Unknown verb", "Bad \"argument\""]);
    service.accept(&[solved(1, "Create", &[bad, passed(2, "(good)")])]).await;
    let queries = [
        "",
        "format=openai",
        "format=openai&weights=none&system=s",
        "format=trl-prompt-completion",
        "format=fix-prompt",
        "format=fix-prompt&system=s",
        "format=trl-preference",
        "format=trl-preference&system=s",
        "format=openai-preference",
        "format=llamafactory-preference",
        "format=trl-stepwise",
        "format=raw",
    ];
    assert_text!("correction_pairs", bodies(&service, CORRECTIONS, &queries).await);
}

#[tokio::test]
async fn metadata_is_one_more_key_and_only_then_is_the_raw_response_shown() {
    let service = Service::open().await;
    let raw = |number: i32| json!({"raw_response": format!("needle {number}"), "metadata": {"n": number}});
    let log = with(
        solved(
            1,
            "Create",
            &[with(failed(1, "(bad)", "wrong"), &raw(1)), with(passed(3, "(good)"), &raw(3))],
        ),
        &json!({"session_id": "s", "cbu_id": "c", "instance_id": "i", "model_used": "m", "metadata": {"k": 1.5}}),
    );
    service.accept(&[log]).await;
    for (name, path, formats) in [
        ("metadata_of_training_pairs", format!("{TRAINING}?"), "openai trl-prompt-completion alpaca rft raw"),
        (
            "metadata_of_correction_pairs",
            format!("{CORRECTIONS}?"),
            "openai trl-prompt-completion fix-prompt trl-preference openai-preference raw",
        ),
        ("metadata_of_final_pairs", format!("{CORRECTIONS}?pairing=final&"), "openai raw"),
        ("metadata_of_steps", format!("{CORRECTIONS}?"), "trl-stepwise"),
    ] {
        for format in formats.split(' ') {
            let plain = service.get(&format!("{path}format={format}")).await;
            assert!(!plain.text().contains("needle"), "{format}");
            let mut rows = rows(&service, &format!("{path}format={format}&include=metadata")).await;
            let shown = rows[0].as_object_mut().expect("an object").remove("metadata");
            assert_eq!(rows, plain.rows(), "{format}");
            assert_whole!(name, shown.expect("metadata"));
        }
    }
}

#[tokio::test]
async fn prompts_as_sent_and_raw_responses_are_exported_where_they_are_asked_for() {
    let service = Service::open().await;
    let request = json!({
        "messages": [{"role": "system", "content": "The tables are: fund."}, {"role": "user", "content": "How many?"}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    });
    let sent = |prompt: &str, response: &str| json!({"prompt_text": prompt, "raw_response": response});
    let asked = request.to_string();
    service
        .accept(&[
            solved(
                1,
                "Count",
                &[
                    with(failed(1, "(x)", "no"), &sent(&asked, "It is (x)")),
                    with(passed(2, "(y)"), &sent("Fix (x)", "Now (y)")),
                ],
            ),
            solved(2, "List", &[failed(1, "(z)", "no"), passed(2, "(l)")]),
        ])
        .await;
    let queries =
        ["prompt=sent", "completion=raw", "prompt=sent&completion=raw&format=rft", "prompt=sent&system=Else"];
    assert_text!("training_pairs_as_sent", bodies(&service, TRAINING, &queries).await);
    let queries = [
        "prompt=sent",
        "completion=raw&format=trl-preference",
        "prompt=sent&format=trl-prompt-completion&system=Else",
    ];
    assert_text!("correction_pairs_as_sent", bodies(&service, CORRECTIONS, &queries).await);
    for (path, pointer) in [
        (format!("{TRAINING}?format=raw&prompt=sent"), "/prompt"),
        (format!("{CORRECTIONS}?format=trl-stepwise&completion=raw"), "/completion"),
        (format!("{TRAINING}?format=raw&system=s"), "/system"),
        (format!("{CORRECTIONS}?format=trl-stepwise&system=s"), "/system"),
        (format!("{TRAINING}?format=alpaca&weights=none"), "/weights"),
        ("/v1/exports/rankings?min_chars=1".to_owned(), "/min_chars"),
    ] {
        service.get(&path).await.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn a_prompt_and_a_response_are_those_of_the_attempt_whose_program_is_exported() {
    let service = Service::open().await;
    let attempt = |number: i32, name: &str| {
        let texts =
            json!({"prompt_text": format!("ask for {name}"), "raw_response": format!("use ({name})")});
        with(passed(number, &format!("({name} )")), &texts)
    };
    let ended = |number: u128, attempts: &[Value], program: &str| {
        with(solved(number, &format!("i{number}"), attempts), &json!({"final_valid_dsl": program}))
    };
    service
        .accept(&[
            ended(1, &[attempt(1, "a")], "(own)"),
            ended(2, &[attempt(1, "a"), attempt(2, "b")], "(a)"),
            solved(3, "i3", &[attempt(1, "a"), attempt(2, "b")]),
        ])
        .await;
    let contents = async |query: &str, message: usize| {
        let rows = rows(&service, &format!("{TRAINING}?format=openai&{query}")).await;
        rows.iter().map(|row| row["messages"][message]["content"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(contents("completion=raw", 0).await, ["i2", "i3"]);
    assert_eq!(contents("completion=raw", 1).await, ["use (a)", "use (b)"]);
    assert_eq!(contents("prompt=sent", 0).await, ["ask for a", "ask for b"]);
    let all = rows(&service, &format!("{TRAINING}?format=raw&include=metadata")).await;
    let responses: Vec<_> = all.iter().map(|row| row["metadata"]["raw_response"].clone()).collect();
    assert_eq!(responses, [Value::Null, json!("use (a)"), json!("use (b)")]);
    for number in [1, 2] {
        let path = format!("/v1/generations/{}/review", Uuid::from_u128(number));
        service.put(&path, &json!({"rating": "poor", "corrected_dsl": "(right)"})).await.expect(200);
    }
    let corrected = rows(&service, &format!("{CORRECTIONS}?format=raw")).await;
    assert_eq!(column(&corrected, "bad_attempt"), [0, 1].map(Value::from));
}
