//! Models and what is learned of them.

use serde_json::json;
use sqlx::Connection as _;

use super::service;
use crate::support::column;
use crate::support::program::{Catalog, models};

#[tokio::test]
async fn a_list_of_models_reads_no_ratios_of_others() {
    let service = service().await;
    let mut connection = service.connection().await;
    let sql =
        "insert into model_ratios select 'default', 'x/' || number, 1, 1 from generate_series(1, 5000) number
        union all select 'default', 'm', 2, 1; analyze model_ratios";
    sqlx::raw_sql(sql).execute(&mut connection).await.expect("ratios");
    let listed = service.get("/v1/models").await.expect(200);
    assert_eq!(column(listed["data"].as_array().expect("models"), "ratio"), [json!(2.0)]);
    let mut transaction = connection.begin().await.expect("a transaction");
    models::list(&mut transaction, "default", &Catalog::default()).await.expect("models");
    let sql =
        "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'model_ratios'";
    let read: i64 = sqlx::query_scalar(sql).fetch_one(&mut *transaction).await.expect("a count");
    assert!(read < 10, "{read} ratios were read");
}
