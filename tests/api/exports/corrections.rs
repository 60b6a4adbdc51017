//! Correction pairs: which attempts of a log make a pair, and whose error is shown.

use serde_json::{Value, json};
use uuid::Uuid;

use super::files::built;
use super::{CORRECTIONS, TRAINING, rows, solved};
use crate::support::{Service, failed, passed, with};

/// Pairs of a chain by each rule, as (bad, fixed) attempt numbers.
async fn paired(service: &Service, pairing: &str) -> Vec<(Value, Value, Value)> {
    let rows = rows(service, &format!("{CORRECTIONS}?format=raw&pairing={pairing}")).await;
    rows.into_iter()
        .map(|row| (row["bad_attempt"].clone(), row["fixed_attempt"].clone(), row["fixed_dsl"].clone()))
        .collect()
}

/// Asserts which pairs each rule makes of a chain.
async fn assert_paired(name: &str, chain: &[Value], rules: [(&str, Value); 3]) {
    let service = Service::open().await;
    service.accept(&[solved(1, "Create", chain)]).await;
    for (pairing, expected) in rules {
        let pairs = expected.as_array().expect("pairs").iter();
        let expected: Vec<_> =
            pairs.map(|pair| (pair[0].clone(), pair[1].clone(), pair[2].clone())).collect();
        assert_eq!(paired(&service, pairing).await, expected, "{name}: {pairing}");
    }
}

#[tokio::test]
async fn chains_are_paired_by_the_rule_that_is_asked_for() {
    let silent = |number: i32, program: &str| json!({"attempt": number, "extracted_dsl": program, "parse_result": {"success": false}});
    let nothing = |number: i32| json!({"attempt": number, "raw_response": "I cannot"});
    let unjudged = |number: i32, program: &str| json!({"attempt": number, "extracted_dsl": program});
    for (name, chain, fix, next, last) in [
        (
            "two failures before a pass",
            vec![failed(1, "a", "e"), failed(2, "b", "e"), passed(3, "c")],
            json!([[2, 3, "c"]]),
            json!([[1, 2, "b"], [2, 3, "c"]]),
            json!([[1, null, "c"], [2, null, "c"]]),
        ),
        ("a pass at the first try", vec![passed(1, "a")], json!([]), json!([]), json!([])),
        (
            "the last failure has no error text",
            vec![failed(1, "a", "e"), silent(2, "b"), passed(3, "c")],
            json!([[1, 3, "c"]]),
            json!([[1, 2, "b"], [2, 3, "c"]]),
            json!([[1, null, "c"], [2, null, "c"]]),
        ),
        (
            "responses without a program and programs that nobody judged",
            vec![failed(1, "a", "e"), nothing(2), unjudged(3, "b"), nothing(4), passed(5, "c")],
            json!([[1, 5, "c"]]),
            json!([[1, 3, "b"]]),
            json!([[1, null, "c"]]),
        ),
        (
            "failures after the first pass",
            vec![failed(1, "a", "e"), passed(2, "b"), failed(3, "c", "e"), passed(4, "d")],
            json!([[1, 2, "b"]]),
            json!([[1, 2, "b"], [3, 4, "d"]]),
            json!([[1, null, "d"], [3, null, "d"]]),
        ),
        (
            "numbers with gaps that came in another order",
            vec![passed(9, "c"), failed(2, "a", "e"), failed(4, "b", "e")],
            json!([[4, 9, "c"]]),
            json!([[2, 4, "b"], [4, 9, "c"]]),
            json!([[2, null, "c"], [4, null, "c"]]),
        ),
        (
            "the same program again makes no pair",
            vec![failed(1, "a", "e"), failed(2, "a", "e"), passed(3, "b")],
            json!([[2, 3, "b"]]),
            json!([[2, 3, "b"]]),
            json!([[1, null, "b"], [2, null, "b"]]),
        ),
    ] {
        assert_paired(name, &chain, [("fix", fix), ("next", next), ("final", last)]).await;
    }
}

#[tokio::test]
async fn of_a_log_with_very_many_attempts_the_last_thousand_teach() {
    let service = Service::open().await;
    let mut chain: Vec<_> = (1..1_500).map(|number| failed(number, &format!("a{number}"), "e")).collect();
    chain.push(passed(1_500, "b"));
    service.accept(&[solved(1, "Create", &chain)]).await;
    for (pairing, first, count) in [("fix", 1_499, 1), ("next", 501, 999), ("final", 501, 999)] {
        let pairs = paired(&service, pairing).await;
        assert_eq!((&pairs[0].0, pairs.len()), (&json!(first), count), "{pairing}");
    }
}

