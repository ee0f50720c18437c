//! Reload: reads again while the server runs what it has read at its start. SIGHUP and the function
//! `reload` of clients do the same.
//!
//! Thread model: the thread of the signals and those that serve clients take turns.

use crate::logging::{Log, system};
use crate::plural::counted;
use crate::settings::{Launch, Loaded, SETTINGS, Settings};
use crate::systemd::Manager;
use parking_lot::Mutex;
use server::{Handle, Monitor, Reload};
use std::path::Path;
use std::sync::Arc;

/// Parts of the process that a reload changes.
pub(crate) struct Reloader {
    pub(crate) log: Log,
    /// Source of the settings, and those in effect, of each database, if they can be read again.
    pub(crate) settings: Mutex<Option<(Launch, Vec<Settings>)>>,
    /// Servers of the databases.
    pub(crate) handles: Vec<Handle>,
    /// Lines of [`Reload::databases`].
    pub(crate) databases: Vec<String>,
    /// Listener for metrics, health and readiness, if there is one.
    pub(crate) monitor: Option<Arc<Monitor>>,
    pub(crate) manager: Manager,
}

/// Report of a reload.
#[derive(Default)]
struct Report {
    done: Vec<String>,
    failed: Vec<String>,
}

impl Report {
    /// Adds what was done. Databases may have it in common.
    fn add(&mut self, done: impl Into<String>) {
        let done = done.into();
        if !self.done.contains(&done) {
            self.done.push(done);
        }
    }

    /// Logs the report in one line, and returns it.
    fn conclude(self) -> Result<String, String> {
        let Self { mut done, failed } = self;
        if !failed.is_empty() {
            let text = [failed, done].concat().join("; ");
            tracing::error!("reload failed, {text}");
            return Err(text);
        }
        if done.is_empty() {
            done.push("nothing to read again".to_owned());
        }
        let text = done.join("; ");
        system(format_args!("reload: {text}"));
        Ok(text)
    }
}

impl Reload for Reloader {
    fn reload(&self, number: usize) -> Result<String, String> {
        self.reload_all(Some(number))
    }

    fn databases(&self) -> Vec<String> {
        self.databases.clone()
    }
}

impl Reloader {
    /// Reads everything again, for the client of a server, which loads its script itself, or for
    /// all. If a file has an error, everything stays as it was, but the log and scripts.
    pub(crate) fn reload_all(&self, asked: Option<usize>) -> Result<String, String> {
        let mut settings = self.settings.lock();
        self.manager.reloading();
        let mut report = Report::default();
        // The lines below are in the file with the name.
        let reopened = self.log.reopen();
        let running = settings.as_mut().map_or(&[][..], |(launch, running)| {
            self.read_settings(launch, running, &mut report);
            running
        });
        // All files are read, or none.
        if report.failed.is_empty() {
            self.read_certificates(running, &mut report);
        }
        match reopened {
            Ok(true) => report.add("log reopened"),
            Ok(false) => {}
            Err(error) => report.failed.push(format!("the log stays in the old file: {error}")),
        }
        let itself = asked.filter(|_| report.failed.is_empty());
        let what = if itself.is_some() { "loading other scripts" } else { "loading scripts" };
        for (number, handle) in self.handles.iter().enumerate() {
            if Some(number) != itself && handle.reload_extension() {
                report.add(what);
            }
        }
        let result = report.conclude();
        self.manager.ready();
        result
    }

    /// Reads the settings again, with the users. Logs each that changes now and each that takes a
    /// restart. If they are invalid, nothing changes.
    fn read_settings(&self, launch: &Launch, running: &mut [Settings], report: &mut Report) {
        let Loaded { databases, configs, .. } = match launch.load() {
            Ok(loaded) => loaded,
            Err(error) => {
                report.failed.push(format!("all settings stay as they were: {error:#}"));
                return;
            }
        };
        let found = find(running, &databases);
        let name = |settings: &Settings| settings.database.clone().unwrap_or_default().0;
        let (mut now, mut later) = (Vec::new(), Vec::new());
        let mut users = Vec::new();
        for (number, read) in databases.iter().enumerate() {
            if !found.contains(&Some(number)) {
                tracing::warn!("reload: {} is new, and served after a restart", name(read));
                add_name(&mut later, format!("database {}", name(read)));
            }
        }
        let several = running.len() > 1;
        for ((running, handle), found) in running.iter_mut().zip(&self.handles).zip(found) {
            let Some(number) = found else {
                let name = name(running);
                tracing::warn!("reload: {name} is not in the settings, but served until a restart");
                add_name(&mut later, format!("database {name}"));
                continue;
            };
            let of = if several { format!(" of {}", name(running)) } else { String::new() };
            let mut config = configs[number].clone();
            if running.users != databases[number].users {
                // Another file takes a restart; the content of the same one does not.
                config.users = None;
            }
            if let (Some(read), Some(file)) = (&config.users, &running.users) {
                let count = counted(read.len(), "user", "users");
                users.push(format!("read {count} in {}", file.display()));
            }
            handle.reload(&config);
            // They are in effect when the log says so.
            for Difference { name, line, is_live } in differences(running, &databases[number]) {
                tracing::info!("reload{of}: {line}");
                add_name(if is_live { &mut now } else { &mut later }, name + &of);
            }
            running.take_live(&databases[number]);
        }
        // Settings of the process are the same in all databases of the file.
        if let Some(verbosity) = databases.first().and_then(|settings| settings.log_level) {
            self.log.set_verbosity(verbosity);
        }
        if let (Some(monitor), Some(settings)) = (&self.monitor, databases.first()) {
            monitor.set_limits(settings.readiness_limits());
        }
        let parts = [(now, "changed now"), (later, "changed after a restart")];
        let parts = parts.into_iter().filter(|(names, _)| !names.is_empty());
        let parts: Vec<String> =
            parts.map(|(names, when)| format!("{when}: {}", names.join(", "))).collect();
        match parts.is_empty() {
            true => report.add("no setting has changed"),
            false => parts.into_iter().for_each(|part| report.add(part)),
        }
        users.into_iter().for_each(|users| report.add(users));
    }

