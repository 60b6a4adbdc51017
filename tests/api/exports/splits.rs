//! Splits by several at once, and of data sets without answers of their own.

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use super::pages::{export, plan};
use super::{TRAINING, solved};
use crate::support::program::{DATASETS, lock};
use crate::support::{Answer, Service, passed, with};

const PARTS: [&str; 3] = ["train", "validation", "test"];

pub(super) fn log(number: u128) -> Value {
    solved(number, &format!("intent {}", number % 40), &[passed(1, &format!("(program {})", number % 31))])
}

pub(super) fn path(part: &str) -> String {
    format!("{TRAINING}?format=raw&split={part}&holdout=0.5")
}

async fn parts(service: &Service, headers: &[(&str, &str)]) -> Vec<Answer> {
    let mut parts = Vec::new();
    for part in PARTS {
        parts.push(service.call(Method::GET, &path(part), headers, None).await);
    }
    parts
}

#[tokio::test]
async fn the_parts_of_a_project_are_those_of_its_own_records() {
    let (service, operator) = Service::closed().await;
    let operator = format!("Bearer {operator}");
    let mut keys = Vec::new();
    for project in ["one", "two"] {
        let headers = [("authorization", operator.as_str())];
        service
            .call(Method::PUT, &format!("/v1/projects/{project}"), &headers, Some(&json!({})))
            .await
            .expect(201);
        let key = json!({"name": "k", "project": project, "scopes": ["write", "read"]});
        let made = service.call(Method::POST, "/v1/keys", &headers, Some(&key)).await.expect(201);
        keys.push(format!("Bearer {}", made["key"].as_str().expect("a secret")));
    }
    let headers = |project: usize| [("authorization", keys[project].as_str())];
    let write = async |project: usize, from: u128, to: u128| {
        for number in from..to {
            let log = log(number);
            let body: Value = log
                .as_object()
                .expect("an object")
                .clone()
                .into_iter()
                .filter(|(name, _)| name != "event")
                .collect();
            service.call(Method::POST, "/v1/generations", &headers(project), Some(&body)).await.expect(201);
        }
    };
    write(0, 0, 60).await;
    let alone = parts(&service, &headers(0)).await;
    // The same texts in another project, in another order, and its own export.
    write(1, 130, 200).await;
    let other = parts(&service, &headers(1)).await;
    let rows = |parts: &[Answer]| parts.iter().map(|part| part.rows().len()).sum::<usize>();
    let dropped = |parts: &[Answer]| {
        let dropped = parts.iter().filter_map(|part| part.header("gleaner-dropped"));
        dropped.map(|count| count.parse::<usize>().expect("a number")).sum::<usize>()
    };
    assert_eq!((rows(&alone) + dropped(&alone), rows(&other) + dropped(&other)), (60, 70));
    for (before, after) in alone.iter().zip(parts(&service, &headers(0)).await) {
        assert_eq!(before.text(), after.text());
    }
    // A key of one project does not split another.
    let named = [headers(0)[0], ("gleaner-project", "two")];
    service.call(Method::GET, &path("train"), &named, None).await.refused(403, &[]);
}

#[tokio::test]
async fn two_splits_that_begin_at_once_are_the_same() {
    let service = Service::open().await;
    // Several pages of records to be put into groups.
    service.accept(&(0..5_000).map(log).collect::<Vec<_>>()).await;
    let another = service.another();
    let [train, validation] = [path("train"), path("validation")];
    let (one, two, three) = tokio::join!(service.get(&train), another.get(&train), another.get(&validation));
    assert_eq!(one.text(), two.text());
    assert_eq!(one.rows().len(), service.get(&train).await.rows().len());
    assert_eq!(three.text(), service.get(&validation).await.text());
    let noted: (i64, i64) = sqlx::query_as("select count(*), count(distinct record) from split_texts")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    assert_eq!(noted, (10_000, 5_000), "an intent and a program of each");
}

#[tokio::test]
async fn the_planner_knows_the_tables_that_the_first_split_and_the_first_search_for_similar_rows_have_filled()
{
    let service = Service::open().await;
    service.accept(&(0..1_000).map(log).collect::<Vec<_>>()).await;
    service.get(&path("validation")).await.rows();
    service.get(&format!("{TRAINING}?dedupe=near&limit=1")).await.rows();
    let sql = "select distinct tablename::text from pg_stats where tablename in ('split_texts', 'near_texts') order by 1";
    let known: Vec<String> = sqlx::query_scalar(sql).fetch_all(service.pool()).await.expect("names");
    assert_eq!(known, ["near_texts", "split_texts"]);
}

