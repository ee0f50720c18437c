//! Privileges: becomes another user of the system, for good.

use anyhow::{Context, Result, bail};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// File with the users of the system.
const USERS: &str = "/etc/passwd";

/// File with the groups of the system.
const GROUPS: &str = "/etc/group";

/// Makes the process one of this user, with the groups of that user alone. The process must have
/// one thread: later threads inherit its user.
pub(crate) fn drop_to(name: &str) -> Result<()> {
    if !geteuid().is_root() {
        bail!("{name} requires root: start the server as root, or leave the setting out");
    }
    let (uid, gid) = find(name)?;
    let threads = std::fs::read_dir("/proc/self/task").context("cannot count the threads")?;
    if threads.count() != 1 {
        bail!("the process has several threads already");
    }
    let mut groups = groups(&read(GROUPS)?, name);
    groups.insert(0, gid);
    let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let failed = || format!("cannot become the user {name}");
    set_thread_groups(&groups).with_context(failed)?;
    set_thread_res_gid(gid, gid, gid).with_context(failed)?;
    set_thread_res_uid(uid, uid, uid).with_context(failed)?;
    if !uid.is_root() && set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok() {
        bail!("the process could become root again");
    }
    Ok(())
}

/// Returns the ids of a user and of its group.
pub(crate) fn find(name: &str) -> Result<(u32, u32)> {
    let found = user(&read(USERS)?, name);
    found.with_context(|| format!("there is no user {name} in {USERS}: name another, or add it"))
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Returns the ids of a user and of its group in the text of [`USERS`].
fn user(text: &str, name: &str) -> Option<(u32, u32)> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            [found, _, uid, gid, ..] if found == name => {
                Some((uid.parse().ok()?, gid.parse().ok()?))
            }
            _ => None,
        }
    })
}

/// Returns the ids of the groups that name a user as their member, in the text of [`GROUPS`].
fn groups(text: &str, name: &str) -> Vec<u32> {
    let group = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            [_, _, gid, members] if members.split(',').any(|member| member == name) => {
                gid.parse().ok()
            }
            _ => None,
        }
    };
    text.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_ids_and_groups_of_the_files() {
        let users = "root:x:0:0:root:/root:/bin/sh\ntyrant:x:101:102::/:/bin/false\nbad:x:y:1::\n";
        assert_eq!(user(users, "tyrant"), Some((101, 102)));
        assert_eq!((user(users, "tyran"), user(users, "bad")), (None, None));
        let groups_of =
            |name| groups("a:x:5:tyrant,x\nb:x:6:\nc:x:7:x,tyrant\nd:x:8:tyrants\n", name);
        assert_eq!(groups_of("tyrant"), [5, 7]);
        assert!(groups_of("root").is_empty());
    }
}
