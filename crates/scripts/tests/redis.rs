//! Scripts of Redis's protocol: what frameworks send, errors, limits, rights, and atomicity.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use scripts::{Limits, RedisScripts, Scripts, Source};
use server::update_log::Settings;
use server::{Config, Endpoint, Following, Handle, Master, PasswordCost, Server};
use server::{UserEntry, UserFile, Users};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use support::{WAIT_MAX, memory, memory_tree, named};

/// A server with an interpreter of scripts, until it is dropped.
struct Running {
    address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<server::Result<()>>>,
}

impl Running {
    fn new(database: Database) -> Self {
        Self::with(config(), database, unhurried())
    }

    fn with(config: Config, database: Database, limits: Limits) -> Self {
        let server = Server::bind(config, database).unwrap();
        let records = server.script_records(0, 0);
        server.set_evaluator(Arc::new(RedisScripts::new(limits, records)));
        Self::run(server)
    }

    fn run(server: Server) -> Self {
        let (address, handle) = (server.local_addresses()[0], server.handle());
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { address, handle, thread }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        Client(BufReader::new(stream))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

/// Returns limits without one of time, which a slow machine could meet.
fn unhurried() -> Limits {
    Limits { call_time: WAIT_MAX, ..Limits::default() }
}

fn config() -> Config {
    Config {
        listen: vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }],
        threads: 1,
        pool_threads: 4,
        ..Config::default()
    }
}

/// Returns a server for each kind of database that stores plain values.
fn servers(folder: &std::path::Path) -> [Running; 4] {
    let [hash, tree] = ["casket.tch", "casket.tcb"].map(|name| named(folder, name));
    [memory(), memory_tree(), hash, tree].map(Running::new)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, words: &[&str]) {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    /// Reads a reply. Ends of lines are bars, and the last one is left out.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let text = line.trim_end().to_owned();
        let number: Option<usize> = text.get(1..).and_then(|number| number.parse().ok());
        match (text.as_bytes().first(), number) {
            (Some(b'$' | b'='), Some(length)) => {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes).unwrap();
                format!("{text}|{}", String::from_utf8_lossy(&bytes[..length]))
            }
            (Some(b'*' | b'%' | b'~'), Some(count)) => {
                let count = if text.starts_with('%') { 2 * count } else { count };
                let elements = (0..count).map(|_| format!("|{}", self.reply()));
                elements.fold(text, |all, element| all + &element)
            }
            _ => text,
        }
    }

    fn call(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.reply()
    }

    /// Executes a script without keys.
    fn eval(&mut self, script: &str) -> String {
        self.call(&["EVAL", script, "0"])
    }

    #[track_caller]
    fn check(&mut self, cases: &[(&[&str], &str)]) {
        for (words, expected) in cases {
            assert_eq!(self.call(words), *expected, "{words:?}");
        }
    }

    /// Checks scripts without keys, whose errors end before their place.
    #[track_caller]
    fn check_scripts(&mut self, cases: &[(&str, &str)]) {
        for (script, expected) in cases {
            let reply = self.eval(script);
            let reply = reply.split(" script: ").next().unwrap_or_default();
            assert_eq!(reply, *expected, "{script}");
        }
    }
}

#[test]
fn a_script_has_its_keys_and_arguments_and_calls_commands() {
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        let set = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])";
        server.connect().check(&[
            (&["EVAL", set, "1", "k", "v"], "$1|v"),
            (&["GET", "k"], "$1|v"),
            (&["EVAL", "return {KEYS, ARGV}", "2", "a", "b", "c"], "*2|*2|$1|a|$1|b|*1|$1|c"),
            (&["EVAL", "return 1"], "-ERR wrong number of arguments for 'eval' command"),
            (&["EVAL", "return 1", "x"], "-ERR value is not an integer or out of range"),
            (&["EVAL", "return 1", "-1"], "-ERR Number of keys can't be negative"),
            (
                &["EVAL", "return 1", "1"],
                "-ERR Number of keys can't be greater than number of args",
            ),
            (&["COMMAND", "GETKEYS", "EVAL", "x", "1", "a", "b"], "*1|$1|a"),
        ]);
    }
}

