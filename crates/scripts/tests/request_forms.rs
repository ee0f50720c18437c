//! Forms of requests: a user who may reach some keys sends every command of every protocol, with
//! keys of others in every place. Two servers differ in those keys and their values alone, so equal
//! replies show that none was read, and equal records afterwards that none was changed.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use scripts::{Allowed, Limits, RedisScripts, Scripts, Source};
use server::{
    Config, Endpoint, ExtensionSettings, Handle, PasswordCost, Server, UserEntry, UserFile, Users,
};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use support::{WAIT_MAX, memory, memory_tree, named};
use wire::binary::Function;
use wire::redis::Command;

/// Least number of forms.
const FORMS_MIN: usize = 3000;

const RIGHTS: &[&str] = &["read:a:", "write:a:", "scripts"];

/// Records that the user may reach.
const OWN: &[(&str, &str)] = &[("a:1", "v"), ("a:n", "5")];

/// Records of each server that the user may not reach: as many and as long ones, of which one has
/// another value, one another number, and one another key.
const FOREIGN: [&[(&str, &str)]; 2] = [
    &[("b:1", "hidden-AAAA"), ("b:n", "717171"), ("b:x", "hidden-AAAA")],
    &[("b:1", "hidden-BBBB"), ("b:n", "424242"), ("b:y", "hidden-BBBB")],
];

/// Keys and patterns of them.
const FOREIGN_KEYS: &[&str] = &["b:1", "b:n", "b:x", "b:y"];

/// Parts of requests beside a key of others.
const FILLERS: &[&str] = &["a:1", "1", "x"];

/// Commands that tell something of the server that differs from one to the other, or that wait.
const VARYING: &[&str] = &["client", "hello", "info", "lastsave", "slowlog", "time", "wait"];

/// Commands and functions that log in: an address waits after failures.
const LOGINS: &[&str] = &["auth", "login"];

const SCRIPT: &str = "
function call(key, value)
  local name, rest = value:match('([^ ]+) ?(.*)')
  local arguments = {}
  for word in rest:gmatch('[^ ]+') do arguments[#arguments + 1] = word end
  local function field(t, path)
    for part in path:gmatch('[^.]+') do t = t[part] end
    return t
  end
  local result = field(_G, name)(unpack(arguments))
  if type(result) == 'table' then result = table.concat(result, ' ') end
  return tostring(result)
end
";

struct Running {
    address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<server::Result<()>>>,
    database: Database,
    /// Comes before each value: in a table the name of its column.
    column: &'static str,
    foreign: Vec<(String, Vec<u8>)>,
}

impl Running {
    fn new(database: Database, column: &'static str, foreign: &[(&str, &str)]) -> Self {
        for (key, value) in OWN.iter().chain(foreign) {
            database.put(key.as_bytes(), format!("{column}{value}").as_bytes()).unwrap();
        }
        let rights = RIGHTS.iter().map(ToString::to_string).collect();
        let user = UserEntry::with_password("ann", b"secret", PasswordCost::MIN).unwrap();
        let users = vec![UserEntry { rights, ..user }];
        let config = Config {
            listen: vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }],
            threads: 1,
            pool_threads: 2,
            users: Some(Arc::new(Users::of(UserFile { users }))),
            set_master_command: true,
            shutdown_command: true,
            ..Config::default()
        };
        let limits = Limits { call_time: WAIT_MAX, ..Limits::default() };
        let source = Source::Inline(SCRIPT.into());
        let scripts = Scripts::open(source, limits, Allowed::default()).unwrap();
        let server = Server::bind(config, database.clone()).unwrap();
        let records = server.script_records(0, 0);
        assert!(server.set_evaluator(Arc::new(RedisScripts::beside(&scripts, records))));
        assert!(server.set_extension(Arc::new(scripts), ExtensionSettings::default()));
        let (address, handle) = (server.local_addresses()[0], server.handle());
        let thread = Some(std::thread::spawn(move || server.run()));
        let foreign = Self::foreign(&database);
        Self { address, handle, thread, database, column, foreign }
    }

    /// Returns the records that the user may not reach.
    fn foreign(database: &Database) -> Vec<(String, Vec<u8>)> {
        let keys = FOREIGN_KEYS.iter().copied().chain(["b", "", "a", "c:1", "x", "1"]);
        let value = |key: &str| Some((key.to_owned(), database.get(key.as_bytes()).unwrap()?));
        keys.filter_map(value).collect()
    }

    /// Sends a request on a connection of its own, after a login, and returns all replies. Records
    /// of the user are as at the beginning.
    fn ask(&self, login: &[u8], form: &[u8]) -> Vec<u8> {
        for (key, value) in OWN {
            let value = format!("{}{value}", self.column);
            self.database.put(key.as_bytes(), value.as_bytes()).unwrap();
        }
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        // The server may close the connection before it has read all.
        let _ = stream.write_all(&[login, form].concat());
        let _ = stream.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        match stream.read_to_end(&mut replies) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}: {}", form.escape_ascii()),
        }
        replies
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A request, and whether replies to it may differ.
struct Form {
    bytes: Vec<u8>,
    /// Whether it carries its login itself.
    has_login: bool,
    varies: bool,
}

