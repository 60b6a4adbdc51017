//! Exports: formats byte for byte, pairing, deduplication, splits, pieces, and the state of the data that they show.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use axum::body::Body;
use axum::http::{Method, Request, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::support::program::{Limits, Settings};
use crate::support::{Answer, Service, column, failed, passed, scrub, settings, with};

const TRAINING: &str = "/v1/exports/training-pairs";
const CORRECTIONS: &str = "/v1/exports/correction-pairs";

/// The line of a log that succeeded, its id made of a number.
fn solved(number: u128, intent: &str, iterations: &[Value]) -> Value {
    json!({"event": "generation", "id": Uuid::from_u128(number), "user_intent": intent, "domain_name": "cbu",
        "iterations": iterations, "success": true})
}

async fn rows(service: &Service, path: &str) -> Vec<Value> {
    service.get(path).await.rows()
}

/// Follows the cursors of an export from piece to piece; `limit` of each piece is drawn from `limits`.
async fn pieces(service: &Service, path: &str, limits: &[usize]) -> Vec<Answer> {
    let mut pieces: Vec<Answer> = Vec::new();
    let mut limits = limits.iter().cycle();
    loop {
        let limit = limits.next().expect("a limit");
        let cursor = match pieces.last().map(|piece| piece.header("gleaner-next-cursor")) {
            None => String::new(),
            Some(Some(cursor)) => format!("&cursor={cursor}"),
            Some(None) => return pieces,
        };
        let piece = service.get(&format!("{path}&limit={limit}{cursor}")).await;
        assert_eq!(piece.status, 200, "{}", piece.text());
        pieces.push(piece);
    }
}

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

/// Pairs of a chain by each rule, as (bad, fixed) attempt numbers.
async fn paired(service: &Service, pairing: &str) -> Vec<(Value, Value, Value)> {
    let rows = rows(service, &format!("{CORRECTIONS}?format=raw&pairing={pairing}")).await;
    rows.into_iter()
        .map(|row| (row["bad_attempt"].clone(), row["fixed_attempt"].clone(), row["fixed_dsl"].clone()))
        .collect()
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
        let service = Service::open().await;
        let body = solved(1, "Create", &chain);
        service.accept(&[body]).await;
        for (pairing, expected) in [("fix", fix), ("next", next), ("final", last)] {
            let expected: Vec<_> = expected
                .as_array()
                .expect("pairs")
                .iter()
                .map(|pair| (pair[0].clone(), pair[1].clone(), pair[2].clone()))
                .collect();
            assert_eq!(paired(&service, pairing).await, expected, "{name}: {pairing}");
        }
    }
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

/// What a generated attempt reports.
#[derive(Debug, Clone)]
struct Step {
    number: i32,
    program: Option<&'static str>,
    /// Parse, lint, compile: whether it succeeded and what it said; none, if it did not run.
    stages: [Option<(bool, Option<&'static str>)>; 3],
}

#[derive(Debug, Clone)]
struct Chain {
    /// In the order of arrival.
    steps: Vec<Step>,
    success: bool,
    given: Option<&'static str>,
    in_one_step: bool,
}

impl Step {
    fn body(&self) -> Value {
        let stage = |stage: &Option<(bool, Option<&str>)>| {
            stage.map(|(success, error)| json!({"success": success, "error": error}))
        };
        let lint = self.stages[1].map(
            |(valid, error)| json!({"valid": valid, "errors": error.map_or(vec![], |error| vec![error, "second"])}),
        );
        json!({"attempt": self.number, "extracted_dsl": self.program, "parse_result": stage(&self.stages[0]),
            "lint_result": lint, "compile_result": stage(&self.stages[2])})
    }

    fn has_program(&self) -> bool {
        self.program.is_some_and(|program| !program.is_empty())
    }

    fn passed(&self) -> bool {
        let mut ran = self.stages.iter().flatten().peekable();
        self.has_program() && ran.peek().is_some() && ran.all(|(success, _)| *success)
    }

    fn failed(&self) -> bool {
        self.has_program() && self.stages.iter().flatten().any(|(success, _)| !success)
    }

    fn stage(&self) -> Option<&'static str> {
        ["parse", "lint", "compile"]
            .into_iter()
            .zip(self.stages)
            .find(|(_, stage)| stage.is_some_and(|(success, _)| !success))
            .map(|(name, _)| name)
    }

    fn error(&self) -> Option<String> {
        let stage = self.stage()?;
        let [parse, lint, compile] = self.stages.map(|stage| stage.and_then(|(_, error)| error));
        match stage {
            "parse" => parse.map(str::to_owned),
            "lint" => lint.map(|error| format!("{error}\nsecond")),
            _ => compile.map(str::to_owned),
        }
    }
}

impl Chain {
    fn by_number(&self) -> Vec<&Step> {
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|step| step.number);
        steps
    }

    /// The final program: none, if the log did not or could not succeed.
    fn program(&self) -> Option<&'static str> {
        let last_passed = || self.by_number().into_iter().rfind(|step| step.passed())?.program;
        if self.success { self.given.or_else(last_passed) } else { None }
    }

    fn lines(&self, id: Uuid) -> Vec<Value> {
        let start = json!({"event": "generation", "id": id, "user_intent": id, "domain_name": "d"});
        let success = self.program().is_some();
        let outcome = json!({"success": success, "final_valid_dsl": self.given.filter(|_| success)});
        let bodies = self.steps.iter().map(Step::body);
        if self.in_one_step {
            let iterations: Vec<_> = bodies.collect();
            return vec![with(with(start, &outcome), &json!({"iterations": iterations}))];
        }
        let attempts = bodies.map(|body| with(body, &json!({"event": "attempt", "generation_id": id})));
        let end = with(outcome, &json!({"event": "generation_outcome", "generation_id": id}));
        [start].into_iter().chain(attempts).chain([end]).collect()
    }

    /// The pairs by one rule, in the words of the contract.
    fn pairs(&self, id: Uuid, pairing: &str) -> Vec<Value> {
        let Some(program) = self.program() else {
            return vec![];
        };
        let steps = self.by_number();
        let pair = |bad: &Step, fixed: Option<&Step>| {
            let fixed_dsl = fixed.map_or(Some(program), |fixed| fixed.program);
            json!({"user_intent": id, "bad_dsl": bad.program, "error_message": bad.error(), "error_stage": bad.stage(),
                "fixed_dsl": fixed_dsl, "bad_attempt": bad.number, "fixed_attempt": fixed.map(|fixed| fixed.number),
                "generation_id": id})
        };
        let failures = || steps.iter().enumerate().filter(|(_, step)| step.failed());
        let pairs: Vec<_> = match pairing {
            "fix" => {
                let first = steps.iter().position(|step| step.passed());
                let last = first.and_then(|first| {
                    failures().rfind(|(place, step)| *place < first && step.error().is_some())
                });
                last.map(|(_, bad)| pair(bad, first.map(|first| steps[first]))).into_iter().collect()
            }
            "next" => failures()
                .filter_map(|(place, bad)| {
                    let next = steps[place + 1..].iter().find(|step| step.has_program())?;
                    Some(pair(bad, Some(next)))
                })
                .collect(),
            _ => failures().map(|(_, bad)| pair(bad, None)).collect(),
        };
        pairs.into_iter().filter(|pair| pair["bad_dsl"] != pair["fixed_dsl"]).collect()
    }

    fn stepwise(&self, id: Uuid) -> Option<Value> {
        self.program()?;
        let judged: Vec<_> =
            self.by_number().into_iter().filter(|step| step.passed() || step.failed()).collect();
        judged.iter().any(|step| step.failed()).then(|| {
            let programs: Vec<_> = judged.iter().map(|step| step.program).collect();
            let labels: Vec<_> = judged.iter().map(|step| step.passed()).collect();
            json!({"prompt": id, "completions": programs, "labels": labels})
        })
    }
}

