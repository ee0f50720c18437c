//! Reload: reads the settings again while the server runs, and puts those into effect that can
//! change without a restart.

use crate::logging::Log;
use crate::settings::{Launch, Loaded, SETTINGS, Settings};
use server::{Handle, Monitor};
use std::sync::Arc;

/// The settings of a running server, and the way to change them.
pub(crate) struct Reloader {
    pub(crate) launch: Launch,
    /// Settings in effect, of each database.
    pub(crate) running: Vec<Settings>,
    /// Servers of the databases.
    pub(crate) handles: Vec<Handle>,
    /// Listener for metrics, health and readiness, if there is one.
    pub(crate) monitor: Option<Arc<Monitor>>,
}

impl Reloader {
    /// Reads the settings again. Logs each that changes now and each that takes a restart. If they
    /// are invalid, nothing changes.
    pub(crate) fn reload(&mut self, log: &Log) {
        let Loaded { databases, configs, .. } = match self.launch.load() {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::error!("reload failed, all settings stay as they were: {error:#}");
                return;
            }
        };
        let found = find(&self.running, &databases);
        let name = |settings: &Settings| settings.database.clone().unwrap_or_default().0;
        let mut changes = 0;
        for (number, read) in databases.iter().enumerate() {
            if !found.contains(&Some(number)) {
                tracing::warn!("reload: {} is new, and served after a restart", name(read));
                changes += 1;
            }
        }
        let several = self.running.len() > 1;
        for ((running, handle), found) in self.running.iter_mut().zip(&self.handles).zip(found) {
            let Some(number) = found else {
                let name = name(running);
                tracing::warn!("reload: {name} is not in the settings, but served until a restart");
                changes += 1;
                continue;
            };
            let of = if several { format!(" of {}", name(running)) } else { String::new() };
            for line in differences(running, &databases[number]) {
                tracing::info!("reload{of}: {line}");
                changes += 1;
            }
            let mut config = configs[number].clone();
            if running.users != databases[number].users {
                // Another file takes a restart; the content of the same one does not.
                config.users = None;
            }
            handle.reload(&config);
            running.take_live(&databases[number]);
        }
        // Settings of the process are the same in all databases of the file.
        if let Some(verbosity) = databases.first().and_then(|settings| settings.log_level) {
            log.set_verbosity(verbosity);
        }
        if let (Some(monitor), Some(settings)) = (&self.monitor, databases.first()) {
            monitor.set_limits(settings.readiness_limits());
        }
        if changes == 0 {
            tracing::info!("reload: no setting has changed");
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

/// Returns a line for each setting that differs.
fn differences(running: &Settings, read: &Settings) -> Vec<String> {
    let unset = |value: Option<String>| value.unwrap_or_else(|| "unset".to_owned());
    let values = running.shown().into_iter().zip(read.shown());
    SETTINGS
        .iter()
        .zip(values)
        .filter(|(_, (before, after))| before != after)
        .map(|(setting, (before, after))| {
            let (name, before, after) = (setting.name(), unset(before), unset(after));
            match setting.is_live {
                true => format!("{name} is {after}, was {before}"),
                false => format!("{name} stays {before} until a restart, then {after}"),
            }
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
        assert_eq!(
            differences(&running, &read),
            [
                "port stays 1978 until a restart, then 5",
                "timeout is 2, was 0",
                "users stays unset until a restart, then \"u\"",
            ]
        );
        let mut after = running.clone();
        after.take_live(&read);
        assert_eq!(differences(&after, &read).len(), 2);
    }
}
