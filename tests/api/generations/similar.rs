//! Similar examples: which logs are examples, how they rank, and how an intent finds them.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{intent, solved, start};
use crate::support::{Answer, Service, column, encoded, passed, with};

const INTENT: &str = "Create a hedge fund";

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// A service with nine logs: 1 to 5 and 9 are examples, 2 is the same as 1, and 9 is unlike [`INTENT`].
async fn examples() -> Service {
    let service = Service::open().await;
    let log = |number: u128, text: &str, program: &str| {
        with(solved(text, program), &json!({"id": id(number), "model_used": "m"}))
    };
    for body in [
        log(1, INTENT, "(fund)"),
        log(2, INTENT, "(fund)"),
        log(3, INTENT, "(other)"),
        log(4, "Create a hedge fund with John", "(john)"),
        with(
            log(5, "Create a hedge fund of funds", "(funds)"),
            &json!({"domain_name": "entity", "model_used": "n"}),
        ),
        log(6, INTENT, "(poor)"),
        with(
            intent(INTENT),
            &json!({"id": id(7), "success": false, "iterations": [passed(1, "(given up)")]}),
        ),
        with(intent(INTENT), &json!({"id": id(8), "iterations": [passed(1, "(open)")]})),
        log(9, "xyzzy", "(unlike)"),
    ] {
        start(&service, body).await;
    }
    let poor = json!({"rating": "poor", "corrected_dsl": "(corrected)"});
    service.put(&format!("/v1/generations/{}/review", id(6)), &poor).await.expect(200);
    service.put(&format!("/v1/generations/{}/review", id(3)), &json!({"rating": "good"})).await.expect(200);
    service
}

async fn find(service: &Service, query: &str) -> Answer {
    service.get(&format!("/v1/generations/similar?intent={}{query}", encoded(INTENT))).await
}

#[tokio::test]
async fn similar_examples_are_solved_not_poor_distinct_and_the_best_first() {
    let service = examples().await;
    let found = find(&service, "").await.expect(200);
    let data = found["data"].as_array().expect("data");
    let first = json!({"generation_id": id(1), "user_intent": INTENT, "valid_dsl": "(fund)", "domain_name": "cbu",
        "similarity": 1.0, "rating": null});
    let second =
        with(first.clone(), &json!({"generation_id": id(3), "valid_dsl": "(other)", "rating": "good"}));
    assert_eq!(data[..2], [first, second]);
    let similarities: Vec<_> = data.iter().map(|row| row["similarity"].as_f64()).collect();
    assert!(similarities.is_sorted_by(|a, b| a >= b), "{similarities:?}");
    assert!(similarities.iter().flatten().all(|like| (0.2..=1.0).contains(like)));
    let messages = find(&service, "&format=messages&min_similarity=1").await.expect(200);
    assert_eq!(
        messages,
        json!({"messages": [
            {"role": "user", "content": INTENT}, {"role": "assistant", "content": "(fund)"},
            {"role": "user", "content": INTENT}, {"role": "assistant", "content": "(other)"},
        ]})
    );
}

#[tokio::test]
async fn each_parameter_narrows_or_widens_what_is_similar() {
    let service = examples().await;
    for (query, expected) in [
        ("", vec![1, 3, 5, 4]),
        ("&domain_name=cbu", vec![1, 3, 4]),
        ("&domain_name=entity", vec![5]),
        ("&model_used=m", vec![1, 3, 4]),
        ("&limit=1", vec![1]),
        ("&min_similarity=1", vec![1, 3]),
        ("&min_similarity=0&limit=100", vec![1, 3, 5, 4, 9]),
        (&format!("&exclude_id={}", id(3)), vec![1, 5, 4]),
        (&format!("&exclude_id={}", id(1)), vec![2, 3, 5, 4]),
    ] {
        let found = find(&service, query).await.expect(200);
        let mut ids: Vec<_> = expected.iter().map(|&number| json!(id(number))).collect();
        let mut given = column(found["data"].as_array().expect("data"), "generation_id");
        // How examples of nearly the same similarity rank is the ranking's own affair.
        given.sort_by_key(Value::to_string);
        ids.sort_by_key(Value::to_string);
        assert_eq!(given, ids, "{query}");
    }
}

