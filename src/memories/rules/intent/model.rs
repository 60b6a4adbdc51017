//! A linear model that recognizes the intent of a query by its words and by runs of characters in them.
//!
//! `examples/fit_intents.rs` fits the model (multinomial logistic regression) and writes `weights.tsv`, of which each line
//! is a feature with its weight for each of the [`CLASSES`]. A feature is a word (`w:`), two words in succession (`b:`,
//! where `^` is the beginning), the first two words (`s:`), or three to five characters of a word with a space at each
//! end (`c:`). Only frequent features are in the file.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use regex::Regex;

use super::IntentType;

/// The intents that the model distinguishes, in the order of the weights.
pub const CLASSES: [IntentType; 5] = [
    IntentType::Implementation,
    IntentType::Learning,
    IntentType::Explanation,
    IntentType::Debugging,
    IntentType::ExampleSeeking,
];

/// The weight of 1 in the file, where weights are integers.
pub const SCALE: f64 = 50.0;
/// The name of the line with the intercepts.
pub const INTERCEPTS: &str = "intercept";
/// The number of characters at each end of a query that are looked at. What is between them is often a log or a file.
const END: usize = 300;

/// The weights in force.
static WEIGHTS: &str = include_str!("weights.tsv");
static MODEL: LazyLock<Model> = LazyLock::new(|| Model::parse(WEIGHTS));
static WORD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[a-z]+(?:'[a-z]+)?|\?|[0-9]+").expect("the pattern is valid"));

/// The value for each of the [`CLASSES`].
pub type Values = [f64; CLASSES.len()];

/// The weights of the features.
#[derive(Debug, Default, Clone)]
pub struct Model {
    /// The weights of each feature.
    pub weights: HashMap<String, Values>,
    /// The log odds of each class before any feature is known.
    pub intercepts: Values,
}

impl Model {
    /// Returns the model in force.
    #[must_use]
    pub fn in_force() -> &'static Self {
        &MODEL
    }

    /// Reads the lines of a file of weights. Lines that begin with `#` are comments.
    #[must_use]
    pub fn parse(file: &str) -> Self {
        let mut model = Self::default();
        for line in file.lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.split('\t');
            let Some(feature) = fields.next() else { continue };
            let values: Values = std::array::from_fn(|_| {
                fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0) / SCALE
            });
            if feature == INTERCEPTS {
                model.intercepts = values;
            } else {
                model.weights.insert(feature.to_owned(), values);
            }
        }
        model
    }

    /// Returns the probability of each class, or none if the model knows no feature of the query. `prose` is the query
    /// as [`prose`](super::prose) returns it.
    #[must_use]
    pub fn probabilities(&self, prose: &str) -> Option<Values> {
        let features = features(prose);
        let known: Vec<_> = features.iter().filter_map(|feature| self.weights.get(feature)).collect();
        if known.is_empty() {
            return None;
        }
        let value = value(known.len());
        let mut shares = self.intercepts;
        for weights in known {
            for (share, weight) in shares.iter_mut().zip(weights) {
                *share += value * weight;
            }
        }
        Some(softmax(shares))
    }
}

/// Returns the value of each of so many features of a query. It makes short and long queries comparable.
#[must_use]
pub fn value(known: usize) -> f64 {
    3.0 / (known.max(1) as f64).sqrt()
}

/// Returns the probabilities that log odds stand for.
#[must_use]
pub fn softmax(mut values: Values) -> Values {
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    for value in &mut values {
        *value = (*value - most).exp();
    }
    let sum: f64 = values.iter().sum();
    values.map(|value| value / sum)
}

/// Returns the features of a query.
#[must_use]
pub fn features(prose: &str) -> BTreeSet<String> {
    let text = ends(prose);
    let words: Vec<_> = WORD
        .find_iter(&text)
        .map(
            |found| {
                if found.as_str().starts_with(|c: char| c.is_ascii_digit()) { "0" } else { found.as_str() }
            },
        )
        .collect();
    let mut features = BTreeSet::new();
    let mut before = "^";
    for word in &words {
        features.insert(format!("w:{word}"));
        features.insert(format!("b:{before} {word}"));
        before = word;
        let padded = format!(" {word} ");
        for length in 3..=5 {
            for start in 0..(padded.len() + 1).saturating_sub(length) {
                // Words are ASCII, so that a byte is a character.
                features.insert(format!("c:{}", &padded[start..start + length]));
            }
        }
    }
    if let [first, second, ..] = words.as_slice() {
        features.insert(format!("s:{first} {second}"));
    }
    features
}

/// Returns the beginning and the end of a long text.
fn ends(text: &str) -> String {
    let Some((from, _)) = text.char_indices().nth(END) else { return text.to_owned() };
    let Some((to, _)) = text.char_indices().nth_back(END - 1) else { return text.to_owned() };
    if to <= from { text.to_owned() } else { format!("{} . {}", &text[..from], &text[to..]) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn features_are_words_and_runs_of_characters() {
        let found = features("how to 401?");
        let expected = [
            "b:0 ?", "b:^ how", "b:how to", "b:to 0", "c: 0 ", "c: ? ", "c: ho", "c: how", "c: how ",
            "c: to", "c: to ", "c:how", "c:how ", "c:ow ", "c:to ", "s:how to", "w:0", "w:?", "w:how",
            "w:to",
        ];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_weights_in_force_are_sorted_and_small() {
        let lines: Vec<_> = WEIGHTS.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(lines.iter().all(|line| line.split('\t').count() == 1 + CLASSES.len()));
        assert_eq!(Model::in_force().weights.len() + 1, lines.len());
        assert!(WEIGHTS.len() < 150_000, "{}", WEIGHTS.len());
    }

    #[test]
    fn a_text_in_no_known_words_has_no_probabilities() {
        assert_eq!(Model::in_force().probabilities("基金"), None);
        assert_eq!(Model::in_force().probabilities(""), None);
    }

    proptest! {
        #[test]
        fn probabilities_sum_to_one(text in ".{0,700}") {
            if let Some(shares) = Model::in_force().probabilities(&text) {
                prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
            }
        }
    }
}
