//! Guarantees of the nodes and the keyspace: enough replicas, and settings without which changes
//! that were acknowledged are lost or done twice.

use crate::error::{Error, Result};
use crate::name::{Mode, Name};
use crate::session::Cluster;
use std::collections::BTreeMap;

/// Settings of a node that matter, with their values.
const SETTINGS: &str = "SELECT name, value FROM system_views.settings \
    WHERE name IN ('commitlog_sync', 'paxos_variant')";

/// Part of the names of variants that serial reads cannot rely on.
const NOT_LINEARIZABLE: &str = "without_linearizable_reads";

/// A node's address, and its settings by name.
type NodeSettings = (String, BTreeMap<String, Option<String>>);

/// Replicas of each record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replicas {
    /// Number that the keyspace should have.
    wanted: usize,
    /// Number that the present nodes can have.
    possible: usize,
}

impl Replicas {
    /// Counts those of a keyspace, given the number of nodes in each data centre.
    fn of(replication: &BTreeMap<String, String>, nodes: &BTreeMap<String, usize>) -> Self {
        let every = replication.get("replication_factor").and_then(|text| factor(text));
        let total = nodes.values().sum();
        let is_simple =
            replication.get("class").is_some_and(|class| class.ends_with("SimpleStrategy"));
        if let (true, Some(wanted)) = (is_simple, every) {
            return Self { wanted, possible: wanted.min(total) };
        }
        let of_centres: BTreeMap<&str, usize> = match every {
            Some(every) => nodes.keys().map(|centre| (centre.as_str(), every)).collect(),
            None => replication
                .iter()
                .filter_map(|(centre, text)| Some((centre.as_str(), factor(text)?)))
                .collect(),
        };
        let possible = |(centre, wanted): (&&str, &usize)| {
            nodes.get(*centre).copied().unwrap_or_default().min(*wanted)
        };
        Self { wanted: of_centres.values().sum(), possible: of_centres.iter().map(possible).sum() }
    }

    fn majority(&self) -> usize {
        self.wanted / 2 + 1
    }
}

/// Returns the number of replicas of a data centre: `3`, or `3/1` if one of them is transient.
fn factor(text: &str) -> Option<usize> {
    text.split('/').next()?.parse().ok()
}

/// Checks that a keyspace that would be made, or is there, can have a majority of the replicas of
/// each record. Otherwise no statement succeeds.
pub(crate) async fn check_replication(
    cluster: &Cluster,
    name: &Name,
    new: Option<u8>,
) -> Result<()> {
    let nodes = cluster.nodes_of_data_centres();
    let present = replication(cluster, name).await?;
    let exists = present.is_some();
    let Some(replication) = present.or_else(|| {
        new.map(|replicas| BTreeMap::from([("replication_factor".into(), replicas.to_string())]))
    }) else {
        return Ok(());
    };
    let replicas = Replicas::of(&replication, &nodes);
    if replicas.possible >= replicas.majority() {
        return Ok(());
    }
    let keyspace = name.keyspace.clone();
    let advice = match exists {
        true => format!(
            "change it in cqlsh with a statement such as ALTER KEYSPACE {} WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}, or add nodes",
            crate::schema::quoted(name)
        ),
        false => "give a smaller number with --replication, or add nodes".to_owned(),
    };
    let Replicas { wanted, possible } = replicas;
    let majority = replicas.majority();
    Err(Error::Replication { keyspace, wanted, possible, majority, advice })
}

async fn replication(cluster: &Cluster, name: &Name) -> Result<Option<BTreeMap<String, String>>> {
    let statement = format!(
        "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{}'",
        name.keyspace
    );
    let row = cluster.find::<(BTreeMap<String, String>,)>(&statement).await?;
    Ok(row.map(|(replication,)| replication))
}

/// Returns a warning for each guarantee that is missing, and the error for one without which a
/// database in strict mode counts twice.
pub(crate) async fn warnings(cluster: &Cluster, name: &Name) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if let Some(replication) = replication(cluster, name).await? {
        let replicas = Replicas::of(&replication, &cluster.nodes_of_data_centres());
        warnings.extend(warning_of_replicas(&name.keyspace, &replicas));
    }
    let settings = cluster.ask_each_node::<(String, Option<String>)>(SETTINGS).await;
    let (unread, read): (Vec<_>, Vec<_>) =
        settings.into_iter().partition(|(_, rows)| rows.is_err());
    if let Some((node, Err(reason))) = unread.into_iter().next() {
        warnings.push(format!(
            "commitlog_sync and paxos_variant of node {node} were not checked: {reason}; a user needs \
             the right SELECT on system_views.settings for that"
        ));
    }
    let nodes: Vec<NodeSettings> =
        read.into_iter().map(|(node, rows)| (node, rows.into_iter().flatten().collect())).collect();
    warnings.extend(warning_of_settings(&nodes, name.mode)?);
    Ok(warnings)
}