fn chains() -> impl Strategy<Value = Vec<Chain>> {
    let stage = || {
        prop_oneof![
            2 => Just(None),
            3 => Just(Some((true, None))),
            1 => Just(Some((true, Some("noise")))),
            3 => prop_oneof![Just("e1"), Just("e2")].prop_map(|error| Some((false, Some(error)))),
            1 => Just(Some((false, None))),
        ]
    };
    let program = prop_oneof![
        1 => Just(None),
        1 => Just(Some("")),
        6 => prop_oneof![Just("p"), Just("q"), Just("r"), Just("s")].prop_map(Some),
    ];
    let steps = subsequence((1..=12).collect::<Vec<i32>>(), 0..=7).prop_shuffle();
    let steps = steps.prop_flat_map(move |numbers| {
        numbers
            .into_iter()
            .map(|number| {
                (program.clone(), [stage(), stage(), stage()]).prop_map(move |(program, stages)| Step {
                    number,
                    program,
                    stages,
                })
            })
            .collect::<Vec<_>>()
    });
    let given = prop_oneof![3 => Just(None), 1 => Just(Some("p")), 1 => Just(Some("final"))];
    let chain = (steps, proptest::bool::weighted(0.85), given, any::<bool>())
        .prop_map(|(steps, success, given, in_one_step)| Chain { steps, success, given, in_one_step });
    proptest::collection::vec(chain, 1..60)
}