#[tokio::test]
async fn what_is_erased_while_groups_are_made_is_deleted_from_them() {
    let service = Service::open().await;
    service.accept(&(0..60).map(log).collect::<Vec<_>>()).await;
    service.get(&path("train")).await.rows();
    service.accept(&(60..120).map(log).collect::<Vec<_>>()).await;
    // An export is stopped while it puts records into groups, and one of them is erased meanwhile.
    let mut holder = service.connection().await;
    let mut held = sqlx::Connection::begin(&mut holder).await.expect("a transaction");
    sqlx::query("lock table split_texts in access exclusive mode").execute(&mut *held).await.expect("locked");
    let erased = format!("/v1/generations/{}", Uuid::from_u128(100));
    let train = path("train");
    let (answer, gone, ()) = tokio::join!(
        service.get(&train),
        async {
            service.blocked(1).await;
            service.delete(&erased).await
        },
        async {
            service.blocked(2).await;
            held.rollback().await.expect("released");
        }
    );
    gone.gone();
    assert_eq!(answer.status, 200);
    let sql = "select count(*) from split_texts where record = $1";
    let left: i64 =
        sqlx::query_scalar(sql).bind(Uuid::from_u128(100)).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(left, 0);
    let parts = parts(&service, &[]).await;
    let rows: usize = parts.iter().map(|part| part.rows().len()).sum();
    let dropped = parts.iter().filter_map(|part| part.header("gleaner-dropped"));
    let dropped: usize = dropped.map(|count| count.parse::<usize>().expect("a number")).sum();
    assert_eq!(rows + dropped, 119);
}

#[tokio::test]
async fn texts_that_differ_in_case_only_are_one_and_texts_that_differ_in_a_letter_are_two() {
    let service = Service::open().await;
    let hashes = "select count(distinct split_hash('intent', text))
        from unnest(array(select chr(n) || '.' from generate_series(ascii('a'), ascii('z')) n)
            || array(select chr(n) || E' \\t\\n\\x0b.' from generate_series(ascii('A'), ascii('Z')) n)) as text";
    let found: i64 = sqlx::query_scalar(hashes).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(found, 26);
}

#[tokio::test]
async fn rankings_are_split_by_session_and_by_nothing_else() {
    let service = Service::open().await;
    for number in 0..40 {
        let slate = json!({"context": {"blocks": []}, "suggestions": ["a", "b"], "viewed_indices": [0], "actual_input": "a",
            "session_name": format!("s{}", number % 20)});
        service.post("/v1/suggestions", &slate).await.expect(201);
    }
    let path = "/v1/exports/rankings?format=raw&include=metadata";
    let seen = divided(&service, path, "/metadata/session_name").await;
    assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 40);
    assert_eq!(divided(&service, &format!("{path}&split_by=session"), "/metadata/session_name").await, seen);
    for by in ["intent", "program"] {
        service.get(&format!("{path}&split=train&split_by={by}")).await.refused(422, &["/split_by"]);
    }
}

/// What stands at a place of the rows of each part, half of all held out; nothing of it stands in two parts.
async fn divided(service: &Service, path: &str, pointer: &str) -> Vec<Vec<String>> {
    let mut seen: Vec<Vec<String>> = Vec::new();
    for part in PARTS {
        let rows = service.get(&format!("{path}&split={part}&holdout=0.5")).await.rows();
        let texts = rows.iter().map(|row| row.pointer(pointer).and_then(Value::as_str).expect("a text"));
        seen.push(texts.map(|text| text.to_lowercase().replace(' ', "")).collect());
    }
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        assert!(seen[one].iter().all(|text| !seen[other].contains(text)), "{path} {seen:?}");
    }
    assert!(seen.iter().all(|part| !part.is_empty()), "{path} {seen:?}");
    seen
}

/// Twenty questions, each asked twice: in different sessions, and the second time in other letters.
fn questions() -> impl Iterator<Item = (u128, String)> {
    (0..40).map(|number| {
        let text = format!("where are invoices of region {} rounded", number % 20);
        (number, if number < 20 { text } else { text.to_uppercase().replace("ARE ", "ARE  ") })
    })
}

