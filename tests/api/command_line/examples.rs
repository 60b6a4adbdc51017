//! The programs in `examples/`, run by the interpreters that are here.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::said;
use crate::support::server::{Server, folder, run};

/// The first of these commands that runs, or none with a word about it.
fn interpreter(candidates: &[&str]) -> Option<Command> {
    let found = candidates.iter().find_map(|line| {
        let mut words = line.split(' ');
        let program = words.next()?;
        let arguments: Vec<_> = words.collect();
        let mut probe = Command::new(program);
        probe.args(&arguments).arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = Command::new(program);
        command.args(arguments);
        Some(command)
    });
    if found.is_none() {
        eprintln!("none of {} is installed: this example was not run", candidates.join(", "));
    }
    found
}

#[test]
fn every_example_of_an_agent_loop_makes_a_pair_of_error_and_repair() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let typescript = ["tsx", "bun", "deno run -A", "node --experimental-strip-types"];
    for (file, interpreters) in
        [("agent_loop.py", &["python3"][..]), ("agent_loop.sh", &["bash"]), ("agent_loop.ts", &typescript)]
    {
        let Some(mut command) = interpreter(interpreters) else { continue };
        let folder = folder();
        let server = Server::start(&folder);
        command.arg(examples.join(file)).env("GLEANER_URL", format!("http://{}", server.address));
        for proxy in [
            "http_proxy",
            "https_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "all_proxy",
            "ALL_PROXY",
            "GLEANER_KEY",
        ] {
            command.env_remove(proxy);
        }
        let rows = said(&run(&mut command, 0));
        let row: Value = serde_json::from_str(&rows).expect("one row");
        let expected = json!({"messages": [
            {"role": "user", "content": "Create a hedge fund"},
            {"role": "assistant", "content": "(cbu.make :name \"Hedge Fund\")", "weight": 0},
            {"role": "user", "content": "Unknown verb: cbu.make"},
            {"role": "assistant", "content": "(cbu.create :name \"Hedge Fund\")", "weight": 1},
        ]});
        assert_eq!(row, expected, "{file}");
    }
}
