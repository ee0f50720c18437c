//! Figures of `top`: rates between two readings of a server, and its present values.
//!
//! A reading is the server's `stat` and, unless the server lacks them, its metrics. A figure whose
//! value the server does not have is left out.

use super::metrics::{Metrics, Times, Wanted};
use crate::commands::replicas::{own_lag, replicas_of};
use crate::output::value_of;
use crate::paint::Tone;
use serde_json::{Map, Value as Json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Beginning of the names of counts by command.
const COMMAND: &str = "cnt_";

/// Commands that read, write and remove records.
const READS: [&str; 5] = ["get", "mget", "vsiz", "iternext", "fwmkeys"];
const WRITES: [&str; 10] =
    ["put", "putkeep", "putcat", "putshl", "putnr", "addint", "adddouble", "touch", "cas", "meta"];
const REMOVALS: [&str; 2] = ["out", "vanish"];

/// Histogram of the times of requests.
const DURATION: &str = "tyrant_request_duration_seconds";

/// The status of a server at one time.
#[derive(Debug)]
pub(super) struct Reading {
    stat: BTreeMap<String, String>,
    metrics: Option<Metrics>,
}

impl Reading {
    pub(super) fn new(stat: &str, metrics: Option<&str>) -> Self {
        let pairs = stat.lines().filter_map(|line| line.split_once('\t'));
        let stat = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { stat, metrics: metrics.map(Metrics::parse) }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.stat.get(name).map(String::as_str)
    }

    /// Returns the warnings of the server, if there are any.
    fn warnings(&self) -> Option<&str> {
        self.text("warnings").filter(|text| *text != "none")
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Returns the time of the reading, in seconds since 1970.
    pub(super) fn time(&self) -> Option<f64> {
        self.number("time")
    }

    /// Returns the sum of the samples of a metric.
    pub(super) fn metric(&self, name: &str, wanted: Wanted<'_>) -> Option<f64> {
        self.metrics.as_ref()?.sum(name, wanted)
    }

    /// Returns the names that begin with `prefix` and a value, without the prefix.
    fn named<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = (&'s str, &'s str)> {
        let all = self.stat.iter();
        all.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

/// Rate and total of a command.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CommandFigure<'s> {
    pub(super) name: &'s str,
    /// Protocol; empty for a count of Tokyo Tyrant, which is of all protocols.
    pub(super) protocol: &'s str,
    pub(super) per_second: f64,
    pub(super) total: f64,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) per_second: Option<f64>,
    pub(super) times: Option<Times>,
}

/// A disk with files of the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Disk<'s> {
    pub(super) files: &'s str,
    pub(super) free: f64,
    pub(super) bytes: f64,
}

/// The figures between two readings.
pub(super) struct Figures<'s> {
    before: Option<&'s Reading>,
    /// A reading of some seconds ago, which figures of few events need.
    early: Option<&'s Reading>,
    pub(super) now: &'s Reading,
    /// Time between the readings; `None` if there is no earlier one of the same process.
    seconds: Option<f64>,
}

impl<'s> Figures<'s> {
    /// Returns the figures of the last of `readings`, with rates since the one before it. Times and
    /// events are those since the first one.
    pub(super) fn of(readings: &'s [Reading]) -> Option<Self> {
        let (now, earlier) = readings.split_last()?;
        let before = earlier.last();
        let seconds = before.and_then(|before| seconds_between(before, now));
        let early = earlier.iter().find(|early| seconds_between(early, now).is_some());
        Some(Self { before, early, now, seconds })
    }

    /// Returns the increase per second.
    pub(super) fn rate(&self, name: &str) -> Option<f64> {
        let increase = self.now.number(name)? - self.before?.number(name)?;
        Some((increase / self.seconds?).max(0.0))
    }

    /// Returns the increase per second of a metric.
    pub(super) fn metric_rate(&self, name: &str, wanted: Wanted<'_>) -> Option<f64> {
        let increase =
            self.now.metric(name, wanted)? - self.before?.metric(name, wanted).unwrap_or(0.0);
        Some((increase / self.seconds?).max(0.0))
    }

    /// Returns the increase per second of several counts together.
    fn rate_of(&self, names: &[&str]) -> Option<f64> {
        let rates = names.iter().map(|name| self.rate(&format!("{COMMAND}{name}")));
        rates.flatten().reduce(|sum, rate| sum + rate)
    }

