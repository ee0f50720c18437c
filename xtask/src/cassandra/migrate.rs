//! Copies of databases into the cluster and back, which are killed again and again on their way.

mod tables;

use super::Nodes;
use crate::programs::{Profile, build, run};
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Records of each database.
const RECORDS: u64 = 4000;

/// Time after which the first copy is killed. Each one after it has twice as much.
const FIRST_LIFE: Duration = Duration::from_millis(100);

/// Most copies that are killed.
const KILLS_MAX: usize = 12;

/// A time after all tests, in milliseconds since 1970.
const FAR_EXPIRY_MS: u64 = 4_000_000_000_000;

/// Programs and files of a test.
struct Test {
    programs: PathBuf,
    tyrant: PathBuf,
    folder: tempfile::TempDir,
    /// Beginning of the names of databases in the cluster.
    cluster: String,
    replication: String,
}

/// Copies a database of each kind.
pub(super) fn run_all(profile: Profile, nodes: &Nodes) -> Result<()> {
    let programs = build(profile)?;
    let test = Test {
        tyrant: programs.join("tyrant"),
        programs,
        folder: tempfile::tempdir().context("no temporary folder")?,
        cluster: format!("cassandra://{}", nodes.contact_points()),
        replication: nodes.numbers().count().to_string(),
    };
    for (kind, options) in [("tch", ""), ("tcb", ""), ("tcf", "#width=600")] {
        test.copy_there_and_back(kind, options)?;
    }
    test.copy_a_table()?;
    test.refuse()?;
    test.refuse_several_values()?;
    test.lose_the_cluster(nodes)
}

