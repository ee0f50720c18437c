//! Gives memcached and tyrant, in memory and on disk, the same memory and the same reads, and
//! prints how many reads each could serve from its cache.

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use compare::load::cache::{self, Plan};
use compare::load::server::Recipe;
use compare::records::VALUE_BYTES_MAX;
use std::path::PathBuf;

#[derive(Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// Program of tyrant
    #[arg(long, default_value = "target/dist/tyrant")]
    tyrant: String,
    /// Folder for the servers' files; a folder of its own is made in it and removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Bytes that each server may use, in MiB
    #[arg(long, default_value_t = 64)]
    limit_mib: u64,
    /// Different records
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Skew of the Zipf distribution, 0 to 1
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// Bytes of the shortest value
    #[arg(long, default_value_t = 100)]
    value_bytes_min: usize,
    /// Bytes of the longest value
    #[arg(long, default_value_t = 100)]
    value_bytes_max: usize,
    /// Reads that fill the cache, and do not count
    #[arg(long, default_value_t = 3_000_000)]
    fill: u64,
    /// Reads that count
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(64..))]
    reads: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let value_bytes = (arguments.value_bytes_min, arguments.value_bytes_max);
    ensure!(value_bytes.0 <= value_bytes.1, "the shortest value is longer than the longest");
    ensure!(value_bytes.1 <= VALUE_BYTES_MAX, "a value has at most {VALUE_BYTES_MAX} bytes");
    ensure!((0.01..1.0).contains(&arguments.theta), "--theta is 0.01 to less than 1");
    let (tyrant, limit) = (&arguments.tyrant, arguments.limit_mib);
    let recipes = [
        format!("memcached:memcached=memcached -t 2 -m {limit} -l 127.0.0.1 -p {{port}} -u root"),
        format!("memory:memcached={tyrant} serve *#capsiz={limit}m --port {{port}}"),
        format!("disk:memcached={tyrant} serve {{dir}}/a.tch#capsiz={limit}m --port {{port}}"),
    ]
    .map(|text| Recipe::parse(&text));
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("cache-")
        .tempdir_in(&parent)
        .with_context(|| format!("a folder in {}", parent.display()))?;
    let plan = Plan {
        keys: arguments.keys,
        theta: arguments.theta,
        value_bytes,
        fill: arguments.fill,
        reads: arguments.reads,
    };
    let recipes: Vec<Recipe> = recipes.into_iter().collect::<Result<_>>()?;
    println!("{}", cache::run(&recipes, &plan, folder.path())?);
    Ok(())
}