    /// Returns the requests by their kinds: those of the metrics, or else of Tokyo Tyrant's counts.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let Some(metrics) = &self.now.metrics else {
            return [("reads", &READS[..]), ("writes", &WRITES), ("removals", &REMOVALS)]
                .map(|(name, names)| Kind { name, per_second: self.rate_of(names), times: None })
                .into();
        };
        let early = self.early.and_then(|early| early.metrics.as_ref());
        let kind = |(name, class): (&'static str, &str)| {
            let wanted = [("class", class)];
            let rate = self.metric_rate(&format!("{DURATION}_count"), &wanted);
            // A kind that was not requested yet has no samples.
            let per_second = rate.or_else(|| self.seconds.map(|_| 0.0));
            let times = early.and_then(|early| Times::between(early, metrics, DURATION, &wanted));
            Kind { name, per_second, times }
        };
        let classes = [
            ("reads", "read"),
            ("writes", "write"),
            ("lists", "list"),
            ("scripts", "script"),
            ("others", "other"),
        ];
        let is_used = |(_, class): &(&str, &str)| {
            *class != "script"
                || metrics.sum(&format!("{DURATION}_count"), &[("class", class)]).is_some()
        };
        classes.into_iter().filter(is_used).map(kind).collect()
    }

    /// Returns the commands that were ever called.
    pub(super) fn commands(&self) -> Vec<CommandFigure<'s>> {
        let Some(metrics) = &self.now.metrics else { return self.counted_commands() };
        let before = self.before.and_then(|before| before.metrics.as_ref());
        let requests = metrics.rows("tyrant_requests_total", &[]).filter(|row| row.value > 0.0);
        let command = |row: &'s super::metrics::Sample| {
            let (name, protocol) = (row.label("command"), row.label("protocol"));
            let wanted = [("command", name), ("protocol", protocol)];
            let earlier = before.and_then(|before| before.sum("tyrant_requests_total", &wanted));
            let rate =
                earlier.zip(self.seconds).map(|(before, seconds)| (row.value - before) / seconds);
            let per_second = rate.unwrap_or(0.0).max(0.0);
            CommandFigure { name, protocol, per_second, total: row.value }
        };
        requests.map(command).collect()
    }

    /// Returns those of Tokyo Tyrant's counts, the most frequent first.
    fn counted_commands(&self) -> Vec<CommandFigure<'s>> {
        let counts = self.now.named(COMMAND).filter(|(name, _)| !name.ends_with("_miss"));
        let mut commands: Vec<_> = counts
            .filter_map(|(name, value)| {
                let total: f64 = value.parse().ok()?;
                let per_second = self.rate(&format!("{COMMAND}{name}")).unwrap_or(0.0);
                let figure = CommandFigure { name, protocol: "", per_second, total };
                (total > 0.0).then_some(figure)
            })
            .collect();
        commands.sort_by(by_rate);
        commands
    }

    /// Returns the part of the gets in the interval that found a record.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        let (gets, misses) = (self.rate("cnt_get")?, self.rate("cnt_get_miss")?);
        (gets > 0.0).then(|| (1.0 - misses / gets).max(0.0))
    }

    /// Returns the processor time in the interval, as a part of one processor.
    pub(super) fn processor_ratio(&self) -> Option<f64> {
        Some(self.rate("ru_user")? + self.rate("ru_sys")?)
    }

    /// Returns how busy each event loop is, in percent.
    pub(super) fn loops(&self) -> Vec<f64> {
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

    /// Returns the disks with files of the server.
    pub(super) fn disks(&self) -> Vec<Disk<'s>> {
        let Some(metrics) = &self.now.metrics else { return Vec::new() };
        let disk = |row: &'s super::metrics::Sample| {
            let files = row.label("files");
            let bytes = metrics.sum("tyrant_disk_bytes", &[("files", files)])?;
            (bytes > 0.0).then_some(Disk { files, free: row.value, bytes })
        };
        metrics.rows("tyrant_disk_free_bytes", &[]).filter_map(disk).collect()
    }

    /// Returns a memory of the server with a limit: what is used, and the limit.
    pub(super) fn memory(&self, owner: &str) -> Option<(f64, f64)> {
        let wanted = [("owner", owner)];
        let used = self.now.metric("tyrant_memory_bytes", &wanted)?;
        Some((used, self.now.metric("tyrant_memory_max_bytes", &wanted).unwrap_or(0.0)))
    }

    /// Returns the master that the server follows, and how far it is behind.
    pub(super) fn follows(&self) -> Option<(String, String)> {
        let (host, port) = (self.now.text("mhost")?, self.now.text("mport")?);
        Some((format!("{host}:{port}"), own_lag(&self.now.stat)))
    }

    /// Returns the replicas: id, address, and how far each is behind.
    pub(super) fn replicas(&self) -> Vec<(String, String, String)> {
        let replicas = replicas_of(&self.now.stat);
        replicas.map(|one| (one.id.to_owned(), one.address().to_owned(), one.lag())).collect()
    }

    /// Returns what needs attention, the most urgent first, as the server has found it.
    pub(super) fn attention(&self) -> Vec<(Tone, String)> {
        let all = self.now.text("attention").filter(|all| *all != "none");
        let matters = all.into_iter().flat_map(|all| all.split("; "));
        let matter = |text: &str| match text.strip_prefix("! ") {
            Some(text) => (Tone::Bad, text.to_owned()),
            None => (Tone::Warning, text.to_owned()),
        };
        matters.map(matter).collect()
    }

    /// Returns whether the server tells what needs attention. Older ones do not.
    pub(super) fn has_attention(&self) -> bool {
        self.now.text("attention").is_some()
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
        let attention: Vec<String> = self.attention().into_iter().map(|(_, text)| text).collect();
        add("attention", (!attention.is_empty()).then(|| attention.into()));
        add("uptime_seconds", self.now.text("ru_real").map(value_of));
        add("interval_seconds", self.seconds.map(Json::from));
        for (name, names) in [("reads", &READS[..]), ("writes", &WRITES), ("removals", &REMOVALS)] {
            add(&format!("{name}_per_second"), self.rate_of(names).map(Json::from));
        }
        for Kind { name, times, .. } in self.kinds() {
            let times = times.map(|Times { p50, p99, max }| {
                let parts = [("p50_seconds", p50), ("p99_seconds", p99), ("max_seconds", max)];
                let parts = parts.map(|(name, value)| (name.to_owned(), value.into()));
                Json::Object(Map::from_iter(parts))
            });
            add(&format!("{name}_latency"), times);
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
        for Disk { files, free, bytes } in self.disks() {
            add(&format!("{files}_disk_free_bytes"), Some(free.into()));
            add(&format!("{files}_disk_bytes"), Some(bytes.into()));
        }
        let commands = self.counted_commands().into_iter().map(|command| {
            let figures = [("per_second", command.per_second), ("total", command.total)];
            let figures = figures.map(|(name, value)| (name.to_owned(), value.into()));
            (command.name.to_owned(), Json::Object(Map::from_iter(figures)))
        });
        add("commands", Some(Json::Object(commands.collect())));
        let replicas = self.now.named("replica_");
        let replicas = replicas.map(|(id, text)| (id.to_owned(), text.into()));
        add("replica", Some(Json::Object(replicas.collect())));
        Json::Object(members)
    }
}

