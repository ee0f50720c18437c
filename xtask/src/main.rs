//! Commands of the project, run as `cargo xtask NAME`.
//!
//! Checks that `cargo test` can run stay there. These commands need more than the toolchain:
//! third-party clients, kills of the server, a full disk, fuzzing; and `tidy`, which reads all of
//! the source.

mod backup;
mod benchmark;
mod capi;
mod cassandra;
#[path = "../../crates/tls/tests/support/mod.rs"]
mod certificates;
#[path = "../../crates/compare/src/cgroup.rs"]
#[expect(unreachable_pub, reason = "it is the benchmarks'")]
mod cgroup;
mod chaos;
mod clients;
mod cold_scans;
mod console;
mod crash;
mod differential;
mod docs;
mod faults;
mod first_minute;
mod full_disk;
mod fuzz;
mod languages;
mod library;
mod lua_programs;
#[path = "../../crates/compare/src/measurement.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is the benchmarks', which write it")]
mod measurement;
mod memcached;
mod metrics;
mod misc;
mod nightly;
mod package;
mod peer;
#[path = "../../bin/tests/end_to_end/ports.rs"]
mod ports;
mod programs;
mod python;
mod random;
mod redis_benchmark;
mod requirements;
mod site;
mod small_memory;
mod test;
mod test_binaries;
mod tidy;
mod tls_connections;
mod tls_scan;
mod webdav;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use programs::Profile;
use std::process::ExitCode;

