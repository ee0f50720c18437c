//! Parts of the overview of `top`: the lines of each group of figures.

use super::figures::{CommandFigure, Disk, Figures, Kind, by_rate};
use super::metrics::Times;
use super::units::{bytes, count, latency, percent};
use super::view::{COLUMNS_MIN, Choices, Content, Form, NARROW, Order};
use crate::bytes::escaped;
use crate::paint::{Line, Tone};
use crate::plural::unit;

/// Columns of a label.
const LABEL: usize = 13;

/// Columns of a rate, and of a time.
const RATE: usize = 11;
const TIME: usize = 10;

/// Columns from which all times of a kind are shown.
const ALL_TIMES_COLUMNS: usize = 72;

/// Widest bar.
const BAR_MAX: usize = 30;

/// Columns that the figures after a bar take, and on a narrow terminal those of the share alone.
const AFTER_BAR: usize = 32;
const AFTER_NARROW_BAR: usize = 18;

/// Shares from which a bar of a disk changes its colour.
const FILLING: f64 = 0.8;
const NEARLY_FULL: f64 = 0.95;

/// Returns what needs attention, at most `rows` lines, or that nothing does. An older server does
/// not tell.
pub(super) fn attention_lines(figures: &Figures<'_>, form: Form, rows: usize) -> Vec<Line> {
    let found = figures.attention();
    if !figures.has_attention() {
        let text = "the server does not tell what needs attention: it is older than this program";
        if !form.is_live {
            return vec![labelled("attention").with(Tone::Plain, text)];
        }
        let lines = wrapped(text, form.columns.max(10)).into_iter().take(rows);
        return lines.map(|line| Line::of(Tone::Warning, line)).collect();
    }
    if found.is_empty() {
        let text = "nothing needs attention";
        return vec![match form.is_live {
            true => Line::of(Tone::Good, text),
            false => labelled("attention").with(Tone::Plain, "none"),
        }];
    }
    let mark = if form.is_live { "! " } else { "WARNING      " };
    let width = form.columns.saturating_sub(mark.len()).max(10);
    let mut lines = Vec::new();
    for (place, (tone, text)) in found.iter().enumerate() {
        let others = found.len() - place;
        let wrapped = match form.is_live {
            true => wrapped(text, width),
            false => vec![text.clone()],
        };
        let is_last = others == 1;
        if place > 0 && lines.len() + wrapped.len() + usize::from(!is_last) > rows {
            lines.truncate(rows.saturating_sub(1).max(1));
            let more = format!("and {others} more {}", unit(others as f64, "matter", "matters"));
            lines.push(Line::of(Tone::Warning, mark).with(Tone::Warning, more));
            break;
        }
        for (number, part) in wrapped.into_iter().enumerate() {
            let begin = if number == 0 { mark.to_owned() } else { " ".repeat(mark.len()) };
            lines.push(Line::of(*tone, begin).with(*tone, part));
        }
    }
    lines.truncate(rows.max(1));
    lines
}

/// Splits a text into lines at blanks.
pub(super) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > columns {
            lines.push(word.to_owned());
        } else if let Some(last) = lines.last_mut() {
            if line > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Returns the requests by kind, and which of their columns did not fit.
pub(super) fn request_lines(
    content: &Content<'_>,
    figures: &Figures<'_>,
    form: Form,
) -> (Vec<Line>, Vec<String>) {
    let kinds = figures.kinds();
    let has_times = kinds.iter().any(|kind| kind.times.is_some());
    let (shown, mut left_out): (&[&str], _) = match form.columns {
        _ if !has_times => (&[], Vec::new()),
        ALL_TIMES_COLUMNS.. => (&["p50", "p99", "max <"], Vec::new()),
        COLUMNS_MIN.. => (&["p99"], vec!["p50".to_owned(), "max".to_owned()]),
        _ => (&[], vec!["p50".to_owned(), "p99".to_owned(), "max".to_owned()]),
    };
    let after = shown.len() * TIME;
    let begin = if form.columns < ALL_TIMES_COLUMNS { 9 } else { LABEL };
    let spark = match form.is_live {
        true => form.columns.saturating_sub(begin + RATE + 1 + after),
        false => 0,
    };
    if form.is_live && spark < 5 {
        left_out.push("histories".to_owned());
    }
    let spark = if spark < 5 { 0 } else { spark };
    let mut heading =
        Line::of(Tone::Faint, format!("{:begin$}{:>RATE$}", "requests", "per second"));
    heading.pad(begin + RATE + 1 + spark);
    for name in shown {
        heading.add(Tone::Faint, format!("{name:>TIME$}"));
    }
    let mut lines = vec![heading];
    let tones = [Tone::First, Tone::Second, Tone::Third, Tone::Good, Tone::Plain];
    for (Kind { name, per_second, times }, tone) in kinds.iter().zip(tones) {
        let rate = per_second.map_or_else(|| "-".to_owned(), count);
        let mut line = Line::of(tone, format!("{:begin$}", format!("  {name}")));
        line.add(Tone::Plain, format!("{rate:>RATE$} "));
        line.add(tone, form.marks.sparkline(content.history.of(name), spark));
        if let Some(Times { p50, p99, max }) = times {
            for column in shown {
                let time = match *column {
                    "p50" => p50,
                    "p99" => p99,
                    _ => max,
                };
                line.add(Tone::Plain, format!("{:>TIME$}", latency(*time)));
            }
        }
        lines.push(line);
    }
    if let Some(ratio) = figures.hit_ratio() {
        let text = format!("{} of gets found a record", percent(ratio));
        lines.push(Line::of(Tone::Label, format!("{:begin$}", "  hits")).with(Tone::Plain, text));
    }
    (lines, left_out)
}

fn labelled(label: &str) -> Line {
    Line::of(Tone::Label, format!("{label:LABEL$}"))
}

/// Returns a line of figures, unless there are none.
fn facts<const N: usize>(label: &str, parts: [Option<String>; N]) -> Vec<Line> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => Vec::new(),
        false => vec![labelled(label).with(Tone::Plain, parts.join("   "))],
    }
}

