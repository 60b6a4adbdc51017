//! The room for the open searches of an agent. Each of its events reads all of them with what followed them, so this
//! is what bounds the time and the memory that an event takes.

use super::learner::{AgentThread, EndedSearch, FollowedStep, OpenSearch, SearchState, Step};
use crate::searches::settings::Rules;

/// The maximum number of searches of one agent that are followed at the same time.
const MOST_OPEN: usize = 64;
/// The maximum number of steps after a search that are considered.
const MOST_STEPS: usize = 1_000;
/// The maximum number of bytes of an agent's open searches with their steps, and of the steps of one search. A long
/// turn of real work has a tenth of that.
const MOST_BYTES: usize = 1 << 20;
/// The number of bytes that a step or a path takes in memory besides its text, roughly.
const OVERHEAD: usize = 128;

impl Step {
    fn size(&self) -> usize {
        OVERHEAD + self.target.len()
    }
}

impl OpenSearch {
    /// Returns whether one more step after this search is considered.
    pub(super) fn has_room(&self, step: &Step) -> bool {
        self.steps.len() < MOST_STEPS && self.size_of_steps() + step.size() <= MOST_BYTES
    }

    fn size_of_steps(&self) -> usize {
        self.steps.iter().map(|FollowedStep { step, .. }| step.size()).sum()
    }

    fn size(&self) -> usize {
        let paths = self.offered.iter().chain(self.hints.iter().map(|hint| &hint.path));
        let paths: usize = paths.map(|path| OVERHEAD + path.len()).sum();
        OVERHEAD + self.query.len() + self.root.len() + paths + self.size_of_steps()
    }
}

impl AgentThread {
    /// Ends the oldest searches if there are too many, or if they are too large together. One always stays open.
    pub fn make_room(&mut self, rules: &Rules) -> Vec<EndedSearch> {
        let sizes: Vec<_> = self.open.iter().map(OpenSearch::size).collect();
        let mut size: usize = sizes.iter().sum();
        let mut over = 0;
        while self.open.len() - over > 1 && (self.open.len() - over > MOST_OPEN || size > MOST_BYTES) {
            size -= sizes[over];
            over += 1;
        }
        let Some(at) = self.last_at.filter(|_| over > 0) else { return Vec::new() };
        let over: Vec<_> = self.open[..over].iter().map(|search| search.id).collect();
        self.end(SearchState::Unresolved, at, rules, |search| over.contains(&search.id))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::learner::FallbackKind;
    use super::*;
    use crate::searches::rules::terms::Terms;
    use crate::searches::settings::SearchSettings;
    use crate::types::Timestamp;

    fn search(number: u128, offered: usize) -> OpenSearch {
        OpenSearch {
            id: Uuid::from_u128(number),
            query: "login button".to_owned(),
            terms: Terms::of("login button"),
            root: String::new(),
            at: Timestamp::now(),
            offered: vec!["a".repeat(4_096); offered],
            is_correction: false,
            hints: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn read(number: u128, length: usize) -> Step {
        Step {
            id: Uuid::from_u128(number),
            kind: FallbackKind::Read,
            target: "a".repeat(length),
            ok: true,
            at: Timestamp::now(),
        }
    }

    /// The numbers of the searches that are open after so many were made, each with so many results and then a read.
    fn open_after(searches: u128, offered: usize, length: usize) -> Vec<u128> {
        let rules = Rules::new(&SearchSettings::default(), &SearchSettings::default());
        let mut thread = AgentThread::default();
        for number in 1..=searches {
            thread.advance(Timestamp::now(), None, &rules);
            thread.follow(search(number, offered));
            thread.make_room(&rules);
            thread.step(&read(number, length), None);
            thread.make_room(&rules);
        }
        let size: usize = thread.open.iter().map(OpenSearch::size).sum();
        assert!(size <= MOST_BYTES || thread.open.len() == 1, "{size} bytes");
        thread.open.iter().map(|search| search.id.as_u128()).collect()
    }

    #[test]
    fn the_oldest_searches_end_when_there_are_too_many_or_too_much_of_them() {
        assert_eq!(open_after(64, 2, 40), (1..=64).collect::<Vec<_>>());
        assert_eq!(open_after(66, 2, 40), (3..=66).collect::<Vec<_>>());
        assert_eq!(open_after(40, 0, 4_096).last(), Some(&40));
        assert!(open_after(40, 0, 4_096).len() < 40, "reads of long paths count for each search before");
        assert_eq!(open_after(3, 200, 40), [3]);
        assert_eq!(open_after(2, 500, 40), [2], "one stays open however large it is");
    }

    #[test]
    fn a_search_considers_a_thousand_steps_and_fewer_long_ones() {
        for (length, considered) in [(40, MOST_STEPS), (4_096, MOST_BYTES / (4_096 + OVERHEAD))] {
            let mut thread = AgentThread::default();
            thread.follow(search(1, 0));
            let taken = (0..1_100).filter(|number| !thread.step(&read(*number, length), None).is_empty());
            assert_eq!(taken.count(), considered);
        }
    }
}
