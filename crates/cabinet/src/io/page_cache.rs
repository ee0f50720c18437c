//! Identity of the page cache that the files of a folder have.
//!
//! Bytes that a process has written outlive it in the page cache, without a sync. They do not
//! outlive a restart of the machine, nor the removal of a disk, as of a volume that is detached
//! from one machine and attached again. A reader of the files of a killed process compares this
//! identity.

use rustix::fs::{major, minor, stat};
use std::fs;
use std::io;
use std::path::Path;

/// File in which Linux identifies this boot, by a UUID.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Folder in which Linux describes its block devices, by their numbers.
const DEVICES_PATH: &str = "/sys/dev/block";

/// Returns the identity of the page cache of the files in a folder: another one after the machine
/// was restarted, or the disk was attached again. Bytes that a killed process has left without a
/// sync count only while it is the same.
///
/// The latter is known from the sequence number that Linux 5.15 and later give to each disk that is
/// attached. File systems without a disk of their own, such as network file systems, have none.
pub fn page_cache_id(folder: &Path) -> io::Result<[u8; 16]> {
    let text = fs::read_to_string(BOOT_ID_PATH)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    Ok((boot ^ u128::from(disk_sequence(folder).unwrap_or(0))).to_be_bytes())
}

/// Returns the sequence number of the disk that a folder is on.
fn disk_sequence(folder: &Path) -> Option<u64> {
    let device = stat(folder).ok()?.st_dev;
    let device = Path::new(DEVICES_PATH).join(format!("{}:{}", major(device), minor(device)));
    // A partition is a folder in the folder of its disk.
    let device = device.canonicalize().ok()?;
    let of_disk = |folder: &Path| fs::read_to_string(folder.join("diskseq")).ok();
    let text = of_disk(&device).or_else(|| of_disk(device.parent()?))?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_stays_while_the_machine_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let id = page_cache_id(folder.path()).expect("an identity");
        assert_eq!(page_cache_id(folder.path()).expect("an identity"), id);
        assert_ne!(id, [0; 16]);
        // Files without a disk have one, too.
        page_cache_id(Path::new("/proc")).expect("an identity");
    }
}
