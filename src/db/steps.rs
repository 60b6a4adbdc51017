//! How the events of one batch are sorted into steps, each written by one statement, such that the events of one record
//! take effect in their order.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

/// Events that one statement writes, by their place in what the writer handed over.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<K> {
    /// What happens in all of them.
    pub kind: K,
    /// Their places.
    pub members: Vec<usize>,
}

/// Sorts events into as few steps as keep the order within each record. An event is its record, its kind, and whether it
/// joins events of the same kind right before it in one statement. Kinds come in their order within a wave; an event that
/// would have to come before the last one of its record goes into the next wave.
pub fn plan<K: Copy + Ord>(events: impl IntoIterator<Item = (Uuid, K, bool)>) -> Vec<Step<K>> {
    let mut last: HashMap<Uuid, (usize, K)> = HashMap::new();
    let mut steps: BTreeMap<(usize, K), Vec<usize>> = BTreeMap::new();
    for (index, (record, kind, joins)) in events.into_iter().enumerate() {
        let place = match last.get(&record) {
            None => (0, kind),
            Some(&(wave, before)) if kind > before || (kind == before && joins) => (wave, kind),
            Some(&(wave, _)) => (wave + 1, kind),
        };
        last.insert(record, place);
        steps.entry(place).or_default().push(index);
    }
    steps.into_iter().map(|((_, kind), members)| Step { kind, members }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_event_is_in_one_step_and_those_of_a_record_in_their_order(
            events in proptest::collection::vec((0..4_u128, 0..3_u8, any::<bool>()), 0..40),
        ) {
            let steps = plan(events.iter().map(|&(record, kind, joins)| (Uuid::from_u128(record), kind, joins)));
            let order: Vec<_> = steps.iter().enumerate()
                .flat_map(|(step, Step { members, .. })| members.iter().map(move |&member| (member, step)))
                .collect();
            prop_assert_eq!(order.len(), events.len());
            let place: HashMap<_, _> = order.into_iter().collect();
            prop_assert_eq!(place.len(), events.len());
            for (later, &(record, kind, joins)) in events.iter().enumerate() {
                prop_assert_eq!(steps[place[&later]].kind, kind);
                let before = (0..later).rfind(|&before| events[before].0 == record);
                if let Some(before) = before {
                    let together = joins && events[before].1 == kind;
                    prop_assert!(place[&before] < place[&later] || together && place[&before] == place[&later]);
                }
            }
        }
    }
}