impl Test {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn local(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Makes a database in the cluster. Returns its name.
    fn init(&self, keyspace: &str, options: &str) -> Result<String> {
        let name = format!("{}/{keyspace}{options}", self.cluster);
        let init = ["cluster", "init", "--replication", &self.replication, &name];
        run(Command::new(&self.tyrant).args(init))?;
        Ok(name)
    }

    fn copy_there_and_back(&self, kind: &str, options: &str) -> Result<()> {
        let (source, copy) =
            (self.local(&format!("source.{kind}")), self.local(&format!("copy.{kind}")));
        let into = format!("{source}{options}");
        self.import(&records(kind == "tcf"), &into)?;
        let name = self.init(&format!("migrate_{kind}"), &format!("#kind={kind}{options}"))?;

        // Few statements at once make the copy last for some seconds.
        let slow = format!("{name}#inflight=4");
        self.copy_there(&source, &slow, &name)?;
        self.copy_back(&name, &copy)?;
        ensure!(self.exported(&source)? == self.exported(&copy)?, "the copy differs");
        Ok(())
    }

    /// Makes a local database of lines of JSON.
    fn import(&self, lines: &str, database: &str) -> Result<()> {
        let file = self.path("lines.jsonl");
        fs::write(&file, lines)?;
        run(Command::new(&self.tyrant).arg("import").arg(&file).args(["--into", database]))
    }

    /// Copies a database into the cluster, by a name that makes it slow.
    fn copy_there(&self, source: &str, slow: &str, name: &str) -> Result<()> {
        let killed = self.kill_and_go_on(source, slow, name)?;
        println!("{RECORDS} records are in {name} after {} kills", killed.kills);
        ensure!(killed.is_refused, "an incomplete copy can be used");
        ensure!(killed.went_on > 0, "no copy went on in the middle");
        Ok(())
    }

    /// Copies a database out of the cluster.
    fn copy_back(&self, name: &str, copy: &str) -> Result<()> {
        let killed = self.kill_and_go_on(name, copy, name)?;
        println!("{RECORDS} records are in {copy} after {} kills", killed.kills);
        ensure!(killed.kills > 0, "no copy was killed");
        ensure!(!PathBuf::from(format!("{copy}.migration")).exists(), "a state is left");
        Ok(())
    }

    /// Copies, and kills the program again and again. The last copy ends by itself.
    fn kill_and_go_on(&self, from: &str, to: &str, cluster: &str) -> Result<Killed> {
        let mut killed = Killed { kills: 0, went_on: 0, is_refused: false };
        let mut life = FIRST_LIFE;
        let mut last = String::new();
        while killed.kills < KILLS_MAX {
            let mut command = Command::new(&self.tyrant);
            command.args(["cluster", "migrate", "--verify", from, to]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().context("cannot start the copy")?;
            std::thread::sleep(life);
            // Harmless after the end: the process is not waited for yet.
            child.kill()?;
            let Output { status, stdout, stderr } = child.wait_with_output()?;
            let told = String::from_utf8_lossy(&stderr);
            if let Some((_, rest)) = told.split_once("going on after ") {
                let number = rest.split(' ').next().unwrap_or_default();
                killed.went_on = killed.went_on.max(number.parse().context("a number")?);
            }
            if status.success() {
                println!("{}", String::from_utf8_lossy(&stdout).trim_end());
                return Ok(killed);
            }
            // The last one may have been killed after its end, and before it said so.
            if killed.kills > 0 && told.contains("--into-existing") {
                return Ok(killed);
            }
            ensure!(status.code().is_none(), "a copy has failed: {told}");
            last = told.into_owned();
            killed.kills += 1;
            let check = Command::new(&self.tyrant).args(["cluster", "check", cluster]).output()?;
            killed.is_refused |= !check.status.success()
                && String::from_utf8_lossy(&check.stderr).contains("go on first");
            life *= 2;
        }
        bail!("a copy does not end within {:?}: {last}", life / 2)
    }

    /// Returns all records of a local database, in an order of their own.
    fn exported(&self, database: &str) -> Result<Vec<String>> {
        let export = ["export", "--format", "jsonl", database];
        let Output { status, stdout, stderr } = Command::new(&self.tyrant).args(export).output()?;
        ensure!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let text = String::from_utf8(stdout)?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        ensure!(lines.len() as u64 >= RECORDS, "{} records in {database}", lines.len());
        Ok(lines)
    }

    /// Runs a copy that must fail. Returns what it says.
    fn fail(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.tyrant);
        command.args(["cluster", "migrate"]).args(arguments);
        let Output { status, stderr, .. } = command.output()?;
        let told = String::from_utf8_lossy(&stderr).into_owned();
        ensure!(status.code() == Some(1), "{arguments:?} has ended with {status}: {told}");
        Ok(told)
    }

    /// Checks the targets that are refused, and those with records.
    fn refuse(&self) -> Result<()> {
        let (source, copy) = (self.local("source.tch"), self.local("copy.tch"));
        let name = format!("{}/migrate_tch", self.cluster);
        for (from, to) in [(&source, &name), (&name, &copy)] {
            let told = self.fail(&[from, to])?;
            ensure!(told.contains("--into-existing"), "{told}");
            run(Command::new(&self.tyrant).args([
                "cluster",
                "migrate",
                "--into-existing",
                from,
                to,
            ]))?;
        }
        ensure!(self.exported(&source)? == self.exported(&copy)?, "a copy into itself differs");
        // Records that are there already stay.
        let more = self.local("more.tch");
        self.import("{\"key\":\"one more\",\"value\":\"x\"}\n", &more)?;
        let add = ["cluster", "migrate", "--into-existing", "--verify", &more, &name];
        run(Command::new(&self.tyrant).args(add))?;
        let all = self.local("all.tch");
        run(Command::new(&self.tyrant).args(["cluster", "migrate", &name, &all]))?;
        let mut lines = self.exported(&all)?;
        lines.retain(|line| !line.contains("one more"));
        ensure!(lines == self.exported(&source)?, "records that were there have changed");
        Ok(())
    }

    /// Checks that a tree with several values of a key is refused, and can be corrected.
    fn refuse_several_values(&self) -> Result<()> {
        let line = "{\"key\":\"k\",\"value\":\"v\"}\n";
        let name = self.init("migrate_several", "#kind=tcb")?;
        for (source, text) in [("several.tcb", line.repeat(2)), ("one.tcb", line.to_owned())] {
            let source = self.local(source);
            self.import(&text, &source)?;
            match source.ends_with("several.tcb") {
                true => {
                    let told = self.fail(&[&source, &name])?;
                    ensure!(told.contains("key k has several values"), "{told}");
                }
                // Another source is a new copy.
                false => {
                    let told = self.fail(&[&source, &name])?;
                    ensure!(told.contains("has not ended"), "{told}");
                    let migrate = ["cluster", "migrate", "--into-existing", &source, &name];
                    run(Command::new(&self.tyrant).args(migrate))?;
                }
            }
        }
        run(Command::new(&self.tyrant).args(["cluster", "check", &name]))
    }

    /// Kills a node under a copy: it waits, ends with an error, and goes on later.
    fn lose_the_cluster(&self, nodes: &Nodes) -> Result<()> {
        let source = self.local("source.tch");
        let name = self.init("migrate_away", "#inflight=2")?;
        let mut command = Command::new(&self.tyrant);
        command.args(["cluster", "migrate", "--wait", "2", &source, &name]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().context("cannot start the copy")?;
        std::thread::sleep(FIRST_LIFE * 10);
        let killed: Vec<u8> = super::chaos::majority(nodes).collect();
        for node in &killed {
            nodes.kill(*node)?;
        }
        let Output { status, stderr, .. } = child.wait_with_output()?;
        let told = String::from_utf8_lossy(&stderr);
        for node in &killed {
            nodes.start(*node)?;
        }
        nodes.wait_until_settled()?;
        ensure!(status.code() == Some(1), "a copy without the cluster has ended with {status}");
        ensure!(told.contains("the same command goes on"), "{told}");
        ensure!(told.contains("no attempt was successful for 2 s"), "{told}");
        let name = name.replace("#inflight=2", "");
        run(Command::new(&self.tyrant).args(["cluster", "migrate", "--verify", &source, &name]))
    }
}

/// Results of a copy that was killed again and again.
struct Killed {
    kills: usize,
    /// Most records after which a copy went on.
    went_on: u64,
    /// The incomplete copy was refused.
    is_refused: bool,
}

/// Returns records as lines of JSON: binary keys or ids, values, flags, expiry.
fn records(has_ids: bool) -> String {
    let mut random = Random(7);
    let mut lines = String::new();
    for number in 0..RECORDS {
        let length = random.below(600);
        let value: String =
            (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        let key = match number {
            _ if has_ids => format!("\"key\":\"{}\"", number + 1),
            // The first key is empty.
            0 => "\"key_hex\":\"\"".to_owned(),
            _ => format!("\"key_hex\":\"ff00{number:08x}\""),
        };
        let _ = write!(lines, "{{{key},\"value\":\"{value}\"");
        if number % 3 == 0 {
            let _ = write!(lines, ",\"flags\":{}", number + 1);
        }
        if number % 5 == 0 {
            let _ = write!(lines, ",\"expires_at_ms\":{}", FAR_EXPIRY_MS + number);
        }
        lines.push_str("}\n");
    }
    lines
}