impl Form {
    fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), has_login: false, varies: false }
    }
}

/// Returns arguments in which a key of others, or a pattern of them, is in each place.
fn with_foreign_keys(counts: std::ops::RangeInclusive<usize>) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for count in counts {
        for place in 0..count {
            for (index, filler) in FILLERS.iter().enumerate() {
                let mut arguments = vec![(*filler).to_owned(); count];
                let foreign = FOREIGN_KEYS[(count + place + index) % FOREIGN_KEYS.len()];
                arguments[place] = foreign.to_owned();
                if place > 0 && index == 1 {
                    // Often the first part is a key, and further ones are numbers.
                    arguments[0] = "a:1".to_owned();
                }
                all.push(arguments);
            }
        }
    }
    all
}

fn redis_words(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
    bytes.into_bytes()
}

/// Lines of Redis's commands whose arguments have a form of their own.
const REDIS_LINES: &[&str] = &[
    "SCAN 0",
    "SCAN 0 MATCH b:*",
    "SCAN 0 MATCH *",
    "SCAN 0 COUNT 1000",
    "SCAN 0 TYPE string",
    "SCAN 1",
    "KEYS *",
    "KEYS b:*",
    "KEYS b:1",
    "KEYS ?:1",
    "KEYS [ab]:*",
    "KEYS \\b:1",
    "RANDOMKEY",
    "DBSIZE",
    "SORT b:1",
    "SORT a:1 BY b:* GET b:*",
    "SORT a:1 GET b:1 STORE b:2",
    "OBJECT ENCODING b:1",
    "OBJECT ENCODING b:x",
    "OBJECT REFCOUNT b:x",
    "OBJECT FREQ b:1",
    "OBJECT IDLETIME b:1",
    "OBJECT HELP",
    "MEMORY USAGE b:1",
    "MEMORY USAGE b:x",
    "MEMORY USAGE b:1 SAMPLES 5",
    "DUMP b:1",
    "DUMP b:x",
    "RESTORE b:1 0 x",
    "RESTORE b:1 0 x REPLACE",
    "RESTORE b:9 0 x ABSTTL",
    "COPY b:1 a:9",
    "COPY a:1 b:9",
    "COPY a:1 b:1 REPLACE",
    "COPY b:1 a:9 DB 0",
    "COPY a:1 b:9 DB 0 REPLACE",
    "RENAME a:1 b:9",
    "RENAME b:1 a:9",
    "RENAMENX a:1 b:x",
    "RENAMENX b:x a:9",
    "LCS a:1 b:1",
    "LCS b:1 a:1 LEN",
    "LCS b:1 b:n IDX",
    "BITOP AND a:9 b:1",
    "BITOP NOT a:9 b:1",
    "BITOP OR b:9 a:1",
    "BITOP XOR a:9 a:1 b:1",
    "BITFIELD b:1 GET u8 0",
    "BITFIELD b:1 SET u8 0 1",
    "BITFIELD_RO b:1 GET u8 0",
    "SET b:1 x GET",
    "SET b:x x NX",
    "SET b:x x XX",
    "SET b:x x XX GET",
    "SET b:1 x KEEPTTL",
    "SET b:1 x EX 1",
    "GETEX b:1 EX 1",
    "GETEX b:1 PERSIST",
    "EXPIRE b:1 1 NX",
    "EXPIRE b:x 0",
    "PEXPIREAT b:1 1 GT",
    "SUBSCRIBE __keyspace@0__:b:1",
    "SUBSCRIBE b:1",
    "SUBSCRIBE a:1 b:1",
    "PSUBSCRIBE __key*__:*",
    "PSUBSCRIBE *",
    "PSUBSCRIBE b:*",
    "SSUBSCRIBE b:1",
    "PUBLISH b:1 x",
    "PUBLISH __keyspace@0__:b:1 set",
    "SPUBLISH b:1 x",
    "PUBSUB CHANNELS",
    "PUBSUB CHANNELS b:*",
    "PUBSUB NUMSUB b:1",
    "PUBSUB SHARDCHANNELS",
    "CONFIG SET notify-keyspace-events KEA",
    "CONFIG GET *",
    "COMMAND GETKEYS GET b:1",
    "MONITOR",
    "DEBUG OBJECT b:1",
    "SYNC",
    "PSYNC ? -1",
    "REPLICAOF 127.0.0.1 1",
    "SAVE",
    "BGSAVE",
    "SHUTDOWN NOSAVE",
    "SWAPDB 0 1",
    "MOVE b:1 1",
    "SELECT 1",
    "MIGRATE 127.0.0.1 1 b:1 0 10",
    "HGETALL b:1",
    "LRANGE b:1 0 -1",
    "FLUSHDB",
    "FLUSHALL ASYNC",
    "SCRIPT FLUSH",
    "SCRIPT KILL",
    "CLIENT LIST",
    "CLIENT KILL TYPE normal",
    "CLIENT PAUSE 1",
    "CLIENT TRACKING ON",
    "MSET a:1 x b:1 x",
    "MSETNX a:8 x b:8 x",
    "MGET a:1 b:1 b:x",
    "WATCH b:1 b:x",
    "TOUCH a:1 b:x",
    "EXISTS b:x",
    "EXISTS a:1 b:x b:x",
    "DEL a:9 b:x",
    "UNLINK b:1",
];

