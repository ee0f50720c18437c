//! Conditional requests: headers that name the version of a record for which a request is meant.

use super::head::Head;
use std::borrow::Cow;

/// Conditions of `If-Match` and `If-None-Match`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// List of entity tags, one of which the record must have, or `*`: it must exist.
    pub matching: Option<Cow<'a, [u8]>>,
    /// List of entity tags, none of which the record may have, or `*`: it must not exist.
    pub none_matching: Option<Cow<'a, [u8]>>,
}

/// Condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedCondition {
    /// `If-Match` does not hold.
    Match,
    /// `If-None-Match` does not hold: a client that reads has this version already.
    NoneMatch,
}

impl<'a> Conditions<'a> {
    /// Returns the conditions of a request.
    pub fn of(head: &Head<'a>) -> Self {
        Self { matching: head.list("If-Match"), none_matching: head.list("If-None-Match") }
    }

    /// Returns whether there is no condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the conditions against `tag`, the entity tag of the record, or `None` if there is no
    /// record.
    pub fn check(&self, tag: Option<&str>) -> Result<(), FailedCondition> {
        let is_listed = |list: &[u8], weakly: bool| match list {
            b"*" => tag.is_some(),
            list => tag.is_some_and(|tag| contains_tag(list, tag, weakly)),
        };
        if self.matching.as_deref().is_some_and(|list| !is_listed(list, false)) {
            return Err(FailedCondition::Match);
        }
        if self.none_matching.as_deref().is_some_and(|list| is_listed(list, true)) {
            return Err(FailedCondition::NoneMatch);
        }
        Ok(())
    }
}

/// Returns whether a list contains a strong tag in quotes. Weak tags of the list match only if
/// `weakly` is set.
fn contains_tag(list: &[u8], tag: &str, weakly: bool) -> bool {
    let mut rest = list;
    loop {
        rest = rest.trim_ascii_start();
        let (is_weak, quoted) = match rest.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let Some(text) = quoted.strip_prefix(b"\"") else { return false };
        let Some(end) = memchr::memchr(b'"', text) else { return false };
        let (found, after) = quoted.split_at(end + 2);
        if found == tag.as_bytes() && (weakly || !is_weak) {
            return true;
        }
        match after.trim_ascii_start().strip_prefix(b",") {
            Some(after) => rest = after,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        matching: Option<&str>,
        none: Option<&str>,
        tag: Option<&str>,
    ) -> Result<(), FailedCondition> {
        let conditions = Conditions {
            matching: matching.map(|list| list.as_bytes().into()),
            none_matching: none.map(|list| list.as_bytes().into()),
        };
        conditions.check(tag)
    }

    #[test]
    fn if_match_compares_strongly() {
        let tag = Some("\"1f\"");
        for list in ["\"1f\"", "\"a\", \"1f\"", "\"a,\" ,\"1f\" , \"b\"", "*", "W/\"1f\",\"1f\""] {
            assert_eq!(check(Some(list), None, tag), Ok(()), "{list}");
        }
        for list in ["\"1\"", "W/\"1f\"", "1f", "", "\"1f", "\"a\" \"1f\"", "\"*\""] {
            assert_eq!(check(Some(list), None, tag), Err(FailedCondition::Match), "{list}");
        }
        assert_eq!(check(Some("*"), None, None), Err(FailedCondition::Match));
        assert_eq!(check(Some("\"1f\""), None, None), Err(FailedCondition::Match));
    }

    #[test]
    fn if_none_match_compares_weakly() {
        let tag = Some("\"1f\"");
        for list in ["\"1f\"", "W/\"1f\"", "\"a\", W/\"1f\"", "*"] {
            assert_eq!(check(None, Some(list), tag), Err(FailedCondition::NoneMatch), "{list}");
        }
        for list in ["\"1\"", "1f", ""] {
            assert_eq!(check(None, Some(list), tag), Ok(()), "{list}");
        }
        assert_eq!(check(None, Some("*"), None), Ok(()));
    }

    #[test]
    fn both_conditions_must_hold() {
        let tag = Some("\"1\"");
        assert_eq!(check(Some("\"2\""), Some("\"1\""), tag), Err(FailedCondition::Match));
        assert_eq!(check(Some("\"1\""), Some("\"1\""), tag), Err(FailedCondition::NoneMatch));
        assert_eq!(check(Some("\"1\""), Some("\"2\""), tag), Ok(()));
        assert_eq!(check(None, None, None), Ok(()));
    }

    #[test]
    fn all_lines_of_a_header_are_one_list() {
        let request = "GET /k HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"1\"\r\nIF-NONE-MATCH: \"2\", \"3\"\r\n\r\n";
        let crate::Parse::Complete(head, _) = crate::http::head(request.as_bytes()) else {
            panic!("no head");
        };
        let conditions = Conditions::of(&head);
        for tag in ["\"1\"", "\"2\"", "\"3\""] {
            assert_eq!(conditions.check(Some(tag)), Err(FailedCondition::NoneMatch), "{tag}");
        }
        assert_eq!(conditions.check(Some("\"4\"")), Ok(()));
    }
}
