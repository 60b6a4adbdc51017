//! What the statements of an export read of the database: not much more than what they give, wherever the export goes on.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Execute as _, Postgres, QueryBuilder};
use tokio::time::timeout;
use uuid::Uuid;

use super::solved;
use crate::support::program::{COMMON, DATASETS, Entry, Export, from_pairs};
use crate::support::{Service, failed, passed};

/// How many records there are of each domain, and how many an export is asked for.
const RECORDS: u128 = 3_000;
const PIECE: i64 = 20;
/// The most rows that any step of the plan may have: some times those of a piece, and far from all.
const MOST: f64 = 400.0;

/// Records of every domain, each of which makes a row of every data set.
async fn service() -> Service {
    let service = Service::open().await;
    let logs = (0..RECORDS).map(|number| {
        let chain = [failed(1, &format!("(wrong {number})"), "e"), passed(2, &format!("(right {number})"))];
        solved(number, &format!("intent {number}"), &chain)
    });
    let slates = (0..RECORDS).map(|number| {
        json!({"event": "suggestion", "id": Uuid::from_u128(number), "context": {"n": number}, "suggestions": ["a", "b"],
            "viewed_indices": [0, 1], "actual_input": "b"})
    });
    let searches = (0..RECORDS).flat_map(|number| {
        let search = Uuid::from_u128(number);
        [
            json!({"event": "search", "id": search, "query": format!("query {number}"), "best_score": 0.1, "result_count": 1,
                "results": [{"path": "x.rs", "score": 0.1}], "timestamp": 1_767_225_600}),
            json!({"event": "fallback", "search_id": search, "kind": "read", "path": format!("{number}.rs"),
                "timestamp": 1_767_225_601}),
            json!({"event": "search_outcome", "search_id": search, "timestamp": 1_767_225_602}),
        ]
    });
    let pairs = (0..RECORDS * 2).map(|number| {
        json!({"event": "pair", "topic_id": format!("t{}", number / 2), "user_text": format!("u{number}"),
            "assistant_text": "a"})
    });
    for events in [logs.collect::<Vec<_>>(), slates.collect(), searches.collect(), pairs.collect()] {
        service.accept(&events).await;
    }
    // Thousands of suggestions by requests would take long. These are as requests leave them.
    sqlx::raw_sql(MEMORIES).execute(service.pool()).await.expect("memories");
    sqlx::raw_sql("analyze").execute(service.pool()).await.expect("statistics");
    service
}

const MEMORIES: &str = "
    insert into memories (project, id, source_type, content, importance, created_at, request_hash)
    select 'default', md5('memory ' || n)::uuid, 'memory', 'content ' || n, 0.5, now(), ''
    from generate_series(1, 3000) n;
    insert into conversation_queries (project, session_id, id, query, shown, at, request_hash)
    select 'default', 'c' || n, md5('query ' || n)::uuid, 'query ' || n, '{}', now(), ''
    from generate_series(1, 3000) n;
    insert into conversation_memories (project, id, session_id, memory_id, memory_revision, suggest_id, query_id, intent_type, source_type,
        rank, confidence, score, shown_at, verdict, judged_at)
    select 'default', md5('shown ' || n)::uuid, 'c' || n, md5('memory ' || n)::uuid, 0, md5('suggest ' || n)::uuid,
        md5('query ' || n)::uuid, 'unknown', 'memory', 0, 0.5, 0.5, now(), 'used', now() - n * interval '1 second'
    from generate_series(1, 3000) n";

#[tokio::test]
async fn a_piece_of_an_export_reads_little_more_than_it_gives() {
    let service = service().await;
    for entry in &DATASETS {
        for order in ["oldest", "newest"] {
            let name = entry.description.name;
            let path = format!("/v1/exports/{name}?order={order}&limit={}", RECORDS / 2);
            let before = service.get(&path).await;
            let cursor = before.header("gleaner-next-cursor").expect("more");
            let export = export(&service, entry, &[("order", order), ("cursor", cursor)]).await;
            let steps = [("page", export.next_page("")), ("end", export.end(PIECE))];
            for (step, query) in steps {
                let mut query = query.expect("a statement");
                let plan = plan(&service, &mut query).await;
                let (most, found) = (widest(&plan), plan["Actual Rows"].as_f64().expect("a number"));
                assert!(
                    found >= 1.0 && most <= MOST,
                    "{name} {order} {step}: {most} rows in a step of {plan:#}"
                );
            }
        }
    }
}

