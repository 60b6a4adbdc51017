//! Estimates the size of texts in tokens if no provider has reported it.
//!
//! A text is counted by the kinds of its characters, in units that are about a token of an average model. How many tokens
//! of a certain model a unit is, its ratio, is learned from what the provider reports. The weights were fitted to the
//! reported growth of prompts in real sessions of coding agents; with a known ratio the median error is 8 %.

/// The units of a letter, of an alphabet whose words are made of many letters.
const LETTER: f64 = 0.2;
/// The units of a letter or sign that is a word or syllable, as in Chinese, Japanese and Korean.
const WIDE: f64 = 0.7;
/// Where the scripts of such letters and signs begin.
const FIRST_WIDE: char = '\u{2e80}';
/// The units of a digit.
const DIGIT: f64 = 1.18;
/// The units of a punctuation mark or symbol.
const MARK: f64 = 0.55;
/// The units of a run of two or more spaces, or of a line end.
const GAP: f64 = 2.0;
/// The units that a message costs besides its text.
const MESSAGE: f64 = 9.5;
/// The units that a call of a tool costs besides its text.
const TOOL_CALL: f64 = 63.0;
/// The beginning of a tool call that is written in the text of a message.
const TOOL_CALL_TEXT: &str = r#"{"name": ""#;

/// The number of tokens per unit if nothing was reported for a model.
pub const DEFAULT_RATIO: f64 = 1.08;
/// The maximum number of units that earlier reports count for, so that a ratio follows a model that has changed.
pub const MEMORY: f64 = 200_000.0;

/// A text's length, by which its size in tokens is estimated. The sum of two is that of both texts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Length {
    /// The number of characters.
    pub chars: i64,
    /// The units, by the kinds of the characters.
    pub units: f64,
}

impl Length {
    /// Measures a message. A blank text is no message, and has no length.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self::of_lines(&[text])
    }

    /// Measures a message of several texts, each of which begins a line.
    #[must_use]
    pub fn of_lines(texts: &[impl AsRef<str>]) -> Self {
        let texts = texts.iter().map(AsRef::as_ref);
        if texts.clone().all(|text| text.trim().is_empty()) {
            return Self::default();
        }
        let (mut chars, mut spaces) = (0, 0);
        let [mut letters, mut wide, mut digits, mut marks, mut gaps] = [0_u32; 5];
        let ends = std::iter::once("").chain(std::iter::repeat("\n"));
        for c in texts.clone().zip(ends).flat_map(|(text, end)| end.chars().chain(text.chars())) {
            chars += 1;
            if c == ' ' || c == '\t' {
                spaces += 1;
                gaps += u32::from(spaces == 2);
                continue;
            }
            spaces = 0;
            let count = match c {
                '\n' => &mut gaps,
                'a'..='z' | 'A'..='Z' => &mut letters,
                '0'..='9' => &mut digits,
                _ if c.is_ascii_punctuation() => &mut marks,
                _ if c.is_whitespace() => continue,
                _ if c.is_alphabetic() && c < FIRST_WIDE => &mut letters,
                _ if c.is_alphabetic() => &mut wide,
                _ if c.is_numeric() => &mut digits,
                _ => &mut marks,
            };
            *count += 1;
        }
        let calls = texts.flat_map(str::lines).filter(|line| line.starts_with(TOOL_CALL_TEXT)).count();
        let weights = [(letters, LETTER), (wide, WIDE), (digits, DIGIT), (marks, MARK), (gaps, GAP)];
        let units: f64 = weights.into_iter().map(|(count, weight)| f64::from(count) * weight).sum();
        Self { chars, units: MESSAGE + units + TOOL_CALL * calls as f64 }
    }

    /// Returns the length of this text and another.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { chars: self.chars + other.chars, units: self.units + other.units }
    }
}

/// How lengths become tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// A fixed number of characters per token.
    CharsPerToken(f64),
    /// A unit is so many tokens.
    Ratio(f64),
}