#[tokio::test]
async fn attempts_before_eight_mebibytes_of_programs_teach_nothing_and_their_log_has_no_steps() {
    let service = Service::open().await;
    let long = |name: &str| format!("{name} {}", "x ".repeat(3 << 19));
    let mut chain: Vec<_> = (1..6).map(|number| failed(number, &long(&format!("a{number}")), "e")).collect();
    chain.push(passed(6, "b"));
    service.accept(&[solved(1, "Create", &chain)]).await;
    for (pairing, first, count) in [("fix", 5, 1), ("next", 3, 3), ("final", 3, 3)] {
        let pairs = paired(&service, pairing).await;
        assert_eq!((&pairs[0].0, pairs.len()), (&json!(first), count), "{pairing}");
    }
    assert_eq!(rows(&service, &format!("{CORRECTIONS}?format=trl-stepwise")).await.len(), 0);
}

#[tokio::test]
async fn a_row_whose_texts_are_too_long_together_is_left_out() {
    let service = Service::open().await;
    for (log, intent, response) in
        [(1, "y ".repeat(3 << 20), "x ".repeat(3 << 20)), (2, "Create".to_owned(), "x".to_owned())]
    {
        let answered = |attempt: Value| with(attempt, &json!({"raw_response": response}));
        service
            .accept(&[solved(log, &intent, &[answered(failed(1, "a", "e")), answered(passed(2, "b"))])])
            .await;
    }
    for (parameters, count) in [("", 2), ("?completion=raw", 1), ("?format=raw", 2)] {
        assert_eq!(rows(&service, &format!("{CORRECTIONS}{parameters}")).await.len(), count, "{parameters}");
    }
}

#[tokio::test]
async fn errors_and_metadata_count_in_the_length_of_a_row() {
    let service = Service::open().await;
    let text = |mebibytes: usize| "x ".repeat(mebibytes << 19);
    let log = |id: u128, error: &str, note: &str| {
        let log = solved(id, &text(2), &[failed(1, &text(1), error), passed(2, &text(3))]);
        with(log, &json!({"metadata": {"note": note}}))
    };
    service.accept(&[log(1, "e", "n")]).await;
    service.accept(&[log(2, &text(3), "n")]).await;
    service.accept(&[log(3, &text(1), &text(2))]).await;
    for (parameters, count) in [("?format=raw", 2), ("?format=raw&include=metadata", 1)] {
        assert_eq!(rows(&service, &format!("{CORRECTIONS}{parameters}")).await.len(), count, "{parameters}");
    }
    let snapshot = built(&service, &json!({"dataset": "correction-pairs", "format": "raw"})).await;
    assert_eq!(snapshot["rows"], 2);
}

#[tokio::test]
async fn a_row_that_is_too_long_when_it_has_come_is_left_out_and_what_follows_it_or_a_very_long_one_is_not() {
    let service = Service::open().await;
    for log in 1..5 {
        service.accept(&[solved(log, "Create", &[passed(1, "b")])]).await;
    }
    let long = "update generations set metadata = jsonb_build_object('note', repeat('x', $2)) where id = $1";
    for (log, bytes) in [(1, 17_000_000), (2, 9_000_000), (3, 9_000_000)] {
        let long = sqlx::query(long).bind(Uuid::from_u128(log)).bind(bytes);
        long.execute(service.pool()).await.expect("a long log");
    }
    assert_eq!(rows(&service, TRAINING).await.len(), 4);
    let rows = rows(&service, &format!("{TRAINING}?include=metadata")).await;
    let logs: Vec<_> = rows.iter().map(|row| row["metadata"]["generation_id"].clone()).collect();
    assert_eq!(logs, [2, 3, 4].map(|log| json!(Uuid::from_u128(log))));
    let profile = service.get(&format!("{TRAINING}/profile")).await.expect(200);
    assert_eq!((&profile["rows"], &profile["profiled"]), (&json!(4), &json!(3)));
}

#[tokio::test]
async fn a_training_pair_has_at_most_eight_mebibytes() {
    let service = Service::open().await;
    for (log, bytes) in [(1, 7 << 20), (2, 6 << 20)] {
        let id = Uuid::from_u128(log);
        let program = "x".repeat(3 << 19);
        let start =
            json!({"event": "generation", "id": id, "user_intent": "y".repeat(bytes), "domain_name": "d"});
        let outcome = json!({"event": "generation_outcome", "generation_id": id, "success": true, "final_valid_dsl": program});
        service.accept(&[start, outcome]).await;
    }
    let pairs = rows(&service, TRAINING).await;
    assert_eq!(pairs.len(), 1);
}

