//! Conversations in Redis's protocol, in which a bar stands for a line end.

use super::{Client, redis};

/// Sends requests, and asserts their replies, without the last line end.
pub(crate) fn talk(client: &mut Client, pairs: &[(&str, &str)]) {
    for (line, reply) in pairs {
        client.send(&redis(line));
        hear_after(client, reply, line);
    }
}

/// Asserts what the server sends, without the last line end.
pub(crate) fn hear(client: &mut Client, text: &str) {
    hear_after(client, text, "");
}

fn hear_after(client: &mut Client, text: &str, line: &str) {
    let mut expected = text.replace('|', "\r\n");
    expected.push_str("\r\n");
    let received = client.read(expected.len());
    assert_eq!(String::from_utf8_lossy(&received), expected, "{line}");
}

/// Chooses version 3 of the protocol.
pub(crate) fn choose_version_three(client: &mut Client) {
    client.send(&redis("HELLO 3"));
    // The last field of the greeting is an empty list of modules.
    while !client.read_until(b"\r\n").starts_with(b"*0") {}
}
