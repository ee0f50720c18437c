//! Configuration files: TOML with the names of the settings, and a section `[[database]]` for each
//! of several databases. Every error has the file and the line.

use super::configure::{Invalid, OTHER_SETTINGS, Shares, is_file_of_settings, wrong};
use super::database_name::DatabaseName;
use super::definition::{Default as DefaultValue, Scope, Setting};
use super::exposure::{addresses, admin_exposure, exposure_to_be};
use super::{SETTINGS, Settings};
use crate::errors::{nearest, wrong_command_line};
use anyhow::{Context, Result, anyhow, bail, ensure};
use cabinet::files::open_file;
use cabinet::name::{NameError, Specification};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Longest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Most databases of one process: each has threads of its own.
const DATABASES_MAX: usize = 64;

/// The key `database` of a file: the name of one, or sections.
#[derive(Clone, Debug)]
pub(crate) enum Databases {
    One(DatabaseName),
    Several(Vec<Settings>),
}

impl<'de> Deserialize<'de> for Databases {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrSections)
    }
}

struct NameOrSections;

impl<'de> Visitor<'de> for NameOrSections {
    type Value = Databases;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a database, or sections [[database]]")
    }

    fn visit_str<E>(self, name: &str) -> Result<Databases, E> {
        Ok(Databases::One(DatabaseName(name.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Databases, A::Error> {
        let mut sections = Vec::new();
        while let Some(section) = items.next_element()? {
            sections.push(section);
        }
        Ok(Databases::Several(sections))
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
struct Source {
    path: PathBuf,
    text: String,
    /// The settings above the sections.
    common: Settings,
    /// Empty if the file has no sections.
    sections: Vec<Settings>,
}

impl Source {
    fn read(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        open_file(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let shown = path.display();
        ensure!(
            bytes.len() as u64 <= FILE_BYTES_MAX,
            "{shown}: longer than {FILE_BYTES_MAX} bytes"
        );
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            anyhow!("{shown}:{}: not UTF-8", 1 + line_feeds(before))
        })?;
        let file: Settings<Databases> = toml::from_str(&text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + line_feeds(&text.as_bytes()[..start]);
            let setting = setting_at(&text, start).map_or(String::new(), |name| name + ": ");
            let is_other = is_file_of_settings(path) && path.extension() != Some("toml".as_ref());
            let advice = if is_other { format!("; {OTHER_SETTINGS}") } else { String::new() };
            let flaw = unquoted(&text, start).unwrap_or_else(|| message(&error, &text[start..]));
            anyhow!("{shown}:{line}: {setting}{flaw}{advice}")
        })?;
        let mut sections = Vec::new();
        let common = file.replace_first(|databases| match databases? {
            Databases::One(name) => Some(name),
            Databases::Several(found) => {
                sections = found;
                None
            }
        });
        let source = Self { path: path.to_owned(), text, common, sections };
        source.check_scopes()?;
        Ok(source)
    }

    /// Fails if a setting is above the sections or within one, and belongs on the other side.
    fn check_scopes(&self) -> Result<()> {
        let count = self.sections.len();
        ensure!(
            count <= DATABASES_MAX,
            "{}: {count} databases, at most {DATABASES_MAX} are possible",
            self.path.display()
        );
        if count == 0 {
            return Ok(());
        }
        if let Some(setting) = first_of(&self.common, Scope::OneDatabase) {
            let place = self.place(&setting.name(), None);
            bail!("{place}{} belongs into a section [[database]]", setting.name());
        }
        for (index, section) in self.sections.iter().enumerate() {
            if let Some(setting) = first_of(section, Scope::Process) {
                let place = self.place(&setting.name(), Some(index));
                bail!("{place}{} belongs above the sections [[database]]", setting.name());
            }
        }
        Ok(())
    }

    /// Returns the settings of each database, with these defaults. Relative paths are relative to
    /// the folder that `given` or the file names, or else to that of the file.
    fn databases(&self, given: &Settings, defaults: &Settings) -> Result<Vec<Settings>> {
        let common = self.common.clone().or(defaults.clone());
        let mut databases: Vec<Settings> = match &self.sections[..] {
            [] => vec![common],
            sections => sections.iter().cloned().map(|own| own.or(common.clone())).collect(),
        };
        let beside = self.path.parent().map(Path::to_owned).unwrap_or_default();
        let own = self.common.folder.as_ref().map(|own| beside.join(own));
        let named = given.folder.clone().or(own);
        let is_named = named.is_some();
        let folder = named.unwrap_or(beside);
        ensure!(
            folder.to_str().is_some_and(|name| !name.contains('#')),
            "{}: the folder {} is not UTF-8, or has a # in its name, which begins the tuning of a \
             database: name another one with folder",
            self.path.display(),
            folder.display()
        );
        let mut elsewhere = None;
        for (index, settings) in databases.iter_mut().enumerate() {
            settings.place_paths(&mut |setting, path| {
                if setting == "folder" {
                    return folder.clone();
                }
                // An empty one is refused later.
                if path.is_absolute() || path.as_os_str().is_empty() {
                    return path.to_owned();
                }
                let placed: PathBuf = folder.join(path).components().collect();
                if !is_named && !placed.exists() && path.exists() && !given.has(setting) {
                    elsewhere.get_or_insert((setting.replace('_', "-"), index, path.to_owned()));
                }
                placed
            });
        }
        // Earlier versions took these paths from the current folder.
        let Some((setting, index, path)) = elsewhere else { return Ok(databases) };
        let here = std::env::current_dir().unwrap_or_default();
        bail!(
            "{}{setting}: {} is in the current folder, but not in {}, the folder of the file, from \
             which its paths are taken; to take them from here, write folder = {:?} into it",
            self.place(&setting, (!self.sections.is_empty()).then_some(index)),
            path.display(),
            folder.display(),
            here.display().to_string()
        )
    }

    /// Returns `FILE:LINE: ` of a setting in a section, or else above the sections, or `FILE: `.
    fn place(&self, setting: &str, section: Option<usize>) -> String {
        let path = self.path.display();
        match self.line(setting, section) {
            Some(line) => format!("{path}:{line}: "),
            None => format!("{path}: "),
        }
    }

    fn line(&self, setting: &str, section: Option<usize>) -> Option<usize> {
        let root = DeTable::parse(&self.text).ok()?;
        let root = root.get_ref();
        let start_in = |table: &DeTable<'_>| {
            let is_it = |key: &str| key == setting || key == "name" && setting == "database";
            let found = table.iter().find(|(key, _)| is_it(key.get_ref()));
            found.map(|(key, _)| key.span().start)
        };
        let of_section = |section: usize| {
            let DeValue::Array(sections) = root.get("database")?.get_ref() else { return None };
            let DeValue::Table(table) = sections.get(section)?.get_ref() else { return None };
            start_in(table)
        };
        let start = section.and_then(of_section).or_else(|| start_in(root))?;
        Some(1 + line_feeds(&self.text.as_bytes()[..start]))
    }
}

/// Returns the setting whose value is at an offset of a file.
fn setting_at(text: &str, at: usize) -> Option<String> {
    setting_within(DeTable::parse(text).ok()?.get_ref(), at)
}

fn setting_within(table: &DeTable<'_>, at: usize) -> Option<String> {
    table.iter().find_map(|(name, value)| {
        let sections = value.get_ref().as_array();
        let mut sections = sections.into_iter().flatten();
        let within = sections.find_map(|section| {
            section.get_ref().as_table().and_then(|table| setting_within(table, at))
        });
        let is_here = || value.span().contains(&at).then(|| name.get_ref().to_string());
        within.or_else(is_here)
    })
}

/// Returns what is wrong with the setting on the line of an offset, if it has no value, or a text
/// without quotes. The parser takes some of these for numbers or dates.
fn unquoted(text: &str, at: usize) -> Option<String> {
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let (name, value) = text[begin..].lines().next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.split('#').next().unwrap_or_default().trim());
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let is_name = name.chars().all(is_of_name);
    if !is_name
        || value.starts_with(['"', '\'', '[', '{', '='])
        || DeTable::parse(&format!("v={value}")).is_ok()
    {
        return None;
    }
    Some(match value.to_ascii_lowercase().as_str() {
        "" => format!("{name}: the value is missing"),
        "yes" | "on" | "true" => format!("{name}: write true in place of {value}"),
        "no" | "off" | "false" => format!("{name}: write false in place of {value}"),
        _ => {
            let quoted = format!("{name} = {value:?}");
            match toml::from_str::<Settings<Databases>>(&quoted) {
                Ok(_) => format!("{name}: a text must be in quotes: {quoted}"),
                // No text is its value, or no setting has this name.
                Err(error) if error.message().starts_with("unknown field") => message(&error, ""),
                Err(error) => format!("{name}: {}", message(&error, "")),
            }
        }
    })
}

/// Returns what is wrong with a file, on one line, given its text from there on.
fn message(error: &toml::de::Error, from: &str) -> String {
    let message = error.message().trim();
    let name = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    if let Some((name, all_names)) = name {
        // Every second part is between two names.
        let known = all_names.split('`').skip(1).step_by(2);
        if is_parameter(name) {
            return format!(
                "{name} is not a setting, but a part of the database's name: database = \
                 \"casket.tch#{name}=...\""
            );
        }
        let meant = match nearest(name, known) {
            Some(meant) => format!("did you mean {meant}? "),
            None => String::new(),
        };
        return format!(
            "{name} is not a setting: {meant}`tyrant config --defaults` lists them all"
        );
    }
    match message {
        "duplicate key" => {
            let is_of_name =
                |letter: &char| letter.is_ascii_alphanumeric() || "-_".contains(*letter);
            let begin = from.find(|letter: char| is_of_name(&letter)).unwrap_or(from.len());
            let name: String = from[begin..].chars().take_while(is_of_name).collect();
            let hint = match &*name {
                "database" => "; with sections [[database]], no setting database is above them",
                _ => "",
            };
            format!("duplicate key {name}{hint}")
        }
        "number too large to fit in target type" => "the number is too large".to_owned(),
        "string values must be quoted, expected literal string" => {
            "a text must be in quotes".to_owned()
        }
        message => message.replace('\n', "; "),
    }
}

/// Returns whether databases have a parameter of this name.
fn is_parameter(name: &str) -> bool {
    let found = Specification::parse(&format!("casket.tch#{name}=1"));
    !matches!(found, Err(NameError::UnknownKey(_) | NameError::NotAPair(_)))
}

fn line_feeds(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns the first setting of this scope that is set.
fn first_of(settings: &Settings, scope: Scope) -> Option<&'static Setting> {
    let mut set = SETTINGS.iter().zip(settings.shown()).filter(|(_, value)| value.is_some());
    set.find(|(setting, _)| setting.scope == scope).map(|(setting, _)| setting)
}

/// How the server was started: its command line and environment, and its configuration file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launch {
    /// Settings of the command line and the environment.
    pub(crate) given: Settings,
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
}