fn warning_of_settings(nodes: &[NodeSettings], mode: Mode) -> Result<Option<String>> {
    let unfit = nodes_where(nodes, "paxos_variant", |value| value.contains(NOT_LINEARIZABLE));
    if let (Some(nodes), Mode::Strict) = (unfit, mode) {
        return Err(Error::PaxosVariant { nodes });
    }
    let unfit = nodes_where(nodes, "commitlog_sync", |value| value == "periodic");
    Ok(unfit.map(|nodes| {
        format!(
            "commitlog_sync is periodic on {nodes}: changes that were acknowledged are lost if all \
             replicas of a record end at once; set commitlog_sync: batch in cassandra.yaml"
        )
    }))
}

fn warning_of_replicas(keyspace: &str, replicas: &Replicas) -> Option<String> {
    let Replicas { wanted, possible } = *replicas;
    let spare = possible.saturating_sub(replicas.majority());
    (spare == 0).then(|| {
        format!(
            "the replication factor of keyspace {keyspace} is {wanted}, and the number of nodes that \
             can have a replica is {possible}: requests fail while one of them is away; a factor of \
             3 on three nodes avoids that"
        )
    })
}

/// Returns the nodes where a setting has an unfit value.
fn nodes_where(
    nodes: &[NodeSettings],
    setting: &str,
    is_unfit: impl Fn(&str) -> bool,
) -> Option<String> {
    let has_it = |(_, settings): &&NodeSettings| {
        settings.get(setting).and_then(Option::as_deref).is_some_and(&is_unfit)
    };
    let mut unfit = nodes.iter().filter(has_it);
    let (first, _) = unfit.next()?;
    Some(match unfit.count() {
        0 => format!("node {first}"),
        others => format!("node {first} and {others} more"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<V: Clone>(pairs: &[(&str, V)]) -> BTreeMap<String, V> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    }

    #[test]
    fn replicas_are_those_that_the_data_centres_have_nodes_for() {
        let topology = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");
        let simple = ("class", "org.apache.cassandra.locator.SimpleStrategy");
        for (replication, nodes, wanted, possible) in [
            (vec![topology, ("dc1", "3")], vec![("dc1", 3)], 3, 3),
            (vec![topology, ("dc1", "3")], vec![("dc1", 1)], 3, 1),
            (vec![topology, ("dc1", "3"), ("dc2", "2")], vec![("dc1", 5), ("dc2", 1)], 5, 4),
            (vec![topology, ("dc1", "3/1")], vec![("dc1", 2), ("dc2", 4)], 3, 2),
            (vec![topology, ("dc3", "3")], vec![("dc1", 2)], 3, 0),
            (vec![("replication_factor", "3")], vec![("dc1", 2), ("dc2", 4)], 6, 5),
            (vec![simple, ("replication_factor", "3")], vec![("dc1", 1), ("dc2", 1)], 3, 2),
        ] {
            let strings: Vec<_> =
                replication.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
            let found = Replicas::of(&map(&strings), &map(&nodes));
            assert_eq!(found, Replicas { wanted, possible }, "{replication:?} {nodes:?}");
        }
    }

    #[test]
    fn replicas_of_which_none_may_be_away_are_a_warning() {
        for (wanted, possible, warns) in
            [(1, 1, true), (2, 2, true), (3, 2, true), (3, 3, false), (5, 3, true), (5, 4, false)]
        {
            let warning = warning_of_replicas("k", &Replicas { wanted, possible });
            assert_eq!(warning.is_some(), warns, "{wanted} {possible}");
        }
    }

    #[test]
    fn nodes_with_an_unfit_setting_are_named() {
        let node = |address: &str, log: &str, paxos: Option<&str>| {
            let settings = [("commitlog_sync", Some(log)), ("paxos_variant", paxos)];
            (
                address.to_owned(),
                map(&settings.map(|(name, value)| (name, value.map(str::to_owned)))),
            )
        };
        let unfit = Some("v2_without_linearizable_reads_or_rejected_writes");
        let fit = [node("a", "batch", Some("v2")), node("b", "group", None)];
        let periodic = [node("a", "batch", None), node("b", "periodic", Some("v1"))];
        let weak = [node("a", "periodic", unfit), node("b", "periodic", unfit)];
        let warning =
            |nodes: &[_], mode| warning_of_settings(nodes, mode).map_err(|error| error.to_string());
        for mode in [Mode::Strict, Mode::Plain] {
            assert_eq!(warning(&fit, mode), Ok(None));
            let text = warning(&periodic, mode).unwrap().unwrap();
            assert!(text.starts_with("commitlog_sync is periodic on node b:"), "{text}");
        }
        let text = warning(&weak, Mode::Plain).unwrap().unwrap();
        assert!(text.starts_with("commitlog_sync is periodic on node a and 1 more:"), "{text}");
        let text = warning(&weak, Mode::Strict).unwrap_err();
        assert!(text.starts_with("paxos_variant of node a and 1 more is"), "{text}");
    }
}
