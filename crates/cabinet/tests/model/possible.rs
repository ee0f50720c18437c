//! Possible contents of a database after a crash.
//!
//! For each record: its last acknowledged state, or any state since. For changes that were made
//! together: all or nothing.

use crate::model::Record;
use std::collections::{BTreeMap, BTreeSet};

type Records = BTreeMap<Vec<u8>, Record>;

/// The states of each record since the last acknowledged one, which is the first of them.
#[derive(Clone, Default)]
pub(crate) struct Possible {
    states: BTreeMap<Vec<u8>, Vec<State>>,
    /// The newest states.
    noted: Records,
    step: u64,
}

#[derive(Clone)]
struct State {
    record: Option<Record>,
    /// Step of changes that made the state; 0 is before all of them.
    step: u64,
}

impl Possible {
    /// Records the changes of the records since the last call as one step.
    pub(crate) fn note(&mut self, records: &Records) {
        self.step += 1;
        let all: BTreeSet<&Vec<u8>> = records.keys().chain(self.noted.keys()).collect();
        let is_changed = |key: &&&Vec<u8>| records.get(**key) != self.noted.get(**key);
        let changed: Vec<Vec<u8>> = all.iter().filter(is_changed).map(|key| key.to_vec()).collect();
        for key in changed {
            let record = records.get(&key).cloned();
            let absent = || vec![State { record: None, step: 0 }];
            let states = self.states.entry(key.clone()).or_insert_with(absent);
            states.push(State { record: record.clone(), step: self.step });
            match record {
                Some(record) => drop(self.noted.insert(key, record)),
                None => drop(self.noted.remove(&key)),
            }
        }
    }

    /// Makes all recorded changes permanent.
    pub(crate) fn acknowledge(&mut self) {
        for states in self.states.values_mut() {
            states.drain(..states.len() - 1);
        }
    }

    /// Checks that `found` is possible, and returns the contents from now on. Expired records may
    /// be found or not.
    pub(crate) fn resolve(&mut self, found: &Records, now_ms: u64) -> Records {
        let mut at: BTreeMap<u64, &Vec<u8>> = BTreeMap::new();
        let mut before: BTreeMap<u64, &Vec<u8>> = BTreeMap::new();
        let mut resolved = Records::new();
        for (key, states) in &self.states {
            let found = found.get(key);
            let is_live = |record: &&Record| !record.meta.is_expired(now_ms);
            let matching: Vec<&State> = states
                .iter()
                .filter(|state| state.record.as_ref().filter(is_live) == found)
                .collect();
            assert!(
                !matching.is_empty(),
                "{key:?} is {found:?}, which is none of {} possible states",
                states.len(),
            );
            // Steps that the record has certainly reached, or not yet. A state that occurs both
            // earlier and later is no evidence.
            let steps = || matching.iter().map(|state| state.step);
            let (first, last) = (steps().min().unwrap_or(0), steps().max().unwrap_or(0));
            if first == last {
                at.insert(first, key);
            }
            let steps = states.iter().map(|state| state.step);
            before.extend(steps.filter(|step| *step > last).map(|step| (step, key)));
            if let Some(record) = matching.iter().find_map(|state| state.record.clone()) {
                resolved.insert(key.clone(), record);
            }
        }
        let unknown = found.keys().find(|key| !self.states.contains_key(*key));
        assert_eq!(unknown, None, "a record that was never stored");
        for (step, key) in &at {
            let other = before.get(step);
            assert_eq!(other, None, "it was changed together with {key:?}, whose change was found");
        }
        *self = Self::default();
        self.note(&resolved);
        self.acknowledge();
        resolved
    }
}