#[tokio::test]
async fn searches_with_the_same_query_are_in_one_part() {
    let service = Service::open().await;
    let events = questions().flat_map(|(number, query)| {
        let search = Uuid::from_u128(number);
        [
            json!({"event": "search", "id": search, "query": query, "best_score": 0.1, "result_count": 0,
                "agent_session_id": format!("s{number}"), "timestamp": 1_767_225_600}),
            json!({"event": "fallback", "search_id": search, "kind": "read", "path": "a.rs", "timestamp": 1_767_225_601}),
            json!({"event": "search_outcome", "search_id": search, "timestamp": 1_767_225_602}),
        ]
    });
    service.accept(&events.collect::<Vec<_>>()).await;
    asked_in_one_part(&service, "/v1/exports/search-pairs?format=raw", "/query").await;
}

#[tokio::test]
async fn conversations_that_begin_with_the_same_message_are_in_one_part() {
    let service = Service::open().await;
    let events = questions().flat_map(|(number, text)| {
        let pair = |text: &str| json!({"event": "pair", "topic_id": format!("t{number}"), "user_text": text, "assistant_text": "a"});
        [pair(&text), pair(&format!("later {number}"))]
    });
    service.accept(&events.collect::<Vec<_>>()).await;
    asked_in_one_part(&service, "/v1/exports/conversations?format=raw", "/pairs/0/user_text").await;
}

#[tokio::test]
async fn the_topics_of_a_session_are_in_one_part_where_the_split_is_by_session() {
    let service = Service::open().await;
    let events = (0..40).flat_map(|number: u32| {
        let session = format!("s{}", number / 4);
        let begun = json!({"event": "pair", "topic_id": format!("t{number}"), "session_id": session, "user_text": "q", "assistant_text": "a"});
        // The topic goes on in another session.
        let more = json!({"session_id": format!("later {session}"), "user_text": "r", "star": 3});
        [begun.clone(), with(begun, &more)]
    });
    service.accept(&events.collect::<Vec<_>>()).await;
    let path = "/v1/exports/conversations?format=raw&split_by=session";
    let pointer = "/session_id";
    let seen = divided(&service, path, pointer).await;
    assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 40, "{seen:?}");
    // A filter puts no topic into another part.
    let topics = divided(&service, path, "/topic_id").await;
    assert_eq!(divided(&service, &format!("{path}&star=3"), "/topic_id").await, topics);
}

#[tokio::test]
async fn memories_that_were_suggested_for_the_same_query_are_in_one_part() {
    let service = Service::open().await;
    let memories = (0..20_u128).map(|number| {
        let content = format!("Invoices of region {number} are rounded to the cent.");
        json!({"event": "memory", "id": Uuid::from_u128(number), "content": content})
    });
    service.accept(&memories.collect::<Vec<_>>()).await;
    for (number, query) in questions() {
        let path = format!("/v1/conversations/c{number}");
        service.post(&format!("{path}/queries"), &json!({"query": query})).await.expect(201);
        let threshold = json!({"confidence_threshold": 0});
        let suggested = service.post(&format!("{path}/suggest"), &threshold).await.expect(200);
        let found = &suggested["suggestions"][0]["memory_id"];
        let verdict = json!({"memory_id": found, "verdict": "used"});
        service.post(&format!("{path}/feedback"), &verdict).await.expect(200);
    }
    asked_in_one_part(&service, "/v1/exports/memory-suggestions?format=raw", "/query").await;
}

/// Every question is in one part only, both times; by session that is not so.
async fn asked_in_one_part(service: &Service, path: &str, pointer: &str) {
    let seen = divided(service, path, pointer).await;
    assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 40, "{path}");
    assert_eq!(divided(service, &format!("{path}&split_by=intent"), pointer).await, seen);
    let mut by_session = 0;
    for part in PARTS {
        let path = format!("{path}&split={part}&holdout=0.5&split_by=session");
        by_session += service.get(&path).await.rows().len();
    }
    assert_eq!(by_session, 40, "{path}");
    service.get(&format!("{path}&split=train&split_by=program")).await.refused(422, &["/split_by"]);
}

