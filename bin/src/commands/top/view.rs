//! View of `top`: lays the figures out in lines, for a terminal of any size or for a script.
//!
//! Parts that do not fit are left out by their importance, and named in a line of their own.

use super::figures::{CommandFigure, Disk, Figures, Kind, by_rate};
use super::history::History;
use super::metrics::Times;
use crate::bytes::escaped;
use crate::commands::slow;
use crate::paint::{Line, Marks, Tone};
use crate::plural::{counted, unit};
use serde_json::Value as Json;

/// Smallest terminal on which everything of the overview's beginning fits.
const COLUMNS_MIN: usize = 40;
const ROWS_MIN: usize = 12;

/// Columns of a label.
const LABEL: usize = 13;

/// Columns of a rate, and of a time.
const RATE: usize = 11;
const TIME: usize = 10;

/// Columns below which lines are shortened.
const NARROW: usize = 60;

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

/// A page of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    #[default]
    Overview,
    Commands,
    Slow,
    Help,
}

/// Order of the commands and of the slow requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The most frequent commands first; the last slow requests.
    #[default]
    First,
    /// The commands with the highest totals; the slowest requests.
    Amount,
    /// By name.
    Name,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::First => Self::Amount,
            Self::Amount => Self::Name,
            Self::Name => Self::First,
        }
    }
}

/// Choices of the user.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choices {
    pub(super) page: Page,
    pub(super) order: Order,
    pub(super) is_reversed: bool,
    /// First line of a list that is shown.
    pub(super) scroll: usize,
    pub(super) is_paused: bool,
}

/// Form of the view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) marks: Marks,
    /// Whether the view is one of a terminal, with histories, bars and keys.
    pub(super) is_live: bool,
}

impl Form {
    /// Form for a script: everything, in plain lines.
    pub(super) const PLAIN: Self =
        Self { columns: 120, rows: usize::MAX, marks: Marks::ASCII, is_live: false };
}

/// Content to show.
pub(super) struct Content<'s> {
    pub(super) address: &'s str,
    /// Number of the database from 1 on, and of all of the process.
    pub(super) place: (usize, usize),
    pub(super) figures: Option<Figures<'s>>,
    pub(super) history: &'s History,
    /// The last slow requests, or why there are none.
    pub(super) slow: Option<&'s Result<Vec<Json>, String>>,
    /// Why there is no new reading.
    pub(super) error: Option<&'s str>,
    pub(super) interval: f64,
}

/// A part of the overview.
struct Block {
    /// Name in the list of what is left out; a part without one is a gap.
    name: &'static str,
    /// The lower, the more important.
    rank: u8,
    lines: Vec<Line>,
}

/// Returns the lines of the view: as many as the rows of the form, the keys in the last one. Those
/// for a script are as many as there are figures.
pub(super) fn lines(content: &Content<'_>, choices: Choices, form: Form) -> Vec<Line> {
    let Form { columns, rows, marks, is_live } = form;
    let body = rows.saturating_sub(usize::from(is_live));
    let mut lines = match (choices.page, &content.figures) {
        (Page::Help, _) => help(choices, content.interval),
        (_, None) => vec![head(content, form)],
        (Page::Commands, Some(figures)) => {
            let list = command_lines(figures, choices);
            page(content, form, "commands", order_name(choices), list, choices.scroll, body)
        }
        (Page::Slow, Some(_)) => {
            let list = slow_lines(content, choices, columns);
            page(content, form, "slow requests", order_name(choices), list, choices.scroll, body)
        }
        (Page::Overview, Some(figures)) => overview(content, figures, choices, form, body),
    };
    if let Some(error) = content.error {
        let place = lines.len().min(1);
        let text = wrapped(error, columns).into_iter().map(|line| Line::of(Tone::Bad, line));
        let text: Vec<Line> = text.chain([Line::of(Tone::Faint, "trying again ...")]).collect();
        lines.splice(place..place, text);
    }
    if is_live {
        lines.resize(body, Line::default());
        if rows > 0 {
            lines.push(footer(content, choices, columns));
        }
    }
    lines.into_iter().map(|line| line.cut(columns, marks)).collect()
}

