//! Meta command `mg`: gets a record, and may touch, make or claim it.

use super::{answer, begin, expiry_after, seconds_since, write_key, write_time};
use crate::counters::Count;
use crate::ops::expiry::{self, Marks};
use crate::ops::hits::Hit;
use crate::protocol::memcached::{failure, note};
use crate::protocol::{Context, Halt, or_absent};
use cabinet::{Change, Entry, Version};
use wire::memcached::Meta;
use wire::memcached::reply::{self, CODE_MISS, CODE_OK};

/// A record as `mg` returns it.
struct Shown<'a> {
    value: &'a [u8],
    client_flags: u32,
    number: u64,
    expires_at_ms: u64,
    marks: Marks,
    /// This client has won the right to renew the record.
    wins: bool,
    /// The record was made for this client.
    is_new: bool,
}

/// Effect of `mg` on a record.
struct Plan {
    expires_at_ms: u64,
    wins: bool,
}

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
    let may_change = meta.exptime.is_some() || meta.vivify.is_some() || meta.recache.is_some();
    let mut is_won_now = false;
    if !may_change {
        let found = context.database.read(key, |entry| {
            let marks = expiry::marks(entry.meta.expires_at_ms);
            is_won_now = marks.is_stale && !marks.is_won;
            if meta.wants_value {
                context.check_length(entry.value.len())?;
            }
            if !is_won_now {
                let shown = Shown {
                    value: entry.value,
                    client_flags: entry.meta.flags,
                    number: shared.cas_numbers.number(entry.version),
                    expires_at_ms: entry.meta.expires_at_ms,
                    marks,
                    wins: false,
                    is_new: false,
                };
                write_found(context, meta, key, &shown, hit, output);
            }
            context.check_length(output.len() - start)
        });
        let found = or_absent(context.attempt("do_mc_get", found)?, None);
        if !is_won_now {
            context.counters.count(Count::Get);
        }
        match found {
            Ok(Some(length)) => {
                length?;
                if !is_won_now {
                    note_read(context, meta, key);
                    return Ok(());
                }
            }
            Ok(None) => {
                miss(context, meta, output);
                return Ok(());
            }
            Err(error) => {
                output.truncate(start);
                failure(output, &error);
                return Ok(());
            }
        }
    }
    if is_won_now && context.refuses(crate::Command::Put, crate::Protocol::Memcached) {
        output.extend_from_slice(reply::FORBIDDEN);
        return Ok(());
    }

    let mut found: Option<Kept> = None;
    let mut is_new = false;
    let mut length = Ok(());
    let changed = context.database.modify_versioned(key, |entry| {
        let Some(entry) = entry else {
            if meta.vivify.is_none() {
                return (Change::Keep, ());
            }
            is_new = true;
            // The record is made, and then returned as if it had been present.
            let plan = plan(meta, 0, true, Marks::default());
            let marks = Marks { is_won: true, ..Marks::default() };
            let after = cabinet::Meta {
                flags: 0,
                expires_at_ms: expiry::marked(plan.expires_at_ms, marks),
            };
            found = Some(Kept {
                value: Vec::new(),
                client_flags: 0,
                version: 0,
                expires_at_ms: 0,
                marks: Marks::default(),
                wins: true,
            });
            return (Change::Put(Vec::new(), after), ());
        };
        if meta.wants_value {
            length = context.check_length(entry.value.len());
            if length.is_err() {
                return (Change::Keep, ());
            }
        }
        let marks = expiry::marks(entry.meta.expires_at_ms);
        let plan = plan(meta, entry.meta.expires_at_ms, false, marks);
        found = Some(Kept::new(&entry, marks, plan.wins));
        let marks = Marks { is_won: marks.is_won || plan.wins, ..marks };
        let expires_at_ms = expiry::marked(plan.expires_at_ms, marks);
        if expires_at_ms == entry.meta.expires_at_ms {
            return (Change::Keep, ());
        }
        (Change::Put(entry.value.to_vec(), cabinet::Meta { expires_at_ms, ..entry.meta }), ())
    });
    let changed = context.attempt_write("do_mc_gat", changed)?;
    context.counters.count(Count::Get);
    if meta.exptime.is_some() {
        context.counters.count(Count::Touch);
    }
    let version = match or_absent(changed, ((), 0)) {
        Ok(((), version)) => version,
        Err(error) => {
            failure(output, &error);
            return Ok(());
        }
    };
    length?;
    let Some(kept) = found else {
        miss(context, meta, output);
        return Ok(());
    };
    let number = if is_new { version } else { shared.cas_numbers.number(kept.version) };
    let number = meta.assign.filter(|_| is_new).unwrap_or(number);
    if version != 0 {
        shared.cas_numbers.set(version, number);
    }
    let shown = Shown {
        value: &kept.value,
        client_flags: kept.client_flags,
        number,
        expires_at_ms: kept.expires_at_ms,
        marks: kept.marks,
        wins: kept.wins,
        is_new,
    };
    let hit = if is_new {
        context.miss("do_mc_get", Count::GetMiss);
        note(context, key, false);
        shared.hits.find(key)
    } else {
        hit
    };
    write_found(context, meta, key, &shown, hit, output);
    context.check_length(output.len() - start)?;
    note_read(context, meta, key);
    Ok(())
}

