//! Failures of operations, before the protocol library is told.

use dav_server::fs::FsError;
use server::RecordsError;

/// Reason why an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    System(FsError),
    Records(RecordsError),
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::System(error)
    }
}

impl From<RecordsError> for Failure {
    fn from(error: RecordsError) -> Self {
        Self::Records(error)
    }
}
