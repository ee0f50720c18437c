//! Sub-commands that call functions of the server: `ext` and `misc`.

use super::arguments::Invocation;
use super::manage::connect;
use super::text::Text;
use anyhow::Result;
use client::{LOCK_ALL, LOCK_RECORD};
use std::io::Write;

/// Bit of the options of `misc`: keep the call out of the update log.
const NO_UPDATE_LOG: u32 = 1;

pub(super) fn ext(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, operands) = connect(invocation)?;
    let options = if invocation.has("-xlg") {
        LOCK_ALL
    } else if invocation.has("-xlr") {
        LOCK_RECORD
    } else {
        0
    };
    let operand = |index: usize| operands.get(index).map_or(Ok(Vec::new()), |part| text.read(part));
    let result = client.ext(&operands[0], options, &operand(1)?, &operand(2)?)?;
    text.write(&result, output)?;
    writeln!(output)?;
    Ok(())
}

pub(super) fn misc(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, operands) = connect(invocation)?;
    let arguments: Vec<_> =
        operands[1..].iter().map(|argument| text.read(argument)).collect::<Result<_>>()?;
    let options = if invocation.has("-mnu") { NO_UPDATE_LOG } else { 0 };
    for element in client.misc(&operands[0], options, &arguments)? {
        text.write(&element, output)?;
        writeln!(output)?;
    }
    Ok(())
}
