//! Media types of values, in the flags of their records.
//!
//! ```text
//! 24..32  0xc7: the flags name a media type
//! 16..24  number: 1 to 63 from a fixed list; 64 more for the same in UTF-8;
//!         128 to 255 from a record of the database, for other types of clients
//!  0..16  zeros: clients of memcached mark their own values here, so none of them takes
//!         the value for one of its own
//! ```
//!
//! Therefore a type takes no space of its own, changes in one step with its value, and is copied
//! with the flags: into copies, update logs, replicas and exports.

use crate::store::Store;
use crate::store::reserved::MEDIA_TYPES;
use cabinet::{Change, Database, Error, Meta, Result};
use std::borrow::Cow;

/// Type of a value that was stored without one.
pub(crate) const UNKNOWN: &str = wire::http::reply::OCTET_STREAM;

/// Longest name of a media type that is kept, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 127;

/// Most media types that a database adds to the list.
pub(crate) const NAMED_MAX: usize = 128;

const MARK: u32 = 0xc700_0000;
const SHIFT: u32 = 16;
const UTF_8: u32 = 64;
const FIRST_NAMED: u32 = 128;
const UTF_8_PARAMETER: &str = "; charset=utf-8";

/// The list. Records contain the number of a type, so a type never moves in it. Numbers begin at 1.
const LIST: &[&str] = &[
    "application/octet-stream",
    "text/plain",
    "text/html",
    "text/css",
    "text/csv",
    "text/javascript",
    "text/markdown",
    "text/xml",
    "text/calendar",
    "text/vcard",
    "application/json",
    "application/xml",
    "application/javascript",
    "application/pdf",
    "application/zip",
    "application/gzip",
    "application/x-tar",
    "application/x-www-form-urlencoded",
    "application/ld+json",
    "application/x-ndjson",
    "application/rtf",
    "application/wasm",
    "application/msword",
    "application/vnd.ms-excel",
    "application/vnd.ms-powerpoint",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/vnd.oasis.opendocument.text",
    "application/vnd.oasis.opendocument.spreadsheet",
    "application/epub+zip",
    "application/x-7z-compressed",
    "application/xhtml+xml",
    "application/atom+xml",
    "application/rss+xml",
    "application/protobuf",
    "application/cbor",
    "application/msgpack",
    "application/sql",
    "application/yaml",
    "application/toml",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/svg+xml",
    "image/avif",
    "image/bmp",
    "image/tiff",
    "image/x-icon",
    "audio/mpeg",
    "audio/ogg",
    "audio/wav",
    "audio/flac",
    "audio/aac",
    "video/mp4",
    "video/webm",
    "video/mpeg",
    "video/ogg",
    "font/woff",
    "font/woff2",
    "font/ttf",
];

const _: () = assert!(LIST.len() < UTF_8 as usize);

/// Returns the flags of a value of this media type, and whether its name was added to those of the
/// database. The flags are 0 if the name is too long, or if the database has no more numbers.
pub(super) fn flags(store: &Store, name: &[u8]) -> Result<(u32, bool)> {
    if store.has_rows() {
        return Ok((0, false));
    }
    match listed_flags(name) {
        Ok(flags) => Ok((flags, false)),
        // Keys that are ids leave no record for the names.
        Err(_) if store.as_numbered().is_some() => Ok((0, false)),
        Err(name) => {
            named(store, name).map(|(number, is_new)| (number.map_or(0, of_number), is_new))
        }
    }
}

/// Returns the flags of a value of a media type in the fixed list. They are 0 if the name is
/// invalid. Fails with a name that is not in the list.
pub(crate) fn listed_flags(name: &[u8]) -> std::result::Result<u32, &str> {
    match std::str::from_utf8(name).map(str::trim) {
        Ok(name) if is_name(name) && !name.eq_ignore_ascii_case(UNKNOWN) => {
            listed(name).map(of_number).ok_or(name)
        }
        _ => Ok(0),
    }
}

fn of_number(number: u32) -> u32 {
    MARK | number << SHIFT
}

