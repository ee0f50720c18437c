//! The command line of Tokyo Tyrant's server: options with one dash and long names, before the name
//! of the database.

use server::{CommandMask, Periodic, SCRIPT_PERIODIC_MAX, UnknownName};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Name and values of every option, as the usage shows them.
const USAGE: &str = "\
usage: PROG [options] [dbname]

  -host name      address to bind (all); path of a Unix socket if -port is 0 or less
  -port num       port (1978)
  -thnum num      most event loops (one per core)
  -tout sec       most seconds to wait within a request (no limit)
  -dmn            run as a daemon
  -pid path       write the process id to this file
  -kl             end the process that the file of -pid names, and serve in its place
  -log path       append the log to this file (standard output)
  -ld             log connections too
  -le             log errors only
  -ulog path      log what changes into files of this folder; takes -sid
  -ulim num       bytes from which the next file begins (1g); 0 for never; k, m, g may follow
  -uas            acknowledge changes up to 0.1 s before they are in the update log
  -sid num        number of this server among those that replicate each other, 1 to 65535 (none)
  -mhost name     follow this server; takes -sid
  -mport num      port of that server (1978)
  -rts path       file that remembers how far it has followed (ttserver.rts)
  -rcc            stop following where an operation ends otherwise than on that server
  -mul num        accepted: one database is opened, whose writers do not wait for each other
  -exp            keep flags and expiry that memcached clients give, which Tokyo Tyrant ignores
  -mask expr      forbid commands; names separated by comma or space
  -unmask expr    allow commands again
  -ext path       Lua script whose functions clients call; @code is the script itself
  -extpc name sec call this function of it every sec seconds; may be repeated
  --copy-command  let clients have the server run a command: copy @COMMAND
  --version       print the version
  --help          print this text

Not supported by this version, refused by name: -skel
";

/// Options of Tokyo Tyrant that are refused.
const REFUSED: &[&str] = &["-skel"];

/// Most databases that Tokyo Tyrant's `-mul` takes.
const MULTIPLE_MAX: u32 = 127;

/// Returns the usage of a program with this name.
pub(crate) fn usage(program: &str) -> String {
    USAGE.replace("PROG", program)
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Serve a database.
    Serve(Box<Options>),
    /// Print the version.
    Version,
    /// Print the usage.
    Help,
}

/// Settings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Address to bind, or path of the socket.
    pub host: Option<String>,
    /// Port; 0 or less is a Unix socket at `host`.
    pub port: i32,
    /// Most event loops.
    pub threads: Option<usize>,
    /// Longest wait within a request.
    pub timeout: Option<Duration>,
    /// Run as a daemon.
    pub daemon: bool,
    /// File for the process id.
    pub pid: Option<PathBuf>,
    /// End the process that the file names.
    pub kill: bool,
    /// Log file.
    pub log: Option<PathBuf>,
    /// Verbosity of the log.
    pub verbosity: crate::logging::Verbosity,
    /// Folder of the update log.
    pub update_log: Option<PathBuf>,
    /// Size of an update log file, in bytes.
    pub update_log_file_bytes: u64,
    /// Acknowledge changes before they are in the update log.
    pub update_log_asynchronous: bool,
    /// Id among the servers that replicate each other; 0 is none.
    pub server_id: u32,
    /// Master to follow.
    pub master_host: Option<String>,
    /// Port of the master.
    pub master_port: u16,
    /// File that stores how far this server has followed.
    pub position: PathBuf,
    /// Stop if an operation's outcome differs from that on the master.
    pub check: bool,
    /// Number of databases over which Tokyo Tyrant would spread the records; 0 if not given.
    pub multiple: u32,
    /// Keep the flags and expiry of memcached clients.
    pub keeps_expiry: bool,
    /// Changes of the command mask in order: whether to forbid, and the names.
    pub masks: Vec<(bool, CommandMask)>,
    /// Let clients run a command on the server that copies the database.
    pub copy_command: bool,
    /// Script whose functions clients call, or its code after `@`.
    pub script: Option<String>,
    /// Functions of the script that are called periodically.
    pub periodic: Vec<Periodic>,
    /// Name of the database.
    pub database: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: None,
            port: 1978,
            threads: None,
            timeout: None,
            daemon: false,
            pid: None,
            kill: false,
            log: None,
            verbosity: crate::logging::Verbosity::Info,
            update_log: None,
            update_log_file_bytes: server::update_log::FILE_BYTES_MAX,
            update_log_asynchronous: false,
            server_id: 0,
            master_host: None,
            master_port: 1978,
            position: "ttserver.rts".into(),
            check: false,
            keeps_expiry: false,
            multiple: 0,
            masks: Vec::new(),
            copy_command: false,
            script: None,
            periodic: Vec::new(),
            database: "*".into(),
        }
    }
}

