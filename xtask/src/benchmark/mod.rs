//! `cargo xtask benchmark`: runs well-known experiments with the programs of `crates/compare`, and
//! writes `docs/benchmarks.md`, `docs/benchmarks/figures.md` and charts from the results.
//!
//! Measuring and writing are separate. Medians of the programs' records are collected in one
//! results file beside the pages, which are made from this file alone.

mod experiments;
mod figure;
mod goals;
mod machine;
mod markdown;
mod measure;
mod measured;
mod readme;
mod results;
#[cfg(test)]
mod sample;
mod svg;
mod table;

pub(crate) use svg::escaped;

use crate::programs::{Profile, build, run, succeeds, target_folder, workspace};
use crate::requirements;
use anyhow::{Context, Result, bail, ensure};
use experiments::{EXPERIMENTS, Experiment, Size, named};
use measure::Folders;
use measured::Measured;
use results::{Results, Run};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use svg::Chart;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the pages from the stored results, with `--quick` from those of quick runs, and
    /// measure nothing.
    #[arg(long, conflicts_with_all = ["only", "debug"])]
    write_only: bool,
    /// Measure small data for a few minutes. The pages are written beside the results, into the
    /// folder `benchmark/draft` of the target folder.
    #[arg(long)]
    quick: bool,
    /// Run these experiments, and keep the stored results of the others.
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',',
        value_parser = EXPERIMENTS.iter().map(|one| one.name).collect::<Vec<_>>())]
    only: Vec<String>,
    /// Measure the unoptimized build of the server. The pages are written as with `--quick`.
    #[arg(long)]
    debug: bool,
    /// Build the programs that measure in this folder.
    #[arg(long, value_name = "FOLDER")]
    compare_target: Option<PathBuf>,
}

/// Folder of the results, the charts and the page of all figures, beside the page.
const FOLDER: &str = "benchmarks";

/// Measures and writes the pages.
pub(crate) fn run_all(options: &Options) -> Result<()> {
    let folder = target_folder().join("benchmark");
    std::fs::create_dir_all(&folder).context("cannot create the folder of the logs")?;
    // The programs that measure run in other folders.
    let folder = folder.canonicalize()?;
    // Figures of a quick run or of an unoptimized build must not be published.
    let is_draft = options.quick || options.debug;
    let pages =
        if is_draft { folder.join("draft") } else { workspace().canonicalize()?.join("docs") };
    std::fs::create_dir_all(pages.join(FOLDER)).context("cannot create the folder of the pages")?;
    let file = pages.join(FOLDER).join("results.json");
    let stored = Results::read(&file)?;
    if options.write_only {
        let Some(results) = stored else { bail!("there are no results in {}", file.display()) };
        return write_pages(&results, &pages);
    }
    let chosen: Vec<&Experiment> = if options.only.is_empty() {
        EXPERIMENTS.iter().collect()
    } else {
        options.only.iter().filter_map(|name| named(name)).collect()
    };
    let mut results = match stored {
        Some(results) if !options.only.is_empty() => results,
        _ => Results::new(),
    };
    let failed = measure_all(&chosen, options, &folder, &mut results, &file)?;
    write_pages(&results, &pages)?;
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

/// Runs experiments, and writes the results file after each. Returns the names of the failed ones.
fn measure_all(
    chosen: &[&Experiment],
    options: &Options,
    folder: &Path,
    results: &mut Results,
    file: &Path,
) -> Result<Vec<&'static str>> {
    requirements::install_benchmark_programs()?;
    let profile = if options.debug { Profile::Debug } else { Profile::Dist };
    let folders = Folders {
        tyrant: std::path::absolute(build(profile)?)?,
        compare: std::path::absolute(build_compare(chosen, options)?)?,
        work: folder.to_owned(),
    };
    let size = if options.quick { Size::Quick } else { Size::Full };
    let versions = machine::versions();
    let goals = goals::goals()?;
    let mut failed = Vec::new();
    for (number, experiment) in (1..).zip(chosen) {
        let place = format!("[{number}/{}] {}", chosen.len(), experiment.name);
        let machine = machine::machine(folder);
        let date = date()?;
        let start = Instant::now();
        let outcome = measure::measure(experiment, size, &folders, &place);
        let seconds = start.elapsed().as_secs_f64();
        let (measured, failure) = match outcome {
            Ok(measurements) => (Measured { measurements }, None),
            Err(error) => {
                eprintln!("{place} failed: {error:#}");
                failed.push(experiment.name);
                (Measured::default(), Some(format!("{error:#}")))
            }
        };
        println!("{place} took {seconds:.0} s");
        results.replace(Run {
            experiment: experiment.name.to_owned(),
            date,
            seconds,
            is_quick: options.quick,
            is_debug: options.debug,
            command: measure::shown_command(experiment, size),
            machine,
            versions: versions.clone(),
            failure,
            sizes: measured.sizes(),
            outcomes: goals::outcomes(&goals, experiment.name, &measured),
            records: measured.records(),
        });
        results.write(file)?;
    }
    Ok(failed)
}

