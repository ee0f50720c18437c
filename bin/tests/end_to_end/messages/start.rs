//! Starts of a server that fail: settings, files, addresses, scripts.

use super::Table;
use crate::process::{Server, free_port};
use crate::tls::certificates::Authority;
use std::fs::{Permissions, set_permissions, write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

#[test]
fn addresses_and_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::tyrant("*", &[]);
    let (port, process) = (server.port.to_string(), server.id().to_string());
    let free = free_port().to_string();
    let text = format!("database = \"*\"\nport = 0\nadmin = \"127.0.0.1:{port}\"\n");
    write(folder.path().join("taken.toml"), text).expect("a file");
    let text = format!("database = \"*\"\nhost = \"127.0.0.1\"\nport = {port}\n");
    write(folder.path().join("port.toml"), text).expect("a file");
    Table::new(folder.path(), &[("TAKEN", &port), ("FREE", &free), ("PROCESS", &process)]).check(
        &[
            (
                "tyrant serve --config taken.toml",
                1,
                &["tyrant: taken.toml:3: admin: cannot listen on 127.0.0.1:TAKEN", "listens there"],
            ),
            (
                "tyrant serve --config port.toml",
                1,
                &["tyrant: port.toml:3: port: cannot listen on 127.0.0.1:TAKEN", "listens there"],
            ),
            (
                "tyrant serve * --host 127.0.0.1 --port TAKEN",
                1,
                &[
                    "cannot listen on 127.0.0.1:TAKEN: Address already in use",
                    "tyrant (process PROCESS) listens there: stop that, or choose another port",
                ],
            ),
            (
                "tyrant serve * --http-hosts http://a",
                2,
                &["--http-hosts", "not the name of a host, without port, or *", "db.example.com"],
            ),
            (
                "tyrant serve * --port TAKEN",
                1,
                &["cannot listen on localhost:TAKEN", "(process PROCESS) listens there"],
            ),
            (
                "ttserver -host 127.0.0.1 -port TAKEN *",
                1,
                &["(process PROCESS) listens there: stop that, or choose another port"],
            ),
            (
                "tyrant serve * --port 0 --admin 127.0.0.1:TAKEN",
                1,
                &["admin: cannot listen on 127.0.0.1:TAKEN", "(process PROCESS) listens there"],
            ),
            (
                "tyrant serve * --port 0 --admin 9178",
                2,
                &["\"9178\" is a port without a host: give 127.0.0.1:9178 for this machine"],
            ),
            (
                "tyrant serve * --port 0 --admin admin.sock",
                2,
                &["\"admin.sock\" would be a host, since it has no slash: give ./admin.sock"],
            ),
            (
                "tyrant serve * --port 0 --admin localhost",
                2,
                &["\"localhost\" has no port: give localhost:PORT"],
            ),
            (
                "tyrant serve * --port 0 --server-id 1 --master 1978",
                2,
                &["\"1978\" is a port without a host: give 127.0.0.1:1978"],
            ),
            (
                "tyrant serve * --port 0 --server-id 1 --master nowhere",
                2,
                &["\"nowhere\" is not the address of a master: a master is named as HOST:PORT"],
            ),
            (
                "tyrant serve * --port 0 --host 203.0.113.7",
                1,
                &[
                    "cannot listen on 203.0.113.7:0",
                    "no such address: choose one that it has",
                    "0.0.0.0 for all",
                ],
            ),
            (
                "tyrant serve * --port 0 --host nowhere.invalid",
                1,
                &["cannot listen on nowhere.invalid:0", "; check the name of the host"],
            ),
            (
                "tyrant serve * --unix no/socket",
                1,
                &["cannot listen on no/socket", "; check the path"],
            ),
            (
                "tyrant serve no/casket.tch --port 0",
                1,
                &["cannot open the database no/casket.tch", "there is no folder no; make it"],
            ),
            (
                "tyrant serve /proc/casket.tch --port 0",
                1,
                &["cannot open the database /proc/casket.tch", "; "],
            ),
            (
                "tyrant serve nameless --port 0",
                2,
                &["the kind of database from the name \"nameless\": it is *"],
            ),
            (
                "tyrant serve * --port 0 --pid no/pid",
                1,
                &["cannot write the pid file no/pid", "; check the path"],
            ),
            (
                "tyrant serve * --port 0 --run-as nobody-of-that-name",
                1,
                &["run-as: there is no user nobody-of-that-name"],
            ),
            (
                "tyrant serve * --port 0 --update-log u",
                2,
                &["update-log: requires server-id, an id from 1 to 65535"],
            ),
            (
                "ttserver -host 127.0.0.1 -port FREE -ulog u *",
                1,
                &["an id from 1 to 65535", "-sid"],
            ),
            (
                "tyrant serve * --port 0 --update-log no/u --server-id 1",
                1,
                &["no/u", "; check the path"],
            ),
        ],
    );
}

