//! Sub-commands on records: `put`, `out`, `get`, `mget`, `list`.

use super::arguments::Invocation;
use super::manage::connect;
use super::text::{Text, number};
use crate::listing;
use anyhow::{Result, ensure};
use client::Error;
use std::io::Write;

pub(super) fn put(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, operands) = connect(invocation)?;
    let key = text.read(&operands[0])?;
    let value = || text.read(&operands[1]);
    if invocation.has("-dk") {
        ensure!(client.put_keep(&key, &value()?)?, Error::ExistingRecord);
    } else if invocation.has("-dc") {
        client.put_cat(&key, &value()?)?;
    } else if invocation.has("-dai") {
        writeln!(output, "{}", client.add_int(&key, number(&operands[1])?)?)?;
    } else if invocation.has("-dad") {
        writeln!(output, "{:.6}", client.add_double(&key, number(&operands[1])?)?)?;
    } else if let Some(width) = invocation.value("-ds") {
        client.put_shift(&key, &value()?, number(width.as_encoded_bytes())?)?;
    } else {
        client.put(&key, &value()?)?;
    }
    Ok(())
}

pub(super) fn out(invocation: &Invocation, _output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, operands) = connect(invocation)?;
    ensure!(client.out(&text.read(&operands[0])?)?, Error::NoRecordFound);
    Ok(())
}

pub(super) fn get(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, operands) = connect(invocation)?;
    let value = client.get(&text.read(&operands[0])?)?.ok_or(Error::NoRecordFound)?;
    text.write(&value, output)?;
    if !invocation.has("-pz") {
        writeln!(output)?;
    }
    Ok(())
}

pub(super) fn get_many(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, operands) = connect(invocation)?;
    let keys: Vec<_> = operands.iter().map(|key| text.read(key)).collect::<Result<_>>()?;
    for (key, value) in client.get_many(&keys)? {
        text.write(&key, output)?;
        output.write_all(b"\t")?;
        text.write(&value, output)?;
        writeln!(output)?;
    }
    Ok(())
}

pub(super) fn list(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, _) = connect(invocation)?;
    // A negative number is no limit, as in Tokyo Tyrant.
    let max = match invocation.value("-m") {
        Some(max) => usize::try_from(number::<i64>(max.as_encoded_bytes())?).ok(),
        None => None,
    };
    let prefix = match invocation.value("-fm") {
        Some(prefix) => Some(text.read(prefix.as_encoded_bytes())?),
        None => None,
    };
    listing::list(client, prefix.as_deref(), max, |keys| {
        if invocation.has("-pv") {
            return listing::with_values(client, keys, |key, value| {
                text.write(key, output)?;
                output.write_all(b"\t")?;
                text.write(&value.unwrap_or_default(), output)?;
                Ok(writeln!(output)?)
            });
        }
        for key in keys {
            text.write(key, output)?;
            writeln!(output)?;
        }
        Ok(())
    })
}