/// By log, the rows that an export holds of it; a log's rows must stand together.
fn by_log(rows: Vec<Value>, name: &str) -> BTreeMap<String, Vec<Value>> {
    let mut logs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut before = Value::Null;
    for row in rows {
        let log = row[name].clone();
        let known = logs.entry(log.as_str().expect("an id").to_owned()).or_default();
        assert!(known.is_empty() || log == before, "the rows of {log} are apart");
        known.push(row);
        before = log;
    }
    logs
}

#[test]
fn exports_of_any_chains_hold_what_the_rules_say() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let service = runtime.block_on(Service::open());
    let config = ProptestConfig {
        cases: 16,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(chains in chains())| {
        runtime.block_on(async {
            let project = format!("p-{}", Uuid::new_v4());
            service.project(&project).await;
            let headers = [("gleaner-project", project.as_str())];
            let logs: Vec<_> = chains.iter().map(|chain| (Uuid::new_v4(), chain)).collect();
            // Interleaved: the first lines of all logs, then the second ones.
            let lines: Vec<_> = logs.iter().map(|(id, chain)| chain.lines(*id)).collect();
            let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
            let events: Vec<_> = (0..longest).flat_map(|place| lines.iter().filter_map(move |own| own.get(place))).collect();
            let summary = service.call(Method::POST, "/v1/events", &headers, Some(&json!(events))).await.expect(200);
            assert_eq!(summary, json!({"accepted": events.len(), "duplicates": 0, "rejected": []}));
            let export = async |path: &str| service.call(Method::GET, path, &headers, None).await.rows();

            for pairing in ["fix", "next", "final"] {
                let found = by_log(export(&format!("{CORRECTIONS}?format=raw&pairing={pairing}")).await, "generation_id");
                let expected: BTreeMap<_, _> = logs
                    .iter()
                    .map(|(id, chain)| (id.to_string(), chain.pairs(*id, pairing)))
                    .filter(|(_, pairs)| !pairs.is_empty())
                    .collect();
                assert_eq!(found, expected, "{pairing}");
            }
            let found = by_log(export(&format!("{CORRECTIONS}?format=trl-stepwise")).await, "prompt");
            let expected: BTreeMap<_, _> = logs
                .iter()
                .filter_map(|(id, chain)| Some((id.to_string(), vec![chain.stepwise(*id)?])))
                .collect();
            assert_eq!(found, expected);
            let found = by_log(export(&format!("{TRAINING}?format=raw")).await, "user_intent");
            let expected: BTreeMap<_, _> = logs
                .iter()
                .filter_map(|(id, chain)| {
                    let pair = json!({"user_intent": id, "valid_dsl": chain.program()?});
                    Some((id.to_string(), vec![pair]))
                })
                .collect();
            assert_eq!(found, expected);
        });
    });
}