#[test]
fn options_that_are_wrong_by_themselves_have_the_exit_code_of_a_wrong_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port().to_string();
    for (name, text) in [
        ("log.toml", "database = \"*\"\nupdate-log = \"u\"\n"),
        ("two.toml", "[[database]]\nname = \"*\"\n[[database]]\nname = \"+\"\nport = 1\n"),
        ("plain.toml", "database = \"*\"\n"),
    ] {
        write(folder.path().join(name), text).expect("a file");
    }
    let (tree, table) = (Server::tyrant("casket.tcb", &[]), Server::tyrant("casket.tct", &[]));
    let (tree, table) = (tree.address(), table.address());
    Table::new(folder.path(), &[("FREE", &port), ("HERE", &tree), ("ROWS", &table)]).check(&[
        ("tyrant serve * --tls-port 3", 2, &["tls-port: requires tls-cert"]),
        ("tyrant serve * --tls-optional", 2, &["tls-optional: requires tls-cert"]),
        ("tyrant serve * --tls-client-ca x", 2, &["tls-client-ca: requires tls-cert"]),
        ("tyrant serve * --tls-cert x", 2, &["tls-cert: requires tls-key"]),
        ("tyrant serve * --tls-key x", 2, &["tls-key: requires tls-cert"]),
        ("tyrant serve * --master h:1", 2, &["master: requires server-id"]),
        ("tyrant serve * --update-log u", 2, &["update-log: requires server-id"]),
        ("tyrant serve * --semi-sync 1", 2, &["semi-sync: requires update-log"]),
        ("tyrant serve * --master-tls-ca x", 2, &["master-tls-ca: requires master-tls"]),
        ("tyrant serve * --master-tls-insecure", 2, &["master-tls-insecure: requires master-tls"]),
        ("tyrant serve * --master-tls-cert x", 2, &["master-tls-cert: requires master-tls"]),
        ("tyrant serve * --master-tls-key x", 2, &["master-tls-key: requires master-tls"]),
        ("tyrant serve * --master-tls --master-tls-key x", 2, &["requires master-tls-cert"]),
        ("tyrant serve * --master-tls --master-tls-cert x", 2, &["requires master-tls-key"]),
        ("tyrant serve * --socket-mode 0600", 2, &["socket-mode: requires unix"]),
        ("tyrant serve * --into x.tch", 2, &["into: requires import"]),
        ("tyrant serve x.tch --import --into nameless", 2, &["into: cannot tell the kind"]),
        ("tyrant serve * --open-tokyo-tyrant", 2, &["open-tokyo-tyrant: requires users"]),
        ("tyrant serve * --script-every f=1", 2, &["script-every: requires script"]),
        ("tyrant serve * --script-files", 2, &["script-files: requires script"]),
        ("tyrant serve * --script-programs", 2, &["script-programs: requires script"]),
        ("tyrant serve * --script-threads 99999", 2, &["script-threads: 99999 is above"]),
        ("tyrant serve * --script-memory-max 0", 2, &["script-memory-max: must be at least 1"]),
        ("tyrant serve * --request-bytes-max 0", 2, &["request-bytes-max: must be at least 1"]),
        ("tyrant serve * --folder x", 2, &["folder: requires config"]),
        ("tyrant serve * --port FREE --admin 127.0.0.1:FREE", 2, &["admin: FREE is that of"]),
        ("tyrant serve *#nonsense=1", 2, &["database: unknown tuning \"nonsense\""]),
        ("tyrant serve --config plain.toml --semi-sync 1", 2, &["tyrant: semi-sync: requires"]),
        ("tyrant serve --config two.toml --port 1", 2, &["port of the command line"]),
        // The error is in the file, not in the command line.
        ("tyrant serve --config log.toml", 1, &["log.toml:2: update-log: requires server-id"]),
        ("tyrant config --check log.toml", 1, &["log.toml:2: update-log: requires server-id"]),
        // Tokyo Tyrant's programs have one code for all failures.
        ("ttserver -port FREE -ulog u *", 1, &["-sid"]),
        ("tyrant get --all a b --server HERE", 2, &["--all takes a single key"]),
        ("tyrant put --hex 0 00 --server HERE", 2, &["odd number of hexadecimal digits"]),
        ("tyrant put --hex zz 00 --server HERE", 2, &["\"zz\" is not hexadecimal"]),
        ("tyrant search -w name NONSENSE bob --server ROWS", 2, &["unknown operator"]),
        ("tyrant search --order name:NONSENSE --server ROWS", 2, &["NONSENSE"]),
        ("tyrant set-index age nonsense --server ROWS", 2, &["unknown kind of index"]),
        ("tyrant put-row p5 nothing --server ROWS", 2, &["is not of the form NAME=VALUE"]),
        ("tyrant put-row p5 =nothing --server ROWS", 2, &["is not of the form NAME=VALUE"]),
        ("tyrant export a.tch --quiet", 2, &["--quiet would discard the records"]),
        ("tyrant import - --into a.tch", 2, &["--format says how to read it"]),
        ("tyrant backup create b --database *", 2, &["a database in memory has no files"]),
        ("tyrant user add a:b --no-password --users u", 2, &["a name with a colon"]),
        ("tyrant bench --pipeline 0", 2, &["--pipeline must be from 1 to"]),
    ]);
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 3, "nothing is made: {left:?}");
}

