//! Turns: the requests about records at the same time, and which of them ends for a further one.

use super::MONITOR_EXCHANGE_MAX;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Most requests about records at the same time, so that metrics have connections left.
pub const MONITOR_RELAYS_MAX: usize = 8;

/// Requests under way, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Vec<Arc<Relayed>>>);

#[derive(Debug)]
struct Relayed {
    client: TcpStream,
    begun: Instant,
    /// Whether it may end for another request: it waits until its client reads, or goes on without
    /// end.
    yields: AtomicBool,
}

/// Turn of a request among those at the same time.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    own: Arc<Relayed>,
}

impl Turns {
    /// Takes a turn, or none if too many have one. The oldest one that yields ends, if it has had
    /// its turn for longer than [`MONITOR_EXCHANGE_MAX`]: others wait for it.
    pub(super) fn take(&self, client: &TcpStream) -> io::Result<Option<Turn<'_>>> {
        self.take_at(client, Instant::now())
    }

    fn take_at(&self, client: &TcpStream, begun: Instant) -> io::Result<Option<Turn<'_>>> {
        let mut all = self.0.lock();
        if all.len() >= MONITOR_RELAYS_MAX {
            let is_over = |one: &Arc<Relayed>| {
                let time = begun.saturating_duration_since(one.begun);
                time > MONITOR_EXCHANGE_MAX && one.yields.load(Ordering::Relaxed)
            };
            let Some(place) = all.iter().position(is_over) else { return Ok(None) };
            // Its thread ends at the next piece. The client may be gone already.
            let _ = all.remove(place).client.shutdown(Shutdown::Both);
        }
        let (client, yields) = (client.try_clone()?, AtomicBool::new(false));
        let own = Arc::new(Relayed { client, begun, yields });
        all.push(Arc::clone(&own));
        Ok(Some(Turn { turns: self, own }))
    }
}

impl Turn<'_> {
    /// Sends a piece of a response. Until the client has read enough, the turn yields.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let before = self.own.yields.swap(true, Ordering::Relaxed);
        let sent = (&self.own.client).write_all(bytes);
        self.own.yields.store(before, Ordering::Relaxed);
        sent
    }

    /// Notes that the response has no end of its own.
    pub(super) fn goes_on(&self) {
        self.own.yields.store(true, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.0.lock().retain(|one| !Arc::ptr_eq(one, &self.own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn only_what_waits_for_its_client_or_has_no_end_gives_its_turn_away() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address"));
        let client = client.expect("a connection");
        let (turns, start) = (Turns::default(), Instant::now());
        let take = |begun| turns.take_at(&client, begun).expect("a socket");
        let all: Vec<_> = (0..MONITOR_RELAYS_MAX).map(|_| take(start).expect("a turn")).collect();
        let late = start + MONITOR_EXCHANGE_MAX + Duration::from_millis(1);
        // An optimize, a copy or an upload may take its time.
        assert!(take(late).is_none());
        all[3].goes_on();
        assert!(take(start + MONITOR_EXCHANGE_MAX).is_none());
        let further = take(late).expect("a turn");
        assert!(take(late).is_none());
        assert!(!turns.0.lock().iter().any(|one| Arc::ptr_eq(one, &all[3].own)));
        drop((all, further));
        assert!(turns.0.lock().is_empty());
    }
}
