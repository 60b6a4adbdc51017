//! Retrieval while documents come in: similar examples are right whatever was known of their project before. And
//! retrieval by the index, however many rare words a text has.

use serde_json::{Value, json};

use crate::support::{Service, column, encoded, eventually};

const DOMAINS: [&str; 2] = ["shell", "queries"];

/// A batch of logs that all share their common words. Each intent has one rare word, which begins with the batch's number.
fn batch(number: usize, domain: &str) -> Vec<Value> {
    let log = |n: usize| {
        let intent = format!("show me the list of all the files in the folder b{number}n{n}");
        json!({"event": "generation", "user_intent": intent, "domain_name": domain, "success": true,
            "final_valid_dsl": format!("(list {number} {n})")})
    };
    (0..1_000).map(log).collect()
}

/// The best example for a paraphrase of a log's intent.
async fn best(service: &Service, number: usize, n: usize, domain: &str) -> Value {
    let intent = encoded(&format!("the folder b{number}n{n}: what files are in it"));
    let path = format!("/v1/generations/similar?intent={intent}{domain}&limit=1");
    let found = service.get(&path).await.expect(200);
    column(found["data"].as_array().expect("examples"), "valid_dsl").into_iter().next().unwrap_or_default()
}

#[tokio::test]
async fn what_was_loaded_last_is_found_though_its_project_was_sampled_when_it_was_small() {
    let service = Service::open().await;
    for domain in DOMAINS {
        service.accept(&batch(0, domain)[..30]).await;
    }
    let scopes = ["", "&domain_name=shell", "&domain_name=queries"];
    for scope in scopes {
        assert_eq!(best(&service, 0, 7, scope).await, "(list 0 7)", "{scope}");
    }
    for number in 1..=4 {
        for domain in DOMAINS {
            service.accept(&batch(number, domain)).await;
        }
    }
    for scope in scopes {
        assert_eq!(best(&service, 4, 998, scope).await, "(list 4 998)", "{scope}");
    }
}

#[tokio::test]
async fn every_batch_is_found_as_soon_as_it_is_accepted_while_the_next_one_comes_in() {
    let service = Service::open().await;
    service.accept(&batch(0, "shell")[..10]).await;
    assert_eq!(best(&service, 0, 7, "").await, "(list 0 7)");
    service.accept(&batch(1, "shell")).await;
    for number in 1..=5 {
        let ask = async {
            for scope in ["", "&domain_name=shell"] {
                for n in [0, 500, 999] {
                    let expected = format!("(list {number} {n})");
                    assert_eq!(best(&service, number, n, scope).await, expected.as_str(), "{scope}");
                }
            }
        };
        let next = batch(number + 1, "shell");
        futures_util::join!(service.accept(&next), ask);
    }
}

/// Documents whose ids are chosen so that every fifth part of all ids has all of them.
const CHOSEN: &str = "
    insert into memories
        (project, id, source_type, content, importance, created_at, search_keys, term_counts, request_hash)
    select 'default', id, 'memory', 'content', 0.5, now(), array[1], '', ''
    from (select md5(n::text)::uuid as id from generate_series(1, 100000) n) chosen
    where uuid_hash(id) % 5 = 0 limit 10000";

#[tokio::test]
async fn a_sample_has_a_limit_whatever_ids_its_documents_have() {
    let service = Service::open().await;
    sqlx::raw_sql(CHOSEN).execute(service.pool()).await.expect("documents");
    sqlx::raw_sql("vacuum analyze").execute(service.pool()).await.expect("a vacuum");
    service.get("/v1/memories/search?query=zebra").await.expect(200);
    // A connection counts what it has read in the statistics when it is closed.
    service.pool().close().await;
    let mut connection = service.connection().await;
    let mut read = 0;
    eventually("the sample is read by its ids", async || {
        let sql = "select idx_tup_fetch from pg_stat_user_indexes where indexrelname = 'memories_pkey'";
        read = sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut connection).await.expect("statistics");
        read > 0
    })
    .await;
    assert!(read <= 4_000, "{read} documents");
}

