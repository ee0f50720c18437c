//! Usable memory of this process: the lowest limit of its control groups, else the machine's
//! memory.
//!
//! A container's limit is a control group's, and `/proc/meminfo` does not show it. Both versions of
//! the kernel's interface are read, even if both are in use. All groups from that of the process up
//! to the root are read, because each limits those below it.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Bytes assumed where the operating system reports nothing.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// Files in a group's folder that have its limit, by version. In the second version, the process is
/// slowed down almost to a stop over `high`, and killed over `max`.
const V1_LIMITS: &[&str] = &["memory.limit_in_bytes"];
const V2_LIMITS: &[&str] = &["memory.max", "memory.high"];

/// Folders of the groups unless `/proc/self/mountinfo` has others.
const V1_FOLDER: &str = "/sys/fs/cgroup/memory";
const V2_FOLDER: &str = "/sys/fs/cgroup";

/// Memory that a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableMemory {
    /// Number of bytes.
    pub bytes: u64,
    /// Whether a control group allows less than the machine has. Then the pages of files that the
    /// process reads and writes count too.
    pub is_limited: bool,
}

impl UsableMemory {
    /// Returns the memory that this process may use, as it was at the first call.
    pub fn of_process() -> Self {
        static FOUND: OnceLock<UsableMemory> = OnceLock::new();
        *FOUND.get_or_init(|| Self::find(Path::new("/")))
    }

    /// Returns `1 / share` of the memory, held between `min` and `max` bytes.
    pub fn share(self, share: u64, min: u64, max: u64) -> u64 {
        (self.bytes / share).clamp(min, max)
    }

    /// Reads the files below `root`, which tests choose.
    fn find(root: &Path) -> Self {
        let machine = machine_bytes(root);
        let group = group_limit(root);
        match (machine, group) {
            (Some(machine), Some(group)) if group < machine => {
                Self { bytes: group, is_limited: true }
            }
            (Some(bytes), _) => Self { bytes, is_limited: false },
            // Some systems express "no limit" by a very large one.
            (None, Some(group)) if group < i64::MAX as u64 / 2 => {
                Self { bytes: group, is_limited: true }
            }
            (None, _) => Self { bytes: UNKNOWN_BYTES, is_limited: false },
        }
    }
}

/// Returns the memory of the machine, in bytes.
fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the lowest limit of the groups of the process, in bytes.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    groups.lines().filter_map(|line| limit_of_line(root, line, &mounts)).min()
}

/// Returns the lowest limit of the group in a line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`,
/// and of those above it.
fn limit_of_line(root: &Path, line: &str, mounts: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, limits) = if id == "0" && controllers.is_empty() {
        (Mount::find(mounts, |kind, _| kind == "cgroup2", V2_FOLDER), V2_LIMITS)
    } else if controllers.split(',').any(|controller| controller == "memory") {
        let is_memory = |kind: &str, options: &str| {
            kind == "cgroup" && options.split(',').any(|option| option == "memory")
        };
        (Mount::find(mounts, is_memory, V1_FOLDER), V1_LIMITS)
    } else {
        return None;
    };
    let top = root.join(mount.folder.strip_prefix("/").unwrap_or(&mount.folder));
    let mut folder = top.join(mount.below(Path::new(path)));
    let mut least = None;
    loop {
        let here = limits.iter().filter_map(|file| limit_in(&folder.join(file))).min();
        least = [least, here].into_iter().flatten().min();
        if folder == top || !folder.pop() {
            return least;
        }
    }
}

/// Returns the number in a file, unless it is `max` or the file is missing.
fn limit_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A mounted hierarchy of groups.
struct Mount {
    /// The group that is visible at the folder: not the root group in a container without a name
    /// space for groups.
    group: PathBuf,
    folder: PathBuf,
}

impl Mount {
    /// Returns the first mount in the lines of `/proc/self/mountinfo` for which `is_it` returns
    /// true, given its kind of file system and that one's options.
    fn find(mounts: &str, is_it: impl Fn(&str, &str) -> bool, default: &str) -> Self {
        let read = |line: &str| {
            let (mount, system) = line.split_once(" - ")?;
            let mut system = system.split(' ');
            let (kind, _source, options) = (system.next()?, system.next()?, system.next()?);
            let mut mount = mount.split(' ').skip(3);
            let (group, folder) = (mount.next()?.into(), mount.next()?.into());
            is_it(kind, options).then_some(Self { group, folder })
        };
        let default = || Self { group: "/".into(), folder: default.into() };
        mounts.lines().find_map(read).unwrap_or_else(default)
    }

