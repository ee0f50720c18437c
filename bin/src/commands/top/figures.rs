//! Figures of `top`: rates between two readings of a server's status, and its present values.
//!
//! A figure whose value the server does not have is left out.

use crate::bytes::escaped;
use crate::commands::replicas::own_lag;
use crate::output::value_of;
use crate::plural::unit;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Beginning of the names of counts by command.
const COMMAND: &str = "cnt_";

/// Beginning of the names of replicas.
const REPLICA: &str = "replica_";

/// Commands that read, write and remove records.
const READS: [&str; 5] = ["get", "mget", "vsiz", "iternext", "fwmkeys"];
const WRITES: [&str; 10] =
    ["put", "putkeep", "putcat", "putshl", "putnr", "addint", "adddouble", "touch", "cas", "meta"];
const REMOVALS: [&str; 2] = ["out", "vanish"];

/// Columns of a label.
const LABEL_COLUMNS: usize = 13;

/// The status of a server at one time.
pub(super) struct Reading(BTreeMap<String, String>);

impl Reading {
    pub(super) fn new(stat: &str) -> Self {
        let pairs = stat.lines().filter_map(|line| line.split_once('\t'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the warnings of the server, if there are any.
    fn warnings(&self) -> Option<&str> {
        self.text("warnings").filter(|text| *text != "none")
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Returns the names that begin with `prefix` and a value, without the prefix.
    fn named<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = (&'s str, &'s str)> {
        let all = self.0.iter();
        all.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

/// Rate and total of a command.
struct CommandFigure<'s> {
    name: &'s str,
    per_second: f64,
    total: f64,
}

/// The figures between two readings.
pub(super) struct Figures<'s> {
    before: Option<&'s Reading>,
    now: &'s Reading,
    /// Time between the readings; `None` if there is no earlier one of the same process.
    seconds: Option<f64>,
}

impl<'s> Figures<'s> {
    /// Returns the figures of `now`, with rates since `before`.
    pub(super) fn between(before: Option<&'s Reading>, now: &'s Reading) -> Self {
        let seconds = before.and_then(|before| {
            let is_same = before.text("pid") == now.text("pid");
            let seconds = now.number("time")? - before.number("time")?;
            (is_same && seconds > 0.0).then_some(seconds)
        });
        Self { before, now, seconds }
    }

    /// Returns the increase per second.
    fn rate(&self, name: &str) -> Option<f64> {
        let increase = self.now.number(name)? - self.before?.number(name)?;
        Some((increase / self.seconds?).max(0.0))
    }

    /// Returns the increase per second of several counts together.
    fn rate_of(&self, names: &[&str]) -> Option<f64> {
        let rates = names.iter().map(|name| self.rate(&format!("{COMMAND}{name}")));
        rates.flatten().reduce(|sum, rate| sum + rate)
    }

    /// Returns the commands that were ever called, the most frequent first.
    fn commands(&self) -> Vec<CommandFigure<'s>> {
        let counts = self.now.named(COMMAND).filter(|(name, _)| !name.ends_with("_miss"));
        let mut commands: Vec<_> = counts
            .filter_map(|(name, value)| {
                let total: f64 = value.parse().ok()?;
                let per_second = self.rate(&format!("{COMMAND}{name}")).unwrap_or(0.0);
                (total > 0.0).then_some(CommandFigure { name, per_second, total })
            })
            .collect();
        let key = |command: &CommandFigure<'_>| (command.per_second, command.total);
        commands.sort_by(|one, other| {
            key(other).partial_cmp(&key(one)).unwrap_or(std::cmp::Ordering::Equal)
        });
        commands
    }

    /// Returns the part of the gets in the interval that found a record.
    fn hit_ratio(&self) -> Option<f64> {
        let (gets, misses) = (self.rate("cnt_get")?, self.rate("cnt_get_miss")?);
        (gets > 0.0).then(|| (1.0 - misses / gets).max(0.0))
    }

    /// Returns the processor time in the interval, as a part of one processor.
    fn processor_ratio(&self) -> Option<f64> {
        Some(self.rate("ru_user")? + self.rate("ru_sys")?)
    }

    /// Returns how busy each event loop is, in percent.
    fn loops(&self) -> Vec<f64> {
        let mut loops: Vec<(u32, f64)> = self
            .now
            .named("loop_")
            .filter_map(|(name, value)| {
                let number = name.strip_suffix("_busy_percent")?.parse().ok()?;
                Some((number, value.parse().ok()?))
            })
            .collect();
        loops.sort_by_key(|(number, _)| *number);
        loops.into_iter().map(|(_, percent)| percent).collect()
    }

    /// Returns all figures as an object. Numbers have no unit but bytes, seconds, or 1 per second.
    pub(super) fn json(&self) -> Json {
        let mut members = Map::new();
        let mut add = |name: &str, value: Option<Json>| {
            members.extend(value.map(|value| (name.to_owned(), value)));
        };
        for name in ["time", "type", "path", "pid", "sid", "rnum", "size"] {
            add(name, self.now.text(name).map(value_of));
        }
        add("warnings", self.now.warnings().map(Into::into));
        add("uptime_seconds", self.now.text("ru_real").map(value_of));
        add("interval_seconds", self.seconds.map(Json::from));
        for (name, names) in [("reads", &READS[..]), ("writes", &WRITES), ("removals", &REMOVALS)] {
            add(&format!("{name}_per_second"), self.rate_of(names).map(Json::from));
        }
        add("hit_ratio", self.hit_ratio().map(Json::from));
        add("processor_ratio", self.processor_ratio().map(Json::from));
        add("loops_busy_percent", Some(self.loops().into()));
        for name in [
            "bytes_read",
            "bytes_written",
            "connections_accepted",
            "syncs",
            "compactions",
            "evicted",
            "expired_removed",
            "requests_refused",
            "slow_requests",
            "rejected_connections",
            "auth_errors",
        ] {
            add(&format!("{name}_per_second"), self.rate(name).map(Json::from));
        }
        for name in [
            "curr_connections",
            "limit_connections",
            "memrss",
            "index_bytes",
            "cache_bytes",
            "cache_budget_bytes",
            "buffer_bytes",
            "spool_bytes",
            "live_bytes",
            "dead_percent",
            "limit_bytes",
            "segments",
            "damaged_segments",
            "damaged_records",
            "replicas",
            "mhost",
            "mport",
            "delay",
            "replication_lag_operations",
        ] {
            add(name, self.now.text(name).map(value_of));
        }
        let commands = self.commands().into_iter().map(|command| {
            let figures = [("per_second", command.per_second), ("total", command.total)];
            let figures = figures.map(|(name, value)| (name.to_owned(), value.into()));
            (command.name.to_owned(), Json::Object(Map::from_iter(figures)))
        });
        add("commands", Some(Json::Object(commands.collect())));
        let replicas = self.now.named(REPLICA);
        let replicas = replicas.map(|(id, text)| (id.to_owned(), text.into()));
        add("replica", Some(Json::Object(replicas.collect())));
        Json::Object(members)
    }

    /// Returns all figures as lines for people.
    pub(super) fn lines(&self, address: &str) -> Vec<String> {
        let now = self.now;
        let text = |name| now.text(name).map(|text| escaped(text.as_bytes()));
        let mut head = format!("tyrant top - {}", escaped(address.as_bytes()));
        for part in [text("type"), text("path")].into_iter().flatten() {
            head.push_str(&format!("  {part}"));
        }
        if let Some(seconds) = now.number("ru_real") {
            head.push_str(&format!("  up {}", duration(seconds)));
        }
        let mut lines = vec![head, String::new()];
        let mut add = |label: &str, parts: Vec<Option<String>>| {
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            if !parts.is_empty() {
                lines.push(format!("{label:LABEL_COLUMNS$}{}", parts.join("   ")));
            }
        };
        let per_second = |value: Option<f64>, what: &str| {
            value.map(|value| format!("{}/s {what}", count(value)))
        };
        let amount = |name, what: &str| now.number(name).map(|n| format!("{} {what}", bytes(n)));
        let number = |value, one, many| format!("{} {}", count(value), unit(value, one, many));
        let unless_zero = |name, one, many| {
            let value = now.number(name).filter(|value| *value > 0.0);
            value.map(|value| number(value, one, many))
        };
        let percent = |ratio: f64| format!("{:.1} %", 100.0 * ratio);
        add("WARNING", vec![now.warnings().map(|text| escaped(text.as_bytes()))]);
        add(
            "operations",
            vec![
                per_second(self.rate_of(&READS), "read"),
                per_second(self.rate_of(&WRITES), "written"),
                per_second(self.rate_of(&REMOVALS), "removed"),
                self.hit_ratio().map(|ratio| format!("{} of gets hit", percent(ratio))),
            ],
        );
        let limit = now.number("limit_connections").map(|n| format!("of {}", count(n)));
        add(
            "connections",
            vec![
                now.number("curr_connections")
                    .map(|n| format!("{} {}", count(n), limit.unwrap_or_default())),
                per_second(self.rate("connections_accepted"), "new"),
                unless_zero("rejected_connections", "rejected", "rejected"),
                unless_zero("requests_refused", "request refused", "requests refused"),
                unless_zero("auth_errors", "login failed", "logins failed"),
            ],
        );
        let flow = |name, what: &str| self.rate(name).map(|n| format!("{}/s {what}", bytes(n)));
        add("network", vec![flow("bytes_read", "in"), flow("bytes_written", "out")]);
        let loops: Vec<String> = self.loops().iter().map(|load| format!("{load:.0}")).collect();
        add(
            "processor",
            vec![
                self.processor_ratio().map(|ratio| format!("{} of one", percent(ratio))),
                (!loops.is_empty()).then(|| format!("loops {} %", loops.join(" "))),
            ],
        );
        if let Some(total) = unless_zero("slow_requests", "slow request", "slow requests") {
            let rate = per_second(self.rate("slow_requests"), "now");
            add("slow", vec![Some(total), rate, Some("\"tyrant slow\" lists them".to_owned())]);
        }
        let budget = now.number("cache_budget_bytes").map(|n| format!("cache of {}", bytes(n)));
        add(
            "memory",
            vec![
                amount("memrss", "resident"),
                amount("index_bytes", "index"),
                amount("cache_bytes", budget.as_deref().unwrap_or("cache")),
                amount("buffer_bytes", "buffers"),
            ],
        );
        add(
            "database",
            vec![
                now.number("rnum").map(|n| number(n, "record", "records")),
                amount("size", "total"),
                amount("live_bytes", "live"),
                now.number("limit_bytes").filter(|n| *n > 0.0).map(|n| format!("cap {}", bytes(n))),
                per_second(self.rate("evicted").filter(|rate| *rate > 0.0), "evicted"),
                per_second(self.rate("expired_removed").filter(|rate| *rate > 0.0), "expired"),
            ],
        );
        add(
            "disk",
            vec![
                per_second(self.rate("syncs"), "syncs"),
                per_second(self.rate("compactions"), "compactions"),
                now.number("segments").map(|n| number(n, "segment", "segments")),
                unless_zero("damaged_segments", "DAMAGED segment", "DAMAGED segments"),
                unless_zero("damaged_records", "read met DAMAGE", "reads met DAMAGE"),
            ],
        );
        if let (Some(host), Some(port)) = (text("mhost"), text("mport")) {
            add("follows", vec![Some(format!("{host}:{port}")), Some(own_lag(&now.0))]);
        }
        for (id, state) in now.named(REPLICA).filter(|(id, _)| id.parse::<u16>().is_ok()) {
            add(&format!("replica {id}"), vec![Some(escaped(state.as_bytes()))]);
        }
        lines.push(String::new());
        lines.push(format!("{:LABEL_COLUMNS$}{:>12}{:>16}", "command", "per second", "total"));
        lines.extend(self.commands().iter().map(|CommandFigure { name, per_second, total }| {
            let name = escaped(name.as_bytes());
            format!("{name:LABEL_COLUMNS$}{:>12}{:>16}", count(*per_second), count(*total))
        }));
        lines
    }
}

/// Formats a number with separators, and one decimal if it is small.
fn count(number: f64) -> String {
    if number < 10.0 && number.fract() >= 0.05 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of bytes with a binary unit.
fn bytes(number: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut number = number;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < units.len() {
        number /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && number < 100.0);
    format!("{number:.decimals$} {}", units[unit])
}

/// Formats seconds as days, hours, minutes and seconds.
fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let rest = format!("{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days}d {rest}") } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "pid\t1\ntime\t100.0\ntype\thash\nru_user\t1.0\nru_sys\t0.5\nru_real\t90.0\n\
        rnum\t5\ncnt_get\t100\ncnt_get_miss\t10\ncnt_put\t7\ncnt_out\t0\nbytes_read\t1000\n";
    const NOW: &str = "pid\t1\ntime\t102.0\ntype\thash\nru_user\t2.0\nru_sys\t0.5\nru_real\t92.0\n\
        rnum\t5\ncnt_get\t300\ncnt_get_miss\t60\ncnt_put\t9\ncnt_out\t0\nbytes_read\t5096\n\
        loop_0_busy_percent\t7\nreplica_2\taddress=h:1 state=streaming\nlimit_bytes\t0\n\
        warnings\tthe disk is full\n";

    #[test]
    fn rates_are_of_the_time_between_two_readings() {
        let (before, now) = (Reading::new(BEFORE), Reading::new(NOW));
        let figures = Figures::between(Some(&before), &now);
        let json = figures.json();
        assert_eq!(json["reads_per_second"], 100.0);
        assert_eq!(json["writes_per_second"], 1.0);
        assert_eq!(json["hit_ratio"], 0.75);
        assert_eq!(json["processor_ratio"], 0.5);
        assert_eq!(json["commands"]["get"]["per_second"], 100.0);
        assert_eq!(json["commands"]["get"]["total"], 300.0);
        assert!(json["commands"].get("out").is_none());
        let text = figures.lines("h:1").join("\n");
        for part in
            ["100/s read", "75.0 % of gets hit", "2.0 KiB/s in", "50.0 % of one", "loops 7 %"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("\nWARNING      the disk is full\n"), "{text}");
        assert_eq!(json["warnings"], "the disk is full");
        assert!(text.contains("replica 2    address=h:1 state=streaming"), "{text}");
        assert!(!text.contains("cap"), "{text}");
    }

    #[test]
    fn there_are_no_rates_without_an_earlier_reading_of_the_same_process() {
        let (before, now) = (Reading::new(&BEFORE.replace("pid\t1", "pid\t2")), Reading::new(NOW));
        for before in [None, Some(&before)] {
            let figures = Figures::between(before, &now);
            assert!(figures.json().get("reads_per_second").is_none());
            assert!(figures.lines("h:1").iter().all(|line| !line.contains("/s")));
        }
    }

    #[test]
    fn a_status_of_any_text_has_lines_without_control_characters() {
        let now =
            Reading::new("type\t\x1b[2J\npath\t\x07\ncnt_get\tnan\ntime\tinf\nrnum\t-1e999\n");
        let figures = Figures::between(Some(&now), &now);
        assert!(figures.lines("\x1b").iter().all(|line| !line.contains(char::is_control)));
        assert!(figures.json().is_object());
        let empty = Reading::new("");
        assert!(Figures::between(None, &empty).lines("h:1").len() > 2);
    }

    #[test]
    fn numbers_are_short() {
        for (number, expected) in
            [(0.0, "0"), (0.26, "0.3"), (9.0, "9"), (999.9, "1,000"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(count(number), expected);
        }
        for (number, expected) in
            [(0.0, "0 B"), (1023.0, "1023 B"), (1536.0, "1.5 KiB"), (1e18, "888 PiB")]
        {
            assert_eq!(bytes(number), expected);
        }
        assert_eq!(duration(3661.9), "01:01:01");
        assert_eq!(duration(90_000.0), "1d 01:00:00");
    }
}