#[tokio::test]
async fn of_equal_rows_the_oldest_is_kept() {
    let service = Service::open().await;
    let ids = |rows: Vec<Value>| -> Vec<u128> {
        let id = |row: &Value| {
            let id = row["metadata"]["generation_id"].as_str().expect("an id");
            Uuid::parse_str(id).expect("an id").as_u128()
        };
        rows.iter().map(id).collect()
    };
    // Finalized in this order, which is not that of their ids.
    for (id, intent, chain) in [
        (5, "one", vec![failed(1, "x", "e"), passed(2, "a")]),
        (4, "one", vec![failed(1, "x", "e"), passed(2, "a")]),
        (3, "one", vec![failed(1, "x", "other"), passed(2, "a")]),
        (2, "two", vec![failed(1, "x", "e"), passed(2, "a")]),
        (1, "one", vec![passed(1, "b")]),
        (6, "one", vec![failed(4, "x", "e"), failed(6, "x", "e"), passed(7, "a")]),
    ] {
        service.accept(&[solved(id, intent, &chain)]).await;
    }
    for (path, all, exact) in [
        (format!("{TRAINING}?"), vec![5, 4, 3, 2, 1, 6], vec![5, 2, 1]),
        (format!("{CORRECTIONS}?"), vec![5, 4, 3, 2, 6], vec![5, 3, 2]),
        (format!("{CORRECTIONS}?pairing=final&"), vec![5, 4, 3, 2, 6, 6], vec![5, 3, 2]),
        (format!("{CORRECTIONS}?format=trl-stepwise&"), vec![5, 4, 3, 2, 6], vec![5, 2, 6]),
    ] {
        for (dedupe, expected) in [("", all.clone()), ("none", all), ("exact", exact)] {
            let rows = rows(&service, &format!("{path}include=metadata&dedupe={dedupe}")).await;
            assert_eq!(ids(rows), expected, "{path} {dedupe}");
        }
    }
    // The oldest of those that the other parameters leave.
    let review = json!({"rating": "good"});
    service.put(&format!("/v1/generations/{}/review", Uuid::from_u128(4)), &review).await.expect(200);
    let path = format!("{TRAINING}?include=metadata&dedupe=exact&min_rating=good");
    assert_eq!(ids(rows(&service, &path).await), [4]);
    let path = format!("{TRAINING}?include=metadata&dedupe=exact");
    let pieces = pieces(&service, &path, &[1]).await;
    let found: Vec<_> = pieces.iter().flat_map(Answer::rows).collect();
    assert_eq!(ids(found), [5, 2, 1]);
}

#[tokio::test]
async fn a_split_parts_the_programs_the_same_way_each_time() {
    let service = Service::open().await;
    let logs: Vec<_> = (0..80)
        .map(|number: u128| {
            let program = format!("(program {})", number % 20);
            solved(number, &format!("intent {number}"), &[failed(1, "(bad)", "e"), passed(2, &program)])
        })
        .collect();
    service.accept(&logs).await;
    let texts = |rows: &[Value]| -> BTreeSet<String> { rows.iter().map(Value::to_string).collect() };
    let programs = |rows: &[Value], name: &str| -> BTreeSet<String> {
        column(rows, name).iter().map(Value::to_string).collect()
    };
    let mut validations = BTreeSet::new();
    for (path, program) in
        [(format!("{TRAINING}?format=raw"), "valid_dsl"), (format!("{CORRECTIONS}?format=raw"), "fixed_dsl")]
    {
        let whole = rows(&service, &path).await;
        assert_eq!(whole.len(), 80);
        for seed in 0..3 {
            let part = |name: &str| format!("{path}&split={name}&holdout=0.4&seed={seed}");
            let train = rows(&service, &part("train")).await;
            let validation = rows(&service, &part("validation")).await;
            assert_eq!(rows(&service, &part("validation")).await, validation);
            assert_eq!(train.len() + validation.len(), 80);
            let together: BTreeSet<_> = &texts(&train) | &texts(&validation);
            assert_eq!(together, texts(&whole));
            let (train, validation) = (programs(&train, program), programs(&validation, program));
            assert!(train.is_disjoint(&validation));
            assert!((2..=14).contains(&validation.len()), "{}", validation.len());
            validations.insert(validation);
        }
        for (holdout, expected) in [("0", 0), ("1", 80)] {
            let path = format!("{path}&split=validation&holdout={holdout}");
            assert_eq!(rows(&service, &path).await.len(), expected);
        }
        let plain = rows(&service, &format!("{path}&split=validation")).await;
        let spelled = format!("{path}&split=validation&holdout=0.1&seed=0");
        assert_eq!(plain, rows(&service, &spelled).await);
    }
    // Three seeds, and the same parts in both data sets.
    assert_eq!(validations.len(), 3);
}