#[test]
fn a_script_is_known_by_its_digest_until_scripts_are_flushed() {
    let server = Running::new(memory());
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let (loaded, known) = (format!("$40|{digest}"), "*2|:1|:0");
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.";
    server.connect().check(&[
        (&["EVALSHA", digest, "0"], unknown),
        (&["SCRIPT", "LOAD", "return 1"], &loaded),
        (&["EVALSHA", &digest.to_uppercase(), "0"], ":1"),
        (&["EVALSHA_RO", digest, "0"], ":1"),
        (&["SCRIPT", "EXISTS", digest, "abc"], known),
        (&["SCRIPT", "FLUSH", "x"], "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        (&["SCRIPT", "FLUSH", "ASYNC"], "+OK"),
        (&["EVALSHA", digest, "0"], unknown),
        (&["EVALSHA", "short", "0"], unknown),
        (&["EVAL", "return 1", "0"], ":1"),
        (&["EVALSHA", digest, "0"], ":1"),
        (
            &["SCRIPT", "LOAD", "return return"],
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near \
             'return'",
        ),
        (&["SCRIPT", "KILL"], "-NOTBUSY No scripts in execution right now."),
        (
            &["SCRIPT", "DEBUG", "YES"],
            "-ERR SCRIPT DEBUG is not supported: scripts have no debugger: redis.log writes to \
             the server's log",
        ),
        (&["FUNCTION", "FLUSH"], "+OK"),
        (&["FUNCTION", "LIST"], "*0"),
        (
            &["FUNCTION", "STATS"],
            "*4|$14|running_script|$-1|$7|engines|*2|$3|LUA|*4|$15|libraries_count|:0|$15|\
             functions_count|:0",
        ),
    ]);
}

#[test]
fn values_become_replies_and_replies_values() {
    let server = Running::new(memory());
    let mut client = server.connect();
    client.check_scripts(&[
        ("return -1.9", ":-1"),
        ("return {1, 'a', {2.5}, nil, 3}", "*3|:1|$1|a|*1|:2"),
        ("return nil", "$-1"),
        ("return false", "$-1"),
        ("return true", ":1"),
        ("return {ok = 'fine'}", "+fine"),
        ("return {err = 'MY thing'}", "-MY thing"),
        ("return redis.error_reply('thing')", "-ERR thing"),
        ("return {double = 0.1}", "$19|0.10000000000000001"),
        ("return {map = {a = 1}}", "*2|$1|a|:1"),
        ("return type(redis.call('get', 'none'))", "$7|boolean"),
        ("return redis.call('set', 'k', 1).ok", "$2|OK"),
        (
            "return {redis.call('set', 'k', 0.1), redis.call('get', 'k')}",
            "*2|+OK|$19|0.10000000000000001",
        ),
        ("redis.setresp(3) return type(redis.call('get', 'none'))", "$3|nil"),
        ("redis.setresp(3) return redis.call('lcs', 'k', 'k', 'idx').map.len", ":19"),
    ]);
    client.send(&["HELLO", "3"]);
    client.reply();
    client.check_scripts(&[
        ("return {double = 0.5}", ",0.5"),
        ("return {map = {a = 1}}", "%1|$1|a|:1"),
        ("return {set = {a = true}}", "~1|$1|a"),
        ("return {big_number = '12'}", "(12"),
        ("return {verbatim_string = {format = 'txt', string = 'a'}}", "=5|txt:a"),
        ("return true", ":1"),
        ("redis.setresp(3) return true", "#t"),
        ("return nil", "_"),
    ]);
    // A script leaves the version of the client as it is.
    client.check(&[(&["GET", "none"], "_")]);
}

#[test]
fn errors_are_those_of_redis() {
    let server = Running::new(memory());
    let mut client = server.connect();
    assert_eq!(
        client.eval("\nreturn redis.call('nosuch')"),
        "-ERR Unknown Redis command called from script script: \
         e19fa3dafc6f742c78850820b6a63140dc94ced2, on @user_script:2."
    );
    client.check_scripts(&[
        ("error('boom')", "-ERR user_script:1: boom"),
        ("error({err = 'MY boom'})", "-MY boom"),
        ("return undefined", "-ERR user_script:1: Script attempted to access nonexistent global variable 'undefined'"),
        ("x = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("redis.call = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("string.rep = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("rawset(_G, 'x', 1)", "-ERR Attempt to modify a readonly table"),
        ("table.insert(redis, 1)", "-ERR Attempt to modify a readonly table"),
        ("setmetatable(_G, {})", "-ERR Attempt to modify a readonly table"),
        ("return setmetatable({}, {__index = {err = 'x', 'y'}})", "*0"),
        ("return setmetatable({}, {__index = function() while true do end end})", "*0"),
        ("loadstring('x = 1')()", "-ERR [string \"x = 1\"]:1: Attempt to modify a readonly table"),
        ("getmetatable('').__index = nil", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("return type(rawget(_G, 'os'))", "$3|nil"),
        ("return type(rawget(_G, 'setfenv'))", "$3|nil"),
        ("return redis.call('get')", "-ERR Wrong number of args calling Redis command from script"),
        ("return redis.call('eval', '', 0)", "-ERR This Redis command is not allowed from script"),
        ("return redis.call('multi')", "-ERR This Redis command is not allowed from script"),
        ("return redis.call({})", "-ERR Lua redis lib command arguments must be strings or integers"),
        ("return redis.call()", "-ERR Please specify at least one argument for this redis lib call"),
        ("return redis.pcall('nosuch').err", "$44|ERR Unknown Redis command called from script"),
        ("local ok, e = pcall(redis.call, 'nosuch') return e", "$44|ERR Unknown Redis command called from script"),
        ("local t = {} t[1] = t return t", "-ERR the result has more than 100 levels"),
    ]);
}

/// Returns the digest of a script, whose text is one of Lua.
fn digest(client: &mut Client, script: &str) -> String {
    let reply = client.eval(&format!("return redis.sha1hex(\"{script}\")"));
    reply.trim_start_matches("$40|").to_owned()
}

#[test]
fn changes_before_an_error_count_and_those_before_a_limit_do_not() {
    let limits = Limits { call_instructions: 1_000_000, ..unhurried() };
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), named(folder.path(), "casket.tcb")] {
        let server = Running::with(config(), database, limits.clone());
        let mut client = server.connect();
        let begin = "redis.call('set', KEYS[1], 1)";
        let failing = format!("{begin} error('x')");
        let endless = format!("{begin} while true do pcall(function() while true do end end) end");
        assert!(client.call(&["EVAL", &failing, "1", "a"]).starts_with("-ERR user_script:1: x"));
        assert_eq!(client.call(&["GET", "a"]), "$1|1");
        let limit = "-ERR the call takes more instructions than its limit, \
                     script-instructions-max: nothing was changed";
        assert_eq!(client.call(&["EVAL", &endless, "1", "b"]), limit);
        assert_eq!(client.call(&["GET", "b"]), "$-1");
        // A record whose new key is too long is not lost, whatever the script makes of the error.
        let rename = "return redis.pcall('rename', 'a', string.rep('k', 70000))";
        assert!(client.call(&["EVAL", rename, "0"]).starts_with("-ERR key"));
        assert_eq!(client.call(&["GET", "a"]), "$1|1");
        // The limit of one of its scripts ends a whole transaction.
        client.check(&[
            (&["MULTI"], "+OK"),
            (&["SET", "c", "1"], "+QUEUED"),
            (&["EVAL", &endless, "1", "d"], "+QUEUED"),
            (&["EXEC"], limit),
            (&["EXISTS", "c", "d"], ":0"),
            (&["MULTI"], "+OK"),
            (&["EVAL", &failing, "1", "c"], "+QUEUED"),
            (&["EVAL", "return redis.call('get', KEYS[1])", "1", "c"], "+QUEUED"),
        ]);
        assert!(client.call(&["EXEC"]).ends_with("|$1|1"));
    }
}

#[test]
fn a_script_that_takes_too_much_fails_and_the_next_one_runs() {
    let limits = Limits { call_instructions: 10_000_000, state_bytes: 16 << 20, ..unhurried() };
    let server = Running::with(config(), memory(), limits);
    let mut client = server.connect();
    for script in [
        "while true do end",
        "while true do pcall(error) end",
        "coroutine.wrap(function() while true do end end)()",
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1e9)",
        "return {unpack({}, 1, 1e8)}",
        "return {('x'):rep(1e6):byte(1, -1)}",
        "local function f() return 1 + f() end return f()",
        "local s, t = ('x'):rep(1e6), {} for i = 1, 1e5 do t[i] = s end return t",
        "local s, t = ('x'):rep(1e6), {} for i = 1, 1e5 do t[i] = s end return cjson.encode(t)",
        "local t = {} t.t = t return cjson.encode(t)",
        "return cjson.decode(('['):rep(1e5))",
        "return cmsgpack.unpack(('\\145'):rep(1e5))",
        "return {cmsgpack.unpack(('\\1'):rep(1e5))}",
        "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
        "return {struct.unpack(('b'):rep(1e5), ('x'):rep(1e5))}",
        "return struct.pack('c2147483646', 'a')",
        "return ('a'):rep(1e5):find(('a?'):rep(1e4) .. ('a'):rep(1e4))",
    ] {
        let reply = client.eval(script);
        assert!(reply.starts_with("-ERR ") || reply.starts_with("-OOM "), "{script}: {reply}");
    }
    assert_eq!(client.eval("return 1"), ":1");
    let long = format!("return 1 --{}", "x".repeat(300_000));
    assert!(client.eval(&long).starts_with("-ERR a script has at most"));
}

#[test]
fn the_scripts_that_are_known_have_a_limit() {
    let server = Running::new(memory());
    let mut client = server.connect();
    // Each round is sent at once.
    for round in 0..100 {
        for number in 0..1000 {
            client.send(&["SCRIPT", "LOAD", &format!("return {round}, {number}")]);
        }
        (0..1000).for_each(|_| assert!(client.reply().starts_with("$40|")));
    }
    let (first, last) = (digest(&mut client, "return 0, 0"), digest(&mut client, "return 99, 999"));
    client.check(&[(&["SCRIPT", "EXISTS", &first, &last], "*2|:0|:1")]);
}

#[test]
fn a_script_that_runs_is_killed_and_changes_nothing() {
    let server = Running::new(memory());
    let (mut client, mut other) = (server.connect(), server.connect());
    client.send(&["EVAL", "redis.call('set', 'k', 1) while true do pcall(error) end", "0"]);
    let deadline = Instant::now() + WAIT_MAX;
    while other.call(&["SCRIPT", "KILL"]) != "+OK" {
        assert!(Instant::now() < deadline, "the script does not begin");
    }
    assert!(client.reply().starts_with("-ERR Script killed by user with SCRIPT KILL"));
    other.check(&[(&["GET", "k"], "$-1"), (&["EVAL", "return 1", "0"], ":1")]);
    // One that runs when the server stops does not keep it.
    client.send(&["EVAL", "while true do end", "0"]);
}

#[test]
fn no_increment_of_several_clients_is_lost() {
    let add = "local n = tonumber(redis.call('get', KEYS[1]) or 0) + 1 \
               redis.call('set', KEYS[1], n) return n";
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    for _ in 0..50 {
                        let reply = client.call(&["EVAL", add, "1", "n"]);
                        assert!(reply.starts_with(':'), "{reply}");
                    }
                });
            }
        });
        assert_eq!(server.connect().call(&["GET", "n"]), "$3|200");
    }
}

