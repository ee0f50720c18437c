//! One executor: protocols reach records by operations alone.
//!
//! A protocol may ask a store about itself. Reads and changes of records are a part of `ops/`, so
//! that rights, limits and counters are in one place. Seen are methods of a `store` or `database`.

use super::Problem;
use super::modules::without_tests;
use super::tree::Tree;

/// Files of the protocols.
const PROTOCOLS: &str = "crates/server/src/protocol/";

/// Names of the values that are stores.
const STORES: &[&str] = &["database", "store"];

/// Methods of a store that neither read nor change records.
const ALLOWED: &[&str] = &[
    "as_numbered",
    "check_transaction_keys",
    "commit",
    "commit_mark",
    "has_commits_since",
    "has_duplicates",
    "has_rows",
    "keep_commits_out",
    "len",
    "order",
    "partitioning",
    "pending_event_bytes",
    "record_bytes",
    "size_bytes",
    "stats",
    "transaction",
];

pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let files = tree.texts.iter().filter(|(file, _)| file.starts_with(PROTOCOLS));
    files.flat_map(|(file, text)| in_file(file, &without_tests(text))).collect()
}

fn in_file(file: &str, text: &str) -> Vec<Problem> {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut problems = Vec::new();
    for (at, name) in STORES.iter().flat_map(|name| text.match_indices(name)) {
        let rest = &text[at + name.len()..];
        let rest = rest.strip_prefix("()").unwrap_or(rest).trim_start();
        let Some(rest) = rest.strip_prefix('.').filter(|_| !text[..at].ends_with(part_of_name))
        else {
            continue;
        };
        let method = rest.split(|c: char| !part_of_name(c)).next().unwrap_or_default();
        if rest[method.len()..].starts_with(['(', ':']) && !ALLOWED.contains(&method) {
            let line = text[..at].matches('\n').count() + 1;
            let what = format!("`{name}.{method}` in a protocol, execute an `Operation`");
            problems.push(Problem { file: file.to_string(), line, what });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    const FILE: &str = "crates/server/src/protocol/http/read.rs";

    #[test]
    fn a_protocol_that_calls_the_store_fails_however_it_is_written() {
        for call in [
            "database.get(key)",
            "self.shared.served.database\n        .read(key, |_| ())",
            "self.database().put_with(to, value, meta)",
            "store.read::<u8>(key)",
        ] {
            let text = format!("fn f() {{\n    let x = {call};\n}}\n");
            let found = found(&[(FILE, &text)], problems);
            assert!(found[0].starts_with(&format!("{FILE}:2: `")), "{call}: {found:?}");
        }
    }

    #[test]
    fn what_asks_the_store_about_itself_passes_and_so_do_other_layers() {
        let text = "fn f() {\n    database.len();\n    my_store.get(1);\n    store(1);\n    \
                    database.file;\n}\n\n#[cfg(test)]\nmod tests {\n    fn g() {\n        \
                    database.get(1);\n    }\n}\n";
        let ops = "fn f() {\n    store.get(1);\n}\n";
        let files = [(FILE, text), ("crates/server/src/ops/open.rs", ops)];
        assert_eq!(found(&files, problems), [""; 0]);
    }
}
