//! Channels: messages for the clients that subscribe to a name or to a pattern of names.
//!
//! A message is not stored, and reaches the clients of this server that subscribe when it comes. It
//! is put into the queue of each subscriber, and the event loop of the connection is told, which
//! sends the queue.
//!
//! Lock order: the table of all subscriptions, then the queue of a subscriber.

use super::budget::{Budget, Charge};
use super::rights::Rights;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Most bytes of messages that wait for a subscriber, in its queue or unsent. A slower one is
/// disconnected.
pub(crate) const SUBSCRIBER_BYTES_MAX: usize = 8 << 20;

/// Bytes of the messages of each subscriber that take no memory of the budget: one that reads all
/// of them is not disconnected because other clients use the budget.
const UNCHARGED_BYTES: usize = 16 << 10;

/// Most bytes of names that a connection subscribes to.
const NAMES_BYTES_MAX: usize = 1 << 20;

/// Bytes that a name takes besides its length.
const NAME_BYTES: usize = 160;

/// Most steps that all patterns take together for each byte of a channel's name: an event loop may
/// compare each of them with the name.
const PATTERN_STEPS_MAX: usize = 10_000;

/// Steps of patterns, or number of names, after which those who change subscriptions have a turn.
const TURN_STEPS: usize = 256;

/// A way to subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The channel of this name.
    Channel,
    /// All channels whose name matches a pattern.
    Pattern,
    /// The channel of this name among those that a cluster divides, which are others.
    Shard,
}

type Subscribers = BTreeMap<u64, Arc<Subscriber>>;

/// All subscriptions of a server.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    table: RwLock<Table>,
    next_number: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    names: [BTreeMap<Box<[u8]>, Name>; 3],
    /// Steps of all patterns.
    pattern_steps: usize,
}

/// A name that is subscribed to.
#[derive(Debug)]
struct Name {
    subscribers: Subscribers,
    /// Steps that it takes for each byte of a channel's name if it is a pattern, or 0.
    steps: usize,
}

/// A connection that subscribes, as publishers see it.
pub(crate) struct Subscriber {
    number: u64,
    /// Form of its messages, which its protocol defines.
    form: AtomicU8,
    /// Tells the event loop of the connection that there are messages.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Whether the event loop was told, and has not taken the messages since.
    is_told: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    bytes: Vec<u8>,
    charge: Charge,
    /// Whether messages were lost, because there were too many.
    is_overrun: bool,
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Subscriber").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Channels {
    /// Returns how many subscriptions a message to a channel has. `matches` compares a pattern with
    /// a name.
    pub(crate) fn count(
        &self,
        topic: Topic,
        name: &[u8],
        matches: impl Fn(&[u8], &[u8]) -> bool,
    ) -> usize {
        let mut count = 0;
        self.for_each(topic, name, matches, |_, subscribers| count += subscribers.len());
        count
    }

    /// Sends a message to all who subscribe to a channel. `encode` appends the message in a form,
    /// for a subscription by a pattern or by name. Returns the number of subscriptions.
    pub(crate) fn publish(
        &self,
        topic: Topic,
        name: &[u8],
        matches: impl Fn(&[u8], &[u8]) -> bool,
        encode: impl Fn(u8, Option<&[u8]>, &mut Vec<u8>),
    ) -> usize {
        let mut count = 0;
        self.for_each(topic, name, matches, |pattern, subscribers| {
            count += subscribers.len();
            let mut encoded: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
            for subscriber in subscribers.values() {
                let form = subscriber.form.load(Ordering::Relaxed);
                let bytes = encoded.entry(form).or_insert_with(|| {
                    let mut bytes = Vec::new();
                    encode(form, pattern, &mut bytes);
                    bytes
                });
                subscriber.push(bytes);
            }
        });
        count
    }