#[test]
fn a_message_of_a_script_is_sent_once_and_only_if_its_changes_count() {
    let limits = Limits { call_instructions: 1_000_000, ..unhurried() };
    let server = Running::with(config(), memory(), limits);
    let (mut client, mut listener) = (server.connect(), server.connect());
    assert_eq!(listener.call(&["SUBSCRIBE", "c"]), "*3|$9|subscribe|$1|c|:1");
    assert_eq!(client.eval("return redis.call('publish', 'c', 'one')"), ":1");
    client.eval("redis.call('publish', 'c', 'two') while true do end");
    assert_eq!(client.eval("return redis.call('publish', 'c', 'three')"), ":1");
    assert_eq!(listener.reply(), "*3|$7|message|$1|c|$3|one");
    assert_eq!(listener.reply(), "*3|$7|message|$1|c|$5|three");
}

#[test]
fn a_script_that_only_reads_cannot_write() {
    let server = Running::new(memory());
    let refused = "-ERR Write commands are not allowed from read-only scripts.";
    let mut client = server.connect();
    let begins = |reply: String| reply.split(" script: ").next().unwrap_or_default().to_owned();
    for call in ["'set', 'k', 1", "'publish', 'c', 1", "'flushall'", "'del', 'k'"] {
        let script = format!("return redis.call({call})");
        assert_eq!(begins(client.call(&["EVAL_RO", &script, "0"])), refused, "{call}");
        let script = format!("#!lua flags=no-writes\n{script}");
        assert_eq!(begins(client.call(&["EVAL", &script, "0"])), refused, "{call}");
    }
    client.check(&[
        (&["EVAL_RO", "return redis.call('get', 'k')", "0"], "$-1"),
        (&["EVAL", "#!lua\nreturn redis.call('set', 'k', 1)", "0"], "+OK"),
        (
            &["EVAL_RO", "#!lua\nreturn 1", "0"],
            "-ERR Can not execute a script with write flag using *_ro command.",
        ),
        (&["EVAL", "#!lua", "0"], "-ERR Invalid script shebang"),
        (&["EVAL", "#!lua flags=x\n", "0"], "-ERR Unexpected flag in script shebang: x"),
    ]);
}

