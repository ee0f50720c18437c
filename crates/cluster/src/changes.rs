//! Changes of records: those of one key are made one after the other, and many in one step.

use crate::records::{Changed, Present, now_ms};
use crate::session::Failure;
use crate::shared::Shared;
use crate::table::{NewRow, Rows, StoredRow, Tables};
use crate::version;
use crate::waiting::{Answer, Part, Reply, Waiting};
use cabinet::Version;
use server::{DecidedInTurn, Decision, FoundRecord, RecordRequest, StoreAnswer, StoreFailure};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout_at};

/// Changes of one key that are made in one step.
const FOLD_MAX: usize = 1024;

/// Keys that one request changes at the same time.
const KEYS_AT_ONCE: usize = 64;

/// First and longest pause before a change that met another one is decided again.
pub(crate) const PAUSES: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(100));

impl Shared {
    /// Executes requests on several records, those on one key in their order, and all in their
    /// order if a key means a record by the ids that are there. Those that follow each other on one
    /// key are made together. After a failure no further key is begun.
    pub(crate) async fn change_many(
        self: &Arc<Self>,
        requests: Vec<RecordRequest>,
        deadline: Instant,
    ) -> Answer {
        let in_turn = requests.iter().any(|request| self.relative(request.key()).is_some());
        let at_once = if in_turn { 1 } else { KEYS_AT_ONCE };
        let mut keys: Vec<Vec<RecordRequest>> = Vec::new();
        let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
        for request in requests {
            let last = keys.len().wrapping_sub(1);
            match numbers.get(request.key()) {
                Some(number) if !in_turn || *number == last => keys[*number].push(request),
                _ => {
                    numbers.insert(request.key().to_vec(), keys.len());
                    keys.push(vec![request]);
                }
            }
        }
        drop(numbers);
        self.name_new_rows(&mut keys).await?;
        let (mut is_any_done, mut failure, mut refused) = (false, None, None);
        let has_failed = Arc::default();
        let mut keys = keys.into_iter();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < at_once
                && failure.is_none()
                && refused.is_none()
                && let Some(requests) = keys.next()
            {
                let answers = self.begin(requests, deadline, &has_failed);
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

    /// Begins changes of one key, parts of a request of which one may have failed. Returns their
    /// answers.
    fn begin(
        self: &Arc<Self>,
        requests: Vec<RecordRequest>,
        deadline: Instant,
        has_failed: &Arc<AtomicBool>,
    ) -> Vec<oneshot::Receiver<Answer>> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut first = None;
        for request in requests {
            let (sender, answer) = oneshot::channel();
            answers.push(answer);
            let key = request.key().to_vec();
            let part = Part { answer: sender, has_failed: Arc::clone(has_failed) };
            let waiting = Waiting { request, reply: Reply::Part(part), deadline };
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
        waiting.append(&mut turn.waiting());
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
        if let Some((ids, relative)) = self.relative(key) {
            return self.change_relative(ids, relative, waiting).await;
        }
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
        while !requests.is_empty() {
            let mut has_room = true;
            let reserve = |bytes| {
                has_room = replies.first_mut().is_none_or(|first| first.reserve(bytes));
                has_room
            };
            match self.decide(key, &requests, latest, reserve).await {
                Ok(decisions) => {
                    requests.drain(..decisions.len());
                    let replies = replies.drain(..decisions.len());
                    for (reply, (decision, version)) in replies.zip(decisions) {
                        reply.complete(Ok(decision.answer(version)));
                    }
                }
                Err(failure) => {
                    let failure = if has_room { failure } else { StoreFailure::NoMemory };
                    for reply in replies {
                        reply.complete(Err(failure));
                    }
                    return;
                }
            }
            // The thread serves the sockets of the driver, too.
            yield_now().await;
        }
    }

    /// Tries to execute requests until no other change comes between. `reserve` returns whether
    /// there is memory for this many bytes; without, nothing is done.
    async fn decide(
        &self,
        key: &[u8],
        requests: &[RecordRequest],
        deadline: Instant,
        mut reserve: impl FnMut(usize) -> bool + Send,
    ) -> Result<Vec<(Decision, Version)>, StoreFailure> {
        let mut pause = PAUSES.0;
        while !requests.is_empty() {
            match self.try_to_decide(key, requests, deadline, &mut reserve).await {
                Ok(decisions) => return Ok(decisions),
                Err(failed) => self.pause_after(failed, &mut pause, deadline).await?,
            }
        }
        Ok(Vec::new())
    }

    /// Waits before another attempt at a change that another one came before. Fails if there is to
    /// be none.
    pub(crate) async fn pause_after(
        &self,
        failed: Changed,
        pause: &mut Duration,
        deadline: Instant,
    ) -> Result<(), StoreFailure> {
        match failed {
            Changed::Unknown => Err(StoreFailure::Unknown),
            Changed::Conflict if Instant::now() + *pause < deadline => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                sleep(*pause).await;
                *pause = PAUSES.1.min(*pause * 2);
                Ok(())
            }
            _ => Err(StoreFailure::Unavailable),
        }
    }

    /// Returns the decision on each request and the version that it gave to the record, once the
    /// record is changed; or the reason why it was not.
    async fn try_to_decide(
        &self,
        key: &[u8],
        requests: &[RecordRequest],
        deadline: Instant,
        reserve: &mut (impl FnMut(usize) -> bool + Send),
    ) -> Result<Vec<(Decision, Version)>, Changed> {
        if let Some(rows) = &self.rows {
            return self.try_to_decide_row(rows, key, requests, deadline).await;
        }
        let is_put = self.records.order().is_none()
            && requests.first().is_some_and(|first| first.decide_unread().is_some());
        let row = match is_put {
            true => None,
            false => Some(self.read_until(key, deadline).await?),
        };
        let old = row.iter().flatten().find_map(|row| row.record.as_ref());
        // The old value, and the cell of the new one.
        if !reserve(2 * old.map_or(0, |old| old.value.len())) {
            return Err(Changed::NotDone);
        }
        self.decide_on(key, requests, row.as_ref().map(Option::as_ref), deadline).await
    }

    /// Reads a row for a change.
    pub(crate) async fn read_until(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Option<Present>, Changed> {
        let row = timeout_at(deadline, self.records.get(&self.cluster, key)).await;
        row.unwrap_or(Err(Failure::NotDone)).map_err(|_| Changed::NotDone)
    }

    /// Returns the decision on each request, given the row that was read, once the record is
    /// changed. Without `read`, the first decision is the same for each row.
    pub(crate) async fn decide_on(
        &self,
        key: &[u8],
        requests: &[RecordRequest],
        read: Option<Option<&Present>>,
        deadline: Instant,
    ) -> Result<Vec<(Decision, Version)>, Changed> {
        let old = read.flatten().and_then(|row| row.record.clone());
        let was_there = old.is_some();
        let last = read.flatten().map_or(0, |row| row.version);
        let DecidedInTurn { decisions, record, changes } = decide_in_turn(requests, old, last);
        let is_absent = read.is_some() && !was_there && record.is_none();
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
        let DecidedInTurn { decisions, record, changes } = decide_in_turn(requests, old, last);
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

/// Decides requests on a record that has this version, or has had it.
fn decide_in_turn(
    requests: &[RecordRequest],
    record: Option<FoundRecord>,
    last: i64,
) -> DecidedInTurn {
    DecidedInTurn::decide(requests, record, last.cast_unsigned(), |last| {
        version::next(last.cast_signed(), now_ms()).cast_unsigned()
    })
}
