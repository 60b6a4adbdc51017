//! A service, a Postgres or a session that is killed, and what the next start finds.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use sqlx::postgres::PgConnectOptions;

use super::{busy_session, eventually, execute, number, postmaster, settings, signal, with};
use crate::support::program::embedded::{self, Cluster};
use crate::support::server::folder;

/// Names the folder to [`holds_a_cluster`].
const FOLDER: &str = "GLEANER_TEST_FOLDER";

/// The process in which [`holds_a_cluster`] runs, killed at the end.
struct Holder(Child);

impl Holder {
    /// Starts it, and waits until its cluster can be used.
    fn start(folder: &Path) -> (Self, PgConnectOptions) {
        let test = ["--ignored", "--exact", "private_postgres::crashes::holds_a_cluster"];
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