/// Scripts of Redis that reach a key in some way. `%s` is a call.
const REDIS_SCRIPTS: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local ok, result = pcall(redis.call, unpack(ARGV)) return tostring(result)",
    "redis.setresp(3) return redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, 3))",
];

fn redis_forms() -> Vec<Form> {
    let mut forms = Vec::new();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for command in Command::ALL {
        let name = command.name().to_owned();
        if LOGINS.contains(&name.as_str()) {
            continue;
        }
        for arguments in with_foreign_keys(1..=3) {
            lines.push([vec![name.clone()], arguments].concat());
        }
    }
    lines.extend(REDIS_LINES.iter().map(|line| line.split(' ').map(str::to_owned).collect()));
    for (index, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let varies = VARYING.contains(&words[0].to_lowercase().as_str());
        let mut push = |bytes| forms.push(Form { varies, ..Form::new(bytes) });
        push(redis_words(&words));
        match index % 3 {
            0 => push(
                [&redis_words(&["MULTI"])[..], &redis_words(&words), &redis_words(&["EXEC"])]
                    .concat(),
            ),
            1 => {
                let script = REDIS_SCRIPTS[index / 3 % REDIS_SCRIPTS.len()];
                let keys = words.get(1).map_or(vec!["0"], |key| vec!["1", key]);
                push(redis_words(&[&["EVAL", script][..], &keys, &words].concat()));
                push(redis_words(&[&["EVAL_RO", script, "0"][..], &words].concat()));
            }
            _ => push([&redis_words(&["HELLO", "3"])[..], &redis_words(&words)].concat()),
        }
    }
    // Replies to HELLO have the number of the connection.
    for form in &mut forms {
        form.varies |= form.bytes.starts_with(b"*2\r\n$5\r\nHELLO");
    }
    forms
}

