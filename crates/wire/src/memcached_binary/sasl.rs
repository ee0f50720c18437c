//! The message of SASL's mechanism PLAIN.

/// Name and password of a message: what to be called, name and password, with zero bytes between.
/// `None` if it is something else, or the client wants to be called other than its name.
#[must_use]
pub fn plain_credentials(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.split(|byte| *byte == 0);
    let (acting_as, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && (acting_as.is_empty() || acting_as == name);
    is_whole.then_some((name, password))
}