#[tokio::test]
async fn only_logs_that_succeeded_are_paired() {
    let service = Service::open().await;
    let chain = [failed(1, "a", "e"), passed(2, "b")];
    let mut given_up = solved(1, "Create", &chain);
    given_up["success"] = false.into();
    let mut open = solved(2, "Create", &chain);
    open["success"] = Value::Null;
    service.accept(&[given_up, open]).await;
    for path in [
        format!("{TRAINING}?"),
        format!("{CORRECTIONS}?"),
        format!("{CORRECTIONS}?pairing=next"),
        format!("{CORRECTIONS}?pairing=final"),
        format!("{CORRECTIONS}?format=trl-stepwise"),
    ] {
        assert_eq!(service.get(&path).await.text(), "", "{path}");
    }
    let outcome = json!({"success": true, "final_valid_dsl": "z"});
    service.post(&format!("/v1/generations/{}/finalize", Uuid::from_u128(2)), &outcome).await.expect(200);
    let pair = |fixed: Value, program: &str| vec![(json!(1), fixed, json!(program))];
    assert_eq!(paired(&service, "fix").await, pair(json!(2), "b"));
    assert_eq!(paired(&service, "final").await, pair(Value::Null, "z"));
}

#[tokio::test]
async fn the_error_is_that_of_the_first_stage_that_failed() {
    let service = Service::open().await;
    let no = |error: &str| json!({"success": false, "error": error});
    let attempt = |more: Value| with(json!({"attempt": 1, "extracted_dsl": "bad"}), &more);
    let mut lines = Vec::new();
    let cases = [
        (
            json!({"parse_result": no("p"), "lint_result": {"valid": false, "errors": ["l"]}, "compile_result": no("c")}),
            json!("p"),
            "parse",
        ),
        (
            json!({"parse_result": {"success": true}, "lint_result": {"valid": false, "errors": ["l", "m"]},
                "compile_result": no("c")}),
            json!("l\nm"),
            "lint",
        ),
        (
            json!({"lint_result": {"valid": true, "errors": ["said"]}, "compile_result": no("c")}),
            json!("c"),
            "compile",
        ),
        (
            json!({"lint_result": {"valid": false, "errors": []}, "compile_result": no("c")}),
            Value::Null,
            "lint",
        ),
    ];
    for (number, (more, ..)) in cases.iter().enumerate() {
        let id = 1 + number as u128;
        lines.push(solved(id, "Create", &[attempt(more.clone()), passed(2, "good")]));
    }
    service.accept(&lines).await;
    let rows = rows(&service, &format!("{CORRECTIONS}?format=raw&pairing=next")).await;
    for (row, (_, message, stage)) in rows.iter().zip(&cases) {
        assert_eq!((&row["error_message"], &row["error_stage"]), (message, &json!(stage)));
    }
    assert_eq!(rows.len(), cases.len());
    assert_eq!(paired(&service, "fix").await.len(), 3);
    let said = service.get(&format!("{CORRECTIONS}?pairing=next")).await.rows();
    assert_eq!(said[3]["messages"][2]["content"], "That failed (lint).");
}