/// Commands of memcached's text protocol, with `K` for a key, and for meta commands one in base64.
const MEMCACHED_LINES: &[&str] = &[
    "get K",
    "get a:1 K",
    "gets K",
    "gets K a:1 K",
    "gat 0 K",
    "gat 1 a:1 K",
    "gats 0 K",
    "gats 1 K",
    "set K 0 0 1\r\nx",
    "set K 1 1 1\r\nx",
    "set K 0 0 1 noreply\r\nx",
    "add K 0 0 1\r\nx",
    "add K 0 0 1 noreply\r\nx",
    "replace K 0 0 1\r\nx",
    "replace K 0 0 1 noreply\r\nx",
    "append K 0 0 1\r\nx",
    "append K 0 0 1 noreply\r\nx",
    "prepend K 0 0 1\r\nx",
    "cas K 0 0 1 1\r\nx",
    "cas K 0 0 1 0\r\nx",
    "cas K 0 0 1 18446744073709551615\r\nx",
    "delete K",
    "delete K 0",
    "delete K noreply",
    "incr K 1",
    "incr K 0",
    "incr K 1 noreply",
    "decr K 1",
    "decr K 0",
    "touch K 1",
    "touch K 0",
    "touch K -1",
    "touch K 1 noreply",
    "mg K",
    "mg K v",
    "mg K v t l h s k f c",
    "mg K N60 v",
    "mg K T60",
    "mg K R100 v",
    "mg K E1 v",
    "mg K q k v",
    "mg B b v k",
    "mg B b k t",
    "ms K 1\r\nx",
    "ms K 1 I\r\nx",
    "ms K 1 ME\r\nx",
    "ms K 1 MA\r\nx",
    "ms K 1 MP N9\r\nx",
    "ms K 1 MR\r\nx",
    "ms K 1 C1\r\nx",
    "ms K 1 q T0\r\nx",
    "ms B 1 b\r\nx",
    "ms B 1 b I k\r\nx",
    "md K",
    "md K q",
    "md K I T30",
    "md K x",
    "md K C1",
    "md B b",
    "md B b x",
    "ma K",
    "ma K D0",
    "ma K MD",
    "ma K N0 J7",
    "ma K v t",
    "ma K q",
    "ma B b",
    "ma B b v",
    "me K",
    "me B b",
    "mn",
    "flush_all",
    "flush_all 0",
    "flush_all 10",
    "flush_all noreply",
    "verbosity 1",
    "cache_memlimit 64",
    "lru_crawler metadump all",
    "lru_crawler metadump 1",
    "lru_crawler mgdump all",
    "lru_crawler mgdump hash",
    "lru_crawler crawl all",
    "shutdown",
    "shutdown graceful",
    "watch fetchers mutations",
    "slabs reassign 1 2",
    "stats cachedump 1 100",
    "stats items",
    "stats detail dump",
    "stats sizes",
];

fn memcached_forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for key in FOREIGN_KEYS.iter().chain(&["b", "b:", "a", "a", "B:1"]) {
        let mut encoded = Vec::new();
        wire::base64::encode(&mut encoded, key.as_bytes());
        let encoded = String::from_utf8(encoded).unwrap();
        for line in MEMCACHED_LINES {
            let words: Vec<&str> = line.split(' ').collect();
            let place = |word: &str| match word {
                "K" => (*key).to_owned(),
                "B" => encoded.clone(),
                word => word.to_owned(),
            };
            let words: Vec<String> = words.into_iter().map(place).collect();
            let mut form = Form::new(format!("{}\r\n", words.join(" ")));
            form.varies = line.starts_with("stats");
            forms.push(form);
        }
    }
    forms
}

