//! Times: now, on the command line, and in the names of backups.

use jiff::Timestamp;
use server::RELATIVE_SECONDS_MAX;
use std::time::{SystemTime, UNIX_EPOCH};

/// Smaller numbers are seconds, others microseconds.
const MICROSECONDS_MIN: u64 = 100_000_000_000;

/// Returns the current time, in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the current time, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    now_us() / 1000
}

/// Parses a time as in RFC 3339 (`2026-11-21T12:30:08Z`, with any offset), or in seconds or
/// microseconds since 1970. Returns microseconds since 1970.
pub(crate) fn parse_time(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse::<u64>() {
        return Ok(if number < MICROSECONDS_MIN { number * 1_000_000 } else { number });
    }
    let timestamp: Timestamp = text.parse().map_err(|_| {
        "not a time: write 2026-11-21T12:30:08Z, or with another zone 2026-11-21T13:30:08+01:00, or \
         the seconds or microseconds since 1970"
            .to_owned()
    })?;
    u64::try_from(timestamp.as_microsecond()).map_err(|_| "the time is before 1970".to_owned())
}

/// Parses the seconds until a record expires: up to 30 days from now, and beyond that since 1970,
/// as in memcached's protocol. A time since 1970 that has passed would remove the record.
pub(crate) fn parse_expiry(text: &str) -> Result<i64, String> {
    let seconds: i64 = text
        .parse()
        .map_err(|_| "a whole number of seconds is required, as in 3600 for an hour".to_owned())?;
    let now = i64::try_from(now_us() / 1_000_000).unwrap_or(i64::MAX);
    if seconds > RELATIVE_SECONDS_MAX && seconds <= now {
        return Err(format!(
            "above {RELATIVE_SECONDS_MAX}, which is 30 days, it is a time since 1970, and this one has \
             passed: for this many seconds from now give {}",
            now + seconds
        ));
    }
    Ok(seconds)
}

fn timestamp(time_us: u64) -> Timestamp {
    let time_us = i64::try_from(time_us).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(time_us).unwrap_or(Timestamp::MAX)
}

/// Formats a time as in RFC 3339, to the microsecond.
pub(crate) fn format_time(time_us: u64) -> String {
    format!("{:.6}", timestamp(time_us))
}

/// Returns the name of a backup: the time to the millisecond, so that names sort by time.
pub(crate) fn name(time_us: u64) -> String {
    format!("{:.3}", timestamp(time_us)).replace(['-', ':'], "")
}

/// Parses the name of a backup into its time, in microseconds since 1970.
pub(crate) fn of_name(name: &str) -> Option<u64> {
    let timestamp: Timestamp = name.parse().ok()?;
    let time_us = u64::try_from(timestamp.as_microsecond()).ok()?;
    (self::name(time_us) == name).then_some(time_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_in_every_format() {
        let us = 1_795_264_208_000_000;
        for text in [
            "2026-11-21T12:30:08Z",
            "2026-11-21T14:30:08+02:00",
            "2026-11-21 12:30:08Z",
            "1795264208",
            "1795264208000000",
        ] {
            assert_eq!(parse_time(text), Ok(us), "{text}");
        }
        assert_eq!(parse_time("2026-11-21T12:30:08.000001Z"), Ok(us + 1));
        for text in ["", "soon", "2026-11-21", "-1", "1969-12-31T23:59:59Z"] {
            parse_time(text).unwrap_err();
        }
    }

    #[test]
    fn an_expiry_that_has_passed_is_refused_with_the_time_that_was_meant() {
        for right in [0, 1, RELATIVE_SECONDS_MAX, 4_000_000_000, -1] {
            assert_eq!(parse_expiry(&right.to_string()), Ok(right));
        }
        let now = now_us() / 1_000_000;
        let error = parse_expiry("3000000").unwrap_err();
        let meant: u64 = error.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(meant.abs_diff(now + 3_000_000) < 60, "{error}");
        parse_expiry("soon").unwrap_err();
    }

    #[test]
    fn times_round_trip_and_names_sort_by_time() {
        let us = 1_795_264_208_120_034;
        assert_eq!(format_time(us), "2026-11-21T12:30:08.120034Z");
        assert_eq!(parse_time(&format_time(us)), Ok(us));
        assert_eq!(name(us), "20261121T123008.120Z");
        assert!(name(us) < name(us + 1000));
        assert_eq!(of_name(&name(us)), Some(us / 1000 * 1000));
        for other in ["old", "", "2026-11-21T12:30:08.120Z", "20261121T123008Z", "zzz"] {
            assert_eq!(of_name(other), None, "{other}");
        }
    }
}
