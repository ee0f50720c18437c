//! Script calls: requests that call a function of the extension, and their replies.
//!
//! The event loop decodes such a request, and a script thread calls the function and encodes the
//! reply.

use crate::ops::acknowledgement::RefusalReason;
use crate::ops::rights::Rights;
use crate::protocol::Next;
use crate::protocol::refusal::Refusal;
use std::sync::Arc;
use wire::binary::{Kind, MAGIC, MISC_HEAD, reply as binary};
use wire::http::{Head, Status, form, reply as http};
use wire::{Protocol, RequestKind};

/// Lock that a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptLock {
    None,
    /// No other locked call on the same key runs meanwhile.
    Record,
    /// No other locked call runs meanwhile.
    All,
}

impl ScriptLock {
    /// Returns the lock for the options of Tokyo Tyrant's `ext`.
    pub(super) fn of_options(options: u32) -> Self {
        match options {
            options if options & 2 != 0 => Self::All,
            options if options & 1 != 0 => Self::Record,
            _ => Self::None,
        }
    }
}

/// Purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptTask {
    /// Call a function.
    Function,
    /// Load the functions again.
    Reload,
}

/// A request that calls a function.
#[derive(Debug)]
pub(crate) struct ScriptCall {
    pub(crate) task: ScriptTask,
    pub(crate) lock: ScriptLock,
    /// Rights of the client, unless it has all.
    pub(crate) rights: Option<Arc<Rights>>,
    /// The request has logged in, which counts once the call has a place in the queue.
    pub(crate) has_logged_in: bool,
    /// Name, key and value, without anything between them.
    text: Vec<u8>,
    name_bytes: usize,
    key_bytes: usize,
    form: Form,
}

/// Form of the reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// Reply to `ext` of the binary protocol.
    Binary,
    /// Reply to `misc` of the binary protocol.
    BinaryMisc,
    Http {
        keep_alive: bool,
        /// Whether the reply announces that the connection stays open.
        announces: bool,
        /// Whether the request is one of `misc`.
        is_misc: bool,
    },
}

impl Form {
    pub(super) fn of_http(head: &Head<'_>, is_misc: bool) -> Self {
        let announces = head.minor_version == 0 && head.keep_alive;
        Self::Http { keep_alive: head.keep_alive, announces, is_misc }
    }
}

/// Returns the elements of the reply to `misc`: none for an empty result.
fn elements_of(result: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(result).filter(|result| !result.is_empty())
}

impl ScriptCall {
    pub(super) fn new(
        (name, key, value): (&[u8], &[u8], &[u8]),
        lock: ScriptLock,
        form: Form,
    ) -> Self {
        let text = [name, key, value].concat();
        let task = ScriptTask::Function;
        let (rights, has_logged_in) = (None, false);
        let (name_bytes, key_bytes) = (name.len(), key.len());
        Self { task, lock, rights, has_logged_in, text, name_bytes, key_bytes, form }
    }

    /// Returns the request to load the functions again, whose result is what was read before them.
    pub(super) fn reload(read: &[u8], form: Form) -> Self {
        let call = Self::new((b"", b"", read), ScriptLock::None, form);
        Self { task: ScriptTask::Reload, ..call }
    }

    /// Sets the form of the reply.
    pub(super) fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// Returns the kind of the request.
    pub(crate) fn kind(&self) -> RequestKind {
        match self.form {
            Form::Binary => Kind::Ext.into(),
            Form::BinaryMisc => Kind::Misc.into(),
            Form::Http { .. } => wire::http::Kind::Post.into(),
        }
    }

    /// Returns the memory that the call takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.text[..self.name_bytes]
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.text[self.name_bytes..self.name_bytes + self.key_bytes]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.text[self.name_bytes + self.key_bytes..]
    }

    /// Appends the reply with the result of the function. Returns the disposition of the
    /// connection.
    pub(crate) fn succeed(&self, result: &[u8], output: &mut Vec<u8>) -> Next {
        match self.form {
            Form::Binary => binary::value(output, result),
            Form::BinaryMisc => {
                let mut list = binary::List::begin(output);
                elements_of(result).for_each(|element| list.string(output, element));
                list.finish(output);
            }
            Form::Http { is_misc: true, .. } => {
                let mut body = Vec::new();
                form::results(&mut body, elements_of(result));
                http::response(output, Status::Ok, form::CONTENT_TYPE, &body);
            }
            Form::Http { .. } => {
                http::response(output, Status::Ok, "application/octet-stream", result);
            }
        }
        self.end(output)
    }

    /// Appends the reply to a call that has failed.
    pub(crate) fn fail(&self, reason: Option<&str>, output: &mut Vec<u8>) -> Next {
        match (self.form, reason) {
            (Form::Binary, _) => binary::status(output, false),
            (Form::BinaryMisc, _) => binary::misc_failure(output),
            (Form::Http { .. }, None) => http::message(output, Status::InternalServerError),
            (Form::Http { .. }, Some(reason)) => {
                http::plain_text(output, Status::InternalServerError, reason);
            }
        }
        self.end(output)
    }

    /// Appends the reply to a call whose changes are not in the update log.
    pub(crate) fn refuse(&self, reason: RefusalReason, output: &mut Vec<u8>) -> Next {
        self.refusal().write(reason, output);
        Next::Refuse
    }

    /// Returns the refusal of the call.
    pub(crate) fn refusal(&self) -> Refusal {
        match self.form {
            Form::Binary => Refusal::of(&[MAGIC]),
            Form::BinaryMisc => Refusal::of(&MISC_HEAD),
            Form::Http { .. } => Refusal::of_protocol(Protocol::Http, b""),
        }
    }

    fn end(&self, output: &mut Vec<u8>) -> Next {
        match self.form {
            Form::Http { keep_alive, announces, .. } => {
                if announces {
                    super::http::announce_open(output, 0);
                }
                if keep_alive { Next::GoOn } else { Next::Close }
            }
            Form::Binary | Form::BinaryMisc => Next::GoOn,
        }
    }
}