#[test]
fn a_read_only_replica_executes_scripts_that_read() {
    let folder = tempfile::tempdir().unwrap();
    let following = Following {
        master: Some(Master { host: "127.0.0.1".into(), port: 1 }),
        position: folder.path().join("rts"),
        is_writable: false,
        ..Following::default()
    };
    let update_log = Some(Settings::new(folder.path().join("ulog")));
    let config = Config { server_id: 2, update_log, following, ..config() };
    let server = Running::with(config, memory(), unhurried());
    let mut client = server.connect();
    assert_eq!(client.eval("return redis.call('get', 'k')"), "$-1");
    assert_eq!(client.eval("#!lua flags=no-writes\nreturn 1"), ":1");
    assert!(client.eval("return redis.call('set', 'k', 1)").starts_with("-READONLY "));
    let declared = "-READONLY Can not run script with write flag on readonly replica";
    assert_eq!(client.eval("#!lua\nreturn 1"), declared);
}

fn user(name: &str, rights: &[&str]) -> UserEntry {
    let rights = rights.iter().map(ToString::to_string).collect();
    UserEntry { rights, ..UserEntry::with_password(name, b"secret", PasswordCost::MIN).unwrap() }
}

#[test]
fn a_script_has_the_rights_of_its_user() {
    let users = vec![
        user("part", &["read:a", "write:a", "scripts:a"]),
        user("reader", &["read", "scripts"]),
        user("none", &["read", "write"]),
    ];
    let users = Some(Arc::new(Users::of(UserFile { users })));
    let limits = unhurried();
    let server = Running::with(Config { users, ..config() }, memory(), limits);
    let forbidden = "-NOPERM this user has no right to do that, or not with this key";
    let begins = |reply: String| reply.split(" script: ").next().unwrap_or_default().to_owned();
    let as_user = |name: &str| {
        let mut client = server.connect();
        assert_eq!(client.eval("return 1"), "-NOAUTH Authentication required.");
        assert_eq!(client.call(&["AUTH", name, "secret"]), "+OK");
        client
    };
    let mut part = as_user("part");
    let set = "return redis.call('set', ARGV[1], 1)";
    assert_eq!(part.call(&["EVAL", set, "0", "ab"]), "+OK");
    assert_eq!(begins(part.call(&["EVAL", set, "0", "b"])), forbidden);
    assert_eq!(begins(part.call(&["EVAL", "return redis.call('get', 'b')", "0"])), forbidden);
    assert_eq!(part.call(&["EVAL", "return 1", "1", "b"]), forbidden);
    assert_eq!(part.call(&["EVAL", "return 1", "1", "ab"]), ":1");
    assert_eq!(part.call(&["SCRIPT", "FLUSH"]), forbidden);
    let mut reader = as_user("reader");
    assert_eq!(reader.call(&["EVAL", "return redis.call('get', 'ab')", "0"]), "$1|1");
    assert_eq!(begins(reader.call(&["EVAL", set, "0", "ab"])), forbidden);
    let mut none = as_user("none");
    assert_eq!(none.eval("return 1"), forbidden);
    assert_eq!(none.call(&["SCRIPT", "LOAD", "return 1"]), forbidden);
}

