//! Expiry over HTTP: `X-TT-XT` and `Cache-Control`.

use crate::ops::expiry::{expires_at_ms, now_ms, seconds_left, unix_seconds};
use std::time::{Duration, UNIX_EPOCH};
use wire::http::{Head, reply};

const HEADER: &str = "X-TT-XT";

/// Returns the expiry of a value that is put, in the unit of [`cabinet::Meta`], where 0 is never.
/// `X-TT-XT` has precedence: seconds from now up to 30 days, seconds since 1970 above that, or a
/// date. Without it `max-age` counts, unless it is 0, which browsers send with every request.
pub(super) fn asked_for(head: &Head<'_>) -> Result<u64, &'static str> {
    if let Some(time) = head.header(HEADER) {
        return absolute_ms(time).ok_or("X-TT-XT is neither a number of seconds nor a date");
    }
    let max_age = head.header("Cache-Control").and_then(max_age).unwrap_or(0);
    Ok(if max_age == 0 { 0 } else { after_seconds(max_age) })
}

/// Returns the time that a number of seconds stands for, from now or since 1970.
pub(super) fn at_seconds(seconds: u64) -> u64 {
    expires_at_ms(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn after_seconds(seconds: u64) -> u64 {
    // `max-age` is always relative, even if `at_seconds` would take it for an absolute time.
    at_seconds((now_ms() / 1000).saturating_add(seconds))
}

fn absolute_ms(time: &[u8]) -> Option<u64> {
    let time = std::str::from_utf8(time).ok()?;
    if let Ok(seconds) = time.parse::<u64>() {
        return Some(at_seconds(seconds));
    }
    let date = httpdate::parse_http_date(time).ok()?;
    let seconds = date.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // A date before now must not be taken for seconds from now.
    Some(seconds.saturating_mul(1000).max(1000))
}

fn max_age(directives: &[u8]) -> Option<u64> {
    directives.split(|byte| *byte == b',').find_map(|directive| {
        let (name, seconds) = directive.trim_ascii().split_at_checked(b"max-age=".len())?;
        let is_max_age = name.eq_ignore_ascii_case(b"max-age=");
        let seconds = std::str::from_utf8(seconds).ok().filter(|_| is_max_age)?;
        seconds.trim_matches('"').parse().ok()
    })
}

/// Appends the headers with the expiry of a value, if it has one.
pub(super) fn write(output: &mut Vec<u8>, expires_at_ms: u64) {
    let (Some(left), Some(at)) = (seconds_left(expires_at_ms), unix_seconds(expires_at_ms)) else {
        return;
    };
    reply::header(output, "Cache-Control", &format!("max-age={left}"));
    if let Some(time) = date(at) {
        reply::header(output, "Expires", &time);
    }
    reply::header(output, HEADER, &at.to_string());
}

/// Returns the expiry of a value in seconds since 1970, if it has one.
pub(super) fn seconds(expires_at_ms: u64) -> Option<u64> {
    unix_seconds(expires_at_ms)
}

/// Returns a date in HTTP's form, which has four digits for the year.
fn date(unix_seconds: u64) -> Option<String> {
    const YEAR_10000: u64 = 253_402_300_800;
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds);
    (unix_seconds < YEAR_10000).then(|| httpdate::fmt_http_date(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_or_a_date() {
        assert_eq!(absolute_ms(b"0"), Some(0));
        assert_eq!(absolute_ms(b"2000000000"), Some(2_000_000_000_000));
        assert_eq!(absolute_ms(b"Wed, 18 May 2033 03:33:20 GMT"), Some(2_000_000_000_000));
        assert_eq!(absolute_ms(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(1000));
        for text in ["", "-1", "1.5", "tomorrow", "\u{e9}"] {
            assert_eq!(absolute_ms(text.as_bytes()), None, "{text}");
        }
        let left = absolute_ms(b"60").map(|at| at.saturating_sub(now_ms()));
        assert!(left.is_some_and(|left| (58_000..=60_000).contains(&left)), "{left:?}");
    }

    #[test]
    fn the_age_is_found_among_directives() {
        for (directives, age) in [
            ("max-age=60", Some(60)),
            ("public, Max-Age=5", Some(5)),
            ("no-cache", None),
            ("s-maxage=5", None),
            ("max-age=x", None),
            ("", None),
        ] {
            assert_eq!(max_age(directives.as_bytes()), age, "{directives}");
        }
    }
}
