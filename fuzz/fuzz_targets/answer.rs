#![no_main]

#[path = "../../tests/fuzz/targets.rs"]
#[allow(dead_code, reason = "each program has one of the targets")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::answer(data));