/// Returns the media type that the flags of a record name, unless its name is in the database.
pub(crate) fn known_name(flags: u32) -> Option<Cow<'static, str>> {
    let Some(number) = number(flags) else { return Some(UNKNOWN.into()) };
    if number >= FIRST_NAMED {
        return None;
    }
    let listed = (number % UTF_8).checked_sub(1).and_then(|place| LIST.get(place as usize));
    let name = listed.copied().unwrap_or(UNKNOWN);
    Some(if number > UTF_8 { [name, UTF_8_PARAMETER].concat().into() } else { name.into() })
}

/// Returns the media type that the flags of a record name.
pub(super) fn name(store: &Store, flags: u32) -> Result<Cow<'static, str>> {
    if let Some(name) = known_name(flags) {
        return Ok(name);
    }
    let place = own_place(flags).unwrap_or_default();
    let name = store.read(MEDIA_TYPES, |names| own_name(names.value, place).map(str::to_owned))?;
    Ok(name.flatten().map_or(UNKNOWN.into(), Cow::from))
}

/// Returns whether flags name a media type.
pub(crate) fn is_type(flags: u32) -> bool {
    number(flags).is_some()
}

/// Returns the number of a media type in flags, if they have that form.
fn number(flags: u32) -> Option<u32> {
    let number = flags >> SHIFT & 0xff;
    (flags == MARK | number << SHIFT && number > 0).then_some(number)
}

fn is_name(name: &str) -> bool {
    let is_printable = name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    name.contains('/') && is_printable && name.len() <= NAME_BYTES_MAX
}

fn listed(name: &str) -> Option<u32> {
    let (base, parameter) = name.split_once(';').map_or((name, None), |(base, parameter)| {
        (base.trim_end(), Some(parameter.trim().replace('"', "")))
    });
    let utf_8 = match parameter {
        None => 0,
        Some(parameter) if parameter.eq_ignore_ascii_case("charset=utf-8") => UTF_8,
        Some(_) => return None,
    };
    let place = LIST.iter().position(|listed| listed.eq_ignore_ascii_case(base))?;
    u32::try_from(place + 1).ok().map(|number| number + utf_8)
}

/// Returns the number of a name in the database's own list, and whether it was added. Adds the name
/// unless the list is full.
fn named(store: &Store, name: &str) -> Result<(Option<u32>, bool)> {
    let find = |names: &[u8]| {
        let mut lines = names.split(|byte| *byte == b'\n').take(NAMED_MAX);
        lines.position(|line| line == name.as_bytes())
    };
    let mut place = store.read(MEDIA_TYPES, |names| find(names.value))?.flatten();
    let mut is_new = false;
    if place.is_none() {
        let added = store.modify(MEDIA_TYPES, |names| {
            let mut names = names.map_or_else(Vec::new, |names| names.value.to_vec());
            if let Some(place) = find(&names) {
                return (Change::Keep, (Some(place), false));
            }
            let count = names.iter().filter(|byte| **byte == b'\n').count();
            if count >= NAMED_MAX {
                return (Change::Keep, (None, false));
            }
            names.extend_from_slice(name.as_bytes());
            names.push(b'\n');
            (Change::Put(names, Meta::NONE), (Some(count), true))
        });
        (place, is_new) = match added {
            // The list has no space, but the value itself may still have some.
            Err(Error::NoSpace { .. } | Error::NoLogSpace { .. } | Error::NoMemory { .. }) => {
                (None, false)
            }
            added => added?,
        };
    }
    let number = place.and_then(|place| u32::try_from(place).ok()).map(|place| FIRST_NAMED + place);
    Ok((number, is_new))
}

/// Media types that have a number in one database only, for exports.
#[derive(Clone, Debug)]
pub struct OwnMediaTypes {
    /// A line each.
    names: Vec<u8>,
}

impl OwnMediaTypes {
    /// Reads those of a database that is not served.
    pub fn of(database: &Database) -> Result<Self> {
        // Others have no such record.
        let has_any_keys = database.table().is_none() && database.as_numbered().is_none();
        let names = if has_any_keys { database.get(MEDIA_TYPES)? } else { None };
        Ok(Self { names: names.unwrap_or_default() })
    }