/// Commands of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Install what the tests need and run all of them.
    Test(test::Options),
    /// Run the tests of databases in a cluster over nodes of Cassandra, which it starts.
    ClusterTest {
        /// Set the number of nodes.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
        nodes: u8,
        /// Run this part alone.
        #[arg(long)]
        only: Option<cassandra::Suite>,
        /// Kill nodes under load too, which takes three.
        #[arg(long)]
        chaos: bool,
    },
    /// Build the library for C, and run its tests and examples.
    Capi(capi::Options),
    /// Run third-party memcached, HTTP and Tokyo Tyrant clients against the server.
    Clients(Build),
    /// Kill the server under load many times, and check for lost writes and parts of transactions.
    Crash {
        #[command(flatten)]
        rounds: crash::Rounds,
        #[command(flatten)]
        build: Build,
    },
    /// Run the same random conversations with memcached and the server, and compare.
    Memcached {
        /// Begin with this seed.
        #[arg(long, default_value_t = differential::SEED)]
        seed: u64,
        /// Set the number of conversations with each kind of database.
        #[arg(long, default_value_t = differential::CONVERSATIONS)]
        conversations: u64,
        #[command(flatten)]
        build: Build,
    },
    /// Run the same random conversations with Redis and the server, and compare.
    Redis {
        /// Begin with this seed.
        #[arg(long, default_value_t = differential::SEED)]
        seed: u64,
        /// Set the number of conversations with each kind of database.
        #[arg(long, default_value_t = differential::REDIS_CONVERSATIONS)]
        conversations: u64,
        #[command(flatten)]
        build: Build,
    },
    /// Run Redis's own benchmark against the server, Redis and Valkey, and print processor times.
    RedisBenchmark {
        /// Set the number of rounds.
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        #[command(flatten)]
        build: Build,
    },
    /// Fill the disk under the server (a small tmpfs; needs root), and check for lost writes.
    FullDisk {
        /// Set the size of the disk, in MiB.
        #[arg(long, default_value_t = full_disk::SIZE_MIB)]
        size_mib: u32,
        #[command(flatten)]
        build: Build,
    },
    /// Run the server in a memory cgroup of 64 MiB (needs root), and check that it survives.
    SmallMemory {
        /// Set the number of records in each kind of database [default: by the build].
        #[arg(long)]
        records: Option<u64>,
        /// Put this number of small records, of which the index takes more memory than it may.
        #[arg(long, default_value_t = small_memory::SMALL_RECORDS)]
        small_records: u64,
        /// Set the limit of memory while the small records are put, in MiB.
        #[arg(long, default_value_t = small_memory::MEMORY_MIB)]
        load_mib: u64,
        /// Put small records alone.
        #[arg(long)]
        only_small: bool,
        /// Call functions of scripts alone.
        #[arg(long, conflicts_with = "only_small")]
        only_scripts: bool,
        /// Send floods of wrong logins, scripts and requests of WebDAV alone.
        #[arg(long, conflicts_with_all = ["only_small", "only_scripts"])]
        only_floods: bool,
        #[command(flatten)]
        build: Build,
    },
    /// Export databases larger than memory in memory cgroups (needs root), and compare with `cat`.
    ColdScans {
        #[command(flatten)]
        options: cold_scans::Options,
        #[command(flatten)]
        build: Build,
    },
    /// Run the experiments beside memcached, Redis, MariaDB and embedded stores, and write
    /// `docs/benchmarks.md` and its charts.
    Benchmark(benchmark::Options),
    /// Back up a server under writes, restore, and check that the result is a past state.
    Backup {
        #[command(flatten)]
        load: backup::Load,
        #[command(flatten)]
        build: Build,
    },
    /// Kill servers that replicate each other, cut and slow their links (needs root), and compare
    /// them.
    Chaos {
        /// Set the duration, in seconds.
        #[arg(long, default_value_t = chaos::SECONDS)]
        seconds: u64,
        /// Choose the faults by this seed; 0 takes a new one.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Encrypt the replication, and require a user of replicas and clients.
        #[arg(long)]
        tls: bool,
        #[command(flatten)]
        build: Build,
    },
    /// Start and end nodes of Apache Cassandra on loopback, from Maven Central.
    #[command(subcommand)]
    Cassandra(cassandra::Action),
    /// Kill nodes of Cassandra under the load of two servers, and check for lost writes.
    CassandraChaos {
        /// Set the number of writes to acknowledge in each phase.
        #[arg(long, default_value_t = cassandra::chaos::WRITES)]
        writes: usize,
        /// Set the kind of the database.
        #[arg(long, value_enum, default_value = "tch")]
        kind: cassandra::chaos::Kind,
        #[command(flatten)]
        build: Build,
    },
    /// Damage databases, and check every response against the acknowledged writes.
    Damage(Rounds),
    /// Detach volumes after a kill, and attach them without what was not synced (needs root).
    Detach(Rounds),
    /// Damage databases, kill, cut the power, fill the disk, take memory away (needs root), and
    /// check every response against the acknowledged writes. The other suites run in proportion to
    /// the rounds of damage.
    Faults(Rounds),
    /// Run random programs in Lua under AddressSanitizer.
    LuaPrograms {
        /// Set the number of programs.
        #[arg(long, default_value_t = lua_programs::PROGRAMS)]
        count: u64,
        /// Begin with the program of this seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Open many TLS connections, replace the certificates, and check that none is lost.
    TlsConnections {
        /// Set the number of connections.
        #[arg(long, default_value_t = tls_connections::CONNECTIONS)]
        connections: usize,
        #[command(flatten)]
        build: Build,
    },
    /// Look for weak protocols, suites and vulnerabilities of TLS with sslyze and openssl.
    TlsScan(Build),
    /// Run third-party WebDAV clients against the server: litmus, cadaver, curl.
    Webdav(Build),
    /// Check the metrics and the alert rules with the tools of Prometheus.
    Metrics(Build),
    /// Look at the console of the admin listener in a browser.
    Console {
        #[command(flatten)]
        build: Build,
        /// Take the pictures of the documentation.
        #[arg(long)]
        pictures: bool,
        /// Print the processor time that a dashboard costs an idle server.
        #[arg(long, conflicts_with = "pictures")]
        cost: bool,
    },
    /// Build the Python package, install it for each Python of the machine, and run its tests.
    Python {
        /// Run random interleavings of threads, closes and forks under AddressSanitizer instead, of
        /// the seeds from 0 to N.
        #[arg(long, value_name = "N", conflicts_with = "debug")]
        interleavings: Option<u64>,
        #[command(flatten)]
        build: Build,
    },
    /// Time a newcomer's first commands: a clean clone in a new root without caches (needs root).
    FirstMinute,
    /// Run each fuzz target for a while.
    Fuzz {
        /// Set the duration of each, in seconds.
        #[arg(long, default_value_t = 30)]
        seconds: u32,
    },
    /// Build the Debian package; install, upgrade and remove it in a clean root (needs root).
    Package {
        /// Build archives of programs without libraries for x86-64 and ARM64 instead.
        #[arg(long = "static", conflicts_with = "debug")]
        is_static: bool,
        #[command(flatten)]
        build: Build,
    },
    /// Check the embedded library: features, public items, oldest compiler, package.
    Library(library::Options),
    /// Run the random crash suites of the library with many more histories than `cargo test`, and
    /// kill servers under transactions a thousand times.
    Nightly {
        /// Try so many times as many.
        #[arg(long, default_value_t = nightly::TIMES, value_parser = clap::value_parser!(u64).range(1..=1000))]
        times: u64,
        /// Begin with this seed; 0 takes the number of the day.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        build: Build,
    },
    /// Check the program as `cargo run` builds it, without its other features.
    DefaultBuild,
    /// Write the generated parts of the pages, after a change of the settings.
    Docs,
    /// Make a site of the pages in `target/site`, with a search.
    Site,
    /// Check the source: widths, citations, words, unsafe code, and which module and crate uses
    /// which.
    Tidy,
}

