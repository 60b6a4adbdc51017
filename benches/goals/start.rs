//! The time from the command to the first response.

use std::time::Instant;

use crate::machine::{folder, memory, serve, stop};
use crate::rounds::median;
use crate::table::Line;
use crate::{Plan, megabytes};

pub(crate) fn run(plan: &Plan) -> Vec<Line> {
    let (mut new, mut existing, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let folder = folder();
        for times in [&mut new, &mut existing] {
            let begun = Instant::now();
            let (mut server, _) = serve(&plan.programs[0], &folder.path().join("data"), &[]);
            times.push(begun.elapsed().as_secs_f64());
            std::thread::sleep(std::time::Duration::from_millis(500));
            resident.push(memory(server.id(), "VmRSS"));
            stop(&mut server);
        }
    }
    let (new, existing, resident) = (median(new), median(existing), median(resident));
    let seconds = |time| format!("{time:.2} s");
    vec![
        Line::new("start with a new folder", seconds(new)).goal("< 3 s", new < 3.0),
        Line::new("start with an existing folder", seconds(existing)).goal("< 1 s", existing < 1.0),
        Line::new("memory when idle", megabytes(resident)).goal("< 40 MB", resident < 40e6),
    ]
}
