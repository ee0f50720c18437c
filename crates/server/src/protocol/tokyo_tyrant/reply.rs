//! Encoder of the binary protocol's replies with records or keys.

use crate::ops::execute::Reply;
use wire::binary::reply::{self, List};

/// A reply that is appended to the output.
pub(super) struct BinaryReply<'o> {
    output: &'o mut Vec<u8>,
    start: usize,
    form: Form,
}

/// Encoding of the parts of a reply.
enum Form {
    /// One value, after the status.
    Value,
    /// A list of strings.
    Strings(List),
    /// A list of keys with their values.
    Records(List),
}

impl<'o> BinaryReply<'o> {
    /// Begins a reply of one value.
    pub(super) fn value(output: &'o mut Vec<u8>) -> Self {
        Self { start: output.len(), output, form: Form::Value }
    }

    /// Begins a reply of strings.
    pub(super) fn strings(output: &'o mut Vec<u8>) -> Self {
        Self { start: output.len(), form: Form::Strings(List::begin(output)), output }
    }

    /// Begins a reply of records.
    pub(super) fn records(output: &'o mut Vec<u8>) -> Self {
        Self { start: output.len(), form: Form::Records(List::begin(output)), output }
    }

    /// Writes the number of elements.
    pub(super) fn finish(self) {
        if let Form::Strings(list) | Form::Records(list) = self.form {
            list.finish(self.output);
        }
    }

    /// Removes the reply from the output.
    pub(super) fn cancel(self) -> &'o mut Vec<u8> {
        self.output.truncate(self.start);
        self.output
    }
}

impl Reply for BinaryReply<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.output.len() - self.start
    }

    #[inline]
    fn element(&mut self, element: &[u8]) {
        match &mut self.form {
            Form::Value => reply::value(self.output, element),
            Form::Strings(list) | Form::Records(list) => list.string(self.output, element),
        }
    }

    #[inline]
    fn record(&mut self, key: &[u8], value: &[u8]) {
        if let Form::Records(list) = &mut self.form {
            list.pair(self.output, key, value);
        } else {
            self.element(key);
            self.element(value);
        }
    }
}