#[tokio::test]
async fn a_correction_is_in_a_group_even_if_the_log_is_put_into_it_at_the_same_time() {
    let service = Service::open().await;
    service.accept(&[log(1)]).await;
    let id = Uuid::from_u128(1);
    let mut other = service.connection().await;
    let mut page = other.begin().await.expect("a transaction");
    let lock = "insert into text_progress (project, work) values ('default', 'generations')";
    page.execute(lock).await.expect("the first page begins");
    let review = json!({"rating": "poor", "corrected_dsl": "(corrected)"});
    let path = format!("/v1/generations/{id}/review");
    let reviewed = service.put(&path, &review);
    let ended = async {
        service.blocked(1).await;
        let text = "insert into split_texts (project, domain, record, hash, completed_at, split_group)
            select project, 'generations', id, 1, completed_at, 1 from generations";
        page.execute(text).await.expect("a text");
        page.commit().await.expect("the page ends");
    };
    futures_util::join!(async { reviewed.await.expect(200) }, ended);
    let sql = "select count(*) from split_texts where hash = split_hash('program', '(corrected)')";
    let found: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(found, 1);
}

#[tokio::test]
async fn nothing_stays_of_a_log_that_is_erased_while_the_first_page_puts_it_into_a_group() {
    let service = Service::open().await;
    service.accept(&[log(1)]).await;
    let mut other = service.connection().await;
    let mut page = other.begin().await.expect("a transaction");
    lock(&mut page, "default", "generations").await.expect("the first page begins");
    let text = "insert into split_texts (project, domain, record, hash, completed_at, split_group)
        select project, 'generations', id, 1, completed_at, 1 from generations";
    page.execute(text).await.expect("a text");
    let path = format!("/v1/generations/{}", Uuid::from_u128(1));
    let erased = service.delete(&path);
    let ended = async {
        service.blocked(1).await;
        page.commit().await.expect("the page ends");
    };
    futures_util::join!(async { erased.await.gone() }, ended);
    let noted: i64 = sqlx::query_scalar("select count(*) from split_texts")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    assert_eq!(noted, 0);
}

#[tokio::test]
async fn what_has_the_id_of_a_log_can_be_erased_without_it() {
    let service = Service::open().await;
    service.accept(&[log(1)]).await;
    let rows = async || parts(&service, &[]).await.iter().map(|part| part.rows().len()).sum::<usize>();
    assert_eq!(rows().await, 1);
    let id = Uuid::from_u128(1);
    service.delete(&format!("/v1/memories/{id}")).await.refused(404, &[]);
    service.create("/v1/memories", json!({"id": id, "content": "x"})).await;
    service.delete(&format!("/v1/memories/{id}")).await.gone();
    assert_eq!(rows().await, 1);
    service.delete(&format!("/v1/generations/{id}")).await.gone();
    assert_eq!(rows().await, 0);
}

#[tokio::test]
async fn contexts_that_differ_in_spelling_are_in_the_same_part() {
    let service = Service::open().await;
    for (number, context) in [
        r#"{"a": 1, "b": "x y"}"#,
        r#"{"b":"x y","a":1}"#,
        r#"{"a": 1, "b": "x\u0020y"}"#,
        r#"{"a": 1, "b": "x\ny"}"#,
    ]
    .iter()
    .enumerate()
    {
        let input = format!("input {number}");
        let slate = format!(
            r#"{{"context": {context}, "suggestions": ["{input}"], "viewed_indices": [0], "actual_input": "{input}"}}"#
        );
        service.post_text("/v1/suggestions", "application/json", slate).await.expect(201);
    }
    service.get("/v1/exports/accepted-suggestions?split=train").await;
    let sql = "select count(distinct record), count(distinct split_group) from split_texts";
    let groups: (i64, i64) = sqlx::query_as(sql).fetch_one(service.pool()).await.expect("groups");
    assert_eq!(groups, (4, 1));
}

