//! Which rows a data set of suggestion records holds.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ACCEPTED, PREFERENCES, RANKINGS, finished, four, told};
use crate::exports::files::built;
use crate::support::{Service, column, with};

#[tokio::test]
async fn exact_deduplication_keeps_the_oldest_of_equal_rows() {
    let service = Service::open().await;
    service
        .accept(&[
            finished(9, &["a", "b"], &[0, 1], "b"),
            finished(2, &["a", "b"], &[0, 1], "b"),
            finished(1, &["a", "b", "c"], &[0, 1, 2], "b"),
            told(finished(3, &["a", "b"], &[0, 1], "b")),
        ])
        .await;
    let of = async |path: &str| {
        let rows = service.get(path).await.rows();
        let ids = column(&rows, "suggestion_id");
        ids.iter()
            .map(|id| id.as_str().and_then(|id| id.parse::<Uuid>().ok()).map(|id| id.as_u128()))
            .collect::<Vec<_>>()
    };
    let pairs = of(&format!("{PREFERENCES}?format=raw&dedupe=exact")).await;
    assert_eq!(pairs, [Some(9), Some(1), Some(3)], "the second pair of 1 is new");
    assert_eq!(of(&format!("{ACCEPTED}?format=raw&dedupe=exact")).await, [Some(9), Some(3)]);
    assert_eq!(of(&format!("{RANKINGS}?format=raw&dedupe=exact")).await, [Some(9), Some(1), Some(3)]);
    let labels = service.get(&format!("{PREFERENCES}?format=trl-kto&dedupe=exact")).await.rows();
    assert_eq!(column(&labels, "label"), [true, false, false, true, false].map(Value::from));
}

#[tokio::test]
async fn equal_contexts_are_equal_rows_where_the_context_is_the_prompt() {
    let service = Service::open().await;
    let of = |number: u128, context: Value, message: &str| {
        let request = json!({"messages": [{"role": "user", "content": message}]});
        with(finished(number, &["a"], &[0], "a"), &json!({"context": context, "llm_request": request}))
    };
    let (one, other) = (json!({"cwd": "/one"}), json!({"cwd": "/other"}));
    service.accept(&[of(1, one.clone(), "p"), of(2, one, "q"), of(3, other, "p")]).await;
    let ids = async |query: &str| {
        let rows = service.get(&format!("{ACCEPTED}?format=raw&dedupe=exact{query}")).await.rows();
        column(&rows, "suggestion_id")
    };
    let expected = |numbers: [u128; 2]| numbers.map(|number| json!(Uuid::from_u128(number)));
    assert_eq!(ids("").await, expected([1, 2]));
    assert_eq!(ids("&prompt=context").await, expected([1, 3]));
}

#[tokio::test]
async fn white_space_is_no_answer_and_no_difference_between_two() {
    let service = Service::open().await;
    service
        .accept(&[
            finished(1, &[" ", "@bash ls"], &[0, 1], " "),
            finished(2, &["@bash ls", " @bash  ls"], &[0, 1], " @bash  ls"),
        ])
        .await;
    let accepted = service.get(&format!("{ACCEPTED}?format=raw")).await.rows();
    assert_eq!(column(&accepted, "suggestion_id"), [json!(Uuid::from_u128(2))]);
    assert_eq!(service.get(&format!("{PREFERENCES}?format=trl-preference")).await.rows(), [] as [Value; 0]);
    let labels = service.get(&format!("{PREFERENCES}?format=trl-kto")).await.rows();
    assert_eq!(column(&labels, "label"), [false, true].map(Value::from), "{labels:?}");
}

#[tokio::test]
async fn a_session_is_in_one_part_of_a_split_by_session() {
    let service = Service::open().await;
    let events: Vec<_> = (0..200)
        .map(|number| {
            let session = format!("s{}", number % 20);
            with(finished(number, &["a", "b"], &[0, 1], "b"), &json!({"session_name": session}))
        })
        .collect();
    service.accept(&events).await;
    let mut parts = Vec::new();
    for split in ["train", "validation", "test"] {
        let path = format!("{PREFERENCES}?include=metadata&holdout=0.4&split_by=session&split={split}");
        let rows = service.get(&path).await.rows();
        let sessions = rows.iter().map(|row| row["metadata"]["session_name"].to_string());
        parts.push((rows.len(), sessions.collect::<BTreeSet<_>>()));
    }
    assert_eq!(parts.iter().map(|(rows, _)| rows).sum::<usize>(), 200);
    let [(_, train), (_, validation), (_, test)] = &parts[..] else { panic!("three parts") };
    assert_eq!(train.len() + validation.len() + test.len(), 20);
    assert!(!train.is_empty() && !validation.is_empty());
}