#[tokio::test]
async fn pieces_are_together_the_whole_and_cut_no_log_in_two() {
    let service = Service::open().await;
    let mut number = 0;
    let logs: Vec<_> = (0..23_u128)
        .map(|id| {
            let mut program = || {
                number += 1;
                format!("(program {})", number % 7)
            };
            let failures = i32::try_from(id % 4).expect("small");
            let mut chain: Vec<_> = (1..=failures).map(|attempt| failed(attempt, &program(), "e")).collect();
            chain.push(passed(9, &program()));
            solved(id, &format!("intent {id}"), &chain)
        })
        .collect();
    service.accept(&logs).await;
    for query in [
        "pairing=next&format=raw",
        "pairing=final&format=raw",
        "pairing=fix&format=raw",
        "pairing=next&format=raw&dedupe=exact",
        "pairing=next&format=raw&split=train&holdout=0.3",
    ] {
        let path = format!("{CORRECTIONS}?{query}");
        let whole = service.get(&path).await;
        assert_eq!(whole.header("gleaner-next-cursor"), None);
        let logs_of = |answer: &Answer| -> BTreeSet<String> {
            let ids = column(&answer.rows(), "generation_id");
            ids.iter().map(Value::to_string).collect()
        };
        assert!(logs_of(&whole).len() > 5, "{query}");
        for limits in [vec![1], vec![2], vec![3, 1, 5], vec![7, 2], vec![22, 1], vec![23], vec![1000]] {
            let pieces = pieces(&service, &path, &limits).await;
            let together: String = pieces.iter().map(Answer::text).collect();
            assert_eq!(together, whole.text(), "{query} {limits:?}");
            let mut seen = BTreeSet::new();
            for (place, piece) in pieces.iter().enumerate() {
                let logs = logs_of(piece);
                assert!(logs.is_disjoint(&seen), "a log is cut in two: {query} {limits:?}");
                let limit = limits[place % limits.len()];
                assert!(logs.len() == limit || place + 1 == pieces.len() && logs.len() < limit);
                assert!(!logs.is_empty(), "an empty piece: {query} {limits:?}");
                seen.extend(logs);
            }
        }
    }
    let path = format!("{TRAINING}?format=openai");
    let together: String = pieces(&service, &path, &[4, 1, 9]).await.iter().map(Answer::text).collect();
    assert_eq!(together, service.get(&path).await.text());
}

#[tokio::test]
async fn a_cursor_belongs_to_its_data_set_and_filters() {
    let service = Service::open().await;
    let logs: Vec<_> =
        (1..=3).map(|id| solved(id, "intent", &[failed(1, "x", "e"), passed(2, "y")])).collect();
    service.accept(&logs).await;
    let first = service.get(&format!("{TRAINING}?domain_name=cbu&limit=1&format=raw")).await;
    let cursor = first.header("gleaner-next-cursor").expect("there is more").to_owned();
    for path in [
        format!("{TRAINING}?cursor={cursor}"),
        format!("{TRAINING}?domain_name=bond&cursor={cursor}"),
        format!("{TRAINING}?domain_name=cbu&split=train&cursor={cursor}"),
        format!("{CORRECTIONS}?domain_name=cbu&cursor={cursor}"),
        format!("{TRAINING}?domain_name=cbu&cursor=x{cursor}"),
        format!("{TRAINING}?domain_name=cbu&cursor=made-up"),
        format!("/v1/generations?domain_name=cbu&cursor={cursor}"),
    ] {
        service.get(&path).await.refused(422, &["/cursor"]);
    }
    let list = service.get("/v1/generations?domain_name=cbu&limit=1").await.expect(200);
    let foreign = list["next_cursor"].as_str().expect("there is more");
    service.get(&format!("{TRAINING}?domain_name=cbu&cursor={foreign}")).await.refused(422, &["/cursor"]);
    let rest = format!("{TRAINING}?domain_name=cbu&format=raw&cursor={cursor}");
    assert_eq!(rows(&service, &rest).await.len(), 2);
    service.get(&format!("{rest}&as_of=2020-01-01T00:00:00Z")).await.refused(422, &["/as_of"]);
}

