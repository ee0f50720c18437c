//! Warnings: conditions that an operator should end before they do harm. The server works still.
//!
//! Thread model: one thread looks every [`INTERVAL`], and logs what has begun and what has ended. A
//! look at a disk may take long, so all others read what that thread has found last.

use crate::Error;
use crate::access::user_file::FORBIDDEN_MODE;
use crate::counters::Count;
use crate::shared::Shared;
use crate::store::gate::WriteCondition;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use tls::{ServerConfig, ServerFiles};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(15);

/// Time after which a warning is logged again.
const REPEATED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Time before the end of a certificate from which it is a warning.
const CERTIFICATE_LEFT_MIN: Duration = Duration::from_secs(30 * DAY_S);

const DAY_S: u64 = 24 * 3600;

/// Events that need attention once there are some, with their names for one and for several.
pub(crate) const EVENTS: [(&str, &str); 3] = [
    ("login failed", "logins failed"),
    ("connection was rejected", "connections were rejected"),
    ("slow request", "slow requests"),
];

/// A disk on which the server has files.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// Files of the server on it: `database` or `update_log`.
    pub(crate) files: &'static str,
    folder: PathBuf,
    device: u64,
    pub(crate) free_bytes: u64,
    /// All bytes that the server's user could have.
    pub(crate) bytes: u64,
}

impl Disk {
    /// Returns the disk of a folder, unless the system does not tell.
    fn of(files: &'static str, folder: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(folder).ok()?;
        // Some file systems have no number of their own, but each is a device.
        let device = std::fs::metadata(folder).ok()?.dev();
        let used = found.f_blocks.saturating_sub(found.f_bfree);
        Some(Self {
            files,
            folder: folder.to_owned(),
            device,
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            bytes: found.f_bavail.saturating_add(used).saturating_mul(found.f_frsize),
        })
    }

    fn warning(&self, free_percent_min: u8) -> Option<Warning> {
        let least = u128::from(self.bytes) * u128::from(free_percent_min);
        if u128::from(self.free_bytes) * 100 >= least {
            return None;
        }
        let folder = self.folder.display();
        let percent = 100.0 * self.free_bytes as f64 / self.bytes.max(1) as f64;
        Some(Warning {
            subject: format!("disk of {folder}"),
            text: format!(
                "the disk of {folder} has {} MiB free, {percent:.1} %: make room, a full disk \
                 refuses changes",
                self.free_bytes >> 20
            ),
        })
    }
}

/// A condition that an operator should end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// The part of the text that stays while the rest changes.
    subject: String,
    pub(crate) text: String,
}

/// Result of a look.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) disks: Vec<Disk>,
    /// End of the first certificate of the server that ends.
    pub(crate) certificate_end: Option<SystemTime>,
    pub(crate) warnings: Vec<Warning>,
    /// How often each of [`EVENTS`] has happened.
    pub(crate) events: [u64; EVENTS.len()],
}

/// The warnings of a server.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    found: Arc<Found>,
    /// Events at the last looks that are [`INTERVAL`] apart, the newest one first.
    events: [Option<(Instant, [u64; EVENTS.len()])>; 2],
    is_woken: bool,
    stopping: bool,
}

impl Warnings {
    /// Returns what the last look has found.
    pub(crate) fn found(&self) -> Arc<Found> {
        Arc::clone(&self.state.lock().found)
    }

