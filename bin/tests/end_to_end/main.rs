//! The real programs, driven as a user drives them.

mod process;
mod serve;
mod tcrmgr;
mod ttserver;
mod tyrant;