    /// Returns the path of a group below the folder; an empty path, for the folder itself, if the
    /// group is not visible there.
    fn below(&self, group: &Path) -> PathBuf {
        let inner = group.strip_prefix(&self.group).unwrap_or(Path::new(""));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        // A group outside of the name space begins with `/..`.
        let inner = inner.strip_prefix("/").unwrap_or(inner);
        if inner.components().all(is_plain) { inner.to_owned() } else { PathBuf::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "MemTotal:        8388608 kB\nMemFree:  1 kB\n";
    const MACHINE_BYTES: u64 = 8 << 30;

    /// Creates files below a folder, as on a real system.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
            fs::write(path, text).expect("a file");
        }
        root
    }

    fn found(files: &[(&str, &str)]) -> UsableMemory {
        UsableMemory::find(system(files).path())
    }

    fn limited(bytes: u64) -> UsableMemory {
        UsableMemory { bytes, is_limited: true }
    }

    const WHOLE_MACHINE: UsableMemory = UsableMemory { bytes: MACHINE_BYTES, is_limited: false };

    #[test]
    fn without_groups_it_is_the_machines() {
        assert_eq!(found(&[("proc/meminfo", MACHINE)]), WHOLE_MACHINE);
        let root = ("proc/self/cgroup", "0::/\n");
        assert_eq!(found(&[("proc/meminfo", MACHINE), root]), WHOLE_MACHINE);
    }

    #[test]
    fn the_least_limit_up_to_the_root_counts_in_version_2() {
        let files = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("sys/fs/cgroup/outer/memory.max", "67108864\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
        ];
        assert_eq!(found(&files), limited(64 << 20));
        let inner = [files[0], files[1], files[2], ("sys/fs/cgroup/outer/inner/memory.max", "100")];
        assert_eq!(found(&inner), limited(100));
        let high = ("sys/fs/cgroup/outer/memory.high", "50000000\n");
        assert_eq!(found(&[&files[..], &[high]].concat()), limited(50_000_000));
    }

    #[test]
    fn the_least_limit_up_to_the_root_counts_in_version_1() {
        let unlimited = "9223372036854771712\n";
        let files = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", unlimited),
        ];
        assert_eq!(found(&files), limited(1 << 30));
        assert_eq!(found(&[files[0], files[1], files[2], files[4]]), WHOLE_MACHINE);
    }

    #[test]
    fn groups_are_looked_for_where_they_are_mounted() {
        let mounts = "30 1 0:1 / /proc rw - proc proc rw\n\
            41 30 0:2 / /mnt/two rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
            42 30 0:3 /docker/abc /mnt/one rw - cgroup cgroup rw,memory\n";
        let files = [
            ("proc/meminfo", MACHINE),
            ("proc/self/mountinfo", mounts),
            ("proc/self/cgroup", "4:memory:/docker/abc/d\n0::/e\n"),
            ("mnt/one/memory.limit_in_bytes", "2000000"),
            ("mnt/one/d/memory.limit_in_bytes", "3000000"),
            ("mnt/two/e/memory.max", "4000000"),
        ];
        assert_eq!(found(&files), limited(2_000_000));
        assert_eq!(found(&[files[0], files[1], files[2], files[4]]), limited(3_000_000));
        assert_eq!(found(&[files[0], files[1], files[2], files[5]]), limited(4_000_000));
    }

    #[test]
    fn a_group_that_is_not_to_be_seen_counts_as_the_one_that_is() {
        for group in ["/elsewhere/x", "/../other", "/docker/abcd"] {
            let line = format!("0::{group}\n");
            let files = [
                ("proc/meminfo", MACHINE),
                ("proc/self/mountinfo", "41 30 0:2 /docker/abc /mnt rw - cgroup2 cgroup2 rw\n"),
                ("proc/self/cgroup", line.as_str()),
                ("mnt/memory.max", "5000000"),
                ("other/memory.max", "1"),
            ];
            assert_eq!(found(&files), limited(5_000_000), "{group}");
        }
    }

    #[test]
    fn a_limit_above_the_machine_is_none() {
        let files = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "99999999999"),
        ];
        assert_eq!(found(&files), WHOLE_MACHINE);
    }

    #[test]
    fn a_system_that_says_nothing_or_nonsense_has_the_memory_assumed() {
        let unknown = UsableMemory { bytes: UNKNOWN_BYTES, is_limited: false };
        assert_eq!(found(&[]), unknown);
        let files = [
            ("proc/meminfo", "MemTotal: many"),
            ("proc/self/mountinfo", "x - y\n- -\n"),
            ("proc/self/cgroup", "\n:::\n0:\n0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "-1"),
        ];
        assert_eq!(found(&files), unknown);
    }

    #[test]
    fn a_share_keeps_to_its_bounds() {
        let memory = limited(64 << 20);
        assert_eq!(memory.share(16, 0, u64::MAX), 4 << 20);
        assert_eq!(memory.share(16, 5 << 20, u64::MAX), 5 << 20);
        assert_eq!(memory.share(16, 0, 3 << 20), 3 << 20);
    }
}
