//! Experiments: the program, sizes and servers of each.

use super::results::Measure::{self, CpuUsPerOperation, MemoryMb, OperationsPerSecond, P50Us};

/// Sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Some minutes on small data, to check that all programs work.
    Quick,
    /// The run whose figures are published.
    Full,
}

/// An experiment.
#[derive(Debug)]
pub(super) struct Experiment {
    /// Name for `--only`, in the results file and in the links of the pages.
    pub(super) name: &'static str,
    /// Heading.
    pub(super) title: &'static str,
    /// Sentences under the heading.
    pub(super) text: &'static str,
    /// Program of `crates/compare`.
    pub(super) program: Program,
    /// Whether the program starts tyrant.
    pub(super) has_servers: bool,
    /// Options that both sizes have.
    options: &'static str,
    quick: &'static str,
    full: &'static str,
    /// Measures that have a chart; the first percentile has all of them.
    pub(super) charts: &'static [Measure],
    /// Servers that the experiment does not have, and the reason.
    pub(super) absent: &'static [(&'static str, &'static str)],
}

/// Programs of `crates/compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Load,
    Mailings,
    Words,
    Queries,
    Engines,
}

impl Program {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Mailings => "mailings",
            Self::Words => "words",
            Self::Queries => "queries",
            Self::Engines => "engines",
        }
    }

    /// Returns whether the program links the C libraries of other stores.
    pub(super) fn has_rivals(self) -> bool {
        matches!(self, Self::Queries | Self::Engines)
    }
}

impl Experiment {
    /// Returns the options of the program.
    pub(super) fn options(&self, size: Size) -> impl Iterator<Item = &'static str> {
        let sizes = match size {
            Size::Quick => self.quick,
            Size::Full => self.full,
        };
        self.options.split_whitespace().chain(sizes.split_whitespace())
    }
}

