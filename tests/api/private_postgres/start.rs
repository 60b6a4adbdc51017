//! Starting a cluster, using it, starting it again, and why a start may be refused.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::{execute, number, postmaster, settings, text};
use crate::support::program::embedded::{self, Cluster, Settings};
use crate::support::server::folder;

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