fn memcached_binary_forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for opcode in 0..=0x40_u8 {
        // The statistics of the process, and logins.
        if opcode == 0x10 || (0x20..=0x22).contains(&opcode) {
            continue;
        }
        for key in ["b:1", "b:n", "b:x", "b", ""] {
            for extras in [&[][..], &[0; 4], &[0; 8], &[0; 20]] {
                for value in [&b""[..], b"x"] {
                    let mut bytes = vec![0x80, opcode];
                    bytes.extend((key.len() as u16).to_be_bytes());
                    bytes.extend([extras.len() as u8, 0, 0, 0]);
                    let body = extras.len() + key.len() + value.len();
                    bytes.extend((body as u32).to_be_bytes());
                    bytes.extend([0; 12]);
                    for part in [extras, key.as_bytes(), value] {
                        bytes.extend(part);
                    }
                    forms.push(Form::new(bytes));
                }
            }
        }
    }
    forms
}

/// Returns the bytes of a call of `misc`.
fn misc(name: &[u8], options: u32, arguments: &[&str]) -> Vec<u8> {
    let mut bytes = b"\xc8\x90".to_vec();
    for number in [name.len() as u32, options, arguments.len() as u32] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(name);
    for argument in arguments {
        bytes.extend((argument.len() as u32).to_be_bytes());
        bytes.extend(argument.as_bytes());
    }
    bytes
}

/// Calls of functions of Lua, as names and arguments.
const LUA_CALLS: &[&str] = &[
    "_get K",
    "_put K x",
    "_putkeep K x",
    "_putcat K x",
    "_out K",
    "_vsiz K",
    "_iterinit",
    "_iternext",
    "_fwmkeys b:",
    "_fwmkeys b",
    "_fwmkeys",
    "_addint K 1",
    "_addint K 0",
    "_adddouble K 1",
    "_vanish",
    "_misc get K",
    "_misc put K x",
    "_misc out K",
    "_misc getlist a:1 K",
    "_misc putlist a:1 x K x",
    "_misc outlist K",
    "_misc range b: 9",
    "_misc regex b",
    "_misc iterinit",
    "_misc iternext",
    "_misc iterinit b:",
    "_misc vanish",
    "_misc sync",
    "_misc optimize",
    "_misc expiry K",
    "_misc touch K 1",
    "_misc putexp K x 9",
    "_misc incr K 1",
    "tyrant.get K",
    "tyrant.put K x",
    "tyrant.put_new K x",
    "tyrant.compare_and_swap K x 1",
    "tyrant.append K x",
    "tyrant.remove K",
    "tyrant.keys b",
    "tyrant.keys b:",
    "_foreach print",
    "_eval _put('K','x')",
];

