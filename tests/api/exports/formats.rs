//! Formats of training and correction pairs, byte for byte.

use serde_json::json;

use super::{CORRECTIONS, TRAINING, rows, solved};
use crate::support::{Service, failed, passed, scrub, with};

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
    let (user, answer) = (
        r#"{"role":"user","content":"Create \"fund\"\\\t<b>"}"#,
        r#"{"role":"assistant","content":"(cbu.create\n  :name \"Ünï 😀\")"}"#,
    );
    let (user_2, answer_2) =
        (r#"{"role":"user","content":"Second"}"#, r#"{"role":"assistant","content":"(y)"}"#);
    let openai = format!("{{\"messages\":[{user},{answer}]}}\n{{\"messages\":[{user_2},{answer_2}]}}\n");
    let system = r#"{"role":"system","content":"Be \"exact\""}"#;
    for (query, expected) in [
        ("", openai.clone()),
        ("?format=openai", openai),
        (
            "?system=Be+%22exact%22",
            format!(
                "{{\"messages\":[{system},{user},{answer}]}}\n{{\"messages\":[{system},{user_2},{answer_2}]}}\n"
            ),
        ),
        (
            "?format=trl-prompt-completion",
            format!(
                "{{\"prompt\":[{user}],\"completion\":[{answer}]}}\n{{\"prompt\":[{user_2}],\"completion\":[{answer_2}]}}\n"
            ),
        ),
        (
            "?format=trl-prompt-completion&system=Be+%22exact%22&limit=1",
            format!("{{\"prompt\":[{system},{user}],\"completion\":[{answer}]}}\n"),
        ),
        (
            "?format=alpaca",
            concat!(
                r#"{"instruction":"Create \"fund\"\\\t<b>","input":"","output":"(cbu.create\n  :name \"Ünï 😀\")"}"#,
                "\n",
                r#"{"instruction":"Second","input":"","output":"(y)"}"#,
                "\n"
            )
            .to_owned(),
        ),
        (
            "?format=rft",
            format!(
                "{{\"messages\":[{user}],\"reference_answer\":\"(cbu.create\\n  :name \\\"Ünï 😀\\\")\"}}\n\
                 {{\"messages\":[{user_2}],\"reference_answer\":\"(y)\"}}\n"
            ),
        ),
        (
            "?format=raw",
            concat!(
                r#"{"user_intent":"Create \"fund\"\\\t<b>","valid_dsl":"(cbu.create\n  :name \"Ünï 😀\")"}"#,
                "\n",
                r#"{"user_intent":"Second","valid_dsl":"(y)"}"#,
                "\n"
            )
            .to_owned(),
        ),
    ] {
        let answer = service.get(&format!("{TRAINING}{query}")).await;
        assert_eq!(answer.status, 200, "{query}");
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
        assert_eq!(answer.text(), expected, "{query}");
    }
    let with_system = rows(&service, &format!("{TRAINING}?format=alpaca&system=s&limit=1")).await;
    assert_eq!(with_system[0]["system"], "s");
}

#[tokio::test]
async fn each_format_of_correction_pairs_is_byte_exact() {
    let service = Service::open().await;
    let mut bad = failed(1, "(bad)", "Unknown verb");
    bad["lint_result"]["errors"] = json!(["Unknown verb", "Bad \"argument\""]);
    service.accept(&[solved(1, "Create", &[bad, passed(2, "(good)")])]).await;
    let user = r#"{"role":"user","content":"Create"}"#;
    let feedback = r#"{"role":"user","content":"Unknown verb\nBad \"argument\""}"#;
    let (bad, good) =
        (r#"{"role":"assistant","content":"(bad)"}"#, r#"{"role":"assistant","content":"(good)"}"#);
    let openai = format!(
        "{{\"messages\":[{user},{},{feedback},{}]}}\n",
        r#"{"role":"assistant","content":"(bad)","weight":0}"#,
        r#"{"role":"assistant","content":"(good)","weight":1}"#
    );
    for (format, expected) in [
        ("", openai.clone()),
        ("openai", openai),
        (
            "trl-prompt-completion",
            format!("{{\"prompt\":[{user},{bad},{feedback}],\"completion\":[{good}]}}\n"),
        ),
        (
            "trl-preference",
            format!("{{\"prompt\":[{user}],\"chosen\":[{good}],\"rejected\":[{bad}]}}\n"),
        ),
        (
            "openai-preference",
            format!(
                "{{\"input\":{{\"messages\":[{user}]}},\"preferred_output\":[{good}],\"non_preferred_output\":[{bad}]}}\n"
            ),
        ),
        (
            "trl-stepwise",
            "{\"prompt\":\"Create\",\"completions\":[\"(bad)\",\"(good)\"],\"labels\":[false,true]}\n".to_owned(),
        ),
        (
            "raw",
            "{\"user_intent\":\"Create\",\"bad_dsl\":\"(bad)\",\"error_message\":\"Unknown verb\\nBad \\\"argument\\\"\",\
             \"error_stage\":\"lint\",\"fixed_dsl\":\"(good)\",\"bad_attempt\":1,\"fixed_attempt\":2,\
             \"generation_id\":\"00000000-0000-0000-0000-000000000001\"}\n"
                .to_owned(),
        ),
    ] {
        let answer = service.get(&format!("{CORRECTIONS}?format={format}")).await;
        assert_eq!(answer.text(), expected, "{format}");
    }
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
    let common = json!({
        "generation_id": "id-1", "domain_name": "cbu", "model_used": "m", "session_id": "s", "cbu_id": "c",
        "instance_id": "i", "created_at": "time", "completed_at": "time", "metadata": "{\"k\": 1.5}",
    });
    let training =
        with(common.clone(), &json!({"rating": null, "total_attempts": 2, "raw_response": "needle 3"}));
    let pair = json!({"error_stage": "lint", "bad_raw_response": "needle 1"});
    let fix =
        with(pair.clone(), &json!({"bad_attempt": 1, "fixed_attempt": 3, "fixed_raw_response": "needle 3"}));
    let last = with(pair, &json!({"bad_attempt": 1, "fixed_attempt": null, "fixed_raw_response": null}));
    let steps = json!({"error_stage": null, "bad_attempt": null, "fixed_attempt": null, "bad_raw_response": null,
        "fixed_raw_response": null});
    for (path, formats, metadata) in [
        (format!("{TRAINING}?"), "openai trl-prompt-completion alpaca rft raw", training),
        (
            format!("{CORRECTIONS}?"),
            "openai trl-prompt-completion trl-preference openai-preference raw",
            with(common.clone(), &fix),
        ),
        (format!("{CORRECTIONS}?pairing=final&"), "openai raw", with(common.clone(), &last)),
        (format!("{CORRECTIONS}?"), "trl-stepwise", with(common, &steps)),
    ] {
        for format in formats.split(' ') {
            let plain = service.get(&format!("{path}format={format}")).await;
            assert!(!plain.text().contains("needle"), "{format}");
            let mut rows = rows(&service, &format!("{path}format={format}&include=metadata")).await;
            let shown = rows[0].as_object_mut().expect("an object").remove("metadata");
            assert_eq!(rows, plain.rows(), "{format}");
            assert_eq!(scrub(&shown.expect("metadata")), metadata, "{format}");
        }
    }
}