#[test]
fn files_of_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("typo.toml", "# of a test\nprot = 1978\n"),
        ("unknown.toml", "colour = 1\n"),
        ("unquoted.toml", "port = abc\n"),
        ("address.toml", "port = 1\nhost = 0.0.0.0 # all\n"),
        ("version6.toml", "port = 1\nhost = fe80:1\n"),
        ("path.toml", "update-log = ./x\n"),
        ("nothing.toml", "host =\nport = 1\n"),
        ("word.toml", "webdav = Yes\n"),
        ("cap.toml", "capsiz = \"1g\"\n"),
        ("bytes.toml", "request-bytes-max = \"64MB\"\n"),
        ("text.toml", "port = \"x\"\n"),
        ("large.toml", "port = 99999\n"),
        ("within.toml", "[[database]]\nname = \"*\"\nwebdav = 1\n"),
        ("list.toml", "mask = [\"put\", \"no\"]\n"),
        ("open.toml", "database = \"*\n"),
        ("admin.toml", "port = 1\nadmin = \"9178\"\n"),
        ("socket.toml", "database = \"*\"\nadmin = \"no/socket\"\n"),
        ("script.toml", "database = \"*\"\nscript = \"no.lua\"\n"),
        ("syntax.toml", "database = \"*\"\nscript = \"bad.lua\"\n"),
        ("bad.lua", "function f( end\n"),
        ("unix.toml", "database = \"*\"\nunix = \"no/socket\"\n"),
        ("host.toml", "database = \"*\"\nport = 0\nhost = \"203.0.113.7\"\n"),
        ("name.toml", "database = \"*\"\nport = 0\nhost = \"nowhere.invalid\"\n"),
        ("admin-host.toml", "database = \"*\"\nadmin = \"203.0.113.7:9178\"\n"),
        (
            "position.toml",
            "database = \"*\"\nserver-id = 1\nmaster = \"127.0.0.1:1\"\nposition-file = \"no/rts\"\n",
        ),
        ("log.toml", "database = \"*\"\n\nlog = \"no/log\"\n"),
        ("folder.toml", "database = \"*\"\nlog = \".\"\n"),
        ("pid.toml", "database = \"*\"\npid = \"no/pid\"\n"),
        ("user.toml", "database = \"*\"\nrun-as = \"nobody-of-that-name\"\n"),
        ("updates.toml", "server-id = 1\nupdate-log = \"no/ulog\"\n"),
        ("none.toml", "port = 0\nfolder = \"/nowhere\"\n"),
        ("database.toml", "port = 1\ndatabase = \"no/casket.tch#bnum=9\"\n"),
        (
            "second.toml",
            "[[database]]\nname = \"*\"\n[[database]]\nport = 1\nname = \"text.tch\"\n",
        ),
        ("text.tch", "hello\n"),
    ] {
        write(folder.path().join(name), text).expect("a file");
    }
    let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
    let before = files();
    Table::new(folder.path(), &[]).check(&[
        ("tyrant serve --config no.toml", 1, &["cannot read the configuration no.toml: No such file", "; check the path"]),
        ("tyrant config --check no.toml", 1, &["cannot read the configuration no.toml: No such file", "; check the path"]),
        ("tyrant config --check typo.toml", 1, &["typo.toml:2: prot is not a setting: did you mean port? `tyrant config --defaults` lists"]),
        ("tyrant serve --config typo.toml", 1, &["typo.toml:2: prot is not a setting: did you mean port?"]),
        ("tyrant config --check unknown.toml", 1, &["unknown.toml:1: colour is not a setting: `tyrant config --defaults` lists"]),
        ("tyrant config --check unquoted.toml", 1, &["unquoted.toml:1: port: a number from 0 to 65535 is required here"]),
        ("tyrant config --check address.toml", 1, &["address.toml:2: host: a text must be in quotes: host = \"0.0.0.0\""]),
        ("tyrant config --check version6.toml", 1, &["version6.toml:2: host: it has a port: give fe80 as host, and 1 as the setting port"]),
        ("tyrant config --check path.toml", 1, &["path.toml:1: update-log: a text must be in quotes: update-log = \"./x\""]),
        ("tyrant config --check none.toml", 1, &["none.toml:2: folder: /nowhere is not a folder: make it, or name another one"]),
        ("tyrant serve --config none.toml", 1, &["none.toml:2: folder: /nowhere is not a folder: make it, or name another one"]),
        ("tyrant config --check nothing.toml", 1, &["nothing.toml:1: host: the value is missing"]),
        ("tyrant config --check word.toml", 1, &["word.toml:1: webdav: write true in place of Yes"]),
        ("tyrant config --check cap.toml", 1, &["cap.toml:1: capsiz is not a setting, but a part of the database's name: database = \"casket.tch#capsiz=...\""]),
        ("tyrant config --check bytes.toml", 1, &["bytes.toml:1: request-bytes-max: \"64MB\" is not a number of bytes: write it as ", "64m"]),
        ("tyrant config --check text.toml", 1, &["text.toml:1: port: a number from 0 to 65535 is required here"]),
        ("tyrant config --check large.toml", 1, &["large.toml:1: port: "]),
        ("tyrant config --check within.toml", 1, &["within.toml:3: webdav: true or false is required"]),
        ("tyrant config --check list.toml", 1, &["list.toml:1: mask: "]),
        ("tyrant config", 2, &["tyrant config needs --defaults, or --check FILE"]),
        ("tyrant config --check open.toml", 1, &["open.toml:1: "]),
        ("tyrant config --check socket.toml", 1, &["socket.toml:2: admin: cannot listen on no/socket: No such file", "; check the path"]),
        ("tyrant config --check script.toml", 1, &["script.toml:2: script: cannot load the script: cannot read the script no.lua: No such file", "; check the path"]),
        ("tyrant serve --config script.toml", 1, &["script.toml:2: script: cannot load the script: cannot read the script no.lua: No such file"]),
        ("tyrant config --check syntax.toml", 1, &["syntax.toml:2: script: cannot load the script: bad.lua:1: ", "\"tyrant ext --check FILE\""]),
        ("tyrant config --check unix.toml", 1, &["unix.toml:2: unix: cannot listen on no/socket: No such file", "; check the path"]),
        ("tyrant serve --config unix.toml", 1, &["unix.toml:2: unix: cannot listen on no/socket: No such file", "; check the path"]),
        ("tyrant config --check host.toml", 1, &["host.toml:3: host: cannot listen on 203.0.113.7:0: ", "; this machine has no such address"]),
        ("tyrant serve --config host.toml", 1, &["host.toml:3: host: cannot listen on 203.0.113.7:0: ", "; this machine has no such address"]),
        ("tyrant config --check name.toml", 1, &["name.toml:3: host: cannot listen on nowhere.invalid:0: ", "; check the name of the host"]),
        ("tyrant config --check admin-host.toml", 1, &["admin-host.toml:2: admin: cannot listen on 203.0.113.7:9178: ", "; this machine has no such address"]),
        ("tyrant config --check position.toml", 1, &["position.toml:4: position-file: cannot write the position file no/rts: No such file", "; check the path"]),
        ("tyrant config --check log.toml", 1, &["log.toml:3: log: cannot open the log no/log: No such file", "; check the path"]),
        ("tyrant serve --config log.toml", 1, &["log.toml:3: log: cannot open the log no/log: No such file", "; check the path"]),
        ("tyrant config --check folder.toml", 1, &["folder.toml:2: log: cannot open the log .: is a directory; name a file, not a folder"]),
        ("tyrant config --check pid.toml", 1, &["pid.toml:2: pid: cannot write the pid file no/pid: No such file", "; check the path"]),
        ("tyrant config --check user.toml", 1, &["user.toml:2: run-as: there is no user nobody-of-that-name"]),
        ("tyrant config --check updates.toml", 1, &["updates.toml:2: update-log: cannot open the update log no/ulog: No such file", "; check the path"]),
        ("tyrant config --check database.toml", 1, &["database.toml:2: database: cannot open the database no/casket.tch#bnum=9", "there is no folder no; make it, or check the path"]),
        ("tyrant config --check second.toml", 1, &["second.toml:5: database: cannot open the database text.tch: text.tch is a file, and a database is a folder"]),
        ("tyrant config --check admin.toml", 1, &["admin.toml:2: admin: \"9178\" is a port without a host: give 127.0.0.1:9178"]),
    ]);
    assert_eq!(files(), before, "a check makes nothing");
}

