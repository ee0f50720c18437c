//! Small results for the tests.

use super::measured::Measured;
use super::results::{Machine, Missed, Outcome, Results, Run};
use crate::measurement::{Measurement, Round};

/// A record whose second round was twice as slow.
fn record(case: &str, server: &str, connections: f64, rate: f64, cpu_us: f64) -> Measurement {
    let round = |slower: f64| Round {
        operations_per_second: Some(rate / slower),
        cpu_us_per_operation: Some(cpu_us * slower),
        p99_us: Some(1e6 / rate * slower),
        memory_bytes: Some(5e6),
        ..Round::default()
    };
    Measurement {
        case: case.into(),
        server: server.into(),
        parameters: [("connections".to_owned(), connections), ("value_bytes".to_owned(), 100.0)]
            .into(),
        rounds: vec![round(1.0), round(2.0)],
        ..Measurement::default()
    }
}

fn run(experiment: &str, measured: &Measured) -> Run {
    Run {
        experiment: experiment.into(),
        date: "2026-11-01 12:00".into(),
        seconds: 61.4,
        command: "load --suite <all> --rounds 2".into(),
        machine: Machine {
            processor: "A & B".into(),
            processors: 2,
            memory_bytes: 24 << 30,
            kernel: "6.1".into(),
            file_system: "ext2/ext3".into(),
            load_average: Some(0.25),
        },
        versions: [("tyrant".to_owned(), "commit abc".to_owned())].into(),
        sizes: measured.sizes(),
        records: measured.records(),
        ..Run::default()
    }
}

/// Returns inserts from 1, 2 and 4 connections.
pub(super) fn inserts() -> Measured {
    let mut measurements = Vec::new();
    for connections in [1.0, 2.0, 4.0] {
        let case = format!("insert, {connections} conn");
        let record =
            |server, rate, cpu_us| record(&case, server, connections, rate * connections, cpu_us);
        // Slower than memcached from one connection alone.
        let rate = if connections == 1.0 { 900.0 } else { 1500.0 };
        measurements.push(record("tyrant", rate, 2.0));
        measurements.push(record("memcached", 1000.0, 8.0));
        measurements.push(record("redis", 500.0, 4.0));
    }
    Measured { measurements }
}

/// Returns inserts beyond memory.
pub(super) fn beyond_memory() -> Measured {
    let servers = ["tyrant", "mariadb", "tyrant-durable", "mariadb-durable"];
    let measurements =
        servers.map(|server| record("insert, 32 conn", server, 32.0, 1234.0, 20.0)).into();
    Measured { measurements }
}

/// Returns both, one query with a strange name, and a run that failed. The other experiments have
/// no results.
pub(super) fn results() -> Results {
    let mut strange = record("a <b> & \"c\" | d", "cabinet", 1.0, 1e6, 1.0);
    strange.missing = 3;
    let mut results = Results::new();
    let outcome = |asked: &str, missed| Outcome {
        asked: asked.into(),
        cases: 3,
        least: 0.9,
        most: 1.5,
        missed,
    };
    let missed = Missed { case: "insert, 1 conn".into(), ratio: 0.9 };
    let mut inserts = run("inserts", &inserts());
    inserts.outcomes = vec![outcome(REACHED, vec![]), outcome(MISSED, vec![missed])];
    results.runs = vec![
        inserts,
        run("beyond-memory", &beyond_memory()),
        run("queries", &Measured { measurements: vec![strange] }),
        Run { failure: Some("words ended with <1>".into()), ..run("scans", &Measured::default()) },
    ];
    results
}

/// Two goals that the results have, one reached.
pub(super) const REACHED: &str =
    "Inserts per second, 1 to 128 connections: as many as the best of memcached and Redis";
pub(super) const MISSED: &str =
    "CPU time per insert: at most that of the best of memcached and Redis";
