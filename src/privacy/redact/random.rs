//! Whether a text looks random, as passwords and keys that a machine has made do.

use super::replacements::without_replacements;
use super::value_ends::{LONGEST, ending};

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

/// The sum above which a text with many punctuation marks looks random, and the numbers of characters that it may have.
const ENOUGH_MARKS: i32 = 12;
const MARKED: std::ops::RangeInclusive<usize> = 16..=128;
/// The number of different punctuation marks that such a text has, besides those of names, paths and dates.
const LEAST_MARKS: u32 = 3;
/// The average length of its words, which are letters between other characters.
const LONGEST_WORDS: usize = 4;

/// What is known of a text's characters.
#[derive(Default)]
struct Kinds {
    sum: i32,
    letters: usize,
    digits: usize,
    words: usize,
    /// Which kinds of letters and digits, and which punctuation marks there are, as bits.
    classes: u8,
    marks: u128,
}

impl Kinds {
    fn of(text: &str) -> Self {
        let (mut kinds, mut before) = (Self::default(), None);
        for byte in text.bytes() {
            let class = match byte {
                b'a'..=b'z' => Some(0),
                b'A'..=b'Z' => Some(1),
                b'0'..=b'9' => Some(2),
                _ => None,
            };
            if let Some(class) = class {
                let letter = usize::from(byte.to_ascii_lowercase().wrapping_sub(b'a'));
                kinds.sum += LETTERS.get(letter).copied().unwrap_or(DIGIT);
                kinds.classes |= 1 << class;
                if class == 2 {
                    kinds.digits += 1;
                } else {
                    kinds.letters += 1;
                    kinds.words += usize::from(before.is_none_or(|before| before == 2));
                }
                if let Some(before) = before {
                    kinds.sum += if class == before { NO_CHANGE } else { CHANGE };
                }
            } else if byte.is_ascii_graphic() && !b"-_./:=".contains(&byte) {
                kinds.marks |= 1 << byte;
            }
            before = class;
        }
        kinds
    }
}

/// Returns whether a text looks random, rather than like words, names or paths.
pub(super) fn is_random(text: &str) -> bool {
    let text = without_replacements(text);
    let text = text.trim_end_matches(['=', '.', ':']);
    if text.len() < SHORTEST || text.contains("://") || has_brackets(text) {
        return false;
    }
    let Kinds { sum, letters, digits, words, classes, marks } = Kinds::of(text);
    // Dates, versions and addresses have many punctuation marks among few characters, and so do some passwords.
    if (letters + digits) * 4 >= text.len() * 3 && !text.contains(char::is_whitespace) {
        return letters > 0 && sum > ENOUGH && (marks == 0 || digits > 0);
    }
    MARKED.contains(&text.len())
        && (letters + digits) * 3 >= text.len()
        && sum > ENOUGH_MARKS
        && classes.count_ones() >= 2
        && marks.count_ones() >= LEAST_MARKS
        && letters <= words * LONGEST_WORDS
        && text.bytes().filter(u8::is_ascii_whitespace).count() * 8 <= text.len()
}

/// Returns whether a text has brackets that belong together, as those of calls, templates and regular expressions do.
fn has_brackets(text: &str) -> bool {
    let mut open = Vec::new();
    let mut has_any = false;
    for byte in text.bytes() {
        match byte {
            b'(' => open.push(b')'),
            b'[' | b'{' | b'<' => open.push(byte + 2),
            b')' | b']' | b'}' | b'>' if open.pop() != Some(byte) => return false,
            b')' | b']' | b'}' | b'>' => has_any = true,
            _ => (),
        }
    }
    has_any && open.is_empty()
}

/// The minimum number of characters of a text that can be told from a name wherever it is, if it has letters of both cases or
/// of one.
const VERY_RANDOM: (usize, usize) = (16, 20);

/// Returns whether a text has letters and digits that are mixed as they are in no name, and is not a hexadecimal number.
pub(super) fn is_very_random(text: &str) -> bool {
    let Kinds { sum, classes, letters, digits, .. } = Kinds::of(text);
    let (both, one) = VERY_RANDOM;
    let is_long = match classes {
        0b111 => text.len() >= both,
        0b101 | 0b110 => {
            text.len() >= one && !text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        }
        _ => false,
    };
    let plain = letters + digits;
    is_long && plain * 8 >= text.len() * 7 && i32::try_from(plain).is_ok_and(|plain| sum * 2 > plain * 5)
}

/// The minimum number of digits of a hexadecimal number that is probably a key.
const KEY: usize = 32;

/// Returns whether a text is a hexadecimal number that is long enough to be a key.
pub(super) fn is_long_number(text: &str) -> bool {
    text.len() >= KEY && text.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_random(text)
}

/// Returns whether a text looks like nothing but a key, where there may be names too.
pub(super) fn is_key(text: &str) -> bool {
    is_very_random(text) || is_long_number(text)
}

/// Returns whether no character of a text makes up half of it, as it does in placeholders and binary files.
pub(super) fn is_varied(text: &str) -> bool {
    let mut counts = [0_usize; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    counts.iter().all(|count| count * 2 < text.len())
}

/// Returns the short name with which a text begins.
fn short_name(text: &str) -> Option<&str> {
    const NAMES: [&str; 3] = ["pass", "pwd", "pw"];
    const LONG: [&str; 4] = ["password", "passwd", "passphrase", "passcode"];
    let begins = |name: &str| text.get(..name.len()).filter(|letters| letters.eq_ignore_ascii_case(name));
    if LONG.into_iter().any(|name| begins(name).is_some()) {
        return None;
    }
    NAMES.into_iter().find_map(begins)
}

/// Returns whether what looks like a short name is a part of a word that was drawn at random: such a word is around it, or its letters
/// have capitals where no name has them, as in `pWd`. What is behind the name may belong to it.
pub(super) fn is_in_random_word(before: &str, name: &str) -> bool {
    const SHORT: usize = 4;
    let is_letter_or_digit = |c: char| c.is_ascii_alphanumeric();
    let is_of_word = |c: char| is_letter_or_digit(c) || "_-+/".contains(c);
    let end = ending(before, LONGEST);
    if name.find(|c| !is_of_word(c)).is_some_and(|length| length <= SHORT)
        && is_very_random(end.rsplit(|c| !is_of_word(c)).next().unwrap_or(end))
    {
        return true;
    }
    // In camel case, a name may begin with the last letter before it.
    let own = short_name(name);
    let Some(letters) = own.or_else(|| short_name(name.get(1..)?)) else { return false };
    let is_mixed = letters.bytes().skip(1).any(|letter| letter.is_ascii_uppercase())
        && letters.bytes().any(|letter| letter.is_ascii_lowercase());
    // A name that is joined to others is at their end.
    let is_joined = own.is_some_and(|letters| !name[letters.len()..].starts_with(is_of_word));
    let is_of_piece = |c: char| if is_joined { is_letter_or_digit(c) } else { is_of_word(c) };
    let piece = [
        end.rsplit(|c| !is_of_piece(c)).next().unwrap_or(end),
        name.split(|c| !is_of_piece(c)).next().unwrap_or(name),
    ];
    is_mixed || is_very_random(&piece.concat())
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
