//! POSIX extended regular expressions on bytes, over the `regex` crate.
//!
//! The crate's syntax is Perl's, so a pattern is translated: bracket expressions (in which a
//! backslash is an ordinary character and `]` may come first), `a+?` (which repeats a repetition),
//! and escapes. The C library's additions to POSIX are supported (`\w \W \s \S \b \B \< \>`),
//! except back-references, which cannot be matched in linear time. A dot is any one byte: keys need
//! not be text.

use crate::{Error, Result};
#[cfg(feature = "internals")]
pub use regex::bytes::Captures;
use regex::bytes::{Regex, RegexBuilder};
use std::fmt::Write;

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Maximum memory of a compiled pattern, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Memory of a compiled pattern times the length of a text, in bytes each, up to which
/// [`compile_for`] accepts both. The worst patterns take about 0.1 ns for each of these.
pub const WORK_MAX: u64 = 1 << 33;

/// Memory that a compiled pattern may always take, in bytes. Most patterns take less.
const COMPILED_BYTES_MIN: usize = 1 << 10;

/// Maximum number of repetitions in an interval such as `{3,7}`, as in the C library.
const REPETITIONS_MAX: u32 = 32767;

/// Characters that are literal only after a backslash.
const SPECIAL: &[u8] = br"\.+*?()|[]{}^$";

/// Names of classes in bracket expressions.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// Compiles a pattern of Tokyo Cabinet: extended syntax; a leading `*` ignores case.
pub fn compile(pattern: &[u8]) -> Result<Regex> {
    build(pattern, "(?:", COMPILED_BYTES_MAX)
}

/// Compiles a pattern like [`compile`], for a text of `text_bytes` bytes, so that no match takes
/// too long: the time can rise with the product of both lengths. The longer the text is, the less
/// memory the pattern may take: [`WORK_MAX`].
pub fn compile_for(pattern: &[u8], text_bytes: usize) -> Result<Regex> {
    build(pattern, "(?:", compiled_bytes_max(text_bytes))
}

/// Compiles a pattern like [`compile_for`], for matches whose groups are read.
pub fn compile_capturing_for(pattern: &[u8], text_bytes: usize) -> Result<Regex> {
    build(pattern, "(", compiled_bytes_max(text_bytes))
}

fn compiled_bytes_max(text_bytes: usize) -> usize {
    let bytes = WORK_MAX / text_bytes.max(1) as u64;
    usize::try_from(bytes).unwrap_or(usize::MAX).clamp(COMPILED_BYTES_MIN, COMPILED_BYTES_MAX)
}

/// Compiles a pattern that takes at most `bytes_max`, with this text at the beginning of each
/// group.
fn build(pattern: &[u8], group: &'static str, bytes_max: usize) -> Result<Regex> {
    let (pattern, ignore_case) = match pattern.strip_prefix(b"*") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(bad(format!("it is longer than {PATTERN_BYTES_MAX} bytes")));
    }
    RegexBuilder::new(&Translator::new(pattern, group).translate()?)
        .case_insensitive(ignore_case)
        .dot_matches_new_line(true)
        .unicode(false)
        .size_limit(bytes_max)
        .build()
        .map_err(|error| bad(error.to_string()))
}

fn bad(why: impl Into<String>) -> Error {
    Error::BadPattern(why.into())
}

/// Element before the next operator, which a repetition would repeat.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// Nothing that could be repeated.
    Nothing,
    /// Something that begins at this byte of the output.
    Atom(usize),
    /// The same, followed by a repetition.
    Repeated(usize),
}

struct Translator<'a> {
    rest: &'a [u8],
    output: String,
    before: Before,
    /// Offsets in the output, in bytes, at which the groups begin that are still open.
    groups: Vec<usize>,
    /// Text at the beginning of a group.
    group: &'static str,
}

