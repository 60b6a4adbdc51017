//! The gleaner program.

use std::process::ExitCode;

use gleaner::db::embedded;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|command| command == embedded::COMMAND) {
        eprintln!("{:#}", embedded::child_main(args));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
