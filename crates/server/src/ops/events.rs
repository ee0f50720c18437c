//! Events of operations: which change of a record an operation is, for those who listen.

use super::conditional::{Action, Write};
use super::execute::Executor;
use super::operation::Operation;
use crate::store::events::Event;
use cabinet::Result;

/// Raises the events of an operation that was carried out.
#[cold]
pub(super) fn raise(executor: &Executor<'_>, operation: &Operation<'_>) -> Result<()> {
    let store = executor.store;
    let event = match operation {
        Operation::Write(Write { action, .. }) => event_of(executor.cause, action),
        Operation::PutDuplicate { .. } | Operation::PutRow { .. } | Operation::PutList { .. } => {
            Event::Set
        }
        Operation::RemoveAll { .. } | Operation::RemoveList { .. } => Event::Del,
        Operation::Touch { .. } if executor.has_changed => Event::Expire,
        _ => return Ok(()),
    };
    operation.keys().try_for_each(|key| store.raise(event, key))?;
    match operation {
        Operation::Write(Write { key, action: Action::Put { meta, .. }, .. })
            if executor.cause.is_none() && meta.expires_at_ms != 0 =>
        {
            store.raise(Event::Expire, key)
        }
        _ => Ok(()),
    }
}

/// Returns the event of an action, which is part of a request with a cause of its own.
fn event_of<B>(cause: Option<Event>, action: &Action<B>) -> Event {
    match (action, cause) {
        (Action::Remove, Some(Event::RenameFrom)) => Event::RenameFrom,
        (Action::Remove, _) => Event::Del,
        (Action::Put { .. }, Some(cause)) => cause,
        (Action::Put { .. }, None) => Event::Set,
        (Action::Extend { .. } | Action::Shift { .. }, _) => Event::Append,
        (Action::Count(_) | Action::AddInt(_), _) => Event::IncrBy,
        (Action::AddDouble(_), _) => Event::IncrByFloat,
        (Action::Invalidate { .. }, _) => Event::Expire,
    }
}