/// The planner expects a single row of a value that is not in its statistics.
#[tokio::test]
async fn a_value_that_is_new_to_the_planner_is_not_read_whole_for_each_of_its_rows() {
    const NEW: &str = "
        update generations set domain_name = 'new' where id in (select id from generations order by id limit 600);
        update suggestions set suggestion_node_version = 'new' where id in (select id from suggestions order by id limit 600);
        -- Otherwise they count some seconds later.
        select pg_stat_force_next_flush()";
    let service = service().await;
    sqlx::raw_sql(NEW).execute(service.pool()).await.expect("a domain and a version");
    let ways = [("dedupe", "none"), ("dedupe", "exact"), ("dedupe", "near"), ("max_per_answer", "3")];
    for (name, parameter, ways) in [
        ("training-pairs", "domain_name", &ways[..]),
        ("correction-pairs", "domain_name", &ways),
        ("accepted-suggestions", "suggestion_node_version", &ways),
        ("preference-pairs", "suggestion_node_version", &ways),
        ("rankings", "suggestion_node_version", &ways[..2]),
    ] {
        let entry = DATASETS.iter().find(|entry| entry.description.name == name).expect("a data set");
        for way in ways {
            let export = export(&service, entry, &[(parameter, "new"), *way]).await;
            let plan = plan(&service, &mut export.next_page("").expect("a statement")).await;
            let most = widest(&plan);
            assert!(most <= 2.0 * RECORDS as f64, "{name} {way:?}: {most} rows in a step of {plan:#}");
        }
    }
}

/// A program may be long, and be that of very many rows.
#[tokio::test]
async fn a_page_of_corrections_hashes_no_programs() {
    let service = Service::open().await;
    let entry =
        DATASETS.iter().find(|entry| entry.description.name == "correction-pairs").expect("corrections");
    for pairing in ["fix", "next", "final"] {
        let export = export(&service, entry, &[("pairing", pairing), ("dedupe", "none")]).await;
        let page = export.next_page("").expect("a statement");
        let sql = page.sql();
        assert!(!sql.as_str().contains("hash("), "{pairing}: {}", sql.as_str());
    }
}

/// The planner knows two other projects with one long topic each, and nothing of this one, which has many short topics.
#[tokio::test]
async fn a_conversation_is_read_by_itself_in_a_project_that_the_planner_does_not_know() {
    const PAIRS: f64 = 2_000.0;
    const KNOWN: &str = "
        insert into pairs (project, id, topic_id, user_text, assistant_text, user_chars, user_units, assistant_chars,
            assistant_units, created_at, completed_at, lifecycle_state, request_hash)
        select project, gen_random_uuid(), 't', 'u' || n, 'a', 1, 1, 1, 1, now(), now() - n * interval '1 second', 'complete', ''
        from generate_series(1, 10000) n, unnest(array['a', 'b']) project;
        analyze pairs";
    const NEW: &str = "
        insert into pairs (project, id, topic_id, user_text, assistant_text, user_chars, user_units, assistant_chars,
            assistant_units, created_at, completed_at, lifecycle_state, request_hash)
        select 'default', gen_random_uuid(), 't' || n % 1000, 'u' || n, 'a', 1, 1, 1, 1, now(),
            now() - n * interval '1 second', 'complete', ''
        from generate_series(1, 2000) n;
        -- Otherwise they count some seconds later.
        select pg_stat_force_next_flush()";
    let service = Service::open().await;
    let mut connection = service.connection().await;
    for pairs in [KNOWN, NEW] {
        sqlx::raw_sql(pairs).execute(&mut connection).await.expect("pairs");
    }
    let entry =
        DATASETS.iter().find(|entry| entry.description.name == "conversations").expect("conversations");
    let export = export(&service, entry, &[]).await;
    let plan = plan(&service, &mut export.next_page("").expect("a statement")).await;
    let most = widest(&plan);
    assert!(most <= 2.0 * PAIRS, "{most} rows in a step of {plan:#}");
}