fn tokyo_tyrant_forms() -> Vec<Form> {
    let mut forms = Vec::new();
    let size = |text: &str| (text.len() as u32).to_be_bytes();
    for key in FOREIGN_KEYS.iter().chain(&["b", "", "a"]) {
        let bytes = key.as_bytes();
        let mut push = |command: u8, parts: &[&[u8]]| {
            forms.push(Form::new([&[0xc8, command][..], &parts.concat()].concat()));
        };
        for command in [0x10, 0x11, 0x12, 0x18] {
            push(command, &[&size(key), &size("x"), bytes, b"x"]);
        }
        push(0x13, &[&size(key), &size("x"), &[0, 0, 0, 9], bytes, b"x"]);
        for command in [0x20, 0x30, 0x38, 0x73] {
            push(command, &[&size(key), bytes]);
        }
        push(0x31, &[&[0, 0, 0, 2], &size("a:1"), b"a:1", &size(key), bytes]);
        for max in [-1_i32, 0, 1, 1000] {
            push(0x58, &[&size(key), &max.to_be_bytes(), bytes]);
        }
        for addend in [0_u32, 1, u32::MAX] {
            push(0x60, &[&size(key), &addend.to_be_bytes(), bytes]);
            push(0x61, &[&size(key), &[0; 7], &[addend as u8], &[0; 8], bytes]);
        }
        push(0x71, &[&size(key), bytes]);
        push(0x74, &[&size(key), &[0; 12], bytes]);
        push(0x78, &[&size(key), &[0; 16], bytes]);
        for command in [0x50, 0x51, 0x70, 0x72, 0x80] {
            push(command, &[]);
        }
        push(0xa0, &[&[0; 12]]);
        push(0xa1, &[&[0; 20]]);
        for call in LUA_CALLS {
            let call = call.replace('K', key);
            for options in 0..3_u32 {
                let sizes = [size("call"), options.to_be_bytes(), size(key), size(&call)].concat();
                push(0x68, &[&sizes, b"call", bytes, call.as_bytes()]);
            }
        }
    }
    for function in Function::ALL {
        let name = String::from_utf8(function.name().to_vec()).unwrap();
        if LOGINS.contains(&name.as_str()) {
            continue;
        }
        // The state of the server is in its reply.
        let varies = name == "metrics";
        for arguments in with_foreign_keys(0..=4).into_iter().chain([vec![]]) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            for options in [0, 1] {
                let bytes = misc(name.as_bytes(), options, &arguments);
                forms.push(Form { varies, ..Form::new(bytes) });
            }
        }
    }
    forms
}

fn http_forms() -> Vec<Form> {
    let mut forms = Vec::new();
    // base64 of ann:secret
    let login = "Authorization: Basic YW5uOnNlY3JldA==\r\nConnection: close\r\n";
    let mut push = |method: &str, target: &str, headers: &str, body: &str| {
        let length = body.len();
        let bytes = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{login}{headers}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        // The state of the server is in replies to OPTIONS.
        let varies = method == "OPTIONS";
        forms.push(Form { has_login: true, varies, ..Form::new(bytes) });
    };
    for key in FOREIGN_KEYS {
        let (first, rest) = key.split_at(1);
        let last = &key[2..];
        for target in [
            format!("/{key}"),
            format!("/{first}%3A{last}"),
            format!("/{first}%3a{last}"),
            format!("/%62{rest}"),
            format!("http://localhost/{key}"),
            format!("/{key}?list"),
            format!("/a:1?{key}"),
            format!("//{key}"),
            format!("/./{key}"),
            format!("/a:/../{key}"),
            format!("/{key}%00"),
            format!("/{key}#"),
            format!("/?list&prefix={key}"),
            format!("/?list&prefix={first}&limit=10"),
            format!("/?list&prefix=a&after={key}"),
        ] {
            for (method, headers, body) in [
                ("GET", "", ""),
                ("GET", "If-None-Match: *\r\n", ""),
                ("GET", "If-Match: \"1\"\r\n", ""),
                ("GET", "Range: bytes=0-3\r\n", ""),
                ("GET", "Accept: application/json\r\n", ""),
                ("HEAD", "", ""),
                ("PUT", "", "x"),
                ("PUT", "X-TT-PDMODE: 1\r\n", "x"),
                ("PUT", "X-TT-PDMODE: 2\r\n", "x"),
                ("PUT", "If-None-Match: *\r\n", "x"),
                ("PUT", "If-Match: *\r\n", "x"),
                ("DELETE", "", ""),
                ("DELETE", "If-Match: *\r\n", ""),
                ("POST", "", "x"),
                ("POST", "X-TT-XNAME: call\r\n", "_get b:1"),
                ("OPTIONS", "", ""),
                ("PROPFIND", "Depth: 1\r\n", ""),
                ("COPY", "Destination: /a:9\r\n", ""),
                ("MOVE", "Destination: /a:9\r\n", ""),
                ("PATCH", "", "x"),
            ] {
                push(method, &target, headers, body);
            }
        }
        for function in ["get", "put", "out", "getlist", "range", "regex", "iterinit", "iternext"] {
            for form in [format!("key={key}"), format!("a={key}&b=x"), format!("a=a:1&b={key}")] {
                push("POST", "/", &format!("X-TT-MNAME: {function}\r\n"), &form);
            }
        }
        for line in [
            format!("{{\"get\":\"{key}\"}}"),
            format!("{{\"get\":\"\\u0062{rest}\"}}"),
            format!("{{\"put\":\"{key}\",\"value\":\"x\"}}"),
            format!("{{\"delete\":\"{key}\"}}"),
            format!("{{\"get\":\"a:1\"}}\n{{\"get\":\"{key}\"}}"),
        ] {
            push("POST", "/", "Content-Type: application/x-ndjson\r\n", &format!("{line}\n"));
        }
    }
    forms
}

