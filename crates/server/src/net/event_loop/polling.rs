//! Polling before sleeping: with few connections, the next request often comes within microseconds.
//!
//! A thread that sleeps until then costs the sleep, the wake-up and, on an idle virtual machine,
//! the wake-up of the processor, which takes longer than the request. So a loop first asks for
//! events for up to [`POLL_TIME`] without sleeping. Between two questions it yields its processor,
//! so that a client or another loop that needs it loses nothing.
//!
//! A loop polls only while that pays: if few of [`TRIAL_POLLS`] polls find events, it sleeps at
//! once for some waits, for more of them each time in a row.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Timeout of a wait that only asks for events.
pub(super) const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Longest time without events that a loop polls before it sleeps.
const POLL_TIME: Duration = Duration::from_micros(20);

/// Polls after which it is judged whether polling pays.
const TRIAL_POLLS: u32 = 16;

/// Polls of a trial that must find events, so that the loop goes on polling.
const TRIAL_HITS_MIN: u32 = TRIAL_POLLS / 2;

/// Waits without polling after the first trial that failed.
const PAUSE_WAITS_MIN: u32 = 64;

/// Most waits without polling after a trial that failed. Each such trial doubles the pause.
const PAUSE_WAITS_MAX: u32 = 1024;

/// The waits of a loop for events, and what polling has gained of late.
#[derive(Debug)]
pub(super) struct Polling {
    /// Polls of this trial.
    polls: u32,
    /// Polls of this trial that found events.
    hits: u32,
    /// Waits still to come without polling.
    pause_waits: u32,
    /// Length of the next pause, in waits.
    next_pause_waits: u32,
}

impl Default for Polling {
    fn default() -> Self {
        Self { polls: 0, hits: 0, pause_waits: 0, next_pause_waits: PAUSE_WAITS_MIN }
    }
}

impl Polling {
    /// Waits until there are events, and adds them to `events`, as many as it has room for. Without
    /// any it returns after `timeout`, or when a signal came. Polls only if it may.
    pub(super) fn wait(
        &mut self,
        epoll: &OwnedFd,
        events: &mut Vec<Event>,
        timeout: Option<&Timespec>,
        may_poll: bool,
    ) -> Result<(), Errno> {
        if may_poll && timeout != Some(&NO_WAIT) && self.is_worth_it() {
            let found = poll(epoll, events)?;
            self.note(found);
            if found {
                return Ok(());
            }
        }
        ask(epoll, events, timeout)
    }

    /// Returns whether the next wait begins with a poll.
    fn is_worth_it(&mut self) -> bool {
        let polls = self.pause_waits == 0;
        self.pause_waits = self.pause_waits.saturating_sub(1);
        polls
    }

    /// Notes whether a poll found events.
    fn note(&mut self, found: bool) {
        self.polls += 1;
        self.hits += u32::from(found);
        if self.polls < TRIAL_POLLS {
            return;
        }
        if self.hits >= TRIAL_HITS_MIN {
            self.next_pause_waits = PAUSE_WAITS_MIN;
        } else {
            self.pause_waits = self.next_pause_waits;
            self.next_pause_waits = (self.next_pause_waits * 2).min(PAUSE_WAITS_MAX);
        }
        (self.polls, self.hits) = (0, 0);
    }
}

/// Asks for events until there are some, for up to [`POLL_TIME`]. Returns whether there are.
fn poll(epoll: &OwnedFd, events: &mut Vec<Event>) -> Result<bool, Errno> {
    let began = Instant::now();
    loop {
        ask(epoll, events, Some(&NO_WAIT))?;
        if !events.is_empty() {
            return Ok(true);
        }
        if began.elapsed() >= POLL_TIME {
            return Ok(false);
        }
        std::thread::yield_now();
    }
}

/// Waits for events once. A signal ends the wait without any.
fn ask(epoll: &OwnedFd, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<(), Errno> {
    match epoll::wait(epoll, spare_capacity(events), timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::{EventData, EventFlags};
    use rustix::event::{EventfdFlags, eventfd};

    /// Notes the result of a whole trial in which `hits` polls found events.
    fn try_polling(polling: &mut Polling, hits: u32) {
        for poll in 0..TRIAL_POLLS {
            assert!(polling.is_worth_it(), "poll {poll} of the trial");
            polling.note(poll < hits);
        }
    }

    #[test]
    fn polling_goes_on_while_half_of_the_polls_find_events() {
        let mut polling = Polling::default();
        for _ in 0..10 {
            try_polling(&mut polling, TRIAL_HITS_MIN);
            assert_eq!(polling.pause_waits, 0);
        }
        try_polling(&mut polling, TRIAL_HITS_MIN - 1);
        assert_eq!(polling.pause_waits, PAUSE_WAITS_MIN);
    }

    #[test]
    fn the_pause_doubles_with_each_failed_trial_until_one_pays() {
        let mut polling = Polling::default();
        for waits in [64, 128, 256, 512, 1024, 1024] {
            try_polling(&mut polling, 0);
            assert_eq!(polling.pause_waits, waits);
            for wait in 0..waits {
                assert!(!polling.is_worth_it(), "wait {wait} of a pause of {waits}");
            }
        }
        try_polling(&mut polling, TRIAL_POLLS);
        try_polling(&mut polling, 0);
        assert_eq!(polling.pause_waits, PAUSE_WAITS_MIN);
    }

    #[test]
    fn a_wait_returns_events_or_ends_by_its_timeout_whether_it_polls_or_not() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        let counter = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        epoll::add(&epoll, &counter, EventData::new_u64(7), EventFlags::IN).expect("a watch");
        let mut events = Vec::with_capacity(4);
        let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        for paused in [0, 1] {
            let mut polling = Polling { pause_waits: paused, ..Polling::default() };
            polling.wait(&epoll, &mut events, Some(&timeout), true).expect("a wait");
            assert!(events.is_empty());
            assert_eq!((polling.polls, polling.hits), (1 - paused, 0));

            rustix::io::write(&counter, &1u64.to_ne_bytes()).expect("a write");
            let mut polling = Polling { pause_waits: paused, ..Polling::default() };
            polling.wait(&epoll, &mut events, None, true).expect("a wait");
            let tokens: Vec<u64> = events.drain(..).map(|event| event.data.u64()).collect();
            assert_eq!(tokens, [7]);
            assert_eq!((polling.polls, polling.hits), (1 - paused, 1 - paused));
            rustix::io::read(&counter, &mut [0; 8]).expect("a read");
        }
    }

    #[test]
    fn a_wait_that_only_asks_or_may_not_poll_is_no_poll() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        let mut polling = Polling::default();
        polling.wait(&epoll, &mut Vec::with_capacity(4), Some(&NO_WAIT), true).expect("a wait");
        let timeout = Timespec { tv_sec: 0, tv_nsec: 1 };
        polling.wait(&epoll, &mut Vec::with_capacity(4), Some(&timeout), false).expect("a wait");
        assert_eq!(polling.polls, 0);
    }
}
