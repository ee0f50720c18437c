//! Network server over [`cabinet`]: one port, every protocol, all cores.
//!
//! Requests of Tokyo Tyrant's binary protocol, of memcached's protocols and of HTTP/1.x come over
//! the same sockets, and may alternate on one connection.
//!
//! ```no_run
//! # fn open() -> cabinet::Database { unimplemented!() }
//! use server::{Config, Endpoint, Server};
//!
//! let listen = vec![Endpoint::Loopback { port: 1978 }];
//! let server = Server::bind(Config { listen, ..Config::default() }, open())?;
//! let handle = server.handle(); // to call `handle.stop()` from elsewhere
//! server.run()?;
//! # Ok::<(), server::Error>(())
//! ```
//!
//! Thread model: the thread that calls [`Server::run`] accepts connections. Event loops, at most
//! [`Config::threads`], read, execute and reply. A pool of [`Config::pool_threads`] threads
//! executes requests that wait for the disk. With an [`Extension`], threads of their own call its
//! functions. A connection belongs to one event loop at a time.

#![forbid(unsafe_code)]

mod access;
mod admin;
mod config;
mod counters;
mod durable_file;
mod error;
mod monitor;
mod net;
mod ops;
mod processors;
mod protocol;
mod replication;
mod server;
mod shared;
mod store;
pub mod update_log;

pub use access::client_paths::ClientPaths;
pub use access::logins::{Login, Peer};
pub use access::password::{HashError, PasswordCost, hash_password, hash_token, new_token};
pub use access::user_file::{
    CREDENTIAL_BYTES_MAX, USER_FILE_BYTES_MAX, USERS_MAX, UserEntry, UserFile, UserFileLock,
    UsersError,
};
pub use access::users::{User, Users};
pub use config::{
    BUFFER_BYTES_MAX, ColdReads, Config, DISK_FREE_WARNING_PERCENT, Endpoint, HANDSHAKE_TIMEOUT,
    REMOTE_TIMEOUT, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, SPOOL_BYTES_MAX, TlsSettings,
};
pub use error::{Error, Result};
pub use monitor::{
    MONITOR_CONNECTIONS_MAX, MONITOR_EXCHANGE_MAX, MONITOR_HEAD_BYTES_MAX, MONITOR_RELAYS_MAX,
    Monitor, ReadinessLimits,
};
pub use net::pace::{ADVANCE_BYTES_MAX, BYTES_PER_SECOND_MIN, Pace};
pub use ops::command_mask::{Command, CommandMask, Protocol, UnknownName};
pub use ops::expiry::{RELATIVE_SECONDS_MAX, stored as stored_expiry, unmarked as unmarked_expiry};
pub use ops::failure::client_reason;
pub use ops::long::PIECE_BYTES;
pub use ops::media_types::{OwnMediaTypes, media_type_flags};
pub use ops::remote::{
    Capabilities, Completion, DecidedInTurn, Decision, FoundRecord, KeysBegin, LONG_REQUEST_FACTOR,
    RecordAnswer, RecordRequest, RemoteStore, RowRefusal, StoreAnswer, StoreFailure, StoreRequest,
    StoreStatus, TableRequest,
};
pub use ops::rights::{RIGHTS_MAX, Right, RightError, Rights};
pub use ops::scrub::{CHECK_BYTES_PER_SECOND, SCRUB_BYTES_PER_SECOND, SCRUB_INTERVAL};
pub use protocol::extension::{
    Extension, ExtensionError, ExtensionSettings, Periodic, SCRIPT_LOOPS_MAX, SCRIPT_PERIODIC_MAX,
    SCRIPT_QUEUE_MAX, SCRIPT_THREADS,
};
pub use protocol::records::draft::Draft;
pub use protocol::records::{Facts, Records, RecordsError, Saying};
pub use protocol::script_records::{PutIf, ScriptError, ScriptRecord, ScriptRecords};
pub use protocol::{REDIS_VERSION, belongs_to_webdav};
pub use replication::{
    Following, Master, OnTimeout, ReplayError, Replayed, Seeding, SemiSyncSettings, replay,
};
pub use server::{Handle, Server};
pub use shared::evaluator::{
    Evaluator, ScriptEnds, ScriptFlags, ScriptHost, ScriptLogLevel, ScriptRun, SentScript,
};
pub use shared::reload::Reload;
pub use shared::upgrade::{
    BudgetedBytes, ConnectionUpgrade, Resume, ResumedConnection, UpgradedConnection,
};
pub use shared::warnings::certificate_warnings;
pub use shared::{FunctionStatistics, ScriptMemory};
pub use store::events::{ChosenEvents, UnknownLetter};
pub use store::position_file::{CopyPosition, POSITION_FILE};
pub use store::reserved::{count_records, front_end_name, hidden_in, put_of_front_end};
pub use tls::{ClientSettings as TlsClientSettings, ServerFiles, Session as TlsSession};
pub use wire::http::HostNames;
pub use wire::memcached::Dialect;
