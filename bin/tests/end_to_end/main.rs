//! The real programs, driven as a user drives them.

mod backup;
mod damage;
mod fixed;
mod import;
mod process;
mod replication;
mod serve;
mod table;
mod tcrmgr;
mod tree;
mod ttserver;
mod tyrant;