#[tokio::test]
async fn an_export_taken_again_as_of_then_is_the_same_bytes() {
    let log = |id: u128| solved(id, &format!("intent {id}"), &[failed(1, "x", "e"), passed(2, "y")]);
    for path in [format!("{TRAINING}?"), format!("{CORRECTIONS}?format=raw&")] {
        let service = Service::open().await;
        let logs: Vec<_> = (1..=5).map(log).collect();
        service.accept(&logs).await;
        let first = service.get(&path).await;
        assert_eq!(first.rows().len(), 5);
        let as_of = first.header("gleaner-as-of").expect("a time").to_owned();
        let piece = service.get(&format!("{path}limit=2")).await;
        let cursor = piece.header("gleaner-next-cursor").expect("more").to_owned();
        service.accept(&[log(6)]).await;
        let again = service.get(&format!("{path}as_of={as_of}")).await;
        assert_eq!(again.text(), first.text());
        assert_eq!(again.header("gleaner-as-of"), Some(as_of.as_str()));
        let rest = service.get(&format!("{path}cursor={cursor}")).await;
        assert_eq!(piece.text() + &rest.text(), first.text());
        assert_eq!(rest.header("gleaner-as-of"), piece.header("gleaner-as-of"), "the cursor keeps the state");
        let now = service.get(&path).await;
        assert!(now.text().starts_with(&first.text()) && now.text().len() > first.text().len());
        service.get(&format!("{path}as_of=2999-01-01T00:00:00Z")).await.refused(422, &["/as_of"]);
        let before = service.get(&format!("{path}as_of=2020-01-01T00:00:00Z")).await;
        assert_eq!(before.text(), "");
    }
}

#[tokio::test]
async fn records_come_in_the_order_they_were_finalized_and_since_is_about_their_creation() {
    let service = Service::open().await;
    for (id, at) in [(3, "2025-01-03"), (1, "2025-01-01"), (2, "2025-01-02")] {
        let at = json!({"created_at": format!("{at}T00:00:00Z")});
        let log = with(solved(id, &format!("intent {id}"), &[passed(1, "y")]), &at);
        service.accept(&[log]).await;
    }
    for (query, expected) in [
        ("", vec!["intent 3", "intent 1", "intent 2"]),
        ("&since=2025-01-02T00:00:00Z", vec!["intent 3", "intent 2"]),
        ("&until=2025-01-02T00:00:00Z", vec!["intent 1"]),
        ("&since=2025-01-02T00:00:00Z&until=2025-01-03T00:00:00Z", vec!["intent 2"]),
    ] {
        let rows = rows(&service, &format!("{TRAINING}?format=raw{query}")).await;
        assert_eq!(column(&rows, "user_intent"), expected, "{query}");
    }
}

