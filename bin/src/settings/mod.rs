//! Settings of a server, each defined once: the command line, the environment, configuration files,
//! help, man page and reference follow from the list in this file.
//!
//! A setting comes from the first of these that has it: command line, environment, file, default.

mod configure;
mod database_name;
mod definition;
mod environment;
mod exposure;
mod file;
mod reference;
mod start;
mod value;

pub(crate) use configure::{Shares, host_names, is_file_of_settings};
pub(crate) use environment::unknown_variables;
pub(crate) use exposure::{admin_exposure, exposure};
pub(crate) use file::{Launch, Loaded, Origins};
pub(crate) use reference::{defaults_file, described, example, introduction, markdown};

use crate::logging::{LogFormat, Verbosity};
use database_name::DatabaseName;
use definition::{Setting, settings};
use server::ChosenEvents;
use std::path::{Path, PathBuf};
use value::{
    Bytes, Commands, Count, Every, Expiry, Host, HostName, Listen, Many, Percent, Rate, Seconds,
};
use value::{Reads, Seed, Server, ServerId, SocketMode, TimeoutAction, Value};

impl Settings {
    /// Returns whether the setting with this name or identifier is set.
    fn has(&self, setting: &str) -> bool {
        let name = setting.replace('_', "-");
        let mut all = SETTINGS.iter().zip(self.shown());
        all.any(|(one, value)| one.name() == name && value.is_some())
    }
}