impl<'a> Translator<'a> {
    fn new(pattern: &'a [u8], group: &'static str) -> Self {
        let (output, groups) = (String::new(), Vec::new());
        Self { rest: pattern, output, before: Before::Nothing, groups, group }
    }

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn translate(mut self) -> Result<String> {
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => self.escape()?,
                b'[' => self.bracket()?,
                b'*' | b'+' | b'?' => self.repeat(&char::from(byte).to_string())?,
                b'{' => self.interval()?,
                b'(' => {
                    self.groups.push(self.output.len());
                    self.output.push_str(self.group);
                    self.before = Before::Nothing;
                }
                b')' => match self.groups.pop() {
                    Some(start) => {
                        self.output.push(')');
                        self.before = Before::Atom(start);
                    }
                    // If no group is open, the parenthesis is literal.
                    None => self.literal(byte),
                },
                b'|' | b'^' => {
                    self.output.push(char::from(byte));
                    self.before = Before::Nothing;
                }
                b'.' | b'$' => self.atom(&char::from(byte).to_string()),
                byte => self.literal(byte),
            }
        }
        if self.groups.is_empty() { Ok(self.output) } else { Err(bad("a ( is not closed")) }
    }

    fn atom(&mut self, translated: &str) {
        self.before = Before::Atom(self.output.len());
        self.output.push_str(translated);
    }

    fn literal(&mut self, byte: u8) {
        self.before = Before::Atom(self.output.len());
        push_byte(&mut self.output, byte);
    }

    fn escape(&mut self) -> Result<()> {
        match self.next() {
            None => return Err(bad("it ends in a backslash")),
            Some(byte @ (b'w' | b'W' | b's' | b'S' | b'b' | b'B')) => {
                self.atom(&format!("\\{}", char::from(byte)));
            }
            Some(b'<') => self.atom(r"\b{start}"),
            Some(b'>') => self.atom(r"\b{end}"),
            Some(b'`') => self.atom(r"\A"),
            Some(b'\'') => self.atom(r"\z"),
            Some(b'1'..=b'9') => return Err(bad("back-references are not supported")),
            Some(byte) => self.literal(byte),
        }
        Ok(())
    }

    fn repeat(&mut self, operator: &str) -> Result<()> {
        let start = match self.before {
            Before::Nothing => return Err(bad(format!("nothing to repeat before {operator}"))),
            Before::Atom(start) => start,
            Before::Repeated(start) => {
                // A second operator after the first means something else to the crate.
                self.output.insert_str(start, "(?:");
                self.output.push(')');
                start
            }
        };
        self.output.push_str(operator);
        self.before = Before::Repeated(start);
        Ok(())
    }

    /// Parses the rest of `{n}`, `{n,}`, `{,m}` or `{n,m}`.
    fn interval(&mut self) -> Result<()> {
        let wrong = || bad("a { is not followed by one or two numbers and a }");
        let end = self.rest.iter().position(|&byte| byte == b'}').ok_or_else(wrong)?;
        let (inside, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        let inside = std::str::from_utf8(inside).map_err(|_| wrong())?;
        let number = |text: &str| match text.parse::<u32>() {
            Ok(number) if text.starts_with(|first: char| first.is_ascii_digit()) => Ok(number),
            _ => Err(wrong()),
        };
        let (least, most) = match inside.split_once(',') {
            None => (number(inside)?, Some(number(inside)?)),
            Some(("", most)) => (0, Some(number(most)?)),
            Some((least, "")) => (number(least)?, None),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        if most.is_some_and(|most| most < least) {
            return Err(bad(format!("{{{inside}}} asks for at most less than at least")));
        }
        if least.max(most.unwrap_or(0)) > REPETITIONS_MAX {
            return Err(bad(format!("more than {REPETITIONS_MAX} repetitions")));
        }
        let most = most.map(|most| most.to_string()).unwrap_or_default();
        self.repeat(&format!("{{{least},{most}}}"))
    }

    /// Parses the rest of a bracket expression. It becomes a class in which every literal byte is
    /// escaped, because the crate gives a meaning to more of them.
    fn bracket(&mut self) -> Result<()> {
        let open = || bad("a [ is not closed");
        let mut class = String::from("[");
        if self.rest.first() == Some(&b'^') {
            self.next();
            class.push('^');
        }
        let mut first = true;
        loop {
            match self.next().ok_or_else(open)? {
                b']' if !first => break,
                b'[' if self.rest.first() == Some(&b':') => {
                    let name = self.named(b':')?;
                    let name = CLASSES.iter().find(|class| class.as_bytes() == name);
                    let name = name.ok_or_else(|| bad("an unknown class in []"))?;
                    let _ = write!(class, "[:{name}:]");
                }
                byte => {
                    let from = self.element(byte)?;
                    let to = match self.rest {
                        [b'-', b']', ..] => from,
                        [b'-', next, rest @ ..] => {
                            self.rest = rest;
                            self.element(*next)?
                        }
                        _ => from,
                    };
                    if to < from {
                        return Err(bad("a range in [] ends before it begins"));
                    }
                    push_byte(&mut class, from);
                    if to > from {
                        class.push('-');
                        push_byte(&mut class, to);
                    }
                }
            }
            first = false;
        }
        class.push(']');
        self.atom(&class);
        Ok(())
    }

    /// Parses one member of a bracket expression that begins with `byte`: itself, or `[.x.]`, or
    /// `[=x=]`.
    fn element(&mut self, byte: u8) -> Result<u8> {
        match self.rest.first() {
            Some(&mark @ (b'.' | b'=')) if byte == b'[' => match self.named(mark)? {
                &[single] => Ok(single),
                _ => Err(bad("only single bytes collate")),
            },
            _ => Ok(byte),
        }
    }

    /// Parses the name in `[:name:]`, after its opening bracket.
    fn named(&mut self, mark: u8) -> Result<&'a [u8]> {
        let rest = &self.rest[1..];
        let end = rest.windows(2).position(|pair| pair == [mark, b']']);
        let end = end.ok_or_else(|| bad("a [ is not closed"))?;
        self.rest = &rest[end + 2..];
        Ok(&rest[..end])
    }
}

