//! Fits the weights of the model that recognizes the intents of queries.
//!
//! ```sh
//! cargo run --release --example fit_intents -- DATA/*.jsonl.gz > weights.tsv
//! mv weights.tsv src/memories/rules/intent/weights.tsv
//! ```
//!
//! A line of a file is a question: `{"query" | "title", "seed_labels": [intents], "post"? | "id"}`. Any of the labels is
//! right, and questions with the same `post` are never on both sides of a test. The standard error says how good the weights
//! are: on the questions that they are fitted to, and on those that are left out in turn (tenfold cross-validation).

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use gleaner::memories::rules::intent::model::{
    CLASSES, INTERCEPTS, Model, SCALE, Values, features, softmax, value,
};
use gleaner::memories::rules::intent::{IntentType, intent, prose};
use serde::Deserialize;

/// In how many parts the questions are divided for cross-validation.
const FOLDS: usize = 10;
/// The number of questions in which a feature must occur. Rare features would overfit, and could reveal what was asked.
const FREQUENT: usize = 4;
/// The number of features that are kept: those with the largest weights.
const KEPT: usize = 4_000;
/// How strongly weights are drawn to 0.
const RIDGE: f64 = 1.0;
/// The share of `learning` in a question that has other labels too. It is nearly always one of several, and would hide them.
const LEARNING: f64 = 0.4;
/// Factors on the odds of each class, in the order of [`CLASSES`], such that what is less frequent is found too.
const ODDS: Values = [1.1, 0.9, 1.2, 1.0, 2.0];
/// The steps of the fit.
const STEPS: i32 = 300;

#[derive(Deserialize)]
struct Line {
    id: String,
    post: Option<String>,
    query: Option<String>,
    title: Option<String>,
    seed_labels: Vec<String>,
}

/// How many are right, of how many.
type Counts = (u32, u32);

/// A question with its intents.
struct Question {
    set: String,
    group: String,
    text: String,
    labels: Vec<IntentType>,
    features: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut questions = Vec::new();
    for path in std::env::args().skip(1) {
        read(&path, &mut questions)?;
    }
    let fold = folds(&questions);
    let models: Vec<_> = (0..FOLDS)
        .map(|left_out| {
            let rest: Vec<_> =
                questions.iter().filter(|question| fold[&question.group] != left_out).collect();
            fit(&rest)
        })
        .collect();
    report("left out in turn", &questions, |question| &models[fold[&question.group]]);
    let model = fit(&questions.iter().collect::<Vec<_>>());
    report("fitted to all", &questions, |_| &model);
    print(&model, &questions);
    Ok(())
}

fn read(path: &str, questions: &mut Vec<Question>) -> Result<(), Box<dyn Error>> {
    let set = path.rsplit('/').next().unwrap_or(path).split('.').next().unwrap_or_default();
    let file = File::open(path)?;
    let is_compressed = Path::new(path).extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read> =
        if is_compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    for line in BufReader::new(reader).lines() {
        let line: Line = serde_json::from_str(&line?)?;
        let label = |name: &String| serde_json::from_value(serde_json::Value::from(name.as_str())).ok();
        let labels: Vec<IntentType> = line.seed_labels.iter().filter_map(label).collect();
        if labels.is_empty() {
            continue;
        }
        let text = line.title.or(line.query).unwrap_or_default();
        let features = features(&prose(&text)).into_iter().collect();
        questions.push(Question {
            set: set.to_owned(),
            group: line.post.unwrap_or(line.id),
            text,
            labels,
            features,
        });
    }
    Ok(())
}

/// Divides the groups of questions, in the order of a hash of their names.
fn folds(questions: &[Question]) -> HashMap<String, usize> {
    let mut groups: Vec<_> = questions.iter().map(|question| question.group.clone()).collect();
    groups.sort_by_key(|group| (crc32fast::hash(group.as_bytes()), group.clone()));
    groups.dedup();
    groups.into_iter().enumerate().map(|(place, group)| (group, place % FOLDS)).collect()
}

/// The shares of the classes in a question.
fn shares(labels: &[IntentType]) -> Values {
    let others = labels.iter().filter(|label| **label != IntentType::Learning).count();
    let of_learning = match (labels.contains(&IntentType::Learning), others) {
        (false, _) => 0.0,
        (true, 0) => 1.0,
        (true, _) => LEARNING,
    };
    CLASSES.map(|class| match class {
        IntentType::Learning => of_learning,
        _ if labels.contains(&class) => (1.0 - of_learning) / others as f64,
        _ => 0.0,
    })
}