settings! {
    /// Database, with optional tuning: casket.tch#opts=l; * is in memory
    "Database" database: D = Setting::new("DB", "\"casket.tch\"").of_one_database().positional();

    "Import" {
        /// Import the database once, if it is a Tokyo Cabinet file, into DB.imported.tch beside it,
        /// and serve that
        import: bool = Setting::switch().of_one_database();
        /// With import: import into this database instead
        into: DatabaseName = Setting::unset("NAME", "\"new.tch\"", "beside the file").of_one_database();
    }

    "Listening" {
        /// Listen on this address or name, may be repeated; 0.0.0.0 is every interface, :: with
        /// IPv6
        host: Many<Host> = Setting::unset(
            "ADDRESS", "[\"0.0.0.0\"]", "this machine alone, 127.0.0.1 and ::1");
        /// Listen on this port
        port: u16 = Setting::new("PORT", "1978").of_one_database();
        /// Listen on a Unix socket at this path; without host and port, on nothing else
        unix: PathBuf = Setting::unset("PATH", "\"tyrant.sock\"", "none").of_one_database();
        /// With unix: set these permission bits of the socket's file, in octal digits
        socket_mode: SocketMode = Setting::unset("MODE", "\"0660\"", "those of the umask");
    }

    "TLS" {
        /// Take TLS with the certificates in this file (PEM), which a reload reads again; port
        /// then requires TLS, unless tls-port or tls-optional is given; requires tls-key
        tls_cert: PathBuf = Setting::unset("FILE", "\"server.pem\"", "no TLS");
        /// With tls-cert: the key of the certificate (PEM)
        tls_key: PathBuf = Setting::unset("FILE", "\"server.key\"", "no TLS");
        /// With tls-cert: require each client to have a certificate of an authority in this file;
        /// its common name is the user
        tls_client_ca: PathBuf = Setting::unset(
            "FILE", "\"clients.pem\"", "clients need no certificate");
        /// With tls-cert: require TLS on this port, and take connections without it on port
        tls_port: u16 = Setting::unset("PORT", "1979", "port").of_one_database();
        /// With tls-cert: take connections with TLS and without it on port
        tls_optional: bool = Setting::switch();
        /// With tls-cert: limit the time of a handshake, in seconds
        tls_handshake_timeout: Seconds = Setting::new("S", "10");
    }

    "Limits" {
        /// Run at most N event loops
        threads: Count = Setting::unset("N", "2", "one per core");
        /// Read what is not in memory by io_uring (ring), by threads that wait (pool), or by
        /// io_uring if the kernel allows it (auto)
        cold_reads: Reads = Setting::new("HOW", "\"auto\"");
        /// Limit the number of simultaneous connections
        connections_max: Count = Setting::new("N", "65536").live();
        /// Limit the time to receive a request, and to send its reply, to S seconds plus their time
        /// at 16 KiB per second; 0 is no limit
        timeout: Seconds = Setting::new("S", "0").likely("60").live();
        /// Limit the wait for the next request, in seconds; 0 is no limit
        idle_timeout: Seconds = Setting::new("S", "0").likely("300").live();
        /// Limit the time in which connections finish their requests when the server stops, in
        /// seconds
        stop_timeout: Seconds = Setting::new("S", "5").live();
        /// Limit a request, in bytes
        request_bytes_max: Bytes = Setting::new("N", "\"257m\"");
        /// Limit a value put over HTTP, in bytes; from 1 MiB on it goes through a file, not through
        /// memory
        upload_bytes_max: Bytes = Setting::unset(
            "N", "\"1g\"", "1g, or request-bytes-max if that is set");
        /// Limit a reply, in bytes
        reply_bytes_max: Bytes = Setting::unset(
            "N", "\"64m\"", "an eighth of the usable memory, up to 1 GiB");
        /// Limit all incomplete requests, unsent replies and transactions together, in bytes
        buffer_bytes_max: Bytes = Setting::unset(
            "N", "\"128m\"", "a quarter of the usable memory, up to 1.06 GiB");
        /// Limit all values being put over HTTP together, in bytes on disk
        spool_bytes_max: Bytes = Setting::new("N", "\"8g\"");
    }

    "Log and process" {
        /// Append the log to this file, which a reload reopens
        log: PathBuf = Setting::unset("PATH", "\"tyrant.log\"", "standard output")
            .of_process();
        /// Set the verbosity of the log: error, info or debug
        log_level: Verbosity = Setting::new("LEVEL", "\"info\"").of_process().live();
        /// Write the lines of the log as text, or as objects of JSON
        log_format: LogFormat = Setting::new("FORMAT", "\"text\"").of_process();
        /// Become this user of the system at the start, before any file is opened; requires root
        run_as: String = Setting::unset("USER", "\"tyrant\"", "no change").of_process();
        /// Take relative paths in the file of --config from this folder
        folder: PathBuf = Setting::unset(
            "DIR", "\"/var/lib/tyrant\"", "the folder of the configuration file").of_process();
        /// Write the process id to this file while serving
        pid: PathBuf = Setting::unset("PATH", "\"tyrant.pid\"", "none").of_process();
    }

    "Monitoring" {
        /// Serve /ui/, /metrics, /health, /ready and /slow over HTTP on this address or Unix
        /// socket, all but records to everyone who reaches it
        admin: Listen = Setting::unset("HOST:PORT", "\"127.0.0.1:9178\"", "none").of_process();
        /// Log requests that take at least S seconds, with the beginning of their keys; 0 is none
        slow_log_threshold: Seconds = Setting::new("S", "0").likely("0.1").live();
        /// With admin: fail /ready while this server is further behind its master, in seconds; 0 is
        /// no limit
        ready_lag_max: Seconds = Setting::new("S", "0").likely("10").of_process().live();
        /// Warn while less than this part of a disk with a database or an update log is free, in
        /// percent; 0 is never
        disk_free_warning: Percent = Setting::new("PERCENT", "5").live();
    }

    "Protocols" {
        /// Serve the memcached protocol like Tokyo Tyrant rather than like memcached
        tokyo_tyrant: bool = Setting::switch();
        /// Keep or ignore the flags and expiry set by memcached clients
        expiry: Expiry = Setting::unset("HOW", "\"keep\"", "keep; with tokyo-tyrant ignore");
        /// Serve the records as files and folders over WebDAV too, on the same port
        webdav: bool = Setting::switch();
        /// Publish changes of records on Redis's channels __keyspace@0__:KEY and
        /// __keyevent@0__:EVENT, in Redis's letters
        keyspace_events: ChosenEvents = Setting::unset("LETTERS", "\"Egx\"", "none");
    }

    "Access" {
        /// Answer HTTP requests to these names too, beside addresses, localhost and the name of
        /// this machine; * is any name, which lets pages of other sites use the records
        http_hosts: Many<HostName> =
            Setting::unset("NAMES", "[\"db.example.com\"]", "none; with tokyo-tyrant *");
        /// Require a user from this file, which tyrant user writes; a reload reads it again
        users: PathBuf = Setting::unset("FILE", "\"users\"", "every client is served");
        /// With users: serve Tokyo Tyrant's protocol without a user all the same, for replicas and
        /// tools
        open_tokyo_tyrant: bool = Setting::switch();
        /// Refuse these commands, by Tokyo Tyrant's names: allwrite,copy
        mask: Many<Commands> = Setting::unset("NAMES", "[\"allwrite\", \"copy\"]", "none").live();
        /// Allow these commands again, after all of mask
        unmask: Many<Commands> = Setting::unset("NAMES", "[\"put\"]", "none").live();
        /// Let clients copy the database into this folder, and restore update logs from it
        copy_dir: PathBuf = Setting::unset("DIR", "\"copies\"", "none");
        /// Let clients run a command on the server that copies the database: copy @COMMAND
        copy_command: bool = Setting::switch();
        /// Let clients set the master that the server follows: setmst
        allow_setmst: bool = Setting::switch();
        /// Let clients stop the server with memcached's shutdown command
        shutdown_command: bool = Setting::switch();
    }

    "Scripts" {
        /// Let clients call the functions of this Lua script; a reload loads it again
        script: PathBuf = Setting::unset("FILE", "\"functions.lua\"", "none").of_one_database();
        /// Call this function of the script every SECONDS, may be repeated
        script_every: Many<Every> = Setting::unset("NAME=SECONDS", "[\"expire=1\"]", "none")
            .of_one_database();
        /// Call functions on N threads
        script_threads: Count = Setting::new("N", "8");
        /// Limit the time of a call, in seconds; 0 is no limit
        script_time_max: Seconds = Setting::new("S", "10");
        /// Limit the instructions of a call, which are counted by the thousand; 0 is no limit
        script_instructions_max: u64 = Setting::new("N", "1000000000");
        /// Limit the memory of the script on each thread, in bytes
        script_memory_max: Bytes = Setting::new("BYTES", "\"64m\"");
        /// Limit the memory of all threads' scripts and the stash together, in bytes
        script_memory_total: Bytes = Setting::unset("BYTES", "\"64m\"",
            "an eighth of the usable memory, at least 8 MiB");
        /// Limit the temporary files of map-reduce, in bytes
        script_sort_disk_max: Bytes = Setting::new("BYTES", "\"4g\"");
        /// Let the script use files, and load modules
        script_files: bool = Setting::switch();
        /// Let the script run other programs
        script_programs: bool = Setting::switch();
    }

    "Verification" {
        /// Verify all checksums of the database every S seconds; 0 is never
        scrub_interval: Seconds = Setting::new("S", "604800").live();
        /// Limit the reads of that verification, in bytes per second
        scrub_rate: Rate = Setting::new("BYTES", "\"8m\"").live();
    }

    "Update log" {
        /// Use this id among the servers that replicate each other, 1 to 65535; 0 is none
        server_id: ServerId = Setting::new("N", "0").likely("1").also(&["sid"]);
        /// Log changes into files of this folder; requires server-id
        update_log: PathBuf = Setting::unset("DIR", "\"ulog\"", "none")
            .of_one_database().also(&["ulog"]);
        /// Begin the next file of the update log after this many bytes, 0 for never
        update_log_file_bytes: Bytes = Setting::new("N", "\"1g\"").also(&["ulim"]);
        /// Acknowledge changes up to 0.1 s before they are in the update log
        update_log_asynchronous: bool = Setting::switch().also(&["uas"]);
        /// Remove update log files that all replicas have received, and any beyond this many bytes
        update_log_keep_bytes: Bytes = Setting::unset("N", "\"10g\"", "everything is kept");
        /// Remove update log files that all replicas have received, and any not written for this
        /// many seconds
        update_log_keep_seconds: u64 = Setting::unset("S", "604800", "everything is kept");
    }

    "Replication" {
        /// Follow this server; requires server-id
        master: Server = Setting::unset("HOST:PORT", "\"10.0.0.1:1978\"", "none");
        /// Log in at masters with the name and the password in this file (a line name:password),
        /// which is read for each connection
        master_credentials: PathBuf = Setting::unset("FILE", "\"master\"", "no login");
        /// Send that login without TLS to a master on another machine too; then anyone in between
        /// can read the password
        master_plain_login: bool = Setting::switch();
        /// Connect to masters with TLS, and verify them by the authorities of the system or those
        /// of master-tls-ca
        master_tls: bool = Setting::switch();
        /// With master-tls: verify masters by the authorities in this file (PEM)
        master_tls_ca: PathBuf = Setting::unset(
            "FILE", "\"authority.pem\"", "the authorities of the system");
        /// With master-tls: do not verify masters; then anyone in between can read and change all
        master_tls_insecure: bool = Setting::switch();
        /// With master-tls: show masters this certificate (PEM); requires master-tls-key
        master_tls_cert: PathBuf = Setting::unset("FILE", "\"replica.pem\"", "none");
        /// With master-tls: the key of that certificate (PEM)
        master_tls_key: PathBuf = Setting::unset("FILE", "\"replica.key\"", "none");
        /// Store how far this server has followed in this file
        position_file: PathBuf = Setting::new("PATH", "\"tyrant.rts\"")
            .of_one_database().also(&["rts"]);
        /// Let clients write to a replica, as required for two masters of each other
        writable_replica: bool = Setting::switch();
        /// Stop following if an operation's outcome differs from that on the master
        check_consistency: bool = Setting::switch().also(&["rcc"]);
        /// Become a copy of the master: never, if there are no records (empty), or also replacing
        /// records from which the master's log does not continue (always)
        seed: Seed = Setting::new("WHEN", "\"empty\"");
        /// Receive the copy compressed
        seed_compressed: bool = Setting::switch();
        /// Acknowledge a change only once N replicas have it on disk; requires update-log
        semi_sync: Count = Setting::unset("N", "1", "off");
        /// With semi-sync: wait at most this long for those replicas, in seconds
        semi_sync_timeout: Seconds = Setting::new("S", "10");
        /// With semi-sync: refuse changes after that wait (error), or acknowledge them anyway
        /// until the replicas have caught up (fallback)
        semi_sync_on_timeout: TimeoutAction = Setting::new("WHAT", "\"error\"");
    }
}
