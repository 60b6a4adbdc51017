//! Errors, counted by kind in bounded memory.

use std::collections::HashMap;

use uuid::Uuid;

use super::kinds::kind_of;

/// The maximum number of kinds of errors that are counted. Errors of further kinds count in the stage alone.
const KINDS: usize = 5_000;
/// The maximum number of repairs that are kept for each kind, which are the latest ones.
const REPAIRS: usize = 20;

/// An attempt that failed.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    /// The id of the attempt's log.
    pub log: Uuid,
    /// The attempt's number.
    pub attempt: i32,
    /// The stage that failed.
    pub stage: &'a str,
    /// The message of the stage.
    pub message: Option<&'a str>,
    /// Whether a later attempt passed.
    pub repaired: bool,
}

/// The numbers of failures and of repaired failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of failures.
    pub all: i64,
    /// The number of failures that a later attempt repaired.
    pub repaired: i64,
}

impl Count {
    fn add(&mut self, repaired: bool) {
        self.all += 1;
        self.repaired += i64::from(repaired);
    }
}

/// The errors of one kind.
#[derive(Debug)]
pub struct Kind {
    /// The stage that failed.
    pub stage: String,
    /// The message of the stage, with placeholders for names and numbers.
    pub message: Option<String>,
    /// The numbers of errors of this kind.
    pub count: Count,
    /// The id of the log with the last error of this kind.
    pub example: Uuid,
    /// The attempts that failed with this error and were repaired, as log and attempt number.
    pub repaired: Vec<(Uuid, i32)>,
}

/// Counts errors by stage and by kind.
#[derive(Debug, Default)]
pub struct Tally {
    stages: HashMap<String, Count>,
    /// The kinds, by stage and message.
    kinds: HashMap<(String, Option<String>), Counted>,
}

/// What is counted of a kind.
#[derive(Debug)]
struct Counted {
    count: Count,
    example: Uuid,
    repaired: Vec<(Uuid, i32)>,
}

impl Tally {
    /// Counts a failure.
    pub fn add(&mut self, failure: Failure<'_>) {
        let Failure { log, attempt, stage, message, repaired } = failure;
        match self.stages.get_mut(stage) {
            Some(count) => count.add(repaired),
            None => self.stages.entry(stage.to_owned()).or_default().add(repaired),
        }
        let is_full = self.kinds.len() >= KINDS;
        let key = (stage.to_owned(), message.map(kind_of));
        if is_full && !self.kinds.contains_key(&key) {
            return;
        }
        let first = || Counted { count: Count::default(), example: log, repaired: Vec::new() };
        let kind = self.kinds.entry(key).or_insert_with(first);
        if repaired {
            let place = usize::try_from(kind.count.repaired).unwrap_or_default() % REPAIRS;
            match kind.repaired.get_mut(place) {
                Some(oldest) => *oldest = (log, attempt),
                None => kind.repaired.push((log, attempt)),
            }
        }
        kind.count.add(repaired);
        kind.example = log;
    }

    /// Returns the counts of the stages, and at most `most` of the kinds, both the most frequent first.
    pub fn most_frequent(self, most: usize) -> (Vec<(String, Count)>, Vec<Kind>) {
        let mut stages: Vec<_> = self.stages.into_iter().collect();
        stages.sort_unstable_by(|(a, x), (b, y)| y.all.cmp(&x.all).then_with(|| a.cmp(b)));
        let of_counted = |((stage, message), Counted { count, example, repaired })| Kind {
            stage,
            message,
            count,
            example,
            repaired,
        };
        let mut kinds: Vec<_> = self.kinds.into_iter().map(of_counted).collect();
        kinds.sort_unstable_by(|a, b| {
            let by_text = || (&a.stage, &a.message).cmp(&(&b.stage, &b.message));
            b.count.all.cmp(&a.count.all).then_with(by_text)
        });
        kinds.truncate(most);
        (stages, kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind_up_to_a_number_of_kinds() {
        let mut tally = Tally::default();
        let kinds = i32::try_from(KINDS).expect("a small number");
        for attempt in 0..kinds + 50 {
            let letters: String = attempt.to_string().bytes().map(|digit| char::from(digit + 49)).collect();
            for message in [Some("line 5"), Some("line 6"), None, Some(letters.as_str())] {
                let log = Uuid::from_u128(u128::from(attempt.unsigned_abs()));
                tally.add(Failure { log, attempt, stage: "parse", message, repaired: message.is_some() });
            }
        }
        assert_eq!(tally.kinds.len(), KINDS);
        let all = i64::from(kinds) + 50;
        let (stages, found) = tally.most_frequent(3);
        assert_eq!(stages, [("parse".to_owned(), Count { all: 4 * all, repaired: 3 * all })]);
        assert_eq!(found[0].message.as_deref(), Some("line <number>"));
        assert_eq!(found[0].count, Count { all: 2 * all, repaired: 2 * all });
        assert_eq!((found[1].message.as_deref(), found[1].count), (None, Count { all, repaired: 0 }));
        assert_eq!(found[2].count.all, 1);
        let last = Uuid::from_u128(u128::from((kinds + 49).unsigned_abs()));
        assert_eq!((found[0].example, found[0].repaired.len()), (last, REPAIRS));
        assert!(found[0].repaired.contains(&(last, kinds + 49)) && found[1].repaired.is_empty());
    }
}
