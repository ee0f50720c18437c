//! Reload: reads the settings again while the server runs, and puts those into effect that can
//! change without a restart.

use crate::logging::Log;
use crate::settings::{Launch, Loaded, SETTINGS, Settings};
use server::Handle;

/// The settings of a running server, and the way to change them.
pub(crate) struct Reloader {
    pub(crate) launch: Launch,
    /// Settings in effect, of each database.
    pub(crate) running: Vec<Settings>,
    /// Servers of the databases.
    pub(crate) handles: Vec<Handle>,
}

impl Reloader {
    /// Reads the settings again. Logs each that changes now and each that takes a restart. If they
    /// are invalid, nothing changes.
    pub(crate) fn reload(&mut self, log: &Log) {
        let Loaded { databases, configs } = match self.launch.load() {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::error!("reload failed, all settings stay as they were: {error:#}");
                return;
            }
        };
        if databases.len() != self.running.len() {
            tracing::error!(
                "reload failed, all settings stay as they were: {} databases in place of {} \
                 require a restart",
                databases.len(),
                self.running.len()
            );
            return;
        }
        let mut changes = 0;
        for (number, (running, read)) in self.running.iter().zip(&databases).enumerate() {
            let of = match (number, self.running.len(), running.database.as_deref()) {
                (_, 2.., Some(name)) => format!(" of {name}"),
                _ => String::new(),
            };
            for line in differences(running, read) {
                tracing::info!("reload{of}: {line}");
                changes += 1;
            }
        }
        for ((running, read), (handle, config)) in
            self.running.iter_mut().zip(&databases).zip(self.handles.iter().zip(&configs))
        {
            handle.reload(config);
            running.take_live(read);
        }
        if let Some(verbosity) = self.running.first().and_then(|settings| settings.log_level) {
            log.set_verbosity(verbosity);
        }
        if changes == 0 {
            tracing::info!("reload: no setting has changed");
        }
    }
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
