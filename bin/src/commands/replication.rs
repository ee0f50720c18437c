//! Options of `tyrant serve` for the update log and replication.

use crate::sizes;
use server::update_log::{FILE_BYTES_MAX, Retention, Settings};
use server::{Config, Following, Master, OnTimeout, Seeding, SemiSyncSettings};
use std::path::PathBuf;
use std::time::Duration;

/// Longest time of an option, in seconds.
const SECONDS_MAX: f64 = 1e6;

#[derive(Debug, clap::Args)]
pub(super) struct ReplicationArguments {
    /// Use this id among the servers that replicate each other, 1 to 65535
    #[arg(
        long,
        visible_alias = "sid",
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    server_id: u32,
    /// Log changes into files of this folder; requires --server-id
    #[arg(long, visible_alias = "ulog", value_name = "DIR")]
    update_log: Option<PathBuf>,
    /// Begin the next file of the update log after this many bytes, 0 for never; suffixes k, m, g
    #[arg(long, visible_alias = "ulim", value_name = "N", default_value_t = FILE_BYTES_MAX, value_parser = sizes::bytes)]
    update_log_file_bytes: u64,
    /// Acknowledge changes up to 0.1 s before they are in the update log
    #[arg(long, visible_alias = "uas")]
    update_log_asynchronous: bool,
    /// Remove update log files that all replicas have received, and any beyond this many bytes
    #[arg(long, value_name = "N", value_parser = sizes::bytes)]
    update_log_keep_bytes: Option<u64>,
    /// Remove update log files that all replicas have received, and any not written for this many
    /// seconds
    #[arg(long, value_name = "S")]
    update_log_keep_seconds: Option<u64>,
    /// Follow this server; requires --server-id
    #[arg(long, value_name = "HOST:PORT", value_parser = master)]
    master: Option<Master>,
    /// Store how far this server has followed in this file
    #[arg(long, visible_alias = "rts", value_name = "PATH", default_value = "tyrant.rts")]
    position_file: PathBuf,
    /// Let clients write to a replica, as required for two masters of each other
    #[arg(long)]
    writable_replica: bool,
    /// Stop following if an operation's outcome differs from that on the master
    #[arg(long, visible_alias = "rcc")]
    check_consistency: bool,
    /// Become a copy of the master: never, if there are no records (empty), or also replacing
    /// records from which the master's log does not continue (always)
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Seed::Empty)]
    seed: Seed,
    /// Receive the copy compressed
    #[arg(long)]
    seed_compressed: bool,
    /// Acknowledge a change only once N replicas have it on disk; requires --update-log
    #[arg(long, value_name = "N")]
    semi_sync: Option<usize>,
    /// Wait at most this long for those replicas, in seconds
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds, requires = "semi_sync")]
    semi_sync_timeout: f64,
    /// Refuse changes after that wait, or acknowledge them anyway, until the replicas have caught
    /// up
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = TimeoutAction::Error, requires = "semi_sync")]
    semi_sync_on_timeout: TimeoutAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Seed {
    Never,
    Empty,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TimeoutAction {
    Error,
    Fallback,
}

impl ReplicationArguments {
    pub(super) fn configure(self, config: &mut Config) {
        config.server_id = self.server_id;
        let retention = Retention {
            bytes_max: self.update_log_keep_bytes,
            age_max: self.update_log_keep_seconds.map(Duration::from_secs),
        };
        config.update_log = self.update_log.map(|folder| Settings {
            folder,
            file_bytes_max: self.update_log_file_bytes,
            is_asynchronous: self.update_log_asynchronous,
            retention,
        });
        config.following = Following {
            master: self.master,
            position: self.position_file,
            check: self.check_consistency,
            is_writable: self.writable_replica,
            seeding: match self.seed {
                Seed::Never => Seeding::Never,
                Seed::Empty => Seeding::Empty,
                Seed::Always => Seeding::Always,
            },
            compresses: self.seed_compressed,
        };
        config.semi_sync = self.semi_sync.map(|replicas| SemiSyncSettings {
            replicas,
            timeout: Duration::from_secs_f64(self.semi_sync_timeout),
            on_timeout: match self.semi_sync_on_timeout {
                TimeoutAction::Error => OnTimeout::Error,
                TimeoutAction::Fallback => OnTimeout::Fallback,
            },
        });
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    // Within the range of a duration.
    if (0.0..=SECONDS_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("not between 0 and {SECONDS_MAX}"))
    }
}

fn master(text: &str) -> Result<Master, String> {
    match text.parse() {
        Ok(client::Address::Tcp { host, port }) => Ok(Master { host, port }),
        _ => Err("not HOST:PORT".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_is_a_host_and_a_port() {
        let expected = Master { host: "example.org".into(), port: 1979 };
        assert_eq!(master("example.org:1979"), Ok(expected));
        master("example.org:x").unwrap_err();
        master("/tmp/socket").unwrap_err();
    }

    #[test]
    fn seconds_are_within_their_limits() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert_eq!(seconds("1000000"), Ok(SECONDS_MAX));
        for text in ["-1", "1000001", "NaN", "x"] {
            seconds(text).unwrap_err();
        }
    }
}
