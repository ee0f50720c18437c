//! Transactions of functions: changes that are made together at the commit, or not at all.

use super::{Result, ScriptError, ScriptRecords};
use crate::ops::conditional::{Action, Write};
use crate::ops::long::room_for_transaction;
use crate::ops::operation::Operation;
use crate::store::Store;
use cabinet::Error;
use cabinet::limits::BATCH_BYTES_MAX;

impl ScriptRecords {
    /// Begins a transaction. Reads and changes of single records belong to it until it ends, and
    /// other clients do not see the changes. Fails within another transaction.
    pub fn begin_transaction(&self) -> Result<()> {
        self.leave_loop();
        let mut state = self.lock()?;
        if state.transaction.is_some() {
            return Err(not_within("another transaction"));
        }
        let has_room = room_for_transaction(&self.shared.served.budget);
        state.transaction = Some(self.database().transaction(BATCH_BYTES_MAX, has_room));
        Ok(())
    }

    /// Makes all changes of the transaction, and ends it. Fails with [`Error::Conflict`], without
    /// any change, if another client has changed a record that the transaction has read. Then the
    /// function may try again.
    pub fn commit(&self) -> Result<()> {
        let mut state = self.lock()?;
        let Some(transaction) = state.transaction.take() else {
            return Err(ScriptError::Invalid("there is no transaction to commit".into()));
        };
        state.has_changed |= self.database().commit(transaction)?;
        Ok(())
    }

    /// Abandons the transaction, if there is one. Returns whether there was one.
    pub fn abort(&self) -> Result<bool> {
        Ok(self.lock()?.transaction.take().is_some())
    }
}

/// Fails if an operation is impossible within a transaction.
pub(super) fn check(store: &Store, operation: &Operation<'_>) -> Result<()> {
    match operation {
        Operation::Get { .. }
        | Operation::ValueSize { .. }
        | Operation::Write(Write { action: Action::Put { .. } | Action::Remove, .. }) => {}
        // In a row these change columns.
        Operation::Write(_) if !store.has_rows() => {}
        operation => return Err(not_within(operation.name())),
    }
    Ok(store.check_transaction_keys(operation.key().into_iter())?)
}

pub(super) fn not_within(operation: &'static str) -> ScriptError {
    let advice = "call it before or after";
    Error::Unsupported { operation, kind: "a transaction", advice }.into()
}
