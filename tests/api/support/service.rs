//! The service on a database of its own, and requests to it.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, header};
use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection, PgPool, Postgres, Transaction};
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::answer::{Answer, request};
use super::database::Database;
use super::eventually;
use super::program::{Capture, Defaults, Keyring, Limits, Running, Settings, begin, build_due, router};

/// The service on a database of its own, which goes when this is dropped.
pub(crate) struct Service {
    pub(crate) router: Router,
    pub(crate) options: PgConnectOptions,
    running: Running,
    /// None for another server of the same database.
    _database: Option<Database>,
}

impl Service {
    /// An open service: nobody needs a key.
    pub(crate) async fn open() -> Self {
        Self::keeping(Capture::Full).await
    }

    /// An open service that keeps so much where projects do not say.
    pub(crate) async fn keeping(capture: Capture) -> Self {
        Self::with(Settings { defaults: Defaults { capture, ..Defaults::default() }, ..settings() }).await
    }

    /// An open service that runs so.
    pub(crate) async fn with(settings: Settings) -> Self {
        let database = Database::create().await;
        let options = database.options.clone();
        Self { _database: Some(database), ..Self::on(options, settings) }
    }

    /// A service on a database without tables.
    pub(crate) async fn empty() -> Self {
        let database = Database::empty().await;
        let options = database.options.clone();
        Self { _database: Some(database), ..Self::on(options, settings()) }
    }

    /// The URL of its database.
    pub(crate) fn url(&self) -> String {
        let options = &self.options;
        let database = options.get_database().expect("a name");
        match options.get_socket() {
            Some(socket) => {
                let host: String =
                    form_urlencoded::byte_serialize(socket.as_os_str().as_encoded_bytes()).collect();
                format!("postgres://{}@localhost/{database}?host={host}", options.get_username())
            }
            None => std::env::var("TEST_DATABASE_URL")
                .expect("a URL")
                .rsplit_once('/')
                .map_or_else(String::new, |(server, _)| format!("{server}/{database}")),
        }
    }

    /// Another server of the same database.
    pub(crate) fn another(&self) -> Self {
        Self::on(self.options.clone(), settings())
    }

    /// Another server of the same database, which it reaches so.
    pub(crate) fn reached_by(options: PgConnectOptions, settings: Settings) -> Self {
        Self::on(options, settings)
    }

    fn on(options: PgConnectOptions, settings: Settings) -> Self {
        let running = Running::start(&options, settings);
        Self { router: router(running.app.clone()), options, running, _database: None }
    }

    /// Waits until so many connections wait for a lock.
    pub(crate) async fn blocked(&self, connections: i64) {
        const SQL: &str = "
            select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        eventually("connections wait for a lock", async || {
            let blocked: i64 = sqlx::query_scalar(SQL).fetch_one(self.pool()).await.expect("a count");
            blocked == connections
        })
        .await;
    }

