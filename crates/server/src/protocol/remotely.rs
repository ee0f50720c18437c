//! Execution of operations in a store outside of this process.
//!
//! On an event loop, the first operation without an answer ends the execution of its request; see
//! [`crate::ops::remote`]. Operations that read all records go to a thread that may wait, and read
//! them in pages.

use super::{Context, Halt};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::execute::{INLINE_KEYS_MAX, INLINE_REPLY_BYTES_MAX, Outcome, Reply, TooLong};
use crate::ops::operation::Operation;
use crate::ops::remote::{
    self, Answered, Comparing, KeyCursor, KeysBegin, PAGE_KEY_BYTES, PAGE_KEYS, Remote,
    StoreAnswer, StoreRequest,
};
use crate::shared::Shared;
use cabinet::{Error, pattern};
use std::sync::Weak;
use std::time::Instant;

/// Bytes of values that an operation on all records reads at once, about.
const SCAN_VALUE_BYTES: usize = 4 << 20;

/// Outcome of an operation, or the error of the operation, or the reason for which the request
/// ends.
type Executed<T> = Result<Result<T, Error>, Halt>;

impl Context<'_> {
    /// Executes an operation. An event loop submits it once the request has ended.
    #[cold]
    pub(super) fn execute_remotely(
        &mut self,
        remote: &Remote,
        operation: &Operation<'_>,
        reply: &mut impl Reply,
    ) -> Executed<Outcome> {
        let executed = match operation {
            Operation::IterBegin { from } => self.begin_iterator(remote, *from)?,
            Operation::IterKey => self.next_key(remote, reply)?,
            Operation::IterRecord => self.next_record(remote, reply)?,
            Operation::Records => self.scan(remote, None, usize::MAX, reply)?,
            Operation::Match { pattern, max } => self.scan(remote, Some(pattern), *max, reply)?,
            // Each change was durable when it was answered, and the store compacts itself.
            Operation::Sync | Operation::Defragment | Operation::ClearCache => Ok(Outcome::Done),
            _ => self.execute_request(remote, operation, reply)?,
        };
        match executed {
            Ok(outcome) => self.conclude(operation, Ok(outcome)),
            Err(error) => {
                self.note_failure(operation.name(), &error);
                Ok(Err(error))
            }
        }
    }

    /// Executes an operation that is one request.
    fn execute_request(
        &mut self,
        remote: &Remote,
        operation: &Operation<'_>,
        reply: &mut impl Reply,
    ) -> Executed<Outcome> {
        let shared = self.shared;
        let mut waited = None;
        let mut limit = shared.limit(&mut self.charge);
        let answers = self.session.answers.get_or_insert_default();
        let answer = match answers.next() {
            // The thread that takes over has the answer.
            Some(Answered { result: Ok(answer), .. })
                if !self.may_block && answer.is_longer(INLINE_REPLY_BYTES_MAX) =>
            {
                return Err(Halt::Blocked);
            }
            Some(answer) => answer,
            None if !self.may_block
                && operation.is_longer(INLINE_KEYS_MAX, INLINE_REPLY_BYTES_MAX) =>
            {
                return Err(Halt::Blocked);
            }
            None => match remote.request(operation, comparing(shared), limit.bytes_max) {
                Err(error) => return Ok(Err(error)),
                // No key is valid in the store, or there is none.
                Ok(StoreRequest::GetMany { keys, .. }) if keys.is_empty() => {
                    waited.insert(Answered::records_of_no_key())
                }
                Ok(StoreRequest::Changes(requests)) if requests.is_empty() => {
                    return Ok(Ok(Outcome::Done));
                }
                Ok(request) if self.may_block => waited.insert(wait_for(
                    remote,
                    request,
                    self.session.client.as_ref(),
                    &mut self.until,
                    shared,
                )),
                Ok(request) => {
                    answers.wanted = Some(request);
                    return Err(Halt::Blocked);
                }
            },
        };
        let answer = answer.result.as_ref().map_err(|reason| Halt::Refused(*reason))?;
        if let StoreAnswer::ValueTooLong { bytes } = answer {
            return Ok(Err(remote.value_too_long(*bytes)));
        }
        if let StoreAnswer::Refused(refusal) = answer {
            return Ok(Err(refusal.clone().into()));
        }
        match remote::encode(remote, operation, answer, &mut limit, reply) {
            Ok(Some(outcome)) => Ok(Ok(outcome)),
            Ok(None) => Err(Halt::Refused(RefusalReason::Unknown)),
            Err(TooLong) => Err(Halt::TooLong),
        }
    }

    /// Returns the answer to a request. A further execution of the client's request does without
    /// it.
    fn ask(&mut self, remote: &Remote, request: StoreRequest) -> Result<Answered, Halt> {
        let answers = self.session.answers.get_or_insert_default();
        let answered = match answers.remove_next() {
            Some(answered) => answered,
            None if self.may_block => {
                let client = self.session.client.as_ref();
                wait_for(remote, request, client, &mut self.until, self.shared)
            }
            None => {
                answers.wanted = Some(request);
                return Err(Halt::Blocked);
            }
        };
        match answered.result {
            Err(reason) => Err(Halt::Refused(reason)),
            Ok(_) => Ok(answered),
        }
    }

    /// Starts the iterator of the connection.
    fn begin_iterator(&mut self, remote: &Remote, from: Option<&[u8]>) -> Executed<Outcome> {
        let mut cursor = KeyCursor::start();
        if let Some(from) = from {
            let begin = KeysBegin::At(from.to_vec());
            if let Err(error) = self.fill(remote, &mut cursor, begin)? {
                return Ok(Err(error));
            }
            if cursor.first().is_none() {
                return Ok(Ok(Outcome::NoRecord));
            }
        }
        self.session.key_cursor = Some(Box::new(cursor));
        Ok(Ok(Outcome::Done))
    }

    /// Reads the page of an iteration that begins at a key.
    fn fill(&mut self, remote: &Remote, cursor: &mut KeyCursor, begin: KeysBegin) -> Executed<()> {
        let request = match remote.keys(b"", begin, PAGE_KEYS, PAGE_KEY_BYTES) {
            Ok(request) => request,
            Err(error) => return Ok(Err(error)),
        };
        let is_filled = self.ask(remote, request)?.result.is_ok_and(|page| cursor.fill(page));
        if is_filled { Ok(Ok(())) } else { Err(Halt::Refused(RefusalReason::Unavailable)) }
    }

    /// Returns the next key of the iterator, which stays there, once it is read.
    fn peek(&mut self, remote: &Remote) -> Executed<Option<Vec<u8>>> {
        let Some(mut cursor) = self.session.key_cursor.take() else { return Ok(Ok(None)) };
        let filled = match cursor.missing().cloned() {
            Some(begin) => self.fill(remote, &mut cursor, begin),
            None => Ok(Ok(())),
        };
        let key = cursor.first().map(<[u8]>::to_vec);
        self.session.key_cursor = Some(cursor);
        Ok(filled?.map(|()| key))
    }

    /// Takes the next key off the iterator.
    fn pop(&mut self) {
        if let Some(cursor) = &mut self.session.key_cursor {
            cursor.pop();
        }
    }

    /// Appends the next key of the iterator.
    fn next_key(&mut self, remote: &Remote, reply: &mut impl Reply) -> Executed<Outcome> {
        Ok(match self.peek(remote)? {
            Err(error) => Err(error),
            Ok(None) => Ok(Outcome::NoRecord),
            Ok(Some(key)) => {
                reply.element(&key);
                self.pop();
                Ok(Outcome::Done)
            }
        })
    }

    /// Appends the next record of the iterator that is still there.
    fn next_record(&mut self, remote: &Remote, reply: &mut impl Reply) -> Executed<Outcome> {
        let shared = self.shared;
        loop {
            let key = match self.peek(remote)? {
                Err(error) => return Ok(Err(error)),
                Ok(None) => return Ok(Ok(Outcome::NoRecord)),
                Ok(Some(key)) => key,
            };
            let bytes_max = self.limit().bytes_max;
            let get = Operation::Get { key: &key };
            let request = match remote.request(&get, comparing(shared), bytes_max) {
                Ok(request) => request,
                Err(error) => return Ok(Err(error)),
            };
            let answered = self.ask(remote, request)?;
            let Ok(StoreAnswer::Record(answer)) = &answered.result else {
                return Err(Halt::Refused(RefusalReason::Unavailable));
            };
            self.pop();
            if let Some(record) = answer.found() {
                let entry = record.entry(&key);
                let appended = self
                    .limit()
                    .append(reply, entry.value.len(), |reply| reply.record(&key, &entry));
                return appended.map(|()| Ok(Outcome::Done)).map_err(|TooLong| Halt::TooLong);
            }
        }
    }

    /// Appends the records whose key matches a regular expression, or all, at most `max`.
    fn scan(
        &mut self,
        remote: &Remote,
        expression: Option<&[u8]>,
        max: usize,
        reply: &mut impl Reply,
    ) -> Executed<Outcome> {
        // The results of a page are encoded before the next one is read.
        self.wait()?;
        let expression = match expression.map(pattern::compile).transpose() {
            Ok(expression) => expression,
            Err(error) => return Ok(Err(error)),
        };
        let Some(_scan) = remote.begin_scan() else {
            return Err(Halt::Refused(RefusalReason::TooMany));
        };
        let mut left = max;
        let mut cursor = KeyCursor::start();
        while let Some(begin) = cursor.missing().cloned() {
            if let Err(error) = self.fill(remote, &mut cursor, begin)? {
                return Ok(Err(error));
            }
            let mut keys = Vec::new();
            while let Some(key) = cursor.pop() {
                if expression.as_ref().is_none_or(|expression| expression.is_match(&key)) {
                    keys.push(key);
                }
            }
            while !keys.is_empty() {
                keys.truncate(left);
                let request =
                    StoreRequest::GetMany { keys: keys.clone(), bytes_max: SCAN_VALUE_BYTES };
                let answered = self.ask(remote, request)?;
                let records = match &answered.result {
                    Ok(StoreAnswer::Records { records, .. }) if !records.is_empty() => records,
                    _ => return Err(Halt::Refused(RefusalReason::Unavailable)),
                };
                for (key, record) in keys.drain(..records.len().min(keys.len())).zip(records) {
                    let Some(record) = record else { continue };
                    let entry = record.entry(&key);
                    let bytes = if reply.shows_values() { entry.value.len() } else { 0 };
                    let appended =
                        self.limit().append(reply, bytes, |reply| reply.record(&key, &entry));
                    appended.map_err(|TooLong| Halt::TooLong)?;
                    left -= 1;
                    if left == 0 || reply.is_full() {
                        return Ok(Ok(Outcome::Done));
                    }
                }
            }
        }
        Ok(Ok(Outcome::Done))
    }
}

/// Executes a request on a thread that may wait, until the end of the client's request. After a
/// failure, little time is left to the rest of it.
fn wait_for(
    remote: &Remote,
    request: StoreRequest,
    client: Option<&Weak<()>>,
    until: &mut Option<Instant>,
    shared: &Shared,
) -> Answered {
    let until = until.get_or_insert_with(|| remote.end_of_request());
    let answered = remote.wait_for(request, client, *until, &shared.served);
    if answered.result.is_err() {
        *until = (*until).min(Instant::now() + remote.timeout);
    }
    answered
}

fn comparing(shared: &Shared) -> Comparing<'_> {
    Comparing { cas_numbers: &shared.cas_numbers, entity_tags: shared.entity_tags }
}
