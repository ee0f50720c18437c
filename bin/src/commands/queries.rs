//! Queries of a search: its conditions, divided by set operations.

use crate::errors::wrong_command_line;
use anyhow::Result;
use cabinet::table::Condition;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, error::ErrorKind};
use client::{Search as Query, SetOperation};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const WHERE: &str = "where";

/// Flags between queries, their operations and help.
const OPERATIONS: [(&str, SetOperation, &str); 3] = [
    (
        "union",
        SetOperation::Union,
        "Find the rows of the conditions before it and of those after it. Order and limits apply to \
         the whole search",
    ),
    (
        "intersection",
        SetOperation::Intersection,
        "Find only rows that meet the conditions before it and those after it",
    ),
    ("difference", SetOperation::Difference, "Omit the rows that meet the conditions after it"),
];

/// The parsed queries. The first one exists even if it has no conditions.
#[derive(Clone, Debug)]
pub(super) struct Queries {
    operation: SetOperation,
    conditions: Vec<Vec<[OsString; 3]>>,
}

impl clap::Args for Queries {
    fn augment_args(command: Command) -> Command {
        let condition = Arg::new(WHERE)
            .long(WHERE)
            .short('w')
            .num_args(3)
            .action(ArgAction::Append)
            .value_names(["COLUMN", "OPERATOR", "OPERAND"])
            .value_parser(clap::value_parser!(OsString))
            .allow_hyphen_values(true)
            .help(
                "Find rows that meet a condition, such as age NUMGE 18; all conditions must hold. A \
                 leading ~ negates the operator. An empty column is the key",
            );
        let flags = OPERATIONS.map(|(name, _, help)| {
            let others =
                OPERATIONS.map(|(other, ..)| other).into_iter().filter(move |o| *o != name);
            Arg::new(name)
                .long(name)
                .num_args(0)
                .default_missing_value("true")
                .value_parser(clap::value_parser!(bool))
                .action(ArgAction::Append)
                .conflicts_with_all(others)
                .conflicts_with("out")
                .help(help)
        });
        command.arg(condition).args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Queries {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut queries = Self { operation: SetOperation::Union, conditions: vec![Vec::new()] };
        // Positions of the flags on the command line.
        let mut separators: Vec<usize> = Vec::new();
        for (name, operation, _) in OPERATIONS {
            if let Some(indices) = matches.indices_of(name) {
                separators.extend(indices);
                queries.operation = operation;
            }
        }
        let values: Vec<&OsString> = matches.get_many(WHERE).into_iter().flatten().collect();
        let indices = matches.indices_of(WHERE).into_iter().flatten();
        let mut behind = 0;
        for (condition, index) in values.as_chunks::<3>().0.iter().zip(indices.step_by(3)) {
            while separators.get(behind).is_some_and(|separator| *separator < index) {
                queries.conditions.push(Vec::new());
                behind += 1;
            }
            if let Some(last) = queries.conditions.last_mut() {
                last.push(condition.map(Clone::clone));
            }
        }
        if behind < separators.len() || queries.conditions[1..].iter().any(Vec::is_empty) {
            let what = "a condition must follow --union, --intersection and --difference\n";
            return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, what));
        }
        Ok(queries)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Queries {
    /// Returns the search, with `first` applied to its first query.
    pub(super) fn search(&self, first: impl FnOnce(Query) -> Result<Query>) -> Result<Query> {
        let mut queries = self.conditions.iter().map(|conditions| conditions_of(conditions));
        let mut search = first(queries.next().unwrap_or_else(|| Ok(Query::new()))?)?;
        for query in queries {
            search = search.combine(self.operation, query?);
        }
        Ok(search)
    }
}

fn conditions_of(conditions: &[[OsString; 3]]) -> Result<Query> {
    let mut query = Query::new();
    for condition in conditions {
        let [column, operator, operand] = condition.each_ref().map(|part| part.as_bytes());
        let parsed = Condition::parse(column, operator, operand).ok_or_else(|| {
            let names: Vec<_> = client::Search::operators().collect();
            wrong_command_line(format_args!(
                "unknown operator {:?}: give {}, or =, >, >=, < or <= for numbers",
                String::from_utf8_lossy(operator),
                names.join(", ")
            ))
        })?;
        if let Some(flaw) = parsed.flaw() {
            return Err(wrong_command_line(flaw));
        }
        query = query.condition(column, operator, operand);
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    fn parse(line: &str) -> Result<Queries, clap::Error> {
        let out = Arg::new("out").long("out").action(ArgAction::SetTrue);
        let command = Queries::augment_args(Command::new("search").arg(out));
        Queries::from_arg_matches(&command.try_get_matches_from(line.split(' '))?)
    }

    #[test]
    fn an_unknown_operator_is_told_those_that_there_are() {
        let condition = ["age", "GT", "18"].map(OsString::from);
        let error = conditions_of(&[condition]).unwrap_err().to_string();
        let condition = ["name", "RX", "("].map(OsString::from);
        let pattern = conditions_of(&[condition]).unwrap_err().to_string();
        assert!(pattern.starts_with("the pattern \"(\" is invalid: "), "{pattern}");
        let parts = ["unknown operator \"GT\": give STREQ, ", "NUMGT, ", "or =, >, "];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn conditions_belong_to_the_query_between_their_flags() {
        for (line, lengths) in [
            ("search", vec![0]),
            ("search -w a = 1 -w b = 2", vec![2]),
            ("search --union -w a = 1", vec![0, 1]),
            ("search -w a = 1 --union -w b = 2 -w c = 3 --union -w d = -4", vec![1, 2, 1]),
        ] {
            let queries = parse(line).unwrap();
            let found: Vec<usize> = queries.conditions.iter().map(Vec::len).collect();
            assert_eq!(found, lengths, "{line}");
            assert_eq!(queries.operation, SetOperation::Union);
        }
        let queries = parse("search --difference -w a = 1").unwrap();
        assert_eq!(queries.operation, SetOperation::Difference);
    }

    #[test]
    fn invalid_searches_are_refused() {
        for line in [
            "search -w a = 1 --union",
            "search -w a = 1 --union --union -w b = 2",
            "search -w a = 1 --union -w b = 2 --difference -w c = 3",
            "search -w a = 1 --intersection -w b = 2 --out",
            "search -w a =",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
