//! The private Postgres: it starts, comes back, steps aside and cleans up, whatever was left behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};

use crate::support::program::embedded::{self, Cluster, Settings};
use crate::support::server::folder;

/// Names the folder to [`holds_a_cluster`].
const FOLDER: &str = "GLEANER_TEST_FOLDER";

fn settings(folder: &Path) -> Settings {
    Settings {
        data_dir: Some(folder.join("data")),
        durable: false,
        launcher: env!("CARGO_BIN_EXE_gleaner").into(),
        ..Settings::default()
    }
}

/// Runs work that needs a connection.
fn with<T>(
    options: &PgConnectOptions,
    work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
) -> sqlx::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { work(&mut options.connect().await?).await })
}

fn execute(options: &PgConnectOptions, sql: &'static str) {
    with(options, async |c| sqlx::query(sql).execute(c).await).unwrap();
}

fn number(options: &PgConnectOptions, sql: &'static str) -> sqlx::Result<i32> {
    with(options, async |c| sqlx::query_scalar(sql).fetch_one(c).await)
}

fn text(options: &PgConnectOptions, sql: &'static str) -> String {
    with(options, async |c| sqlx::query_scalar(sql).fetch_one(c).await).unwrap()
}

/// Waits for something that is due soon.
fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "still not so: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The process id in `postmaster.pid`.
fn postmaster(folder: &Path) -> Option<i32> {
    let text = fs::read_to_string(folder.join("data/pgdata/postmaster.pid")).ok()?;
    text.lines().next()?.parse().ok()
}

