//! Training and correction pairs of generated chains of attempts, compared with the rules told a second time.

use std::collections::BTreeMap;

use axum::http::Method;
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{CORRECTIONS, TRAINING};
use crate::support::{Service, with};

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
                "fixed_dsl": fixed_dsl, "fixed_passed": fixed.is_none_or(Step::passed), "bad_attempt": bad.number, "fixed_attempt": fixed.map(|fixed| fixed.number),
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
