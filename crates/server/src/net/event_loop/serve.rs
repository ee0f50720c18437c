//! Request service: reads requests, executes them, and submits to the pool those that may wait.

use super::deliver::out_of_memory;
use super::{BUFFER_BYTES, LoopState};
use crate::access::logins::Verdict;
use crate::counters::{Count, RequestBatch, slot_of};
use crate::net::connection::{Connection, Stage};
use crate::net::hub::Hub;
use crate::net::mailbox::Message;
use crate::net::pending_reply::FirstAcknowledgement;
use crate::net::pooled_reply::PooledReply;
use crate::net::script_pool::{CallCompletion, ScriptJob, ScriptWork};
use crate::net::slab::Token;
use crate::net::transport::Transport;
use crate::net::worker_pool::{Completion, Job, RequestTask, Task};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::Charge;
use crate::ops::failure::Failure;
use crate::ops::remote::Answered;
use crate::protocol::refusal::Refusal;
use crate::protocol::reparse::Reparse;
use crate::protocol::script_call::ScriptCall;
use crate::protocol::{self, Ahead, Context, Next, Step};
use crate::shared::slow_log::{SlowRequest, Taken};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::{Class, RequestKind};

/// Incomplete requests shorter than this many bytes are kept without spare capacity.
const SHORT_INPUT_BYTES: usize = BUFFER_BYTES / 2;

/// Makes room for the bytes of a read in the taken input of a connection. It grows by what has
/// arrived, not by what a client announces. Returns whether the budget allows it: the buffers of
/// all connections must not be over it even for the time of a read.
#[cold]
fn grow(connection: &mut Connection, input: &mut Vec<u8>) -> bool {
    let wanted = (input.len() + BUFFER_BYTES).max(2 * input.len());
    if connection.charge_beside(wanted) {
        input.reserve_exact(wanted - input.len());
        return true;
    }
    out_of_memory(connection);
    false
}

/// Returns the task to execute a request of a connection, with its session.
fn request_task(
    token: Token,
    connection: &mut Connection,
    request: &[u8],
    charge: Charge,
    submitted: Instant,
) -> RequestTask {
    let request = request.to_vec();
    connection.pooled = Some(Box::new(connection.session.state()));
    let session = Box::new(std::mem::take(&mut connection.session));
    let descriptor = connection.descriptor();
    RequestTask { token, request, session, descriptor, charge, submitted }
}