fn per_second(rate: Option<f64>, what: &str) -> Option<String> {
    rate.map(|rate| format!("{}/s {what}", count(rate)))
}

fn number(value: f64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), unit(value, one, many))
}

fn above_zero(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

pub(super) fn connection_lines(figures: &Figures<'_>) -> Vec<Line> {
    let now = figures.now;
    let limit = now.number("limit_connections").map(|n| format!(" of {}", count(n)));
    let since_start =
        |name, one, many| above_zero(now.number(name)).map(|value| number(value, one, many));
    facts(
        "connections",
        [
            now.number("curr_connections")
                .map(|n| format!("{}{}", count(n), limit.unwrap_or_default())),
            per_second(figures.rate("connections_accepted"), "new"),
            since_start("rejected_connections", "rejected", "rejected"),
            since_start("requests_refused", "request refused", "requests refused"),
            since_start("auth_errors", "login failed", "logins failed"),
        ],
    )
}

pub(super) fn network_lines(figures: &Figures<'_>) -> Vec<Line> {
    let flow = |name, what: &str| figures.rate(name).map(|n| format!("{}/s {what}", bytes(n)));
    facts("network", [flow("bytes_read", "in"), flow("bytes_written", "out")])
}

pub(super) fn processor_lines(figures: &Figures<'_>) -> Vec<Line> {
    let loops: Vec<String> = figures.loops().iter().map(|load| format!("{load:.0}")).collect();
    facts(
        "processor",
        [
            figures.processor_ratio().map(|ratio| format!("{} of one", percent(ratio))),
            (!loops.is_empty()).then(|| format!("loops {} %", loops.join(" "))),
        ],
    )
}

pub(super) fn memory_lines(content: &Content<'_>, figures: &Figures<'_>, form: Form) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(resident) = figures.now.number("memrss") {
        let mut line =
            labelled("memory").with(Tone::Plain, format!("{} resident", bytes(resident)));
        if form.is_live {
            line.pad(LABEL + 20);
            let columns = form.columns.saturating_sub(line.columns()).min(BAR_MAX);
            line.add(Tone::Label, form.marks.sparkline(content.history.of("memory"), columns));
        }
        lines.push(line);
    }
    for owner in ["index", "cache", "buffers"] {
        if let Some((used, max)) = figures.memory(owner) {
            // A full cache is as it should be.
            lines.push(bar_line(&format!("  {owner}"), (used, max), Tone::Label, form));
        }
    }
    let now = figures.now;
    let scripts = now.number("script_memory_bytes").zip(now.number("script_memory_total"));
    if let Some(scripts) = scripts {
        lines.push(bar_line("  scripts", scripts, Tone::Label, form));
    }
    lines
}

/// Returns a line with a bar, of what is used of a whole. A whole of 0 has no limit.
fn bar_line(label: &str, (used, whole): (f64, f64), tone: Tone, form: Form) -> Line {
    if whole <= 0.0 {
        return labelled(label).with(Tone::Plain, bytes(used));
    }
    let text = format!("{} of {}", bytes(used), bytes(whole));
    bar_with(label, used / whole, &text, tone, form)
}

/// Returns a line with a bar of a share, and a text.
fn bar_with(label: &str, share: f64, text: &str, tone: Tone, form: Form) -> Line {
    let mut line = labelled(label);
    let after = if form.columns < NARROW { AFTER_NARROW_BAR } else { AFTER_BAR };
    let columns = form.columns.saturating_sub(LABEL + after).min(BAR_MAX);
    if form.is_live && columns >= 5 {
        line.add(tone, form.marks.bar(share, columns));
        line.add(Tone::Plain, " ");
    }
    line.add(Tone::Plain, format!("{:>7}", percent(share)));
    line.add(Tone::Plain, format!("   {text}"));
    line
}