#[tokio::test]
async fn what_a_reviewer_found_poor_is_never_chosen_and_a_correction_is_a_pair_of_its_own() {
    let service = Service::open().await;
    service.accept(&[solved(1, "Create", &[failed(1, "a", "e"), passed(2, "b")])]).await;
    let of_two = |fixed: Value, program: &str| (json!(1), fixed, json!(program));
    let corrected = || vec![of_two(Value::Null, "c"), (json!(2), Value::Null, json!("c"))];
    for (review, fix, next, last, steps) in [
        (
            json!({"rating": "good"}),
            vec![of_two(json!(2), "b")],
            vec![of_two(json!(2), "b")],
            vec![of_two(Value::Null, "b")],
            1,
        ),
        (json!({"rating": "poor"}), vec![], vec![], vec![], 0),
        (
            json!({"rating": "poor", "corrected_dsl": "c", "note": "no name"}),
            corrected(),
            corrected(),
            corrected(),
            0,
        ),
        (
            json!({"rating": "acceptable", "corrected_dsl": " b "}),
            vec![of_two(Value::Null, " b ")],
            vec![of_two(Value::Null, " b ")],
            vec![of_two(Value::Null, " b ")],
            0,
        ),
    ] {
        let path = format!("/v1/generations/{}/review", Uuid::from_u128(1));
        service.put(&path, &review).await.expect(200);
        for (pairing, expected) in [("fix", fix), ("next", next), ("final", last)] {
            assert_eq!(paired(&service, pairing).await, expected, "{pairing} {review}");
        }
        let chains = rows(&service, &format!("{CORRECTIONS}?format=trl-stepwise")).await;
        assert_eq!(chains.len(), steps, "{review}");
    }
    let review = json!({"rating": "poor", "corrected_dsl": "c", "note": "no name"});
    service.put(&format!("/v1/generations/{}/review", Uuid::from_u128(1)), &review).await.expect(200);
    let rows = rows(&service, &format!("{CORRECTIONS}?format=fix-prompt")).await;
    let asked =
        rows.iter().map(|row| row["messages"][0]["content"].as_str().expect("a text")).collect::<Vec<_>>();
    assert_eq!(asked, ["Fix this DSL:\na\n\nError: e", "Fix this DSL:\nb\n\nError: no name"]);
    for (least, expected) in [("poor", 2), ("acceptable", 0)] {
        let found = service.get(&format!("{CORRECTIONS}?min_rating={least}")).await.rows();
        assert_eq!(found.len(), expected, "{least}");
    }
}

#[tokio::test]
async fn a_fix_that_failed_itself_is_only_in_the_format_that_says_so() {
    let service = Service::open().await;
    service.accept(&[solved(1, "Create", &[failed(1, "a", "e"), failed(2, "b", "e"), passed(3, "c")])]).await;
    let raw = rows(&service, &format!("{CORRECTIONS}?pairing=next&format=raw")).await;
    let told = raw.iter().map(|row| json!([row["bad_dsl"], row["fixed_dsl"], row["fixed_passed"]]));
    assert_eq!(told.collect::<Vec<_>>(), [json!(["a", "b", false]), json!(["b", "c", true])]);
    for format in ["openai", "trl-prompt-completion", "trl-preference", "openai-preference", "fix-prompt"] {
        let rows = rows(&service, &format!("{CORRECTIONS}?pairing=next&format={format}")).await;
        assert_eq!(rows.len(), 1, "{format}");
    }
}

#[tokio::test]
async fn a_profile_measures_the_wrong_program_and_its_error_as_part_of_the_question() {
    let service = Service::open().await;
    service.accept(&[solved(1, "Create", &[failed(1, "wrong", "an error"), passed(2, "right")])]).await;
    for (format, most) in [("openai", "Create".len() + "wrong".len() + "an error".len()), ("fix-prompt", 13)]
    {
        let profile = service.get(&format!("{CORRECTIONS}/profile?format={format}")).await.expect(200);
        assert_eq!(profile["prompt_characters"]["max"], most, "{format}");
    }
    let path = format!("{CORRECTIONS}?pairing=final&completion=raw");
    service.get(&path).await.refused(422, &["/completion"]);
}

#[tokio::test]
async fn blank_texts_and_programs_that_differ_in_white_space_only_are_not_exported() {
    let service = Service::open().await;
    service
        .accept(&[
            solved(1, " \n", &[failed(1, "a", "e"), passed(2, "b")]),
            solved(2, "Create", &[failed(1, "(a b)", "e"), passed(2, "( a\n\tb )")]),
            solved(3, "List", &[failed(1, " \t", "e"), passed(2, "l")]),
            solved(4, "Move", &[failed(1, "(m\u{b} a)", "e"), passed(2, "(m a)")]),
        ])
        .await;
    for (path, expected) in [
        (format!("{TRAINING}?format=raw"), vec!["Create", "List", "Move"]),
        (format!("{CORRECTIONS}?format=raw"), vec![]),
        (format!("{CORRECTIONS}?format=raw&pairing=next"), vec![]),
        (format!("{CORRECTIONS}?format=raw&pairing=final"), vec![]),
    ] {
        let rows = rows(&service, &path).await;
        assert_eq!(crate::support::column(&rows, "user_intent"), expected, "{path}");
    }
}

#[tokio::test]
async fn programs_that_differ_in_one_letter_are_a_correction_whatever_the_letter() {
    let service = Service::open().await;
    let logs = ('a'..='z').zip(1..).map(|(letter, number)| {
        solved(number, "Move", &[failed(1, &format!("({letter}. x)"), "e"), passed(2, "(. x)")])
    });
    service.accept(&logs.collect::<Vec<_>>()).await;
    assert_eq!(rows(&service, &format!("{CORRECTIONS}?format=raw")).await.len(), 26);
}

