//! Searches: what is read, what is said, how results are put together.

use crate::{in_memory, row};
use cabinet::limits::SORTED_PHRASES_MAX;
use cabinet::table::{
    IndexChange, IndexKind, Operator, Query, Report, SearchRequest, SetOperation, SortKind, Table,
};
use std::ops::ControlFlow;

fn keys(query: &Query, table: &Table) -> Vec<String> {
    let found = table.search(query).unwrap().0;
    found.into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
}

/// A thousand rows: `number` is 0 to 999, `name` the same as text, `tags` two tokens, `text` words.
fn thousand(indices: &[(&str, IndexKind)]) -> Table {
    let table = in_memory();
    for number in 0..1000 {
        let columns = format!(
            "number={number} name=n{number:04} tags=t{},odd{} text=page-{}",
            number % 10,
            number % 2,
            number % 100
        );
        table.put(format!("k{number:04}").as_bytes(), &row(&columns)).unwrap();
    }
    for (column, kind) in indices {
        table.set_index(column.as_bytes(), IndexChange::Set(*kind)).unwrap();
    }
    table
}

fn report(table: &Table, query: &Query) -> Report {
    table.search(query).unwrap().1
}

#[test]
fn an_index_that_answers_all_of_a_query_is_all_that_is_read() {
    let table = thousand(&[
        ("number", IndexKind::Decimal),
        ("name", IndexKind::Lexical),
        ("tags", IndexKind::Token),
        ("text", IndexKind::Gram),
    ]);
    for (query, entries, hint) in [
        (Query::new().with(b"name", Operator::StringEqual, b"n0007"), 1, "\"name\" asc (STREQ)"),
        (Query::new().with(b"name", Operator::StringBegins, b"n00"), 100, "\"name\" asc (STRBW)"),
        (Query::new().with(b"number", Operator::NumberEqual, b"7.0"), 1, "\"number\" asc (NUMEQ)"),
        (
            Query::new().with(b"number", Operator::NumberBetween, b"10 19"),
            10,
            "\"number\" asc (NUMBT)",
        ),
        (
            Query::new().with(b"number", Operator::NumberGreater, b"989"),
            10,
            "\"number\" asc (NUMGT/NUMGE)",
        ),
        (
            Query::new().with(b"tags", Operator::StringAllTokens, b"t4 odd0"),
            100,
            "\"tags\" inverted (STRAND)",
        ),
        (
            Query::new().with(b"text", Operator::TextPhrase, b"AGE-42"),
            10,
            "\"text\" inverted (FTS)",
        ),
        (Query::new().with(b"", Operator::StringEqual, b"k0007"), 1, "\"\" asc (STREQ)"),
        (
            Query::new().with(b"number", Operator::NumberGreaterEqual, b"0").limit(7),
            7,
            "\"number\"",
        ),
    ] {
        let report = report(&table, &query);
        assert_eq!(report.count, entries, "{query:?}");
        assert_eq!(report.postings_read, entries, "{query:?}");
        assert_eq!(report.rows_read, 0, "{query:?}");
        assert!(report.hint.contains(hint), "{query:?}: {}", report.hint);
    }
}

#[test]
fn the_index_with_the_fewest_entries_leads_and_the_rest_is_tested() {
    let table = thousand(&[("number", IndexKind::Decimal), ("name", IndexKind::Lexical)]);
    let query = Query::new().with(b"name", Operator::StringBegins, b"n0").with(
        b"number",
        Operator::NumberLess,
        b"5",
    );
    let report = report(&table, &query);
    assert_eq!((report.count, report.postings_read, report.rows_read), (5, 5, 5));
    assert!(report.hint.starts_with("using an index: \"number\" desc (NUMLT/NUMLE)\n"));
}

#[test]
fn lists_of_several_indices_are_intersected_without_reading_rows() {
    let table = thousand(&[("tags", IndexKind::Token), ("text", IndexKind::Gram)]);
    let query = Query::new().with(b"tags", Operator::StringAnyToken, b"t2,t3").with(
        b"text",
        Operator::TextPhrase,
        b"page-42",
    );
    let report = report(&table, &query);
    assert_eq!((report.count, report.postings_read, report.rows_read), (10, 10, 0));
    assert_eq!(report.hint.matches("using an index").count(), 2);
}

