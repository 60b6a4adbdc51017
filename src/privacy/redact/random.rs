//! Whether a text looks random, as passwords and keys that a machine has made do.

/// The logarithm, in quarters of a bit, of how much more frequent each letter is in random texts than in words.
const LETTERS: [i32; 26] =
    [-4, 4, -2, 0, -6, 4, 2, 2, -2, 10, 8, 0, 2, -4, -4, 0, 10, -4, -4, -6, 2, 6, 8, 10, 6, 10];
/// The same of a digit, in texts that also have letters.
const DIGIT: i32 = 1;
/// The same of two characters of different classes, which are lower-case letters, upper-case letters, and digits.
const CHANGE: i32 = 8;
/// The same of two characters of the same class.
const NO_CHANGE: i32 = -2;
/// The sum above which a text looks random. With it, nine in ten random texts of 12 letters and digits do, nearly all of
/// 20, and 3 % of the long names in source code.
const ENOUGH: i32 = 8;

/// The minimum number of characters of a text that can be told from a name.
const SHORTEST: usize = 12;

/// Returns whether a text looks random, rather than like words, names or paths.
pub(super) fn is_random(text: &str) -> bool {
    let text = text.trim_end_matches(['=', '.', ':']);
    if text.len() < SHORTEST || text.contains("://") || !text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return false;
    }
    let (mut sum, mut plain, mut before) = (0, 0, None);
    for byte in text.bytes() {
        let class = match byte {
            b'a'..=b'z' => Some(0),
            b'A'..=b'Z' => Some(1),
            b'0'..=b'9' => Some(2),
            _ => None,
        };
        if class.is_some() {
            plain += 1;
            let letter = usize::from(byte.to_ascii_lowercase().wrapping_sub(b'a'));
            sum += LETTERS.get(letter).copied().unwrap_or(DIGIT);
            if before.is_some() {
                sum += if class == before { NO_CHANGE } else { CHANGE };
            }
        }
        before = class;
    }
    // Dates, versions and addresses have many punctuation marks among few characters.
    sum > ENOUGH && plain * 4 >= text.len() * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_texts_are_told_from_words_names_and_numbers() {
        let mut random = fastrand::Rng::with_seed(1);
        for (alphabet, length, least) in [
            ("abcdefghijklmnopqrstuvwxyz0123456789", 12, 850),
            ("abcdefghijklmnopqrstuvwxyz0123456789", 20, 960),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32, 930),
            ("0123456789abcdef", 32, 990),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 20, 990),
        ] {
            let mut letter = || char::from(*random.choice(alphabet.as_bytes()).expect("a letter"));
            let texts = (0..1000).map(|_| (0..length).map(|_| letter()).collect::<String>());
            let found = texts.filter(|text| is_random(text)).count();
            assert!(found >= least, "{found} of 1000: {alphabet}, {length}");
        }
        for name in [
            "totalCacheReadTokens",
            "customer_identifier_2026",
            "requestPasswordTokenFromUser",
            "my-application-production-2",
            "your-api-key-goes-here",
            "configuration.example",
            "10.20.30.40:8080/v1",
            "2026-11-23T10:00:00",
            "https://Xk29.example/Zq81",
            "123456789012",
            "a1b2",
        ] {
            assert!(!is_random(name), "{name}");
        }
    }
}