    /// Returns the media type that flags name, if it is one of these.
    pub fn name(&self, flags: u32) -> Option<&str> {
        own_name(&self.names, own_place(flags)?)
    }
}

/// Returns the flags of values of a media type, which gets a number if it has none, in a database
/// that is not served.
pub fn media_type_flags(database: &Database, name: &str) -> Result<u32> {
    flags(&Store::new(database.clone(), None, 0), name.as_bytes()).map(|(flags, _)| flags)
}

/// Returns the place of a media type among those of the database, if its flags name one of them.
fn own_place(flags: u32) -> Option<usize> {
    Some(number(flags)?.checked_sub(FIRST_NAMED)? as usize)
}

/// Returns the name at a place of the list that a database has.
fn own_name(names: &[u8], place: usize) -> Option<&str> {
    let name = names.split(|byte| *byte == b'\n').nth(place)?;
    std::str::from_utf8(name).ok().filter(|name| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::Options;

    fn store(name: &str) -> Store {
        Store::new(Options::new().open(name).expect("a database"), None, 0)
    }

    #[test]
    fn a_listed_type_takes_no_record() {
        let store = store("*");
        for (given, kept) in [
            ("text/plain", "text/plain"),
            ("Text/HTML", "text/html"),
            ("text/html;charset=UTF-8", "text/html; charset=utf-8"),
            ("text/plain; charset=\"utf-8\"", "text/plain; charset=utf-8"),
            ("font/ttf ; charset=utf-8", "font/ttf; charset=utf-8"),
        ] {
            let (flags, _) = flags(&store, given.as_bytes()).expect("flags");
            assert_eq!(flags & 0xff00_ffff, MARK, "{given}");
            assert_eq!(name(&store, flags).expect("a name"), kept);
        }
        assert!(store.is_empty());
        assert_eq!(flags(&store, b"application/octet-stream").expect("flags"), (0, false));
    }

    #[test]
    fn other_types_are_kept_as_they_were_named_up_to_a_limit() {
        let store = store("*");
        let named = |number: usize| format!("application/x-{number}; a=B");
        for number in 0..NAMED_MAX {
            let (flags, is_new) = flags(&store, named(number).as_bytes()).expect("flags");
            assert!(is_new, "{number}");
            assert_eq!(name(&store, flags).expect("a name"), named(number));
        }
        assert_eq!(flags(&store, named(NAMED_MAX).as_bytes()).expect("flags"), (0, false));
        let (last, is_new) = flags(&store, named(NAMED_MAX - 1).as_bytes()).expect("flags");
        assert!(!is_new);
        assert_eq!(name(&store, last).expect("a name"), named(NAMED_MAX - 1));
        assert_eq!((store.len(), store.all_records()), (0, 1));
    }

    #[test]
    fn the_length_of_a_name_is_limited() {
        let store = store("*");
        let long = |bytes: usize| format!("a/{}", "x".repeat(bytes - 2));
        assert_ne!(flags(&store, long(NAME_BYTES_MAX).as_bytes()).expect("flags").0, 0);
        assert_eq!(flags(&store, long(NAME_BYTES_MAX + 1).as_bytes()).expect("flags").0, 0);
        for name in ["", "text", "text/\u{e9}", "text/a\rb"] {
            assert_eq!(flags(&store, name.as_bytes()).expect("flags"), (0, false), "{name}");
        }
    }

    #[test]
    fn other_flags_name_no_type() {
        for flags in [0, 1, 0xc700_0000, 0xc701_0001, 0xc601_0000, 0xc740_0000, 0xc77f_0000] {
            let known = known_name(flags).expect("nothing to look up");
            assert!(known.starts_with(UNKNOWN), "{flags:x} {known}");
        }
        assert_eq!(name(&store("*"), 0xc7ff_0000).expect("a name"), UNKNOWN);
    }
}
