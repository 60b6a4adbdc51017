//! Finalizing a log: replays, conflicts, and which attempt gives the final program.

use serde_json::json;

use super::{append, finalize, intent, start};
use crate::support::{Service, failed, passed, with};

#[tokio::test]
async fn finalizing_again_replays_and_with_another_body_conflicts() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    append(&service, &log, &passed(1, "(a)")).await.expect(201);
    let outcome = json!({"success": true, "final_valid_dsl": "(final)", "instance_id": "i"});
    let first = finalize(&service, &log, &outcome).await.expect(200);
    assert_eq!(first["final_valid_dsl"], "(final)");
    let same = with(outcome.clone(), &json!({"error": null}));
    assert_eq!(finalize(&service, &log, &same).await.expect(200), first);
    for other in [
        json!({"success": true}),
        json!({"success": false}),
        with(outcome.clone(), &json!({"final_valid_dsl": "(other)"})),
        with(outcome.clone(), &json!({"instance_id": "j"})),
    ] {
        finalize(&service, &log, &other).await.refused(409, &[]);
    }
    assert_eq!(service.get(&log).await.expect(200), first);
}

#[tokio::test]
async fn a_success_without_a_program_is_refused_and_leaves_the_log_open() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    let program = ["/final_valid_dsl"];
    append(&service, &log, &failed(1, "(a)", "wrong")).await.expect(201);
    for refused in [
        json!({"success": true}),
        json!({"success": true, "final_valid_dsl": ""}),
        json!({"success": true, "final_valid_dsl": " \n"}),
        json!({"success": false, "final_valid_dsl": "(a)"}),
    ] {
        finalize(&service, &log, &refused).await.refused(422, &program);
    }
    append(&service, &log, &passed(2, "(b)")).await.expect(201);
    let done = finalize(&service, &log, &json!({"success": true})).await.expect(200);
    assert_eq!(done["final_valid_dsl"], "(b)");
}

#[tokio::test]
async fn an_attempt_passed_if_it_has_a_program_and_every_stage_that_ran_succeeded() {
    let service = Service::open().await;
    let yes = json!({"success": true});
    let no = json!({"success": false, "error": "e"});
    for (passes, attempt) in [
        (false, json!({})),
        (false, json!({"extracted_dsl": "(a)"})),
        (false, json!({"parse_result": yes})),
        (false, json!({"extracted_dsl": "", "parse_result": yes})),
        (
            false,
            json!({"extracted_dsl": "(a)", "parse_result": null, "lint_result": null, "compile_result": null}),
        ),
        (false, json!({"extracted_dsl": "(a)", "parse_result": no})),
        (false, json!({"extracted_dsl": "(a)", "parse_result": yes, "lint_result": {"valid": false}})),
        (false, json!({"extracted_dsl": "(a)", "parse_result": no, "compile_result": yes})),
        (false, json!({"extracted_dsl": "(a)", "lint_result": {"valid": true}, "compile_result": no})),
        (true, json!({"extracted_dsl": "(a)", "parse_result": yes})),
        (
            true,
            json!({"extracted_dsl": "(a)", "lint_result": {"valid": true, "errors": ["said, not meant"]}}),
        ),
        (true, json!({"extracted_dsl": "(a)", "compile_result": yes})),
        (true, passed(1, "(a)")),
    ] {
        let log = start(&service, intent("Create a fund")).await;
        append(&service, &log, &attempt).await.expect(201);
        let outcome = finalize(&service, &log, &json!({"success": true})).await;
        if passes {
            assert_eq!(outcome.expect(200)["final_valid_dsl"], "(a)", "{attempt}");
        } else {
            outcome.refused(422, &["/final_valid_dsl"]);
        }
    }
}

#[tokio::test]
async fn the_program_is_that_of_the_last_passed_attempt_by_number_not_by_arrival() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    for attempt in [passed(3, "(third)"), failed(4, "(fourth)", "wrong"), passed(1, "(first)")] {
        append(&service, &log, &attempt).await.expect(201);
    }
    let log = finalize(&service, &log, &json!({"success": true})).await.expect(200);
    assert_eq!(log["final_valid_dsl"], "(third)");
    let finished = with(
        intent("Create a fund"),
        &json!({"success": true, "iterations": [passed(2, "(second)"), passed(1, "(first)")]}),
    );
    let log = service.post("/v1/generations", &finished).await.expect(201);
    assert_eq!(log["final_valid_dsl"], "(second)");
}