#[test]
fn a_server_with_a_script_of_its_own_has_both() {
    let source = Source::Inline("function echo(key, value) return value end".into());
    let scripts = Scripts::open(source, Limits::default(), Default::default()).unwrap();
    let server = Server::bind(config(), memory()).unwrap();
    let records = server.script_records(0, 0);
    assert!(server.set_evaluator(Arc::new(RedisScripts::beside(&scripts, records))));
    assert!(server.set_extension(Arc::new(scripts), server::ExtensionSettings::default()));
    let server = Running::run(server);
    let mut client = server.connect();
    assert_eq!(client.eval("return redis.call('set', 'k', 1)"), "+OK");
    let globals = "local n = 0 for _, name in ipairs({'_put', 'tyrant', 'echo', 'print'}) do \
                   if rawget(_G, name) then n = n + 1 end end return n";
    assert_eq!(client.eval(globals), ":0", "functions of the server's script");
}

/// Scripts of redis-py's `Lock`.
const LOCK_RELEASE: &str = "
    local token = redis.call('get', KEYS[1])
    if not token or token ~= ARGV[1] then
        return 0
    end
    redis.call('del', KEYS[1])
    return 1
";
const LOCK_EXTEND: &str = "
    local token = redis.call('get', KEYS[1])
    if not token or token ~= ARGV[1] then
        return 0
    end
    local expiration = redis.call('pttl', KEYS[1])
    if not expiration then
        expiration = 0
    end
    if expiration < 0 then
        return 0
    end
    local newttl = ARGV[2]
    if ARGV[3] == \"0\" then
        newttl = ARGV[2] + expiration
    end
    redis.call('pexpire', KEYS[1], newttl)
    return 1
