//! A database for each test, copied from a migrated template, on one server for all tests.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::OnceLock;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::program::embedded::{self, Cluster};
use super::program::{migrate, pool};

/// A database made from the migrated template.
pub(crate) struct Database {
    name: String,
    pub(crate) options: PgConnectOptions,
}

impl Database {
    pub(crate) async fn create() -> Self {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let template = TEMPLATE
            .get_or_init(|| async {
                let name = format!("gleaner_template_{}", Uuid::new_v4().simple());
                execute(&format!("create database {name} encoding 'UTF8' template template0")).await;
                let pool = pool(&server().database(&name), "template", 1);
                migrate(&pool).await.expect("migrates");
                pool.close().await;
                name
            })
            .await;
        let name = format!("gleaner_test_{}", Uuid::new_v4().simple());
        execute(&format!("create database {name} template {template}")).await;
        Self { options: server().database(&name), name }
    }
}

impl Database {
    /// A database without tables.
    pub(crate) async fn empty() -> Self {
        let name = format!("gleaner_test_{}", Uuid::new_v4().simple());
        execute(&format!("create database {name} encoding 'UTF8' template template0")).await;
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
fn server() -> PgConnectOptions {
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
