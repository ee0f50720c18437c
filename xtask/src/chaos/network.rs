//! Hosts of their own on this machine: network namespaces, each with a link to a common bridge.

use crate::programs::{run_quietly, succeeds};
use anyhow::{Context, Result};
use std::fs::File;
use std::process::Command;

/// The network of the hosts; the last byte of an address is the number of its host.
const NETWORK: &str = "10.213.0";

/// The bridge itself, in place of the number of a host.
pub(super) const HUB: u8 = 254;

/// Name of a host's end of its link.
const HOST_END: &str = "eth0";

/// Hosts and the bridge between them; gone when dropped.
pub(super) struct Network {
    /// Before the names of its namespaces.
    prefix: String,
    hosts: u8,
}

/// What a link does to what passes it, in both directions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    Good,
    Cut,
    /// So many kilobits a second.
    Throttled(u64),
}

impl Network {
    /// Makes hosts with the numbers from 1 on.
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

    /// The network of the bridge.
    pub(super) fn open_hub(&self) -> Result<File> {
        let path = format!("/run/netns/{}", self.hub());
        File::open(&path).with_context(|| format!("cannot open {path}"))
    }

    fn space(&self, host: u8) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// A command that runs a program on a host. The process is the program's own.
    pub(super) fn command(&self, host: u8) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(host)]);
        command
    }

    /// Has the link of a host be so from now on.
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
        // What ends with its namespace: links, addresses, the bridge.
        for space in (1..=self.hosts).map(|host| self.space(host)).chain([self.hub()]) {
            let _ = ip(&["netns", "del", &space]);
        }
    }
}

/// The address of a host.
pub(super) fn address(host: u8) -> String {
    format!("{NETWORK}.{host}")
}

/// The bridge's end of the link of a host.
fn hub_end(host: u8) -> String {
    format!("host{host}")
}

fn ip(arguments: &[&str]) -> Result<()> {
    run_quietly(&[&["ip"], arguments].concat()).context("making a network")
}