    /// Lets the thread look at once.
    pub(crate) fn wake(&self) {
        self.state.lock().is_woken = true;
        self.changed.notify_all();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Returns how many more events there are now than one to two intervals ago, or at the start,
    /// and how long ago that was.
    pub(crate) fn growth(
        &self,
        mut events: [u64; EVENTS.len()],
    ) -> ([u64; EVENTS.len()], Duration) {
        let Some((at, before)) = self.state.lock().events.iter().rev().flatten().next().copied()
        else {
            return ([0; EVENTS.len()], Duration::ZERO);
        };
        for (now, before) in events.iter_mut().zip(before) {
            *now = now.saturating_sub(before);
        }
        (events, at.elapsed())
    }

    /// Looks until [`Warnings::stop`].
    pub(crate) fn run(&self, look: impl Fn() -> Found) {
        let mut logged = Logged::default();
        loop {
            let found = look();
            logged.log(&found.warnings, Instant::now());
            let mut state = self.state.lock();
            let now = Instant::now();
            let is_due = |(at, _): (Instant, _)| now.saturating_duration_since(at) >= INTERVAL;
            if state.events[0].is_none_or(is_due) {
                state.events = [Some((now, found.events)), state.events[0]];
            }
            state.found = Arc::new(found);
            if !state.is_woken && !state.stopping {
                self.changed.wait_for(&mut state, INTERVAL);
            }
            if state.stopping {
                return;
            }
            state.is_woken = false;
        }
    }
}

/// Subjects of the warnings that were logged, and when.
#[derive(Debug, Default)]
struct Logged(BTreeMap<String, Instant>);

impl Logged {
    /// Logs the warnings that are new or old enough, and those that have ended. Returns the lines.
    fn log(&mut self, warnings: &[Warning], now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        for Warning { subject, text } in warnings {
            let last = self.0.get(subject);
            if last.is_none_or(|last| now.saturating_duration_since(*last) >= REPEATED_AFTER) {
                self.0.insert(subject.clone(), now);
                tracing::warn!("{text}");
                lines.push(text.clone());
            }
        }
        self.0.retain(|subject, _| {
            let stays = warnings.iter().any(|warning| warning.subject == *subject);
            if !stays {
                let line = format!("no warning any more: {subject}");
                tracing::info!("{line}");
                lines.push(line);
            }
            stays
        });
        lines
    }
}

/// Returns how often each of [`EVENTS`] has happened since the start.
pub(crate) fn events(shared: &Shared) -> [u64; EVENTS.len()] {
    let total = |count| shared.counters.total(count);
    [total(Count::AuthenticationError), total(Count::Rejected), shared.slow_log.totals().0]
}

/// Looks at the disks and the certificate of a server, its script, and how it was started.
pub(crate) fn look(shared: &Shared) -> Found {
    let served = &shared.served;
    let is_on_disk = shared.remote.is_none() && !served.is_on_memory();
    let database = is_on_disk.then(|| Disk::of("database", &served.database.path()));
    let log = shared.config.update_log.as_ref();
    let log = log.map(|log| Disk::of("update_log", &log.folder));
    let disks: Vec<Disk> = [database, log].into_iter().flatten().flatten().collect();
    let certificate_end = shared.certificates.as_ref().and_then(|one| one.expires());
    let mut warnings: Vec<Warning> = Vec::new();
    for (number, disk) in disks.iter().enumerate() {
        if disks[..number].iter().all(|other| other.device != disk.device) {
            warnings.extend(disk.warning(shared.live.disk_free_warning_percent()));
        }
    }
    warnings.extend(of_certificates(shared));
    let scripts = shared.scripts.get().and_then(Weak::upgrade);
    let missing = scripts.map(|scripts| scripts.missing_functions()).unwrap_or_default();
    warnings.extend(missing.into_iter().map(|function| Warning {
        subject: format!("periodic function {function}"),
        text: format!("script-every: the script has no function {function}, so nothing is called"),
    }));
    let refused = shared.replication.semi_sync().and_then(|semi_sync| semi_sync.check().err());
    warnings.extend(refused.map(|error| Warning {
        subject: "semi-sync".to_owned(),
        text: format!("changes are refused: {error}"),
    }));
    let notices = shared.config.notices.iter();
    warnings.extend(notices.map(|text| Warning { subject: text.clone(), text: text.clone() }));
    Found { disks, certificate_end, warnings, events: events(shared) }
}

/// Returns what is wrong with the present certificates of a server.
fn of_certificates(shared: &Shared) -> Vec<Warning> {
    let (Some(tls), Some(certificates)) = (&shared.config.tls, &shared.certificates) else {
        return Vec::new();
    };
    of_present(&tls.files, &certificates.present())
}

/// Returns what is wrong with the certificates that were read from these files, and with the mode
/// of that with the key.
fn of_present(files: &ServerFiles, present: &ServerConfig) -> Vec<Warning> {
    let file = &files.certificates;
    let now = SystemTime::now();
    let end = present.expires().and_then(|end| certificate_warning(file, end, now));
    let authority = present.is_authority().then(|| authority_warning(file));
    let nameless = present.is_nameless().then(|| nameless_warning(file));
    let key = key_warning(&files.key);
    end.into_iter().chain(authority).chain(nameless).chain(key).collect()
}

/// Reads certificates, and returns what a server warns of while it has them: that they have ended
/// or soon end, or that clients refuse them.
pub fn certificate_warnings(files: &ServerFiles) -> Result<Vec<String>, Error> {
    let present = files.read().map_err(Error::Tls)?;
    let warnings = of_present(files, &present);
    Ok(warnings.into_iter().map(|warning| warning.text).collect())
}

/// Returns the texts of the warnings about the present certificates of a server.
pub(crate) fn texts_of_certificates(shared: &Shared) -> Vec<String> {
    of_certificates(shared).into_iter().map(|warning| warning.text).collect()
}

fn certificate_warning(file: &Path, end: SystemTime, now: SystemTime) -> Option<Warning> {
    let days = |time: Duration| match time.as_secs() / DAY_S {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    let when = match end.duration_since(now) {
        Ok(left) if left > CERTIFICATE_LEFT_MIN => return None,
        Ok(left) => format!("ends in {}", days(left)),
        Err(passed) => format!("has ended {} ago, clients refuse it", days(passed.duration())),
    };
    let file = file.display();
    Some(Warning {
        subject: format!("certificate in {file}"),
        text: format!("the certificate in {file} {when}: replace it, and reload"),
    })
}

fn authority_warning(file: &Path) -> Warning {
    let file = file.display();
    Warning {
        subject: format!("certificate of an authority in {file}"),
        text: format!(
            "the certificate in {file} is that of an authority (CA:TRUE), which clients refuse for a \
             server: make one with basicConstraints=critical,CA:FALSE, and reload"
        ),
    }
}

/// Returns a warning if others can read or change a private key, or the group change it, as of a
/// file of users.
fn key_warning(file: &Path) -> Option<Warning> {
    let mode = std::fs::metadata(file).ok()?.mode();
    let file = file.display();
    (mode & FORBIDDEN_MODE != 0).then(|| Warning {
        subject: format!("private key in {file}"),
        text: format!(
            "the private key in {file} can be read by other users of this machine, or changed by \
             them or its group: chmod g-w,o= {file}"
        ),
    })
}

fn nameless_warning(file: &Path) -> Warning {
    let file = file.display();
    Warning {
        subject: format!("certificate without a name in {file}"),
        text: format!(
            "the certificate in {file} has neither a host name nor an address (subjectAltName), so \
             clients refuse it: make one with subjectAltName=DNS:NAME or IP:ADDRESS, and reload"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(subject: &str, text: &str) -> Warning {
        Warning { subject: subject.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_disk_is_a_warning_below_its_limit() {
        let disk = |free_bytes| Disk {
            files: "database",
            folder: "/d".into(),
            device: 1,
            free_bytes,
            bytes: 1000 << 20,
        };
        assert_eq!(disk(50 << 20).warning(5), None);
        let found = disk((50 << 20) - 1).warning(5).expect("a warning");
        assert!(found.text.starts_with("the disk of /d has 49 MiB free, 5.0 %"), "{}", found.text);
        assert_eq!(disk(0).warning(0), None);
        assert!(disk(0).warning(1).is_some());
        let temporary = tempfile::tempdir().expect("a folder");
        let real = Disk::of("database", temporary.path()).expect("its disk");
        assert!(0 < real.free_bytes && real.free_bytes <= real.bytes, "{real:?}");
        assert!(Disk::of("database", Path::new("/nowhere")).is_none());
    }

    #[test]
    fn a_certificate_is_a_warning_from_30_days_before_its_end() {
        let now = SystemTime::now();
        let text = |end| certificate_warning(Path::new("c.pem"), end, now).map(|one| one.text);
        assert_eq!(text(now + CERTIFICATE_LEFT_MIN + Duration::from_secs(1)), None);
        for (end, expected) in [
            (now + CERTIFICATE_LEFT_MIN, "the certificate in c.pem ends in 30 days: "),
            (now + Duration::from_secs(DAY_S), "the certificate in c.pem ends in 1 day: "),
            (now, "the certificate in c.pem ends in 0 days: "),
            (now - Duration::from_secs(3 * DAY_S), "the certificate in c.pem has ended 3 days ago"),
        ] {
            let text = text(end).expect("a warning");
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn a_private_key_is_a_warning_if_others_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("server.key");
        std::fs::write(&path, "").expect("a file");
        for (mode, is_warning) in
            [(0o600, false), (0o640, false), (0o660, true), (0o604, true), (0o644, true)]
        {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("a mode");
            let text = key_warning(&path).map(|warning| warning.text);
            assert_eq!(text.is_some(), is_warning, "{mode:o}");
            let advice = format!(": chmod g-w,o= {}", path.display());
            assert!(text.is_none_or(|text| text.ends_with(&advice)), "{mode:o}");
        }
    }

    #[test]
    fn a_warning_is_logged_when_it_begins_each_day_and_when_it_ends() {
        let mut logged = Logged::default();
        let now = Instant::now();
        let first = [warning("disk", "9 MiB"), warning("certificate", "2 days")];
        assert_eq!(logged.log(&first, now), ["9 MiB", "2 days"]);
        let changed = [warning("disk", "8 MiB"), warning("certificate", "1 day")];
        assert!(logged.log(&changed, now + REPEATED_AFTER - Duration::from_secs(1)).is_empty());
        assert_eq!(logged.log(&changed, now + REPEATED_AFTER), ["8 MiB", "1 day"]);
        assert_eq!(logged.log(&changed[..1], now), ["no warning any more: certificate"]);
        assert_eq!(logged.log(&changed, now), ["1 day"]);
    }

    #[test]
    fn events_are_those_since_the_look_before_the_last_one() {
        let warnings = Warnings::default();
        assert_eq!(warnings.growth([9, 9, 9]).0, [0; 3]);
        let now = Instant::now();
        warnings.state.lock().events = [Some((now, [1, 0, 0])), None];
        assert_eq!(warnings.growth([3, 0, 1]).0, [2, 0, 1]);
        warnings.state.lock().events = [Some((now, [3, 0, 1])), Some((now, [2, 0, 0]))];
        assert_eq!(warnings.growth([3, 0, 1]).0, [1, 0, 1]);
    }

    #[test]
    fn what_was_found_is_there_until_the_next_look_and_a_stop_ends_the_thread() {
        let warnings = Warnings::default();
        let looks = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                warnings.run(|| {
                    let look = looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let found = [warning("s", &look.to_string())];
                    Found { warnings: found.into(), ..Found::default() }
                });
            });
            let is = |text: &str| warnings.found().warnings.iter().any(|one| one.text == text);
            let deadline = Instant::now() + Duration::from_secs(60);
            let wait_until = |text: &str| {
                while !is(text) {
                    assert!(Instant::now() < deadline, "{text}: {:?}", warnings.found());
                    std::thread::yield_now();
                }
            };
            wait_until("0");
            warnings.wake();
            wait_until("1");
            warnings.stop();
        });
    }
}
