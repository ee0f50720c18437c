//! Connection pool: shares connections between many threads.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::{Address, Client, Error, Result, Settings};

/// A bounded number of connections to one server, opened on demand and reused.
///
/// There is one lock. It is held briefly, and never while talking to the server.
pub struct Pool {
    address: Address,
    settings: Settings,
    connections_max: usize,
    state: Mutex<State>,
    permit_freed: Condvar,
}

struct State {
    /// Open connections that are not in use. The one used last is taken first, so that surplus ones
    /// stay idle until the server closes them.
    idle: Vec<Arc<Client>>,
    in_use: usize,
}

impl Pool {
    /// Creates a pool of at most `connections_max` connections, at least one. It opens none yet.
    pub fn new(address: Address, settings: Settings, connections_max: usize) -> Self {
        Self {
            address,
            settings,
            connections_max: connections_max.max(1),
            state: Mutex::new(State { idle: Vec::new(), in_use: 0 }),
            permit_freed: Condvar::new(),
        }
    }

    /// Returns a connection that is not in use. Waits for one as long as for a new connection
    /// ([`Settings::connect_timeout`]), then fails with [`Error::Miscellaneous`].
    pub fn get(&self) -> Result<Pooled<'_>> {
        let permit = self.reserve()?;
        loop {
            let idle = self.state.lock().idle.pop();
            let client = match idle {
                // The server may have closed it while it was idle.
                Some(client) if !client.is_alive() => continue,
                Some(client) => client,
                None => {
                    Arc::new(Client::connect_with(self.address.clone(), self.settings.clone())?)
                }
            };
            return Ok(Pooled { client, permit });
        }
    }

    fn reserve(&self) -> Result<Permit<'_>> {
        let mut state = self.state.lock();
        let is_full = |state: &mut State| state.in_use == self.connections_max;
        let patience = self.settings.connect_timeout;
        if self.permit_freed.wait_while_for(&mut state, is_full, patience).timed_out() {
            return Err(Error::Miscellaneous);
        }
        state.in_use += 1;
        Ok(Permit { pool: self })
    }
}

/// A [`Client`] from a [`Pool`]. It returns to the pool when this is dropped.
pub struct Pooled<'p> {
    client: Arc<Client>,
    permit: Permit<'p>,
}

impl Deref for Pooled<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        if !self.client.is_broken() {
            self.permit.pool.state.lock().idle.push(Arc::clone(&self.client));
        }
    }
}

/// The right to use one connection.
struct Permit<'p> {
    pool: &'p Pool,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pool.state.lock().in_use -= 1;
        self.pool.permit_freed.notify_one();
    }
}
