//! Memory cgroup: limits the memory of processes, including their pages in the page cache.
//!
//! Both versions of the kernel's interface are supported. Both require root.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const V1_ROOT: &str = "/sys/fs/cgroup/memory";
const V2_ROOT: &str = "/sys/fs/cgroup";

/// Longest time to retry the removal of a group that still has processes.
const REMOVE_PATIENCE: Duration = Duration::from_secs(5);

/// Most attempts to reclaim a group's pages.
const RECLAIM_ATTEMPTS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A group of processes that share a memory limit. Dropping it removes the group, so its processes
/// must have ended.
#[derive(Debug)]
pub struct MemoryCgroup {
    version: Version,
    folder: PathBuf,
}

impl MemoryCgroup {
    /// Creates a group limited to `limit` bytes, without swap.
    pub fn new(name: &str, limit: u64) -> Result<Self> {
        let (version, root) = find()?;
        let folder = root.join(name);
        fs::create_dir(&folder).with_context(|| {
            format!("cannot make the cgroup {}: are you root?", folder.display())
        })?;
        let group = Self { version, folder };
        match version {
            Version::V1 => {
                group.write("memory.limit_in_bytes", &limit.to_string())?;
                // Missing if swap is not accounted.
                let _ = group.write("memory.memsw.limit_in_bytes", &limit.to_string());
            }
            Version::V2 => {
                group.write("memory.max", &limit.to_string())?;
                let _ = group.write("memory.swap.max", "0");
            }
        }
        Ok(group)
    }

    /// Returns the same command, run inside the group. A shell joins the group and then becomes the
    /// program, so all its pages are accounted to the group.
    #[must_use]
    pub fn enclose(&self, command: &Command) -> Command {
        let mut enclosed = Command::new("sh");
        enclosed
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.folder.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args());
        enclosed
    }

    /// Returns the memory of the group's processes in bytes: their own and their pages in the page
    /// cache.
    pub fn usage(&self) -> Result<u64> {
        let file = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.trim().parse().with_context(|| format!("{}: {text}", path.display()))
    }

    /// Reclaims all pages that can be read again; changed pages must be on the disk already.
    /// Returns the bytes left, which are the processes' own memory.
    pub fn reclaim(&self) -> Result<u64> {
        let mut left = self.usage()?;
        for _ in 0..RECLAIM_ATTEMPTS {
            // The kernel fails if it reclaims less than requested, so only the usage counts.
            let _ = match self.version {
                Version::V1 => self.write("memory.force_empty", "0"),
                Version::V2 => self.write("memory.reclaim", &left.to_string()),
            };
            let now = self.usage()?;
            // Programs touch their pages again at once, so the usage never becomes 0.
            if now + (left >> 6) >= left {
                return Ok(now);
            }
            left = now;
        }
        Ok(left)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_PATIENCE;
        while let Err(error) = fs::remove_dir(&self.folder) {
            if Instant::now() > deadline {
                eprintln!("the cgroup {} stays: {error}", self.folder.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the folder in which this machine has memory cgroups.
fn find() -> Result<(Version, PathBuf)> {
    if Path::new(V1_ROOT).join("memory.limit_in_bytes").exists() {
        return Ok((Version::V1, V1_ROOT.into()));
    }
    let Ok(controllers) = fs::read_to_string(Path::new(V2_ROOT).join("cgroup.controllers")) else {
        bail!("there are no memory cgroups: neither {V1_ROOT} nor {V2_ROOT}/cgroup.controllers");
    };
    ensure!(
        controllers.split_whitespace().any(|controller| controller == "memory"),
        "{V2_ROOT}/cgroup.controllers does not offer memory, only: {controllers}"
    );
    let subtree = Path::new(V2_ROOT).join("cgroup.subtree_control");
    fs::write(&subtree, "+memory")
        .with_context(|| format!("cannot write {}: are you root?", subtree.display()))?;
    Ok((Version::V2, V2_ROOT.into()))
}
