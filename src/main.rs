//! The `gleaner` program: see [`gleaner`] for the map.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// A quarter of the work of taking an event is making room and giving it back; the system's allocator needs three times as long.
/// It is built without huge pages, which would make an idle server half as large again. Its version 3 has at once what another
/// thread has freed, and version 2 only when the thread that took it asks for more, so that large requests to the gateway took
/// six times as much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The variable that says for how many milliseconds the allocator keeps what was freed. If it kept it for a second, as it does if
/// nothing is said, a server that has read much would take half as much memory again.
const KEEPS: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "10");

fn main() -> ExitCode {
    // The server is what is asked for by nothing, or only options.
    let serves = |argument: OsString| argument == "serve" || argument.to_string_lossy().starts_with('-');
    if env::args_os().nth(1).is_none_or(serves) && env::var_os(KEEPS.0).is_none() {
        start_again();
    }
    gleaner::cli::run()
}

/// Starts this program anew with the option of the allocator, which reads it from the environment before the program begins. If
/// that fails, the server takes more memory.
fn start_again() {
    let Ok(program) = env::current_exe() else { return };
    // The current program is a loader if one was started with this one as its argument, and it would not know what to load. The
    // server takes more memory then.
    if program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-")) {
        return;
    }
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).env(KEEPS.0, KEEPS.1).exec();
    eprintln!("gleaner: the allocator keeps memory for longer: {error}");
}