/// Settings of a process and its databases, with all defaults.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// Settings of each database, at least one. Those of the process are the same in all.
    pub(crate) databases: Vec<Settings>,
    /// Configuration of the server of each.
    pub(crate) configs: Vec<server::Config>,
    pub(crate) origins: Origins,
}

impl Loaded {
    /// Returns warnings about the settings, and about the certificates that they name.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.configs.iter().flat_map(exposure_to_be).collect();
        let admin = self.databases.first().and_then(|settings| settings.admin.as_ref());
        let admin = admin.map_or(Vec::new(), |listen| addresses(&listen.0));
        warnings.extend(admin_exposure(&self.configs, &admin));
        for tls in self.configs.iter().filter_map(|config| config.tls.as_ref()) {
            // One that cannot be read was refused.
            for warning in server::certificate_warnings(&tls.files).unwrap_or_default() {
                // Databases may have the same certificate.
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        warnings
    }

    /// Fails if this user could not start a server with the settings. Makes nothing.
    pub(crate) fn check_start(&self) -> Result<()> {
        for (index, settings) in self.databases.iter().enumerate() {
            self.check_folder(settings, index)?;
            settings.check_start().map_err(|invalid| self.origins.error(invalid, index))?;
        }
        Ok(())
    }

    /// Fails if the folder of the paths is named, and is not one. The errors of the paths in it
    /// would not name the setting.
    fn check_folder(&self, settings: &Settings, index: usize) -> Result<()> {
        let Some(folder) = settings.folder.as_ref().filter(|folder| !folder.is_dir()) else {
            return Ok(());
        };
        let what = format!("{} is not a folder: make it, or name another one", folder.display());
        Err(self.origins.error(wrong("folder", what), index))
    }
}

/// Origins of settings, for errors about their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    source: Option<Source>,
    /// Settings of the command line and the environment.
    given: Settings,
}

