//! Every target of the fuzzer for a moment: the corpus, and what comes of it by chance. `FUZZ_SECONDS` is how long each takes
//! (half a second), and `FUZZ_SEED` repeats a run. An input that makes a target panic is left in the folder for temporary
//! files; put into the corpus, it is tried from then on.

mod targets;

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

/// Pieces that are rarely come by by chance.
const PIECES: [&str; 24] = [
    "{", "}", "[", "]", "\"", "\\", "\\u0000", "\\ud800", "\\udc00", "\0", ":", ",", "null", "1e999", "-0",
    "'", "$(", "`", "<<EOF\n", "&&", "|", ";", "\u{feff}", "\u{2028}",
];

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// What the corpus has for a target.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("a corpus").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a file of the corpus")).collect()
}

/// An input by chance: one of the corpus, changed in some places.
fn changed(random: &mut fastrand::Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = random.choice(corpus).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(0..=input.len());
        let end = random.usize(at..=input.len()).min(at + 40);
        match random.u8(0..6) {
            0 => drop(input.drain(at..end)),
            1 => {
                let piece = *random.choice(PIECES.as_slice()).expect("pieces");
                input.splice(at..at, piece.bytes());
            }
            2 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.u8(0..8);
                }
            }
            3 => {
                let piece = input[at..end].repeat(random.usize(1..20));
                input.splice(at..at, piece);
            }
            4 => {
                let other = random.choice(corpus).cloned().unwrap_or_default();
                let from = random.usize(0..=other.len());
                input.splice(at..end, other[from..].iter().copied());
            }
            _ => input.insert(at, random.u8(..)),
        }
    }
    input.truncate(64 << 10);
    input
}

#[test]
fn no_input_makes_a_target_panic() {
    let seconds = setting("FUZZ_SECONDS").unwrap_or(0.5);
    let seed: u64 = setting("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    for (name, target) in targets::ALL {
        let corpus = corpus(name);
        assert!(!corpus.is_empty(), "{name} has no corpus");
        let attempt = |input: &[u8]| {
            if panic::catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
                let file = std::env::temp_dir().join(format!("gleaner-fuzz-{name}"));
                fs::write(&file, input).expect("a file");
                panic!("{name} panicked at what is in {}; FUZZ_SEED={seed}", file.display());
            }
        };
        for input in &corpus {
            attempt(input);
        }
        let (mut random, begun, mut count) = (fastrand::Rng::with_seed(seed), Instant::now(), 0_u64);
        while begun.elapsed() < Duration::from_secs_f64(seconds) {
            attempt(&changed(&mut random, &corpus));
            count += 1;
        }
        eprintln!("{name}: {} of the corpus and {count} others", corpus.len());
    }
}
