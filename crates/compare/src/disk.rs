//! Disk reads, from the kernel's counters.

use anyhow::{Context as _, Result};
use std::fs;
use std::ops::Sub;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Reads of a block device by all processes since the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceReads {
    /// Requests that the device has completed, after the kernel merged adjacent ones.
    pub completed: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl Sub for DeviceReads {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            completed: self.completed.saturating_sub(earlier.completed),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// The block device under a file system.
#[derive(Clone, Debug)]
pub struct Device {
    stat: PathBuf,
}

impl Device {
    /// Returns the device that holds `path`. Fails for file systems on no device, or on several.
    pub fn of(path: &Path) -> Result<Self> {
        let number = fs::metadata(path).with_context(|| path.display().to_string())?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = Self { stat: format!("/sys/dev/block/{major}:{minor}/stat").into() };
        device.reads().with_context(|| format!("{} is on no block device", path.display()))?;
        Ok(device)
    }

    /// Returns the device's reads so far.
    pub fn reads(&self) -> Result<DeviceReads> {
        let stat = fs::read_to_string(&self.stat)
            .with_context(|| format!("cannot read {}", self.stat.display()))?;
        parse(&stat).with_context(|| format!("{}: {stat}", self.stat.display()))
    }
}

/// Parses reads completed, reads merged and sectors read; ignores the rest.
fn parse(stat: &str) -> Option<DeviceReads> {
    const SECTOR_BYTES: u64 = 512;
    let mut numbers = stat.split_whitespace().map(str::parse::<u64>);
    let completed = numbers.next()?.ok()?;
    let sectors = numbers.nth(1)?.ok()?;
    Some(DeviceReads { completed, bytes: sectors * SECTOR_BYTES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_the_first_and_the_third_number() {
        let stat = "  547640    38716 22920282   979201   197523 135901 85098208\n";
        let reads = DeviceReads { completed: 547_640, bytes: 22_920_282 * 512 };
        assert_eq!(parse(stat), Some(reads));
        assert_eq!(parse("1 2"), None);
    }
}
