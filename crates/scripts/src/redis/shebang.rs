//! Shebang: the first line of a script that begins with `#!`, with its flags.

use server::ScriptFlags;

/// Returns the flags of a script, and the length of its shebang without the end of the line. Fails
/// with Redis's text.
pub(super) fn read(source: &[u8]) -> Result<(ScriptFlags, usize), String> {
    if !source.starts_with(b"#!") {
        return Ok((ScriptFlags::default(), 0));
    }
    let end = source.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or("ERR Invalid script shebang")?;
    let parts = parts(&source[..end]).ok_or("ERR Invalid engine in script shebang")?;
    let mut parts = parts.iter().map(String::as_str);
    match parts.next() {
        Some("#!lua") => {}
        engine => {
            let engine = engine.unwrap_or_default();
            return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
        }
    }
    let mut flags = ScriptFlags { are_declared: true, ..ScriptFlags::default() };
    for part in parts {
        let Some(names) = part.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {part}"));
        };
        for name in names.split(',').filter(|_| !names.is_empty()) {
            match name {
                "no-writes" => flags.no_writes = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                name => {
                    return Err(format!("ERR Unexpected flag in script shebang: {name}"));
                }
            }
        }
    }
    Ok((flags, end))
}

/// Returns the words of a line, or `None` if its quotes are not closed.
fn parts(line: &[u8]) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let is_closed = wire::redis::unquote(line, &mut words);
    let wire::Parse::Complete(words, _) = wire::redis::parse(&words) else { return None };
    let words = std::iter::once(words.name).chain(words.arguments.iter());
    is_closed.then(|| words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_first_line() {
        let (flags, length) = read(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert!(flags.are_declared && flags.no_writes);
        assert_eq!(length, 31);
        let (flags, length) = read(b"#!lua\nreturn 1").unwrap();
        assert!(flags.are_declared && !flags.no_writes);
        assert_eq!(length, 5);
        assert_eq!(read(b"return '#!lua'").unwrap(), (ScriptFlags::default(), 0));
        for (source, error) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!python\n", "ERR Unexpected engine in script shebang: #!python"),
            ("#!lua name=a\n", "ERR Unknown lua shebang option: name=a"),
            ("#!lua flags=a\n", "ERR Unexpected flag in script shebang: a"),
            (
                "#!luaerror({err = 'a ' b\n",
                "ERR Unexpected engine in script shebang: #!luaerror({err",
            ),
            ("#!luaerror({err = 'a\n", "ERR Invalid engine in script shebang"),
        ] {
            assert_eq!(read(source.as_bytes()).unwrap_err(), error);
        }
    }
}