#[tokio::test]
async fn neither_a_prompt_nor_an_answer_stands_in_two_parts() {
    let service = Service::open().await;
    let events: Vec<_> = (0..120_u128)
        .map(|number| {
            let texts = [format!("run {}", number % 40), format!("Run  '{}'", (number + 7) % 40)];
            let texts = texts.each_ref().map(String::as_str);
            with(finished(number, &texts, &[0, 1], texts[1]), &json!({"context": {"cwd": number % 50}}))
        })
        .collect();
    service.accept(&events).await;
    let plain = |text: &Value| text.to_string().to_lowercase().replace([' ', '\''], "");
    for (path, columns) in [
        (PREFERENCES, ["prompt", "chosen", "rejected"].to_vec()),
        ("/v1/exports/accepted-suggestions", ["prompt", "accepted"].to_vec()),
        ("/v1/exports/accepted-suggestions?prompt=context", ["prompt", "accepted"].to_vec()),
    ] {
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut parts = Vec::new();
        let mut dropped = 0;
        for split in ["train", "validation", "test"] {
            let path = format!("{path}{joint}format=raw&holdout=0.5&split={split}");
            let answer = service.get(&path).await;
            dropped +=
                answer.header("gleaner-dropped").map_or(0, |count| count.parse::<usize>().expect("a number"));
            let of_row = |row: &Value| columns.iter().map(|column| plain(&row[*column])).collect::<Vec<_>>();
            let rows = answer.rows();
            parts.push((rows.len(), rows.iter().flat_map(of_row).collect::<BTreeSet<_>>()));
        }
        let [(train, of_train), (validation, of_validation), (test, of_test)] = &parts[..] else {
            panic!("three")
        };
        assert_eq!(train + validation + test + dropped, 120, "{path}");
        assert!(of_train.is_disjoint(of_validation) && of_train.is_disjoint(of_test), "{path}");
        assert!(of_validation.is_disjoint(of_test), "{path}");
    }
}

#[tokio::test]
async fn what_is_listed_are_the_rows_with_default_parameters() {
    let service = four().await;
    let sets = service.get("/v1/exports").await.expect(200);
    let counted: Vec<_> = sets["data"]
        .as_array()
        .expect("data")
        .iter()
        .map(|set| json!([set["dataset"], set["rows"], set["skipped"]]))
        .collect();
    assert_eq!(
        json!(counted),
        json!([
            ["training-pairs", 0, 0],
            ["correction-pairs", 0, 0],
            ["preference-pairs", 1, 0],
            ["accepted-suggestions", 1, 0],
            ["rankings", 4, 0],
            ["suggestion-history", 4, 0],
            ["search-pairs", 0, 0],
            ["conversations", 0, 0],
            ["memory-suggestions", 0, 0],
        ])
    );
}

/// The events of a record with views as they come in, and the texts that were viewed. Texts are unique, so that one says
/// which suggestion it is.
fn record(number: u128, count: usize, moves: Vec<(usize, bool)>, input: usize) -> (Vec<Value>, Vec<String>) {
    let id = Uuid::from_u128(number);
    let texts: Vec<_> = (0..count).map(|index| format!("#{number}/{index}")).collect();
    let input = match input {
        0..4 if input < count => texts[input].clone(),
        4 => format!("{} more", texts[0]),
        5 => format!("#{number}/"),
        _ => "typed".to_owned(),
    };
    let mut events = vec![json!({"event": "suggestion", "id": id, "context": {}, "suggestions": texts})];
    let mut viewed = vec![texts[0].clone()];
    let mut current = 0;
    for (index, jumps) in moves {
        current = if jumps { index % count } else { (current + 1) % count };
        viewed.push(texts[current].clone());
        let made = if jumps { json!({"index": current}) } else { json!({"direction": "next"}) };
        events.push(with(made, &json!({"event": "view", "suggestion_id": id})));
    }
    events.push(json!({"event": "suggestion_outcome", "suggestion_id": id, "actual_input": input}));
    (events, viewed)
}

