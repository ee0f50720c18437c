//! Arrows between crates: a manifest names the packages of this project that the table allows.

use super::Problem;
use super::tree::Tree;

/// Packages, and the packages of this project on which each depends, all without [`PREFIX`].
const ALLOWED: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("cabinet", &[]),
    ("tls", &[]),
    ("client", &["tls", "wire"]),
    ("server", &["cabinet", "client", "tls", "wire"]),
    ("webdav", &["cabinet", "server", "tls", "wire"]),
    ("scripts", &["cabinet", "client", "server", "wire"]),
    ("capi", &["cabinet"]),
    ("compare", &["cabinet", "client", "tls"]),
    ("python", &["cabinet"]),
    ("cluster", &["cabinet", "server", "tls", "wire"]),
    ("kv", &["cabinet", "client", "cluster", "scripts", "server", "tls", "webdav", "wire"]),
    ("fuzz", &["cabinet", "wire"]),
    ("xtask", &["tls"]),
];

/// Prefix of the names of packages, which manifests and code name without it.
const PREFIX: &str = "tyrant-";

pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let manifests = tree.texts.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    manifests.flat_map(|(file, text)| in_manifest(file, text)).collect()
}

fn in_manifest(file: &str, text: &str) -> Vec<Problem> {
    let problem = |line, what| Problem { file: file.to_string(), line, what };
    let mut section = "";
    let mut package = None;
    let mut named = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(rest) = line.strip_prefix('[') {
            section = rest.trim_end_matches(']');
            // A dependency may have a section of its own.
            if let Some((kind, name)) = section.rsplit_once('.')
                && kind.ends_with("dependencies")
            {
                named.push((number, name));
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        if section == "package" && key.trim() == "name" {
            package = Some((number, value.trim().trim_matches('"')));
        }
        if section.ends_with("dependencies") && section != "workspace.dependencies" {
            named.push((number, key.split('.').next().unwrap_or(key).trim()));
        }
    }
    let Some((number, package)) = package else { return Vec::new() };
    let package = package.strip_prefix(PREFIX).unwrap_or(package);
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package) else {
        let what = format!("package {package} has no row in {}, add one", file!());
        return vec![problem(number, what)];
    };
    let own = |name: &str| ALLOWED.iter().any(|(package, _)| *package == name);
    // A package may name itself, to have features of its own in its tests.
    named.retain(|(_, name)| own(name) && *name != package && !allowed.contains(name));
    let what = |(number, name)| {
        problem(
            number,
            format!("{package} may not depend on {name}, move the shared code below both"),
        )
    };
    named.into_iter().map(what).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    fn of_client(dependencies: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"tyrant-client\"\n\n{dependencies}\n");
        found(&[("crates/client/Cargo.toml", &text)], problems)
    }

    #[test]
    fn an_arrow_of_the_table_and_other_crates_pass() {
        assert!(of_client("[dependencies]\nwire.workspace = true\nzstd = \"1\"").is_empty());
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_fails_however_it_is_written() {
        for dependencies in [
            "[dependencies]\nserver.workspace = true",
            "[dev-dependencies]\nserver = { path = \"../server\" }",
            "\n[target.'cfg(unix)'.dependencies.server]",
        ] {
            assert_eq!(
                of_client(dependencies),
                ["crates/client/Cargo.toml:5: client may not depend on server, \
                  move the shared code below both"]
            );
        }
    }

    #[test]
    fn a_package_without_a_row_fails() {
        let text = "[package]\nname = \"other\"\n";
        let found = found(&[("crates/other/Cargo.toml", text)], problems);
        assert!(found[0].starts_with("crates/other/Cargo.toml:2: package other has no row"));
    }
}