    /// Reads the certificates again, whose files the running settings name.
    fn read_certificates(&self, running: &[Settings], report: &mut Report) {
        for (number, handle) in self.handles.iter().enumerate() {
            match handle.reload_certificates() {
                Ok(Some(warnings)) => {
                    let file = running.get(number).and_then(|one| one.tls_cert.as_deref());
                    let file = file.unwrap_or(Path::new("")).display();
                    report.add(format!("read the certificates in {file}"));
                    for warning in warnings {
                        report.add(format!("warning: {warning}"));
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    report.failed.push(format!("the certificates stay as they were: {error}"));
                }
            }
        }
    }
}

/// Whether settings are those of a running database.
type Rule<'r> = dyn Fn(&Settings, &Settings) -> bool + 'r;

/// Returns for each running database the number of its settings among those that were read, if they
/// are there: the ones with its name, and its address if several have the name. A database that has
/// the address alone has changed its name.
fn find(running: &[Settings], read: &[Settings]) -> Vec<Option<usize>> {
    let has_name = |one: &Settings, other: &Settings| one.database == other.database;
    let has_address = |one: &Settings, other: &Settings| {
        let address = |of: &Settings| (of.host.clone(), of.port, of.unix.clone(), of.tls_port);
        address(one) == address(other)
    };
    let is_only = |_: &Settings, _: &Settings| running.len() == 1 && read.len() == 1;
    let rules: [&Rule<'_>; 4] = [
        &|one, other| has_name(one, other) && has_address(one, other),
        &has_name,
        &has_address,
        &is_only,
    ];
    let mut found = vec![None; running.len()];
    for is_same in rules {
        for (number, one) in running.iter().enumerate() {
            let is_left = |other: &usize| !found.contains(&Some(*other));
            if found[number].is_none() {
                let mut left = (0..read.len()).filter(is_left);
                found[number] = left.find(|other| is_same(one, &read[*other]));
            }
        }
    }
    found
}

/// Adds the name of a setting. Databases may have it in common.
fn add_name(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// A setting that differs, as a line.
struct Difference {
    name: String,
    line: String,
    is_live: bool,
}

/// Returns the settings that differ.
fn differences(running: &Settings, read: &Settings) -> Vec<Difference> {
    let unset = |value: Option<String>| value.unwrap_or_else(|| "unset".to_owned());
    let values = running.shown().into_iter().zip(read.shown());
    SETTINGS
        .iter()
        .zip(values)
        .filter(|(_, (before, after))| before != after)
        .map(|(setting, (before, after))| {
            let (name, before, after) = (setting.name(), unset(before), unset(after));
            let line = match setting.is_live {
                true => format!("{name} is {after}, was {before}"),
                false => format!("{name} stays {before} until a restart, then {after}"),
            };
            Difference { name, line, is_live: setting.is_live }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_database_with_their_name_or_else_their_address() {
        let database = |name: &str, port| {
            let (database, port) = (name.parse().ok(), Some(port));
            Settings { database, port, ..Settings::default() }
        };
        let [a, b, c] = [database("a", 1), database("b", 2), database("c", 3)];
        let found = |running: &[&Settings], read: &[&Settings]| {
            let owned = |all: &[&Settings]| all.iter().copied().cloned().collect::<Vec<_>>();
            find(&owned(running), &owned(read))
        };
        assert_eq!(found(&[&a, &b], &[&a, &b]), [Some(0), Some(1)]);
        assert_eq!(found(&[&a, &b], &[&b, &a]), [Some(1), Some(0)]);
        assert_eq!(found(&[&a, &b], &[&b]), [None, Some(0)]);
        assert_eq!(found(&[&b], &[&a, &b]), [Some(1)]);
        assert_eq!(found(&[&a, &b], &[&c, &b]), [None, Some(1)]);
        assert_eq!(found(&[&a, &b], &[&database("b", 1), &database("a", 2)]), [Some(1), Some(0)]);
        assert_eq!(found(&[&a, &b], &[&database("c", 2), &a]), [Some(1), Some(0)]);
        assert_eq!(found(&[&a], &[&c]), [Some(0)]);
        let [first, second] = [database("*", 1), database("*", 2)];
        assert_eq!(found(&[&first, &second], &[&second, &first]), [Some(1), Some(0)]);
        assert_eq!(found(&[&first, &second], &[&second, &c]), [None, Some(0)]);
    }

    #[test]
    fn a_difference_tells_whether_it_takes_a_restart() {
        let running = Launch::default().load().expect("the defaults").databases.remove(0);
        assert!(differences(&running, &running).is_empty());
        let read = Settings { port: Some(5), users: Some("u".into()), ..running.clone() };
        let read = Settings { timeout: Some("2".parse().expect("seconds")), ..read };
        let found = differences(&running, &read);
        assert_eq!(
            found.iter().map(|one| (one.line.as_str(), one.is_live)).collect::<Vec<_>>(),
            [
                ("port stays 1978 until a restart, then 5", false),
                ("timeout is 2, was 0", true),
                ("users stays unset until a restart, then \"u\"", false),
            ]
        );
        let mut after = running.clone();
        after.take_live(&read);
        assert_eq!(differences(&after, &read).len(), 2);
    }
}