#[tokio::test]
async fn no_export_ever_holds_an_unviewed_suggestion_as_rejected() {
    let service = Service::open().await;
    let strategy = proptest::collection::vec(
        (1..5_usize, proptest::collection::vec((0..5_usize, any::<bool>()), 0..5), 0..8_usize),
        1..12,
    );
    let mut runner = TestRunner::deterministic();
    let mut viewed = BTreeSet::new();
    let mut number = 0_u128;
    for _ in 0..8 {
        let records = strategy.new_tree(&mut runner).expect("a case").current();
        let mut events = Vec::new();
        for (count, moves, input) in records {
            number += 1;
            let (own, seen) = record(number, count, moves, input);
            events.extend(own);
            viewed.extend(seen);
        }
        service.accept(&events).await;
    }
    let mut seen = 0;
    for query in ["?include_typed=true", "?match_type=exact,partial,prefix,none&include_typed=true"] {
        for row in service.get(&format!("{PREFERENCES}{query}")).await.rows() {
            let rejected = row["rejected"][0]["content"].as_str().expect("a text");
            assert!(viewed.contains(rejected), "{rejected}");
            assert_ne!(row["chosen"], row["rejected"]);
            seen += 1;
        }
        for row in service.get(&format!("{PREFERENCES}{query}&format=trl-kto")).await.rows() {
            let text = row["completion"][0]["content"].as_str().expect("a text");
            assert!(row["label"] == true || viewed.contains(text), "{text}");
        }
    }
    for row in service.get(&format!("{RANKINGS}?format=raw")).await.rows() {
        for candidate in row["candidates"].as_array().expect("candidates") {
            let text = candidate["text"].as_str().expect("a text");
            assert!(candidate["label"] != 0 || viewed.contains(text), "{text}");
        }
    }
    assert!(seen > 50, "{seen}");
}

/// The rows of each part of a split of a half, and how many were dropped.
async fn halves(service: &Service, path: &str) -> (Vec<Vec<Value>>, usize) {
    let (mut parts, mut dropped) = (Vec::new(), 0);
    for split in ["train", "validation", "test"] {
        let answer = service.get(&format!("{path}&holdout=0.5&split={split}")).await;
        let count = answer.header("gleaner-dropped").map(|count| count.parse::<usize>().expect("a number"));
        dropped += count.unwrap_or_default();
        parts.push(answer.rows());
    }
    (parts, dropped)
}

fn are_disjoint(parts: &[Vec<Value>], column: &str) -> bool {
    let texts =
        parts.iter().flat_map(|rows| rows.iter().map(|row| row[column].to_string()).collect::<BTreeSet<_>>());
    let texts: Vec<_> = texts.collect();
    texts.iter().collect::<BTreeSet<_>>().len() == texts.len()
}

#[tokio::test]
async fn a_prompt_is_what_the_request_says_however_the_provider_calls_it() {
    let of = async |request: &dyn Fn(u128) -> Value| {
        let service = Service::open().await;
        let event = |number: u128| {
            let text = format!("answer {number}");
            let more = json!({"llm_request": request(number), "context": {"n": number}});
            with(finished(number, &[&text], &[0], &text), &more)
        };
        service.accept(&(0..90).map(event).collect::<Vec<_>>()).await;
        service
    };
    let input =
        of(&|number| json!({"model": "m", "input": format!("How do I do thing {}?", number % 15)})).await;
    let path = format!("{ACCEPTED}?format=raw");
    let (parts, dropped) = halves(&input, &path).await;
    assert!(are_disjoint(&parts, "prompt"));
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>() + dropped, 90);
    assert!(parts.iter().all(|rows| !rows.is_empty()));
    let near = input.get(&format!("{path}&dedupe=near")).await.rows();
    assert!(near.len() >= 15, "{} of 15 questions", near.len());
    for messages in [Value::Null, json!([])] {
        let service = of(&|_| json!({"messages": messages})).await;
        let (parts, _) = halves(&service, &path).await;
        assert!(parts.iter().all(|rows| rows.len() > 5), "{messages}: the prompt is the context");
    }
}