/// Writes the pages and charts into a folder, in place of all charts there.
fn write_pages(results: &Results, folder: &Path) -> Result<()> {
    let charts = folder.join(FOLDER).join("charts");
    if charts.exists() {
        std::fs::remove_dir_all(&charts).context("cannot remove the charts")?;
    }
    std::fs::create_dir_all(&charts).context("cannot create the folder of the charts")?;
    for (name, text) in pages(results)? {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Returns the pages and charts, with their paths.
fn pages(results: &Results) -> Result<Vec<(String, String)>> {
    let goals = goals::goals()?;
    let mut pages = vec![
        ("benchmarks.md".to_owned(), markdown::page(results, &goals)),
        (format!("{FOLDER}/figures.md"), markdown::figures(results)),
    ];
    for experiment in EXPERIMENTS {
        let Some(run) = results.run(experiment.name) else { continue };
        for measure in experiment.charts {
            for Chart { name, svg, .. } in svg::charts(run, *measure) {
                pages.push((format!("{FOLDER}/charts/{name}.svg"), svg));
            }
        }
    }
    let requests = workspace().join("docs/benchmarks/requests.md");
    let requests = std::fs::read_to_string(requests).context("cannot read the page of requests")?;
    for Chart { name, svg, .. } in readme::charts(results, &requests)? {
        pages.push((format!("{FOLDER}/charts/{name}.svg"), svg));
    }
    Ok(pages)
}

/// Builds the programs of the experiments, optimized. Returns their folder.
fn build_compare(chosen: &[&Experiment], options: &Options) -> Result<PathBuf> {
    let target = match &options.compare_target {
        Some(folder) => std::path::absolute(folder)?,
        None => std::path::absolute(target_folder().join("compare"))?,
    };
    for has_rivals in [false, true] {
        let programs: BTreeSet<&str> = chosen
            .iter()
            .map(|experiment| experiment.program)
            .filter(|program| program.has_rivals() == has_rivals)
            .map(experiments::Program::name)
            .collect();
        if programs.is_empty() {
            continue;
        }
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--release", "--manifest-path", "crates/compare/Cargo.toml"]);
        if !has_rivals {
            command.arg("--no-default-features");
        }
        programs.iter().for_each(|program| {
            command.args(["--bin", program]);
        });
        run(command.env("CARGO_TARGET_DIR", &target).current_dir(workspace()))?;
    }
    Ok(target.join("release"))
}

/// Returns the date and time, UTC.
fn date() -> Result<String> {
    ensure!(succeeds(&["date", "--utc"]), "cannot run date");
    let output = Command::new("date").args(["--utc", "+%Y-%m-%d %H:%M"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_and_charts_are_those_of_the_stored_results() {
        let docs = workspace().join("docs");
        let results = Results::read(&docs.join(FOLDER).join("results.json")).expect("results");
        let pages = pages(&results.expect("a file")).expect("pages");
        let charts = std::fs::read_dir(docs.join(FOLDER).join("charts")).expect("charts").count();
        assert_eq!(pages.len(), charts + 2);
        for (name, text) in pages {
            let stored = std::fs::read_to_string(docs.join(&name)).expect("a page");
            assert!(stored == text, "{name}: run cargo xtask benchmark --write-only");
        }
    }
}