#[test]
fn a_few_in_the_order_of_an_index_are_found_by_walking_it() {
    let table = thousand(&[("number", IndexKind::Decimal)]);
    let all = Query::new().order_by(b"number", SortKind::NumberAscending);
    let walked = report(&table, &all.clone().limit(10).skip(5));
    assert_eq!((walked.count, walked.postings_read, walked.rows_read), (10, 15, 0));
    assert!(walked.hint.contains("using an index: \"number\" asc (NUMASC)"));
    let sorted = report(&table, &all.limit(900));
    assert_eq!((sorted.count, sorted.rows_read), (900, 1000));
    assert!(sorted.hint.contains("sorting the result set: \"number\""));
    let narrowed = Query::new()
        .with(b"number", Operator::NumberGreaterEqual, b"990")
        .order_by(b"number", SortKind::NumberAscending);
    let narrowed = report(&table, &narrowed);
    assert_eq!((narrowed.count, narrowed.postings_read, narrowed.rows_read), (10, 10, 0));
}

#[test]
fn so_many_short_phrases_are_looked_up_each_once_and_with_more_the_rows_are_read() {
    let table = thousand(&[("text", IndexKind::Gram)]);
    let phrases =
        |count: usize| (0..count).map(|n| format!("{n:02}")).collect::<Vec<_>>().join(" ");
    for count in SORTED_PHRASES_MAX - 1..=SORTED_PHRASES_MAX + 1 {
        // Again and again, which counts once.
        let operand = [phrases(count), phrases(count)].join(" ");
        let query = Query::new().with(b"text", Operator::TextAny, operand.as_bytes());
        let found = report(&table, &query);
        let is_looked_up = found.hint.contains("inverted (FTS)");
        assert_eq!(is_looked_up, count <= SORTED_PHRASES_MAX, "{count}: {}", found.hint);
        // Those of one digit are not written with two.
        assert_eq!(found.count, (count as u64 - 10) * 10);
    }
    // They count together with those of the other conditions.
    let half = phrases(SORTED_PHRASES_MAX / 2 + 1);
    let query = Query::new().with(b"text", Operator::TextAny, half.as_bytes()).with(
        b"text",
        Operator::TextAny,
        half.as_bytes(),
    );
    assert_eq!(report(&table, &query).hint.matches("inverted (FTS)").count(), 1);
}

#[test]
fn hints_are_those_of_the_original() {
    let table = in_memory();
    table.put(b"p2", &row("name=joker age=19")).unwrap();
    table.set_index(b"age", IndexChange::Set(IndexKind::Decimal)).unwrap();
    table.set_index(b"name", IndexChange::Set(IndexKind::Lexical)).unwrap();
    let query = Query::new()
        .with(b"age", Operator::NumberLessEqual, b"25")
        .order_by(b"name", SortKind::StringAscending);
    assert_eq!(
        report(&table, &query).hint,
        "using an index: \"age\" desc (NUMLT/NUMLE)\nresult set size: 1\nsorting the result set: \"name\"\n"
    );
    let scanned = query.conditions[0].clone().without_index();
    let hint = report(&table, &Query::new().with_condition(scanned)).hint;
    assert!(hint.starts_with("scanning the whole table\nresult set size: 1\n"), "{hint}");
}

#[test]
fn rows_that_lack_the_column_come_last_whether_walked_or_sorted() {
    let table = thousand(&[]);
    for number in [3, 1, 2] {
        table.put(format!("lack{number}").as_bytes(), &row("name=zz")).unwrap();
    }
    let query = Query::new()
        .with(b"name", Operator::StringBegins, b"z")
        .order_by(b"number", SortKind::NumberAscending)
        .limit(5);
    table.put(b"has", &row("name=z number=5")).unwrap();
    let sorted = keys(&query, &table);
    assert_eq!(sorted, ["has", "lack1", "lack2", "lack3"]);
    table.set_index(b"number", IndexChange::Set(IndexKind::Decimal)).unwrap();
    assert_eq!(keys(&query, &table), sorted);
    assert!(report(&table, &query).hint.contains("(NUMASC)"));
}

