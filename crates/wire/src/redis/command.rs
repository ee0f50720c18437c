//! The commands, with what `COMMAND` says of each.

use super::Arguments;
use crate::kind::kinds;

/// Number of a command's parts, and which of them are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of parts with the name; if negative, the least number.
    pub arity: i8,
    /// Place of the first key, 0 for none.
    pub first_key: i8,
    /// Place of the last key, from the end if negative.
    pub last_key: i8,
    /// Step from one key to the next.
    pub step: i8,
}

/// Declares the commands: name, class, effect of one of the class `Other`, arity, and the places of
/// the first and the last key and the step between keys.
macro_rules! commands {
    ($($command:ident $name:literal $class:ident $($effect:ident)? $arity:literal ($first:literal $last:literal $step:literal);)*) => {
        kinds! {
            /// Commands of Redis's protocol that the server knows.
            Command 6 "redis" {
                $($command $name $class $($effect)?;)*
            }
        }

        impl Command {
            /// All commands.
            pub const ALL: &[Self] = &[$(Self::$command,)*];

            /// Returns the command of a name, which is in small letters.
            fn of_lower_case(name: &[u8]) -> Option<Self> {
                match std::str::from_utf8(name).ok()? {
                    $($name => Some(Self::$command),)*
                    _ => None,
                }
            }

            /// Returns the name, in small letters.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$command => $name,)*
                }
            }

            /// Returns the shape.
            pub const fn shape(self) -> Shape {
                match self {
                    $(Self::$command => {
                        Shape { arity: $arity, first_key: $first, last_key: $last, step: $step }
                    })*
                }
            }
        }
    };
}

// The frequent ones come first: a name is compared with each in turn.
commands! {
    Get "get" Read 2 (1 1 1);
    Set "set" Write -3 (1 1 1);
    Incr "incr" Write 2 (1 1 1);
    MGet "mget" List -2 (1 -1 1);
    Del "del" Write -2 (1 -1 1);
    Expire "expire" Write -3 (1 1 1);
    Exists "exists" Read -2 (1 -1 1);
    SetEx "setex" Write 4 (1 1 1);
    Ttl "ttl" Read 2 (1 1 1);
    MSet "mset" Write -3 (1 -1 2);
    IncrBy "incrby" Write 3 (1 1 1);
    Decr "decr" Write 2 (1 1 1);
    DecrBy "decrby" Write 3 (1 1 1);
    SetNx "setnx" Write 3 (1 1 1);
    PSetEx "psetex" Write 4 (1 1 1);
    GetSet "getset" Write 3 (1 1 1);
    GetDel "getdel" Write 2 (1 1 1);
    GetEx "getex" Write -2 (1 1 1);
    Append "append" Write 3 (1 1 1);
    StrLen "strlen" Read 2 (1 1 1);
    GetRange "getrange" Read 4 (1 1 1);
    SubStr "substr" Read 4 (1 1 1);
    SetRange "setrange" Write 4 (1 1 1);
    Unlink "unlink" Write -2 (1 -1 1);
    Touch "touch" Read -2 (1 -1 1);
    Type "type" Read 2 (1 1 1);
    PExpire "pexpire" Write -3 (1 1 1);
    ExpireAt "expireat" Write -3 (1 1 1);
    PExpireAt "pexpireat" Write -3 (1 1 1);
    Persist "persist" Write 2 (1 1 1);
    PTtl "pttl" Read 2 (1 1 1);
    ExpireTime "expiretime" Read 2 (1 1 1);
    PExpireTime "pexpiretime" Read 2 (1 1 1);
    Rename "rename" Write 3 (1 2 1);
    RenameNx "renamenx" Write 3 (1 2 1);
    Copy "copy" Write -3 (1 2 1);
    MSetNx "msetnx" Write -3 (1 -1 2);
    Multi "multi" Other Connection 1 (0 0 0);
    Exec "exec" Other Change 1 (0 0 0);
    Discard "discard" Other Connection 1 (0 0 0);
    Watch "watch" Other Connection -2 (1 -1 1);
    Unwatch "unwatch" Other Connection 1 (0 0 0);
    Keys "keys" List 2 (0 0 0);
    Scan "scan" List -2 (0 0 0);
    RandomKey "randomkey" Read 1 (0 0 0);
    DbSize "dbsize" Other None 1 (0 0 0);
    FlushDb "flushdb" Other Change -1 (0 0 0);
    FlushAll "flushall" Other Change -1 (0 0 0);
    Publish "publish" Other Change 3 (0 0 0);
    Subscribe "subscribe" Other Connection -2 (0 0 0);
    PSubscribe "psubscribe" Other Connection -2 (0 0 0);
    SSubscribe "ssubscribe" Other Connection -2 (0 0 0);
    Unsubscribe "unsubscribe" Other Connection -1 (0 0 0);
    PUnsubscribe "punsubscribe" Other Connection -1 (0 0 0);
    SUnsubscribe "sunsubscribe" Other Connection -1 (0 0 0);
    SPublish "spublish" Other Change 3 (0 0 0);
    PubSub "pubsub" Other Server -2 (0 0 0);
    Ping "ping" Other None -1 (0 0 0);
    Echo "echo" Other None 2 (0 0 0);
    Auth "auth" Other Connection -2 (0 0 0);
    Hello "hello" Other Connection -1 (0 0 0);
    Reset "reset" Other Connection 1 (0 0 0);
    Quit "quit" Other Connection -1 (0 0 0);
    Select "select" Other Connection 2 (0 0 0);
    Client "client" Other Server -2 (0 0 0);
    CommandInfo "command" Other None -1 (0 0 0);
    Config "config" Other Server -2 (0 0 0);
    Info "info" Other Server -1 (0 0 0);
    Time "time" Other None 1 (0 0 0);
    IncrByFloat "incrbyfloat" Write 3 (1 1 1);
    SetBit "setbit" Write 4 (1 1 1);
    GetBit "getbit" Read 3 (1 1 1);
    BitCount "bitcount" Read -2 (1 1 1);
    BitPos "bitpos" Read -3 (1 1 1);
    BitOp "bitop" Write -4 (2 -1 1);
    BitField "bitfield" Write -2 (1 1 1);
    BitFieldRo "bitfield_ro" Read -2 (1 1 1);
    Lcs "lcs" List -3 (1 2 1);
    PfAdd "pfadd" Write -2 (1 1 1);
    PfCount "pfcount" Read -2 (1 -1 1);
    PfMerge "pfmerge" Write -2 (1 -1 1);
    Dump "dump" Read 2 (1 1 1);
    Restore "restore" Write -4 (1 1 1);
    Eval "eval" Script -3 (0 0 0);
    EvalRo "eval_ro" Script -3 (0 0 0);
    EvalSha "evalsha" Script -3 (0 0 0);
    EvalShaRo "evalsha_ro" Script -3 (0 0 0);
    Script "script" Other Server -2 (0 0 0);
    Function "function" Other Server -2 (0 0 0);
    Object "object" Read -2 (2 2 1);
    Memory "memory" Read -2 (2 2 1);
    Role "role" Other Server 1 (0 0 0);
    Wait "wait" Other Server 3 (0 0 0);
    LastSave "lastsave" Other Server 1 (0 0 0);
    SlowLog "slowlog" Other Server -2 (0 0 0);
    Latency "latency" Other Server -2 (0 0 0);
}

