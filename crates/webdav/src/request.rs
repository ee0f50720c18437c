//! Request context: passes headers to the file system, and its outcome to the response.

use crate::failure::Failure;
use crate::update::Update;
use crate::work::Work;
use dav_server::fs::{FsError, FsResult};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, StatusCode};
use server::{Records, RecordsError, Saying, User, client_reason};
use std::sync::{Arc, OnceLock};

/// The context of a request: its headers about the value, and its outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request(Arc<State>);

#[derive(Debug, Default)]
struct State {
    saying: Saying,
    work: Work,
    /// User of the request, on a server with users.
    user: Option<Arc<User>>,
    /// Changes of properties.
    update: OnceLock<Update>,
    /// The path whose properties the update has changed, as in a response, and the outcome.
    patched: OnceLock<(String, StatusCode)>,
    /// A status that the file system's errors cannot express.
    status: OnceLock<StatusCode>,
    /// Reason of the first failure of the database.
    reason: OnceLock<String>,
}

impl Request {
    pub(crate) fn new(
        method: &Method,
        headers: &HeaderMap,
        work: &Work,
        user: Option<Arc<User>>,
    ) -> Self {
        let header = |name: HeaderName| headers.get(name).map(|value| value.as_bytes().to_vec());
        // A list may span several header lines.
        let list = |name: HeaderName| {
            let lines: Vec<&[u8]> =
                headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            (!lines.is_empty()).then(|| lines.join(&b", "[..]))
        };
        // The type in a PATCH is that of the change.
        let media_type = header(CONTENT_TYPE).filter(|_| method != Method::PATCH);
        let saying = Saying {
            media_type: media_type.unwrap_or_default(),
            matching: list(IF_MATCH),
            none_matching: list(IF_NONE_MATCH),
        };
        Self(Arc::new(State { saying, work: work.clone(), user, ..State::default() }))
    }

    pub(crate) fn saying(&self) -> &Saying {
        &self.0.saying
    }

    pub(crate) fn update(&self) -> Option<&Update> {
        self.0.update.get()
    }

    pub(crate) fn set_update(&self, update: Update) {
        // A request sets it once.
        let _ = self.0.update.set(update);
    }

    pub(crate) fn set_patched(&self, href: String, status: StatusCode) {
        // A request has one update.
        let _ = self.0.patched.set((href, status));
    }

    /// Returns the response to the update, once it has been carried out.
    pub(crate) fn patched(&self) -> Option<String> {
        let (href, status) = self.0.patched.get()?;
        Some(self.update()?.multistatus(href, *status))
    }

    pub(crate) fn status(&self) -> Option<StatusCode> {
        self.0.status.get().copied()
    }

    /// Returns why the request failed, if the database or the rights of the user gave a reason.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Runs an operation on the records on a thread that may block.
    pub(crate) async fn wait<T: Send + 'static>(
        &self,
        records: &Arc<Records>,
        operation: impl FnOnce(&Records) -> Result<T, Failure> + Send + 'static,
    ) -> FsResult<T> {
        let records = match &self.0.user {
            Some(user) => Arc::new(records.limited_to(user)),
            None => Arc::clone(records),
        };
        let under_way = self.0.work.begin();
        let operation = move || {
            let done = operation(&records);
            drop(under_way);
            done
        };
        match tokio::task::spawn_blocking(operation).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(failure)) => Err(self.error(failure)),
            // The panic has already been printed.
            Err(_) => Err(FsError::GeneralFailure),
        }
    }

    /// Converts a failure to an error of the protocol library.
    pub(crate) fn error(&self, failure: Failure) -> FsError {
        let error = match failure {
            Failure::System(error) => return error,
            Failure::Records(error) => error,
        };
        let reason = match &error {
            RecordsError::Database(error) => client_reason(error),
            RecordsError::Several => Some("the record has several values".to_owned()),
            RecordsError::Lacking(reason) => Some(reason.clone()),
            _ => None,
        };
        if let Some(reason) = reason {
            let _ = self.0.reason.set(reason);
        }
        let say = |status| {
            // The first failure is the cause.
            let _ = self.0.status.set(status);
            FsError::GeneralFailure
        };
        match error {
            RecordsError::Masked | RecordsError::Lacking(_) => FsError::Forbidden,
            // A replica, or a database that cannot store properties.
            RecordsError::Database(
                cabinet::Error::ReadOnly(_) | cabinet::Error::Unsupported { .. },
            ) => FsError::Forbidden,
            RecordsError::TooLong => FsError::TooLarge,
            RecordsError::Unmet => say(StatusCode::PRECONDITION_FAILED),
            RecordsError::Several => say(StatusCode::CONFLICT),
            RecordsError::NoRoom
            | RecordsError::Unconfirmed
            | RecordsError::Database(cabinet::Error::Unavailable(_)) => {
                say(StatusCode::SERVICE_UNAVAILABLE)
            }
            RecordsError::Database(cabinet::Error::KeyTooLong { .. }) => FsError::PathTooLong,
            RecordsError::Database(cabinet::Error::ValueTooLong { .. }) => FsError::TooLarge,
            RecordsError::Database(
                cabinet::Error::NoSpace { .. }
                | cabinet::Error::NoLogSpace { .. }
                | cabinet::Error::NoMemory { .. },
            ) => FsError::InsufficientStorage,
            // A name that is not an id cannot be a file here.
            RecordsError::Database(cabinet::Error::NoId { .. }) => FsError::Forbidden,
            RecordsError::Spool(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                FsError::InsufficientStorage
            }
            error => {
                tracing::error!("webdav: {error}");
                FsError::GeneralFailure
            }
        }
    }
}