#[test]
fn a_path_of_another_kind_is_refused_by_the_check_as_by_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = format!("./{}", "s".repeat(120));
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    write(folder.path().join("file"), "hello\n").expect("a file");
    let log = "cannot open the update log";
    let socket = "what is there is not a socket: choose another path";
    let position = "cannot write the position file";
    let settings: [(&str, &str, &[&str]); 15] = [
        ("update-log", "file", &[log, "file: not a directory; check the path"]),
        ("update-log", "file/x", &[log, "; check the path"]),
        ("unix", "file", &["cannot listen on file", socket]),
        ("unix", "folder", &["cannot listen on folder", socket]),
        ("unix", "file/x", &["cannot listen on file/x: not a directory; check the path"]),
        ("unix", &long, &["cannot listen on ./ss", "File name too long", "; check the path"]),
        ("admin", "./folder", &["cannot listen on", socket]),
        ("admin", "./file", &["cannot listen on", socket]),
        ("pid", "folder", &["cannot read folder: Is a directory", "; name a file, not a folder"]),
        ("pid", "file", &["file does not contain a process id: name another file"]),
        ("log", "folder", &["cannot open the log folder: is a directory; name a file"]),
        ("position-file", "folder", &[position, "folder: is a directory; name a file"]),
        ("users", "folder", &["cannot read the users in folder: is a directory; name a file"]),
        ("copy-dir", "file", &["file: not a directory; check the path"]),
        ("master-credentials", "folder", &["folder: is a directory; name a file, not a folder"]),
    ];
    let table = Table::new(folder.path(), &[]);
    for (setting, path, parts) in settings {
        let text = "database = \"*\"\nserver-id = 1\nmaster = \"127.0.0.1:1\"\n";
        let text = format!("{text}port = 0\n{setting} = \"{path}\"\n");
        write(folder.path().join("f.toml"), text).expect("a file");
        let place = format!("f.toml:5: {setting}: ");
        let parts: Vec<&str> = std::iter::once(&*place).chain(parts.iter().copied()).collect();
        table.check(&[
            ("tyrant config --check f.toml", 1, &parts),
            ("tyrant serve --config f.toml", 1, &parts),
        ]);
    }
}