#[tokio::test]
async fn a_poor_program_is_not_chosen_if_it_was_not_judged_or_differs_in_white_space() {
    let of = async |last: Value, program: &str, review: Value| {
        let service = Service::open().await;
        let mut log = solved(1, "Create", &[failed(1, "a", "e"), last]);
        log["final_valid_dsl"] = json!(program);
        service.accept(&[log]).await;
        service.put(&format!("/v1/generations/{}/review", Uuid::from_u128(1)), &review).await.expect(200);
        paired(&service, "next").await
    };
    let unjudged = json!({"attempt": 2, "extracted_dsl": "b"});
    assert_eq!(of(unjudged, "b", json!({"rating": "poor"})).await, []);
    let corrected = [(json!(1), Value::Null, json!("c")), (json!(2), Value::Null, json!("c"))];
    let review = json!({"rating": "poor", "corrected_dsl": "c"});
    assert_eq!(of(passed(2, "b\n"), "b", review).await, corrected);
}

#[tokio::test]
async fn a_log_whose_programs_are_no_longer_stored_from_some_attempt_on_is_exported_with_the_steps_before() {
    let service = Service::open().await;
    let id = service.create("/v1/generations", json!({"user_intent": "Create", "domain_name": "cbu"})).await;
    let attempts = format!("/v1/generations/{id}/attempts");
    service.post(&attempts, &failed(1, "a", "e")).await.expect(201);
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    service.post(&attempts, &passed(2, "b")).await.expect(201);
    service.post(&format!("/v1/generations/{id}/finalize"), &json!({"success": true})).await.expect(200);
    let rows = rows(&service, &format!("{CORRECTIONS}?format=trl-stepwise")).await;
    assert_eq!(rows, [json!({"prompt": "Create", "completions": ["a"], "labels": [false]})]);
}

#[tokio::test]
async fn a_fix_that_nothing_has_checked_is_chosen_only_if_it_became_the_final_program() {
    let service = Service::open().await;
    let unjudged = |number: i32, program: &str| json!({"attempt": number, "extracted_dsl": program});
    let mut kept = solved(2, "Keep", &[failed(1, "a", "e"), unjudged(2, "b ")]);
    kept["final_valid_dsl"] = json!("b");
    let mut failed_itself = solved(3, "Insist", &[failed(1, "a", "e"), failed(2, "b", "e")]);
    failed_itself["final_valid_dsl"] = json!("b");
    let corrected = solved(4, "Correct", &[passed(1, "a")]);
    service
        .accept(&[
            solved(1, "Create", &[failed(1, "a", "e"), unjudged(2, "b"), passed(3, "c")]),
            kept,
            failed_itself,
            corrected,
        ])
        .await;
    let review = json!({"rating": "poor", "corrected_dsl": "d", "note": "n"});
    service.put(&format!("/v1/generations/{}/review", Uuid::from_u128(4)), &review).await.expect(200);
    let told =
        async |format: &str| rows(&service, &format!("{CORRECTIONS}?pairing=next&format={format}")).await;
    let fixes = crate::support::column(&told("raw").await, "fixed_dsl");
    assert_eq!(fixes, ["b", "b ", "b", "d"]);
    let chosen = told("trl-preference").await;
    let chosen: Vec<_> = chosen.iter().map(|row| row["chosen"][0]["content"].clone()).collect();
    assert_eq!(chosen, ["b ", "d"]);
    assert_eq!(told("openai").await.len(), 2);
}

#[tokio::test]
async fn the_steps_of_a_log_are_left_out_if_they_are_too_long_as_json() {
    let service = Service::open().await;
    // A control character has six bytes.
    let program = |number: i32| format!("{}{number}", "\u{1}".repeat(1_200_000));
    let long = [failed(1, &program(1), "e"), failed(2, &program(2), "e"), passed(3, &program(3))];
    let short = [failed(1, "a", "e"), passed(2, "b")];
    service.accept(&[solved(1, "Create", &long), solved(2, "Create", &short)]).await;
    let rows = rows(&service, &format!("{CORRECTIONS}?format=trl-stepwise")).await;
    assert_eq!(rows.iter().map(|row| row["completions"].clone()).collect::<Vec<_>>(), [json!(["a", "b"])]);
}
