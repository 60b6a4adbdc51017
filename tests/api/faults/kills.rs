//! The server or its Postgres is killed or restarted under load.

use nix::sys::signal::Signal;

use super::fault::{Fault, Scene};
use super::load::Load;
use crate::support::server::{Server, folder};

/// Strikes the faults one after another, each while events come in.
async fn survives(faults: &[Fault]) {
    let folder = folder();
    let mut scene = Scene::start(&folder, 8, None);
    scene.load.more(200).await;
    for fault in faults {
        scene.strike(*fault).await;
        scene.load.more(200).await;
    }
    scene.is_ready().await;
    scene.load.assert_kept(&scene.server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_server_under_load_loses_nothing_acknowledged_and_stores_nothing_twice() {
    survives(&[Fault::ServerKilled, Fault::ServerKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_postgres_under_load_is_a_503_until_it_is_back_by_itself_and_loses_nothing() {
    survives(&[Fault::PostgresKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_postgres_under_load_needs_no_restart_of_the_server_and_loses_nothing() {
    survives(&[Fault::PostgresRestarted]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_ends_the_server_and_its_postgres_and_loses_nothing() {
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server, 8);
    load.more(200).await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0));
    assert!(!folder.path().join("data/pgdata/postmaster.pid").exists(), "Postgres has ended too");
    server = Server::start(&folder);
    load.moved_to(&server);
    load.assert_kept(&server).await;
}