#[tokio::test]
async fn what_a_label_holds_is_what_its_parameters_are_about() {
    let own = |event: Value, number: u128| with(event, &json!({"context": {"n": number}}));
    let service = Service::open().await;
    let slate = |number: u128| {
        let texts = [format!("choose {number}"), format!("other {number}"), "zzz last".to_owned()];
        own(finished(number, &texts.each_ref().map(String::as_str), &[0], &texts[0]), number)
    };
    let last = |number: u128| own(finished(number, &["zzz last"], &[0], "zzz last"), number);
    service.accept(&(0..80).map(slate).chain((80..84).map(last)).collect::<Vec<_>>()).await;
    let (parts, dropped) = halves(&service, &format!("{PREFERENCES}?format=trl-kto")).await;
    assert_eq!((parts.iter().map(Vec::len).sum::<usize>(), dropped), (84, 0), "nobody has seen the last one");

    let service = Service::open().await;
    let long = "x".repeat(50);
    let slate = |number: u128| {
        let texts = [format!("{long} {}", number % 20), format!("short {number}")];
        own(finished(number, &texts.each_ref().map(String::as_str), &[0, 1], &texts[1]), number)
    };
    service.accept(&(0..80).map(slate).collect::<Vec<_>>()).await;
    let labels = async |query: &str| {
        let rows = service.get(&format!("{PREFERENCES}?format=trl-kto&{query}")).await.rows();
        rows.iter().map(|row| row["label"] == true).collect::<Vec<_>>()
    };
    assert_eq!(labels("max_chars=10").await, [true; 80]);
    assert_eq!(labels("min_chars=50").await, [false; 80]);
    let by_program = format!("{PREFERENCES}?format=trl-kto&split_by=program");
    let (parts, _) = halves(&service, &by_program).await;
    assert!(are_disjoint(&parts, "completion"));
    let tested = json!({"dataset": "preference-pairs", "format": "trl-kto", "file": "jsonl", "split": "test",
        "split_by": "program", "holdout": 0.5});
    let snapshot = built(&service, &tested).await["id"].as_str().expect("an id").to_owned();
    let left = service.get(&format!("{PREFERENCES}?format=trl-kto&exclude={snapshot}")).await.rows();
    let [left, tested] = [&left, &parts[2]].map(|rows| vec![rows.clone()]);
    assert!(!left[0].is_empty() && are_disjoint(&[left, tested].concat(), "completion"));
}

#[tokio::test]
async fn a_rejection_is_in_a_part_of_a_split_even_if_what_was_submitted_is_blank() {
    let service = Service::open().await;
    let slate = |number: u128| {
        let texts = [format!("choose {number}"), " ".to_owned()];
        let event = finished(number, &texts.each_ref().map(String::as_str), &[0, 1], " ");
        with(event, &json!({"context": {"n": number}}))
    };
    service.accept(&(0..80).map(slate).collect::<Vec<_>>()).await;
    let (parts, dropped) = halves(&service, &format!("{PREFERENCES}?format=trl-kto")).await;
    assert_eq!((parts.iter().map(Vec::len).sum::<usize>(), dropped), (80, 0));
    assert!(parts.iter().all(|part| part.len() > 10), "what is blank has nothing in common");
}

#[tokio::test]
async fn slates_are_similar_by_the_question_that_is_exported() {
    const LONG: &str =
        "the fund of John in Luxembourg with Mary as its secretary and nobody as director so far";
    let service = Service::open().await;
    let of = |number: u128, context: &str, message: &str| {
        let request = json!({"messages": [{"role": "user", "content": message}]});
        let more = json!({"context": {"cwd": context}, "llm_request": request});
        with(finished(number, &["open it"], &[0], "open it"), &more)
    };
    service
        .accept(&[
            of(
                1,
                LONG,
                "Which of these files is the one that has changed since we last looked at all of them?",
            ),
            of(
                2,
                LONG,
                "Please say in one word what a user of this shell would most probably type here next.",
            ),
            of(
                3,
                "/elsewhere/with/another/name",
                &format!("Please say in one word about {LONG} what is next."),
            ),
            of(
                4,
                "/again/in/quite/some/different/place",
                &format!("Please say in one word about {LONG} what next."),
            ),
        ])
        .await;
    let ids = async |query: &str| {
        column(
            &service.get(&format!("{ACCEPTED}?format=raw&dedupe=near{query}")).await.rows(),
            "suggestion_id",
        )
    };
    let expected =
        |numbers: &[u128]| numbers.iter().map(|id| json!(Uuid::from_u128(*id))).collect::<Vec<_>>();
    assert_eq!(ids("").await, expected(&[1, 2, 3]));
    assert_eq!(ids("&prompt=context").await, expected(&[1, 3, 4]));
}

#[tokio::test]
async fn the_context_is_the_prompt_of_every_split_if_the_request_cannot_be_read() {
    let service = Service::open().await;
    let event = |number: u128| {
        let text = format!("answer {number}");
        let request = json!({"messages": [{"type": "human", "content": format!("question {number}")}]});
        let more = json!({"llm_request": request, "context": {"n": number % 15}});
        with(finished(number, &[&text], &[0], &text), &more)
    };
    service.accept(&(0..90).map(event).collect::<Vec<_>>()).await;
    let (parts, dropped) = halves(&service, &format!("{ACCEPTED}?format=raw")).await;
    assert!(are_disjoint(&parts, "prompt"));
    assert_eq!((parts.iter().map(Vec::len).sum::<usize>(), dropped), (90, 0));
    assert!(parts.iter().all(|rows| !rows.is_empty()));
}
