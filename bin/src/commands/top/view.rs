//! View of `top`: lays the figures out in lines, for a terminal of any size or for a script.
//!
//! Parts that do not fit are left out by their importance, and named in a line of their own.

use super::figures::Figures;
use super::history::History;
use super::parts::{
    attention_lines, command_lines, connection_lines, database_lines, disk_lines, log_lines,
    memory_lines, network_lines, processor_lines, replication_lines, request_lines, slow_line,
    wrapped,
};
use super::units::duration;
use crate::bytes::escaped;
use crate::commands::slow;
use crate::paint::{Line, Marks, Tone};
use crate::plural::counted;
use serde_json::Value as Json;

/// Smallest terminal on which everything of the overview's beginning fits.
pub(super) const COLUMNS_MIN: usize = 40;
const ROWS_MIN: usize = 12;

/// Columns below which lines are shortened.
pub(super) const NARROW: usize = 60;

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

#[cfg(test)]
mod tests {
    use super::super::figures::Reading;
    use super::*;

    /// A status and metrics of a server, at a time at which `reads` were requested.
    fn reading(time: u32, reads: u32, more: &str) -> Reading {
        let none = if more.contains("attention") { "" } else { "attention\tnone\n" };
        let stat = format!(
            "pid\t1\ntime\t{time}\ntype\thash\npath\t/var/lib/tyrant/casket.tch\nru_real\t90061\n\
             ru_user\t{time}\nru_sys\t0\nrnum\t1234567\nsize\t1073741824\nmemrss\t104857600\n\
             curr_connections\t3\nlimit_connections\t65536\nconnections_accepted\t{reads}\n\
             cnt_get\t{reads}\ncnt_get_miss\t0\nbytes_read\t{reads}\nbytes_written\t{reads}\n\
             loop_0_busy_percent\t7\nslow_requests\t2\nsegments\t4\nsyncs\t{reads}\ndead_percent\t12\n\
             replica_2\taddress=h:1 state=streaming lag_operations=3 lag_seconds=0.5\n{none}{more}"
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
            "attention\tthe disk of /var has 3 MiB free: make room, a full disk \
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
    fn an_older_server_does_not_tell_what_needs_attention() {
        let readings = [Reading::new("pid\t1\n", None)];
        let text = plain(&shown(&readings, Choices::default(), 100, 40));
        assert!(text.contains("the server does not tell what needs attention"), "{text}");
        assert!(!text.contains("nothing needs attention"), "{text}");
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
        let more = "attention\t! changes are refused: no space left on device; one thing to see to; \
             another thing; a third thing; a fourth thing\n";
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
        let readings = readings("attention\tthe disk is full\n");
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
}
