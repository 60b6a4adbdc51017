//! The `gleaner` program: see [`gleaner`] for the map.

fn main() -> std::process::ExitCode {
    gleaner::cli::run()
}