/// All experiments, in the order of the pages.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "inserts",
        title: "Inserts with 1 to 128 connections",
        text: "Each request creates a record of 100 bytes. A connection sends the next request when \
               it has the reply. tyrant's database is on disk, the others' data are in memory.",
        program: Program::Load,
        has_servers: true,
        options: "--suite inserts --servers tyrant,memcached,redis",
        quick: "--rounds 1 --seconds 0.2 --warm-up-seconds 0.05",
        full: "--rounds 3 --seconds 0.7 --warm-up-seconds 0.2",
        charts: &[OperationsPerSecond, CpuUsPerOperation, MemoryMb, P50Us],
        absent: &[],
    },
    Experiment {
        name: "beyond-memory",
        title: "Data beyond memory, with and without waiting for the disk",
        text: "Each server has a memory cgroup, which the pages of its files share. Records are \
               chosen uniformly. Servers whose names end in durable acknowledge a write when it is \
               on the disk. MariaDB has a table of key and value with a primary key; half of the \
               memory is its buffer pool.",
        program: Program::Load,
        has_servers: true,
        options: "--suite beyond --value-bytes 1000 \
                  --servers tyrant,mariadb,memcached-extstore,tyrant-durable,mariadb-durable",
        quick: "--keys 60000 --limit-mib 192 --rounds 1 --seconds 0.3 --warm-up-seconds 0.1",
        full: "--keys 600000 --limit-mib 256 --rounds 3 --seconds 2 --warm-up-seconds 0.3",
        charts: &[OperationsPerSecond, P50Us],
        absent: &[
            ("Redis", "it keeps all records in memory"),
            ("memcached, durable", "it has no durable writes"),
        ],
    },
    Experiment {
        name: "reads",
        title: "10,000 records of 2 KB, read fifty times for each write",
        text: "Records are chosen uniformly. MariaDB has a table of key and value with a primary \
               key, and does not wait for the disk.",
        program: Program::Load,
        has_servers: true,
        options: "--suite reads --large-keys 10000 --large-value-bytes 2048 \
                  --servers tyrant,memcached,redis,mariadb",
        quick: "--rounds 1 --seconds 0.2 --warm-up-seconds 0.05",
        full: "--rounds 3 --seconds 0.7 --warm-up-seconds 0.2",
        charts: &[OperationsPerSecond, P50Us],
        absent: &[],
    },
    Experiment {
        name: "requests",
        title: "Requests of each shape",
        text: "Single requests, pipelines of 16, gets of 16 keys, and 1 to 128 connections with \
               nine gets to one set. tyrant's database is on disk, the others' data are in memory.",
        program: Program::Load,
        has_servers: true,
        options: "--suite issue --servers tyrant,memcached,redis",
        quick: "--keys 20000 --rounds 1 --seconds 0.1 --warm-up-seconds 0.05",
        full: "--keys 200000 --rounds 3 --seconds 0.5 --warm-up-seconds 0.1",
        charts: &[OperationsPerSecond, CpuUsPerOperation],
        absent: &[],
    },
    Experiment {
        name: "mailings",
        title: "Mailings by e-mail address",
        text: "A line per mailing is appended to the record of its address; then random addresses \
               are looked up. A connection sends the next request when it has the reply.",
        program: Program::Mailings,
        has_servers: true,
        options: "--clients 8",
        quick: "--addresses 5000 --lookups 5000 --rounds 1",
        full: "--addresses 300000 --lookups 300000 --rounds 3",
        charts: &[OperationsPerSecond, P50Us],
        absent: &[],
    },
    Experiment {
        name: "scans",
        title: "Full scans",
        text: "The words of all records are counted, ten in each: by map-reduce in tyrant, and by \
               clients that read all records of Redis. An operation is a record. All counts are \
               compared.",
        program: Program::Words,
        has_servers: true,
        options: "",
        quick: "--records 20000 --rounds 1",
        full: "--records 1000000 --rounds 3",
        charts: &[OperationsPerSecond, CpuUsPerOperation],
        absent: &[("memcached", "it has no request for all records")],
    },
    Experiment {
        name: "queries",
        title: "Queries of a table",
        text: "Rows with four indices, in the process of the program: cabinet beside Tokyo Cabinet. \
               Both are asked the same, and their results are compared. An operation is a query.",
        program: Program::Queries,
        has_servers: false,
        options: "",
        quick: "--rows 5000 --times 20 --rounds 1",
        full: "--rows 300000 --times 100 --rounds 3",
        charts: &[OperationsPerSecond],
        absent: &[("memcached, Redis", "they have no tables")],
    },
    Experiment {
        name: "embedded",
        title: "Embedded stores",
        text: "Each store is in a process of its own. Puts, gets and overwrites are of random \
               records; mixed is nine gets to one put. Memory is the peak of loading, disk that of \
               the closed database.",
        program: Program::Engines,
        has_servers: false,
        options: "--suite speed --threads 1 \
                  --stores cabinet,cabinet-tree,tc,tc-mapped,lmdb,rocksdb,redb,fjall",
        quick: "--records 20000 --rounds 1",
        full: "--records 1000000 --rounds 2",
        charts: &[OperationsPerSecond, MemoryMb],
        absent: &[],
    },
    Experiment {
        name: "threads",
        title: "Embedded stores with one and two threads",
        text: "As above, with the number of threads that the machine has processors for, and the \
               fixed-length databases.",
        program: Program::Engines,
        has_servers: false,
        options: "--suite speed --threads 1,2 \
                  --stores cabinet,cabinet-tree,cabinet-fixed,tc-mapped,tc-fixed",
        quick: "--records 20000 --rounds 1",
        full: "--records 1000000 --rounds 3",
        charts: &[OperationsPerSecond, CpuUsPerOperation],
        absent: &[],
    },
    Experiment {
        name: "churn",
        title: "A reader beside overwrites",
        text: "One thread gets random records, first alone, then beside a thread that overwrites \
               all of them in random order, limited to a rate that leaves a processor free.",
        program: Program::Engines,
        has_servers: false,
        options: "--suite churn --stores cabinet,cabinet-tree,tc-mapped --passes 4 \
                  --writes-per-second 100000",
        quick: "--churn-records 20000 --rounds 1 --seconds 0.2",
        full: "--churn-records 300000 --rounds 3 --seconds 1",
        charts: &[P50Us],
        absent: &[],
    },
];

/// Returns the experiment of a name.
pub(super) fn named(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sizes_have_all_options_of_an_experiment_and_differ() {
        for experiment in EXPERIMENTS {
            let [quick, full]: [Vec<_>; 2] =
                [Size::Quick, Size::Full].map(|size| experiment.options(size).collect());
            assert_ne!(quick, full, "{}", experiment.name);
            for options in [quick, full] {
                assert_eq!(options.len() % 2, 0, "{}: an option without value", experiment.name);
                assert!(options.contains(&"--rounds"), "{}", experiment.name);
            }
        }
    }

    #[test]
    fn names_are_distinct_and_found() {
        for experiment in EXPERIMENTS {
            let found = named(experiment.name).expect("an experiment");
            assert_eq!(found.title, experiment.title);
        }
        assert!(named("none").is_none());
    }
}
