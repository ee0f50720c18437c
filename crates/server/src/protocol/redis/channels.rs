//! Channels: commands that subscribe and publish.

use super::pattern::{self, matches};
use super::scan::prefix_of;
use super::{Failed, reply, wait_if_long};
use crate::ops::channels::{Channels, Subscriptions, TooMany, Topic};
use crate::ops::command_mask;
use crate::ops::operation::OperationKeys;
use crate::ops::rights::{Need, Reach, Right};
use crate::protocol::{Context, Halt};
use std::sync::Arc;
use wire::redis::reply::Version;
use wire::redis::{Arguments, Command};

/// Most bytes of the messages of one transaction.
const PUBLICATIONS_BYTES_MAX: usize = 8 << 20;

/// Messages that are sent when their transaction has been made.
#[derive(Debug, Default)]
pub(super) struct Publications {
    messages: Vec<Publication>,
    bytes: usize,
}

#[derive(Debug)]
struct Publication {
    topic: Topic,
    channel: Box<[u8]>,
    message: Box<[u8]>,
}

impl Publications {
    fn add(&mut self, topic: Topic, channel: &[u8], message: &[u8]) -> Result<(), Failed> {
        let bytes = self.bytes + size_of::<Publication>() + channel.len() + message.len();
        if bytes > PUBLICATIONS_BYTES_MAX {
            return Err("ERR the messages of a transaction are longer than 8 MiB".into());
        }
        self.bytes = bytes;
        let (channel, message) = (channel.into(), message.into());
        self.messages.push(Publication { topic, channel, message });
        Ok(())
    }

    /// Returns the memory of the messages, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn send(&self, channels: &Channels) {
        for Publication { topic, channel, message } in &self.messages {
            send(channels, *topic, channel, message);
        }
    }
}

/// Returns the topic of a command.
fn topic_of(command: Command) -> Topic {
    match command {
        Command::PSubscribe | Command::PUnsubscribe => Topic::Pattern,
        Command::SSubscribe | Command::SUnsubscribe | Command::SPublish => Topic::Shard,
        _ => Topic::Channel,
    }
}

/// Returns whether a client of version 2 of the protocol may send a command while it subscribes.
pub(super) fn is_for_subscribers(command: Command) -> bool {
    matches!(
        command,
        Command::Subscribe
            | Command::PSubscribe
            | Command::SSubscribe
            | Command::Unsubscribe
            | Command::PUnsubscribe
            | Command::SUnsubscribe
            | Command::Ping
            | Command::Quit
            | Command::Reset
    )
}

/// Begins a message or a confirmation of `count` parts.
fn begin(output: &mut Vec<u8>, version: Version, count: usize) {
    match version {
        Version::Two => reply::array(output, count),
        Version::Three => reply::push(output, count),
    }
}

/// Bytes that a confirmation takes besides the name, at most.
const CONFIRMATION_BYTES: usize = 64;

/// Appends a confirmation of a command about a name.
fn confirm(context: &Context<'_>, command: Command, name: Option<&[u8]>, output: &mut Vec<u8>) {
    let version = context.session.redis.version;
    let subscriptions = context.session.subscriptions.as_ref();
    let count = |topic| subscriptions.map_or(0, |all| all.names(topic).len());
    let number = match topic_of(command) {
        Topic::Shard => count(Topic::Shard),
        Topic::Channel | Topic::Pattern => count(Topic::Channel) + count(Topic::Pattern),
    };
    begin(output, version, 3);
    reply::string(output, command.name().as_bytes());
    match name {
        Some(name) => reply::string(output, name),
        None => reply::null(output, version),
    }
    reply::integer(output, number as i64);
}

/// Appends the messages that have come before a reply.
pub(super) fn append_earlier(context: &mut Context<'_>, output: &mut Vec<u8>) {
    // A subscriber that was too slow, or has lost its rights, is disconnected by its event loop.
    if !context.may_listen() {
        return;
    }
    let subscriptions = context.session.subscriptions.as_ref();
    if let Some(earlier) = subscriptions.and_then(|all| all.subscriber().take()) {
        output.extend_from_slice(&earlier);
    }
}

