//! Queries of tables.

use crate::border::{Context, run, run_plain};
use crate::handle::cabinet_database;
use crate::row::{cabinet_row, table};
use crate::status::{
    CABINET_OK, CABINET_STOPPED, Failure, c_string, cabinet_error, cabinet_status,
};
use cabinet_rs::table::{Condition, Operator, Query, Report, SortKind};
use std::ffi::{CString, c_char, c_void};
use std::ops::ControlFlow;

/// Conditions of rows, the order of the results, and their number. One thread changes it at a
/// time; several may search by it.
pub struct cabinet_query(Query);

/// Outcome of a search: its plan and its cost. It does not change.
pub struct cabinet_query_report {
    report: Report,
    plan: CString,
}

/// The value equals the operand. The numbers of the operators are Tokyo Cabinet's.
pub const CABINET_STRING_EQUAL: i32 = 0;
/// The value contains the operand.
pub const CABINET_STRING_INCLUDES: i32 = 1;
/// The value begins with the operand.
pub const CABINET_STRING_BEGINS: i32 = 2;
/// The value ends with the operand.
pub const CABINET_STRING_ENDS: i32 = 3;
/// All tokens of the operand are tokens of the value.
pub const CABINET_STRING_ALL_TOKENS: i32 = 4;
/// One of the tokens of the operand is a token of the value.
pub const CABINET_STRING_ANY_TOKEN: i32 = 5;
/// The value is one of the tokens of the operand.
pub const CABINET_STRING_EQUAL_ANY: i32 = 6;
/// The value matches a POSIX extended regular expression; a leading `*` ignores case.
pub const CABINET_STRING_MATCHES: i32 = 7;
/// The value equals this number.
pub const CABINET_NUMBER_EQUAL: i32 = 8;
/// The value is a number greater than this.
pub const CABINET_NUMBER_GREATER: i32 = 9;
/// The value is a number greater than or equal to this.
pub const CABINET_NUMBER_GREATER_EQUAL: i32 = 10;
/// The value is a number less than this.
pub const CABINET_NUMBER_LESS: i32 = 11;
/// The value is a number less than or equal to this.
pub const CABINET_NUMBER_LESS_EQUAL: i32 = 12;
/// The value is a number from the lesser of two numbers to the greater, both included.
pub const CABINET_NUMBER_BETWEEN: i32 = 13;
/// The value is one of these numbers.
pub const CABINET_NUMBER_EQUAL_ANY: i32 = 14;
/// The text contains the phrase.
pub const CABINET_TEXT_PHRASE: i32 = 15;
/// The text contains all tokens of the operand.
pub const CABINET_TEXT_ALL: i32 = 16;
/// The text contains one of the tokens of the operand.
pub const CABINET_TEXT_ANY: i32 = 17;
/// The text meets an expression with `&&`, `||` and `!!`.
pub const CABINET_TEXT_EXPRESSION: i32 = 18;

/// The row must not meet the condition.
pub const CABINET_CONDITION_NEGATED: u32 = 1;
/// The condition uses no index.
pub const CABINET_CONDITION_WITHOUT_INDEX: u32 = 2;

/// By bytes, smallest first. The numbers of the orders are Tokyo Cabinet's.
pub const CABINET_SORT_STRING_ASCENDING: i32 = 0;
/// By bytes, greatest first.
pub const CABINET_SORT_STRING_DESCENDING: i32 = 1;
/// As numbers, smallest first.
pub const CABINET_SORT_NUMBER_ASCENDING: i32 = 2;
/// As numbers, greatest first.
pub const CABINET_SORT_NUMBER_DESCENDING: i32 = 3;

/// Creates a query for all rows, which `cabinet_query_free` frees.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_create() -> *mut cabinet_query {
    let mut query = std::ptr::null_mut();
    let place = &raw mut query;
    run_plain((), |call| {
        call.out("query", place)?.give(cabinet_query(Query::new()));
        Ok(())
    });
    query
}