    /// Waits until so many events wait or are being written.
    pub(crate) async fn queued(&self, events: u64) {
        let line = format!("gleaner_queue_events {events}");
        eventually("the events wait", async || {
            self.get("/metrics").await.text().lines().any(|it| it == line)
        })
        .await;
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.expect("the router answers everything");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path).body(Body::empty()).expect("a request")).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(request(Method::DELETE, path).body(Body::empty()).expect("a request")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, "application/json", body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        let request = request(Method::PUT, path).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_string())).expect("a request")).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        let request = request(Method::PATCH, path).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_string())).expect("a request")).await
    }

    pub(crate) async fn post_text(&self, path: &str, media_type: &str, body: impl Into<Body>) -> Answer {
        let request = request(Method::POST, path).header(header::CONTENT_TYPE, media_type);
        self.send(request.body(body.into()).expect("a request")).await
    }

    /// Posts events as NDJSON.
    pub(crate) async fn events(&self, events: &[Value]) -> Answer {
        let lines: Vec<_> = events.iter().map(Value::to_string).collect();
        self.post_text("/v1/events", "application/x-ndjson", lines.join("\n")).await
    }

    /// Builds the snapshots that are due, and deletes those that are not to be kept any longer.
    pub(crate) async fn build_snapshots(&self) {
        build_due(self.running.app.exports.clone()).await.expect("the database answers");
    }

    /// Keeps snapshots from being built until this is dropped.
    pub(crate) async fn holding_back_snapshots(&self) -> tokio::sync::OwnedMutexGuard<Vec<String>> {
        std::sync::Arc::clone(&self.running.app.exports.building).lock_owned().await
    }

    /// Takes all connections with which the reports of hooks are stored.
    pub(crate) async fn holding_back_reports(&self) -> Vec<PoolConnection<Postgres>> {
        let db = &self.running.app.searches.db;
        let connections =
            (0..db.options().get_max_connections()).map(async |_| db.acquire().await.expect("a connection"));
        join_all(connections).await
    }

    /// Takes all places of the project in which requests read.
    pub(crate) async fn holding_back_reads(&self) -> Vec<impl Sized> {
        let (mut places, project) = (Vec::new(), "default".into());
        let take = || self.running.app.keyring.reading().take(&project, 1);
        while let Ok(place) = timeout(Duration::from_millis(500), take()).await {
            places.push(place);
        }
        places
    }

    /// Takes all places of searches for similar texts.
    pub(crate) async fn holding_back_rankings(&self) -> Vec<impl Sized> {
        let samples = &self.running.app.samples;
        let places =
            (0..8).map(async |number| samples.begin(&format!("{number}").into()).await.expect("a place"));
        join_all(places).await
    }

    /// Waits until all that hooks have reported is stored.
    pub(crate) async fn reports_stored(&self) {
        self.running.app.searches.idle().await;
    }

    /// The service's own connections.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.running.app.db
    }

    /// How many requests have their turn at looking for similar texts.
    pub(crate) fn looking(&self) -> usize {
        self.running.app.similar.taken()
    }

    /// The service's own keyring.
    pub(crate) fn keyring(&self) -> &Keyring {
        &self.running.app.keyring
    }

    /// The same, for work that is done in the background.
    pub(crate) fn running_keyring(&self) -> std::sync::Arc<Keyring> {
        std::sync::Arc::clone(&self.running.app.keyring)
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        self.options.connect().await.expect("the database answers")
    }

    /// A pool of one connection to the database.
    pub(crate) fn pool_of_one(&self) -> PgPool {
        crate::support::program::pool(&self.options, "test", 1)
    }

    /// Holds the locks that a statement takes, in a transaction of somebody else.
    pub(crate) async fn holding(&self, statement: &'static str) -> Transaction<'static, Postgres> {
        let mut transaction = begin(&self.pool_of_one()).await.expect("a transaction");
        let done = sqlx::query(statement).execute(&mut *transaction).await.expect("the locks");
        assert!(done.rows_affected() > 0 || statement.starts_with("lock table"), "it locks something");
        transaction
    }

    /// Sends a request with these headers, and with a JSON body if one is given.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let mut request = request(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.send(request.body(body).expect("a request")).await
    }

    /// A service with keys, and its first key, which may do everything.
    pub(crate) async fn closed() -> (Self, String) {
        let service = Self::open().await;
        let key = service.first_key().await;
        (service, key)
    }

    /// Makes the first key of an open service, which may do everything.
    pub(crate) async fn first_key(&self) -> String {
        let first = json!({"name": "first", "scopes": ["operator"]});
        let key = self.post("/v1/keys", &first).await.expect(201);
        key["key"].as_str().expect("a secret").to_owned()
    }

    /// Makes a project.
    pub(crate) async fn project(&self, name: &str) {
        self.put(&format!("/v1/projects/{name}"), &json!({})).await.expect(201);
    }

    /// Posts something that must be new; its id.
    #[track_caller]
    pub(crate) fn create(&self, path: &str, body: Value) -> impl Future<Output = String> {
        let place = std::panic::Location::caller();
        async move {
            let answer = self.post(path, &body).await;
            assert_eq!(answer.status, 201, "{place}: {}", answer.text());
            answer.json()["id"].as_str().expect("an id").to_owned()
        }
    }

    /// Posts events of which none may be refused or known already.
    pub(crate) async fn accept(&self, events: &[Value]) {
        let summary = self.events(events).await.expect(200);
        let expected = json!({"accepted": events.len(), "duplicates": 0, "rejected": []});
        assert_eq!(summary, expected);
    }

    /// The records of all pages of a list, from page to page by the `Link` header.
    pub(crate) async fn all(&self, path: &str) -> Vec<Value> {
        let mut records = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let answer = self.get(&path).await;
            next = answer.next();
            let page = answer.expect(200);
            assert_eq!(page["next_cursor"].is_null(), next.is_none());
            records.extend(page["data"].as_array().expect("data").iter().cloned());
        }
        records
    }

    /// Everything that the database holds, as text.
    pub(crate) async fn dump(&self) -> String {
        self.dump_but_for("").await
    }

    /// Everything that the database holds but for what the audit says, as text.
    pub(crate) async fn dump_without_audit(&self) -> String {
        self.dump_but_for("audit").await
    }

    async fn dump_but_for(&self, table: &str) -> String {
        let mut connection = self.connection().await;
        let sql = "select tablename::text from pg_tables where schemaname = 'public' and tablename <> $1";
        let tables: Vec<String> =
            sqlx::query_scalar(sql).bind(table).fetch_all(&mut connection).await.expect("tables");
        let mut text = String::new();
        for table in tables {
            let sql = format!("select coalesce(string_agg(t::text, E'\\n'), '') from {table} t");
            let rows: String =
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.expect("rows");
            text.push_str(&rows);
        }
        text
    }
}

/// How services of tests run.
pub(crate) fn settings() -> Settings {
    Settings {
        connections: 4,
        exports: Limits { most_exports: 2, ..Limits::default() },
        // What is looked for is found, however busy the machine is.
        help_patience: std::time::Duration::from_secs(30),
        ..Settings::default()
    }
}
