//! Times of single tests, as the harness prints them with `--report-time`.

/// A test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    /// Name of its suite and its own.
    pub(super) name: String,
    pub(super) seconds: f64,
}

/// Options of a test binary that make it print the time of each test.
pub(super) const OPTIONS: [&str; 3] = ["-Z", "unstable-options", "--report-time"];

/// Variable that makes a test binary of the stable toolchain accept them.
pub(super) const VARIABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// Returns the tests that the output of a suite names with their time.
pub(super) fn of(suite: &str, output: &str) -> Vec<Test> {
    let of_line = |line: &str| {
        let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let (_, time) = rest.rsplit_once('<')?;
        let seconds = time.trim_end().strip_suffix("s>")?.parse().ok()?;
        Some(Test { name: format!("{suite} {name}"), seconds })
    };
    output.lines().filter_map(of_line).collect()
}

/// Returns the lines with which the runners of tests close: the harness, and pytest with `-q` if no
/// test has failed.
pub(super) fn closing_lines(output: &str) -> Vec<String> {
    let is_of_pytest = |line: &str| {
        let count = line.split_once(" passed").filter(|(_, rest)| rest.contains(" in "));
        count.is_some_and(|(count, _)| count.parse::<u64>().is_ok())
    };
    let is_closing = |line: &&str| line.starts_with("test result: ") || is_of_pytest(line);
    output.lines().filter(is_closing).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_closing_lines_are_those_of_the_harness() {
        let output = "running 2 tests\ntest a::b ... ok <0.012s>\ntest c ... ignored\n\
            test d - should panic ... ok <12.500s>\n\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        let test = |name: &str, seconds| Test { name: name.to_owned(), seconds };
        assert_eq!(of("s", output), [test("s a::b", 0.012), test("s d - should panic", 12.5)]);
        assert_eq!(closing_lines(output).len(), 1);
    }

    #[test]
    fn a_closing_line_of_pytest_begins_with_what_passed() {
        let lines = ["694 passed, 56 skipped in 264.57s (0:04:24)", "199 passed in 20.62s"];
        let others = "17 failed, 162 passed in 50.24s\n162 of 179 tests pass\nall passed in 1 s";
        assert_eq!(closing_lines(&format!("{}\n{others}\n{}", lines[0], lines[1])), lines);
    }
}
