//! The machine and the database fail in other ways than by ending: the server says so, and goes on by itself afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::fault::{Fault, Scene, execute};
use super::load::Load;
use super::shim::Shim;
use crate::support::server::{Server, folder};

/// What a server may say while its disk is full: writes fail, or Postgres ends, which it does where it cannot go on with
/// its log.
pub(super) const FULL: [&str; 2] =
    ["the database has no space left on its disk", "the database cannot be reached"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_accepts_no_writes_is_reported_by_readiness_and_once_in_the_log_and_recovers() {
    let folder = folder();
    let (server, log) = Server::start_logged(&folder);
    let load = Load::start(&server, 8);
    let mut scene = Scene { folder: &folder, server, load, shim: None };
    scene.load.more(200).await;
    scene.strike(Fault::ReadOnly).await;
    scene.load.more(200).await;
    scene.load.assert_kept(&scene.server).await;
    let log = fs::read_to_string(log).expect("a log");
    let (_, since) = log.split_once("events cannot be written").expect(&log);
    let trouble: Vec<_> =
        since.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert!(trouble.len() <= 6, "{} lines about one outage, such as {:?}", trouble.len(), &trouble[..6]);
    assert!(since.contains("the database accepts writes again"), "{since}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_reconnects_when_other_clients_release_the_connections_of_the_database() {
    let folder = folder();
    let mut scene = Scene::start(&folder, 4, None);
    scene.load.more(100).await;
    scene.strike(Fault::NoConnections).await;
    scene.load.more(100).await;
    scene.load.assert_kept(&scene.server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_and_a_disk_that_is_slow_lose_nothing_and_leave_the_server_ready() {
    let folder = folder();
    let Some(shim) = Shim::build(&folder) else { return };
    let mut scene = Scene::start(&folder, 4, Some(shim));
    scene.load.more(100).await;
    for fault in [Fault::ClockJumps, Fault::SlowDisk] {
        scene.strike(fault).await;
        scene.load.more(100).await;
    }
    scene.load.assert_kept(&scene.server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_reported_by_readiness_and_loses_nothing_and_the_server_recovers() {
    let Some(disk) = Disk::mount(256) else { return };
    let scene = Scene::start(&disk.folder, 4, None);
    scene.load.more(200).await;
    disk.fill();
    scene.is_unready(&FULL).await;
    disk.free();
    scene.is_ready().await;
    scene.load.more(200).await;
    scene.load.assert_kept(&scene.server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_admits_nobody_because_its_disk_is_full_is_an_outage() {
    const OURS: &str =
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'gleaner%'";
    let Some(disk) = Disk::mount(256) else { return };
    let scene = Scene::start(&disk.folder, 4, None);
    scene.load.more(200).await;
    let mut admin = scene.connect().await.expect("Postgres answers");
    // A session that finds no copy of the catalog writes one, and ends if it cannot: with an internal error.
    for copy in caches(&disk.folder.path().join("data/pgdata")) {
        fs::remove_file(copy).expect("it was there");
    }
    disk.fill();
    execute(&mut admin, OURS).await;
    scene.is_unready(&FULL).await;
    disk.free();
    scene.is_ready().await;
    scene.load.more(200).await;
    scene.load.assert_kept(&scene.server).await;
}

/// The files in which Postgres keeps copies of its catalog, of all databases and of each.
fn caches(cluster: &Path) -> Vec<PathBuf> {
    let databases =
        fs::read_dir(cluster.join("base")).expect("a cluster").map(|entry| entry.expect("it").path());
    let folders = databases.chain([cluster.join("global")]);
    folders.map(|folder| folder.join("pg_internal.init")).filter(|file| file.exists()).collect()
}
