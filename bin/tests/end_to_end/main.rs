//! End-to-end tests: the real programs, used as a user uses them.

mod backup;
mod cold_reads;
mod command_line;
mod configuration;
mod cookbook;
mod damage;
mod fixed;
mod import;
mod messages;
mod monitoring;
mod ports;
mod process;
mod redis;
mod replication;
mod scripts;
mod serve;
mod shell;
mod systemd;
mod table;
mod tcrmgr;
mod terminal;
mod tls;
mod tree;
mod ttserver;
mod tyrant;
mod users;