impl LoopState {
    /// Handles events of a socket.
    pub(super) fn ready(&mut self, token: Token, connection: &mut Connection, flags: EventFlags) {
        connection.activity = connection.activity.saturating_add(1);
        if flags.contains(EventFlags::OUT) {
            self.flush_and_resume(token, connection);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        if connection.reads() {
            self.receive(token, connection);
        } else {
            connection.paused = true;
            // The client is gone, so nothing can be sent to it either. A store outside of this
            // process learns that no answer is waited for.
            let answers = connection.session.answers.as_ref();
            let reads = answers.is_some_and(|answers| answers.awaits_read());
            connection.lost |= flags.intersects(EventFlags::HUP | EventFlags::ERR);
            connection.broken |= connection.lost && (connection.unsent_bytes() > 0 || reads);
            if connection.lost {
                connection.is_there = None;
            }
        }
    }

    /// Reads once and executes the complete requests.
    fn receive(&mut self, token: Token, connection: &mut Connection) {
        let fresh = connection.input.is_empty();
        let mut input = std::mem::take(if fresh { &mut self.input } else { &mut connection.input });
        if input.capacity() - input.len() < BUFFER_BYTES && !grow(connection, &mut input) {
            return;
        }
        let received_bytes = if matches!(connection.transport, Transport::Plain) {
            let received =
                recv(connection.socket(), spare_capacity(&mut input), RecvFlags::empty());
            self.note_received(connection, received.map(|(_, bytes)| bytes))
        } else {
            self.receive_records(connection, &mut input)
        };
        if connection.stage != Stage::Open {
            // Input after the last request is discarded.
            input.clear();
        }
        let is_due = fresh || connection.reparse.is_due(&input);
        let consumed = if is_due { self.serve(token, connection, &input) } else { 0 };
        if consumed < input.len() && !fresh && consumed == 0 {
            if input.len() < SHORT_INPUT_BYTES {
                // Free the spare capacity: there may be very many of these.
                input.shrink_to_fit();
            }
            connection.input = input;
        } else {
            if consumed < input.len() {
                connection.input = input[consumed..].to_vec();
            }
            if fresh {
                input.clear();
                self.input = input;
            }
        }
        connection.note_input(received_bytes, self.now_ms());
    }

    /// Notes the outcome of a read. Returns the number of bytes received.
    #[inline]
    pub(super) fn note_received(
        &mut self,
        connection: &mut Connection,
        received: rustix::io::Result<usize>,
    ) -> usize {
        match received {
            Ok(0) => connection.ended = true,
            Ok(bytes) => {
                self.counters.add(Count::BytesRead, bytes as u64);
                connection.moved_at_s = self.now_s();
                return bytes;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => connection.broken = true,
        }
        0
    }

    /// Executes the requests that had to wait.
    pub(super) fn resume(&mut self, token: Token, connection: &mut Connection) {
        if connection.is_ready_for_piece() {
            self.pool(token, connection, &[]);
            return;
        }
        if connection.input.is_empty() || !connection.executes() {
            return;
        }
        let mut input = std::mem::take(&mut connection.input);
        let consumed = self.serve(token, connection, &input);
        if consumed < input.len() {
            if consumed > 0 {
                input = input[consumed..].to_vec();
            }
            connection.input = input;
        }
        connection.note_input(0, self.now_ms());
    }

    /// Executes the requests in `input` and sends the replies. Returns the number of bytes
    /// executed.
    fn serve(&mut self, token: Token, connection: &mut Connection, input: &[u8]) -> usize {
        let mut consumed = 0;
        while connection.executes()
            && input.len() > consumed
            && input.len() - consumed >= connection.needed
        {
            let mut output = std::mem::take(&mut self.output);
            consumed += self.batch(token, connection, &input[consumed..], &mut output);
            self.deliver(connection, &mut output);
            self.output = output;
        }
        consumed
    }

    /// Executes requests until one stops the batch. Returns the number of bytes executed.
    fn batch(
        &mut self,
        token: Token,
        connection: &mut Connection,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> usize {
        // Requests of other connections may have been executed since the loop woke up.
        let began = self.shared.slow_log.is_on().then(Instant::now);
        let descriptor = connection.descriptor();
        let room = self.shared.config.output_bytes_max.saturating_sub(connection.unsent_bytes());
        let mut consumed = 0;
        let mut executed = RequestBatch::default();
        // The first bytes of the input may be those of a body, which tell no protocol.
        let mut first_kind = RequestKind::NONE;
        let was_receiving = connection.session.http.is_receiving();
        let mut ahead: Option<Ahead<'_>> = None;
        connection.needed = 0;
        connection.reparse = Reparse::default();
        let mut context =
            Context::new(&self.shared, false, &self.counters, &mut connection.session, descriptor);
        let mut replicate = None;
        let mut upgrades = false;
        let mut acknowledgement = None;
        let mut is_answered = false;
        let mut is_postponed = false;
        let blocked = loop {
            let rest = &input[consumed..];
            if rest.is_empty() || output.len() > room {
                break None;
            }
            let (start, was_mutated) = (output.len(), context.mutated);
            let decoded = ahead.as_mut().and_then(|ahead| ahead.step(&mut context, output));
            let step = match decoded {
                Some(step) => step,
                // The first request is mostly the only one.
                None if consumed == 0 => protocol::step(&mut context, rest, output),
                None => {
                    let ahead = ahead.get_or_insert_with(Ahead::new);
                    ahead.decode(&mut context, rest);
                    let decoded = ahead.step(&mut context, output);
                    decoded.unwrap_or_else(|| protocol::step(&mut context, rest, output))
                }
            };
            if context.mutated && !was_mutated {
                acknowledgement = Some(FirstAcknowledgement {
                    at: start,
                    refusal: Refusal::within(context.session, rest),
                });
            }
            match step {
                Step::Executed { bytes, next } => {
                    consumed += bytes;
                    if !context.session.http.is_under_way() {
                        is_answered = true;
                        let kind = std::mem::take(&mut context.session.kind);
                        if kind != RequestKind::NONE {
                            context.session.last.0 = kind;
                            self.counters.count_request(kind);
                            if was_receiving && executed.is_empty() {
                                first_kind = kind;
                            }
                            executed.add(kind);
                        }
                    }
                    match next {
                        Next::GoOn => {}
                        Next::CloseIfQuiet if consumed < input.len() => {}
                        Next::CloseIfQuiet | Next::Close => connection.stage = Stage::Closing,
                        Next::Refuse => connection.stage = Stage::Refusing,
                        Next::Upgrade => {
                            upgrades = true;
                            connection.stage = Stage::Closing;
                            // The request is handed over with all bytes that follow it.
                            break None;
                        }
                        Next::Replicate(request) => {
                            replicate = Some(request);
                            connection.stage = Stage::Closing;
                        }
                    }
                    if connection.stage != Stage::Open {
                        // Bytes after the last request are ignored.
                        consumed = input.len();
                        break None;
                    }
                }
                Step::Incomplete { needed } => {
                    connection.needed = needed;
                    if !context.session.http.is_under_way() {
                        connection.reparse = Reparse::after(
                            context.session,
                            rest,
                            context.shared.config.request_bytes_max,
                        );
                    }
                    break None;
                }
                Step::Postponed => {
                    is_postponed = true;
                    break None;
                }
                Step::Blocked { bytes } | Step::Called { bytes } => break Some(bytes),
            }
        };
        let mutated = context.mutated;
        let is_under_way = connection.session.http.is_under_way();
        if !executed.is_empty() {
            let (ended, taken) = (Instant::now(), connection.end_taken());
            let time = ended.saturating_duration_since(self.now) + taken.total();
            self.counters.time(&executed, time);
            if self.shared.slow_log.is_slow(time) {
                let first = if was_receiving { &[][..] } else { &input[..consumed] };
                let dialect = self.shared.config.dialect;
                let first = protocol::describe(&connection.session, dialect, first_kind, first);
                let sizes = (consumed, output.len());
                let cpu =
                    began.map_or(Duration::ZERO, |began| ended.saturating_duration_since(began));
                self.note_slow(connection, &executed, first, sizes, (time, cpu, taken));
            }
        } else if is_under_way {
            // A piece of an upload. The clock is read only for requests that have pieces.
            connection.taken().pieces += self.now.elapsed();
        } else if blocked.is_none() && is_answered {
            connection.end_taken();
        }
        if is_answered {
            // The pace of an incomplete request begins with this read.
            connection.request = None;
        }
        if mutated && !self.shared.served.flush_update_log() {
            // A change that is not in the log must not be acknowledged, nor anything after it.
            if let Some(FirstAcknowledgement { at, refusal }) = acknowledgement {
                output.truncate(at);
                refusal.write(self.shared.log_failure(), output);
            }
            connection.stage = Stage::Refusing;
            return input.len();
        }
        if upgrades {
            let mut unsent = connection.take_unsent();
            unsent.append(output);
            // The new owner charges the budget for these bytes.
            connection.charge();
            let received = input[consumed..].to_vec();
            let session = connection.transport.take_session();
            let peer = connection.session.peer.take().map(|peer| *peer);
            let (socket, shared) = (connection.socket(), &self.shared);
            let resume = self.resume_here();
            if !shared.upgrade_connection(socket, session, peer, unsent, received, resume) {
                out_of_memory(connection);
            }
            return input.len();
        }
        if let Some(request) = replicate {
            // The socket gets another owner, which blocks on sending: no reply may be left.
            if connection.unsent_bytes() > 0 || !output.is_empty() || mutated {
                tracing::warn!(
                    "replica {} refused: it has not received the replies to its earlier requests",
                    request.replica
                );
            } else {
                let session = connection.transport.take_session();
                let peer = connection.session.peer.as_ref();
                let user = peer.and_then(|peer| peer.user());
                self.shared.hand_to_replica(connection.socket(), session, user, request);
            }
        }
        if let Some(acknowledgement) = acknowledgement
            && self.shared.delays_replies
        {
            self.delay_replies(
                token,
                connection,
                self.shared.acknowledgement_point(),
                acknowledgement,
            );
        }
        if is_postponed {
            self.postpone(token, connection);
        }
        let Some(bytes) = blocked else { return consumed };
        if let (Some(answers), Some(remote)) =
            (&mut connection.session.answers, &self.shared.remote)
            && let Some((request, waiter)) = answers.take_wanted(self.store_requests + 1, self.now)
        {
            self.store_requests += 1;
            let request_number = self.store_requests;
            // The client's request stays in the input, to be executed again with the answer.
            // A store that never answers must not keep the server that owns it.
            let (hub, number) = (Arc::downgrade(&self.hub), self.number);
            let deliver = move |answer| {
                if let Some(hub) = hub.upgrade() {
                    hub.mailboxes[number].post(Message::Answer(token, request_number, answer));
                }
            };
            connection.begin_wait(self.now);
            connection.stage = Stage::Pooled;
            if !remote.submit(request, waiter, &self.shared.served.budget, deliver) {
                let answer = RefusalReason::TooMany.into();
                self.mailbox().post(Message::Answer(token, request_number, answer));
            }
            return consumed;
        }
        if let Some(attempt) = connection.session.attempt.take() {
            // The request stays in the input here, too.
            connection.begin_wait(self.now);
            connection.stage = Stage::Pooled;
            self.hub.logins.submit(&self.hub, self.number, token, attempt);
            return consumed;
        }
        let request = &input[consumed..consumed + bytes];
        let is_placed = if let Some(call) = connection.session.call.take() {
            self.call(token, connection, call, self.hub.scripts.take_place())
        } else if let Some(lock) = connection.session.awaited_lock.take() {
            self.await_lock(token, connection, request, lock)
        } else {
            !self.await_reads(token, connection, input, consumed..consumed + bytes)
                && self.pool(token, connection, request)
        };
        if is_placed { consumed + bytes } else { consumed }
    }

    /// Adds requests that were executed together to the slow log.
    #[cold]
    fn note_slow(
        &self,
        connection: &Connection,
        executed: &RequestBatch,
        first: SlowRequest,
        (request_bytes, reply_bytes): (usize, usize),
        (time, cpu, taken): (Duration, Duration, Taken),
    ) {
        // An event loop does not wait, so its time is taken for CPU time.
        let queue = time.saturating_sub(cpu);
        let (client, requests) = (connection.address(), executed.requests());
        let slow =
            SlowRequest { client, requests, request_bytes, reply_bytes, queue, cpu, ..first };
        self.shared.slow_log.add(slow.with_parts_of(&taken));
    }

    /// Submits a call to the script threads at the end of the round. Returns whether their queue
    /// had a place; if not, the connection is parked.
    fn call(
        &mut self,
        token: Token,
        connection: &mut Connection,
        call: Box<ScriptCall>,
        has_place: bool,
    ) -> bool {
        let mut charge = Charge::none(&self.shared.served.budget);
        if !charge.set(call.bytes()) {
            if has_place {
                self.hub.scripts.give_back_place();
            }
            out_of_memory(connection);
            return false;
        }
        connection.begin_wait(self.now);
        if !has_place {
            self.park(token, connection, |hub| hub.scripts.has_place());
            return false;
        }
        if call.has_logged_in {
            self.counters.count(Count::Authentication);
        }
        connection.stage = Stage::Pooled;
        let submitted = self.submitted(connection);
        self.push_call(ScriptWork::Call { token, call, charge, submitted });
        true
    }

    /// Submits a request that has to wait for a script lock, as [`Self::call`] does.
    fn await_lock(
        &mut self,
        token: Token,
        connection: &mut Connection,
        request: &[u8],
        lock: usize,
    ) -> bool {
        let Some(charge) = connection.take_charge(request.len()) else {
            out_of_memory(connection);
            return false;
        };
        connection.begin_wait(self.now);
        if !self.hub.scripts.take_place() {
            connection.return_charge(charge);
            self.park(token, connection, |hub| hub.scripts.has_place());
            return false;
        }
        let submitted = self.submitted(connection);
        let task = request_task(token, connection, request, charge, submitted);
        connection.stage = Stage::Pooled;
        self.push_call(ScriptWork::Request(Box::new(task), lock));
        true
    }

    /// Returns the time from which a request counts that is submitted now. Its earlier waits and
    /// pieces count as if they had been just before.
    fn submitted(&self, connection: &mut Connection) -> Instant {
        self.now.checked_sub(connection.taken().total()).unwrap_or(self.now)
    }

    fn push_call(&mut self, task: ScriptWork) {
        self.calls.push(ScriptJob { event_loop: self.number, task });
    }

    /// Leaves all calls to the script threads, those of the loop itself first.
    pub(super) fn submit_calls(&mut self) {
        self.hub.scripts.submit(&mut self.own_calls);
        self.hub.scripts.submit(&mut self.calls);
    }

    /// Returns whether functions are to be called.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty() || !self.own_calls.is_empty()
    }

    /// Parks a connection until a queue has a place.
    fn park(
        &mut self,
        token: Token,
        connection: &mut Connection,
        has_place: impl FnOnce(&Hub) -> bool,
    ) {
        connection.stage = Stage::Parked;
        self.parked.push(token);
        self.mailbox().has_parked.store(true, Ordering::SeqCst);
        if has_place(&self.hub) {
            // The pool may have read the flag before it was set.
            self.mailbox().wake();
        }
    }

    /// Leaves the next request of a connection in its input, to be executed somewhat later.
    fn postpone(&mut self, token: Token, connection: &mut Connection) {
        connection.begin_wait(self.now);
        connection.stage = Stage::Parked;
        self.postponed.push(token);
    }

    /// Submits a request to the pool. Returns whether its queue had a place; if not, the connection
    /// is parked.
    fn pool(&mut self, token: Token, connection: &mut Connection, request: &[u8]) -> bool {
        let pause = &self.shared.pause;
        if pause.may_be_on()
            && !connection.session.http.is_under_way()
            && pause.holds_pooled(self.now_ms(), connection.session.kind)
        {
            self.postpone(token, connection);
            return false;
        }
        let Some(charge) = connection.take_charge(request.len()) else {
            out_of_memory(connection);
            return false;
        };
        connection.begin_wait(self.now);
        let submitted = self.submitted(connection);
        if self.shared.remote.is_some() {
            let is_there = connection.is_there.insert(Arc::default());
            connection.session.client = Some(Arc::downgrade(is_there));
        }
        let kind = connection.session.kind;
        let is_script =
            kind.class() == Class::Script || connection.session.redis.runs_scripts(kind);
        let task = Task::Execute(request_task(token, connection, request, charge, submitted));
        let job = Job { event_loop: self.number, task, is_script };
        match self.hub.pool.submit(job) {
            Ok(()) => {
                self.counters.count(Count::Pooled);
                connection.stage = Stage::Pooled;
                true
            }
            Err(job) => {
                if let Task::Execute(task) = job.task {
                    connection.session = *task.session;
                    connection.pooled = None;
                    connection.return_charge(task.charge);
                }
                self.park(token, connection, |hub| hub.pool.has_room(is_script));
                false
            }
        }
    }

    /// Takes the answer to an operation, and executes its request again. An answer that comes too
    /// late is dropped.
    pub(super) fn answer(
        &mut self,
        token: Token,
        connection: &mut Connection,
        number: u64,
        answer: Answered,
    ) {
        let answers = connection.session.answers.as_mut();
        let Some(answers) = answers.filter(|answers| answers.awaits(number)) else { return };
        answers.add(answer);
        let waited = connection.end_wait(self.now);
        connection.taken().store += waited;
        connection.stage = Stage::Open;
        self.resume(token, connection);
    }

    /// Takes the verdict on an attempt to log in, and executes its request again.
    pub(super) fn log_in(
        &mut self,
        token: Token,
        connection: &mut Connection,
        verdict: Box<Verdict>,
    ) {
        connection.session.verdict = Some(verdict);
        let waited = connection.end_wait(self.now);
        connection.taken().login += waited;
        connection.stage = Stage::Open;
        self.resume(token, connection);
    }

    /// Sends the reply that the pool has made, then resumes the connection.
    pub(super) fn complete(
        &mut self,
        token: Token,
        connection: &mut Connection,
        completion: Completion,
    ) {
        connection.session = *completion.session;
        connection.pooled = None;
        connection.return_charge(completion.charge);
        self.end_pooled(token, connection, completion.reply);
    }

    /// Sends the reply to a call, then resumes the connection.
    pub(super) fn complete_call(
        &mut self,
        token: Token,
        connection: &mut Connection,
        completion: CallCompletion,
    ) {
        if let Some(reason) = completion.failure {
            tracing::debug!("ext: {reason}");
            connection.session.last_failure = Some(Failure::Miscellaneous);
            connection.session.last_reason = Some(reason);
            self.shared.last_failure.set(Failure::Miscellaneous);
        }
        self.end_pooled(token, connection, completion.reply);
    }

    fn end_pooled(&mut self, token: Token, connection: &mut Connection, reply: PooledReply) {
        let PooledReply { mut output, charge, next, slow, acknowledgement } = reply;
        let time = connection.end_wait(self.now);
        let is_over = connection.session.call.is_none() && !connection.session.http.is_under_way();
        if let Some(slow) = slow.filter(|_| is_over) {
            let slow = SlowRequest { client: connection.address(), ..*slow };
            self.shared.slow_log.add(slow.with_parts_of(connection.taken()));
        }
        connection.taken().pieces += time;
        if is_over {
            let time = connection.end_taken().total();
            let kind = std::mem::take(&mut connection.session.kind);
            if kind != RequestKind::NONE {
                connection.session.last.0 = kind;
                self.counters.count_request(kind);
                self.counters.durations[slot_of(kind)].add(time, 1);
            }
        }
        if !connection.session.http.is_receiving() {
            connection.request = None;
        }
        connection.stage = match next {
            Next::GoOn => Stage::Open,
            Next::CloseIfQuiet if !connection.input.is_empty() => Stage::Open,
            Next::CloseIfQuiet | Next::Close | Next::Upgrade | Next::Replicate(_) => Stage::Closing,
            Next::Refuse => Stage::Refusing,
        };
        if let Some((point, acknowledgement)) = acknowledgement
            && self.shared.delays_replies
        {
            self.delay_replies(token, connection, point, acknowledgement);
        }
        self.deliver(connection, &mut output);
        // From now on the connection is charged for the unsent bytes.
        drop(charge);
        if let Some(call) = connection.session.call.take() {
            // The pool has decoded a call. Its request cannot be decoded again.
            self.hub.scripts.force_place();
            self.call(token, connection, call, true);
            return;
        }
        self.resume(token, connection);
    }
}