/// A part of a command, named by its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subcommand {
    /// Name, in small letters.
    pub name: &'static str,
    /// As [`Shape::arity`], with the name of the command.
    pub arity: i8,
    /// Form of its arguments.
    pub arguments: &'static str,
    /// Its effect, in a line.
    pub text: &'static str,
}

/// Reason why the first argument of a command is no [`Subcommand`] that takes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSubcommand {
    /// There is none of this name.
    Unknown,
    /// The number of arguments is wrong for this one.
    Arity(&'static str),
}

const CLIENT: &[Subcommand] = &[
    part("getname", 2, "", "Return the name of the current connection."),
    part("getredir", 2, "", "Return -1: no connection is redirected to."),
    part("id", 2, "", "Return the ID of the current connection."),
    part("info", 2, "", "Return information about the current connection."),
    part(
        "kill",
        -3,
        "<ip:port> | [ID <id>] [TYPE <type>] [USER <name>] [ADDR <ip:port>] [LADDR <ip:port>] \
         [SKIPME (YES|NO)]",
        "Close the connections that meet all conditions.",
    ),
    part(
        "list",
        -2,
        "[TYPE (NORMAL|MASTER|REPLICA|PUBSUB) | ID <id> [<id> ...]]",
        "Return information about connections.",
    ),
    part("no-evict", 3, "(ON|OFF)", "Accept the mode: no connection is evicted."),
    part("no-touch", 3, "(ON|OFF)", "Accept the mode."),
    part("pause", -3, "<timeout> [WRITE|ALL]", "Suspend requests for <timeout> milliseconds."),
    part("reply", 3, "(ON|OFF|SKIP)", "Control the replies to the current connection."),
    part("setinfo", 4, "(LIB-NAME|LIB-VER) <value>", "Set the client's library."),
    part("setname", 3, "<name>", "Assign the name <name> to the current connection."),
    part("trackinginfo", 2, "", "Return that keys are not tracked."),
    part("unblock", -3, "<id> [TIMEOUT|ERROR]", "Unblock a connection that waits."),
    part("unpause", 2, "", "End the suspension of requests."),
];