fn head(content: &Content<'_>, form: Form) -> Line {
    let mut line = Line::default();
    if !form.is_live || form.columns >= NARROW {
        line.add(Tone::Title, "tyrant top - ");
    }
    line.add(Tone::Title, escaped(content.address.as_bytes()));
    if let (place, all @ 2.., true) = (content.place.0, content.place.1, form.is_live) {
        line.add(Tone::Faint, format!(" [{place} of {all}]"));
    }
    if let Some(figures) = &content.figures {
        for name in ["type", "path"] {
            if let Some(text) = figures.now.text(name) {
                line.add(Tone::Label, format!("  {}", escaped(text.as_bytes())));
            }
        }
        if let Some(seconds) = figures.now.number("ru_real") {
            line.add(Tone::Plain, format!("  up {}", duration(seconds)));
        }
    }
    line
}

fn footer(content: &Content<'_>, choices: Choices, columns: usize) -> Line {
    let mut line = Line::default();
    let mut keys: Vec<(&str, &str)> = match choices.page {
        Page::Overview => vec![("q", "quit"), ("s", "slow"), ("c", "commands"), ("?", "help")],
        Page::Help => vec![("q", "quit"), ("any key", "back")],
        Page::Commands | Page::Slow => {
            vec![("q", "quit"), ("Esc", "back"), ("o", "order"), ("r", "reverse"), ("?", "help")]
        }
    };
    if content.place.1 > 1 && columns >= NARROW {
        keys.insert(1, ("TAB", "next database"));
    }
    for (key, what) in keys {
        line.add(Tone::Title, key);
        line.add(Tone::Faint, format!(" {what}  "));
    }
    match () {
        () if choices.is_paused => line.add(Tone::Warning, "paused"),
        () if columns >= NARROW => line.add(Tone::Faint, format!("every {} s", content.interval)),
        () => {}
    }
    line
}

/// Returns a list under a heading, from one of its lines on.
fn page(
    content: &Content<'_>,
    form: Form,
    title: &str,
    order: &str,
    mut list: Vec<Line>,
    scroll: usize,
    body: usize,
) -> Vec<Line> {
    let heading = (!list.is_empty()).then(|| list.remove(0));
    let all = list.len();
    let room = body.saturating_sub(3);
    let first = scroll.min(all.saturating_sub(room));
    let mut what = Line::of(Tone::Title, title).with(Tone::Faint, format!(" {order}"));
    if all > room {
        let last = (first + room).min(all);
        what.add(Tone::Faint, format!(", {} to {last} of {all}", first + 1));
    }
    let mut lines = vec![head(content, form), what];
    lines.extend(heading);
    lines.extend(list.into_iter().skip(first).take(room));
    lines
}

fn order_name(choices: Choices) -> &'static str {
    match (choices.page, choices.order) {
        (Page::Slow, Order::First) => "by time",
        (Page::Slow, Order::Amount) => "by duration",
        (_, Order::First) => "by rate",
        (_, Order::Amount) => "by total",
        (_, Order::Name) => "by name",
    }
}

