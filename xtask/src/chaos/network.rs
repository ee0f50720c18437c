//! Network: hosts on this machine as network namespaces, each with a link to a common bridge.

use crate::programs::{run_quietly, succeeds};
use anyhow::{Context, Result};
use std::fs::File;
use std::process::Command;

/// Network of the hosts. The last byte of an address is the number of the host.
const NETWORK: &str = "10.213.0";

/// Number of the bridge, in place of a host's.
pub(super) const HUB: u8 = 254;

/// Name of a host's end of its link.
const HOST_END: &str = "eth0";

/// Hosts and the bridge between them, removed when dropped.
pub(super) struct Network {
    /// Prefix of the names of the namespaces.
    prefix: String,
    hosts: u8,
}

/// State of a link, in both directions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    Good,
    Cut,
    /// Limited to this many kilobits per second.
    Throttled(u64),
}

impl Network {
    /// Creates hosts numbered from 1 on.
    pub(super) fn new(hosts: u8) -> Result<Self> {
        let network = Self { prefix: format!("tyrant-{}", std::process::id()), hosts };
        let hub = network.hub();
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"])?;
        ip(&["-n", &hub, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "br0", "up"])?;
        ip(&["-n", &hub, "address", "add", &format!("{}/24", address(HUB)), "dev", "br0"])?;
        for host in 1..=hosts {
            let (space, end) = (network.space(host), hub_end(host));
            ip(&["netns", "add", &space])?;
            let pair = ["type", "veth", "peer", "name", HOST_END, "netns", &space];
            ip(&[&["-n", &hub, "link", "add", &end], &pair[..]].concat())?;
            ip(&["-n", &hub, "link", "set", &end, "master", "br0", "up"])?;
            let address = format!("{}/24", address(host));
            ip(&["-n", &space, "address", "add", &address, "dev", HOST_END])?;
            ip(&["-n", &space, "link", "set", HOST_END, "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    /// Opens the namespace of the bridge.
    pub(super) fn open_hub(&self) -> Result<File> {
        let path = format!("/run/netns/{}", self.hub());
        File::open(&path).with_context(|| format!("cannot open {path}"))
    }

    fn space(&self, host: u8) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// Returns a command that runs a program on a host, without a process in between.
    pub(super) fn command(&self, host: u8) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(host)]);
        command
    }

    /// Sets the state of the link of a host.
    pub(super) fn set_link(&self, host: u8, link: Link) -> Result<()> {
        let (hub, space, end) = (self.hub(), self.space(host), hub_end(host));
        let state = if matches!(link, Link::Cut) { "down" } else { "up" };
        ip(&["-n", &hub, "link", "set", &end, state])?;
        for (space, device) in [(&*hub, &*end), (&*space, HOST_END)] {
            let on = ["tc", "-n", space, "qdisc"];
            let root = ["dev", device, "root"];
            // There may be none.
            succeeds(&[&on[..], &["del"], &root].concat());
            let shape = match link {
                Link::Good | Link::Cut => continue,
                Link::Throttled(kilobits) => {
                    format!("tbf rate {kilobits}kbit burst 32k latency 500ms")
                }
            };
            let shape: Vec<&str> = shape.split(' ').collect();
            run_quietly(&[&on[..], &["add"], &root, &shape].concat())?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Links, addresses and the bridge are removed with their namespace.
        for space in (1..=self.hosts).map(|host| self.space(host)).chain([self.hub()]) {
            let _ = ip(&["netns", "del", &space]);
        }
    }
}

/// Returns the address of a host.
pub(super) fn address(host: u8) -> String {
    format!("{NETWORK}.{host}")
}

/// Returns the bridge's end of the link of a host.
fn hub_end(host: u8) -> String {
    format!("host{host}")
}

fn ip(arguments: &[&str]) -> Result<()> {
    run_quietly(&[&["ip"], arguments].concat()).context("cannot create the network")
}
