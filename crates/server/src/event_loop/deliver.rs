//! Sending replies, at once or when the log is durable, and what follows from having sent them.

use super::{LINGER_SECONDS, SCRATCH_BYTES_MAX, Worker};
use crate::connection::{Connection, Stage};
use crate::counters::Count;
use crate::held::{Awaited, Unconfirmed};
use crate::pool::{Job, Task};
use crate::slab::Token;
use std::sync::atomic::Ordering;

/// What a client is told when all buffers together are at their limit.
const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";

/// Gives up a connection for which there is no room any more, and everything in its buffers.
pub(super) fn out_of_memory(connection: &mut Connection) {
    connection.drop_buffers();
    connection.held = None;
    connection.deliver(&mut OUT_OF_MEMORY.to_vec());
    connection.broken = true;
}

impl Worker {
    /// Sends a reply. `output` is empty afterwards.
    pub(super) fn deliver(&mut self, connection: &mut Connection, output: &mut Vec<u8>) {
        if output.is_empty() || connection.broken {
            output.clear();
            return;
        }
        let sent = connection.deliver(output);
        self.counters.add(Count::BytesWritten, sent as u64);
        if output.capacity() > SCRATCH_BYTES_MAX {
            *output = Vec::new();
        }
    }

    /// Sends what waits, and executes what waited for that.
    pub(super) fn flush_and_go_on(&mut self, token: Token, connection: &mut Connection) {
        let sent = connection.flush();
        if sent > 0 {
            self.counters.add(Count::BytesWritten, sent as u64);
            connection.moved_at_s = self.now_s();
        }
        self.go_on(token, connection);
    }

    /// Keeps replies of a connection back until what they acknowledge is safe.
    pub(super) fn hold(
        &mut self,
        token: Token,
        connection: &mut Connection,
        awaited: Awaited,
        unconfirmed: Unconfirmed,
    ) {
        if self.shared.is_reached(awaited) {
            return;
        }
        connection.hold(awaited, unconfirmed, self.now);
        // What is awaited only rises, but the pool's answers may come late.
        let behind = self.held.partition_point(|(other, _)| *other <= awaited);
        self.held.insert(behind, (awaited, token));
        self.port().holding.store(true, Ordering::SeqCst);
        if self.shared.is_reached(awaited) {
            // The listener may have looked before it could see that somebody waits.
            self.port().wake();
        }
    }

    /// Has the pool find out whether the log has failed.
    pub(super) fn ask_log(&mut self) {
        let Some(&(Awaited { durable, .. }, _)) = self.held.front() else { return };
        if !self.asks_log {
            let task = Task::AwaitDurable(durable);
            // A full queue is no harm: the next tick asks again.
            self.asks_log = self.shared.pool.submit(Job { event_loop: self.number, task }).is_ok();
        }
    }

    /// Brings what the system watches, the budget and the stage of a connection in line with
    /// what it has just done; says whether it stays.
    #[inline]
    pub(super) fn settle(&mut self, token: Token, connection: &mut Connection) -> bool {
        if !connection.charge() {
            out_of_memory(connection);
        }
        if connection.is_done() {
            return false;
        }
        if connection.stage == Stage::Refusing && connection.unsent_bytes() == 0 {
            connection.end_output();
            connection.stage = Stage::Lingering { until_s: self.now_s() + LINGER_SECONDS };
            self.lingering += 1;
        }
        if connection.paused && connection.reads() {
            connection.paused = false;
        }
        match connection.watch(&self.epoll, token) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!("a connection cannot be watched: {error}");
                false
            }
        }
    }
}
