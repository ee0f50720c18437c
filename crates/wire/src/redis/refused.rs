//! Commands of Redis that the server does not have, with the reasons.

use super::Command;

/// Names in small letters, by reason.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "this database keeps strings only, without lists",
        &[
            "blmove",
            "blmpop",
            "blpop",
            "brpop",
            "brpoplpush",
            "lindex",
            "linsert",
            "llen",
            "lmove",
            "lmpop",
            "lpop",
            "lpos",
            "lpush",
            "lpushx",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "rpop",
            "rpoplpush",
            "rpush",
            "rpushx",
            "sort",
            "sort_ro",
        ],
    ),
    (
        "this database keeps strings only, without hashes",
        &[
            "hdel",
            "hexists",
            "hget",
            "hgetall",
            "hincrby",
            "hincrbyfloat",
            "hkeys",
            "hlen",
            "hmget",
            "hmset",
            "hrandfield",
            "hscan",
            "hset",
            "hsetnx",
            "hstrlen",
            "hvals",
        ],
    ),
    (
        "this database keeps strings only, without sets",
        &[
            "sadd",
            "scard",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sintercard",
            "sinterstore",
            "sismember",
            "smembers",
            "smismember",
            "smove",
            "spop",
            "srandmember",
            "srem",
            "sscan",
            "sunion",
            "sunionstore",
        ],
    ),
    (
        "this database keeps strings only, without sorted sets",
        &[
            "bzmpop",
            "bzpopmax",
            "bzpopmin",
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadius_ro",
            "georadiusbymember",
            "georadiusbymember_ro",
            "geosearch",
            "geosearchstore",
            "zadd",
            "zcard",
            "zcount",
            "zdiff",
            "zdiffstore",
            "zincrby",
            "zinter",
            "zintercard",
            "zinterstore",
            "zlexcount",
            "zmpop",
            "zmscore",
            "zpopmax",
            "zpopmin",
            "zrandmember",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrangestore",
            "zrank",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
            "zrevrange",
            "zrevrangebylex",
            "zrevrangebyscore",
            "zrevrank",
            "zscan",
            "zscore",
            "zunion",
            "zunionstore",
        ],
    ),
    (
        "this database keeps strings only, without streams",
        &[
            "xack",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
        ],
    ),
    ("it is for tests of Redis itself", &["pfdebug", "pfselftest"]),
    (
        "functions are those of the server's script, which HTTP and Tokyo Tyrant's protocol call",
        &["fcall", "fcall_ro"],
    ),
    (
        "this is one server, with replicas of its own kind: see tyrant replicas",
        &[
            "asking",
            "cluster",
            "failover",
            "migrate",
            "psync",
            "readonly",
            "readwrite",
            "replconf",
            "replicaof",
            "restore-asking",
            "sentinel",
            "slaveof",
            "sync",
        ],
    ),
    ("there is one database", &["move", "swapdb"]),
    ("users and their rights are in the server's file of users: see tyrant user", &["acl"]),
    (
        "tyrant backup makes copies, and durability in the database's name says when a change is on \
         the disk",
        &["bgrewriteaof", "bgsave", "save"],
    ),
    ("the server's process stops on SIGTERM", &["shutdown"]),
    ("it has no modules", &["module"]),
    ("tyrant tail prints changes, tyrant slow slow requests", &["monitor"]),
    ("it is for tests of Redis itself", &["debug", "lolwut"]),
];

/// Names of subcommands in small letters, by command and reason.
const REFUSED_PARTS: &[(Command, &str, &[&str])] = &[
    (Command::Client, "clients are not told of changes", &["caching", "tracking"]),
    (Command::CommandInfo, "COMMAND GETKEYS has the keys", &["getkeysandflags"]),
    (Command::Config, "settings are in the server's configuration", &["rewrite"]),
    (
        Command::Latency,
        "the server's metrics have the times of requests",
        &["doctor", "graph", "histogram"],
    ),
    (Command::Script, "scripts have no debugger: redis.log writes to the server's log", &["debug"]),
    (
        Command::Function,
        "functions are those of the server's script, which HTTP and Tokyo Tyrant's protocol call",
        &["delete", "dump", "kill", "load", "restore"],
    ),
    (
        Command::Memory,
        "INFO and the server's metrics have the memory of the process",
        &["doctor", "malloc-stats", "purge", "stats"],
    ),
    (Command::Object, "times of reads are not kept", &["idletime"]),
];

/// Returns why the server does not have a subcommand of Redis, whose name may be of either case.
pub fn refusal_of_part(command: Command, name: &[u8]) -> Option<&'static str> {
    let is_name = |other: &&str| other.as_bytes().eq_ignore_ascii_case(name);
    let is_refused =
        |(of, _, names): &&(Command, &str, &[&str])| *of == command && names.iter().any(is_name);
    REFUSED_PARTS.iter().find(is_refused).map(|(_, reason, _)| *reason)
}

/// Returns why the server does not have a command of Redis, whose name may be of either case.
pub fn refusal(name: &[u8]) -> Option<&'static str> {
    let is_name = |other: &&str| other.as_bytes().eq_ignore_ascii_case(name);
    let found = REFUSED.iter().find(|(_, names)| names.iter().any(is_name));
    found.map(|(reason, _)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_or_refused_and_not_both() {
        for (reason, names) in REFUSED {
            for name in *names {
                assert_eq!(Command::of_name(name.as_bytes()), None, "{name}");
                assert_eq!(refusal(name.to_uppercase().as_bytes()), Some(*reason), "{name}");
            }
        }
        for (command, reason, names) in REFUSED_PARTS {
            for name in *names {
                assert!(command.subcommands().iter().all(|part| part.name != *name), "{name}");
                assert_eq!(refusal_of_part(*command, name.as_bytes()), Some(*reason), "{name}");
            }
        }
        assert_eq!(refusal_of_part(Command::Client, b"id"), None);
        assert_eq!((refusal(b"get"), refusal(b"nosuch"), refusal(b"")), (None, None, None));
    }
}
