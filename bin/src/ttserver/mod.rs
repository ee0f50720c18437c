//! `ttserver`: the server with Tokyo Tyrant's command line.

mod options;

pub(crate) use options::usage;

use crate::logging::LogFormat;
use crate::pid_file::PidFile;
use crate::scripting::Script;
use crate::serving::{Process, Service};
use crate::{TOKYO_TYRANT_VERSIONS, daemon, version_line};
use anyhow::Result;
use options::{Options, Refusal, Request};
use scripts::limits::THREADS_MAX;
use scripts::{Allowed, Limits, Source};
use server::ReadinessLimits;
use server::update_log::Settings;
use server::{
    ClientPaths, CommandMask, Config, Dialect, Endpoint, ExtensionSettings, Following, HostNames,
    Master,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Default pid file of a daemon, as in Tokyo Tyrant.
const DAEMON_PID_FILE: &str = "ttserver.pid";

/// Runs the program. Returns its exit code, 0 or 1.
pub fn run() -> ExitCode {
    let (program, arguments) = crate::arguments("ttserver");
    let request = match options::parse(arguments) {
        Ok(request) => request,
        Err(Refusal::Usage(reason)) => {
            eprintln!("{program}: {reason}\nusage: {program} [options] [dbname]");
            eprintln!("\"{program} --help\" has the options");
            return ExitCode::FAILURE;
        }
        Err(Refusal::NotSupported(option)) => {
            eprintln!("{program}: {option} is not supported by this version");
            return ExitCode::FAILURE;
        }
    };
    let result = match request {
        Request::Version => {
            println!("{}", version_line());
            println!("Compatible with Tokyo Tyrant 1.1.41 ({TOKYO_TYRANT_VERSIONS})");
            Ok(ExitCode::SUCCESS)
        }
        Request::Help => {
            print!("{}", usage(&program));
            Ok(ExitCode::SUCCESS)
        }
        Request::Serve(options) => serve(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("{program}: {}", crate::describe(&error));
        ExitCode::FAILURE
    })
}

fn serve(options: &Options) -> Result<ExitCode> {
    let process = process(options)?;
    if daemon::is_child() {
        daemon::detach()?;
    } else {
        if let (true, Some(path)) = (options.kill, &process.pid) {
            PidFile::end_process(path)?;
        }
        if options.daemon {
            return daemon::start();
        }
    }
    process.run()?;
    Ok(ExitCode::SUCCESS)
}

fn process(options: &Options) -> Result<Process> {
    let mut config = Config { listen: vec![endpoint(options)?], ..Config::default() };
    config.timeout = options.timeout;
    config.dialect = Dialect::TokyoTyrant;
    config.ignores_expiry = !options.keeps_expiry;
    // As in Tokyo Tyrant, which ignores the name.
    config.http_hosts = HostNames::any();
    // As in Tokyo Tyrant; `-mask copy,restore,setmst` forbids it.
    config.client_paths = ClientPaths::Any;
    config.set_master_command = true;
    config.copy_command = options.copy_command;
    // More loops than cores would only take turns.
    config.threads = options.threads.unwrap_or(config.threads).min(config.threads);
    for (forbid, names) in &options.masks {
        if *forbid { config.mask.mask(*names) } else { config.mask.unmask(*names) }
    }
    let replicates = options.update_log.is_some() || options.master_host.is_some();
    let is_ignored = options.server_id > u16::MAX.into() && !replicates;
    config.server_id = if is_ignored { 0 } else { options.server_id };
    config.update_log = options.update_log.as_ref().map(|folder| Settings {
        file_bytes_max: options.update_log_file_bytes,
        is_asynchronous: options.update_log_asynchronous,
        ..Settings::new(folder)
    });
    let port = options.master_port;
    config.following = Following {
        master: options.master_host.clone().map(|host| Master { host, port }),
        position: options.position.clone(),
        check: options.check,
        // Two masters may follow each other.
        is_writable: true,
        ..Following::default()
    };
    let mut notices = Vec::new();
    if is_ignored {
        let (given, most) = (options.server_id, u16::MAX);
        notices.push(format!(
            "-sid {given} is above {most} and is ignored, because replication is off"
        ));
    }
    if options.multiple > 0 {
        notices.push(format!(
            "-mul {}: one database is opened, because its writers do not wait for each other",
            options.multiple
        ));
    }
    if config.mask != CommandMask::NONE {
        notices.push(format!("command mask: {:#x}", config.mask.bits()));
    }
    let default_pid = || options.daemon.then(|| PathBuf::from(DAEMON_PID_FILE));
    // A daemon closes its standard output, so without a log file its log is discarded.
    let daemon_log = || options.daemon.then(|| Path::new("/dev/null").to_owned());
    let database = options.database.clone();
    let script = options.script.as_deref().map(|script| script_of(options, script));
    Ok(Process {
        run_as: None,
        databases: vec![Service {
            database,
            import: None,
            config,
            webdav: false,
            script,
            script_limits: Limits::default(),
        }],
        log: options.log.clone().or_else(daemon_log),
        verbosity: options.verbosity,
        log_format: LogFormat::Text,
        pid: options.pid.clone().or_else(default_pid),
        admin: None,
        readiness: ReadinessLimits::default(),
        hosts: HostNames::default(),
        notices,
        origins: None,
        launch: None,
    })
}

/// Returns the script to serve. It may use files and other programs, as with Tokyo Tyrant.
fn script_of(options: &Options, script: &str) -> Script {
    let defaults = ExtensionSettings::default();
    Script {
        source: Source::from_argument(script),
        limits: Limits::default(),
        allowed: Allowed { files: true, programs: true },
        settings: ExtensionSettings {
            threads: options.threads.unwrap_or(defaults.threads).min(THREADS_MAX),
            periodic: options.periodic.clone(),
            ..defaults
        },
    }
}

fn endpoint(options: &Options) -> Result<Endpoint> {
    if options.port <= 0 {
        // Options without a path were refused.
        return Ok(Endpoint::Unix(options.host.clone().unwrap_or_default().into()));
    }
    let port = u16::try_from(options.port)
        .map_err(|_| anyhow::anyhow!("-port {} is above {}", options.port, u16::MAX))?;
    Ok(Endpoint::Tcp { host: options.host.clone(), port })
}

#[cfg(test)]
pub(crate) fn is_valid<'a>(arguments: impl Iterator<Item = &'a str>) -> bool {
    options::parse(arguments.map(Into::into)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_match_tokyo_tyrants_except_for_copy_commands() {
        let config = |options: &Options| process(options).unwrap().databases.remove(0).config;
        let default = config(&Options::default());
        assert_eq!(default.listen, [Endpoint::Tcp { host: None, port: 1978 }]);
        assert_eq!(default.client_paths, ClientPaths::Any);
        assert!(default.set_master_command && !default.copy_command);
        let options = Options { copy_command: true, ..Options::default() };
        assert!(config(&options).copy_command);
    }
}
