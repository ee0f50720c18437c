//! Message of the SASL mechanism PLAIN.

/// Returns name and password of a message: authorization name, name and password, separated by zero
/// bytes. Returns `None` if it is malformed, or if the authorization name is another one.
pub fn plain_credentials(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.split(|byte| *byte == 0);
    let (acting_as, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && (acting_as.is_empty() || acting_as == name);
    is_whole.then_some((name, password))
}
