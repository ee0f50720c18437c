//! Files of the nodes: the programs from Maven Central, and the configuration of each node.

use super::secure::Security;
use crate::programs::target_folder;
use crate::requirements;
use anyhow::{Context, Result};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Release of Cassandra.
const RELEASE: &str = "5.0.9";

/// Agent of Java that measures objects; Cassandra needs it.
const AGENT: &str = "jamm-0.4.0.jar";

/// Options of Java: little memory, a quick start. The suites make some hundreds of tables, of which
/// each takes more than a megabyte of the heap; a node without memory ends, so that the tests fail
/// with its reason in the log.
const JAVA_OPTIONS: &[&str] = &[
    "-Xms512m",
    "-Xmx1536m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-Xss256k",
    "-XX:-UsePerfData",
    "-XX:ReservedCodeCacheSize=96m",
    "-XX:TieredStopAtLevel=1",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1000",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.consistent.rangemovement=false",
];

/// Packages of Java's modules that Cassandra uses.
const EXPORTS: &str = "java.base/jdk.internal.misc java.management/com.sun.jmx.remote.security \
    java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql java.base/java.lang.ref \
    jdk.unsupported/sun.misc java.base/jdk.internal.ref java.base/sun.nio.ch";

/// Packages whose private parts it uses.
const OPENS: &str = "java.base/java.lang.module java.base/jdk.internal.loader \
    java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.math \
    java.base/jdk.internal.module java.base/jdk.internal.util.jar \
    jdk.management/com.sun.management.internal java.base/sun.nio.ch java.base/java.io \
    java.base/java.nio java.base/java.util.concurrent java.base/java.util \
    java.base/java.util.concurrent.atomic java.base/java.lang java.base/java.math \
    java.base/java.lang.reflect java.base/java.net";

/// Settings that all nodes share. `commitlog_sync: batch` is the one on which acknowledged writes
/// depend: with `periodic` they are lost when all replicas are killed. Tokens, seeds, authenticator
/// and delays are for tests only.
const SETTINGS: &str = "\
cluster_name: tyrant-test
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
auto_bootstrap: false
commitlog_sync: batch
commitlog_segment_size: 8MiB
commitlog_total_space: 256MiB
endpoint_snitch: GossipingPropertyFileSnitch
storage_port: 7000
native_transport_port: 9042
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
role_manager: CassandraRoleManager
paxos_variant: v2
paxos_state_purging: repaired
memtable_heap_space: 96MiB
memtable_offheap_space: 64MiB
memtable_allocation_type: heap_buffers
memtable:
  configurations:
    skiplist: {class_name: SkipListMemtable}
    trie: {class_name: TrieMemtable}
    default: {inherits: trie}
sstable: {selected_format: bti}
storage_compatibility_mode: NONE
key_cache_size: 4MiB
row_cache_size: 0MiB
counter_cache_size: 2MiB
file_cache_size: 32MiB
networking_cache_size: 32MiB
concurrent_reads: 8
concurrent_writes: 16
concurrent_counter_writes: 8
concurrent_compactors: 1
native_transport_max_threads: 32
disk_access_mode: mmap_index_only
auto_snapshot: false
read_request_timeout: 5s
write_request_timeout: 2s
cas_contention_timeout: 1s
range_request_timeout: 10s
dynamic_snitch: false
uuid_sstable_identifiers_enabled: true
";

const LOGBACK: &str = "\
<configuration>
  <appender name=\"FILE\" class=\"ch.qos.logback.core.FileAppender\">
    <file>${cassandra.logdir}/system.log</file>
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level=\"INFO\"><appender-ref ref=\"FILE\" /></root>
</configuration>
";

