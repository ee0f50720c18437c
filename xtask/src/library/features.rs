//! Features of the library: each set of them that users may choose has to build without warnings.

use super::{FOLDER, PACKAGE};
use crate::programs::{cargo, check_without_warnings, workspace};
use anyhow::{Context, Result};

/// Checks the library without features, with each alone, with the default ones, and with all. Runs
/// the test of a build that lacks features.
pub(super) fn run() -> Result<()> {
    let path = workspace().join(FOLDER).join("Cargo.toml");
    let manifest = std::fs::read_to_string(&path).context("the manifest of the library")?;
    let features = named(&manifest);
    let alone = features.iter().map(|feature| vec!["--no-default-features", "--features", feature]);
    let sets = [vec!["--no-default-features"], vec![], vec!["--all-features"]];
    for set in sets.into_iter().chain(alone) {
        check_without_warnings(&[&["--package", PACKAGE], &set[..]].concat())?;
    }
    let lean = ["--no-default-features", "--test", "without_features"];
    cargo(&[&["test", "--quiet", "--package", PACKAGE], &lean[..]].concat())
}

/// Returns the features of a manifest, but for `default`.
fn named(manifest: &str) -> Vec<&str> {
    let lines = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
        .filter(|name| !name.starts_with('#') && *name != "default")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_of_their_section_without_the_default() {
        let manifest = "[lib]\nname = \"a\"\n\n[features]\ndefault = [\"b\"]\n# c = no\nb = []\n\n\
            d = [\"dep:e\"]\n\n[dependencies]\nf = \"1\"\n";
        assert_eq!(named(manifest), ["b", "d"]);
        assert_eq!(named("[dependencies]\na = \"1\"\n"), Vec::<&str>::new());
    }
}