/// Fits a multinomial logistic regression, and keeps the largest weights as they are stored.
fn fit(questions: &[&Question]) -> Model {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for feature in questions.iter().flat_map(|question| &question.features) {
        *counts.entry(feature).or_default() += 1;
    }
    let names: Vec<_> =
        counts.into_iter().filter(|(_, count)| *count >= FREQUENT).map(|(name, _)| name).collect();
    let places: HashMap<_, _> = names.iter().enumerate().map(|(place, name)| (*name, place)).collect();
    let rows: Vec<(Vec<usize>, Values)> = questions
        .iter()
        .map(|question| {
            let known = question.features.iter().filter_map(|name| places.get(name.as_str()).copied());
            (known.collect(), shares(&question.labels))
        })
        .collect();
    // The last row is that of the intercepts.
    let weights = descend(&rows, names.len());
    let rounded = |values: &Values| values.map(|value| (value * SCALE).round() / SCALE);
    let mut order: Vec<_> = (0..names.len()).collect();
    let size = |place: usize| weights[place].iter().map(|weight| weight.abs()).fold(0.0, f64::max);
    order.sort_by(|&a, &b| size(b).total_cmp(&size(a)).then(a.cmp(&b)));
    order.truncate(KEPT);
    let mut intercepts = weights[names.len()];
    for (intercept, odds) in intercepts.iter_mut().zip(ODDS) {
        *intercept += odds.ln();
    }
    let weights = order.into_iter().map(|place| (names[place].to_owned(), rounded(&weights[place])));
    let weights = weights.filter(|(_, values)| values.iter().any(|value| *value != 0.0)).collect();
    Model { weights, intercepts: rounded(&intercepts) }
}

/// Minimizes the penalized loss with Adam (Kingma and Ba 2015), over all questions in each step.
fn descend(rows: &[(Vec<usize>, Values)], features: usize) -> Vec<Values> {
    const MEMORY: (f64, f64) = (0.9, 0.99);
    let mut weights = vec![Values::default(); features + 1];
    let (mut mean, mut square) = (weights.clone(), weights.clone());
    for step in 1..=STEPS {
        let mut gradient = weights.clone();
        for values in &mut gradient[..features] {
            *values = values.map(|weight| weight * RIDGE);
        }
        gradient[features] = Values::default();
        for (known, shares) in rows {
            let value = value(known.len());
            let mut said = weights[features];
            for &place in known {
                for (said, weight) in said.iter_mut().zip(weights[place]) {
                    *said += value * weight;
                }
            }
            let said = softmax(said);
            for class in 0..CLASSES.len() {
                let off = said[class] - shares[class];
                for &place in known {
                    gradient[place][class] += value * off;
                }
                gradient[features][class] += off;
            }
        }
        let rate = 0.1 / f64::from(step).sqrt();
        let corrections = (1.0 - MEMORY.0.powi(step), 1.0 - MEMORY.1.powi(step));
        for place in 0..=features {
            for class in 0..CLASSES.len() {
                let slope = gradient[place][class];
                let (mean, square) = (&mut mean[place][class], &mut square[place][class]);
                *mean = MEMORY.0 * *mean + (1.0 - MEMORY.0) * slope;
                *square = MEMORY.1 * *square + (1.0 - MEMORY.1) * slope.powi(2);
                weights[place][class] -=
                    rate * (*mean / corrections.0) / ((*square / corrections.1).sqrt() + 1e-8);
            }
        }
    }
    weights
}

/// Says how often the detected intent is right, in each set, and how much of each intent is found.
fn report<'a>(title: &str, questions: &[Question], model: impl Fn(&Question) -> &'a Model) {
    let mut right: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut found: HashMap<String, Counts> = HashMap::new();
    for question in questions {
        let (detected, _) = intent(model(question), &[&question.text]);
        let count = |counts: &mut Counts, is_right: bool| {
            counts.0 += u32::from(is_right);
            counts.1 += 1;
        };
        count(right.entry(&question.set).or_default(), question.labels.contains(&detected));
        for label in &question.labels {
            count(found.entry(format!("{label:?}")).or_default(), *label == detected);
        }
    }
    let share = |(part, all): Counts| f64::from(part) / f64::from(all.max(1));
    eprintln!("{title}: {} questions", questions.len());
    for (set, counts) in &right {
        eprintln!("  accuracy {:.3} {set}", share(*counts));
    }
    eprintln!(
        "  accuracy {:.3} mean",
        right.values().map(|counts| share(*counts)).sum::<f64>() / right.len() as f64
    );
    let recall = |class: &IntentType| share(found.get(&format!("{class:?}")).copied().unwrap_or_default());
    for class in &CLASSES {
        eprintln!("  recall {:.3} {class:?}", recall(class));
    }
    let others: Vec<_> = CLASSES.iter().filter(|class| **class != IntentType::Learning).map(recall).collect();
    eprintln!("  recall {:.3} mean without Learning", others.iter().sum::<f64>() / others.len() as f64);
}

/// Writes the weights, sorted by feature.
fn print(model: &Model, questions: &[Question]) {
    let sets: std::collections::BTreeSet<_> = questions.iter().map(|question| &question.set).collect();
    println!(
        "# The weights of the model of intents, in units of 1/{SCALE}. examples/fit_intents.rs has written this file. They"
    );
    println!(
        "# are fitted to {} questions of {} public sets (titles and phrases of posts, questions about",
        questions.len(),
        sets.len()
    );
    println!("# code).");
    println!("# The columns are: feature, {}.", CLASSES.map(|class| format!("{class:?}")).join(", "));
    let line = |name: &str, values: &Values| {
        let values: Vec<_> = values.iter().map(|value| format!("{:.0}", value * SCALE + 0.0)).collect();
        println!("{name}\t{}", values.join("\t"));
    };
    line(INTERCEPTS, &model.intercepts);
    let sorted: BTreeMap<_, _> = model.weights.iter().collect();
    for (name, values) in sorted {
        line(name, values);
    }
}