/// Returns a reply as text, without the entity tags of HTTP: a process has its own.
fn without_tags(reply: &[u8]) -> String {
    let is_of_tag = |part: &str| {
        let digits = part.trim_end_matches('\\');
        digits.contains('-') && digits.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    };
    let text = reply.escape_ascii().to_string();
    text.split('"').map(|part| if is_of_tag(part) { "tag" } else { part }).collect()
}

/// Tries each `step`th form, on two databases of a kind.
fn tries(databases: [Database; 2], column: &'static str, step: usize) {
    let [one, other] = databases;
    let servers = [Running::new(one, column, FOREIGN[0]), Running::new(other, column, FOREIGN[1])];
    let login = misc(b"login", 0, &["ann", "secret"]);
    // The user reads what is his, and the servers do differ.
    for server in &servers {
        let reply = server.ask(&login, b"get a:1\r\nget b:1\r\n");
        let value = format!("{column}v");
        let expected = format!(
            "\0\0\0\0\0VALUE a:1 0 {}\r\n{value}\r\nEND\r\nCLIENT_ERROR forbidden\r\n",
            value.len()
        );
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }
    assert_ne!(servers[0].foreign, servers[1].foreign);
    let mut tried = 0;
    for (protocol, forms) in [
        ("redis", redis_forms()),
        ("memcached", memcached_forms()),
        ("memcached-binary", memcached_binary_forms()),
        ("tokyo-tyrant", tokyo_tyrant_forms()),
        ("http", http_forms()),
    ] {
        eprintln!("{protocol}: {} forms", forms.len());
        for form in forms.into_iter().step_by(step) {
            tried += 1;
            let shown = form.bytes.escape_ascii().to_string();
            let login = if form.has_login { &[][..] } else { &login };
            let [one, other] = [&servers[0], &servers[1]].map(|server| {
                let reply = without_tags(&server.ask(login, &form.bytes));
                assert!(!reply.contains("hidden-"), "{shown}: {reply}");
                assert_eq!(Running::foreign(&server.database), server.foreign, "{shown}: {reply}");
                reply
            });
            assert!(form.varies || one == other, "{shown}: {one}\n{other}");
        }
    }
    assert!(tried * step >= FORMS_MIN, "{tried} forms");
}

/// One of so many forms is tried on each of the other kinds.
const STEP: usize = 7;

#[test]
fn no_form_of_a_request_reaches_keys_of_others_in_memory() {
    tries([memory(), memory()], "", 1);
}

#[test]
fn no_form_of_a_request_reaches_keys_of_others_in_an_ordered_map() {
    tries([memory_tree(), memory_tree()], "", STEP);
}

#[test]
fn no_form_of_a_request_reaches_keys_of_others_on_disk() {
    for (name, column) in [("casket.tch", ""), ("casket.tcb", ""), ("casket.tct", "n\0")] {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = &folders;
        tries([named(one.path(), name), named(other.path(), name)], column, STEP);
    }
}
