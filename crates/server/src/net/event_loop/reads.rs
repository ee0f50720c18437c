//! Reads of the disk that the loop has under way itself, by a [`Ring`], in place of a thread of the
//! pool for each.
//!
//! A request that misses bytes stays in the input of its connection, and is executed again once
//! they were read. The pool executes a request that misses others each time, or that the disk
//! cannot read: it reports the failure.

use super::{EventLoop, LoopState, READS};
use crate::ColdReads;
use crate::counters::Count;
use crate::net::connection::{Connection, Stage};
use crate::net::slab::Token;
use crate::protocol::{Ahead, Context};
use cabinet::Ring;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::ops::Range;

/// Most times that one request is executed again before the pool executes it.
const REPETITIONS_MAX: u8 = 16;

/// Reads of a connection.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Reads under way, for which the present request waits.
    under_way: u16,
    /// Executions of the present request so far.
    executions: u8,
    /// Records that it has missed in the last one.
    missed: u8,
}

impl LoopState {
    /// Makes a ring for this thread, which has the loop from now on.
    pub(super) fn open_ring(&mut self) {
        if self.shared.config.cold_reads != ColdReads::Ring {
            return;
        }
        let ring = Ring::new().and_then(|ring| {
            let events = EventFlags::IN | EventFlags::ET;
            epoll::add(&self.epoll, &ring, EventData::new_u64(READS), events)?;
            Ok(ring)
        });
        self.ring = ring.inspect_err(|error| tracing::warn!("no ring for a loop: {error}")).ok();
    }

    /// Queues the reads that a request of the input has missed, and those of the requests behind
    /// it. Returns whether the request waits for them.
    pub(super) fn await_reads(
        &mut self,
        token: Token,
        connection: &mut Connection,
        input: &[u8],
        request: Range<usize>,
    ) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let executions = if request.start == 0 { connection.reads.executions } else { 0 };
        if Ring::missed() == 0 || executions >= REPETITIONS_MAX {
            Ring::forget_missed();
            return false;
        }
        if request.end < input.len() {
            let (descriptor, session) = (connection.descriptor(), &mut connection.session);
            let mut context =
                Context::new(&self.shared, false, &self.counters, session, descriptor);
            Ahead::begin_reads(&mut context, &input[request.end..]);
        }
        let missed = u8::try_from(Ring::missed()).unwrap_or(u8::MAX);
        let under_way = ring.queue(token);
        if under_way == 0 {
            return false;
        }
        let under_way = u16::try_from(under_way).unwrap_or(u16::MAX);
        connection.reads = Reads { under_way, executions: executions + 1, missed };
        connection.begin_wait(self.now);
        connection.stage = Stage::Pooled;
        self.counters.count(Count::AwaitedReads);
        true
    }
}

impl EventLoop {
    /// Submits the reads of this round, and executes the requests again whose reads have ended.
    pub(super) fn finish_reads(&mut self) {
        while let Some(ring) = &mut self.state.ring {
            if let Err(error) = ring.submit() {
                tracing::warn!("the ring of a loop has failed, it gets another one: {error}");
                self.abandon_reads();
                self.state.open_ring();
                return;
            }
            while let Some(ring) = &mut self.state.ring
                && let Some((token, is_read)) = ring.take_ended()
            {
                self.end_read(token, is_read);
            }
            if !self.state.ring.as_ref().is_some_and(Ring::has_queued) {
                break;
            }
        }
    }

    fn end_read(&mut self, token: Token, is_read: bool) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let reads = &mut connection.reads;
        if !is_read {
            reads.executions = REPETITIONS_MAX;
        }
        reads.under_way = reads.under_way.saturating_sub(1);
        if reads.under_way == 0 {
            self.repeat(token);
        }
    }

    fn repeat(&mut self, token: Token) {
        self.complete(token, |state, connection| {
            let waited = connection.end_wait(state.now);
            connection.taken().disk += waited;
            connection.stage = Stage::Open;
            let missed = usize::from(connection.reads.missed);
            Ring::repeat(missed, || state.resume(token, connection));
            if connection.reads.under_way == 0 {
                connection.reads.executions = 0;
            }
        });
    }

    /// Closes the ring, and leaves the requests that wait for its reads to the pool.
    pub(super) fn abandon_reads(&mut self) {
        let Some(ring) = self.state.ring.take() else { return };
        // It fails only if the ring is not watched.
        let _ = epoll::delete(&self.state.epoll, &ring);
        drop(ring);
        for token in self.connections.tokens() {
            if let Some(connection) = self.connections.get_mut(token)
                && connection.reads.under_way > 0
            {
                connection.reads = Reads::default();
                self.repeat(token);
            }
        }
    }
}
