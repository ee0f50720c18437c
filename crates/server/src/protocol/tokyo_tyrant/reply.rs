//! Encoder of the binary protocol's replies with records or keys.

use crate::ops::execute::{Number, Reply};
use cabinet::RecordRef;
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
    fn record(&mut self, key: &[u8], record: &RecordRef<'_>) {
        if let Form::Records(list) = &mut self.form {
            list.pair(self.output, key, record.value);
        } else {
            self.element(key);
            self.element(record.value);
        }
    }

    #[inline]
    fn number(&mut self, number: Number) {
        match number {
            Number::Sum(sum) => reply::integer(self.output, sum),
            Number::DoubleSum(sum) => reply::double(self.output, sum),
            Number::Flags(flags) => reply::count(self.output, flags.into()),
            Number::Count(records) => reply::count(self.output, records),
            Number::Size(bytes) => {
                reply::size(self.output, u32::try_from(bytes).unwrap_or(u32::MAX));
            }
        }
    }
}