impl Scale {
    /// Returns the size in tokens, rounded up.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a float beyond i64 saturates")]
    pub fn tokens(self, length: Length) -> i64 {
        match self {
            Self::CharsPerToken(chars) => (length.chars as f64 / chars).ceil() as i64,
            Self::Ratio(ratio) => (length.units * ratio).ceil() as i64,
        }
    }
}

impl Scale {
    /// Returns how many characters are a token where texts of this length were found to have `tokens`. None if they have none.
    #[must_use]
    pub fn chars_per_token(self, length: Length, tokens: i64) -> Option<f64> {
        match self {
            Self::CharsPerToken(chars) => Some(chars),
            Self::Ratio(_) => (tokens > 0).then(|| length.chars as f64 / tokens as f64),
        }
    }
}

/// The ratio of a model, learned from its reported usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Learned {
    /// The tokens of a unit.
    pub ratio: f64,
    /// The units that this rests on.
    pub weight: f64,
}

impl Default for Learned {
    /// Nothing was reported yet. The default has a small weight, because the reports of short texts mainly reflect
    /// the overhead of messages.
    fn default() -> Self {
        Self { ratio: DEFAULT_RATIO, weight: 500.0 }
    }
}

impl Learned {
    /// Learns that what was estimated as `estimated` tokens at `ratio` has `reported` tokens. A report that is wildly off
    /// teaches nothing.
    #[must_use]
    pub fn learn(self, ratio: f64, estimated: i64, reported: i64) -> Self {
        let Some(Lesson { units, tokens }) = Lesson::of(ratio, estimated, reported) else { return self };
        let weight = self.weight + units;
        Self { ratio: (self.ratio * self.weight + tokens) / weight, weight: weight.min(MEMORY) }
    }
}

/// What a report says of a model's ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lesson {
    /// The units of the text.
    pub units: f64,
    /// The tokens that were reported for it.
    pub tokens: f64,
}

impl Lesson {
    /// Takes the lesson from a text that was estimated as `estimated` tokens at `ratio` and has `reported` tokens; none if that
    /// is wildly off, which is no report of the same text.
    #[must_use]
    pub fn of(ratio: f64, estimated: i64, reported: i64) -> Option<Self> {
        let (units, tokens) = (estimated as f64 / ratio, reported as f64);
        (0.2..=5.0).contains(&(tokens / units)).then_some(Self { units, tokens })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_blank_text_has_no_length_and_marks_weigh_more_than_letters() {
        assert_eq!(Length::of(" \n\t"), Length::default());
        assert_eq!(Length::of("abcde"), Length { chars: 5, units: MESSAGE + 5.0 * LETTER });
        assert!(Length::of("{}[]()").units > Length::of("abcdef").units);
        assert!(Length::of("北京大学").units > Length::of("abcd").units);
        assert!((Length::of("a    b").units - Length::of("a  b").units).abs() < 1e-9);
    }

    #[test]
    fn the_seeds_rule_divides_characters_and_rounds_up() {
        let length = Length::of("abcdefgh");
        assert_eq!(Scale::CharsPerToken(3.5).tokens(length), 3);
        assert_eq!(Scale::CharsPerToken(4.0).tokens(length), 2);
    }

    #[test]
    fn a_ratio_comes_near_what_is_reported_and_forgets_slowly() {
        let mut learned = Learned::default();
        for _ in 0..40 {
            learned = learned.learn(1.0, 1_000, 1_500);
        }
        assert!((1.49..1.5).contains(&learned.ratio), "{learned:?}");
        let changed = (0..400).fold(learned, |learned, _| learned.learn(1.0, 1_000, 1_200));
        assert!((1.2..1.26).contains(&changed.ratio), "{changed:?}");
        assert_eq!(Learned::default().learn(1.0, 1_000, 100_000), Learned::default());
        assert_eq!(Learned::default().learn(1.0, 0, 10), Learned::default());
    }

    proptest! {
        #[test]
        fn a_longer_text_is_never_smaller(text in ".{0,60}", more in ".{0,20}") {
            prop_assume!(!text.trim().is_empty());
            let both = Length::of(&format!("{text}{more}"));
            prop_assert!(both.units >= Length::of(&text).units - f64::EPSILON);
            prop_assert!(both.chars >= Length::of(&text).chars);
        }
    }
}
