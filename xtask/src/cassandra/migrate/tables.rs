//! Copies of tables: rows, indexes and identifiers.

use super::{RECORDS, Test};
use crate::misc::Misc;
use crate::programs::{Server, run};
use crate::random::Random;
use anyhow::{Result, ensure};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Indexes of the source, as its name has them.
const INDEXES: &str = "#idx=n:dec#idx=words:tok#idx=text:qgr#idx=name:lex#idx=:dec";

/// Conditions, each with the beginning of its hint.
const CONDITIONS: [(&[u8], &str); 6] = [
    (b"addcond\0n\0NUMBT\x00100 200", "using an index: \"n\""),
    (b"addcond\0words\0STRAND\0w3 w5", "using an index: \"words\""),
    (b"addcond\0text\0FTSPH\0abc", "using an index: \"text\""),
    (b"addcond\0name\0STREQ\0name-7", "using an index: \"name\""),
    (b"addcond\0\0NUMEQ\x0017", "using an index: \"\""),
    (b"addcond\0n\0STREW\x0000", "scanning the whole table"),
];

/// Identifiers that the source gives out.
const IDENTIFIERS: u64 = 7;

impl Test {
    /// Copies a table there and back. Its indexes lead to the rows, and its identifiers go on.
    pub(super) fn copy_a_table(&self) -> Result<()> {
        let (source, copy) = (self.local("source.tct"), self.local("copy.tct"));
        self.import(&rows(), &format!("{source}{INDEXES}"))?;
        let local = self.find_all(&source, IDENTIFIERS, "source")?;
        let name = self.init("migrate_tct", "#kind=tct")?;
        self.copy_there(&source, &format!("{name}#inflight=16"), &name)?;
        let remote = self.find_all(&name, 1, "cluster")?;
        ensure!(remote.first == IDENTIFIERS + 1, "identifier {} in the cluster", remote.first);
        self.copy_back(&name, &copy)?;
        ensure!(self.exported(&source)? == self.exported(&copy)?, "the copy differs");
        let back = self.find_all(&copy, 1, "copy")?;
        ensure!(back.first > remote.first, "identifier {} of the copy", back.first);
        ensure!(remote.results == local.results, "the cluster finds other rows");
        ensure!(back.results == local.results, "the copy finds other rows");
        self.add_to_a_table(&name, &copy)
    }

    /// Copies into tables with rows: an index that only the source has leads to all rows.
    fn add_to_a_table(&self, name: &str, copy: &str) -> Result<()> {
        let more = self.local("more.tct");
        let line = "{\"key\":\"one more\",\"columns\":{\"n\":\"150\",\"more\":\"x\"}}\n";
        self.import(line, &format!("{more}#idx=more:lex#idx=n:lex"))?;
        for (from, to) in [(&more[..], name), (name, copy)] {
            let told = self.fail(&[from, to])?;
            ensure!(told.contains("--into-existing"), "{told}");
            let add = ["cluster", "migrate", "--into-existing", "--verify", from, to];
            run(Command::new(&self.tyrant).args(add))?;
        }
        for (database, log) in [(name, "more-cluster"), (copy, "more-copy")] {
            let server =
                Server::start_logging(&self.programs, Path::new(database), &self.path(log))?;
            let mut client = Misc::connect(server.port)?;
            // The index of numbers was replaced.
            for (column, operator, operand, count_min) in
                [("more", "STREQ", "x", 1), ("n", "STRBW", "15", 2)]
            {
                let of = |flag: &str| format!("addcond\0{column}\0{flag}{operator}\0{operand}");
                let (rows, hint) = client.search(&[of("").as_bytes()])?;
                ensure!(hint.contains(&format!("using an index: \"{column}\"")), "{hint}");
                let (expected, _) = client.search(&[of("+").as_bytes()])?;
                ensure!(rows == expected, "{} rows by index {column}", rows.len());
                ensure!(rows.len() >= count_min, "{} rows by index {column}", rows.len());
            }
            let (rows, hint) = client.search(&[CONDITIONS[3].0])?;
            ensure!(hint.contains(CONDITIONS[3].1) && !rows.is_empty(), "{hint}");
        }
        Ok(())
    }

    /// Searches by each index, and takes identifiers.
    fn find_all(&self, database: &str, identifiers: u64, log: &str) -> Result<Found> {
        let mut server =
            Server::start_logging(&self.programs, Path::new(database), &self.path(log))?;
        let mut client = Misc::connect(server.port)?;
        let mut results = Vec::new();
        for (condition, expected) in CONDITIONS {
            let (rows, hint) = client.search(&[condition])?;
            ensure!(hint.contains(expected), "{}: {hint}", condition.escape_ascii());
            ensure!(!rows.is_empty(), "{} finds nothing", condition.escape_ascii());
            results.push(rows);
        }
        let mut first = 0;
        for number in 0..identifiers {
            let reply = client.call("genuid", &[])?;
            let text = String::from_utf8(reply.concat())?;
            if number == 0 {
                first = text.parse()?;
            }
        }
        server.stop()?;
        Ok(Found { results, first })
    }
}

/// Results of all searches, and the first identifier.
struct Found {
    results: Vec<Vec<Vec<u8>>>,
    first: u64,
}

/// Returns rows as lines of JSON: any bytes in names and values, and a row without columns.
fn rows() -> String {
    let mut random = Random(11);
    let mut lines = String::from("{\"key\":\"no columns\",\"columns\":{}}\n");
    let hex = |text: &str| text.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    for number in 1..RECORDS {
        let length = random.below(200);
        let text: String = (0..length).map(|_| char::from(b'a' + random.below(4) as u8)).collect();
        let words = format!("w{} w{}", random.below(8), random.below(8));
        let columns = [
            ("n", number.to_string()),
            ("words", words),
            ("text", text),
            ("name", format!("name-{}", random.below(500))),
            ("nul\0", "a\0b".to_owned()),
        ];
        let columns: Vec<String> = columns
            .iter()
            // Some rows lack a column.
            .filter(|_| random.below(10) > 0)
            .map(|(name, value)| format!("\"{}\":\"{}\"", hex(name), hex(value)))
            .chain([format!("\"ff00\":\"00{number:08x}ff\"")])
            .collect();
        let key = hex(&number.to_string());
        let columns = columns.join(",");
        let _ = writeln!(lines, "{{\"key_hex\":\"{key}\",\"columns_hex\":{{{columns}}}}}");
    }
    lines
}
