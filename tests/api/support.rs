//! What tests share: a database each, the service on it, and requests to it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::OnceLock;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use gleaner::db;
use gleaner::db::embedded::{self, Cluster};
use gleaner::exports::stream::Limits;
use gleaner::privacy::capture::Capture;
use gleaner::projects::Defaults;
use gleaner::router::router;
use gleaner::server::{Running, Settings};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool};
use tokio::sync::OnceCell;
use tower::ServiceExt as _;
use uuid::Uuid;

/// The service on a database of its own, which goes when this is dropped.
pub(crate) struct Service {
    pub(crate) router: Router,
    pub(crate) options: PgConnectOptions,
    running: Running,
    _database: Database,
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
        let running = Running::start(&database.options, settings);
        Self {
            router: router(running.app.clone()),
            options: database.options.clone(),
            running,
            _database: database,
        }
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

    pub(crate) async fn post_text(&self, path: &str, media_type: &str, body: impl Into<Body>) -> Answer {
        let request = request(Method::POST, path).header(header::CONTENT_TYPE, media_type);
        self.send(request.body(body.into()).expect("a request")).await
    }

    /// Posts events as NDJSON.
    pub(crate) async fn events(&self, events: &[Value]) -> Answer {
        let lines: Vec<_> = events.iter().map(Value::to_string).collect();
        self.post_text("/v1/events", "application/x-ndjson", lines.join("\n")).await
    }

    /// The service's own connections.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.running.app.db
    }

    /// The service's own keyring.
    pub(crate) fn keyring(&self) -> &gleaner::auth::keyring::Keyring {
        &self.running.app.keyring
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        self.options.connect().await.expect("the database answers")
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
        let first = json!({"name": "first", "scopes": ["operator"]});
        let key = service.post("/v1/keys", &first).await.expect(201);
        let secret = key["key"].as_str().expect("a secret").to_owned();
        (service, secret)
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
        let mut connection = self.connection().await;
        let tables: Vec<String> =
            sqlx::query_scalar("select tablename::text from pg_tables where schemaname = 'public'")
                .fetch_all(&mut connection)
                .await
                .expect("tables");
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

/// An attempt whose program the linter refused.
pub(crate) fn failed(number: i32, program: &str, error: &str) -> Value {
    json!({"attempt": number, "extracted_dsl": program, "parse_result": {"success": true},
        "lint_result": {"valid": false, "errors": [error]}})
}

/// An attempt whose program passed every stage.
pub(crate) fn passed(number: i32, program: &str) -> Value {
    json!({"attempt": number, "extracted_dsl": program, "parse_result": {"success": true},
        "lint_result": {"valid": true}, "compile_result": {"success": true, "step_count": 1}})
}

/// The object with the members of another added or replaced.
pub(crate) fn with(mut object: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        object[name] = value.clone();
    }
    object
}

/// A text as it stands in a path or a query string.
pub(crate) fn encoded(text: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    encoded.replace('+', "%20")
}

/// One member of each of these objects.
pub(crate) fn column(rows: &[Value], name: &str) -> Vec<Value> {
    rows.iter().map(|row| row[name].clone()).collect()
}

/// Asserts that two JSON values are the same but for the last digits of numbers.
#[track_caller]
pub(crate) fn assert_close(value: &Value, expected: &Value) {
    fn close(value: &Value, expected: &Value) -> bool {
        match (value, expected) {
            (Value::Number(a), Value::Number(b)) => {
                let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
                (a - b).abs() < 1e-6
            }
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| close(a, b)))
            }
            (a, b) => a == b,
        }
    }
    assert!(close(value, expected), "{value:#}\nis not\n{expected:#}");
}

