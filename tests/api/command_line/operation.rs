//! Backup, restore, moving to one's own Postgres, and upgrades, through the real program and Postgres's own tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner::db::MIGRATOR;
use sqlx::AssertSqlSafe;
use sqlx::migrate::Migrator;
use tempfile::TempDir;

use super::{command, complaint, fed, said};
use crate::support::Service;
use crate::support::server::{Server, folder, run};

const LOGS: &str = r#"{"event": "generation", "user_intent": "one", "domain_name": "cbu", "success": true, "final_valid_dsl": "(one)"}
{"event": "suggestion", "context": {"cwd": "/"}, "suggestions": ["a", "b"], "session_name": "s", "actual_input": "b"}
"#;

/// A program of Postgres, of the version that the private Postgres has. None, with a word, where it is missing.
fn tool(name: &str) -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let candidates = [folder.join(name), Path::new("/usr/bin").join(name)];
    let found = candidates.into_iter().find(|path| path.exists());
    if found.is_none() {
        eprintln!("{name} is not installed: this test was skipped");
    }
    found
}

/// Data in a private Postgres with a server on it.
fn served() -> (TempDir, Server) {
    let folder = folder();
    let server = Server::start(&folder);
    let mut import = command(&folder, "import -");
    import.env("GLEANER_URL", format!("http://{}", server.address));
    assert!(said(&fed(import, LOGS.as_bytes())).starts_with("accepted 2,"));
    (folder, server)
}

/// A connection to the private Postgres, as its socket is named to Postgres's tools.
fn private(tool: &Path, folder: &TempDir) -> Command {
    let mut command = Command::new(tool);
    command.args(["--username", "postgres", "--host"]).arg(folder.path().join("data/socket"));
    command
}

/// What the data sets have in them.
fn exported(command: impl Fn(&str) -> Command) -> String {
    let sets = ["training-pairs --format raw", "preference-pairs --format raw", "suggestion-history"];
    sets.map(|set| said(&run(&mut command(&format!("export {set}")), 0))).concat()
}

#[test]
fn a_dump_is_restored_into_another_private_postgres() {
    let (Some(pg_dump), Some(pg_restore)) = (tool("pg_dump"), tool("pg_restore")) else { return };
    let (folder, server) = served();
    let before = exported(|line| command(&folder, line));
    assert_eq!(before.lines().count(), 3, "{before}");
    let file = folder.path().join("gleaner.dump");
    run(private(&pg_dump, &folder).args(["--format", "custom", "--file"]).arg(&file).arg("gleaner"), 0);
    drop(server);

    // Into a data folder that was made for it, whose empty tables are replaced.
    let other = self::folder();
    let server = Server::start(&other);
    let mut restore = private(&pg_restore, &other);
    restore
        .args(["--clean", "--if-exists", "--no-owner", "--single-transaction", "--dbname", "gleaner"])
        .arg(&file);
    run(&mut restore, 0);
    assert_eq!(exported(|line| command(&other, line)), before);
    drop(server);
    let server = Server::start(&other);
    assert_eq!(exported(|line| command(&other, line)), before);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_private_postgres_is_moved_to_one_of_ones_own() {
    let (Some(pg_dump), Some(psql)) = (tool("pg_dump"), tool("psql")) else { return };
    let (folder, server) = served();
    let before = exported(|line| command(&folder, line));
    let file = folder.path().join("gleaner.sql");
    run(private(&pg_dump, &folder).args(["--no-owner", "--file"]).arg(&file).arg("gleaner"), 0);
    drop(server);

    let own = Service::empty().await;
    let mut load = Command::new(&psql);
    load.args([
        "--quiet",
        "--single-transaction",
        "--set",
        "ON_ERROR_STOP=1",
        "--dbname",
        &own.url(),
        "--file",
    ])
    .arg(&file);
    run(&mut load, 0);
    let with_url = |line: &str| {
        let mut command = command(&folder, line);
        command.env("DATABASE_URL", own.url());
        command
    };
    assert_eq!(exported(with_url), before);
    run(&mut with_url("migrate"), 0);
    assert!(said(&fed(with_url("import -"), LOGS.as_bytes())).starts_with("accepted 0, duplicates 2,"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_an_older_program_is_brought_up_to_date_by_migrate_alone() {
    let own = Service::empty().await;
    let folder = folder();
    let with_url = |line: &str| {
        let mut command = command(&folder, line);
        command.env("DATABASE_URL", own.url());
        command
    };
    let refused = complaint(&run(&mut with_url("export training-pairs"), 1));
    assert!(refused.contains("has no tables of Gleaner") && refused.contains("gleaner migrate"), "{refused}");

    let all: Vec<_> = MIGRATOR.iter().cloned().collect();
    let older = Migrator { migrations: all[..all.len() - 1].to_vec().into(), ..Migrator::DEFAULT };
    older.run(own.pool()).await.expect("the older schema");
    let refused = complaint(&run(&mut with_url("export training-pairs"), 1));
    assert!(refused.contains("older Gleaner") && refused.contains("gleaner migrate"), "{refused}");
    run(&mut with_url("migrate"), 0);
    assert_eq!(said(&run(&mut with_url("export training-pairs"), 0)), "");

    sqlx::query("update _sqlx_migrations set checksum = '\\x00' where version = 1")
        .execute(own.pool())
        .await
        .expect("another build");
    let refused = complaint(&run(&mut with_url("migrate"), 1));
    for part in
        ["another unreleased build", "migration 1", "begin with an empty database", "pg_dump --data-only"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    sqlx::query("insert into _sqlx_migrations (version, description, success, checksum, execution_time) values (9999, '', true, '', 0)")
        .execute(own.pool())
        .await
        .expect("a newer program");
    let refused = complaint(&run(&mut with_url("migrate"), 1));
    assert!(refused.contains("newer Gleaner") && refused.contains("9999"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_no_writes_is_named_as_such_at_the_start() {
    let own = Service::empty().await;
    let name: String =
        sqlx::query_scalar("select current_database()::text").fetch_one(own.pool()).await.expect("a name");
    let read_only = format!("alter database {name} set default_transaction_read_only = on");
    sqlx::query(AssertSqlSafe(read_only)).execute(own.pool()).await.expect("is set");
    let folder = folder();
    let mut migrate = command(&folder, "migrate");
    let refused = complaint(&run(migrate.env("DATABASE_URL", own.url()), 1));
    assert!(
        refused.contains(&name) && refused.contains("is read-only, because it is a standby"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_are_taken_along_from_one_unreleased_build_to_the_next() {
    let (Some(pg_dump), Some(psql)) = (tool("pg_dump"), tool("psql")) else { return };
    let (folder, server) = served();
    let before = exported(|line| command(&folder, line));
    let file = folder.path().join("data.sql");
    let mut dump = private(&pg_dump, &folder);
    dump.args(["--data-only", "--exclude-table=_sqlx_migrations", "--file"]).arg(&file).arg("gleaner");
    run(&mut dump, 0);
    drop(server);

    let other = self::folder();
    run(&mut command(&other, "migrate"), 0);
    let server = Server::start(&other);
    // The new database has its own default project, whose row the old one takes the place of.
    let mut load = private(&psql, &other);
    load.args(["--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1", "--dbname", "gleaner"]);
    run(load.args(["--command", "truncate projects cascade", "--file"]).arg(&file), 0);
    assert_eq!(exported(|line| command(&other, line)), before);
    drop(server);
}
