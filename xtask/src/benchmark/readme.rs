//! Charts of `README.md`: CPU time per operation, of the experiment with memcached's protocol, and
//! of the table that `docs/benchmarks/requests.md` has of Redis's own benchmark.

use super::results::{Measure, Results};
use super::svg::{Chart, Row, marks};
use anyhow::{Context, Result};

/// Experiment with memcached's protocol, and the end of its cases in the chart.
const EXPERIMENT: &str = "requests";
const CASES: &str = ", 32 conn";

/// Section whose first table has the figures of Redis's own benchmark.
const SECTION: &str = "\n## Redis's own benchmark\n";

/// Columns of the table in the chart, and their servers.
const COLUMNS: [(&str, &str); 3] = [("hash", "tyrant"), ("Redis", "redis"), ("Valkey", "valkey")];

/// Returns the charts. `page` is the text of `docs/benchmarks/requests.md`.
pub(super) fn charts(results: &Results, page: &str) -> Result<Vec<Chart>> {
    let chart = |name: &str, axis: &str, servers: &[&str], rows: &[Row]| {
        let title = Measure::CpuUsPerOperation.question();
        let svg = marks(title, axis, servers, rows);
        Chart { name: name.to_owned(), title: title.to_owned(), svg }
    };
    let rows = table_rows(page).context("docs/benchmarks/requests.md")?;
    let servers = COLUMNS.map(|(_, server)| server);
    let mut charts =
        vec![chart("readme-redis", "Redis's own benchmark, 50 connections", &servers, &rows)];
    let run = results.run(EXPERIMENT).filter(|run| !run.records.is_empty());
    if let Some(run) = run {
        let servers = run.servers();
        let row = |case: &str| {
            let of = |server: &&str| run.of_case(case).find(|one| one.server == *server);
            let cpu = |server| of(server)?.figures.get(&Measure::CpuUsPerOperation);
            let figures = servers.iter().map(|server| Some(vec![*cpu(server)?])).collect();
            Row { name: case.trim_end_matches(CASES).to_owned(), figures }
        };
        let cases = run.cases().into_iter().filter(|case| case.ends_with(CASES));
        let rows: Vec<Row> = cases.map(row).collect();
        let axis = "memcached's text protocol, 32 connections";
        charts.push(chart("readme-memcached", axis, &servers, &rows));
    }
    Ok(charts)
}

/// Returns the rows of the table of Redis's own benchmark.
fn table_rows(page: &str) -> Result<Vec<Row>> {
    let (_, section) = page.split_once(SECTION).with_context(|| format!("no{SECTION}"))?;
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let mut lines = lines.take_while(|line| line.starts_with('|')).map(cells);
    let heads = lines.next().context("no table")?;
    let place = |name: &str| {
        let place = heads.iter().position(|head| *head == name);
        place.with_context(|| format!("the table has no column {name}"))
    };
    let places = COLUMNS.iter().map(|(column, _)| place(column)).collect::<Result<Vec<_>>>()?;
    let row = |cells: Vec<&str>| {
        let figure = |place: &usize| -> Result<Option<Vec<f64>>> {
            let cell = cells.get(*place).context("a row with fewer columns")?;
            let figure = cell.parse().with_context(|| format!("{cell:?} is not a figure"))?;
            Ok(Some(vec![figure]))
        };
        let figures = places.iter().map(figure).collect::<Result<_>>()?;
        Ok(Row { name: cells[0].to_owned(), figures })
    };
    // The second line is between the heads and the rows.
    lines.skip(1).map(row).collect()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    const PAGE: &str = "# A\n\n## Redis's own benchmark\n\nText.\n\n\
        | CPU us | hash | tree | Redis | Valkey |\n|---|---:|---:|---:|---:|\n\
        | get | 1 | 2 | 3 | 4 |\n| set | 5 | 6 | 7 | 8.5 |\n\n| b |\n";

    #[test]
    fn the_rows_are_those_of_the_table_on_the_page() {
        let rows = table_rows(PAGE).expect("rows");
        let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["get", "set"]);
        assert_eq!(rows[1].figures, [5.0, 7.0, 8.5].map(|figure| Some(vec![figure])));
        let charts = charts(&sample::results(), PAGE).expect("charts");
        let names: Vec<&str> = charts.iter().map(|chart| &*chart.name).collect();
        assert_eq!(names, ["readme-redis"], "the sample has no requests");
    }

    #[test]
    fn a_page_without_the_table_or_with_other_columns_is_refused() {
        let error = |page: &str| match table_rows(page) {
            Ok(_) => panic!("{page} has the table"),
            Err(error) => format!("{error:#}"),
        };
        assert!(error("# A\n").contains("Redis's own benchmark"));
        assert_eq!(error(&PAGE.replace("Valkey", "Dragonfly")), "the table has no column Valkey");
        assert!(error(&PAGE.replace("8.5", "fast")).starts_with("\"fast\" is not a figure"));
    }
}