/// Frees a query. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_free(query: *mut cabinet_query) {
    run_plain((), |call| {
        drop(call.take(query));
        Ok(())
    });
}

/// Adds a condition, which all results meet.
///
/// @param query The query.
/// @param column Name of the column, `column_length` bytes; none for the primary key.
/// @param condition An operator of the header: CABINET_STRING, CABINET_NUMBER or CABINET_TEXT.
/// @param operand The operand, `operand_length` bytes. A number is text.
/// @param flags CABINET_CONDITION_NEGATED, CABINET_CONDITION_WITHOUT_INDEX, both, or 0.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_INVALID, also for an operand that is no number or no pattern where
///         the operator takes one.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_add(
    query: *mut cabinet_query,
    column: *const c_void,
    column_length: usize,
    condition: i32,
    operand: *const c_void,
    operand_length: usize,
    flags: u32,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let unknown = |what: &str| Failure::invalid(format!("{what}: pass one of the header"));
        let operator = u64::try_from(condition).ok().and_then(Operator::from_number);
        let operator =
            operator.ok_or_else(|| unknown(&format!("operator {condition} is unknown")))?;
        if flags & !(CABINET_CONDITION_NEGATED | CABINET_CONDITION_WITHOUT_INDEX) != 0 {
            return Err(unknown("the flags are unknown"));
        }
        let column = call.bytes("column", column, column_length)?;
        let operand = call.bytes("operand", operand, operand_length)?;
        let condition = Condition {
            negate: flags & CABINET_CONDITION_NEGATED != 0,
            no_index: flags & CABINET_CONDITION_WITHOUT_INDEX != 0,
            ..Condition::new(column, operator, operand)
        };
        if let Some(flaw) = condition.flaw() {
            return Err(Failure::invalid(format!("{flaw}: correct the operand")));
        }
        call.exclusive("query", query)?.0.conditions.push(condition);
        Ok(CABINET_OK)
    })
}

/// Sets the order of the results. Rows without the column come last.
///
/// @param query The query.
/// @param column Name of the column, `column_length` bytes; none for the primary key.
/// @param order A CABINET_SORT.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or CABINET_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_order(
    query: *mut cabinet_query,
    column: *const c_void,
    column_length: usize,
    order: i32,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let kind = match order {
            CABINET_SORT_STRING_ASCENDING => SortKind::StringAscending,
            CABINET_SORT_STRING_DESCENDING => SortKind::StringDescending,
            CABINET_SORT_NUMBER_ASCENDING => SortKind::NumberAscending,
            CABINET_SORT_NUMBER_DESCENDING => SortKind::NumberDescending,
            other => {
                let text = format!("order {other} is unknown: pass one of the header");
                return Err(Failure::invalid(text));
            }
        };
        let column = call.bytes("column", column, column_length)?;
        let query = &mut call.exclusive("query", query)?.0;
        *query = std::mem::take(query).order_by(column, kind);
        Ok(CABINET_OK)
    })
}

/// Sets the number of results.
///
/// @param query The query.
/// @param max Maximum number of results; UINT64_MAX for all.
/// @param skip Number of first results that are left out.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or CABINET_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_limit(
    query: *mut cabinet_query,
    max: u64,
    skip: u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let query = &mut call.exclusive("query", query)?.0;
        query.max = Some(max).filter(|max| *max != u64::MAX);
        query.skip = skip;
        Ok(CABINET_OK)
    })
}

/// Function of the caller's that gets a result of a search: the context, the primary key and the
/// row, which are valid until it returns. The row is NULL if only keys were asked for. It returns
/// 0 to go on, or another number to end the search. It may read and change rows of the table.
pub type cabinet_visit_row = Option<
    extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        key_length: usize,
        row: *const cabinet_row,
    ) -> i32,
>;

