//! Attention: what an operator of a server should look at, in one list for `tyrant top` and for the
//! console.

use super::metrics::write_refusal;
use crate::replication::LostReplica;
use crate::shared::Shared;
use crate::shared::warnings::{EVENTS, events};
use crate::store::gate::WriteCondition;
use crate::update_log::now_us;
use std::fmt;

/// Figures of the database, each of which counts damaged places.
const DAMAGES: [&str; 2] = ["damages", "damaged_segments"];

/// Figure of the database that counts reads of damaged places, of one place several times.
const DAMAGED_READS: &str = "damaged_records";

/// A matter that needs attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matter {
    /// Whether clients suffer from it already.
    pub(crate) is_urgent: bool,
    pub(crate) text: String,
}

impl fmt::Display for Matter {
    /// Writes the text, after an exclamation mark if it is urgent.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_urgent { "! " } else { "" };
        write!(formatter, "{mark}{}", self.text)
    }
}

/// Returns what needs attention, the most urgent first.
pub(crate) fn matters(shared: &Shared) -> Vec<Matter> {
    let mut matters = Vec::new();
    let mut add = |is_urgent, text: String| {
        let is_known = matters.iter().any(|known: &Matter| known.text == text);
        if !is_known {
            matters.push(Matter { is_urgent, text });
        }
    };
    let followed = shared.replication.followed();
    let semi_sync = shared.replication.semi_sync().and_then(|semi_sync| semi_sync.check().err());
    match write_refusal(shared).or_else(|| semi_sync.map(|error| error.to_string())) {
        Some(refusal) => add(true, format!("changes are refused: {refusal}")),
        // A replica is read-only as a rule.
        None if followed.is_none() && shared.served.gate.pass().is_err() => {
            add(true, "clients cannot write to this database".to_owned());
        }
        None => {}
    }
    let figures = shared.served.database.stats();
    let most = |names: &[&str]| -> u64 {
        let found = figures.iter().filter(|(name, _)| names.contains(name));
        found.filter_map(|(_, value)| value.parse().ok()).max().unwrap_or(0)
    };
    let places = most(&DAMAGES).max(shared.scrub.totals().1);
    let reads = most(&[DAMAGED_READS]);
    if places > 0 {
        let places = counted(places, ("DAMAGED place", "DAMAGED places"));
        add(true, format!("{places}: run \"tyrant check\""));
    } else if reads > 0 {
        let reads = counted(reads, ("read has met DAMAGE", "reads have met DAMAGE"));
        add(true, format!("{reads}: run \"tyrant check\", which counts the places"));
    }
    if let Some((master, follower)) = followed {
        let state = follower.state();
        if state != "following" {
            add(true, format!("does not follow its master {master} now: {state}"));
        }
        if let Some(inexact) = follower.inexact() {
            add(false, format!("the records may differ from those of {master}: {inexact}"));
        }
    }
    for LostReplica { id, address, since_us } in shared.replication.lost() {
        let seconds = now_us().saturating_sub(since_us) / 1_000_000;
        add(
            false,
            format!(
                "replica {id} at {address} is not connected for {seconds} s: start it, or, if it is \
                 not to return, run \"tyrant replicas --forget {id}\""
            ),
        );
    }
    for warning in &shared.warnings.found().warnings {
        add(false, warning.text.clone());
    }
    let (grown, time) = shared.warnings.growth(events(shared));
    for (count, names) in grown.into_iter().zip(EVENTS) {
        if count > 0 {
            let seconds = time.as_secs().max(1);
            add(false, format!("{} in the last {seconds} s", counted(count, names)));
        }
    }
    matters
}

fn counted(count: u64, (one, many): (&str, &str)) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns the matters as a line: separated by semicolons, or `none`.
pub(crate) fn line(shared: &Shared) -> String {
    let matters: Vec<String> = matters(shared).iter().map(ToString::to_string).collect();
    if matters.is_empty() { "none".to_owned() } else { matters.join("; ") }
}