const COMMAND: &[Subcommand] = &[
    part("count", 2, "", "Return the number of commands."),
    part("docs", -2, "[<name> ...]", "Return an empty map."),
    part("getkeys", -4, "<full-command>", "Return the keys of a command."),
    part("info", -2, "[<name> ...]", "Return details about commands."),
    part("list", -2, "", "Return the names of all commands."),
];

const CONFIG: &[Subcommand] = &[
    part("get", -3, "<pattern> [<pattern> ...]", "Return the settings that match, with values."),
    part("resetstat", 2, "", "Reset the statistics of INFO."),
    part("set", -4, "<name> <value> [<name> <value> ...]", "Choose keyspace events."),
];

const LATENCY: &[Subcommand] = &[
    part("history", 3, "<event>", "Return no samples: events are not recorded."),
    part("latest", 2, "", "Return no samples: events are not recorded."),
    part("reset", -2, "[<event> ...]", "Return 0, the number of events with samples."),
];

const MEMORY: &[Subcommand] =
    &[part("usage", -3, "<key> [SAMPLES <count>]", "Return the bytes that a record takes.")];

const OBJECT: &[Subcommand] = &[
    part("encoding", 3, "<key>", "Return the encoding that Redis gives such a new value."),
    part("freq", 3, "<key>", "Fail: frequencies are not kept."),
    part("refcount", 3, "<key>", "Return 1."),
];

const PUBSUB: &[Subcommand] = &[
    part("channels", -2, "[<pattern>]", "Return the channels that have subscribers."),
    part("numpat", 2, "", "Return the number of patterns that have subscribers."),
    part("numsub", -2, "[<channel> ...]", "Return the numbers of subscribers."),
    part("shardchannels", -2, "[<pattern>]", "Return the shards' channels with subscribers."),
    part("shardnumsub", -2, "[<channel> ...]", "Return the numbers of the shards' subscribers."),
];

const SCRIPT: &[Subcommand] = &[
    part("exists", -3, "<digest> [<digest> ...]", "Return which scripts are known."),
    part("flush", -2, "[ASYNC|SYNC]", "Forget the scripts."),
    part("kill", 2, "", "End the scripts that run."),
    part("load", 3, "<script>", "Remember a script, and return its digest."),
];

const FUNCTION: &[Subcommand] = &[
    part("flush", -2, "[ASYNC|SYNC]", "Forget the functions: there are none."),
    part("list", -2, "[LIBRARYNAME <pattern>] [WITHCODE]", "Return the functions: there are none."),
    part("stats", 2, "", "Return the numbers of functions."),
];

const SLOWLOG: &[Subcommand] = &[
    part("get", -2, "[<count>]", "Return the last slow requests (default: 10, -1: all)."),
    part("len", 2, "", "Return the number of slow requests that are kept."),
    part("reset", 2, "", "Forget the slow requests."),
];

/// The subcommand that describes the others.
const HELP: Subcommand = part("help", 2, "", "Print this help.");

const fn part(
    name: &'static str,
    arity: i8,
    arguments: &'static str,
    text: &'static str,
) -> Subcommand {
    Subcommand { name, arity, arguments, text }
}

impl Command {
    /// Returns the keys among the arguments of a request, whose number of parts was checked.
    pub fn keys<'i>(self, arguments: Arguments<'i>) -> impl Iterator<Item = &'i [u8]> {
        // Scripts have the number of their keys before them.
        let counted = self.counts_keys().then(|| {
            let count = arguments.iter().nth(1).and_then(|count| str::from_utf8(count).ok());
            let count = count.and_then(|count| count.parse::<usize>().ok());
            let count = count.filter(|count| *count <= arguments.len().saturating_sub(2));
            arguments.iter().skip(2).take(count.unwrap_or(0))
        });
        let placed = counted.is_none().then(|| self.shape().keys(arguments));
        counted.into_iter().flatten().chain(placed.into_iter().flatten())
    }

    /// Returns whether requests have a number of keys, and these after it.
    pub const fn counts_keys(self) -> bool {
        matches!(self, Self::Eval | Self::EvalRo | Self::EvalSha | Self::EvalShaRo)
    }

    /// Returns the subcommands; none if the first argument is not the name of one.
    pub const fn subcommands(self) -> &'static [Subcommand] {
        match self {
            Self::Client => CLIENT,
            Self::CommandInfo => COMMAND,
            Self::Config => CONFIG,
            Self::Latency => LATENCY,
            Self::Memory => MEMORY,
            Self::Object => OBJECT,
            Self::PubSub => PUBSUB,
            Self::Script => SCRIPT,
            Self::Function => FUNCTION,
            Self::SlowLog => SLOWLOG,
            _ => &[],
        }
    }

    /// Returns the name of the subcommand that a request has, `""` if the command has none.
    pub fn subcommand(self, arguments: Arguments<'_>) -> Result<&'static str, NoSubcommand> {
        let all = self.subcommands();
        if all.is_empty() {
            return Ok("");
        }
        let Some(name) = arguments.iter().next() else { return Ok("") };
        let is_named = |part: &&Subcommand| part.name.as_bytes().eq_ignore_ascii_case(name);
        let found = all.iter().chain([&HELP]).find(is_named);
        let Subcommand { name, arity, .. } = *found.ok_or(NoSubcommand::Unknown)?;
        let shape = Shape { arity, ..self.shape() };
        if shape.takes(arguments.len() + 1) { Ok(name) } else { Err(NoSubcommand::Arity(name)) }
    }
}