/// Copy of the record, which outlives the lock of the record.
struct Kept {
    value: Vec<u8>,
    client_flags: u32,
    version: Version,
    expires_at_ms: u64,
    marks: Marks,
    wins: bool,
}

impl Kept {
    fn new(entry: &Entry<'_>, marks: Marks, wins: bool) -> Self {
        Self {
            value: entry.value.to_vec(),
            client_flags: entry.meta.flags,
            version: entry.version,
            expires_at_ms: entry.meta.expires_at_ms,
            marks,
            wins,
        }
    }
}

fn plan(meta: &Meta<'_>, expires_at_ms: u64, is_new: bool, marks: Marks) -> Plan {
    let mut plan = Plan { expires_at_ms, wins: is_new || marks.is_stale && !marks.is_won };
    for (flag, _) in meta.flags {
        plan.expires_at_ms = expiry_after(flag, meta, is_new, plan.expires_at_ms);
        if flag == b'R'
            && let Some(least) = meta.recache
        {
            let left = expiry::seconds_left(plan.expires_at_ms);
            let is_short = left.is_some_and(|left| i128::from(left) < i128::from(least));
            plan.wins |= is_short && !marks.is_won;
        }
    }
    plan
}

fn write_found(
    context: &Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    shown: &Shown<'_>,
    hit: Option<Hit>,
    output: &mut Vec<u8>,
) {
    // A client that sends the CAS number already has this value.
    let shows_value = meta.wants_value && meta.compare != Some(shown.number);
    begin(output, CODE_OK, shows_value.then_some(shown.value.len()));
    let mut expires_at_ms = shown.expires_at_ms;
    for (flag, token) in meta.flags {
        expires_at_ms = expiry_after(flag, meta, shown.is_new, expires_at_ms);
        match flag {
            b'O' => reply::meta_flag(output, flag, token),
            b'k' => write_key(output, key, shown.marks.is_base64),
            b'c' => reply::meta_number(output, flag, shown.number),
            b'f' => reply::meta_number(output, flag, shown.client_flags.into()),
            b's' => reply::meta_number(output, flag, shown.value.len() as u64),
            b'h' => {
                let is_read = hit.is_some_and(|hit| hit.is_read);
                reply::meta_number(output, flag, is_read.into());
            }
            b'l' => reply::meta_number(output, flag, seconds_since(context, hit)),
            b't' => write_time(output, flag, expires_at_ms),
            _ => {}
        }
    }
    if shown.marks.is_won {
        output.extend_from_slice(b" Z");
    }
    if shown.marks.is_stale {
        output.extend_from_slice(b" X");
    }
    if shown.wins {
        output.extend_from_slice(b" W");
    }
    output.extend_from_slice(b"\r\n");
    if shows_value {
        output.extend_from_slice(shown.value);
        output.extend_from_slice(b"\r\n");
    }
}

fn note_read(context: &Context<'_>, meta: &Meta<'_>, key: &[u8]) {
    if !meta.leaves_no_trace {
        note(context, key, true);
    }
}

fn miss(context: &mut Context<'_>, meta: &Meta<'_>, output: &mut Vec<u8>) {
    context.miss("do_mc_get", Count::GetMiss);
    if !meta.is_quiet {
        answer(output, CODE_MISS, meta, None);
    }
}
