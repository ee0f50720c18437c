//! Calls of functions, which an event loop makes itself at the end of a round.
//!
//! Meanwhile the loop stays in its place, which belongs to no thread. A call that leaves the loop
//! starts a thread, which takes the loop out of its place and serves its connections. It leaves the
//! further calls of the round to the script threads. The thread of the call posts the reply to the
//! loop, and ends.

use super::{EVENTS_MAX, EventLoop};
use crate::Result;
use crate::net::THREAD_STACK_BYTES;
use crate::net::hub::Hub;
use crate::net::mailbox::Message;
use crate::net::script_pool::ROUND_TIME;
use crate::protocol::script_records::Leave;
use parking_lot::Mutex;
use rustix::event::epoll::Event;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

/// Rounds of calls after one wait for events: the requests of a pipeline call one after the other.
const ROUNDS_MAX: usize = 16;

/// Place of a loop while its thread calls functions.
type Place = Mutex<Option<Box<EventLoop>>>;

/// Stops the server.
pub(crate) type Stop = Arc<dyn Fn() + Send + Sync>;

/// Guard of a thread that has a loop: stops the server when the thread ends, even by a panic.
struct StopOnDrop(Option<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop();
        }
    }
}

impl EventLoop {
    /// Serves the connections until the server stops, or another thread has taken over the loop.
    /// Calls `stop` when the loop ends.
    pub(crate) fn run(self: Box<Self>, stop: Stop) -> Result<()> {
        let mut guard = StopOnDrop(Some(Arc::clone(&stop)));
        let place = Arc::new(Place::default());
        let leave = leave(&place, &self.state.hub, self.state.number, stop);
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let mut event_loop = self;
        // A ring belongs to a thread.
        event_loop.abandon_reads();
        event_loop.state.open_ring();
        // A call has left the loop: these were to follow it, and those of the requests behind them.
        event_loop.state.submit_calls();
        loop {
            event_loop.handle_events(&mut events)?;
            let began = Instant::now();
            for _ in 0..ROUNDS_MAX {
                if !event_loop.state.has_calls() || began.elapsed() >= ROUND_TIME {
                    break;
                }
                match event_loop.call_functions(began, &place, &leave) {
                    Some(own) => event_loop = own,
                    None => {
                        guard.0 = None;
                        return Ok(());
                    }
                }
            }
            if event_loop.end_round() {
                return Ok(());
            }
        }
    }

    /// Makes the calls of a round, until [`ROUND_TIME`] after `began`. The others are made in the
    /// next round, once events were handled. Returns the loop, unless another thread has taken it
    /// over.
    fn call_functions(
        mut self: Box<Self>,
        began: Instant,
        place: &Place,
        leave: &Leave,
    ) -> Option<Box<Self>> {
        let (hub, number) = (Arc::clone(&self.state.hub), self.state.number);
        let Some(mut caller) = hub.scripts.caller(number) else {
            self.state.submit_calls();
            return Some(self);
        };
        let state = &mut self.state;
        caller.choose(&mut state.calls, &mut state.own_calls);
        hub.scripts.submit(&mut state.calls);
        caller.prefetch(&hub, &state.own_calls);
        let mut now = Instant::now();
        while now.duration_since(began) < ROUND_TIME
            && let Some(job) = self.state.own_calls.pop()
        {
            *place.lock() = Some(self);
            let called = caller.call(&hub, job, now, leave);
            let own = place.lock().take();
            match (own, called) {
                (Some(own), None) => self = own,
                (Some(own), Some((token, completion, ended))) => {
                    self = own;
                    self.state.now = ended;
                    self.complete(token, |state, connection| {
                        state.complete_call(token, connection, completion);
                    });
                    // The reply was sent meanwhile, and requests behind the call were executed.
                    now = Instant::now();
                }
                (None, called) => {
                    if let Some((token, completion, _)) = called {
                        hub.mailboxes[number].post(Message::Called(token, completion));
                    }
                    return None;
                }
            }
        }
        Some(self)
    }
}

/// Returns a function that starts a thread which takes over the loop in a place.
fn leave(place: &Arc<Place>, hub: &Arc<Hub>, number: usize, stop: Stop) -> Leave {
    // The hub's threads are joined before it is dropped.
    let (place, hub) = (Arc::clone(place), Arc::downgrade(hub));
    Arc::new(move || {
        let Some(hub) = hub.upgrade() else { return false };
        let (place, stop) = (Arc::clone(&place), Arc::clone(&stop));
        let successor = move || {
            let event_loop = place.lock().take();
            event_loop.map_or(Ok(()), |event_loop| event_loop.run(stop))
        };
        match Builder::new()
            .name(format!("loop-{number}"))
            .stack_size(THREAD_STACK_BYTES)
            .spawn(successor)
        {
            Ok(thread) => {
                hub.scripts.begin_left_call();
                hub.add_successor(thread);
                true
            }
            Err(error) => {
                tracing::error!("cannot start a thread for an event loop: {error}");
                false
            }
        }
    })
}
