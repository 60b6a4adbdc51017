//! The `gleaner` program: see [`gleaner`] for the map.

/// A quarter of the work of taking an event is making room and giving it back; the system's allocator needs three times as long.
/// It is built without huge pages, which would make an idle server half as large again. Its version 3 has at once what another
/// thread has freed, and version 2 only when the thread that took it asks for more, so that large requests to the gateway took
/// six times as much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    gleaner::cli::run()
}