/// Executes `SUBSCRIBE`, `PSUBSCRIBE` and `SSUBSCRIBE`.
pub(super) fn subscribe(
    context: &mut Context<'_>,
    command: Command,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let topic = topic_of(command);
    for name in arguments.iter() {
        match topic {
            Topic::Pattern => pattern::check(name)?,
            Topic::Channel | Topic::Shard => check_channel(name)?,
        }
        context.require(command_mask::Command::Get, need_of(topic, name))?;
    }
    check_confirmations(context, arguments.iter())?;
    let shared = context.shared;
    let form = context.session.redis.version as u8;
    let new = || Box::new(Subscriptions::new(&shared.channels, &shared.served.budget, form));
    // Those of earlier names may have changed, too.
    context.session.subscriptions.get_or_insert_with(new).rights = None;
    let mut added = Vec::new();
    for name in arguments.iter() {
        let Some(subscriptions) = &mut context.session.subscriptions else { break };
        let steps = if topic == Topic::Pattern { pattern::steps(name) } else { 0 };
        match subscriptions.add(topic, name, steps) {
            Ok(true) => added.push(name),
            Ok(false) => {}
            Err(reason) => {
                added.iter().for_each(|name| subscriptions.remove(topic, name));
                drop_empty(context);
                return Err(match reason {
                    TooMany::Names => "ERR a connection subscribes to at most 1 MiB of names",
                    TooMany::Patterns => "ERR the patterns of all connections are at their limit",
                }
                .into());
            }
        }
        confirm(context, command, Some(name), output);
    }
    Ok(())
}

/// Makes a connection that has no subscriptions an ordinary one.
fn drop_empty(context: &mut Context<'_>) {
    if context.session.subscriptions.as_ref().is_some_and(|all| all.is_empty()) {
        context.session.subscriptions = None;
    }
}

impl Context<'_> {
    /// Returns whether the user of the connection may still have the messages of its channels.
    pub(crate) fn may_listen(&mut self) -> bool {
        if !self.stays_authenticated() {
            return false;
        }
        let Some(subscriptions) = self.session.subscriptions.as_mut() else { return true };
        let Some(rights) = &self.session.rights else { return true };
        if subscriptions.rights.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, rights)) {
            return true;
        }
        let topics = [Topic::Channel, Topic::Pattern, Topic::Shard];
        let may_have = |topic, name| rights.lacks(need_of(topic, name)).is_none();
        let is_allowed = topics
            .iter()
            .all(|topic| subscriptions.names(*topic).iter().all(|name| may_have(*topic, name)));
        if is_allowed {
            subscriptions.rights = Some(Arc::clone(rights));
        }
        is_allowed
    }
}

/// Returns the need of a user who subscribes to a name.
fn need_of(topic: Topic, name: &[u8]) -> Need<'_> {
    let reach = match topic {
        Topic::Pattern => Reach::Prefix(prefix_of(name)),
        Topic::Channel | Topic::Shard => Reach::Keys(OperationKeys::One(Some(name))),
    };
    Need { right: Right::Read, reach }
}

/// Longest name of a channel, in bytes: it is compared with every pattern.
const CHANNEL_BYTES_MAX: usize = 1024;

/// Most steps of patterns for each byte of a channel's name that an event loop takes for a message
/// of a client, or for each byte of all names that it lists.
const INLINE_STEPS_MAX: usize = 64;

fn check_channel(name: &[u8]) -> Result<(), Failed> {
    match name.len() <= CHANNEL_BYTES_MAX {
        true => Ok(()),
        false => Err("ERR the name of a channel is at most 1024 bytes long".into()),
    }
}

/// Executes `UNSUBSCRIBE`, `PUNSUBSCRIBE` and `SUNSUBSCRIBE`.
pub(super) fn unsubscribe(
    context: &mut Context<'_>,
    command: Command,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let topic = topic_of(command);
    if !arguments.is_empty() {
        check_confirmations(context, arguments.iter())?;
        for name in arguments.iter() {
            if let Some(subscriptions) = &mut context.session.subscriptions {
                subscriptions.remove(topic, name);
            }
            confirm(context, command, Some(name), output);
        }
        drop_empty(context);
        return Ok(());
    }
    // Its names are limited, and so are their confirmations. Without any there is one, of none.
    let mut name = remove_first(context, topic);
    loop {
        confirm(context, command, name.as_deref(), output);
        name = remove_first(context, topic);
        if name.is_none() {
            break;
        }
    }
    drop_empty(context);
    Ok(())
}

