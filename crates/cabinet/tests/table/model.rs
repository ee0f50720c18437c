//! Random rows, indices and queries against the naive way.

use crate::naive::{self, Rows};
use cabinet::table::{
    Condition, IndexChange, IndexKind, Operator, Query, Row, SortKind, SortOrder, Table,
};
use cabinet::{Database, Error, Options};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

const COLUMNS: [&str; 4] = ["", "a", "b", "c"];

/// Values that are text, lists, numbers, and somewhat odd.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ab]{0,3}",
        3 => "[-]?[0-9]{1,3}(\\.[0-9]{1,2})?",
        3 => "(A|ab|b|ba|abab|c)( |,|, )(a|ab|B|bab|c)",
        1 => "[ abAB,1.-]{0,12}",
        1 => Just("inf".to_string()),
        1 => Just("nan".to_string()),
        1 => Just("a\0b".to_string()),
        1 => "[ab]{1,2}".prop_map(|tail| "x".repeat(cabinet::limits::INDEXED_VALUE_BYTES_MAX - 1) + &tail),
    ]
}

fn operand() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => value(),
        1 => Just(String::new()),
        1 => Just("x".repeat(cabinet::limits::INDEXED_VALUE_BYTES_MAX) + "a"),
        1 => "(a|ab|b|c|abab)( (&&|\\|\\||!!)? ?(a|b|ba|c|bab)){1,3}",
    ]
}

fn row() -> impl Strategy<Value = Row> {
    proptest::collection::vec((1usize..4, value()), 0..4).prop_map(|columns| {
        let mut row = Row::new();
        for (column, value) in columns {
            row.set(COLUMNS[column].as_bytes(), value.as_bytes()).unwrap();
        }
        row
    })
}

fn primary() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => "[ab0-3]{1,2}", 1 => "[0-9]{1,2}", 1 => Just("a b".into())]
        .prop_map(String::into_bytes)
}

fn condition() -> impl Strategy<Value = Condition> {
    (0usize..4, 0u64..19, operand(), proptest::bool::weighted(0.2)).prop_map(
        |(column, operator, operand, negate)| {
            let operator = Operator::from_number(operator).unwrap();
            // Patterns are another test's.
            let operand = match operator {
                Operator::StringMatches => operand.replace(['.', '|', '+'], "a").replace('\0', ""),
                _ => operand,
            };
            let operand = operand.trim_start_matches(|_| {
                operator == Operator::StringMatches && operand.starts_with('*')
            });
            let condition =
                Condition::new(COLUMNS[column].as_bytes(), operator, operand.as_bytes());
            Condition { negate, ..condition }
        },
    )
}

fn query() -> impl Strategy<Value = Query> {
    let order = proptest::option::of((0usize..4, 0usize..4));
    let max = proptest::option::of(0u64..6);
    (proptest::collection::vec(condition(), 0..3), order, max, 0u64..3).prop_map(
        |(conditions, order, max, skip)| Query {
            conditions,
            order: order.map(|(column, kind)| SortOrder {
                column: COLUMNS[column].as_bytes().to_vec(),
                kind: SortKind::parse(kind.to_string().as_bytes()).unwrap(),
            }),
            max,
            skip,
        },
    )
}

#[derive(Clone, Debug)]
enum Operation {
    Put(Vec<u8>, Row),
    PutKeep(Vec<u8>, Row),
    PutCat(Vec<u8>, Row),
    Remove(Vec<u8>),
    SetIndex(usize, IndexKind),
    RemoveIndex(usize),
    Query(Query),
    RemoveFound(Query),
    Clear,
}

fn operation() -> impl Strategy<Value = Operation> {
    use IndexKind::{Decimal, Gram, Lexical, Token};
    let kind = prop_oneof![Just(Lexical), Just(Decimal), Just(Token), Just(Gram)];
    prop_oneof![
        12 => (primary(), row()).prop_map(|(key, row)| Operation::Put(key, row)),
        2 => (primary(), row()).prop_map(|(key, row)| Operation::PutKeep(key, row)),
        2 => (primary(), row()).prop_map(|(key, row)| Operation::PutCat(key, row)),
        3 => primary().prop_map(Operation::Remove),
        4 => (0usize..4, kind).prop_map(|(column, kind)| Operation::SetIndex(column, kind)),
        1 => (0usize..4).prop_map(Operation::RemoveIndex),
        12 => query().prop_map(Operation::Query),
        1 => query().prop_map(Operation::RemoveFound),
        1 => Just(Operation::Clear),
    ]
}

/// The results of a query are what the naive way finds, with indices and without.
fn check(table: &Table, rows: &Rows, query: &Query) {
    let mut matches = naive::matches(query, rows);
    if let Some(order) = &query.order {
        let row =
            |key: &Vec<u8>| rows.get_key_value(key).map(|(key, row)| (&key[..], row)).unwrap();
        matches.sort_by(|one, other| naive::compare(order, row(one), row(other)));
    }
    let skip = query.skip as usize;
    let count =
        query.max.map_or(usize::MAX, |max| max as usize).min(matches.len().saturating_sub(skip));
    let mut scanned = query.clone();
    scanned.conditions.iter_mut().for_each(|condition| condition.no_index = true);
    for query in [query, &scanned] {
        let (found, report) = table.search(query).unwrap();
        let context = || format!("{query:?} found {found:?} of {matches:?}\n{}", report.hint);
        assert_eq!(found.len(), count, "{}", context());
        assert_eq!(report.count, count as u64, "{}", context());
        let distinct: BTreeSet<&Vec<u8>> = found.iter().collect();
        assert_eq!(distinct.len(), found.len(), "{}", context());
        for (at, key) in found.iter().enumerate() {
            assert!(matches.contains(key), "{}", context());
            if let Some(order) = &query.order {
                let expected = &matches[skip + at];
                let (one, other) = ((&key[..], &rows[key]), (&expected[..], &rows[expected]));
                assert!(naive::compare(order, one, other).is_eq(), "{}", context());
            }
        }
        assert_eq!(table.count(query).unwrap(), count as u64, "{}", context());
    }
}