/// The planner knows another project with many associations, and nothing of this one.
async fn unknown_associations(service: &Service) {
    let associations = |project: &str| {
        format!(
            "insert into association_queries
                select '{project}', gen_random_uuid(), '', '', 'q' || n, '{{}}' from generate_series(1, 5000) n;
            insert into associations (project, query_id, id, path, weight, weighed_at, evidence, last_seen_at)
                select project, id, gen_random_uuid(), query, 1, now(), 1, now()
                from association_queries where project = '{project}';
            -- Otherwise they count some seconds later.
            select pg_stat_force_next_flush()"
        )
    };
    let mut connection = service.connection().await;
    for sql in [
        associations("known"),
        "analyze associations, association_queries".to_owned(),
        associations("default"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("associations");
    }
}

#[tokio::test]
async fn nobody_waits_for_statistics_that_somebody_else_takes() {
    let service = Service::open().await;
    unknown_associations(&service).await;
    let _taking = service.holding("lock table associations in share update exclusive mode").await;
    let figures = timeout(Duration::from_secs(20), service.get("/v1/analytics/searches"));
    let figures = figures.await.expect("nothing waits").expect(200);
    assert_eq!(figures["associations_created"], 5_000);
}

#[tokio::test]
async fn figures_of_searches_do_not_read_all_queries_for_each_association() {
    let service = Service::open().await;
    unknown_associations(&service).await;
    let figures = service.get("/v1/analytics/searches").await.expect(200);
    assert_eq!(figures["associations_created"], 5_000);
    let mut query = QueryBuilder::new(
        "select count(*) from associations a
        join association_queries q on q.project = 'default' and q.id = a.query_id
        where a.project = 'default'",
    );
    let plan = plan(&service, &mut query).await;
    assert!(widest(&plan) <= 10_000.0, "{plan:#}");
}

#[tokio::test]
async fn equal_conversations_and_equal_rows_of_searches_are_looked_for_once_a_page() {
    let service = Service::open().await;
    for (name, format) in [
        ("conversations", "raw"),
        ("search-pairs", "raw"),
        ("search-pairs", "triplets"),
        ("search-pairs", "pairs"),
    ] {
        let entry = DATASETS.iter().find(|entry| entry.description.name == name).expect("a data set");
        let export = export(&service, entry, &[("dedupe", "exact"), ("format", format)]).await;
        let plan = plan(&service, &mut export.next_page("").expect("a statement")).await;
        assert!(plan.to_string().contains("(hashed SubPlan"), "{name} {format}: {plan:#}");
    }
}

/// A function that is called for each row takes many times as long as an expression.
#[tokio::test]
async fn whether_a_text_is_blank_is_asked_by_an_expression_that_agrees_with_the_regular_one() {
    let service = Service::open().await;
    let texts =
        ["", " ", "\t\n\r", "\u{a0}\u{3000}", "\u{200b}", "a", " a", "\u{a0}a", "\u{e9}", "~", "\u{7f}"];
    let agree =
        r"select count(*) from unnest($1::text[]) as t (content) where has_text(content) = (content ~ '\S')";
    let agree: i64 = sqlx::query_scalar(agree).bind(texts).fetch_one(service.pool()).await.expect("a number");
    assert_eq!(agree, 11);
    let plan = "explain select from generations where has_text(coalesce(corrected_dsl, final_valid_dsl))";
    let plan: Vec<String> = sqlx::query_scalar(plan).fetch_all(service.pool()).await.expect("a plan");
    assert!(!plan.join("\n").contains("has_text"), "{plan:?}");
}

/// A piece of an export, which is about to begin.
pub(super) async fn export(service: &Service, entry: &Entry, parameters: &[(&str, &str)]) -> Export {
    let mut pairs: Vec<_> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    pairs.push(("limit".to_owned(), PIECE.to_string()));
    let (common, own): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|(name, _)| COMMON.contains(&name.as_str()));
    let dataset = (entry.from_query)(&own).expect("parameters of the data set");
    let common = from_pairs(&common).expect("parameters");
    let export = Export::prepare(service.pool(), "default", &entry.description, dataset, common).await;
    export.expect("an export")
}

/// How a statement is carried out. So few rows as there are here are faster read whole than by an index, which is not allowed.
pub(super) async fn plan(service: &Service, query: &mut QueryBuilder<Postgres>) -> Value {
    let arguments = query.build().take_arguments().expect("arguments").unwrap_or_default();
    let sql = format!("explain (analyze, timing off, format json) {}", query.sql().as_str());
    let mut connection = service.connection().await;
    let as_of_many = "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off";
    sqlx::raw_sql(as_of_many).execute(&mut connection).await.expect("settings");
    let query = sqlx::query_scalar_with(AssertSqlSafe(sql), arguments);
    let plan: Value = query.fetch_one(&mut connection).await.expect("a plan");
    plan[0]["Plan"].clone()
}

#[tokio::test]
async fn whether_a_file_is_wrong_for_a_query_is_asked_once_for_all_searches_with_the_query() {
    const SEARCHES: u128 = 400;
    let service = Service::open().await;
    let searches = (0..SEARCHES).flat_map(|number| {
        let (search, session) = (Uuid::from_u128(number), number.to_string());
        [
            json!({"event": "search", "id": search, "query": "q", "best_score": 0.1, "result_count": 0, "agent_session_id": session,
                "timestamp": 1_767_225_600}),
            json!({"event": "fallback", "search_id": search, "kind": "read", "path": "x.rs", "timestamp": 1_767_225_601}),
            json!({"event": "search_outcome", "search_id": search, "timestamp": 1_767_225_602}),
        ]
    });
    service.accept(&searches.collect::<Vec<_>>()).await;
    sqlx::raw_sql("analyze").execute(service.pool()).await.expect("statistics");
    let associations = service.get("/v1/associations?query=q").await.expect(200)["data"].clone();
    let id = associations[0]["id"].as_str().expect("an id");
    let wrong = json!({"verdict": "wrong"});
    service.post(&format!("/v1/associations/{id}/feedback"), &wrong).await.expect(200);
    let entry = DATASETS.iter().find(|entry| entry.description.name == "search-pairs").expect("search pairs");
    let export = export(&service, entry, &[]).await;
    let plan = plan(&service, &mut export.next_page("").expect("a statement")).await;
    let most = widest(&plan);
    assert!(most <= 4.0 * SEARCHES as f64, "{most} rows in a step of {plan:#}");
    assert_eq!(plan["Actual Rows"], 0.0, "{plan:#}");
}

/// The most rows that a step of a plan has read, with those that it has left out.
pub(super) fn widest(plan: &Value) -> f64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or(0.0);
    let each: f64 =
        ["Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter"].map(number).iter().sum();
    let below = plan["Plans"].as_array().into_iter().flatten().map(widest);
    below.fold(each * number("Actual Loops"), f64::max)
}