    fn for_each(
        &self,
        topic: Topic,
        name: &[u8],
        matches: impl Fn(&[u8], &[u8]) -> bool,
        mut visit: impl FnMut(Option<&[u8]>, &Subscribers),
    ) {
        if let Some(name) = self.table.read().names[topic as usize].get(name) {
            visit(None, &name.subscribers);
        }
        if topic == Topic::Channel {
            let Ok(()) = self.try_for_each(Topic::Pattern, 1, |pattern, subscribed| {
                if matches(pattern, name) {
                    visit(Some(pattern), &subscribed.subscribers);
                }
                Ok::<_, Infallible>(())
            });
        }
    }

    /// Passes the names that are subscribed to, in order, as long as `visit` succeeds. It takes
    /// this number of steps, or that of the name. Others may change the subscriptions meanwhile.
    fn try_for_each<E>(
        &self,
        topic: Topic,
        steps: usize,
        mut visit: impl FnMut(&[u8], &Name) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last: Option<Box<[u8]>> = None;
        loop {
            let table = self.table.read();
            let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let names = table.names[topic as usize].range::<[u8], _>((after, Bound::Unbounded));
            let mut left = TURN_STEPS;
            let mut turn_end = None;
            for (text, name) in names {
                visit(text, name)?;
                left = left.saturating_sub(name.steps.max(steps));
                if left == 0 {
                    turn_end = Some(text.clone());
                    break;
                }
            }
            if turn_end.is_none() {
                return Ok(());
            }
            last = turn_end;
        }
    }

    /// Passes the names that are subscribed to, in order, as long as `visit` succeeds, which takes
    /// this number of steps.
    pub(crate) fn try_for_each_name<E>(
        &self,
        topic: Topic,
        steps: usize,
        mut visit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.try_for_each(topic, steps, |name, _| visit(name))
    }

    /// Returns the number of subscriptions to a name.
    pub(crate) fn number_of_subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        let table = self.table.read();
        table.names[topic as usize].get(name).map_or(0, |name| name.subscribers.len())
    }

    /// Returns the number of names that are subscribed to.
    pub(crate) fn number_of_names(&self, topic: Topic) -> usize {
        self.table.read().names[topic as usize].len()
    }

    /// Returns the steps that all patterns take together for each byte of a channel's name.
    pub(crate) fn pattern_steps(&self) -> usize {
        self.table.read().pattern_steps
    }
}

impl Subscriber {
    /// Adds a message. Without room for it, the subscriber is overrun, and its connection ends.
    fn push(&self, message: &[u8]) {
        let mut queue = self.queue.lock();
        let bytes = queue.bytes.len() + message.len();
        if queue.is_overrun {
            return;
        }
        let charged_bytes = bytes.saturating_sub(UNCHARGED_BYTES);
        if bytes <= SUBSCRIBER_BYTES_MAX && queue.charge.set(charged_bytes) {
            queue.bytes.extend_from_slice(message);
        } else {
            queue.bytes = Vec::new();
            queue.charge.set(0);
            queue.is_overrun = true;
            // The event loop may know of messages, and wait until the client reads.
            self.is_told.store(false, Ordering::SeqCst);
        }
        drop(queue);
        self.tell();
    }

    fn tell(&self) {
        if let Some(wake) = self.waker.get()
            && !self.is_told.swap(true, Ordering::SeqCst)
        {
            wake();
        }
    }

    /// Sets what tells the event loop, if that is not done yet.
    pub(crate) fn attach(&self, waker: impl FnOnce() -> Box<dyn Fn() + Send + Sync>) {
        if self.waker.get().is_none() {
            self.waker.get_or_init(waker);
            let queue = self.queue.lock();
            let has_messages = !queue.bytes.is_empty() || queue.is_overrun;
            drop(queue);
            if has_messages {
                self.tell();
            }
        }
    }

    /// Returns whether the event loop was told of messages that it has not taken.
    pub(crate) fn has_told(&self) -> bool {
        self.is_told.load(Ordering::SeqCst)
    }

    /// Returns whether messages were lost.
    pub(crate) fn is_overrun(&self) -> bool {
        self.queue.lock().is_overrun
    }