/// Reason why a command line is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is invalid, for this reason.
    Usage(String),
    /// An option of Tokyo Tyrant that is not supported.
    NotSupported(String),
}

/// Parses the arguments after the program's name.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, Refusal> {
    use crate::logging::Verbosity;
    let arguments: Vec<String> = arguments
        .into_iter()
        .map(OsString::into_string)
        .collect::<Result<_, _>>()
        .map_err(|argument| Refusal::Usage(format!("{} is not UTF-8", argument.display())))?;
    let mut options = Options::default();
    let mut arguments = arguments.into_iter();
    let mut database = None;
    while let Some(argument) = arguments.next() {
        if database.is_some() {
            return Err(Refusal::Usage(format!("more than one database name: {argument}")));
        }
        let mut value =
            || arguments.next().ok_or_else(|| Refusal::Usage(format!("{argument} takes a value")));
        match argument.as_str() {
            "--version" => return Ok(Request::Version),
            "--help" => return Ok(Request::Help),
            "-host" => options.host = Some(value()?),
            "-port" => options.port = number(&argument, &value()?)?,
            "-thnum" => {
                let threads = number(&argument, &value()?)?;
                if threads == 0 {
                    return Err(Refusal::Usage("-thnum takes at least 1".into()));
                }
                options.threads = Some(threads);
            }
            "-tout" => options.timeout = timeout(&value()?)?,
            "-dmn" => options.daemon = true,
            "-pid" => options.pid = Some(value()?.into()),
            "-kl" => options.kill = true,
            "-log" => options.log = Some(value()?.into()),
            "-ld" => options.verbosity = Verbosity::Debug,
            "-le" => options.verbosity = Verbosity::Error,
            "-ulog" => options.update_log = Some(value()?.into()),
            "-ulim" => {
                let bytes = crate::sizes::bytes(&value()?);
                options.update_log_file_bytes =
                    bytes.map_err(|why| Refusal::Usage(format!("-ulim: {why}")))?;
            }
            "-uas" => options.update_log_asynchronous = true,
            "-sid" => options.server_id = number(&argument, &value()?)?,
            "-mhost" => options.master_host = Some(value()?),
            "-mport" => options.master_port = number(&argument, &value()?)?,
            "-rts" => options.position = value()?.into(),
            "-rcc" => options.check = true,
            "-exp" => options.keeps_expiry = true,
            "-mul" => {
                options.multiple = number(&argument, &value()?)?;
                if options.multiple > MULTIPLE_MAX {
                    return Err(Refusal::Usage(format!("-mul takes at most {MULTIPLE_MAX}")));
                }
            }
            "-mask" => options.masks.push((true, mask(&argument, &value()?)?)),
            "-unmask" => options.masks.push((false, mask(&argument, &value()?)?)),
            "-ext" => options.script = Some(value()?),
            "-extpc" => {
                let (name, seconds) = (value()?, value()?);
                let parsed = crate::scripting::periodic(&name, &seconds);
                let parsed = parsed.map_err(|why| Refusal::Usage(format!("-extpc: {why}")))?;
                options.periodic.push(parsed);
            }
            "--copy-command" => options.copy_command = true,
            name if REFUSED.contains(&name) => {
                return Err(Refusal::NotSupported(argument));
            }
            name if name.starts_with('-') => {
                return Err(Refusal::Usage(format!("unknown option {name}")));
            }
            name => database = Some(name.to_owned()),
        }
    }
    if let Some(database) = database {
        options.database = database;
    }
    if options.port <= 0 && options.host.is_none() {
        return Err(Refusal::Usage("-port 0 takes the path of a socket in -host".into()));
    }
    if options.script.is_none() && !options.periodic.is_empty() {
        return Err(Refusal::Usage("-extpc takes a script in -ext".into()));
    }
    if options.periodic.len() > SCRIPT_PERIODIC_MAX {
        return Err(Refusal::Usage(format!("-extpc: at most {SCRIPT_PERIODIC_MAX} functions")));
    }
    Ok(Request::Serve(Box::new(options)))
}

fn mask(option: &str, names: &str) -> Result<CommandMask, Refusal> {
    names.parse().map_err(|error: UnknownName| Refusal::Usage(format!("{option}: {error}")))
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|_| Refusal::Usage(format!("{option} takes a number, not {text:?}")))
}

/// Parses seconds, with an optional fraction; 0 or less is no limit.
fn timeout(text: &str) -> Result<Option<Duration>, Refusal> {
    let seconds: f64 = number("-tout", text)?;
    if seconds <= 0.0 {
        return Ok(None);
    }
    let timeout = Duration::try_from_secs_f64(seconds)
        .map_err(|_| Refusal::Usage(format!("-tout takes a number of seconds, not {text:?}")))?;
    Ok(Some(timeout))
}