/// Databases to damage.
#[derive(clap::Args)]
struct Rounds {
    /// Begin with this seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Set the number of databases to damage.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    #[command(flatten)]
    build: Build,
}

/// Build of the programs to test.
#[derive(clap::Args)]
struct Build {
    /// Test the unoptimized build.
    #[arg(long)]
    debug: bool,
}

impl Build {
    fn profile(&self) -> Profile {
        if self.debug { Profile::Debug } else { Profile::Release }
    }
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Test(options) => test::run(&options),
        Command::ClusterTest { nodes, only, chaos } => cassandra::test(nodes, only, chaos),
        Command::Capi(options) => capi::run_all(&options),
        Command::Clients(build) => clients::run_all(build.profile()),
        Command::Crash { rounds, build } => crash::run(build.profile(), rounds),
        Command::Memcached { seed, conversations, build } => {
            differential::run(build.profile(), seed, conversations)
        }
        Command::Redis { seed, conversations, build } => {
            differential::run_redis(build.profile(), seed, conversations)
        }
        Command::RedisBenchmark { rounds, build } => redis_benchmark::run(build.profile(), rounds),
        Command::FullDisk { size_mib, build } => full_disk::run(build.profile(), size_mib),
        Command::SmallMemory { only_scripts: true, build, .. } => {
            small_memory::run_scripts(build.profile())
        }
        Command::SmallMemory { only_floods: true, build, .. } => {
            small_memory::run_floods(build.profile())
        }
        Command::SmallMemory { records, small_records, load_mib, only_small, build, .. } => {
            let profile = build.profile();
            let records = records.unwrap_or_else(|| small_memory::records(profile));
            let records = if only_small { 0 } else { records };
            small_memory::run_with(profile, records, small_records, load_mib)
        }
        Command::ColdScans { options, build } => cold_scans::run_all(build.profile(), &options),
        Command::Benchmark(options) => benchmark::run_all(&options),
        Command::Backup { load, build } => backup::run(build.profile(), &load),
        Command::Cassandra(action) => cassandra::run(&action),
        Command::Chaos { seconds, seed, tls, build } => {
            chaos::run(build.profile(), seconds, seed, tls)
        }
        Command::CassandraChaos { writes, kind, build } => {
            cassandra::chaos::run_all(build.profile(), kind, writes)
        }
        Command::Damage(Rounds { seed, rounds, build }) => {
            faults::damage(build.profile(), seed, rounds)
        }
        Command::Detach(Rounds { seed, rounds, build }) => {
            faults::detach(build.profile(), seed, rounds)
        }
        Command::LuaPrograms { count, seed } => lua_programs::run_all(count, seed),
        Command::Faults(Rounds { seed, rounds, build }) => {
            faults::run(build.profile(), seed, rounds)
        }
        Command::TlsConnections { connections, build } => {
            tls_connections::run(build.profile(), connections)
        }
        Command::TlsScan(build) => tls_scan::run_all(build.profile()),
        Command::Webdav(build) => webdav::run_all(build.profile()),
        Command::Metrics(build) => metrics::run_all(build.profile()),
        Command::Console { build, pictures, cost } => {
            console::run_all(build.profile(), pictures, cost)
        }
        Command::Python { interleavings: Some(count), .. } => python::interleave(0, count),
        Command::Python { build, .. } => python::run_all(build.profile()),
        Command::FirstMinute => first_minute::run_all(),
        Command::Fuzz { seconds } => fuzz::run_all(seconds),
        Command::Package { is_static: true, .. } => package::build_and_try_static(),
        Command::Package { build: Build { debug }, .. } => {
            package::build_and_try(if debug { Profile::Debug } else { Profile::Dist })
        }
        Command::Library(options) => library::run(&options),
        Command::Nightly { times, seed, build } => nightly::run_all(build.profile(), times, seed),
        Command::DefaultBuild => programs::check_without_warnings(&["--package", "tyrant-kv"]),
        Command::Docs => docs::run(),
        Command::Site => site::run_all(),
        Command::Tidy => tidy::run(&command_names()),
    }
}

/// Returns the names of the commands, as they are typed.
fn command_names() -> Vec<String> {
    let commands = Command::command();
    commands.get_subcommands().map(|command| command.get_name().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Command::command().debug_assert();
    }
}