impl Origins {
    /// Returns the name of a setting of a database, after the file and the line that it is from:
    /// `FILE:LINE: NAME`.
    pub(crate) fn name(&self, setting: &str, index: usize) -> String {
        let place = self.file_with(setting).map(|source| {
            let section = (!source.sections.is_empty()).then_some(index);
            source.place(setting, section)
        });
        place.unwrap_or_default() + setting
    }

    /// Returns the error of a setting. Only one that the file does not have is of the command line.
    fn error(&self, invalid: Invalid, index: usize) -> anyhow::Error {
        let Invalid { setting, what, is_by_itself } = invalid;
        let text = format!("{}: {what}", self.name(&setting, index));
        match is_by_itself && self.file_with(&setting).is_none() {
            true => wrong_command_line(text),
            false => anyhow!(text),
        }
    }

    /// Returns the configuration file, unless the setting is of the command line or the
    /// environment.
    fn file_with(&self, setting: &str) -> Option<&Source> {
        self.source.as_ref().filter(|_| !self.given.has(setting))
    }
}

impl Launch {
    /// Reads the file, and returns the settings that are in effect.
    pub(crate) fn load(&self) -> Result<Loaded> {
        let (databases, origins) = self.read()?;
        let shares = Shares(databases.len() as u64);
        let mut configs = Vec::new();
        for (index, settings) in databases.iter().enumerate() {
            let failed = |invalid| origins.error(invalid, index);
            settings.check_paths().map_err(failed)?;
            configs.push(settings.configure(shares).map_err(failed)?);
            settings.check_apart_from_admin().map_err(failed)?;
            for other in &databases[..index] {
                settings.check_apart_from(other).map_err(failed)?;
            }
        }
        Ok(Loaded { databases, configs, origins })
    }