pub(super) fn database_lines(figures: &Figures<'_>) -> Vec<Line> {
    let now = figures.now;
    let amount = |name, what: &str| now.number(name).map(|n| format!("{} {what}", bytes(n)));
    facts(
        "database",
        [
            now.number("rnum").map(|n| number(n, "record", "records")),
            amount("size", "total"),
            amount("live_bytes", "live"),
            above_zero(now.number("limit_bytes")).map(|n| format!("cap {}", bytes(n))),
            per_second(above_zero(figures.rate("evicted")), "evicted"),
            per_second(above_zero(figures.rate("expired_removed")), "expired"),
        ],
    )
}

pub(super) fn disk_lines(figures: &Figures<'_>, form: Form) -> Vec<Line> {
    let mut disks = figures.disks();
    // Most servers have all files on one disk.
    disks.dedup_by(|one, other| (one.free, one.bytes) == (other.free, other.bytes));
    let line = |Disk { files, free, bytes: all }: Disk<'_>| {
        let used = (1.0 - free / all).max(0.0);
        let tone = match used {
            NEARLY_FULL.. => Tone::Bad,
            FILLING.. => Tone::Warning,
            _ => Tone::Good,
        };
        let label = if files == "database" { "disk" } else { "log's disk" };
        let text = format!("{} free of {}", bytes(free), bytes(all));
        bar_with(label, used, &text, tone, form)
    };
    disks.into_iter().map(line).collect()
}

pub(super) fn log_lines(figures: &Figures<'_>) -> Vec<Line> {
    let now = figures.now;
    let time = figures.metric_rate("tyrant_sync_seconds_total", &[]);
    let time = time.zip(above_zero(figures.rate("syncs")));
    let time = time.map_or(String::new(), |(time, syncs)| format!(" of {}", latency(time / syncs)));
    facts(
        "log",
        [
            now.number("dead_percent").map(|n| format!("{n} % dead")),
            now.number("segments").map(|n| number(n, "segment", "segments")),
            figures.rate("syncs").map(|rate| format!("{}/s syncs{time}", count(rate))),
            per_second(above_zero(figures.rate("compactions")), "compactions"),
        ],
    )
}

pub(super) fn replication_lines(figures: &Figures<'_>, form: Form) -> Vec<Line> {
    let line = |label: &str, address: String, lag: String| {
        let mut parts = [Some(address), Some(lag)];
        // On a narrow terminal there is room for one of them.
        if form.columns < NARROW {
            parts.reverse();
        }
        facts(label, parts)
    };
    let mut lines = Vec::new();
    if let Some((master, lag)) = figures.follows() {
        lines.extend(line("follows", master, lag));
    }
    for (id, address, lag) in figures.replicas() {
        lines.extend(line(&format!("replica {id}"), address, lag));
    }
    lines
}

pub(super) fn slow_line(figures: &Figures<'_>, form: Form) -> Vec<Line> {
    let Some(total) = above_zero(figures.now.number("slow_requests")) else { return Vec::new() };
    let advice = if form.is_live { "s lists them" } else { "\"tyrant slow\" lists them" };
    facts(
        "slow",
        [
            Some(number(total, "slow request", "slow requests")),
            per_second(figures.rate("slow_requests"), "now"),
            Some(advice.to_owned()),
        ],
    )
}

/// Returns the heading of the commands, and a line for each.
pub(super) fn command_lines(figures: &Figures<'_>, choices: Choices) -> Vec<Line> {
    let mut commands = figures.commands();
    match choices.order {
        Order::First => commands.sort_by(by_rate),
        Order::Amount => commands.sort_by(|one, other| other.total.total_cmp(&one.total)),
        Order::Name => commands.sort_by_key(|one| (one.name, one.protocol)),
    }
    if choices.is_reversed {
        commands.reverse();
    }
    let name = |command: &CommandFigure<'_>| {
        let protocol = if command.protocol.is_empty() { "" } else { " " };
        escaped(format!("{}{protocol}{}", command.protocol, command.name).as_bytes())
    };
    let widest = commands.iter().map(|command| name(command).len()).max().unwrap_or(0);
    let width = (widest + 1).max(LABEL);
    let heading = format!("{:width$}{:>RATE$}{:>14}", "command", "per second", "total");
    let mut lines = vec![Line::of(Tone::Faint, heading)];
    lines.extend(commands.iter().map(|command| {
        let tone = if command.per_second > 0.0 { Tone::Plain } else { Tone::Faint };
        Line::of(Tone::Label, format!("{:width$}", name(command)))
            .with(tone, format!("{:>RATE$}", count(command.per_second)))
            .with(Tone::Plain, format!("{:>14}", count(command.total)))
    }));
    lines
}
