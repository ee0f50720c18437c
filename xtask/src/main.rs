//! The project's own commands, run as `cargo xtask NAME`.
//!
//! Checks that `cargo test` can do stay there. Here is what needs more than the toolchain: clients
//! of other people, killing the server again and again, a disk that fills up, fuzzing; and `tidy`,
//! which reads all of the source.

mod backup;
mod chaos;
mod clients;
mod crash;
mod differential;
mod faults;
mod full_disk;
mod fuzz;
mod languages;
mod memcached;
mod programs;
mod random;
mod requirements;
mod small_memory;
mod tidy;
mod webdav;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use programs::{Profile, cargo};

/// Commands of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Install what the tests need and run all of them.
    Test,
    /// Let real memcached, HTTP and Tokyo Tyrant clients talk to the server.
    Clients(Build),
    /// Kill the server under load, again and again, and look for lost writes.
    Crash {
        /// How often.
        #[arg(long, default_value_t = 100)]
        rounds: u32,
        #[command(flatten)]
        build: Build,
    },
    /// Have the same random conversations with memcached and the server, and compare.
    Memcached {
        /// Number of the first one.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many there are with each kind of database.
        #[arg(long, default_value_t = differential::CONVERSATIONS)]
        conversations: u64,
        #[command(flatten)]
        build: Build,
    },
    /// Fill the disk under the server (a small tmpfs; needs root) and look for lost writes.
    FullDisk {
        /// Size of the disk, in MiB.
        #[arg(long, default_value_t = full_disk::SIZE_MIB)]
        size_mib: u32,
        #[command(flatten)]
        build: Build,
    },
    /// Run the server in a memory cgroup of 64 MiB (needs root) and see that nothing kills it.
    SmallMemory {
        /// Records that are put into each kind of database.
        #[arg(long, default_value_t = small_memory::RECORDS)]
        records: u64,
        #[command(flatten)]
        build: Build,
    },
    /// Back up a server under writes, restore, and look whether that was there at some moment.
    Backup {
        #[command(flatten)]
        load: backup::Load,
        #[command(flatten)]
        build: Build,
    },
    /// Kill servers that follow each other, cut and slow their links (needs root), and compare
    /// them.
    Chaos {
        /// How long, in seconds.
        #[arg(long, default_value_t = chaos::SECONDS)]
        seconds: u64,
        /// Seed of what happens; 0 takes another one each time.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        build: Build,
    },
    /// Damage databases, kill, cut the power, fill the disk, take memory away (needs root), and
    /// hold every answer against what was acknowledged.
    Faults {
        /// First seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Number of databases that are damaged; the other suites run in proportion.
        #[arg(long, default_value_t = 200)]
        rounds: u64,
        #[command(flatten)]
        build: Build,
    },
    /// Let WebDAV clients talk to the server: litmus, cadaver, curl.
    Webdav(Build),
    /// Run each fuzz target for a while.
    Fuzz {
        /// Seconds for each.
        #[arg(long, default_value_t = 30)]
        seconds: u32,
    },
    /// Check the source: widths, citations, words, and which module and crate uses which.
    Tidy,
}

/// Which build of the programs to drive.
#[derive(clap::Args)]
struct Build {
    /// The unoptimized one.
    #[arg(long)]
    debug: bool,
}

impl Build {
    fn profile(&self) -> Profile {
        if self.debug { Profile::Debug } else { Profile::Release }
    }
}

/// Rounds of the crash test that `test` runs; the hundred take their own command.
const SHORT_CRASH_ROUNDS: u32 = 10;

/// Seconds of chaos in `test`.
const SHORT_CHAOS_SECONDS: u64 = 40;

/// Records of the backups that `test` makes; full size takes its own command.
const SHORT_BACKUP_RECORDS: u64 = 100_000;

fn main() -> Result<()> {
    match Command::parse() {
        Command::Test => test(),
        Command::Clients(build) => clients::run_all(build.profile()),
        Command::Crash { rounds, build } => crash::run(build.profile(), rounds),
        Command::Memcached { seed, conversations, build } => {
            differential::run(build.profile(), seed, conversations)
        }
        Command::FullDisk { size_mib, build } => full_disk::run(build.profile(), size_mib),
        Command::SmallMemory { records, build } => small_memory::run_with(build.profile(), records),
        Command::Backup { load, build } => backup::run(build.profile(), &load),
        Command::Chaos { seconds, seed, build } => chaos::run(build.profile(), seconds, seed),
        Command::Faults { seed, rounds, build } => faults::run(build.profile(), seed, rounds),
        Command::Webdav(build) => webdav::run_all(build.profile()),
        Command::Fuzz { seconds } => fuzz::run_all(seconds),
        Command::Tidy => tidy::run(&command_names()),
    }
}

/// Returns the names of the commands, as they are typed.
fn command_names() -> Vec<String> {
    let commands = Command::command();
    commands.get_subcommands().map(|command| command.get_name().to_string()).collect()
}

fn test() -> Result<()> {
    // The tests of the programs drive the programs, and so does all that follows.
    cargo(&["test", "--workspace"])?;
    clients::run_all(Profile::Debug)?;
    webdav::run_all(Profile::Debug)?;
    differential::run(Profile::Debug, differential::first_seed(), differential::CONVERSATIONS)?;
    crash::run(Profile::Debug, SHORT_CRASH_ROUNDS)?;
    faults::run_short(Profile::Debug)?;
    full_disk::run(Profile::Debug, full_disk::SIZE_MIB)?;
    small_memory::run(Profile::Debug)?;
    let load = backup::Load { records: SHORT_BACKUP_RECORDS, rate: None, folder: None };
    backup::run(Profile::Debug, &load)?;
    chaos::run(Profile::Debug, SHORT_CHAOS_SECONDS, 0)?;
    println!("all tests passed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Command::command().debug_assert();
    }
}