    /// Removes and returns the messages; `None` if some were lost, which the event loop remains
    /// told of.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let queue = &mut *self.queue.lock();
        if queue.is_overrun {
            return None;
        }
        self.is_told.store(false, Ordering::SeqCst);
        queue.charge.set(0);
        Some(std::mem::take(&mut queue.bytes))
    }
}

/// Subscriptions of a connection. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    channels: Arc<Channels>,
    subscriber: Arc<Subscriber>,
    names: [BTreeSet<Box<[u8]>>; 3],
    bytes: usize,
    /// Rights of the user for which they were checked.
    pub(crate) rights: Option<Arc<Rights>>,
}

/// Reason why a connection cannot subscribe to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// The names of the connection would take more than 1 MiB.
    Names,
    /// The patterns of all connections would take too many steps.
    Patterns,
}

impl Subscriptions {
    /// Returns the subscriptions of a connection, none yet, whose messages have a form.
    pub(crate) fn new(channels: &Arc<Channels>, budget: &Arc<Budget>, form: u8) -> Self {
        let queue = Queue { bytes: Vec::new(), charge: Charge::none(budget), is_overrun: false };
        let subscriber = Subscriber {
            number: channels.next_number.fetch_add(1, Ordering::Relaxed),
            form: AtomicU8::new(form),
            waker: OnceLock::new(),
            is_told: AtomicBool::new(false),
            queue: Mutex::new(queue),
        };
        Self {
            channels: Arc::clone(channels),
            subscriber: Arc::new(subscriber),
            names: Default::default(),
            bytes: 0,
            rights: None,
        }
    }

    pub(crate) fn subscriber(&self) -> &Arc<Subscriber> {
        &self.subscriber
    }