/// Documents of every kind, of which each has 30 of a thousand keys. Postgres takes any other key for nearly as
/// frequent as the rarest of these.
const DOCUMENTS: &str = "
    insert into memories
        (project, id, source_type, content, importance, created_at, search_keys, term_counts, request_hash)
    select 'default', md5('memory ' || n)::uuid, 'memory', 'content', 0.5, now(),
        array(select (n * 37 + k * 31) % 1000 from generate_series(1, 30) k), '', ''
    from generate_series(1, 10000) n;
    insert into generations
        (project, id, user_intent, domain_name, created_at, success, final_valid_dsl, completed_at, search_keys,
        request_hash)
    select 'default', md5('log ' || n)::uuid, 'intent', 'shell', now(), true, '(program)', now(),
        array(select (n * 37 + k * 31) % 1000 from generate_series(1, 30) k), ''
    from generate_series(1, 10000) n;
    insert into association_queries (project, id, root, repository, query, search_keys)
    select 'default', md5('query ' || n)::uuid, '/srv/app', 'app', 'query',
        array(select (n * 37 + k * 31) % 1000 from generate_series(1, 30) k)
    from generate_series(1, 10000) n";

#[tokio::test]
async fn a_text_of_many_rare_words_is_looked_up_in_the_index() {
    let service = Service::open().await;
    sqlx::raw_sql(DOCUMENTS).execute(service.pool()).await.expect("documents");
    sqlx::raw_sql("vacuum analyze").execute(service.pool()).await.expect("a vacuum");
    let letters = "bcdfghjklmnpqrtvwxz";
    let words = letters.chars().flat_map(|a| letters.chars().map(move |b| format!("q{a}{b}{a}{b}")));
    let text = words.take(150).collect::<Vec<_>>().join(" ");
    for path in ["/v1/memories/search?query=", "/v1/generations/similar?intent=", "/v1/associations?query="] {
        service.get(&format!("{path}{text}", text = encoded(&text))).await.expect(200);
    }
    // A connection counts what it has read in the statistics when it is closed.
    service.pool().close().await;
    let mut connection = service.connection().await;
    for table in ["memories", "generations", "association_queries"] {
        let looked_up =
            "select idx_scan > 0 from pg_stat_user_indexes where indexrelname = $1 || '_search_keys'";
        eventually(&format!("{table} are looked up"), async || {
            let query = sqlx::query_scalar(looked_up).bind(table);
            query.fetch_one(&mut connection).await.expect("statistics")
        })
        .await;
    }
}

/// Documents of another project with the keys of all words of this one. Words that have them can be computed.
const COLLIDING: &str = "
    insert into memories
        (project, id, source_type, content, importance, created_at, search_keys, term_counts, request_hash)
    select 'other', md5('memory ' || n)::uuid, 'memory', 'content', 0.5, now(), own.keys, '', ''
    from generate_series(1, 5000) n,
        (select array_agg(key) as keys from memories, unnest(search_keys) key where key >= 0) own;
    insert into generations
        (project, id, user_intent, domain_name, created_at, success, final_valid_dsl, completed_at, search_keys,
        request_hash)
    select 'other', md5('log ' || n)::uuid, 'intent', 'shell', now(), true, '(program)', now(), own.keys, ''
    from generate_series(1, 5000) n,
        (select array_agg(key) as keys from generations, unnest(search_keys) key where key >= 0) own";

#[tokio::test]
async fn a_search_reads_no_documents_of_another_project_that_have_the_same_keys() {
    let service = Service::open().await;
    service.project("other").await;
    let text = "rebuild the quarterly ledger from yesterday's archived journal entries";
    service.create("/v1/memories", json!({"content": text})).await;
    let log =
        json!({"user_intent": text, "domain_name": "shell", "success": true, "final_valid_dsl": "(rebuild)"});
    service.create("/v1/generations", log).await;
    sqlx::raw_sql(COLLIDING).execute(service.pool()).await.expect("documents");
    sqlx::raw_sql("vacuum analyze").execute(service.pool()).await.expect("a vacuum");
    let found = service.get(&format!("/v1/memories/search?query={}", encoded(text))).await.expect(200);
    assert_eq!(found["data"].as_array().map(Vec::len), Some(1), "{found}");
    let found = service.get(&format!("/v1/generations/similar?intent={}", encoded(text))).await.expect(200);
    assert_eq!(found["data"].as_array().map(Vec::len), Some(1), "{found}");
    // A connection counts what it has read in the statistics when it is closed.
    service.pool().close().await;
    let mut connection = service.connection().await;
    for table in ["memories", "generations"] {
        let mut read = 0;
        eventually(&format!("{table} are read"), async || {
            let sql = "select idx_tup_fetch from pg_stat_user_tables where relname = $1";
            let query = sqlx::query_scalar::<_, i64>(sql).bind(table);
            read = query.fetch_one(&mut connection).await.expect("statistics");
            read > 0
        })
        .await;
        assert!(read < 100, "{read} {table}");
    }
}