/// A request of this machine to this machine.
pub(crate) fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header(header::HOST, "localhost:8080")
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body, after a look at the status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The body of a refusal: a problem of this status whose `errors` point to these fields.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, pointers: &[&str]) -> Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        let problem = self.expect(status);
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let named: Vec<_> = errors.iter().filter_map(|error| error["pointer"].as_str()).collect();
        assert_eq!(named, pointers, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The rows of NDJSON.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        self.text().lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// The address of the next page.
    pub(crate) fn next(&self) -> Option<String> {
        let link = self.header("link")?;
        let address = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\""));
        Some(address.expect("a link to the next page").to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }
}

/// The same JSON with ids and times replaced: ids by `id-1`, `id-2` in the order they appear, times by `time`.
pub(crate) fn scrub(value: &Value) -> Value {
    fn walk(value: &Value, ids: &mut Vec<String>) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| walk(item, ids)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, member)| (name.clone(), walk(member, ids))).collect()
            }
            Value::String(text) if Uuid::parse_str(text).is_ok() => {
                let place = ids.iter().position(|id| id == text).unwrap_or_else(|| {
                    ids.push(text.clone());
                    ids.len() - 1
                });
                format!("id-{}", place + 1).into()
            }
            Value::String(text) if chrono::DateTime::parse_from_rfc3339(text).is_ok() => "time".into(),
            other => other.clone(),
        }
    }
    walk(value, &mut Vec::new())
}

/// How services of tests run.
pub(crate) fn settings() -> Settings {
    Settings {
        connections: 4,
        exports: Limits { most_exports: 2, ..Limits::default() },
        ..Settings::default()
    }
}

/// A database made from the migrated template.
struct Database {
    name: String,
    options: PgConnectOptions,
}

impl Database {
    async fn create() -> Self {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let template = TEMPLATE
            .get_or_init(|| async {
                let name = format!("gleaner_template_{}", Uuid::new_v4().simple());
                execute(&format!("create database {name} encoding 'UTF8' template template0")).await;
                let pool = db::pool(&server().database(&name), "template", 1);
                db::migrate(&pool).await.expect("migrates");
                pool.close().await;
                name
            })
            .await;
        let name = format!("gleaner_test_{}", Uuid::new_v4().simple());
        execute(&format!("create database {name} template {template}")).await;
        Self { options: server().database(&name), name }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let sql = format!("drop database if exists {} with (force)", self.name);
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(execute(&sql));
        })
        .join()
        .expect("the database goes");
    }
}

async fn execute(sql: &str) {
    let mut connection = server().connect().await.expect("the test server answers");
    sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await.expect(sql);
    connection.close().await.expect("closes");
}

/// The server that tests use: the one that `TEST_DATABASE_URL` names, else a private one that this process starts.
pub(crate) fn server() -> PgConnectOptions {
    static SERVER: OnceLock<(PgConnectOptions, Option<Cluster>)> = OnceLock::new();
    let (options, _) = SERVER.get_or_init(|| {
        if let Ok(url) = std::env::var("TEST_DATABASE_URL") {
            return (url.parse().expect("TEST_DATABASE_URL is a Postgres URL"), None);
        }
        let settings = |folder: &Path| embedded::Settings {
            data_dir: Some(folder.join("data")),
            durable: false,
            launcher: env!("CARGO_BIN_EXE_gleaner").into(),
            ..embedded::Settings::default()
        };
        sweep(settings);
        // Where the user that Postgres runs as under root can reach it.
        let folder = Path::new("/tmp").join(format!("{FOLDER}{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).expect("a temporary folder");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))
            .expect("a folder to be entered");
        let cluster = Cluster::start(&settings(&folder)).expect("a private Postgres starts");
        (cluster.options(), Some(cluster))
    });
    options.clone()
}

const FOLDER: &str = "gleaner-test-";

/// Removes the folders of runs that have ended: nothing runs at the end of a test process that could do so.
fn sweep(settings: impl Fn(&Path) -> embedded::Settings) {
    let entries = std::fs::read_dir("/tmp").expect("a temporary folder").flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(FOLDER)) {
        if entry.path().join("data").exists()
            && matches!(embedded::attach(&settings(&entry.path())), Ok(None))
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