/// Appends a byte as a literal.
fn push_byte(output: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() {
        output.push(char::from(byte));
    } else if SPECIAL.contains(&byte) {
        output.push('\\');
        output.push(char::from(byte));
    } else {
        let _ = write!(output, "\\x{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern.as_bytes()).unwrap().is_match(text.as_bytes())
    }

    fn is_refused(pattern: &str) -> bool {
        matches!(compile(pattern.as_bytes()), Err(Error::BadPattern(_)))
    }

    #[test]
    fn a_long_text_takes_a_short_pattern() {
        let pattern = b"[ab]*a[ab]{300}c";
        assert!(compile_for(pattern, 100_000).is_ok());
        assert!(matches!(compile_for(pattern, 1_000_000), Err(Error::BadPattern(_))));
        assert!(compile_capturing_for(pattern, 100_000).is_ok());
        assert!(compile_capturing_for(pattern, 1_000_000).is_err());
        for pattern in ["key", "[a-z]+@[a-z.]+[.]com", "*^(a|b)*$"] {
            assert!(compile_for(pattern.as_bytes(), usize::MAX).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn patterns_match_as_the_c_library_has_them_match() {
        // Pattern, what it matches, what it does not.
        let table: &[(&str, &[&str], &[&str])] = &[
            ("", &["", "a"], &[]),
            ("a|b", &["a", "xb"], &["c"]),
            ("^a.c$", &["abc", "a\nc"], &["abcd", "ac"]),
            ("a||b", &["x"], &[]),
            ("()", &[""], &[]),
            ("a)", &["a)"], &["a"]),
            ("a+?$", &["", "b", "a"], &[]),
            ("^a**$", &["", "aa"], &["b"]),
            ("^a{2}{3}$", &["aaaaaa"], &["aa", "aaa", "aaaa"]),
            ("^a{,2}$", &["", "aa"], &["aaa"]),
            ("^a{2,}$", &["aa", "aaa"], &["a"]),
            ("^(ab){1,2}$", &["ab", "abab"], &["", "ababab"]),
            ("^[]abc]$", &["]", "a", "c"], &["d", "["]),
            ("^[^]abc]$", &["d", "["], &["]", "a"]),
            (r"^[a\]$", &["a", "\\"], &["]", "b"]),
            ("^[a-]$", &["a", "-"], &["b"]),
            ("^[%--]$", &["%", "*", "-"], &["."]),
            ("^[a&&b]$", &["a", "&", "b"], &["c"]),
            ("^[[a]$", &["[", "a"], &["]"]),
            ("^[[:alpha:][:digit:]_]$", &["a", "7", "_"], &["-", ":"]),
            ("^[[.a.][=b=]]$", &["a", "b"], &["."]),
            ("^[[.a.]-c]$", &["a", "b", "c"], &["d"]),
            ("^[^a-c]$", &["d"], &["b", "dd"]),
            (r"^\.\*\n\{$", &[".*n{"], &["a*n{"]),
            (r"\<b\w\>", &["a bc d"], &["abc d", "a bcd"]),
            ("^*A", &[], &[]),
        ];
        for (pattern, yes, no) in table {
            if yes.is_empty() && no.is_empty() {
                assert!(is_refused(pattern), "{pattern} should be refused");
                continue;
            }
            for text in *yes {
                assert!(matches(pattern, text), "{pattern} should match {text:?}");
            }
            for text in *no {
                assert!(!matches(pattern, text), "{pattern} should not match {text:?}");
            }
        }
    }

    #[test]
    fn a_leading_asterisk_ignores_case() {
        assert!(matches("*^abc$", "aBC"));
        assert!(matches("*^[a-c]+$", "aBC"));
        assert!(!matches("^abc$", "aBC"));
    }

    #[test]
    fn groups_are_captured_only_if_they_are_read() {
        let captured = |regex: Regex| regex.captures(b"abb").unwrap().len();
        assert_eq!(captured(compile(b"(a)(b)+?").unwrap()), 1);
        assert_eq!(captured(compile_capturing_for(b"(a)(b)+?", 0).unwrap()), 3);
    }

    #[test]
    fn keys_and_patterns_may_hold_any_byte() {
        let pattern = compile(b"^a.\xff[\x80-\x90\n]$").unwrap();
        assert!(pattern.is_match(b"a\xfe\xff\x85"));
        assert!(pattern.is_match(b"a\0\xff\n"));
        assert!(!pattern.is_match(b"a\xfe\xfe\x85"));
        assert!(compile("^[é]$".as_bytes()).unwrap().is_match(b"\xc3"));
    }

    #[test]
    fn what_does_not_parse_is_refused() {
        for pattern in [
            "a|*b",
            "(*a)",
            "(?a)",
            "(?i)a",
            "^*a",
            "**",
            "a{x",
            "a{1",
            "{1}",
            "a{}",
            "a{+1}",
            "a{3,1}",
            "a{1,2,3}",
            "[",
            "[a",
            "[]",
            "[^]",
            "[[:foo:]]",
            "[[:alpha",
            "[[.ab.]]",
            "[b-a]",
            "a\\",
            "(a",
            r"(a)\1",
        ] {
            assert!(is_refused(pattern), "{pattern} should be refused");
        }
    }

    #[test]
    fn limits_hold() {
        assert!(compile(&b"a".repeat(PATTERN_BYTES_MAX - 1)).is_ok());
        assert!(compile(&b"a".repeat(PATTERN_BYTES_MAX)).is_ok());
        assert!(is_refused(&"a".repeat(PATTERN_BYTES_MAX + 1)));
        assert!(compile(format!("(){{{}}}", REPETITIONS_MAX - 1).as_bytes()).is_ok());
        assert!(compile(format!("(){{{REPETITIONS_MAX}}}").as_bytes()).is_ok());
        assert!(is_refused(&format!("(){{{}}}", REPETITIONS_MAX + 1)));
        assert!(is_refused("((((a{99}){99}){99}){99}){99}"), "compiled, it is too big");
        assert!(is_refused(&"(".repeat(PATTERN_BYTES_MAX)));
        assert!(is_refused(&format!("{}{}", "(".repeat(8000), ")".repeat(8000))), "too deep");
    }
}