    /// Returns the settings of the process, if they can be read and their paths are of use. Others
    /// may be wrong.
    pub(crate) fn of_process(&self) -> Option<Settings> {
        let (databases, _) = self.read().ok()?;
        let checked = databases.iter().try_for_each(Settings::check_paths);
        checked.ok().and_then(|()| databases.into_iter().next())
    }

    /// Reads the file, and returns the settings of each database, with all defaults.
    fn read(&self) -> Result<(Vec<Settings>, Origins)> {
        let source = self.file.as_deref().map(Source::read).transpose()?;
        if source.is_none() && self.given.folder.is_some() {
            let text = "folder: requires config, the file whose paths it is about";
            return Err(wrong_command_line(text));
        }
        let sections = source.as_ref().map_or(&[][..], |source| &source.sections);
        if sections.len() > 1
            && let Some(setting) = first_of(&self.given, Scope::OneDatabase)
        {
            return Err(wrong_command_line(format_args!(
                "{} of the command line or the environment belongs to one database, and the file \
                 has {}",
                setting.name(),
                sections.len()
            )));
        }
        let mut defaults = defaults()?;
        // A Unix socket may stand for the port.
        let port = defaults.port.take();
        let databases = match &source {
            Some(source) => source.databases(&self.given, &defaults)?,
            None => vec![defaults],
        };
        let whole = |settings: Settings| {
            let mut settings = self.given.clone().or(settings);
            if settings.unix.is_none() || settings.host.is_some() {
                settings.port = settings.port.or(port);
            }
            settings
        };
        let databases = databases.into_iter().map(whole).collect();
        Ok((databases, Origins { source, given: self.given.clone() }))
    }
}