/// Resolves Cassandra once, from Maven Central. Returns the folder of its programs.
pub(super) fn classpath() -> Result<PathBuf> {
    let folder = target_folder().join("cassandra");
    let programs = folder.join("lib");
    fs::create_dir_all(&folder).context("cannot write to the target folder")?;
    requirements::prepared(&folder, RELEASE, || {
        requirements::install_java()?;
        let pom = folder.join("pom.xml");
        let dependency = format!(
            "<dependency><groupId>org.apache.cassandra</groupId>\
             <artifactId>cassandra-all</artifactId><version>{RELEASE}</version></dependency>"
        );
        let text = format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\
             <modelVersion>4.0.0</modelVersion><groupId>tyrant</groupId>\
             <artifactId>cassandra</artifactId><version>1</version>\
             <dependencies>{dependency}</dependencies></project>\n"
        );
        fs::write(&pom, text).context("cannot write to the target folder")?;
        if programs.exists() {
            fs::remove_dir_all(&programs).context("cannot remove the old programs")?;
        }
        let mut resolve = Command::new("mvn");
        resolve
            .args(["--quiet", "--batch-mode", "--file"])
            .arg(&pom)
            .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(format!("-DoutputDirectory={}", programs.display()));
        Ok(vec![resolve])
    })?;
    Ok(programs)
}

/// Folders and addresses of nodes.
pub(super) struct Layout {
    pub(super) folder: PathBuf,
    pub(super) count: u8,
    programs: PathBuf,
    /// Files of the nodes, if they require TLS and a password.
    pub(super) security: Option<Security>,
    /// Second and third byte of the addresses: other workspaces have other ones.
    network: [u8; 2],
}

impl Layout {
    pub(super) fn new(folder: PathBuf, count: u8, programs: PathBuf) -> Self {
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        let [first, second, ..] = hasher.finish().to_le_bytes();
        Self { folder, count, programs, security: None, network: [first | 1, second] }
    }

    /// Returns the folder of a node.
    pub(super) fn of(&self, node: u8) -> PathBuf {
        self.folder.join(node.to_string())
    }

    pub(super) fn address(&self, node: u8) -> Ipv4Addr {
        let [second, third] = self.network;
        Ipv4Addr::new(127, second, third, node)
    }

    /// Writes the configuration of a node.
    pub(super) fn write(&self, node: u8) -> Result<()> {
        let folder = self.of(node);
        fs::create_dir_all(&folder).context("cannot make the folder of a node")?;
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))
        };
        let seeds = (1..=self.count).map(|seed| format!("{}:7000", self.address(seed)));
        let seeds = seeds.collect::<Vec<_>>().join(",");
        let address = self.address(node);
        let token =
            i128::from(i64::MIN) + (1i128 << 64) / i128::from(self.count) * i128::from(node - 1);
        let of = |name: &str| folder.join(name).display().to_string();
        let own = format!(
            "initial_token: {token}\nlisten_address: {address}\nrpc_address: {address}\n\
             data_file_directories: [{}]\ncommitlog_directory: {}\nhints_directory: {}\n\
             saved_caches_directory: {}\ncdc_raw_directory: {}\nseed_provider:\n  \
             - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
             parameters: [{{seeds: \"{seeds}\"}}]\n",
            of("data"),
            of("commitlog"),
            of("hints"),
            of("saved_caches"),
            of("cdc_raw"),
        );
        let settings = match &self.security {
            None => SETTINGS.to_owned(),
            Some(security) => security.settings(SETTINGS),
        };
        write("cassandra.yaml", &format!("{settings}{own}"))?;
        write("cassandra-rackdc.properties", "dc=dc1\nrack=rack1\n")?;
        write("logback.xml", LOGBACK)
    }

    /// Returns the arguments of Java for a node.
    pub(super) fn arguments(&self, node: u8) -> Vec<String> {
        let folder = self.of(node);
        let own = |option: &str, path: &Path| format!("{option}{}", path.display());
        let mut arguments = vec![own("-javaagent:", &self.programs.join(AGENT))];
        arguments.extend(JAVA_OPTIONS.iter().map(|option| (*option).to_owned()));
        for (option, packages) in [("--add-exports", EXPORTS), ("--add-opens", OPENS)] {
            for package in packages.split_whitespace() {
                arguments.push(option.to_owned());
                arguments.push(format!("{package}=ALL-UNNAMED"));
            }
        }
        arguments.extend([
            own("-Dcassandra.config=file://", &folder.join("cassandra.yaml")),
            own("-Dcassandra.storagedir=", &folder),
            own("-Dcassandra.logdir=", &folder.join("logs")),
            own("-Dlogback.configurationFile=", &folder.join("logback.xml")),
            "-classpath".to_owned(),
            format!("{}:{}/*", folder.display(), self.programs.display()),
            "org.apache.cassandra.service.CassandraDaemon".to_owned(),
        ]);
        arguments
    }
}
