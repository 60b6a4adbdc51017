//! The `gleaner` program: see [`gleaner`] for the map.

/// A quarter of the work of taking an event is making room and giving it back; the system's allocator needs three times as long.
/// It is built without huge pages, which would make an idle server half as large again. Its version 2 gives free memory back
/// after a tenth of a second, and version 3 after ten seconds.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    gleaner::cli::run()
}
