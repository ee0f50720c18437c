//! Meta command `mg`: gets a record, and may touch, make or claim it.

use super::{answer, begin, expiry_after, seconds_since, write_key, write_time};
use crate::counters::Count;
use crate::ops::execute::{Outcome, Reply};
use crate::ops::expiry;
use crate::ops::hits::Hit;
use crate::ops::operation::Operation;
use crate::ops::touch::{Claim, Touch, Touched};
use crate::protocol::memcached::{failure, note};
use crate::protocol::{Context, Halt, or_absent};
use crate::shared::Shared;
use crate::{Command, Protocol};
use cabinet::RecordRef;
use wire::memcached::Meta;
use wire::memcached::reply::{self, CODE_MISS, CODE_OK};

/// Executes `mg`.
pub(super) fn get(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let start = output.len();
    let shared = context.shared;
    // Few clients request it.
    let wants_hit = { meta.flags }.any(|(flag, _)| matches!(flag, b'h' | b'l'));
    let hit = if wants_hit { shared.hits.find(key) } else { None };
    let touch = touch(context, key, meta);
    let mut shown = Shown { shared, meta, key, hit, is_new: false, start, output: &mut *output };
    let done = context.execute(&Operation::Touch { key, touch }, &mut shown);
    let done = done.inspect_err(|halt| halt.count(context.counters, Count::Get))?;
    let is_new = shown.is_new;
    context.counters.count(Count::Get);
    if meta.exptime.is_some() {
        context.counters.count(Count::Touch);
    }
    match or_absent(done, Outcome::NoRecord) {
        Ok(Outcome::Done) => {
            if !meta.leaves_no_trace {
                note(shared, key, true);
            }
        }
        Ok(Outcome::Unmet) => output.extend_from_slice(reply::FORBIDDEN),
        Ok(_) => {
            context.counters.count(Count::GetMiss);
            if !meta.is_quiet {
                answer(output, CODE_MISS, meta, None);
            }
        }
        Err(error) => {
            output.truncate(start);
            failure(output, &error);
        }
    }
    if is_new {
        context.counters.count(Count::GetMiss);
    }
    Ok(())
}

/// Returns the effect of the flags, which they have in their order.
fn touch(context: &Context<'_>, key: &[u8], meta: &Meta<'_>) -> Touch {
    let mut create = None;
    let mut expires_at_ms = None;
    let is_allowed = !context.refuses(Command::Put, Protocol::Memcached) && context.may_write(key);
    let mut claim = Claim::Stale { is_allowed };
    let shows_value = meta.wants_value;
    if meta.exptime.or(meta.vivify).or(meta.recache).is_none() {
        return Touch { claim, shows_value, ..Touch::default() };
    }
    for (flag, _) in meta.flags {
        match (flag, meta.recache) {
            (b'T', _) => expires_at_ms = meta.exptime.map(expiry::expires_at_ms),
            (b'R', Some(seconds)) => {
                claim = Claim::Short { seconds, is_new_expiry: expires_at_ms.is_some() };
            }
            _ => {}
        }
        if meta.vivify.is_some() {
            create = Some(expiry_after(flag, meta, true, create.unwrap_or(0)));
        }
    }
    Touch { expires_at_ms, create, assign: meta.assign, claim, shows_value }
}

/// Encoder of the record that `mg` returns.
struct Shown<'r> {
    shared: &'r Shared,
    meta: &'r Meta<'r>,
    key: &'r [u8],
    hit: Option<Hit>,
    /// The record was made for this client.
    is_new: bool,
    start: usize,
    output: &'r mut Vec<u8>,
}

impl Reply for Shown<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.output.len() - self.start
    }

    #[inline]
    fn touched(&mut self, record: &RecordRef<'_>, touched: Touched) {
        let Self { shared, meta, key, .. } = *self;
        if touched.is_new {
            self.is_new = true;
            note(shared, key, false);
            self.hit = shared.hits.find(key);
        }
        let output = &mut *self.output;
        let number = shared.cas_numbers.number(record.version);
        let marks = expiry::marks(record.meta.expires_at_ms);
        // A client that sends the CAS number already has this value.
        let shows_value = meta.wants_value && meta.compare != Some(number);
        begin(output, CODE_OK, shows_value.then_some(record.value.len()));
        let mut expires_at_ms = record.meta.expires_at_ms;
        for (flag, token) in meta.flags {
            expires_at_ms = expiry_after(flag, meta, touched.is_new, expires_at_ms);
            match flag {
                b'O' => reply::meta_flag(output, flag, token),
                b'k' => write_key(output, key, marks.is_base64),
                b'c' => reply::meta_number(output, flag, number),
                b'f' => reply::meta_number(output, flag, record.meta.flags.into()),
                b's' => reply::meta_number(output, flag, record.value.len() as u64),
                b'h' => {
                    let is_read = self.hit.is_some_and(|hit| hit.is_read);
                    reply::meta_number(output, flag, is_read.into());
                }
                b'l' => reply::meta_number(output, flag, seconds_since(shared, self.hit)),
                b't' => write_time(output, flag, expires_at_ms),
                _ => {}
            }
        }
        if marks.is_won {
            output.extend_from_slice(b" Z");
        }
        if marks.is_stale {
            output.extend_from_slice(b" X");
        }
        if touched.wins {
            output.extend_from_slice(b" W");
        }
        output.extend_from_slice(b"\r\n");
        if shows_value {
            output.extend_from_slice(record.value);
            output.extend_from_slice(b"\r\n");
        }
    }
}
