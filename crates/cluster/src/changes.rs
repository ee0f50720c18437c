//! Changes of records: those of one key are made one after the other, and many in one step.

use crate::records::{Changed, new_record, now_ms};
use crate::session::Failure;
use crate::shared::Shared;
use crate::table::{NewRow, Rows, StoredRow, Tables};
use crate::version;
use crate::waiting::{Answer, Reply, Waiting};
use cabinet::{Change, Version};
use server::{Decision, FoundRecord, RecordRequest, StoreAnswer, StoreFailure};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// Changes of one key that are made in one step.
const FOLD_MAX: usize = 1024;

/// Keys that one request changes at the same time.
const KEYS_AT_ONCE: usize = 64;

/// First and longest pause before a change that met another one is decided again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

impl Shared {
    /// Executes requests on several records, those on one key in their order. After a failure no
    /// further key is begun.
    pub(crate) async fn change_many(
        self: &Arc<Self>,
        requests: Vec<RecordRequest>,
        deadline: Instant,
    ) -> Answer {
        let mut keys: Vec<Vec<RecordRequest>> = Vec::new();
        let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
        for request in requests {
            match numbers.get(request.key()) {
                Some(number) => keys[*number].push(request),
                None => {
                    numbers.insert(request.key().to_vec(), keys.len());
                    keys.push(vec![request]);
                }
            }
        }
        drop(numbers);
        self.name_new_rows(&mut keys).await?;
        let (mut is_any_done, mut failure, mut refused) = (false, None, None);
        let mut keys = keys.into_iter();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < KEYS_AT_ONCE
                && failure.is_none()
                && refused.is_none()
                && let Some(requests) = keys.next()
            {
                let answers = self.begin(requests, deadline);
                under_way.spawn(async move {
                    let mut all = Vec::with_capacity(answers.len());
                    for answer in answers {
                        all.push(answer.await.unwrap_or(Err(StoreFailure::Unknown)));
                    }
                    all
                });
            }
            let Some(answers) = under_way.join_next().await else { break };
            for answer in answers.map_err(|_| StoreFailure::Unknown)? {
                match answer {
                    Ok(StoreAnswer::Record(_)) => is_any_done = true,
                    Ok(answer @ StoreAnswer::Refused(_)) => refused = Some(answer),
                    Err(StoreFailure::Unavailable) if failure.is_none() => {
                        failure = Some(StoreFailure::Unavailable);
                    }
                    Err(StoreFailure::Unavailable) => {}
                    _ => failure = Some(StoreFailure::Unknown),
                }
            }
        }
        match failure {
            None => Ok(refused.unwrap_or(StoreAnswer::Done)),
            Some(StoreFailure::Unavailable) if !is_any_done => Err(StoreFailure::Unavailable),
            Some(_) => Err(StoreFailure::Unknown),
        }
    }

    /// Gives identifiers to rows that are put under the empty key.
    async fn name_new_rows(&self, keys: &mut Vec<Vec<RecordRequest>>) -> Result<(), StoreFailure> {
        let Some(rows) = &self.rows else { return Ok(()) };
        let unnamed =
            keys.iter().position(|requests| requests.iter().any(RecordRequest::needs_key));
        if let Some(unnamed) = unnamed {
            for mut request in keys.swap_remove(unnamed) {
                let identifier = rows.generate().await?;
                request.set_key(identifier.to_string().into_bytes());
                keys.push(vec![request]);
            }
        }
        Ok(())
    }

    /// Puts a row under a new identifier.
    pub(crate) async fn change_new(&self, mut waiting: Waiting) {
        let Some(rows) = &self.rows else { return };
        match timeout_at(waiting.deadline, rows.generate()).await {
            Ok(Ok(identifier)) => {
                let key = identifier.to_string().into_bytes();
                waiting.request.set_key(key.clone());
                if let Some(first) = self.queues.enter(&key, waiting) {
                    self.change_all(&key, first).await;
                }
            }
            // Identifiers that are lost are no change.
            _ => waiting.reply.complete(Err(StoreFailure::Unavailable)),
        }
    }

    /// Begins changes of one key. Returns their answers.
    fn begin(
        self: &Arc<Self>,
        requests: Vec<RecordRequest>,
        deadline: Instant,
    ) -> Vec<oneshot::Receiver<Answer>> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut first = None;
        for request in requests {
            let (sender, answer) = oneshot::channel();
            answers.push(answer);
            let key = request.key().to_vec();
            let waiting = Waiting { request, reply: Reply::Part(sender), deadline };
            if let Some(waiting) = self.queues.enter(&key, waiting) {
                first = Some((key, waiting));
            }
        }
        if let Some((key, first)) = first {
            let shared = Arc::clone(self);
            // Changes of other clients may follow, which must not end with this request.
            tokio::spawn(async move { shared.change_all(&key, first).await });
        }
        answers
    }

    /// Makes a change, and all changes of its key that come meanwhile.
    pub(crate) async fn change_all(&self, key: &[u8], first: Waiting) {
        let mut turn = self.queues.turn(key);
        let mut waiting = vec![first];
        loop {
            while !waiting.is_empty() {
                let rest = waiting.split_off(waiting.len().min(FOLD_MAX));
                self.change(key, waiting).await;
                waiting = rest;
            }
            match turn.next() {
                Some((own, changes)) => (turn, waiting) = (own, changes),
                None => return,
            }
        }
    }

    /// Executes requests on one record one after the other, and writes the record once.
    pub(crate) async fn change(&self, key: &[u8], waiting: Vec<Waiting>) {
        let now = Instant::now();
        let mut requests = Vec::with_capacity(waiting.len());
        let mut replies = Vec::with_capacity(waiting.len());
        let mut latest = now;
        for Waiting { request, reply, deadline } in waiting {
            if deadline <= now {
                // Nothing was done for one that has waited too long.
                reply.complete(Err(StoreFailure::Unavailable));
                continue;
            }
            latest = latest.max(deadline);
            requests.push(request);
            replies.push(reply);
        }
        match self.decide(key, &requests, latest).await {
            Ok(decisions) => {
                for (reply, (decision, version)) in replies.into_iter().zip(decisions) {
                    reply.complete(Ok(decision.answer(version)));
                }
            }
            Err(failure) => {
                for reply in replies {
                    reply.complete(Err(failure));
                }
            }
        }
    }

    /// Tries to execute requests until no other change comes between.
    async fn decide(
        &self,
        key: &[u8],
        requests: &[RecordRequest],
        deadline: Instant,
    ) -> Result<Vec<(Decision, Version)>, StoreFailure> {
        let mut pause = PAUSES.0;
        while !requests.is_empty() {
            match self.try_to_decide(key, requests, deadline).await {
                Ok(decisions) => return Ok(decisions),
                Err(Changed::Unknown) => return Err(StoreFailure::Unknown),
                Err(Changed::Conflict) if Instant::now() + pause < deadline => {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                    sleep(pause).await;
                    pause = PAUSES.1.min(pause * 2);
                }
                Err(_) => return Err(StoreFailure::Unavailable),
            }
        }
        Ok(Vec::new())
    }

    /// Returns the decision on each request and the version that it gave to the record, once the
    /// record is changed; or the reason why it was not.
    async fn try_to_decide(
        &self,
        key: &[u8],
        requests: &[RecordRequest],
        deadline: Instant,
    ) -> Result<Vec<(Decision, Version)>, Changed> {
        if let Some(rows) = &self.rows {
            return self.try_to_decide_row(rows, key, requests, deadline).await;
        }
        let is_put = self.records.order().is_none()
            && requests.first().is_some_and(|first| first.decide_unread().is_some());
        let row = match is_put {
            true => None,
            false => {
                let row = timeout_at(deadline, self.records.get(&self.cluster, key)).await;
                let row = row.unwrap_or(Err(Failure::NotDone));
                Some(row.map_err(|_| Changed::NotDone)?)
            }
        };
        let read = row.as_ref().map(Option::as_ref);
        let old = read.flatten().and_then(|row| row.record.clone());
        let was_there = old.is_some();
        let last = read.flatten().map_or(0, |row| row.version);
        let Decided { decisions, record, changes } = decide_each(requests, old, last);
        let is_absent = !is_put && !was_there && record.is_none();
        if !changes || is_absent {
            return Ok(decisions);
        }
        let changed = self.records.change(&self.cluster, deadline, key, read, record.as_ref());
        self.made(changed.await, decisions)
    }

    /// The same for a row of a table.
    async fn try_to_decide_row(
        &self,
        rows: &Rows,
        key: &[u8],
        requests: &[RecordRequest],
        deadline: Instant,
    ) -> Result<Vec<(Decision, Version)>, Changed> {
        let read = timeout_at(deadline, rows.upkeep.tables.read(key)).await;
        let row = read.unwrap_or(Err(Failure::NotDone)).map_err(|_| Changed::NotDone)?;
        let last = row.as_ref().map_or(0, |row| row.version);
        let old = row.as_ref().and_then(StoredRow::record);
        let was_there = old.is_some();
        let Decided { decisions, record, changes } = decide_each(requests, old, last);
        if !changes || (!was_there && record.is_none()) {
            return Ok(decisions);
        }
        let new = match record {
            Some(FoundRecord { value, version, .. }) => {
                let value = Arc::unwrap_or_clone(value);
                NewRow { version: version.cast_signed(), value: Some(value) }
            }
            None => NewRow { version: version::next(last, now_ms()), value: None },
        };
        let changed = rows.upkeep.change(deadline, key, row.as_ref(), &new);
        self.made(changed.await, decisions)
    }

    /// Counts the changes that were made in one step, if they were made.
    fn made(
        &self,
        changed: Changed,
        decisions: Vec<(Decision, Version)>,
    ) -> Result<Vec<(Decision, Version)>, Changed> {
        match changed {
            Changed::Done => {
                let others = decisions.len() as u64 - 1;
                self.folded.fetch_add(others, Ordering::Relaxed);
                Ok(decisions)
            }
            failed => Err(failed),
        }
    }
}

/// Decisions on requests, each on the record that the one before has left.
struct Decided {
    /// Each with the version that the record got.
    decisions: Vec<(Decision, Version)>,
    record: Option<FoundRecord>,
    /// Whether any of them changes the record.
    changes: bool,
}

fn decide_each(
    requests: &[RecordRequest],
    mut record: Option<FoundRecord>,
    mut last: i64,
) -> Decided {
    let mut changes = false;
    let mut decisions = Vec::with_capacity(requests.len());
    for request in requests {
        let mut decision = request.decide(record.as_ref());
        let mut version = 0;
        match mem::replace(&mut decision.change, Change::Keep) {
            Change::Keep => {}
            Change::Put(value, meta) => {
                // A record that was touched shares its value with the answers.
                let value = match &record {
                    Some(found) if *found.value == value => Arc::clone(&found.value),
                    _ => Arc::new(value),
                };
                version = record.insert(new_record(value, meta, last)).version;
                last = version.cast_signed();
                changes = true;
            }
            Change::Remove => {
                record = None;
                changes = true;
            }
        }
        decisions.push((decision, version));
    }
    Decided { decisions, record, changes }
}