#[test]
fn settings_of_other_programs_and_hosts_that_are_none() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("redis.conf", "port 6379\n"),
        ("host.toml", "database = \"*\"\nhost = \"localhost:7\"\n"),
        ("empty.toml", "database = \"*\"\nhost = \"\"\n"),
    ] {
        write(folder.path().join(name), text).expect("a file");
    }
    let other = "settings are in a file of TOML, which \"tyrant config --defaults\" begins and \
                 --config FILE names; docs/coming-from.md";
    let host = "it has a port: give localhost as host, and 7 as the setting port";
    Table::new(folder.path(), &[("OTHER", other), ("PLACE", host)]).check(&[
        ("tyrant serve redis.conf", 2, &["database: redis.conf is not a database; OTHER"]),
        ("tyrant redis.conf", 2, &["database: redis.conf is not a database; OTHER"]),
        ("tyrant serve --config redis.conf", 1, &["redis.conf:1: ", "; OTHER"]),
        ("tyrant tyrant.toml", 2, &["if it is a file of settings: --config tyrant.toml"]),
        ("tyrant serve * --host localhost:7", 2, &["'localhost:7' for '--host <ADDRESS>': PLACE"]),
        ("tyrant config --check host.toml", 1, &["host.toml:2: host: PLACE"]),
        ("tyrant config --check empty.toml", 1, &["empty.toml:2: host: an address is required"]),
        ("tyrant serve * --users ", 2, &["'' for '--users <FILE>': a path is required"]),
        ("tyrant get a --server ", 2, &["the address is empty: name the server as HOST:PORT"]),
        ("tyrant copy ", 2, &["a value is required for '<PATH>'"]),
    ]);
}

