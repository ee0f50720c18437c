//! A store that answers late, out of order, and from threads of its own.

use cabinet::{Change, Meta};
use server::{
    Capabilities, Completion, FoundRecord, KeysBegin, RecordRequest, RemoteStore, StoreAnswer,
    StoreFailure, StoreRequest, StoreStatus,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Threads that answer.
const THREADS: usize = 3;

/// Keys that begin with these bytes are answered with a failure, or later than all others.
pub(crate) const UNAVAILABLE: &str = "unavailable";
pub(crate) const UNKNOWN: &str = "unknown";
pub(crate) const DROPPED: &str = "dropped";
pub(crate) const HELD: &str = "held";

/// Abilities of a store that can do everything.
pub(crate) const ABLE: Capabilities = Capabilities {
    lists_keys: true,
    is_ordered: true,
    ids: None,
    has_rows: false,
    counts: true,
    clears: true,
    changes_conditionally: true,
    key_bytes_max: 1000,
    value_bytes_max: 1 << 20,
};

/// The store.
#[derive(Debug)]
pub(crate) struct LateStore {
    capabilities: Capabilities,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: Vec<(StoreRequest, Completion)>,
    records: BTreeMap<Vec<u8>, FoundRecord>,
    version: u64,
    /// Numbers of the requests on each key.
    requests: HashMap<Vec<u8>, usize>,
    random: u64,
    status: StoreStatus,
    releases: bool,
    stops: bool,
}

impl LateStore {
    /// Starts the threads of a store. They end with the store.
    pub(crate) fn start(capabilities: Capabilities) -> Arc<Self> {
        let state = Mutex::new(State { random: 1, ..State::default() });
        let store = Arc::new(Self { capabilities, state, changed: Condvar::new() });
        for _ in 0..THREADS {
            let store = Arc::clone(&store);
            std::thread::spawn(move || store.work());
        }
        store
    }

    /// Sets the state that is reported.
    pub(crate) fn set_status(&self, status: StoreStatus) {
        self.state.lock().unwrap().status = status;
    }

    /// Answers the requests on keys that are held.
    pub(crate) fn release(&self) {
        self.state.lock().unwrap().releases = true;
        self.changed.notify_all();
    }

    /// Blocks until so many requests on a key have come.
    pub(crate) fn wait_for(&self, key: &str, requests: usize) {
        let mut state = self.state.lock().unwrap();
        while state.requests.get(key.as_bytes()).copied().unwrap_or(0) < requests {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Returns how many requests on a key have come.
    pub(crate) fn requests(&self, key: &str) -> usize {
        self.state.lock().unwrap().requests.get(key.as_bytes()).copied().unwrap_or(0)
    }

    /// Returns whether the clients of all requests that wait are still there.
    pub(crate) fn are_awaited(&self) -> bool {
        self.state.lock().unwrap().queue.iter().all(|(_, completion)| completion.is_awaited())
    }

    /// Ends the threads, and drops the requests that wait.
    pub(crate) fn stop(&self) {
        self.state.lock().unwrap().stops = true;
        self.changed.notify_all();
    }

    fn work(&self) {
        let mut state = self.state.lock().unwrap();
        while !state.stops {
            let Some((request, completion)) = state.take() else {
                state = self.changed.wait(state).unwrap();
                continue;
            };
            let answer = state.execute(&request);
            drop(state);
            match answer {
                Some(answer) => completion.complete(answer),
                None => drop(completion),
            }
            state = self.state.lock().unwrap();
        }
        state.queue.clear();
    }
}

impl RemoteStore for LateStore {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn status(&self) -> StoreStatus {
        self.state.lock().unwrap().status.clone()
    }

    fn submit(&self, request: StoreRequest, completion: Completion) {
        let mut state = self.state.lock().unwrap();
        if let StoreRequest::Record(request) = &request {
            *state.requests.entry(request.key().to_vec()).or_default() += 1;
        }
        state.queue.push((request, completion));
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    /// Returns any of the waiting requests.
    fn take(&mut self) -> Option<(StoreRequest, Completion)> {
        let is_held =
            |request: &StoreRequest| !self.releases && key_of(request).starts_with(HELD.as_bytes());
        let ready: Vec<usize> =
            (0..self.queue.len()).filter(|number| !is_held(&self.queue[*number].0)).collect();
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = *ready.get((self.random >> 33) as usize % ready.len().max(1))?;
        Some(self.queue.swap_remove(number))
    }

    /// Executes a request. Returns its answer, unless it is to be dropped.
    fn execute(&mut self, request: &StoreRequest) -> Option<Result<StoreAnswer, StoreFailure>> {
        let key = key_of(request);
        if key.starts_with(UNAVAILABLE.as_bytes()) {
            return Some(Err(StoreFailure::Unavailable));
        }
        let answer = match request {
            StoreRequest::Record(request) => self.decide(request),
            StoreRequest::Changes(requests) => {
                requests.iter().for_each(|request| drop(self.decide(request)));
                StoreAnswer::Done
            }
            StoreRequest::GetMany { keys, bytes_max } => {
                let (mut records, mut bytes) = (Vec::new(), 0);
                for key in keys.iter() {
                    if bytes > *bytes_max {
                        break;
                    }
                    let record = self.record(key).cloned();
                    bytes += record.as_ref().map_or(0, |record| record.value.len());
                    records.push(record);
                }
                StoreAnswer::Records { is_complete: records.len() == keys.len(), records }
            }
            StoreRequest::Keys { prefix, begin, max, bytes_max } => {
                let (first, after) = match begin {
                    KeysBegin::First => (prefix, None),
                    KeysBegin::At(key) => (key.max(prefix), None),
                    KeysBegin::After(key) => (key.max(prefix), Some(key)),
                };
                let all = self.records.range(first.clone()..).map(|(key, _)| key);
                let all = all.filter(|key| Some(*key) != after);
                let mut bytes = 0;
                let keys: Vec<_> = all
                    .take_while(|key| key.starts_with(prefix))
                    .take(*max)
                    .take_while(|key| {
                        bytes += key.len();
                        bytes <= *bytes_max
                    })
                    .cloned()
                    .collect();
                StoreAnswer::Keys { keys, is_complete: bytes <= *bytes_max }
            }
            StoreRequest::Range { begin, end, max, bytes_max } => {
                let mut bytes = 0;
                let all = self.records.range(begin.clone()..);
                let records: Vec<_> = all
                    .take_while(|(key, _)| end.as_ref().is_none_or(|end| *key < end))
                    .take(*max)
                    .take_while(|(key, record)| {
                        bytes += key.len() + record.value.len();
                        bytes <= *bytes_max
                    })
                    .map(|(key, record)| (key.clone(), record.clone()))
                    .collect();
                StoreAnswer::Range { records, is_complete: bytes <= *bytes_max }
            }
            StoreRequest::Count => StoreAnswer::Count(self.records.len() as u64),
            // The store has no rows and no ids.
            StoreRequest::Table(_) | StoreRequest::KeysWithin { .. } => {
                return Some(Err(StoreFailure::Unavailable));
            }
            StoreRequest::Clear => {
                self.records.clear();
                StoreAnswer::Done
            }
        };
        if key.starts_with(DROPPED.as_bytes()) {
            return None;
        }
        // The change is made, and the store does not say so.
        Some(if key.starts_with(UNKNOWN.as_bytes()) {
            Err(StoreFailure::Unknown)
        } else {
            Ok(answer)
        })
    }

    fn record(&self, key: &[u8]) -> Option<&FoundRecord> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        self.records.get(key).filter(|record| match record.meta.expires_at_ms {
            0 => true,
            at_ms => at_ms > now,
        })
    }

    fn decide(&mut self, request: &RecordRequest) -> StoreAnswer {
        let key = request.key();
        let decision = request.decide(self.record(key));
        let mut version = 0;
        match &decision.change {
            Change::Keep => {}
            Change::Put(value, meta) => version = self.put(key, value, *meta),
            Change::Remove => drop(self.records.remove(key)),
        }
        decision.answer(version)
    }

    fn put(&mut self, key: &[u8], value: &[u8], meta: Meta) -> u64 {
        self.version += 1;
        let record = FoundRecord { value: Arc::new(value.to_vec()), meta, version: self.version };
        self.records.insert(key.to_vec(), record);
        self.version
    }
}

/// Returns the key of a request on one record.
fn key_of(request: &StoreRequest) -> &[u8] {
    match request {
        StoreRequest::Record(request) => request.key(),
        StoreRequest::GetMany { keys, .. } => keys.first().map_or(b"", Vec::as_slice),
        _ => b"",
    }
}