#[tokio::test]
async fn filters_are_about_the_log() {
    let service = Service::open().await;
    let chain = [failed(1, "x", "e"), passed(2, "y")];
    let more = json!({"domain_name": "bond", "model_used": "m"});
    service.accept(&[solved(1, "one", &chain), with(solved(2, "two", &chain), &more)]).await;
    for path in [format!("{TRAINING}?format=raw"), format!("{CORRECTIONS}?format=raw")] {
        for (query, expected) in [
            ("", vec!["one", "two"]),
            ("&domain_name=bond", vec!["two"]),
            ("&domain_name=bon", vec![]),
            ("&model_used=m", vec!["two"]),
            ("&model_used=m&domain_name=cbu", vec![]),
        ] {
            let rows = rows(&service, &format!("{path}{query}")).await;
            assert_eq!(column(&rows, "user_intent"), expected, "{path}{query}");
        }
    }
}

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
        (format!("{TRAINING}?split=test"), "/split"),
        (format!("{TRAINING}?holdout=0.2"), "/split"),
        (format!("{TRAINING}?split=train&holdout=1.5"), "/holdout"),
        (format!("{TRAINING}?split=train&holdout=NaN"), "/holdout"),
        (format!("{TRAINING}?split=train&seed=-1"), "/seed"),
        (format!("{TRAINING}?limit=0"), "/limit"),
        (format!("{TRAINING}?limit=-1"), "/limit"),
        (format!("{TRAINING}?limit=many"), "/limit"),
        (format!("{TRAINING}?since=2&until=1"), "/since"),
        (format!("{TRAINING}?as_of=soon"), "/as_of"),
        (format!("{CORRECTIONS}?system=s"), "/system"),
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
    let expected = json!({"data": [
        {"dataset": "training-pairs", "formats": ["openai", "trl-prompt-completion", "alpaca", "rft", "raw"],
            "rows": 2, "skipped": 0},
        {"dataset": "correction-pairs", "formats": ["openai", "trl-prompt-completion", "trl-preference",
            "openai-preference", "trl-stepwise", "raw"], "rows": 1, "skipped": 0},
        {"dataset": "preference-pairs", "formats": ["trl-preference", "openai-preference", "trl-kto", "raw"],
            "rows": 0, "skipped": 0},
        {"dataset": "accepted-suggestions", "formats": ["openai", "trl-prompt-completion", "alpaca", "raw"],
            "rows": 0, "skipped": 0},
        {"dataset": "rankings", "formats": ["letor", "lightgbm-tsv", "vw-dsjson", "raw"], "rows": 0, "skipped": 0},
        {"dataset": "suggestion-history", "formats": ["raw"], "rows": 0, "skipped": 0},
        {"dataset": "search-pairs", "formats": ["raw", "triplets"], "rows": 0, "skipped": 0},
    ]});
    assert_eq!(service.get("/v1/exports").await.expect(200), expected);
}

#[tokio::test]
async fn exports_asked_for_at_once_wait_for_each_other() {
    let service = Service::open().await;
    service.accept(&[solved(1, "one", &[passed(1, "y")])]).await;
    let answers = futures_util::future::join_all((0..20).map(|_| service.get(TRAINING))).await;
    for answer in answers {
        assert_eq!(answer.rows().len(), 1);
    }
}

/// Logs that are together more than what lies between the database and a reader, even compressed.
async fn many(service: &Service) {
    let mut random = fastrand::Rng::with_seed(1);
    let events: Vec<_> = (0..2_000)
        .map(|number| {
            let program: String = std::iter::repeat_with(|| random.alphanumeric()).take(2_000).collect();
            json!({"event": "generation", "user_intent": format!("i{number}"), "domain_name": "d", "success": true,
                "final_valid_dsl": program})
        })
        .collect();
    service.accept(&events).await;
}

/// The answer to an export whose body nobody reads.
async fn unread(service: &Service, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get("/v1/exports/training-pairs").header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = service.router.clone().oneshot(request).await.expect("an answer");
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test]
async fn one_export_more_than_allowed_at_once_is_a_503_until_a_reader_goes_away() {
    let service = Service::open().await;
    many(&service).await;
    let held = [unread(&service, &[]).await, unread(&service, &[("accept-encoding", "gzip")]).await];
    let refused = service.get("/v1/exports/training-pairs").await;
    assert!(refused.header("retry-after").is_some());
    let problem = refused.expect(503);
    assert_eq!(problem["detail"], "as many exports as allowed are under way; try again");
    drop(held);
    assert_eq!(rows(&service, "/v1/exports/training-pairs").await.len(), 2_000);
}

#[tokio::test]
async fn an_export_that_takes_too_long_is_broken_off_and_gives_its_place_free() {
    let exports = Limits { most_exports: 1, longest_export: 1 };
    let service = Service::with(Settings { exports, ..settings() }).await;
    many(&service).await;
    let slow = unread(&service, &[]).await;
    // Gets the only place once the slow one has lost it.
    assert_eq!(rows(&service, "/v1/exports/training-pairs?limit=5").await.len(), 5);
    slow.into_body().collect().await.expect_err("it must not look whole");
}

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