";
const LOCK_REACQUIRE: &str = "
    local token = redis.call('get', KEYS[1])
    if not token or token ~= ARGV[1] then
        return 0
    end
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 1
";

/// Scripts of redlock: for several keys.
const REDLOCK_ACQUIRE: &str = "
    for i, key in ipairs(KEYS) do
        if redis.call('exists', key) == 1 then return 0 end
    end
    for i, key in ipairs(KEYS) do
        redis.call('set', key, ARGV[1], 'PX', ARGV[2])
    end
    return #KEYS
";

const FIXED_WINDOW: &str = "
    local current = redis.call('incrby', KEYS[1], ARGV[2])
    if tonumber(current) == tonumber(ARGV[2]) then
        redis.call('expire', KEYS[1], ARGV[1])
    end
    return current
";

/// A limiter of two windows, whose counts are strings.
const SLIDING_WINDOW: &str = "
    local previous = tonumber(redis.call('get', KEYS[2]) or '0')
    local now = tonumber(redis.call('get', KEYS[1]) or '0')
    local weight = 1 - tonumber(ARGV[1]) / tonumber(ARGV[2])
    if math.floor(previous * weight) + now >= tonumber(ARGV[3]) then
        return {0, tostring(previous * weight + now)}
    end
    redis.call('incr', KEYS[1])
    redis.call('pexpire', KEYS[1], ARGV[2] * 2)
    return {1, tostring(previous * weight + now + 1)}
";

const SESSION_UPDATE: &str = "
    local session = cjson.decode(redis.call('get', KEYS[1]) or '{}')
    for name, value in pairs(cjson.decode(ARGV[1])) do
        if value == cjson.null then session[name] = nil else session[name] = value end
    end
    session.visits = (session.visits or 0) + 1
    redis.call('set', KEYS[1], cjson.encode(session), 'EX', 3600)
    return session.visits
";

