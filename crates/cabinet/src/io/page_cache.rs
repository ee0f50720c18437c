//! Identity of the page cache that the files of a folder have.
//!
//! Bytes that a process has written outlive it in the page cache, without a sync. They do not
//! outlive a restart of the machine, nor the removal of a disk, as of a volume that is detached
//! from one machine and attached again. A reader of the files of a killed process compares this
//! identity.

use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor, stat, statx};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// File in which Linux identifies this boot, by a UUID.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Folder in which Linux describes its block devices, by their numbers.
const DEVICES_PATH: &str = "/sys/dev/block";

/// Folder in which Linux describes its block devices, by their names.
const NAMED_DEVICES_PATH: &str = "/sys/class/block";

/// Folder of the files of devices.
const DEVICE_FILES_PATH: &str = "/dev";

/// File in which Linux lists the mounts of this process.
const MOUNTS_PATH: &str = "/proc/self/mountinfo";

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
    let device = device.canonicalize().or_else(|_| mounted_device(folder).ok_or(())).ok()?;
    // A partition is a folder in the folder of its disk.
    let of_disk = |folder: &Path| fs::read_to_string(folder.join("diskseq")).ok();
    let text = of_disk(&device).or_else(|| of_disk(device.parent()?))?;
    text.trim().parse().ok()
}

/// Returns the folder that describes the block device from which the file system of a folder was
/// mounted. btrfs gives its files the number of a device that does not exist.
fn mounted_device(folder: &Path) -> Option<PathBuf> {
    let found = statx(CWD, folder, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    if !StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
        return None;
    }
    let mounts = fs::read_to_string(MOUNTS_PATH).ok()?;
    let source = Path::new(source_of(&mounts, found.stx_mnt_id)?);
    // The name may be a link, as to a volume of the device mapper. A container may lack it.
    let device = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let name: &OsStr = device.strip_prefix(DEVICE_FILES_PATH).ok()?.file_name()?;
    Path::new(NAMED_DEVICES_PATH).join(name).canonicalize().ok()
}

/// Returns the source of the mount with this number in a list of mounts, such as `/dev/sdb1`.
fn source_of(mounts: &str, mount_id: u64) -> Option<&str> {
    let is_it =
        |line: &&str| line.split(' ').next().and_then(|id| id.parse().ok()) == Some(mount_id);
    // A varying number of fields comes before ` - `, then the kind, the source, and options.
    let (_, after) = mounts.lines().find(is_it)?.split_once(" - ")?;
    after.split(' ').nth(1)
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
    #[test]
    fn the_source_of_a_mount_is_found_by_its_number() {
        let mounts = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                      122 27 0:44 /data /mnt/a\\040b rw shared:5 master:1 - btrfs /dev/loop0 rw\n\
                      2 27 0:45 / /dev/shm rw - tmpfs\n";
        assert_eq!(source_of(mounts, 22), Some("proc"));
        assert_eq!(source_of(mounts, 122), Some("/dev/loop0"));
        // No source, and no such mount.
        assert_eq!(source_of(mounts, 2), None);
        assert_eq!(source_of(mounts, 12), None);
    }
}