/// Returns the time between two readings of one process, if it is one.
pub(super) fn seconds_between(before: &Reading, now: &Reading) -> Option<f64> {
    let seconds = now.time()? - before.time()?;
    (before.text("pid") == now.text("pid") && seconds > 0.0).then_some(seconds)
}

/// Compares commands: the most frequent first.
pub(super) fn by_rate(one: &CommandFigure<'_>, other: &CommandFigure<'_>) -> Ordering {
    let rates = other.per_second.total_cmp(&one.per_second);
    rates.then(other.total.total_cmp(&one.total))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "pid\t1\ntime\t100.0\ntype\thash\nru_user\t1.0\nru_sys\t0.5\nru_real\t90.0\n\
        rnum\t5\ncnt_get\t100\ncnt_get_miss\t10\ncnt_put\t7\ncnt_out\t0\nbytes_read\t1000\n";
    const NOW: &str = "pid\t1\ntime\t102.0\ntype\thash\nru_user\t2.0\nru_sys\t0.5\nru_real\t92.0\n\
        rnum\t5\ncnt_get\t300\ncnt_get_miss\t60\ncnt_put\t9\ncnt_out\t0\nbytes_read\t5096\n\
        loop_0_busy_percent\t7\nreplica_2\taddress=h:1 state=streaming\nlimit_bytes\t0\n\
        warnings\tthe disk is full; the certificate ends\n";

    fn reading(stat: &str, reads: u32) -> Reading {
        let metrics = format!(
            "{DURATION}_count{{class=\"read\"}} {reads}\n{DURATION}_bucket{{class=\"read\",\
             le=\"0.001\"}} {reads}\n{DURATION}_bucket{{class=\"read\",le=\"+Inf\"}} {reads}\n\
             tyrant_requests_total{{protocol=\"redis\",command=\"get\"}} {reads}\n\
             tyrant_disk_free_bytes{{files=\"database\"}} 25\n\
             tyrant_disk_bytes{{files=\"database\"}} 100\n"
        );
        Reading::new(stat, Some(&metrics))
    }

    #[test]
    fn rates_are_of_the_time_between_two_readings() {
        let readings = [Reading::new(BEFORE, None), Reading::new(NOW, None)];
        let figures = Figures::of(&readings).expect("figures");
        let json = figures.json();
        assert_eq!(json["reads_per_second"], 100.0);
        assert_eq!(json["writes_per_second"], 1.0);
        assert_eq!(json["hit_ratio"], 0.75);
        assert_eq!(json["processor_ratio"], 0.5);
        assert_eq!(json["commands"]["get"]["per_second"], 100.0);
        assert_eq!(json["commands"]["get"]["total"], 300.0);
        assert!(json["commands"].get("out").is_none());
        assert_eq!(json["warnings"], "the disk is full; the certificate ends");
        let kinds = figures.kinds().into_iter().map(|kind| (kind.name, kind.per_second));
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [("reads", Some(100.0)), ("writes", Some(1.0)), ("removals", Some(0.0))]
        );
    }

    #[test]
    fn kinds_and_commands_are_those_of_the_metrics_where_there_are_some() {
        let readings = [reading(BEFORE, 10), reading(NOW, 30)];
        let figures = Figures::of(&readings).expect("figures");
        let kinds = figures.kinds();
        assert_eq!((kinds[0].name, kinds[0].per_second), ("reads", Some(10.0)));
        assert_eq!(kinds[0].times.expect("times").max, 0.001);
        assert_eq!((kinds[1].name, kinds[1].per_second), ("writes", Some(0.0)));
        let command =
            CommandFigure { name: "get", protocol: "redis", per_second: 10.0, total: 30.0 };
        assert_eq!(figures.commands(), [command]);
        let disk = Disk { files: "database", free: 25.0, bytes: 100.0 };
        assert_eq!(figures.disks(), [disk]);
        assert_eq!(figures.json()["reads_latency"]["max_seconds"], 0.001);
        assert_eq!(figures.json()["database_disk_bytes"], 100.0);
    }

    #[test]
    fn attention_is_the_list_of_the_server() {
        let of = |text: &str| {
            let readings = [Reading::new(&format!("pid\t1\nattention\t{text}\n"), None)];
            Figures::of(&readings).expect("figures").attention()
        };
        assert_eq!(
            of("! changes are refused: no space left; the certificate ends"),
            [
                (Tone::Bad, "changes are refused: no space left".to_owned()),
                (Tone::Warning, "the certificate ends".to_owned()),
            ]
        );
        assert!(of("none").is_empty());
        let has =
            |stat: &str| Figures::of(&[Reading::new(stat, None)]).expect("figures").has_attention();
        assert!(has("pid\t1\nattention\tnone\n") && !has("pid\t1\n"));
    }

    #[test]
    fn there_are_no_rates_without_an_earlier_reading_of_the_same_process() {
        let other = BEFORE.replace("pid\t1", "pid\t2");
        for readings in [vec![reading(NOW, 1)], vec![reading(&other, 1), reading(NOW, 1)]] {
            let figures = Figures::of(&readings).expect("figures");
            assert!(figures.json().get("reads_per_second").is_none());
            assert!(figures.kinds().iter().all(|kind| kind.per_second.is_none()));
        }
        assert!(Figures::of(&[]).is_none());
    }
}