#[test]
fn a_server_does_not_follow_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let free = free_port().to_string();
    let own = "is the address of this server itself: name the server to follow, or no master";
    let text = format!("database = \"*\"\nport = {free}\nserver-id = 1\nhost = \"0.0.0.0\"\n");
    write(folder.path().join("f.toml"), format!("{text}master = \"127.0.0.1:{free}\"\n"))
        .expect("a file");
    let names = [("FREE", &*free), ("OWN", own)];
    Table::new(folder.path(), &names).check(&[
        (
            "tyrant serve * --port FREE --server-id 1 --master 127.0.0.1:FREE",
            2,
            &["tyrant: master: 127.0.0.1:FREE OWN"],
        ),
        (
            "tyrant serve * --port FREE --server-id 1 --master localhost:FREE",
            2,
            &["localhost:FREE OWN"],
        ),
        ("tyrant serve * --port FREE --server-id 1 --master [::1]:FREE", 2, &["[::1]:FREE OWN"]),
        ("tyrant serve * --port FREE --host :: --server-id 1 --master [::1]:FREE", 2, &["OWN"]),
        (
            "tyrant serve * --port FREE --host a.invalid --server-id 1 --master a.invalid:FREE",
            2,
            &["OWN"],
        ),
        ("tyrant config --check f.toml", 1, &["f.toml:5: master: 127.0.0.1:FREE OWN"]),
        ("tyrant serve --config f.toml", 1, &["f.toml:5: master: 127.0.0.1:FREE OWN"]),
        ("ttserver -port FREE -sid 1 -mhost 127.0.0.1 -mport FREE *", 1, &["127.0.0.1:FREE OWN"]),
    ]);
}