fn remove_first(context: &mut Context<'_>, topic: Topic) -> Option<Box<[u8]>> {
    context.session.subscriptions.as_mut()?.remove_first(topic)
}

/// Fails if the confirmations of these names are too long for a reply.
fn check_confirmations<'n>(
    context: &mut Context<'_>,
    names: impl Iterator<Item = &'n [u8]>,
) -> Result<(), Failed> {
    Ok(context.check_length(names.map(|name| name.len() + CONFIRMATION_BYTES).sum())?)
}

/// Sends a message. Returns the number of subscriptions that it has reached.
fn send(channels: &Channels, topic: Topic, channel: &[u8], message: &[u8]) -> usize {
    channels.publish(topic, channel, matches, |form, pattern, out| {
        let version = if form == Version::Three as u8 { Version::Three } else { Version::Two };
        begin(out, version, if pattern.is_some() { 4 } else { 3 });
        let kind: &[u8] = match (topic, pattern) {
            (Topic::Shard, _) => b"smessage",
            (_, None) => b"message",
            (_, Some(_)) => b"pmessage",
        };
        reply::string(out, kind);
        if let Some(pattern) = pattern {
            reply::string(out, pattern);
        }
        reply::string(out, channel);
        reply::string(out, message);
    })
}

/// Sends a message of the server itself. A channel with a longer name than a client can choose has
/// no subscribers.
pub(crate) fn announce(channels: &Channels, channel: &[u8], message: &[u8]) {
    if channel.len() <= CHANNEL_BYTES_MAX {
        send(channels, Topic::Channel, channel, message);
    }
}

/// Executes `PUBLISH` and `SPUBLISH`.
pub(super) fn publish(
    context: &mut Context<'_>,
    command: Command,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [channel, message] = super::parts(arguments)?;
    context.require(command_mask::Command::Put, Need::of_key(Right::Write, channel))?;
    check_channel(channel)?;
    let topic = topic_of(command);
    let channels = &context.shared.channels;
    if topic == Topic::Channel && channels.pattern_steps() > INLINE_STEPS_MAX {
        context.wait()?;
    }
    let count = match context.session.redis.transaction.publications() {
        Some(later) => {
            later.add(topic, channel, message)?;
            channels.count(topic, channel, matches)
        }
        None => send(channels, topic, channel, message),
    };
    reply::integer(output, count as i64);
    Ok(())
}

/// Executes `PUBSUB`.
pub(super) fn describe(
    context: &mut Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let channels = &context.shared.channels;
    let mut strings = arguments.iter().skip(1);
    let topic = if part.starts_with("shard") { Topic::Shard } else { Topic::Channel };
    // The names may be secret.
    if part != "numpat" {
        context.require(command_mask::Command::Get, Need::of_all(Right::Read))?;
    }
    match part {
        "numpat" => reply::integer(output, channels.number_of_names(Topic::Pattern) as i64),
        "channels" | "shardchannels" => {
            let pattern = strings.next().unwrap_or(b"*");
            pattern::check(pattern)?;
            let steps = pattern::steps(pattern);
            if channels.number_of_names(topic).saturating_mul(steps) > INLINE_STEPS_MAX {
                context.wait()?;
            }
            let (mut names, mut count) = (Vec::new(), 0);
            channels.try_for_each_name(topic, steps, |name| {
                if matches(pattern, name) {
                    context.check_length(names.len() + name.len())?;
                    reply::string(&mut names, name);
                    count += 1;
                }
                Ok::<_, Halt>(())
            })?;
            reply::array(output, count);
            output.append(&mut names);
        }
        _ => {
            wait_if_long(context, arguments)?;
            let start = output.len();
            reply::array(output, 2 * strings.len());
            for name in strings {
                context.check_length(output.len() - start + name.len())?;
                reply::string(output, name);
                reply::integer(output, channels.number_of_subscribers(topic, name) as i64);
            }
        }
    }
    Ok(())
}
