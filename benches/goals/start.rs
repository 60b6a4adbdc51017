//! From the command to the first answer.

use std::time::Instant;

use crate::machine::{folder, memory, serve, stop};
use crate::{Line, Plan, median, megabytes};

pub(crate) fn run(plan: &Plan) -> Vec<Line> {
    let (mut new, mut existing, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let folder = folder();
        for times in [&mut new, &mut existing] {
            let begun = Instant::now();
            // The address is printed once the service listens, with its database ready.
            let (mut server, _) = serve(&folder.path().join("data"));
            times.push(begun.elapsed().as_secs_f64());
            std::thread::sleep(std::time::Duration::from_millis(500));
            resident.push(memory(server.id(), "VmRSS"));
            stop(&mut server);
        }
    }
    let (new, existing, resident) = (median(new), median(existing), median(resident));
    let seconds = |time| format!("{time:.2} s");
    vec![
        Line::figure("start with a new folder", seconds(new), String::new(), "< 3 s", Some(new < 3.0)),
        Line::figure(
            "start with an existing folder",
            seconds(existing),
            String::new(),
            "< 1 s",
            Some(existing < 1.0),
        ),
        Line::figure(
            "memory when idle",
            megabytes(resident),
            String::new(),
            "< 40 MB",
            Some(resident < 40e6),
        ),
    ]
}