#[test]
fn files_of_users() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text, mode) in [
        ("garbage", "x", 0o600),
        ("typo", "[[user]]\nname = \"ann\"\nrigths = []\n", 0o600),
        ("right", "[[user]]\nname = \"ann\"\nrights = [\"raed\"]\n", 0o600),
        ("clear", "ann:secret\n", 0o600),
        ("open", "", 0o644),
    ] {
        let path = folder.path().join(name);
        write(&path, text).expect("a file");
        set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
    }
    Table::new(folder.path(), &[]).check(&[
        (
            "tyrant user list --users no",
            1,
            &[
                "there is no file of users \"no\": \"tyrant user add NAME\" makes it",
                "--users FILE",
            ],
        ),
        // Before it asks for a password, which here is empty.
        (
            "tyrant user add ann --users no/users",
            1,
            &["cannot write the users to no/users: No such file", "; check the path"],
        ),
        (
            "tyrant serve * --port 0 --users no",
            1,
            &["users: cannot read the users in no", "; check the path"],
        ),
        (
            "tyrant serve * --port 0 --users garbage",
            1,
            &["line 1 of garbage: it must be TOML", "tyrant user"],
        ),
        ("tyrant serve * --port 0 --users typo", 1, &["line 3 of typo: it must be TOML", "rights"]),
        (
            "tyrant serve * --port 0 --users right",
            1,
            &["in right, user 1 has a right \"raed\" that is none of read, write, admin and scripts"],
        ),
        (
            "tyrant serve * --port 0 --users clear",
            1,
            &["clear: it has passwords in clear text", "tyrant user convert --users clear"],
        ),
        (
            "tyrant serve * --port 0 --users open",
            1,
            &["open: others may read or change it; chmod 600 it"],
        ),
    ]);
}

#[test]
fn certificates_and_keys() {
    let authority = Authority::new();
    let (one, other) = (authority.server(&["127.0.0.1"]), authority.client("ann"));
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path().join("text"), "hello").expect("a file");
    let text = |path: &std::path::Path| path.display().to_string();
    let (certificate, key, another) = (text(&one.certificate), text(&one.key), text(&other.key));
    let names: [(&str, &str); 3] =
        [("CERTIFICATE", &*certificate), ("ANOTHER", &another), ("KEY", &key)];
    Table::new(folder.path(), &names).check(&[
        (
            "tyrant serve * --port 0 --tls-cert no --tls-key KEY",
            1,
            &["tls-cert: cannot read no: No such file", "; check the path"],
        ),
        (
            "tyrant serve * --port 0 --tls-cert text --tls-key KEY",
            1,
            &["tls-cert: no certificate in text: it must have certificates in PEM format"],
        ),
        (
            "tyrant serve * --port 0 --tls-cert CERTIFICATE --tls-key no",
            1,
            &["cannot read no: No such file", "; check the path"],
        ),
        (
            "tyrant serve * --port 0 --tls-cert CERTIFICATE --tls-key text",
            1,
            &["no private key in text: it must have one in PEM format"],
        ),
        (
            "tyrant serve * --port 0 --tls-cert CERTIFICATE --tls-key ANOTHER",
            1,
            &["the key in ANOTHER is not that of the certificate in CERTIFICATE"],
        ),
        ("tyrant serve * --port 0 --tls-cert CERTIFICATE", 2, &["tls-cert: requires tls-key"]),
    ]);
}

#[test]
fn scripts() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path().join("bad.lua"), "function f( end\n").expect("a file");
    let free = free_port().to_string();
    Table::new(folder.path(), &[("FREE", &free)]).check(&[
        (
            "tyrant serve * --port 0 --script bad.lua",
            1,
            &["cannot load the script: bad.lua:1: ", "\"tyrant ext --check FILE\""],
        ),
        (
            "ttserver -host 127.0.0.1 -port FREE -ext bad.lua *",
            1,
            &["cannot load the script: bad.lua:1: ", "\"tyrant ext --check FILE\""],
        ),
        (
            "tyrant serve * --port 0 --script no.lua",
            1,
            &["cannot read the script no.lua: No such file", "; check the path"],
        ),
        ("tyrant ext --check bad.lua", 1, &["bad.lua:1: "]),
        ("tyrant ext --check no.lua", 1, &["cannot read the script no.lua: No such file"]),
    ]);
}

#[test]
fn a_port_that_another_program_has_is_named_with_it() {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let this = std::process::id().to_string();
    Table::new(folder.path(), &[("TAKEN", &port), ("PROCESS", &this)]).check(&[
        ("tyrant serve * --host 127.0.0.1 --port TAKEN", 1, &["(process PROCESS) listens there"]),
        (
            "tyrant serve new.tch --host 127.0.0.1 --port TAKEN",
            1,
            &["(process PROCESS) listens there"],
        ),
    ]);
    assert!(!folder.path().join("new.tch").exists());
}