#[tokio::test]
async fn parameters_of_similar_examples_that_make_no_sense_are_refused() {
    let service = Service::open().await;
    for (query, pointer) in [
        ("&limit=0", "/limit"),
        ("&limit=101", "/limit"),
        ("&min_similarity=1.1", "/min_similarity"),
        ("&min_similarity=NaN", "/min_similarity"),
        ("&exclude_id=x", "/exclude_id"),
        ("&format=xml", "/format"),
        ("&colour=red", "/colour"),
    ] {
        find(&service, query).await.refused(422, &[pointer]);
    }
    service.get("/v1/generations/similar").await.refused(422, &["/intent"]);
}

#[tokio::test]
async fn similar_examples_are_found_by_slips_of_the_pen_single_words_code_and_any_script() {
    let service = Service::open().await;
    let logs = [
        ("Create a hedge fund with John as director", "(hedge)"),
        ("Amend the custody agreement of a pension scheme", "(custody)"),
        ("find . -name '*.rs' | xargs wc -l", "(count)"),
        ("株主を追加してください", "(株主)"),
        ("Übertrage die Anteile an die Größte Tochter", "(anteile)"),
        ("สร้างกองทุนใหม่", "(กองทุน)"),
    ];
    let events: Vec<_> = logs
        .iter()
        .map(|(text, program)| {
            json!({"event": "generation", "user_intent": text, "domain_name": "cbu", "success": true, "final_valid_dsl": program})
        })
        .collect();
    service.events(&events).await.expect(200);
    for (intent, program) in [
        ("heqge fnud", "(hedge)"),
        ("custodi", "(custody)"),
        ("scheme", "(custody)"),
        ("xargs wc", "(count)"),
        ("*.rs", "(count)"),
        ("株主", "(株主)"),
        ("größte", "(anteile)"),
        ("กองทุน", "(กองทุน)"),
    ] {
        let path = format!("/v1/generations/similar?intent={}&min_similarity=0.05", encoded(intent));
        let found = service.get(&path).await.expect(200);
        assert_eq!(found["data"][0]["valid_dsl"], program, "{intent}: {found}");
    }
}

#[tokio::test]
async fn an_old_example_is_found_among_thousands_that_share_all_its_words() {
    let service = Service::open().await;
    let solved = |text: &str, program: &str| json!({"event": "generation", "user_intent": text, "domain_name": "cbu", "success": true, "final_valid_dsl": program});
    service.events(&[solved("create fund", "(old)"), solved("zebra", "(zebra)")]).await.expect(200);
    // More than are looked at by any one of the words, and so many others that the newest do not reach back to the first.
    let newer: Vec<_> = (0..8_000)
        .map(|n| match n % 4 {
            0 => solved(&format!("create fund number {n}"), &format!("(fund {n})")),
            _ => solved(&format!("list share {n}"), &format!("(share {n})")),
        })
        .collect();
    service.events(&newer).await.expect(200);
    for intent in ["create fund", "create fund zebra"] {
        for domain in ["", "&domain_name=cbu"] {
            let path = format!(
                "/v1/generations/similar?intent={}&limit=100&min_similarity=0{domain}",
                encoded(intent)
            );
            let found = service.get(&path).await.expect(200);
            let programs = column(found["data"].as_array().expect("examples"), "valid_dsl");
            assert!(programs.contains(&json!("(old)")), "{intent}{domain}: {programs:?}");
        }
    }
}

#[tokio::test]
async fn of_a_long_intent_the_first_thousand_characters_are_compared() {
    let service = Service::open().await;
    // 996 characters, a third more bytes.
    let beginning = "größe ".repeat(166);
    let solved = |end: &str, program: &str| {
        let intent = format!("{beginning}{end}");
        json!({"event": "generation", "user_intent": intent, "domain_name": "d", "success": true, "final_valid_dsl": program})
    };
    service.events(&[solved("wxyz and more", "(long)"), solved("wx", "(short)")]).await.expect(200);
    let path = format!("/v1/generations/similar?intent={}", encoded(&format!("{beginning}wxyz and other")));
    let found = service.get(&path).await.expect(200);
    assert_eq!(column(found["data"].as_array().expect("examples"), "valid_dsl"), ["(long)", "(short)"]);
    assert_eq!(found["data"][0]["similarity"], 1.0);
    assert!(found["data"][1]["similarity"].as_f64() < Some(1.0), "{found}");
}
