//! SQL as an analyst runs it: through psql where it is installed, and otherwise over a connection of the test.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _, ValueRef as _};

use super::Service;

impl Service {
    /// What statements answer, as psql prints it: a line for each row, its values divided by `|`. Fails with the database's
    /// message.
    pub(crate) async fn sql(&self, statements: &str) -> Result<String, String> {
        match psql() {
            Some(program) => self.run(program, statements),
            None => self.query(statements).await,
        }
    }

    fn run(&self, program: &OsString, statements: &str) -> Result<String, String> {
        let options = &self.options;
        let host = options
            .get_socket()
            .map_or_else(|| options.get_host().into(), |socket| socket.clone().into_os_string());
        let mut process = Command::new(program)
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set", "ON_ERROR_STOP=1"])
            .env("PGHOST", host)
            .env("PGPORT", options.get_port().to_string())
            .env("PGUSER", options.get_username())
            .env("PGDATABASE", options.get_database().expect("a database"))
            .env("PGPASSWORD", options.to_url_lossy().password().unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql runs");
        process.stdin.take().expect("piped").write_all(statements.as_bytes()).expect("psql reads");
        let output = process.wait_with_output().expect("psql ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8").trim_end().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    async fn query(&self, statements: &str) -> Result<String, String> {
        let mut connection = self.connection().await;
        let rows = sqlx::raw_sql(AssertSqlSafe(statements)).fetch_all(&mut connection).await;
        let rows = rows.map_err(|error| error.to_string())?;
        let line = |row: &sqlx::postgres::PgRow| {
            let value = |place| {
                let value = row.try_get_raw(place).expect("a value");
                if value.is_null() { "" } else { value.as_str().expect("text") }.to_owned()
            };
            (0..row.len()).map(value).collect::<Vec<_>>().join("|")
        };
        Ok(rows.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// The program, if it is on the path.
fn psql() -> Option<&'static OsString> {
    static PROGRAM: OnceLock<Option<OsString>> = OnceLock::new();
    let find = || {
        let folders = std::env::var_os("PATH")?;
        let found =
            std::env::split_paths(&folders).map(|folder| folder.join("psql")).find(|it| it.is_file())?;
        Some(found.into_os_string())
    };
    PROGRAM.get_or_init(find).as_ref()
}