#[test]
fn scripts_of_frameworks_run() {
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        let mut client = server.connect();
        client.check(&[
            (&["SET", "lock", "token", "NX", "PX", "100000"], "+OK"),
            (&["EVAL", LOCK_EXTEND, "1", "lock", "other", "100000", "0"], ":0"),
            (&["EVAL", LOCK_EXTEND, "1", "lock", "token", "900000", "1"], ":1"),
            (&["TTL", "lock"], ":900"),
            (&["EVAL", LOCK_EXTEND, "1", "lock", "token", "100000", "0"], ":1"),
            (&["EVAL", LOCK_REACQUIRE, "1", "lock", "token", "50000"], ":1"),
            (&["TTL", "lock"], ":50"),
            (&["EVAL", LOCK_RELEASE, "1", "lock", "other"], ":0"),
            (&["EVAL", LOCK_RELEASE, "1", "lock", "token"], ":1"),
            (&["EVAL", LOCK_RELEASE, "1", "lock", "token"], ":0"),
            (&["EVAL", REDLOCK_ACQUIRE, "2", "r1", "r2", "token", "100000"], ":2"),
            (&["EVAL", REDLOCK_ACQUIRE, "2", "r3", "r2", "token", "100000"], ":0"),
            (&["EXISTS", "r3"], ":0"),
            (&["EVAL", FIXED_WINDOW, "1", "window", "100", "2"], ":2"),
            (&["TTL", "window"], ":100"),
            (&["EVAL", FIXED_WINDOW, "1", "window", "900", "2"], ":4"),
            (&["TTL", "window"], ":100"),
            (&["SET", "before", "4"], "+OK"),
            (&["EVAL", SLIDING_WINDOW, "2", "now", "before", "5000", "10000", "4"], "*2|:1|$1|3"),
            (&["EVAL", SLIDING_WINDOW, "2", "now", "before", "5000", "10000", "4"], "*2|:1|$1|4"),
            (&["EVAL", SLIDING_WINDOW, "2", "now", "before", "5000", "10000", "4"], "*2|:0|$1|4"),
            (&["EVAL", SESSION_UPDATE, "1", "session", r#"{"user":"a/b"}"#], ":1"),
            (&["EVAL", SESSION_UPDATE, "1", "session", r#"{"user":null}"#], ":2"),
            (&["GET", "session"], r#"$12|{"visits":2}"#),
        ]);
    }
}

#[test]
fn libraries_have_the_formats_of_redis() {
    let server = Running::new(memory());
    let mut client = server.connect();
    client.check_scripts(&[
        (
            r#"return cjson.encode({1, {a = "/\"\\\1"}, 1.5, 1e300, {}, true, cjson.null})"#,
            r#"$48|[1,{"a":"\/\"\\\u0001"},1.5,1e+300,{},true,null]"#,
        ),
        ("return cjson.encode(1/0)", "-ERR user_script:1: Cannot serialise number: must not be NaN or Inf"),
        ("return cjson.encode({[1] = 1, [100] = 2})", "-ERR user_script:1: Cannot serialise table: excessively sparse array"),
        ("cjson.encode_sparse_array(true) return cjson.encode({[1] = 1, [100] = 2})", r#"$15|{"1":1,"100":2}"#),
        // The settings hold for one script.
        ("return cjson.encode({[1] = 1, [3] = 2})", "$10|[1,null,2]"),
        ("return cjson.decode('[1,]')", "-ERR user_script:1: Expected value but found T_ARR_END at character 4"),
        ("return cjson.decode('{\"a\":{\"b\":[1,null,\"x\"]}}').a.b", "*3|:1|$-1|$1|x"),
        ("return {cmsgpack.unpack(cmsgpack.pack(1, 'a', {1, 2}, {a = 300}))}", "*4|:1|$1|a|*2|:1|:2|*0"),
        // More than the stack of a function has at first.
        ("return cmsgpack.unpack(('\\1'):rep(100))", ":1"),
        ("return cmsgpack.unpack('\\193')", "-ERR user_script:1: Bad data format in input."),
        ("return {cmsgpack.unpack_one('\\1\\2', 1)}", "*2|:-1|:2"),
        ("return {struct.unpack('>I2<i4', struct.pack('>I2<i4', 258, -2))}", "*3|:258|:-2|:7"),
        ("return struct.size('!8bi8bdq')", ":32"),
        // There must be data for a letter before it counts.
        ("return struct.unpack('!3', '', 2)", "-ERR user_script:1: bad argument #2 to 'unpack' (data string too short)"),
        ("return struct.unpack('q', '', 2)", "-ERR user_script:1: bad argument #2 to 'unpack' (data string too short)"),
        ("return struct.unpack('q', '')", "-ERR user_script:1: bad argument #1 to 'unpack' (invalid format option 'q')"),
        ("return struct.size('?')", "-ERR user_script:1: bad argument #1 to 'size' (invalid format option '?')"),
        ("return {struct.unpack('>T', struct.pack('bxxx!T', 1, 258):reverse())}", "*2|:258|:9"),
        ("return struct.unpack('!3', 'a')", "-ERR user_script:1: alignment 3 is not a power of 2"),
        ("return {bit.band(7, 3), bit.bor(1, 4), bit.bxor(5, 1), bit.bnot(0), bit.lshift(1, 33), bit.arshift(-8, 1)}", "*6|:3|:5|:4|:-1|:2|:-4"),
        ("return {bit.tohex(255, 4), bit.tohex(-1), bit.rol(1, 31), bit.bswap(1)}", "*4|$4|00ff|$8|ffffffff|:-2147483648|:16777216"),
        ("math.randomseed(5) return {math.random(100), math.random(5, 10)}", "*2|:53|:6"),
        ("return redis.sha1hex('abc')", "$40|a9993e364706816aba3e25717850c26c9cd0d89d"),
    ]);
}

/// A transaction that kills another connection and runs until a channel has a subscriber, and that
/// another client disturbs meanwhile, so that it is executed again. The record `k` is watched, or
/// only read. Returns its reply and whether the connection was killed.
fn disturbed_transaction(is_watched: bool) -> (String, bool) {
    let server = Running::new(memory());
    let (mut client, mut other) = (server.connect(), server.connect());
    let mut victim = server.connect();
    let id = victim.call(&["CLIENT", "ID"]);
    let loaded = other.eval("return redis.sha1hex('return 7')");
    let loaded = loaded.split('|').nth(1).unwrap();
    if is_watched {
        client.check(&[(&["WATCH", "k"], "+OK")]);
    }
    let wait = "while redis.call('PUBSUB', 'NUMSUB', 'c')[2] == 0 do end return 1";
    client.check(&[
        (&["MULTI"], "+OK"),
        (&["GET", "k"], "+QUEUED"),
        (&["SCRIPT", "LOAD", "return 7"], "+QUEUED"),
        (&["CLIENT", "KILL", "ID", &id[1..]], "+QUEUED"),
        (&["EVAL", wait, "0"], "+QUEUED"),
        (&["EVALSHA", loaded, "0"], "+QUEUED"),
        (&["SET", "done", "1"], "+QUEUED"),
    ]);
    client.send(&["EXEC"]);
    let deadline = Instant::now() + WAIT_MAX;
    while other.call(&["SCRIPT", "EXISTS", loaded]) != "*1|:1" {
        assert!(Instant::now() < deadline, "the transaction does not begin");
    }
    other.check(&[(&["SET", "k", "v"], "+OK"), (&["SUBSCRIBE", "c"], "*3|$9|subscribe|$1|c|:1")]);
    let reply = client.reply().replace(loaded, "DIGEST");
    victim.0.get_mut().write_all(b"PING\r\n").unwrap();
    // A connection that was killed may be reset.
    let is_alive = victim.0.fill_buf().is_ok_and(|bytes| bytes.starts_with(b"+PONG"));
    (reply, !is_alive)
}

#[test]
fn a_command_about_the_server_takes_effect_once_in_a_transaction_that_is_executed_again() {
    let reply = "*6|$1|v|$40|DIGEST|:1|:1|:7|+OK".to_owned();
    assert_eq!(disturbed_transaction(false), (reply, true));
    // And not at all if the transaction is not made.
    assert_eq!(disturbed_transaction(true), ("*-1".to_owned(), false));
}

/// A script that goes on after an error must not go on over a part of its changes.
#[test]
fn the_changes_of_a_script_need_memory_of_all_requests() {
    let config = Config { buffer_bytes_max: 24 << 20, ..config() };
    let server = Running::with(config, memory(), unhurried());
    let mut client = server.connect();
    let script = "local value = string.rep('v', 1048576) \
                  for number = 1, tonumber(ARGV[1]) do \
                      redis.pcall('SET', KEYS[1] .. number, value) \
                  end \
                  return 'end'";
    let no_room = "-OOM no memory for the value among all requests: try again later";
    let eval = |key, count| ["EVAL", script, "1", key, count];
    assert_eq!(client.call(&eval("a", "5")), "$3|end");
    assert_eq!(client.call(&eval("b", "9")), no_room);
    client.check(&[
        (&["EXISTS", "a1", "a5", "b1"], ":2"),
        (&["MULTI"], "+OK"),
        (&["SET", "c", "1"], "+QUEUED"),
        (&eval("b", "4"), "+QUEUED"),
        (&eval("d", "5"), "+QUEUED"),
        (&["EXEC"], no_room),
        (&["EXISTS", "b1", "c", "d1"], ":0"),
    ]);
}

#[test]
fn scripts_that_do_not_end_leave_threads_to_other_requests() {
    const SCRIPTS: usize = 8;
    let server = Running::new(memory());
    let mut other = server.connect();
    let mut clients: Vec<Client> = (0..SCRIPTS).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        if number % 2 == 0 {
            client.send(&["EVAL", "while true do end", "0"]);
            continue;
        }
        client.check(&[(&["MULTI"], "+OK"), (&["EVAL", "while true do end", "0"], "+QUEUED")]);
        client.send(&["EXEC"]);
    }
    // These need a thread that may wait, too.
    for _ in 0..100 {
        other.check(&[(&["DEL", "a", "b"], ":0")]);
    }
    // They end with the server, whether they have begun or not.
}

#[test]
fn the_events_of_a_script_need_memory_of_all_requests() {
    let config = Config { buffer_bytes_max: 8 << 20, ..config() };
    let server = Running::with(config, memory(), unhurried());
    let mut client = server.connect();
    client.check(&[(&["CONFIG", "SET", "notify-keyspace-events", "KEA"], "+OK")]);
    let (key, append) = ("k".repeat(60_000), "redis.call('append', KEYS[1], 'x')");
    let repeated = |times: usize| format!("for i = 1, {times} do {append} end return 1");
    let mut eval = |script: &str| client.call(&["EVAL", script, "1", &key]);
    assert_eq!(eval(&repeated(50)), ":1");
    let refused = eval(&repeated(200));
    assert!(refused.starts_with("-OOM no memory"), "{refused}");
    // Their memory is free again, and the change was not made.
    assert_eq!(eval(&repeated(50)), ":1");
    assert_eq!(client.call(&["STRLEN", &key]), ":100");
    client.check(&[(&["MULTI"], "+OK")]);
    let script = repeated(100);
    for _ in 0..2 {
        assert_eq!(client.call(&["EVAL", &script, "1", &key]), "+QUEUED");
    }
    let refused = client.call(&["EXEC"]);
    assert!(refused.starts_with("-OOM no memory"), "{refused}");
    assert_eq!(client.call(&["STRLEN", &key]), ":100");
}
