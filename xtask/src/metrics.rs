//! Metrics: Prometheus' own tools read what a server serves, and the alert rules in `packaging/`.

use crate::memcached::Connection;
use crate::programs::{Profile, Server, build, free_port, run, workspace};
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Program that parses OpenMetrics strictly, and prints the number of families.
const PARSE_OPEN_METRICS: &str = "\
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
print(len(list(text_string_to_metric_families(open(sys.argv[1]).read()))))";

/// Checks the metrics of a server that has executed requests of several protocols.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    requirements::install_programs()?;
    let python = requirements::python()?;
    let programs = build(profile)?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let database = folder.path().join("casket.tch#durability=always");
    let admin = format!("127.0.0.1:{}", free_port());
    let log = folder.path().join("log");
    let options = ["--admin", &admin, "--slow-log-threshold", "0.000001"];
    let server = Server::start_with(&programs, &database, &log, &options)?;
    let mut connection = Connection::open(server.port)?;
    ensure!(connection.get("key")?.is_none(), "a record in an empty database");
    let base = format!("http://127.0.0.1:{}/record", server.port);
    run(Command::new("curl").args(["--fail", "--silent", "--data-binary", "value"]).args([
        "--request",
        "PUT",
        &base,
    ]))?;
    ensure!(connection.get("record")?.as_deref() == Some(b"value".as_slice()), "no record");

    let text = fetch(&admin, folder.path(), "text/plain")?;
    println!("$ promtool check metrics < {text}");
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(File::open(&text).context("the metrics")?);
    let output = check.output().context("cannot run promtool")?;
    let complaints = [output.stdout, output.stderr].concat();
    let complaints = String::from_utf8_lossy(&complaints);
    ensure!(output.status.success() && complaints.is_empty(), "promtool: {complaints}");

    let text = fetch(&admin, folder.path(), "application/openmetrics-text")?;
    run(Command::new(python).args(["-c", PARSE_OPEN_METRICS, &text]))?;

    let rules = workspace().join("packaging/prometheus/alerts.yaml");
    run(Command::new("promtool").args(["check", "rules", "--lint-fatal"]).arg(rules))
}

/// Stores the metrics of this media type in a file. Returns its path.
fn fetch(admin: &str, folder: &Path, accept: &str) -> Result<String> {
    let path = folder.join("metrics").display().to_string();
    let accept = format!("Accept: {accept}");
    let url = format!("http://{admin}/metrics");
    run(Command::new("curl")
        .args(["--fail", "--silent", "--header", &accept])
        .args(["--output", &path, &url]))?;
    Ok(path)
}