/// A session in the midst of a query that does not end, and that would not notice its server's end. The
/// answer is whether the session was ended.
fn busy_session(options: &PgConnectOptions) -> JoinHandle<bool> {
    let session = options.clone();
    let handle = thread::spawn(move || {
        let endless = "select count(*) from generate_series(1, 1000000000) a, generate_series(1, 1000) b";
        with(&session, async |c| sqlx::query(endless).execute(c).await).is_err()
    });
    let busy = "select count(*)::int from pg_stat_activity where query like '%a, generate_series%) b'";
    eventually("a session is busy", || number(options, busy).ok().filter(|n| *n > 0));
    handle
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// The process in which [`holds_a_cluster`] runs, killed at the end.
struct Holder(Child);

impl Holder {
    /// Starts it, and waits until its cluster can be used.
    fn start(folder: &Path) -> (Self, PgConnectOptions) {
        let test = ["--ignored", "--exact", "private_postgres::holds_a_cluster"];
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command.args(test).env(FOLDER, folder).stdout(Stdio::null()).spawn().unwrap();
        let options =
            eventually("another process runs a cluster", || embedded::attach(&settings(folder)).ok()?);
        (Self(child), options)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
#[ignore = "no test: what other tests start as another process, in order to kill it"]
fn holds_a_cluster() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let _cluster = Cluster::start(&settings(Path::new(&folder))).unwrap();
    thread::sleep(Duration::from_mins(10));
}

#[test]
fn a_fresh_start_gives_a_private_utf8_database() {
    let folder = folder();
    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    let options = cluster.options();
    assert_eq!(text(&options, "select current_database()::text"), "gleaner");
    assert_eq!(text(&options, "show server_encoding"), "UTF8");
    assert_eq!(text(&options, "show listen_addresses"), "");
    assert_ne!(text(&options, "select datctype::text from pg_database where datname = 'gleaner'"), "C");

    let socket = options.get_socket().unwrap();
    assert_eq!(fs::metadata(socket).unwrap().mode() & 0o777, 0o700);
    let pgdata = fs::metadata(cluster.data_dir().join("pgdata")).unwrap();
    assert_eq!(pgdata.mode() & 0o777, 0o700);
    assert_ne!(pgdata.uid(), 0, "Postgres does not run as root");
    assert!(fs::metadata(cluster.data_dir().join("postgres.log")).unwrap().len() > 0);
}

#[test]
fn a_restart_keeps_the_data() {
    let folder = folder();
    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    execute(&cluster.options(), "create table kept as select 7 as n");
    let pid = cluster.pid().unwrap();
    cluster.stop();
    assert!(kill(Pid::from_raw(pid.try_into().unwrap()), None).is_err(), "Postgres has ended");
    assert_eq!(postmaster(folder.path()), None, "it was a clean shutdown");

    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    assert_eq!(number(&cluster.options(), "select n from kept").unwrap(), 7);
}

#[test]
fn a_durable_cluster_syncs_what_it_commits() {
    let folder = folder();
    let cluster = Cluster::start(&Settings { durable: true, ..settings(folder.path()) }).unwrap();
    for setting in ["show fsync", "show synchronous_commit", "show full_page_writes"] {
        assert_eq!(text(&cluster.options(), setting), "on", "{setting}");
    }
}

#[test]
fn a_second_instance_is_refused_and_told_who_holds_the_folder() {
    let folder = folder();
    let _cluster = Cluster::start(&settings(folder.path())).unwrap();
    let error = Cluster::start(&settings(folder.path())).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    assert!(error.contains("GLEANER_DATA_DIR"), "{error}");
}

#[test]
fn client_commands_find_the_running_cluster_and_only_a_running_one() {
    let folder = folder();
    assert!(embedded::attach(&settings(folder.path())).unwrap().is_none());
    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    let options = embedded::attach(&settings(folder.path())).unwrap().unwrap();
    assert_eq!(number(&options, "select 1").unwrap(), 1);
    cluster.stop();
    assert!(embedded::attach(&settings(folder.path())).unwrap().is_none());
}

#[test]
fn an_unfinished_cluster_is_made_anew() {
    let folder = folder();
    let left = folder.path().join("data/pgdata.new/base");
    fs::create_dir_all(&left).unwrap();
    fs::set_permissions(folder.path().join("data"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(left.join("1"), "half").unwrap();
    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    assert_eq!(number(&cluster.options(), "select 1").unwrap(), 1);
    assert!(!folder.path().join("data/pgdata.new").exists());
}

#[test]
#[cfg(target_os = "linux")]
fn postgres_ends_when_the_service_is_killed() {
    let folder = folder();
    let (mut holder, _) = Holder::start(folder.path());
    holder.kill();
    eventually("the file of a running server is gone", || postmaster(folder.path()).is_none().then_some(()));
}

#[test]
fn an_orphan_is_stopped_by_the_next_start() {
    let folder = folder();
    let (mut holder, options) = Holder::start(folder.path());
    execute(&options, "create table kept as select 7 as n");
    let orphan = postmaster(folder.path()).unwrap();
    // Suspended it cannot follow its service, whichever way it would learn of that end.
    signal(orphan, Signal::SIGSTOP);
    holder.kill();

    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    assert_eq!(number(&cluster.options(), "select n from kept").unwrap(), 7);
    assert_ne!(postmaster(folder.path()), Some(orphan));
}

#[test]
fn what_is_left_of_a_killed_server_is_stopped_by_the_next_start() {
    let folder = folder();
    let (mut holder, options) = Holder::start(folder.path());
    execute(&options, "create table kept as select 7 as n");
    let busy = busy_session(&options);
    let postgres = postmaster(folder.path()).unwrap();
    // Suspended first, so that it cannot end the session when its service ends.
    signal(postgres, Signal::SIGSTOP);
    holder.kill();
    signal(postgres, Signal::SIGKILL);

    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    assert_eq!(number(&cluster.options(), "select n from kept").unwrap(), 7);
    assert!(busy.join().unwrap(), "its session has ended");
}

#[test]
fn a_stale_pid_file_that_names_another_process_is_no_obstacle() {
    let folder = folder();
    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    let socket = cluster.options().get_socket().unwrap().clone();
    let owner = fs::metadata(folder.path().join("data/pgdata")).unwrap();
    let pid_file = folder.path().join("data/pgdata/postmaster.pid");
    let left = fs::read_to_string(&pid_file).unwrap();
    cluster.stop();

    // Postgres takes such a process for a rival only when it is of the same user.
    let mut other = Command::new("sleep");
    other.arg("600");
    if nix::unistd::geteuid().is_root() {
        other.uid(owner.uid()).gid(owner.gid());
    }
    let mut other = other.spawn().unwrap();
    let renamed = |text: &str| {
        let rest = text.split_once('\n').unwrap().1;
        format!("{}\n{rest}", other.id())
    };
    fs::write(&pid_file, renamed(&left)).unwrap();
    fs::create_dir(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(socket.join(".s.PGSQL.5432.lock"), renamed(&left)).unwrap();
    for path in [&pid_file, &socket, &socket.join(".s.PGSQL.5432.lock")] {
        std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    let started = Cluster::start(&settings(folder.path())).map(|c| number(&c.options(), "select 1").unwrap());
    let unharmed = other.try_wait().unwrap().is_none();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(started.unwrap(), 1);
    assert!(unharmed, "the other process is left alone");
}

#[test]
fn an_empty_pid_file_is_no_obstacle() {
    let folder = folder();
    Cluster::start(&settings(folder.path())).unwrap().stop();
    fs::write(folder.path().join("data/pgdata/postmaster.pid"), "").unwrap();
    Cluster::start(&settings(folder.path())).unwrap();
}

#[test]
fn a_path_too_long_for_a_socket_falls_back_to_a_short_one() {
    let folder = folder();
    let long = folder.path().join("long".repeat(30));
    let cluster = Cluster::start(&settings(&long)).unwrap();
    let socket: PathBuf = cluster.options().get_socket().unwrap().clone();
    assert!(!socket.starts_with(folder.path()) && socket.as_os_str().len() < 90, "{}", socket.display());
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o700);
    assert_eq!(number(&cluster.options(), "select 1").unwrap(), 1);
    let attached = embedded::attach(&settings(&long)).unwrap().unwrap();
    assert_eq!(attached.get_socket(), Some(&socket));
    cluster.stop();
    assert!(!socket.exists(), "nothing is left in the temp folder");
}

#[test]
fn a_socket_folder_that_others_can_enter_is_refused() {
    let folder = folder();
    let long = folder.path().join("long".repeat(30));
    let cluster = Cluster::start(&settings(&long)).unwrap();
    let socket: PathBuf = cluster.options().get_socket().unwrap().clone();
    cluster.stop();
    fs::create_dir(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Cluster::start(&settings(&long));
    fs::remove_dir(&socket).unwrap();
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("not a folder private to"), "{error}");
}

#[test]
fn a_killed_postgres_is_started_again_and_has_lost_nothing() {
    let folder = folder();
    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    execute(&cluster.options(), "create table kept as select 7 as n");
    let busy = busy_session(&cluster.options());
    let killed = cluster.pid().unwrap();
    signal(killed.try_into().unwrap(), Signal::SIGKILL);
    let again = eventually("another Postgres runs", || cluster.pid().filter(|pid| *pid != killed));
    let n = eventually("it answers", || number(&cluster.options(), "select n from kept").ok());
    assert_eq!(n, 7);
    assert_eq!(cluster.pid(), Some(again));
    assert!(busy.join().unwrap(), "its session has ended");
}

#[test]
fn a_killed_backend_does_not_end_the_server() {
    let folder = folder();
    let cluster = Cluster::start(&settings(folder.path())).unwrap();
    let pid = cluster.pid();
    let backend = with(&cluster.options(), async |c| {
        let backend = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *c).await?;
        signal(backend, Signal::SIGKILL);
        Ok(backend)
    });
    assert!(backend.is_ok());
    eventually("it answers again", || number(&cluster.options(), "select 1").ok());
    assert_eq!(cluster.pid(), pid);
}

#[test]
fn without_postgres_the_error_says_what_to_do() {
    let folder = folder();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let settings = Settings { pg_bindir: Some(empty), path: Some("".into()), ..settings(folder.path()) };
    let error = Cluster::start(&settings).unwrap_err().to_string();
    for part in ["PostgreSQL 14 or newer", "make run", "PG_BINDIR", "DATABASE_URL"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    assert!(!folder.path().join("data").exists(), "nothing was begun");
}

#[test]
fn a_start_that_fails_says_what_postgres_said() {
    let folder = folder();
    Cluster::start(&settings(folder.path())).unwrap().stop();
    fs::write(folder.path().join("data/pgdata/postgresql.auto.conf"), "no_such_setting = 1\n").unwrap();
    let error = Cluster::start(&settings(folder.path())).unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}

#[test]
fn a_folder_that_postgres_cannot_reach_is_refused_by_the_name_of_what_is_closed() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = folder();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let error = Cluster::start(&settings(&closed.join("below"))).unwrap_err().to_string();
    assert!(error.contains(&format!("{} is closed", closed.display())), "{error}");
    assert!(!closed.join("below").exists(), "nothing was begun");
}