impl Command {
    /// Returns the lines of the subcommand `HELP`.
    pub fn help(self) -> impl Iterator<Item = String> {
        let head = format!(
            "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            self.name().to_ascii_uppercase()
        );
        let parts = self.subcommands().iter().chain([&HELP]).flat_map(|part| {
            let form = format!("{} {}", part.name.to_ascii_uppercase(), part.arguments);
            [form.trim_end().to_owned(), format!("    {}", part.text)]
        });
        [head].into_iter().chain(parts)
    }
}

/// Longest name of a command, in bytes.
const NAME_BYTES_MAX: usize = 16;

impl Command {
    /// Returns the command of a name, whose letters may be of either case.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let mut lower_case = [0; NAME_BYTES_MAX];
        let lower_case = lower_case.get_mut(..name.len())?;
        lower_case.copy_from_slice(name);
        lower_case.make_ascii_lowercase();
        Self::of_lower_case(lower_case)
    }
}

impl Shape {
    /// Returns the keys among the arguments of a request whose number of parts it takes.
    pub fn keys<'i>(self, arguments: Arguments<'i>) -> impl Iterator<Item = &'i [u8]> {
        let place = |place: i8| match usize::try_from(place) {
            Ok(place) => place,
            Err(_) => (arguments.len() + 1).saturating_sub(usize::from(place.unsigned_abs())),
        };
        let (first, last) = (place(self.first_key), place(self.last_key));
        let count = if first == 0 { 0 } else { (last + 1).saturating_sub(first) };
        let skipped = first.saturating_sub(1);
        arguments.iter().skip(skipped).take(count).step_by(place(self.step).max(1))
    }

    /// Returns whether a request has a right number of parts, the name among them.
    pub fn takes(self, parts: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { parts >= arity } else { parts == arity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parse;
    use crate::redis::{Content, parse};

    #[test]
    fn a_command_is_found_by_its_name_in_any_case() {
        for command in Command::ALL {
            let name = command.name();
            assert!(name.len() <= NAME_BYTES_MAX && name == name.to_lowercase(), "{name}");
            assert_eq!(Command::of_name(name.as_bytes()), Some(*command));
            assert_eq!(Command::of_name(name.to_uppercase().as_bytes()), Some(*command));
        }
        for name in [&b""[..], b"gett", b"g\xff", b"averylongnameofacommand"] {
            assert_eq!(Command::of_name(name), None);
        }
    }

    #[test]
    fn the_keys_of_a_request_are_found_by_their_places() {
        let keys = |line: &str| {
            let bytes = format!("{line}\r\n");
            let Parse::Complete(request, _) = parse(bytes.as_bytes()) else { panic!("{line}") };
            let Content::Command(command) = request.content else { panic!("{line}") };
            let keys = command.keys(request.arguments);
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(keys("GET a"), ["a"]);
        assert_eq!(keys("SET a b EX 1"), ["a"]);
        assert_eq!(keys("MSET a 1 b 2"), ["a", "b"]);
        assert_eq!(keys("DEL a b c"), ["a", "b", "c"]);
        assert_eq!(keys("COPY a b REPLACE"), ["a", "b"]);
        assert_eq!(keys("EVAL x 2 a b c"), ["a", "b"]);
        assert!(keys("EVAL x 2 a").is_empty() && keys("EVALSHA x y a").is_empty());
        assert!(keys("PING a").is_empty() && keys("SCAN 0").is_empty());
    }

    #[test]
    fn a_shape_takes_an_exact_or_a_least_number_of_parts() {
        let taken = |command: Command| (1..=6).filter(move |parts| command.shape().takes(*parts));
        assert_eq!(taken(Command::Get).collect::<Vec<_>>(), [2]);
        assert_eq!(taken(Command::Set).collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(taken(Command::Ping).count(), 6);
    }
}
