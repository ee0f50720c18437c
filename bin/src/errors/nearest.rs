//! The nearest of several names to one that was mistyped.

/// Returns the name that takes the fewest insertions, removals, replacements and swaps of
/// neighbours, if these are few for its length.
pub(crate) fn nearest<'n>(given: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let edits_max = (given.len() / 3).clamp(1, 3);
    let distances = names.map(|name| (strsim::osa_distance(given, name), name));
    distances.filter(|(edits, _)| *edits <= edits_max).min().map(|(_, name)| name)
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
