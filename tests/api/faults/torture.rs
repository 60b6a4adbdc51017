//! The long run: `make torture`. `TORTURE_SECONDS` says how long (300 if not given), and `TORTURE_SEED` repeats the order of
//! what happens.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::chaos::FULL;
use super::disk::Disk;
use super::fault::{Fault, Scene};
use super::shim::Shim;
use crate::support::server::folder;

const FAULTS: [Fault; 8] = [
    Fault::ServerKilled,
    Fault::PostgresKilled,
    Fault::PostgresRestarted,
    Fault::ServerStopped,
    Fault::ReadOnly,
    Fault::NoConnections,
    Fault::SlowDisk,
    Fault::ClockJumps,
];

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make torture"]
async fn torture() {
    let seconds: u64 = setting("TORTURE_SECONDS").unwrap_or(300);
    let seed: u64 = setting("TORTURE_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("TORTURE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    faults(Duration::from_secs(seconds * 4 / 5), &mut random).await;
    full_disks(Duration::from_secs(seconds / 5), &mut random).await;
}

/// Faults in an order by chance, each a while after the one before.
async fn faults(duration: Duration, random: &mut fastrand::Rng) {
    let folder = folder();
    let shim = Shim::build(&folder);
    let mut scene = Scene::start(&folder, 32, shim);
    let begun = Instant::now();
    let mut struck = BTreeMap::<String, usize>::new();
    loop {
        scene.load.more(random.usize(500..10_000)).await;
        if begun.elapsed() > duration {
            break;
        }
        let fault = random.choice(FAULTS).expect("faults");
        if scene.can_have(fault) {
            scene.strike(fault).await;
            *struck.entry(format!("{fault:?}")).or_default() += 1;
        }
    }
    scene.is_ready().await;
    let took = begun.elapsed().as_secs_f64();
    let events = scene.load.assert_kept(&scene.server).await;
    eprintln!(
        "{events} events acknowledged in {took:.0} s ({:.0}/s), all there and none twice, after {struck:?}",
        events as f64 / took
    );
}

/// A disk that is full again and again.
async fn full_disks(duration: Duration, random: &mut fastrand::Rng) {
    let Some(disk) = Disk::mount(2_048) else { return };
    let scene = Scene::start(&disk.folder, 8, None);
    let (begun, mut times) = (Instant::now(), 0);
    while begun.elapsed() < duration {
        scene.load.more(random.usize(200..3_000)).await;
        disk.fill();
        scene.is_unready(&FULL).await;
        tokio::time::sleep(Duration::from_millis(random.u64(0..2_000))).await;
        disk.free();
        scene.is_ready().await;
        times += 1;
    }
    let events = scene.load.assert_kept(&scene.server).await;
    eprintln!(
        "{events} events acknowledged, all there and none twice, after {times} times that the disk was full"
    );
}