    /// Returns the memory that the names take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn set_form(&self, form: u8) {
        self.subscriber.form.store(form, Ordering::Relaxed);
    }

    /// Returns the names of a topic, in order.
    pub(crate) fn names(&self, topic: Topic) -> &BTreeSet<Box<[u8]>> {
        &self.names[topic as usize]
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    /// Subscribes to a name, which takes this number of steps if it is a pattern. Returns whether
    /// it is a new one.
    pub(crate) fn add(&mut self, topic: Topic, text: &[u8], steps: usize) -> Result<bool, TooMany> {
        if self.names(topic).contains(text) {
            return Ok(false);
        }
        let bytes = self.bytes + NAME_BYTES + text.len();
        if bytes > NAMES_BYTES_MAX {
            return Err(TooMany::Names);
        }
        let table = &mut *self.channels.table.write();
        let names = &mut table.names[topic as usize];
        if !names.contains_key(text) {
            if table.pattern_steps + steps > PATTERN_STEPS_MAX {
                return Err(TooMany::Patterns);
            }
            table.pattern_steps += steps;
            names.insert(text.into(), Name { subscribers: Subscribers::new(), steps });
        }
        if let Some(name) = names.get_mut(text) {
            name.subscribers.insert(self.subscriber.number, Arc::clone(&self.subscriber));
        }
        self.bytes = bytes;
        self.names[topic as usize].insert(text.into());
        Ok(true)
    }

    /// Ends the subscription to a name, if there is one.
    pub(crate) fn remove(&mut self, topic: Topic, name: &[u8]) {
        if !self.names[topic as usize].remove(name) {
            return;
        }
        self.bytes -= NAME_BYTES + name.len();
        self.unsubscribe(topic, name);
    }

    /// Ends the subscription to the first name of a topic. Returns the name.
    pub(crate) fn remove_first(&mut self, topic: Topic) -> Option<Box<[u8]>> {
        let name = self.names[topic as usize].pop_first()?;
        self.bytes -= NAME_BYTES + name.len();
        self.unsubscribe(topic, &name);
        Some(name)
    }

    fn unsubscribe(&self, topic: Topic, text: &[u8]) {
        let table = &mut *self.channels.table.write();
        let names = &mut table.names[topic as usize];
        if let Some(name) = names.get_mut(text) {
            name.subscribers.remove(&self.subscriber.number);
            if name.subscribers.is_empty() {
                table.pattern_steps -= name.steps;
                names.remove(text);
            }
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            self.names(topic).iter().for_each(|name| self.unsubscribe(topic, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn starts_with(pattern: &[u8], name: &[u8]) -> bool {
        name.starts_with(pattern)
    }

    fn add(subscriptions: &mut Subscriptions, topic: Topic, name: &[u8]) {
        let steps = usize::from(topic == Topic::Pattern);
        subscriptions.add(topic, name, steps).expect("room for the name");
    }

    fn send(channels: &Channels, name: &str, message: &str) -> usize {
        channels.publish(Topic::Channel, name.as_bytes(), starts_with, |form, pattern, out| {
            let pattern = String::from_utf8_lossy(pattern.unwrap_or(b"-")).into_owned();
            out.extend(format!("{form}{pattern}:{message};").bytes());
        })
    }

    #[test]
    fn a_message_reaches_names_and_patterns_in_the_form_of_each() {
        let (channels, budget) = (Arc::default(), Budget::new(1 << 30));
        let mut one = Subscriptions::new(&channels, &budget, 2);
        let mut other = Subscriptions::new(&channels, &budget, 3);
        add(&mut one, Topic::Channel, b"news");
        add(&mut one, Topic::Channel, b"news");
        add(&mut other, Topic::Pattern, b"ne");
        add(&mut other, Topic::Shard, b"news");
        assert_eq!((send(&channels, "news", "a"), send(&channels, "nets", "b")), (2, 1));
        assert_eq!(send(&channels, "old", "c"), 0);
        assert_eq!(one.subscriber().take().as_deref(), Some(&b"2-:a;"[..]));
        assert_eq!(other.subscriber().take().as_deref(), Some(&b"3ne:a;3ne:b;"[..]));
        one.remove(Topic::Channel, b"news");
        drop(other);
        assert_eq!(send(&channels, "news", "d"), 0);
        assert!(one.is_empty() && one.bytes() == 0);
        assert_eq!(channels.number_of_names(Topic::Pattern), 0);
        assert_eq!((channels.number_of_names(Topic::Channel), channels.pattern_steps()), (0, 0));
    }

    #[test]
    fn the_event_loop_is_told_once_until_it_takes_the_messages() {
        let (channels, budget) = (Arc::default(), Budget::new(1 << 30));
        let mut one = Subscriptions::new(&channels, &budget, 2);
        add(&mut one, Topic::Channel, b"a");
        send(&channels, "a", "1");
        let told: &'static AtomicUsize = Box::leak(Box::default());
        let tell = || -> Box<dyn Fn() + Send + Sync> {
            Box::new(|| {
                told.fetch_add(1, Ordering::Relaxed);
            })
        };
        one.subscriber().attach(tell);
        send(&channels, "a", "2");
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(one.subscriber().take().as_deref(), Some(&b"2-:1;2-:2;"[..]));
        send(&channels, "a", "3");
        assert_eq!(told.load(Ordering::Relaxed), 2);
        // A command that takes the messages leaves an overrun queue to the event loop.
        send(&channels, "a", &"m".repeat(SUBSCRIBER_BYTES_MAX));
        assert_eq!(one.subscriber().take(), None);
        assert!(one.subscriber().has_told() && one.subscriber().is_overrun());
    }

    #[test]
    fn a_subscriber_that_takes_nothing_is_overrun_at_a_limit() {
        let (channels, budget) = (Arc::default(), Budget::new(1 << 30));
        let mut one = Subscriptions::new(&channels, &budget, 2);
        add(&mut one, Topic::Channel, b"a");
        let message = "m".repeat(SUBSCRIBER_BYTES_MAX - 4);
        send(&channels, "a", &message);
        assert_eq!(budget.used_bytes(), SUBSCRIBER_BYTES_MAX - UNCHARGED_BYTES);
        assert_eq!(one.subscriber().take().map(|bytes| bytes.len()), Some(SUBSCRIBER_BYTES_MAX));
        send(&channels, "a", &message);
        send(&channels, "a", "");
        assert_eq!((one.subscriber().take(), budget.used_bytes()), (None, 0));
        // Memory that others use is missing in the same way.
        let budget = Budget::new(100);
        let mut one = Subscriptions::new(&channels, &budget, 2);
        add(&mut one, Topic::Channel, b"b");
        send(&channels, "b", &"m".repeat(96 + UNCHARGED_BYTES));
        assert!(one.subscriber().take().is_some());
        let mut others = Charge::none(&budget);
        assert!(others.set(100));
        // A short queue needs none.
        send(&channels, "b", &"m".repeat(UNCHARGED_BYTES - 4));
        assert!(one.subscriber().take().is_some());
        send(&channels, "b", &"m".repeat(UNCHARGED_BYTES - 3));
        assert_eq!(one.subscriber().take(), None);
    }

    #[test]
    fn the_names_of_a_connection_are_limited() {
        let channels = Arc::default();
        let mut one = Subscriptions::new(&channels, &Budget::new(1 << 30), 2);
        let name = vec![b'n'; NAMES_BYTES_MAX - NAME_BYTES + 1];
        assert_eq!(one.add(Topic::Channel, &name, 0), Err(TooMany::Names));
        assert_eq!(one.add(Topic::Channel, &name[1..], 0), Ok(true));
        // A known name takes nothing more.
        assert_eq!(one.add(Topic::Channel, &name[1..], 0), Ok(false));
        assert_eq!(one.add(Topic::Channel, b"", 0), Err(TooMany::Names));
        one.remove(Topic::Channel, &name[1..]);
        assert_eq!(one.add(Topic::Channel, b"", 0), Ok(true));
    }

    #[test]
    fn the_steps_of_all_patterns_are_limited() {
        let channels = Arc::default();
        let [mut one, mut other] =
            [2, 3].map(|form| Subscriptions::new(&channels, &Budget::new(1 << 30), form));
        assert_eq!(one.add(Topic::Pattern, b"a", PATTERN_STEPS_MAX - 1), Ok(true));
        assert_eq!(other.add(Topic::Pattern, b"b", 2), Err(TooMany::Patterns));
        assert_eq!(other.add(Topic::Pattern, b"b", 1), Ok(true));
        assert_eq!(one.add(Topic::Pattern, b"c", 1), Err(TooMany::Patterns));
        // A pattern is compared once, however many subscribe to it.
        assert_eq!(other.add(Topic::Pattern, b"a", PATTERN_STEPS_MAX - 1), Ok(true));
        drop(one);
        assert_eq!(channels.pattern_steps(), PATTERN_STEPS_MAX);
        drop(other);
        assert_eq!(channels.pattern_steps(), 0);
    }

    #[test]
    fn others_change_their_subscriptions_while_patterns_are_compared() {
        let (channels, budget) = (Arc::<Channels>::default(), Budget::new(1 << 30));
        let mut one = Subscriptions::new(&channels, &budget, 2);
        for pattern in [b"a", b"b"] {
            assert_eq!(one.add(Topic::Pattern, pattern, TURN_STEPS), Ok(true));
        }
        let (begun, begin) = std::sync::mpsc::channel();
        let (changed, change) = std::sync::mpsc::channel();
        let mut other = Subscriptions::new(&channels, &budget, 2);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                begin.recv().expect("a first comparison");
                add(&mut other, Topic::Channel, b"c");
                changed.send(()).expect("a second comparison");
            });
            channels.count(Topic::Channel, b"c", |pattern, _| {
                if pattern == b"a" {
                    begun.send(()).expect("another thread");
                    // It waits for the lock, and is the next to get it.
                    while channels.table.try_read().is_some() {
                        std::thread::yield_now();
                    }
                } else {
                    let limit = std::time::Duration::from_secs(60);
                    change.recv_timeout(limit).expect("a subscription meanwhile");
                }
                true
            });
        });
    }
}
