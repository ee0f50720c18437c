//! `WAIT`: waits until replicas have the changes so far.

use super::{Failed, NO_INTEGER, integer, reply, saturated};
use crate::protocol::{Context, Halt};
use crate::shared::clients::{Unblock, Waiting};
use std::time::{Duration, Instant};
use wire::redis::Arguments;

/// A wait for replicas that has begun.
#[derive(Debug)]
pub(super) struct Wait {
    /// Time stamp of the last change before it, in microseconds since 1970.
    changed_us: u64,
    /// Time at which it ends in any case, if there is one.
    until: Option<Instant>,
    waiting: Waiting,
}

/// Executes `WAIT`. It is executed again, now and then, until enough replicas have the changes or
/// the time is over.
pub(super) fn wait(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let begun = context.session.redis.wait.take();
    let mut strings = arguments.iter();
    let wanted = integer(strings.next().unwrap_or_default()).ok_or(NO_INTEGER)?;
    let timeout_ms = integer(strings.next().unwrap_or_default());
    let timeout_ms = timeout_ms.ok_or("ERR timeout is not an integer or out of range")?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| "ERR timeout is negative")?;
    if context.shared.replication.followed().is_some() {
        return Err("ERR WAIT cannot be used with replica instances. Please also note that since \
                    Redis 4.0 if a replica is configured to be writable (which is not the default) \
                    writes to replicas are just local and are not propagated."
            .into());
    }
    let replication = &context.shared.replication;
    let begun = begun.unwrap_or_else(|| {
        Box::new(Wait {
            changed_us: replication.changed_us(),
            until: match timeout_ms {
                0 => None,
                ms => Instant::now().checked_add(Duration::from_millis(ms)),
            },
            waiting: context.shared.clients.begin_wait(context.session.id),
        })
    });
    let count = saturated(replication.count_with(begun.changed_us));
    let unblocked = begun.waiting.unblocked();
    if unblocked == Some(Unblock::Error) {
        return Err("UNBLOCKED client unblocked via CLIENT UNBLOCK".into());
    }
    let is_over = unblocked.is_some()
        || begun.until.is_some_and(|until| until <= Instant::now())
        || context.session.redis.transaction.is_executing()
        || context.may_block
        || context.shared.served.is_stopping();
    if count < wanted && !is_over {
        context.session.redis.wait = Some(begun);
        return Err(Halt::Postponed.into());
    }
    reply::integer(output, count);
    Ok(())
}