/// Returns the heading of the commands, and a line for each.
fn command_lines(figures: &Figures<'_>, choices: Choices) -> Vec<Line> {
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

/// Returns the heading of the slow requests, and a line for each; or why there are none.
fn slow_lines(content: &Content<'_>, choices: Choices, columns: usize) -> Vec<Line> {
    let mut requests = match content.slow {
        Some(Ok(requests)) if !requests.is_empty() => requests.clone(),
        Some(Err(error)) => {
            let lines = wrapped(error, columns).into_iter();
            return lines.map(|line| Line::of(Tone::Warning, line)).collect();
        }
        _ => return vec![Line::of(Tone::Faint, "no request was slow")],
    };
    let seconds = |request: &Json| request["seconds"].as_f64().unwrap_or(0.0);
    match choices.order {
        Order::First => {}
        Order::Amount => {
            requests.sort_by(|one, other| seconds(other).total_cmp(&seconds(one)));
        }
        Order::Name => requests.sort_by_key(|request| request["command"].to_string()),
    }
    if choices.is_reversed {
        requests.reverse();
    }
    let heading = Line::of(Tone::Faint, slow::heading());
    let line = |request| Line::of(Tone::Plain, slow::line(request));
    std::iter::once(heading).chain(requests.iter().map(line)).collect()
}

fn help(choices: Choices, interval: f64) -> Vec<Line> {
    let keys = [
        ("q, Ctrl-C", "quit"),
        ("Esc", "back to the overview, or quit"),
        ("TAB", "next database; Shift-TAB the one before"),
        ("s", "slow requests"),
        ("c", "commands"),
        ("o", "other order: rate, total, name"),
        ("r", "reverse the order"),
        ("Up, Down", "scroll; PgUp, PgDn, Home too"),
        ("space", "read now"),
        ("p", "pause, or go on"),
        ("+, -", "read more often, or less"),
    ];
    let mut lines = vec![
        Line::of(Tone::Title, "Keys"),
        Line::of(
            Tone::Faint,
            format!("every {interval} s{}", if choices.is_paused { ", paused" } else { "" }),
        ),
    ];
    lines.extend(
        keys.map(|(key, what)| Line::of(Tone::Label, format!("{key:11}")).with(Tone::Plain, what)),
    );
    lines.push(Line::default());
    let about = [
        "Times span the last 10 seconds. max is",
        "the end of the highest bucket of the",
        "histogram. Lines show the past, each",
        "relative to its highest value.",
    ];
    lines.extend(about.map(|text| Line::of(Tone::Faint, text)));
    lines
}

fn overview(
    content: &Content<'_>,
    figures: &Figures<'_>,
    choices: Choices,
    form: Form,
    body: usize,
) -> Vec<Line> {
    let mut blocks = vec![Block { name: "the address", rank: 0, lines: vec![head(content, form)] }];
    let attention = attention_lines(figures, form, (body / 3).max(1));
    blocks.push(Block { name: "what needs attention", rank: 1, lines: attention });
    let (requests, mut left_out) = request_lines(content, figures, form);
    blocks.push(Block { name: "requests", rank: 2, lines: requests });
    let mut add = |name, rank, lines: Vec<Line>| {
        if !lines.is_empty() {
            blocks.push(Block { name, rank, lines });
        }
    };
    add("", 20, vec![Line::default()]);
    add("connections", 7, connection_lines(figures));
    add("network", 9, network_lines(figures));
    add("processor", 8, processor_lines(figures));
    add("memory", 5, memory_lines(content, figures, form));
    add("database", 6, database_lines(figures));
    add("disk", 3, disk_lines(figures, form));
    add("log", 10, log_lines(figures));
    add("replication", 4, replication_lines(figures, form));
    add("slow", 11, slow_line(figures, form));
    let commands = command_lines(figures, choices);
    let has_commands = commands.len() > 1;
    add("", 21, vec![Line::default()]);
    let mut room = body;
    let all: usize = blocks.iter().map(|block| block.lines.len()).sum();
    let commands_min = if has_commands { 3 } else { 0 };
    if all + commands.len() > body || !left_out.is_empty() {
        // The line about what is left out.
        room = room.saturating_sub(1);
    }
    let mut ranks: Vec<usize> = (0..blocks.len()).collect();
    ranks.sort_by_key(|place| blocks[*place].rank);
    let mut is_shown = vec![false; blocks.len()];
    let mut is_cut = vec![false; blocks.len()];
    for place in ranks {
        let block = &mut blocks[place];
        // A gap is worth less than a command.
        let wanted = block.lines.len() + if block.name.is_empty() { commands_min } else { 0 };
        if wanted <= room {
            room -= block.lines.len();
            is_shown[place] = true;
        } else if !block.name.is_empty() && room > 0 {
            is_cut[place] = true;
            is_shown[place] = true;
            block.lines.truncate(room);
            room = 0;
        }
    }
    let mut lines = Vec::new();
    for (place, block) in blocks.into_iter().enumerate() {
        match is_shown[place] {
            true => lines.extend(block.lines),
            false if !block.name.is_empty() => left_out.push(block.name.to_owned()),
            false => {}
        }
        if is_cut[place] {
            left_out.push(format!("part of {}", block.name));
        }
    }
    if has_commands {
        match room {
            2.. => {
                let others = commands.len().saturating_sub(room);
                lines.extend(commands.into_iter().take(room));
                if others > 0 {
                    left_out.push(counted(others as u64, "command", "commands"));
                }
            }
            _ => left_out.push("commands".to_owned()),
        }
    }
    if !left_out.is_empty() {
        lines.push(left_out_line(&left_out, form));
    }
    if form.is_live && (form.columns < COLUMNS_MIN || form.rows < ROWS_MIN) {
        let small = format!("needs {COLUMNS_MIN} x {ROWS_MIN}");
        lines.truncate(body.saturating_sub(1));
        lines.push(Line::of(Tone::Warning, small));
    }
    lines
}

/// Returns the line that names what did not fit, or how many do not fit there.
fn left_out_line(names: &[String], form: Form) -> Line {
    let mut text = "left out: ".to_owned();
    for (place, name) in names.iter().enumerate() {
        let comma = if place > 0 { ", " } else { "" };
        let others = names.len() - place;
        let end = format!(" and {others} more").len();
        if place > 0 && text.len() + comma.len() + name.len() + end > form.columns {
            text.push_str(&format!(" and {others} more"));
            break;
        }
        text.push_str(&format!("{comma}{name}"));
    }
    Line::of(Tone::Faint, text)
}

/// Returns what needs attention, at most `rows` lines, or that nothing does.
fn attention_lines(figures: &Figures<'_>, form: Form, rows: usize) -> Vec<Line> {
    let found = figures.attention();
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
fn wrapped(text: &str, columns: usize) -> Vec<String> {
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
fn request_lines(
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

fn connection_lines(figures: &Figures<'_>) -> Vec<Line> {
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

fn network_lines(figures: &Figures<'_>) -> Vec<Line> {
    let flow = |name, what: &str| figures.rate(name).map(|n| format!("{}/s {what}", bytes(n)));
    facts("network", [flow("bytes_read", "in"), flow("bytes_written", "out")])
}

fn processor_lines(figures: &Figures<'_>) -> Vec<Line> {
    let loops: Vec<String> = figures.loops().iter().map(|load| format!("{load:.0}")).collect();
    facts(
        "processor",
        [
            figures.processor_ratio().map(|ratio| format!("{} of one", percent(ratio))),
            (!loops.is_empty()).then(|| format!("loops {} %", loops.join(" "))),
        ],
    )
}

fn memory_lines(content: &Content<'_>, figures: &Figures<'_>, form: Form) -> Vec<Line> {
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

fn database_lines(figures: &Figures<'_>) -> Vec<Line> {
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

fn disk_lines(figures: &Figures<'_>, form: Form) -> Vec<Line> {
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

fn log_lines(figures: &Figures<'_>) -> Vec<Line> {
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

fn replication_lines(figures: &Figures<'_>, form: Form) -> Vec<Line> {
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

fn slow_line(figures: &Figures<'_>, form: Form) -> Vec<Line> {
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

fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// Formats a time of a request.
fn latency(seconds: f64) -> String {
    let (number, unit) = match seconds {
        1.0.. => (seconds, "s"),
        1e-3.. => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "us"),
    };
    let decimals = usize::from(number < 9.95 && unit != "us");
    format!("{number:.decimals$} {unit}")
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
    use super::super::figures::Reading;
    use super::*;

    /// A status and metrics of a server, at a time at which `reads` were requested.
    fn reading(time: u32, reads: u32, more: &str) -> Reading {
        let stat = format!(
            "pid\t1\ntime\t{time}\ntype\thash\npath\t/var/lib/tyrant/casket.tch\nru_real\t90061\n\
             ru_user\t{time}\nru_sys\t0\nrnum\t1234567\nsize\t1073741824\nmemrss\t104857600\n\
             curr_connections\t3\nlimit_connections\t65536\nconnections_accepted\t{reads}\n\
             cnt_get\t{reads}\ncnt_get_miss\t0\nbytes_read\t{reads}\nbytes_written\t{reads}\n\
             loop_0_busy_percent\t7\nslow_requests\t2\nsegments\t4\nsyncs\t{reads}\ndead_percent\t12\n\
             replica_2\taddress=h:1 state=streaming lag_operations=3 lag_seconds=0.5\n{more}"
        );
        let buckets = ["0.0001", "0.001", "+Inf"].map(|end| {
            let name = "tyrant_request_duration_seconds_bucket";
            format!("{name}{{class=\"read\",le=\"{end}\"}} {reads}\n")
        });
        let metrics = format!(
            "{}tyrant_request_duration_seconds_count{{class=\"read\"}} {reads}\n\
             tyrant_requests_total{{protocol=\"redis\",command=\"get\"}} {reads}\n\
             tyrant_requests_total{{protocol=\"memcached\",command=\"set\"}} 7\n\
             tyrant_memory_bytes{{owner=\"index\"}} 50\ntyrant_memory_max_bytes{{owner=\"index\"}} 100\n\
             tyrant_disk_free_bytes{{files=\"database\"}} 3\ntyrant_disk_bytes{{files=\"database\"}} 100\n",
            buckets.concat()
        );
        Reading::new(&stat, Some(&metrics))
    }

    fn shown(readings: &[Reading], choices: Choices, columns: usize, rows: usize) -> Vec<Line> {
        let mut history = History::default();
        for end in 1..=readings.len() {
            history.add(&Figures::of(&readings[..end]).expect("figures"));
        }
        let slow = Ok(vec![serde_json::json!({"seconds": 0.5, "command": "get", "key": "k"})]);
        let content = Content {
            address: "127.0.0.1:1978",
            place: (2, 3),
            figures: Figures::of(readings),
            history: &history,
            slow: Some(&slow),
            error: None,
            interval: 2.0,
        };
        let form = Form { columns, rows, marks: Marks::UNICODE, is_live: true };
        lines(&content, choices, form)
    }

    fn plain(lines: &[Line]) -> String {
        lines.iter().map(|line| line.paint(false) + "\n").collect()
    }

    const SIZES: [(usize, usize); 6] = [(40, 12), (80, 24), (200, 60), (20, 5), (1, 1), (0, 0)];

    fn readings(more: &str) -> [Reading; 3] {
        [reading(100, 0, more), reading(102, 2000, more), reading(104, 8000, more)]
    }

    #[test]
    fn every_page_fits_every_size() {
        let readings = readings(
            "warnings\tthe disk of /var has 3 MiB free: make room, a full disk \
             refuses changes; the certificate ends in 3 days\n",
        );
        for (columns, rows) in SIZES {
            for page in [Page::Overview, Page::Commands, Page::Slow, Page::Help] {
                let choices = Choices { page, scroll: 99, ..Choices::default() };
                let lines = shown(&readings, choices, columns, rows);
                assert_eq!(lines.len(), rows, "{page:?} {columns}x{rows}");
                assert!(
                    lines.iter().all(|line| line.columns() <= columns),
                    "{columns}x{rows}:\n{}",
                    plain(&lines)
                );
            }
        }
    }

    #[test]
    fn a_small_terminal_names_what_is_left_out() {
        let text = plain(&shown(&readings(""), Choices::default(), 40, 12));
        for part in [
            "127.0.0.1:1978",
            "nothing needs attention",
            "reads",
            "p99",
            "left out: p50",
            " more\n",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(
            !text.contains("commands\n") && text.lines().last().expect("keys").contains("q quit")
        );
        let text = plain(&shown(&readings(""), Choices::default(), 39, 11));
        assert!(text.contains("needs 40 x 12"), "{text}");
    }

    #[test]
    fn a_usual_terminal_has_the_figures_and_names_the_rest() {
        let text = plain(&shown(&readings(""), Choices::default(), 80, 24));
        for part in [
            "tyrant top - 127.0.0.1:1978 [2 of 3]  hash  /var/lib/tyrant/casket.tch  up 1d",
            "requests      per second",
            "  reads            3,000 ",
            "▄█",
            "p50       p99     max <",
            "100.0 % of gets found a record",
            "100 MiB resident",
            "  index      ",
            " 50.0 %   50 B of 100 B",
            " 97.0 %   3 B free of 100 B",
            "replica 2    h:1   streaming, 3 operations, 0.500 s behind",
            "1,234,567 records   1.0 GiB total",
            "TAB next database",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_large_terminal_has_everything() {
        let text = plain(&shown(&readings(""), Choices::default(), 200, 60));
        assert!(!text.contains("left out"), "{text}");
        for part in ["  writes ", "network ", "processor ", "12 % dead   4 segments", "slow "] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let commands =
            text.lines().skip_while(|line| !line.starts_with("command ")).collect::<Vec<_>>();
        assert!(commands[1].starts_with("redis get ") && commands[1].ends_with("8,000"), "{text}");
        assert!(commands[2].starts_with("memcached set "), "{text}");
    }

    #[test]
    fn what_needs_attention_comes_first_and_is_counted_where_it_does_not_fit() {
        let more = "write_refusal\tno space left on device\nwarnings\tone thing to see to; another \
             thing; a third thing; a fourth thing\n";
        let lines = shown(&readings(more), Choices::default(), 40, 12);
        assert_eq!(lines[1].paint(true).matches("\x1b[1;31m").count(), 2, "{:?}", lines[1]);
        let text = plain(&lines);
        assert!(text.contains("\n! changes are refused: no space left on\n  device\n"), "{text}");
        assert!(text.contains("\n! and 4 more matters\n"), "{text}");
        let text = plain(&shown(&readings(more), Choices::default(), 80, 24));
        assert!(text.contains("\n! a fourth thing\n") && !text.contains("matters"), "{text}");
    }

    #[test]
    fn orders_change_the_commands_and_the_slow_requests() {
        let first = |order, is_reversed| {
            let choices =
                Choices { page: Page::Commands, order, is_reversed, ..Choices::default() };
            plain(&shown(&readings(""), choices, 80, 24)).lines().nth(3).expect("a line").to_owned()
        };
        assert!(first(Order::First, false).starts_with("redis get"));
        assert!(first(Order::First, true).starts_with("memcached set"));
        assert!(first(Order::Amount, false).starts_with("redis get"));
        assert!(first(Order::Name, false).starts_with("redis get"));
        assert!(first(Order::Name, true).starts_with("memcached set"));
        let choices = Choices { page: Page::Slow, ..Choices::default() };
        let text = plain(&shown(&readings(""), choices, 120, 24));
        assert!(text.contains("slow requests by time") && text.contains("0.500000"), "{text}");
    }

    #[test]
    fn a_script_gets_plain_lines_without_histories() {
        let readings = readings("warnings\tthe disk is full\n");
        let history = History::default();
        let content = Content {
            address: "h:1",
            place: (1, 1),
            figures: Figures::of(&readings),
            history: &history,
            slow: None,
            error: None,
            interval: 2.0,
        };
        let text = plain(&lines(&content, Choices::default(), Form::PLAIN));
        assert!(text.is_ascii() && !text.contains("left out") && !text.contains("quit"), "{text}");
        assert!(text.contains("\nWARNING      the disk is full\n"), "{text}");
        assert!(text.contains("\nslow         2 slow requests"), "{text}");
    }

    #[test]
    fn a_status_of_any_text_has_lines_without_control_characters() {
        let stat = "type\t\x1b[2J\npath\t\x07\ncnt_get\tnan\ntime\tinf\nrnum\t-1e999\nmemrss\t-1\n";
        let metrics = "tyrant_requests_total{protocol=\"\x1b[1m\",command=\"\x07\"} 1\n";
        for stat in [stat, ""] {
            let readings = [Reading::new(stat, Some(metrics)), Reading::new(stat, Some(metrics))];
            for line in shown(&readings, Choices::default(), 80, 24) {
                assert!(!line.paint(false).contains(char::is_control), "{line:?}");
            }
        }
    }

    #[test]
    fn an_error_is_shown_in_place_of_figures() {
        let history = History::default();
        let content = Content {
            address: "h:1",
            place: (1, 1),
            figures: None,
            history: &history,
            slow: None,
            error: Some("cannot connect"),
            interval: 2.0,
        };
        let form = Form { columns: 40, rows: 12, marks: Marks::ASCII, is_live: true };
        let text = plain(&lines(&content, Choices::default(), form));
        assert!(text.starts_with("h:1\ncannot connect\ntrying again ...\n"), "{text}");
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
        for (seconds, expected) in
            [(12e-6, "12 us"), (1.25e-3, "1.2 ms"), (0.0312, "31 ms"), (8.39, "8.4 s")]
        {
            assert_eq!(latency(seconds), expected);
        }
        assert_eq!(duration(3661.9), "01:01:01");
        assert_eq!(duration(90_000.0), "1d 01:00:00");
    }
}
