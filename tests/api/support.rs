//! What tests share: a database each, the service on it, and requests to it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::OnceLock;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use gleaner::app::{App, Running, router};
use gleaner::db;
use gleaner::db::embedded::{self, Cluster, Settings};
use http_body_util::BodyExt as _;
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use tokio::sync::OnceCell;
use tower::ServiceExt as _;
use uuid::Uuid;

/// The service on a database of its own, which goes when this is dropped.
pub(crate) struct Service {
    pub(crate) router: Router,
    pub(crate) app: App,
    pub(crate) options: PgConnectOptions,
    _running: Running,
    _database: Database,
}

impl Service {
    /// An open service: nobody needs a key.
    pub(crate) async fn open() -> Self {
        let database = Database::create().await;
        let running = Running::start(&database.options, 4);
        let app = running.app.clone();
        Self {
            router: router(app.clone()),
            app,
            options: database.options.clone(),
            _running: running,
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

    pub(crate) async fn connection(&self) -> PgConnection {
        self.options.connect().await.expect("the database answers")
    }
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
        let settings = |folder: &Path| Settings {
            data_dir: Some(folder.join("data")),
            durable: false,
            launcher: env!("CARGO_BIN_EXE_gleaner").into(),
            ..Settings::default()
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
fn sweep(settings: impl Fn(&Path) -> Settings) {
    let entries = std::fs::read_dir("/tmp").expect("a temporary folder").flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(FOLDER)) {
        if entry.path().join("data").exists()
            && matches!(embedded::attach(&settings(&entry.path())), Ok(None))
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