#[test]
fn results_of_several_queries_are_put_together_by_the_originals_rules() {
    let table = in_memory();
    for (key, columns) in
        [("a", "n=5 x=1"), ("b", "n=3 x=1"), ("c", "n=4 y=1"), ("d", "n=1 x=1 y=1")]
    {
        table.put(key.as_bytes(), &row(columns)).unwrap();
    }
    let with = |column: &[u8]| Query::new().with(column, Operator::StringEqual, b"1");
    let (x, y) = (with(b"x"), with(b"y"));
    let by_number = |query: Query| query.order_by(b"n", SortKind::NumberAscending);
    let set = |queries: &[Query], operation| {
        let mut found = String::new();
        let report = table
            .for_each_set_result(queries, operation, |key| {
                found.push_str(std::str::from_utf8(key).unwrap());
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert_eq!(report.count, found.len() as u64);
        found
    };
    use SetOperation::{Difference, Intersection, Union};
    // A union comes as it is first seen, or sorted again.
    assert_eq!(set(&[y.clone(), x.clone()], Union), "cdab");
    assert_eq!(set(&[by_number(x.clone()), y.clone()], Union), "dbca");
    // Each query of a union is cut at its own limit, the whole at that of the first.
    assert_eq!(set(&[y.clone().limit(1), x.clone()], Union), "c");
    assert_eq!(set(&[y.clone(), x.clone().limit(1)], Union), "cda");
    assert_eq!(set(&[y.clone().limit(2).skip(1), x.clone()], Union), "da");
    // An intersection comes in the order of the last query, a difference in that of the first.
    let all = Query::new();
    assert_eq!(set(&[x.clone(), by_number(all.clone())], Intersection), "dba");
    assert_eq!(set(&[by_number(all.clone()), y.clone()], Difference), "ba");
    assert_eq!(set(&[by_number(all.clone()).limit(1), y.clone()], Difference), "b");
    assert_eq!(set(&[by_number(all.clone()).skip(1), y.clone()], Difference), "a");
    assert_eq!(set(&[by_number(x.clone())], Intersection), "dba");
    assert_eq!(set(&[], Union), "");
}

#[test]
fn answers_have_the_shape_that_clients_of_the_original_expect() {
    let table = in_memory();
    table.put(b"p1", &row("name=mikio age=30")).unwrap();
    table.put(b"p2", &row("name=joker age=19 lang=en,ja")).unwrap();
    table.put(b"p3", &row("name=x")).unwrap();
    let answer = |arguments: &[&[u8]]| {
        table.answer(&SearchRequest::parse(arguments.iter().copied())).unwrap().elements
    };
    let joker = &b"addcond\0name\0STREQ\0joker"[..];
    assert_eq!(answer(&[]), [b"p1", b"p2", b"p3"]);
    assert_eq!(answer(&[b"addcond\0age\0!NUMEQ\x0019", b"count"]), [b"2"]);
    assert_eq!(answer(&[joker, b"get"]), [b"\0p2\0name\0joker\0age\x0019\0lang\0en,ja"]);
    assert_eq!(answer(&[joker, b"get\0\0age\0nocol"]), [b"\0p2\0age\x0019"]);
    assert_eq!(answer(&[joker, b"get\0age"]), [b"age\x0019"]);
    assert_eq!(answer(&[b"addcond\0\0STRBW\0p", b"setlimit\x001\x001"]), [b"p2"]);
    assert_eq!(answer(&[b"setlimit\x000"]), [b""; 0]);
    assert_eq!(answer(&[joker, b"next", b"addcond\0\0STREQ\0p1", b"mstype\x000"]), [b"p2", b"p1"]);
    assert_eq!(answer(&[b"cond\0name\0BOGUS\0x"]).len(), 3);
    let hint = answer(&[joker, b"hint"]);
    assert_eq!(hint[0], b"p2");
    assert!(hint[1].starts_with(b"\0\0[[HINT]]\nscanning the whole table\n"));
    assert_eq!(answer(&[joker, b"out", b"get"]), [b"\0p2\0name\0joker\0age\x0019\0lang\0en,ja"]);
    assert_eq!(answer(&[joker, b"out", b"count"]), [b"0"]);
    assert_eq!(answer(&[b"out"]), [b""; 0]);
    assert!(table.is_empty());
}

#[test]
fn a_visitor_may_change_the_table() {
    let table = thousand(&[("number", IndexKind::Decimal)]);
    let query = Query::new().with(b"number", Operator::NumberGreaterEqual, b"500");
    table
        .for_each_result_row(&query, |key, mut row| {
            row.set(b"number", b"-1")?;
            table.put(key, &row)?;
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!(table.count(&query).unwrap(), 0);
    let moved = Query::new().with(b"number", Operator::NumberEqual, b"-1");
    assert_eq!(table.search_out(&moved, |_, _| ()).unwrap().count, 500);
    assert_eq!(table.len(), 500);
}