/// Returns the defaults that are values.
fn defaults() -> Result<Settings> {
    let lines = SETTINGS.iter().filter(|setting| setting.default == DefaultValue::Example);
    let text: Vec<String> =
        lines.map(|setting| format!("{} = {}", setting.name(), setting.example)).collect();
    toml::from_str(&text.join("\n")).context("the defaults")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::configure::host_names;
    use server::Endpoint;

    fn load(text: &str, given: Settings) -> Result<Loaded> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tyrant.toml");
        std::fs::write(&path, text).expect("a file");
        let loaded = Launch { given, file: Some(path.clone()) }.load();
        loaded.map_err(|error| {
            let error = format!("{error:#}").replace(&path.display().to_string(), "FILE");
            anyhow!(error.replace(&format!("{}/", folder.path().display()), ""))
        })
    }

    fn error(text: &str) -> String {
        load(text, Settings::default()).expect_err("an error").to_string()
    }

    #[test]
    fn without_anything_the_servers_own_defaults_are_in_effect() {
        let Loaded { databases, configs, .. } = Launch::default().load().expect("the defaults");
        assert_eq!(databases[0].database.as_deref(), Some("casket.tch"));
        let own = server::Config {
            following: server::Following {
                position: "tyrant.rts".into(),
                is_writable: false,
                ..server::Following::default()
            },
            stop_wait: configs[0].stop_wait,
            http_hosts: host_names([]),
            ..server::Config::default()
        };
        assert_eq!(format!("{:?}", configs[0]), format!("{own:?}"));
    }

    #[test]
    fn an_option_overrides_the_file_and_the_file_the_default() {
        let text = "port = 5\nconnections-max = 7\nwebdav = true\n";
        let given = Settings { port: Some(6), webdav: Some(false), ..Settings::default() };
        let loaded = load(text, given).expect("a configuration");
        assert_eq!(loaded.configs[0].listen, [Endpoint::Loopback { port: 6 }]);
        assert_eq!(loaded.configs[0].connections_max, 7);
        assert_eq!(loaded.databases[0].webdav, Some(false));
    }

    #[test]
    fn sections_have_their_own_settings_and_share_those_above_them() {
        let text = "timeout = 3\nlog-level = 'error'\n\
            [[database]]\nname = 'a.tch'\n\
            [[database]]\nname = '+'\nport = 1979\ntimeout = 4.5\n";
        let Loaded { databases, configs, .. } = load(text, Settings::default()).expect("two");
        let of = |config: &server::Config| (config.listen.clone(), config.timeout);
        let seconds = std::time::Duration::from_secs_f64;
        assert_eq!(of(&configs[0]), (vec![Endpoint::Loopback { port: 1978 }], Some(seconds(3.))));
        assert_eq!(of(&configs[1]), (vec![Endpoint::Loopback { port: 1979 }], Some(seconds(4.5))));
        assert_eq!(databases[1].database.as_deref(), Some("+"));
        let alone = server::Config::default().buffer_bytes_max;
        assert!(configs[0].buffer_bytes_max <= alone, "two share the memory of one");
    }

    #[test]
    fn an_error_has_the_file_the_line_and_the_name() {
        for (text, expected) in [
            (
                "port = 1978\nprot = 1979\n",
                "FILE:2: prot is not a setting: did you mean port? `tyrant config --defaults` ",
            ),
            ("\n\nport = 70000\n", "FILE:3: "),
            (
                "log = 'x'\nport = '1978'\n",
                "FILE:2: port: a number from 0 to 65535 is required here",
            ),
            ("expiry = 'kept'\n", "FILE:1: expiry: \"kept\" is not \"keep\" or \"ignore\""),
            ("mask = ['put', 'vanihs']\n", "FILE:1: mask: \"vanihs\" is not a command"),
            ("port = \n", "FILE:1: port: the value is missing"),
            ("port = 1\nwebdav = yes\n", "FILE:2: webdav: write true in place of yes"),
            ("webdav = Off\n", "FILE:1: webdav: write false in place of Off"),
            ("mask = [\n'a=b', c]\n", "FILE:2: a text must be in quotes"),
            ("log = x\n", "FILE:1: log: a text must be in quotes: log = \"x\""),
            (
                "idle-timeout = bogus\n",
                "FILE:1: idle-timeout: a number of seconds is required here",
            ),
            ("prot = bogus\n", "FILE:1: prot is not a setting: did you mean port?"),
            (
                "database = 't.toml'\n",
                "FILE:1: database: cannot tell the kind of database from the name \"t.toml\": it is *, +, \
                 or ends in .tch, .hdb, .tcb, .bdb, .tcf, .fdb, .tct or .tdb; if it is a file of \
                 settings: --config t.toml",
            ),
            ("port = 1\nport = 2\n", "FILE:2: duplicate key port"),
            (
                "database = 'a.tch'\n[[database]]\nname = 'b.tch'\n",
                "FILE:2: duplicate key database; with sections [[database]], no setting database",
            ),
            ("port = 1\nadmin = 'localhost:1'\n", "FILE:2: admin: 1 is that of setting port too"),
            ("host = 'a'\nport = 1\nadmin = 'a:1'\n", "FILE:3: admin: 1 is that of setting port"),
            ("unix = './s'\ntls-port = 1\nadmin = ':1'\n", "FILE:"),
            ("host = 'a'\ndatabase = 'casket.xyz'\n", "FILE:2: database: cannot tell the kind"),
            ("database = '*#bnm=5'\n", "FILE:1: database: unknown tuning \"bnm\""),
            (
                "\nserver-id = 65536\n",
                "FILE:2: server-id: a number from 1 to 65535, or 0 for none, is required",
            ),
            ("\nupdate-log = 'ulog'\n", "FILE:2: update-log: requires server-id"),
            ("port = 1\nunix = ''\n", "FILE:2: unix: the path is empty: leave it out, or name one"),
            ("update-log = ''\nserver-id = 1\n", "FILE:1: update-log: the path is empty"),
            ("position-file = ''\n", "FILE:1: position-file: the path is empty"),
            (
                "server-id = 1\nupdate-log = 'casket.tch'\n",
                "FILE:2: update-log: \"casket.tch\" is that of setting database too; choose another",
            ),
            ("log = 'a'\npid = './a'\n", "FILE:2: pid: \"a\" is that of setting log too"),
            ("users = '/nowhere/users'\n", "FILE:1: users: cannot read the users"),
            ("[[database]]\nport = 1\npid = 'x'\n", "FILE:3: pid belongs above the sections"),
            ("port = 1\n[[database]]\n", "FILE:1: port belongs into a section"),
            ("[[database]]\nname = 'a.tch'\nprot = 1\n", "FILE:3: prot is not a setting"),
            ("[[database]]\nname = '*'\n[[database]]\nname = '*#bnm=5'\n", "FILE:4: database: "),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn two_databases_share_no_place() {
        let two = |first: &str, second: &str| {
            let section = |more: &str| format!("[[database]]\n{more}\n");
            error(&format!("server-id = 1\n{}{}", section(first), section(second)))
        };
        for (first, second, expected) in [
            ("name = 'a.tch'", "port = 1\nname = 'a.tch#dead=20'", "FILE:6: database: \"a.tch\" "),
            ("name = '*'", "name = '+'", "FILE: port: 1978 is that of another database"),
            ("name = '*'\nunix = 's'", "name = '*'\nunix = './s'", "FILE:7: unix: "),
            (
                "name = '*'\nupdate-log = 'u'",
                "name = '*'\nport = 1\nupdate-log = 'u/'",
                "FILE:8: update-log: ",
            ),
            (
                "name = '*'\nmaster = 'a:1'",
                "name = '*'\nport = 1\nmaster = 'a:2'",
                "FILE: position-file: ",
            ),
        ] {
            let error = two(first, second);
            assert!(error.starts_with(expected), "{first} {second}: {error}");
        }
    }

    #[test]
    fn a_file_of_the_greatest_size_is_read_and_a_longer_one_is_not() {
        let longest = format!("#{}\n", "x".repeat(FILE_BYTES_MAX as usize - 2));
        load(&longest, Settings::default()).expect("a configuration");
        let error = error(&format!("{longest}\n"));
        assert!(error.starts_with("FILE: longer than "), "{error}");
    }

    #[test]
    fn paths_of_a_file_are_relative_to_its_folder_and_given_ones_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tyrant.toml");
        let load = |text: &str, given: Settings| {
            std::fs::write(&path, text).expect("a file");
            Launch { given, file: Some(path.clone()) }.load()
        };
        let text = "log = 'l'\nadmin = './a.sock'\npid = '/run/p'\nserver-id = 1\n\
            [[database]]\nname = 'a.tch#opts=l'\nupdate-log = 'u'\nunix = 's'\n\
            [[database]]\nname = '*#capnum=5'\nposition-file = '/b/rts'\n";
        let given = Settings { log: Some("given".into()), ..Settings::default() };
        for (head, top) in [
            ("", folder.path().to_owned()),
            ("folder = 'data'\n", folder.path().join("data")),
            ("folder = '/elsewhere'\n", "/elsewhere".into()),
        ] {
            let loaded = load(&format!("{head}{text}"), given.clone()).expect("two");
            let in_top = |name: &str| Some(top.join(name));
            let [one, other] = &loaded.databases[..] else { panic!("{loaded:?}") };
            let name = format!("{}/a.tch#opts=l", top.display());
            assert_eq!(one.database.as_deref(), Some(&*name));
            assert_eq!(one.log, Some("given".into()));
            assert_eq!(one.pid, Some("/run/p".into()));
            assert_eq!(one.admin.as_ref().map(|listen| &listen.0).cloned(), {
                in_top("a.sock").map(Endpoint::Unix)
            });
            assert_eq!((&one.update_log, &one.unix), (&in_top("u"), &in_top("s")));
            assert_eq!(one.position_file, in_top("tyrant.rts"), "a default is as if written");
            assert_eq!(other.database.as_deref(), Some("*#capnum=5"));
            assert_eq!(other.position_file, Some("/b/rts".into()));
        }
        let folder_given = Settings { folder: Some("here".into()), ..Settings::default() };
        let loaded = load("folder = '/elsewhere'\nlog = 'l'", folder_given).expect("one");
        assert_eq!(loaded.databases[0].log, Some("here/l".into()));
        assert_eq!(loaded.databases[0].database.as_deref(), Some("here/casket.tch"));
    }

    #[test]
    fn a_folder_without_a_file_is_an_error() {
        let given = Settings { folder: Some("here".into()), ..Settings::default() };
        let error = Launch { given, file: None }.load().expect_err("an error").to_string();
        assert!(error.starts_with("folder: requires config"), "{error}");
    }

    #[test]
    fn a_file_that_was_written_for_paths_from_the_current_folder_is_refused() {
        // The tests run in the folder of this crate.
        assert!(Path::new("Cargo.toml").exists());
        let error = error("port = 1\nupdate-log = 'Cargo.toml'\nserver-id = 1\n");
        let expected = "FILE:2: update-log: Cargo.toml is in the current folder, but not in ";
        assert!(error.starts_with(expected) && error.contains("write folder = "), "{error}");
        let text = "folder = '/elsewhere'\nupdate-log = 'Cargo.toml'\nserver-id = 1\n";
        load(text, Settings::default()).expect("a configuration that names the folder");
    }

    #[test]
    fn a_limited_number_of_databases_is_served() {
        let of = |count: usize| -> String {
            (0..count).map(|port| format!("[[database]]\nname = '*'\nport = {port}\n")).collect()
        };
        load(&of(DATABASES_MAX), Settings::default()).expect("the most");
        let error = error(&of(DATABASES_MAX + 1));
        assert!(error.starts_with("FILE: 65 databases, at most 64"), "{error}");
    }

    #[test]
    fn an_option_of_one_database_is_refused_for_several() {
        let text = "[[database]]\nname = '*'\n[[database]]\nname = '+'\nport = 1\n";
        let given = Settings { port: Some(6), ..Settings::default() };
        let error = load(text, given).expect_err("an error").to_string();
        assert!(error.starts_with("port of the command line or the environment"), "{error}");
        let given =
            Settings { connections_max: Some(super::super::Count(6)), ..Settings::default() };
        let configs = load(text, given).expect("two").configs;
        assert!(configs.iter().all(|config| config.connections_max == 6));
    }
}
