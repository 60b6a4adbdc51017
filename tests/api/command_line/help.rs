//! Help that fits a screen.

use super::{command, said};
use crate::support::server::{folder, run};

/// Every command that people use.
const COMMANDS: [&str; 18] = [
    "serve",
    "migrate",
    "import",
    "export",
    "export training-pairs",
    "snapshots",
    "watch",
    "index",
    "hook install",
    "hook uninstall",
    "mcp",
    "mcp install",
    "mcp uninstall",
    "keys create",
    "keys list",
    "keys revoke",
    "healthcheck",
    "openapi",
];

#[test]
fn help_fits_a_screen_and_the_options_of_the_server_are_those_of_serve() {
    let folder = folder();
    for name in COMMANDS {
        let text = said(&run(&mut command(&folder, &format!("{name} --help")), 0));
        let lines = text.lines().count();
        let most = match name {
            "serve" => 100,
            "export training-pairs" => 90,
            _ => 60,
        };
        assert!(lines <= most, "{name} --help has {lines} lines");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{name}: {text}");
        assert!(text.contains("Example"), "{name} --help has no example: {text}");
        for option in
            ["--admin-key", "--most-exports", "--learn-threshold", "--log-format", "--db-connections"]
        {
            assert_eq!(text.contains(option), name == "serve", "{name}: {option}");
        }
        for option in ["--url", "--key"] {
            let talks = ["import", "export", "snapshots", "watch", "index", "hook", "mcp", "keys"]
                .iter()
                .any(|it| name.starts_with(it));
            let talks = talks && name != "hook uninstall";
            assert_eq!(text.contains(&format!("{option} <")), talks, "{name}: {option}");
        }
        assert_eq!(said(&run(&mut command(&folder, &format!("{name} -h")), 0)), text);
    }
}

#[test]
fn a_project_is_the_same_thing_for_every_command() {
    let folder = folder();
    for name in COMMANDS {
        let text = said(&run(&mut command(&folder, &format!("{name} --help")), 0));
        for option in text.lines().map(str::trim_start).filter(|line| line.starts_with("--project")) {
            assert!(option.starts_with("--project <NAME>"), "{name}: {option}");
        }
    }
}
