//! The nearest of several names to one that was mistyped.

/// Returns the name that takes the fewest insertions, removals, replacements and swaps of
/// neighbours, if these are few for its length.
pub(crate) fn nearest<'n>(given: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let edits_max = (given.len() / 3).clamp(1, 3);
    let distances = names.map(|name| (distance(given.as_bytes(), name.as_bytes()), name));
    distances.filter(|(edits, _)| *edits <= edits_max).min().map(|(_, name)| name)
}

fn distance(one: &[u8], other: &[u8]) -> usize {
    // The rows of the table of the beginnings of both, the last two of them.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, byte) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, against) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(byte != against);
            let mut edits = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            let is_swapped =
                row > 0 && column > 0 && *byte == other[column - 1] && one[row - 1] == *against;
            if is_swapped {
                edits = edits.min(before[column - 1] + 1);
            }
            next.push(edits);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_recognised_and_another_one_is_not() {
        let names = ["port", "host", "tls-port", "threads", "update-log"];
        let near = |given| nearest(given, names.into_iter());
        assert_eq!(near("prot"), Some("port"));
        assert_eq!(near("thread"), Some("threads"));
        assert_eq!(near("update_log"), Some("update-log"));
        assert_eq!(near("colour"), None);
        assert_eq!(near(""), None);
    }
}