fn apply(table: &Table, rows: &mut Rows, operation: &Operation) {
    match operation {
        Operation::Put(key, row) => {
            table.put(key, row).unwrap();
            rows.insert(key.clone(), row.clone());
        }
        Operation::PutKeep(key, row) => {
            let is_new = !rows.contains_key(key);
            assert_eq!(table.put_keep(key, row).unwrap(), is_new);
            if is_new {
                rows.insert(key.clone(), row.clone());
            }
        }
        Operation::PutCat(key, row) => {
            table.put_cat(key, row).unwrap();
            rows.entry(key.clone()).or_default().add_missing(row);
        }
        Operation::Remove(key) => {
            assert_eq!(table.remove(key).unwrap(), rows.remove(key).is_some());
        }
        Operation::SetIndex(column, kind) => {
            table.set_index(COLUMNS[*column].as_bytes(), IndexChange::Set(*kind)).unwrap();
        }
        Operation::RemoveIndex(column) => {
            let column = COLUMNS[*column].as_bytes();
            let existed = table.indices().iter().any(|index| index.column == column);
            match table.set_index(column, IndexChange::Remove) {
                Ok(()) => assert!(existed),
                Err(error) => assert!(!existed && matches!(error, Error::NoIndex), "{error}"),
            }
        }
        Operation::Query(query) => check(table, rows, query),
        Operation::RemoveFound(query) => {
            let report = table
                .search_out(query, |key, row| assert_eq!(rows.remove(key), Some(row)))
                .unwrap();
            assert_eq!(table.len(), rows.len() as u64);
            let matches = naive::matches(query, rows).len() as u64;
            assert!(query.max.is_some_and(|max| report.count == max) || matches <= query.skip);
        }
        Operation::Clear => {
            let indices = table.indices();
            table.clear_rows().unwrap();
            assert_eq!(table.indices(), indices);
            rows.clear();
        }
    }
    assert_eq!(table.len(), rows.len() as u64);
}

fn check_rows(table: &Table, rows: &Rows) {
    let mut left = rows.clone();
    table
        .for_each_row(|key, row| {
            assert_eq!(left.remove(key), Some(row.to_row()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(left.is_empty());
}

fn run(table: &Table, operations: &[Operation]) {
    let mut rows = Rows::new();
    for operation in operations {
        apply(table, &mut rows, operation);
    }
    check_rows(table, &rows);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_table_answers_as_the_naive_way_does(
        operations in proptest::collection::vec(operation(), 1..80),
    ) {
        run(&crate::in_memory(), &operations);
    }

    #[test]
    fn the_answers_are_the_same_with_hardly_any_memory(
        operations in proptest::collection::vec(operation(), 1..60),
    ) {
        let mut options = Options::default();
        options.query_memory_bytes = 100;
        run(&crate::in_memory_with(&options), &operations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_table_on_disk_is_what_it_was_when_it_is_opened_again(
        histories in proptest::collection::vec(proptest::collection::vec(operation(), 1..60), 1..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casket.tct");
        let mut rows = Rows::new();
        for operations in histories {
            let table = Table::open(&path, &Options::default()).unwrap();
            check_rows(&table, &rows);
            prop_assert_eq!(table.len(), rows.len() as u64);
            for operation in &operations {
                apply(&table, &mut rows, operation);
            }
        }
        let database = Database::open(path.to_str().unwrap()).unwrap();
        for (key, row) in &rows {
            prop_assert_eq!(database.get(key).unwrap(), Some(row.to_joined()));
        }
    }
}

/// Writers change rows while indices are built and removed: in the end every index answers as the
/// rows say.
#[test]
fn indices_that_are_built_while_others_write_miss_nothing() {
    let table = Arc::new(crate::in_memory());
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            let table = &table;
            scope.spawn(move || {
                for step in 0..3000u32 {
                    let key = format!("{}", step.wrapping_mul(2654435761) % 300);
                    match (step + writer) % 5 {
                        0 => drop(table.remove(key.as_bytes()).unwrap()),
                        _ => {
                            let value = format!("{}", (step + writer) % 7);
                            let row = Row::new().with(b"a", value.as_bytes()).unwrap();
                            table.put(key.as_bytes(), &row).unwrap();
                        }
                    }
                }
            });
        }
        for round in 0..12 {
            let kinds = [IndexKind::Decimal, IndexKind::Lexical, IndexKind::Token, IndexKind::Gram];
            table.set_index(b"a", IndexChange::Set(kinds[round % 4])).unwrap();
        }
    });
    let mut rows = Rows::new();
    table
        .for_each_row(|key, row| {
            rows.insert(key.to_vec(), row.to_row());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(table.len(), rows.len() as u64);
    for (kind, operator) in [
        (None, Operator::TextPhrase),
        (Some(IndexKind::Decimal), Operator::NumberEqual),
        (Some(IndexKind::Lexical), Operator::StringEqual),
    ] {
        if let Some(kind) = kind {
            table.set_index(b"a", IndexChange::Set(kind)).unwrap();
        }
        for value in 0..8 {
            let query = Query::new().with(b"a", operator, value.to_string().as_bytes());
            check(&table, &rows, &query);
            assert!(table.search(&query).unwrap().1.hint.starts_with("using an index"));
        }
    }
}