/// Results without their rows, which need not be read.
pub const CABINET_SEARCH_KEYS: u32 = 1;
/// Remove each result. A row that has changed and no longer meets the conditions is kept. The
/// function gets removed rows, and cannot end the search.
pub const CABINET_SEARCH_REMOVE: u32 = 2;

/// Calls a function with the results of a query, in its order.
///
/// @param database A table (`.tct`).
/// @param query The query, which no thread changes meanwhile.
/// @param flags CABINET_SEARCH_KEYS or CABINET_SEARCH_REMOVE, or 0.
/// @param visit Called with each result; NULL to count them, or to remove them, only.
/// @param context Handed to `visit`.
/// @param report Set to a report, which `cabinet_query_report_free` frees; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_STOPPED; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_search(
    database: *mut cabinet_database,
    query: *const cabinet_query,
    flags: u32,
    visit: cabinet_visit_row,
    context: *mut c_void,
    report: *mut *mut cabinet_query_report,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let query = &call.handle("query", query)?.0;
        let handle = call.handle("database", database)?;
        let database = handle.open()?;
        let table = table(&database)?;
        let context = Context(context);
        let mut status = CABINET_OK;
        let mut show = |key: &[u8], row: Option<&cabinet_row>| {
            let row = row.map_or(std::ptr::null(), std::ptr::from_ref);
            let is_ended = visit
                .is_some_and(|visit| visit(context.0, key.as_ptr().cast(), key.len(), row) != 0);
            if is_ended {
                status = CABINET_STOPPED;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let reported = handle.visiting(|| match flags {
            0 if visit.is_some() => {
                table.for_each_result_row(query, |key, row| Ok(show(key, Some(&cabinet_row(row)))))
            }
            0 | CABINET_SEARCH_KEYS => table.for_each_result(query, |key| Ok(show(key, None))),
            CABINET_SEARCH_REMOVE => table.search_out(query, |key, row| {
                let _ = show(key, Some(&cabinet_row(row)));
            }),
            _ => Err(cabinet_rs::Error::InvalidArgument(
                "the flags are unknown, or exclude each other: pass one of the header".into(),
            )),
        })?;
        if flags == CABINET_SEARCH_REMOVE {
            status = CABINET_OK;
            database.acknowledge()?;
        }
        if !report.is_null() {
            let plan = c_string(&reported.hint);
            call.out("report", report)?.give(cabinet_query_report { report: reported, plan });
        }
        Ok(status)
    })
}

/// Returns the number of results of a query.
///
/// @param database A table.
/// @param query The query, which no thread changes meanwhile.
/// @param count Set to the number.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_search_count(
    database: *mut cabinet_database,
    query: *const cabinet_query,
    count: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("count", count)?;
        let query = &call.handle("query", query)?.0;
        let database = call.handle("database", database)?.open()?;
        out.set(table(&database)?.count(query)?);
        Ok(CABINET_OK)
    })
}

/// Frees a report. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_report_free(report: *mut cabinet_query_report) {
    run_plain((), |call| {
        drop(call.take(report));
        Ok(())
    });
}

/// Returns the steps of the search, one line each: which index was used, and how rows were sorted.
/// The text ends with a NUL and belongs to the report. Empty for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_report_plan(report: *const cabinet_query_report) -> *const c_char {
    run_plain(c"".as_ptr(), |call| Ok(call.handle("report", report)?.plan.as_ptr()))
}

/// Returns the number of results, or of removed rows; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_report_count(report: *const cabinet_query_report) -> u64 {
    run_plain(0, |call| Ok(call.handle("report", report)?.report.count))
}

/// Returns the number of rows that were read for tests or sorting; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_report_rows_read(report: *const cabinet_query_report) -> u64 {
    run_plain(0, |call| Ok(call.handle("report", report)?.report.rows_read))
}

/// Returns the number of entries of indices that led to a row; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_query_report_entries_read(report: *const cabinet_query_report) -> u64 {
    run_plain(0, |call| Ok(call.handle("report", report)?.report.postings_read))
}