#[cfg(test)]
mod tests {
    use super::{
        MULTIPLE_MAX, Options, Periodic, REFUSED, Refusal, Request, SCRIPT_PERIODIC_MAX, parse,
    };
    use crate::logging::Verbosity;
    use std::time::Duration;

    fn parse_words(line: &str) -> Result<Request, Refusal> {
        parse(line.split_whitespace().map(Into::into))
    }

    fn options(line: &str) -> Options {
        match parse_words(line).unwrap() {
            Request::Serve(options) => *options,
            other => panic!("not options: {other:?}"),
        }
    }

    #[test]
    fn without_arguments_it_serves_an_on_memory_hash_on_port_1978() {
        assert_eq!(options(""), Options::default());
        assert_eq!(Options::default().database, "*");
        assert_eq!(Options::default().port, 1978);
    }

    #[test]
    fn every_option_is_parsed() {
        let mask = |names: &str| names.parse().unwrap();
        let line = "-host ::1 -port 1979 -thnum 4 -tout 1.5 -dmn -pid p -kl -log l -ld -mul 8 \
                    -ulog u -ulim 2k -uas -sid 3 -mhost m -mport 1980 -rts r -rcc -exp \
                    -mask allwrite,out -unmask put --copy-command -ext s.lua -extpc f 1.5 -extpc g 2 \
                    casket.tch#bnum=10";
        let periodic = |function: &str, every_ms| Periodic {
            function: function.into(),
            every: Duration::from_millis(every_ms),
        };
        let expected = Options {
            host: Some("::1".into()),
            port: 1979,
            threads: Some(4),
            timeout: Some(Duration::from_millis(1500)),
            daemon: true,
            pid: Some("p".into()),
            kill: true,
            log: Some("l".into()),
            verbosity: Verbosity::Debug,
            update_log: Some("u".into()),
            update_log_file_bytes: 2048,
            update_log_asynchronous: true,
            server_id: 3,
            master_host: Some("m".into()),
            master_port: 1980,
            position: "r".into(),
            check: true,
            keeps_expiry: true,
            multiple: 8,
            masks: vec![(true, mask("allwrite,out")), (false, mask("put"))],
            copy_command: true,
            script: Some("s.lua".into()),
            periodic: vec![periodic("f", 1500), periodic("g", 2000)],
            database: "casket.tch#bnum=10".into(),
        };
        assert_eq!(options(line), expected);
        assert_eq!(options("-le").verbosity, Verbosity::Error);
        assert_eq!(options("-tout 0").timeout, None);
        assert_eq!(options("-host /tmp/s -port 0").port, 0);
        assert_eq!(parse_words("--version"), Ok(Request::Version));
        assert_eq!(parse_words("--help"), Ok(Request::Help));
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        for name in REFUSED {
            let refusal = Refusal::NotSupported((*name).into());
            assert_eq!(parse_words(&format!("-port 1979 {name} 1 casket.tch")), Err(refusal));
        }
    }

    #[test]
    fn invalid_command_lines_are_refused() {
        for line in [
            "-nonsense",
            "-",
            "-port",
            "-port x",
            "-thnum 0",
            "-thnum -1",
            "-tout x",
            "-tout NaN",
            "-tout inf",
            "-port 0",
            "a.tch b.tch",
            "a.tch -dmn",
            "-mask bogus",
            "-ext",
            "-extpc f 1",
            "-ext s.lua -extpc f",
            "-ext s.lua -extpc f x",
            "-ext s.lua -extpc f 0",
            "-unmask bogus",
        ] {
            assert!(matches!(parse_words(line), Err(Refusal::Usage(_))), "{line}");
        }
    }

    #[test]
    fn mul_takes_as_many_databases_as_tokyo_tyrant() {
        assert_eq!(options(&format!("-mul {}", MULTIPLE_MAX - 1)).multiple, MULTIPLE_MAX - 1);
        assert_eq!(options(&format!("-mul {MULTIPLE_MAX}")).multiple, MULTIPLE_MAX);
        let over = parse_words(&format!("-mul {}", MULTIPLE_MAX + 1));
        assert!(matches!(over, Err(Refusal::Usage(_))));
    }

    #[test]
    fn so_many_functions_are_called_periodically_and_no_more() {
        let periodic = |count| format!("-ext s.lua {}", "-extpc f 1 ".repeat(count));
        assert_eq!(options(&periodic(SCRIPT_PERIODIC_MAX)).periodic.len(), SCRIPT_PERIODIC_MAX);
        let over = parse_words(&periodic(SCRIPT_PERIODIC_MAX + 1));
        assert!(matches!(over, Err(Refusal::Usage(_))));
    }
}