#[tokio::test]
async fn a_suggestion_with_the_id_of_a_log_that_is_erased_stays_in_its_part_and_is_compared_with_others() {
    let service = Service::open().await;
    let slate = |number: u128| {
        json!({"event": "suggestion", "id": Uuid::from_u128(number), "context": {"cwd": "/home/jane/funds"},
            "suggestions": ["git add ."], "viewed_indices": [0], "actual_input": "git add ."})
    };
    service.accept(&[log(1), slate(1), slate(2)]).await;
    let accepted = "/v1/exports/accepted-suggestions";
    let counts = async |path: &str| {
        let mut counts = Vec::new();
        for part in PARTS {
            counts.push(service.get(&format!("{path}?split={part}&holdout=0.5")).await.rows().len());
        }
        counts.push(service.get(&format!("{path}?dedupe=near")).await.rows().len());
        counts
    };
    let [logs, slates] = [counts(TRAINING).await, counts(accepted).await];
    assert_eq!((logs.iter().sum::<usize>(), slates.iter().sum::<usize>()), (2, 3));
    service.delete(&format!("/v1/generations/{}", Uuid::from_u128(1))).await.gone();
    assert_eq!((counts(TRAINING).await, counts(accepted).await), (vec![0; 4], slates));
    let sql = "select (select count(distinct record) from split_texts), (select count(*) from near_texts),
        (select count(*) from near_twins)";
    let noted: (i64, i64, i64) = sqlx::query_as(sql).fetch_one(service.pool()).await.expect("counts");
    assert_eq!(noted, (2, 2, 1));
}

/// Logs with one program, of which the first few are in one group and each other one is in a group of its own.
async fn logs_with_one_program(service: &Service) {
    let logs =
        (0..1_000).map(|number| solved(number, &format!("intent {number}"), &[passed(1, "(program)")]));
    service.accept(&logs.collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_row_is_kept_or_dropped_after_a_few_lookups_however_many_groups_its_program_is_in() {
    /// How often the groups of a text are looked up.
    fn lookups(plan: &Value) -> f64 {
        let is_lookup = plan["Index Name"] == "split_texts_groups";
        let own = if is_lookup { plan["Actual Loops"].as_f64().expect("a number") } else { 0.0 };
        own + plan["Plans"].as_array().into_iter().flatten().map(lookups).sum::<f64>()
    }
    let service = Service::open().await;
    logs_with_one_program(&service).await;
    let entry = DATASETS.iter().find(|entry| entry.description.name == "training-pairs").expect("a data set");
    for (holdout, most) in [("1", 0.0), ("0.9999", 2_000.0)] {
        let export = export(&service, entry, &[("split", "validation"), ("holdout", holdout)]).await;
        let plan = plan(&service, &mut export.next_page("").expect("a statement")).await;
        assert!(plan["Actual Rows"].as_f64() >= Some(20.0), "{plan:#}");
        let lookups = lookups(&plan);
        assert!(lookups <= most, "{holdout}: {lookups} lookups in {plan:#}");
    }
}

#[tokio::test]
async fn a_row_is_dropped_also_if_only_a_late_group_of_its_program_is_in_the_training_part() {
    let service = Service::open().await;
    logs_with_one_program(&service).await;
    let mut dropped = Vec::new();
    // With some of these seeds, none of the first groups is in the training part.
    for seed in 0..8 {
        let path = |part: &str| format!("{TRAINING}?format=raw&split={part}&holdout=0.995&seed={seed}");
        let train = service.get(&path("train")).await.rows().len();
        let validation = service.get(&path("validation")).await;
        let count: usize = validation.header("gleaner-dropped").expect("a count").parse().expect("a number");
        let rows = validation.rows().len();
        assert_eq!(rows == 0, train > 0, "{seed}: {train} rows to train, {rows} to validate");
        dropped.push(count);
    }
    assert!(dropped.iter().filter(|count| **count > 400).count() >= 6, "{dropped:?}");
}

#[tokio::test]
async fn texts_that_differ_in_how_their_letters_are_composed_are_one() {
    let service = Service::open().await;
    let hashes = "select count(distinct split_hash('intent', text))
        from unnest(array[U&'Caf\\00e9 cr\\00e8me', U&'cafe\\0301 cre\\0300me', U&'CAFE\\0301 CR\\00c8ME']) as text";
    let found: i64 = sqlx::query_scalar(hashes).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(found, 1);
}

#[tokio::test]
async fn a_text_of_marks_in_the_wrong_order_is_compared_as_it_is() {
    let service = Service::open().await;
    // To compose a letter with as many marks takes hours, in which nothing ends the statement.
    let same = "select composed(text) = text
        from (select 'e' || repeat(U&'\\0301', 300000) || repeat(U&'\\0316', 300000) as text) texts";
    assert!(sqlx::query_scalar::<_, bool>(same).fetch_one(service.pool()).await.expect("an answer"));
}
