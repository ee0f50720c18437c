//! Page of the configuration file, from the definitions of the settings.

use super::page::Page;
use crate::settings::{described, introduction};

const EXAMPLE: &[&str] = &[
    "# Serve a database to every machine that reaches port 1978, over TLS",
    "database = \"casket.tch\"\nhost = [\"0.0.0.0\"]\ntls-cert = \"server.pem\"\ntls-key = \"server.key\"",
    "# Serve two databases",
    "[[database]]\nname = \"sessions.tch\"\nport = 1979\n\n[[database]]\nname = \"people.tct\"\nport = 1980",
];

pub(super) fn page() -> Page {
    let mut page = Page::new("tyrant.toml", 5, "settings of the server");
    page.section("DESCRIPTION");
    page.paragraph(&introduction());
    let mut group = "";
    for setting in described() {
        if setting.group != group {
            group = setting.group;
            page.section(&group.to_uppercase());
        }
        page.entry(&setting.line, &setting.text);
    }
    page.examples(EXAMPLE);
    page.files(&[("/etc/tyrant/tyrant.toml", "Settings of the packaged service.")]);
    page.see_also(&["tyrant-serve(1)", "tyrant-config(1)"].map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::EXAMPLE;
    use crate::settings::{Launch, Settings};

    #[test]
    fn the_examples_are_valid_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tyrant.toml");
        for example in EXAMPLE.iter().filter(|line| !line.starts_with("# ")) {
            // There is no certificate here.
            let lines = example.lines().filter(|line| !line.starts_with("tls-"));
            std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).expect("a file");
            let launch = Launch { given: Settings::default(), file: Some(path.clone()) };
            if let Err(error) = launch.load() {
                panic!("{example}: {error}");
            }
        }
    }
}
