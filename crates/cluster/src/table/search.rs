//! Searches: the results of queries in their order, as elements of a reply, removed, or put
//! together.
//!
//! Memory is bounded: rows are read in pages, and what is sorted stays within [`SORTED_BYTES`] of
//! memory and otherwise in files without a name. The elements of a reply are limited by the
//! request.

use super::query::{Hit, Plan, Take};
use super::{NewRow, PAUSES, READS_AT_ONCE, Rows, Stop, StoredRow};
use crate::records::{Changed, now_ms};
use crate::table::tables::Tables;
use crate::version;
use cabinet::Error;
use cabinet::table::outside::{Filter, ResultSets, Sorted, Sorter};
use cabinet::table::{Query, RowView, SearchRequest, SetOperation, SortOrder};
use server::{Completion, StoreAnswer, StoreFailure};
use std::ops::ControlFlow;
use std::sync::Arc;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

/// Memory in which one search sorts, in bytes.
const SORTED_BYTES: usize = 16 << 20;

/// Rows that one search removes at the same time.
const REMOVED_AT_ONCE: usize = 16;

/// Executions of a search whose index is removed meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// Rows that were found, in the order of the search.
type FoundRows = Vec<(Vec<u8>, Option<Vec<u8>>)>;

impl Rows {
    /// Executes a search. The elements of its answer have about `bytes_max` bytes at most.
    pub(super) async fn search(
        self: &Arc<Self>,
        request: &SearchRequest,
        bytes_max: usize,
        completion: &mut Completion,
    ) -> Result<StoreAnswer, Stop> {
        if request.out
            && let Some(flaw) = &request.flaw
        {
            return Err(Error::BadSearch(flaw.clone()).into());
        }
        let mut sink = Sink::new(self, request, bytes_max, completion);
        for _ in 0..ATTEMPTS_MAX {
            let used = match self.search_once(request, &mut sink).await {
                Ok(used) => used,
                // Some rows were removed.
                Err(_) if sink.has_removed => return Err(Stop::Failed(StoreFailure::Unknown)),
                Err(stop) => return Err(stop),
            };
            let is_over = match used.is_empty() {
                true => true,
                // An index that is ready now was so all the time.
                false => {
                    let definitions = self.upkeep.fresh().await;
                    let if_removed = match sink.has_removed {
                        true => StoreFailure::Unknown,
                        false => StoreFailure::Unavailable,
                    };
                    let definitions = definitions.map_err(|_| Stop::Failed(if_removed))?;
                    used.iter().all(|index| definitions.is_ready(*index))
                }
            };
            if is_over {
                return Ok(sink.answer());
            }
            // Rows may have been missed. Those that were removed are not found again, but which of
            // the others a limit means is not known any more.
            let is_limited = |query: &Query| query.max.is_some() || query.skip > 0;
            match sink.has_removed {
                true if request.queries.last().is_some_and(is_limited) => break,
                true => sink.hint.clear(),
                false => sink.clear(),
            }
        }
        Err(Stop::Failed(match sink.has_removed {
            true => StoreFailure::Unknown,
            false => StoreFailure::Unavailable,
        }))
    }

    /// Executes a search with the indexes that are ready now. Returns those that it has used.
    async fn search_once(
        self: &Arc<Self>,
        request: &SearchRequest,
        sink: &mut Sink<'_>,
    ) -> Result<Vec<i32>, Stop> {
        let definitions = self.upkeep.fresh().await?;
        let none = Query::new();
        let (first, queries) = match &request.queries[..] {
            queries if request.out => (queries.last().unwrap_or(&none), &[][..]),
            [] => (&none, &[][..]),
            [one] => (one, &[][..]),
            [first, ..] => (first, &request.queries[..]),
        };
        let mut used = Vec::new();
        if queries.is_empty() {
            sink.filter = request.out.then(|| Arc::new(Filter::new(&first.conditions)));
            // A number has no order. With a limit, the order decides which rows are removed.
            let has_limit = first.max.is_some() || first.skip > 0;
            let is_unordered = request.count && !(request.out && has_limit);
            let query = match is_unordered {
                true => Query { order: None, ..first.clone() },
                false => first.clone(),
            };
            let plan = self.plan(&definitions, &query).await?;
            used.extend(plan.index());
            let lines = self.run(&plan, &query, query.skip, query.max, sink).await?;
            sink.hint = lines;
            return Ok(used);
        }
        let operation = request.operation;
        let folder = std::env::temp_dir();
        let mut sets = ResultSets::new(&folder, SORTED_BYTES / 2, queries.len(), operation);
        let mut hint = String::new();
        for (number, query) in queries.iter().enumerate() {
            let max = sets.max_of(query);
            let query = Query { max, skip: 0, ..query.clone() };
            let plan = self.plan(&definitions, &query).await?;
            used.extend(plan.index());
            let mut results = SetSink { sets: &mut sets, number, sink };
            let lines = self.run(&plan, &query, 0, max, &mut results).await?;
            hint.extend(lines.lines().map(|line| format!("[{number}] {line}\n")));
        }
        let combined = block_in_place(|| sets.combine(None))?;
        let order = first.order.as_ref().filter(|_| operation == SetOperation::Union);
        let combined = match order {
            None => combined,
            Some(order) => self.sorted(combined, order).await?,
        };
        deliver(combined, first.skip, first.max, sink).await?;
        sink.hint = hint;
        Ok(used)
    }

    /// Passes the results of a query to `sink` in their order. Returns the lines of the hint.
    async fn run(
        self: &Arc<Self>,
        plan: &Plan,
        query: &Query,
        skip: u64,
        max: Option<u64>,
        sink: &mut impl Results,
    ) -> Result<String, Stop> {
        let mut hint = format!("{}\n", plan.hint);
        if max == Some(0) {
            return Ok(hint + "result set size: 0\n");
        }
        let order = query.order.as_ref();
        let wanted = max.map(|max| max.saturating_add(skip));
        let needs_sorting = order.filter(|_| !plan.is_in_order || plan.index().is_some());
        let Some(order) = needs_sorting else {
            let mut direct = Direct { sink, skip, max, met: 0, passed: 0 };
            self.walk(plan, query, &mut direct).await?;
            hint += &format!("result set size: {}\n", direct.met);
            let order = if order.is_some() { "index" } else { "natural" };
            return Ok(hint + &format!("leaving the {order} order\n"));
        };
        let most = wanted.map(|wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
        let sorter = Sorter::new(&std::env::temp_dir(), SORTED_BYTES / 2, most);
        let mut sorting = Sorting { plan, order, wanted, sorter, last: None, sink };
        self.walk(plan, query, &mut sorting).await?;
        let sorter = sorting.sorter;
        hint += &format!("result set size: {}\n", sorter.count());
        hint += &match plan.is_in_order {
            true => "leaving the index order\n".to_owned(),
            false => {
                let column = String::from_utf8_lossy(&order.column);
                format!("sorting the result set: \"{column}\"\n")
            }
        };
        let sorted = block_in_place(|| sorter.finish())?;
        deliver(sorted, skip, max, sink).await?;
        Ok(hint)
    }

    /// Sorts rows again, of which only the keys are known.
    async fn sorted(self: &Arc<Self>, mut rows: Sorted, order: &SortOrder) -> Result<Sorted, Stop> {
        let mut sorter = Sorter::new(&std::env::temp_dir(), SORTED_BYTES / 4, None);
        loop {
            let keys = block_in_place(|| next_keys(&mut rows, READS_AT_ONCE))?;
            if keys.is_empty() {
                return Ok(block_in_place(|| sorter.finish())?);
            }
            let found = self.read_all(&keys).await?;
            block_in_place(|| {
                for (key, row) in keys.iter().zip(found) {
                    let row = row.and_then(|row| row.value);
                    sorter.push(&sort_key(order, key, row.as_deref()), key)?;
                }
                Ok::<_, Error>(())
            })?;
        }
    }

    /// Removes a row if it still meets the conditions. Returns it, if it was removed.
    async fn remove(&self, key: &[u8], filter: &Filter) -> Result<Option<StoredRow>, StoreFailure> {
        let until = Instant::now() + self.timeout;
        let mut pause = PAUSES.0;
        loop {
            let read = self.upkeep.tables.read(key).await;
            let Some(row) = read.map_err(|_| StoreFailure::Unavailable)? else { return Ok(None) };
            let is_meant = |value: &Vec<u8>| filter.accepts(key, RowView::new(value));
            if !row.value.as_ref().is_some_and(is_meant) {
                return Ok(None);
            }
            let removed = NewRow { version: version::next(row.version, now_ms()), value: None };
            match self.upkeep.change(until, key, Some(&row), &removed).await {
                Changed::Done => return Ok(Some(row)),
                Changed::Unknown => return Err(StoreFailure::Unknown),
                Changed::Conflict if Instant::now() + pause < until => {
                    sleep(pause).await;
                    pause = PAUSES.1.min(pause * 2);
                }
                Changed::Conflict | Changed::NotDone => return Err(StoreFailure::Unavailable),
            }
        }
    }
}

/// Returns the sort key of a row.
fn sort_key(order: &SortOrder, key: &[u8], row: Option<&[u8]>) -> Vec<u8> {
    match &order.column[..] {
        b"" => order.sort_key(Some(key)),
        column => order.sort_key(row.and_then(|row| RowView::new(row).get(column))),
    }
}

fn next_keys(rows: &mut Sorted, max: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut keys = Vec::new();
    while keys.len() < max
        && let Some((_, key)) = rows.next()?
    {
        keys.push(key.to_vec());
    }
    Ok(keys)
}

/// Passes sorted rows on, of which only the keys are known.
async fn deliver(
    mut rows: Sorted,
    skip: u64,
    max: Option<u64>,
    sink: &mut impl Results,
) -> Result<(), Stop> {
    let (mut skip, mut left) = (skip, max.unwrap_or(u64::MAX));
    loop {
        let mut keys = block_in_place(|| next_keys(&mut rows, READS_AT_ONCE))?;
        if keys.is_empty() || left == 0 {
            return Ok(());
        }
        let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(keys.len());
        keys.drain(..skipped);
        skip -= skipped as u64;
        keys.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= keys.len() as u64;
        sink.pass(keys.into_iter().map(|key| (key, None)).collect()).await?;
    }
}

/// Takes results in their order.
trait Results: Send {
    /// Fails if no one waits for the answer any more, or if there is no memory for it.
    fn check(&mut self) -> Result<(), Stop>;

    fn pass(&mut self, rows: FoundRows) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// Passes rows on as they are met.
struct Direct<'s, R> {
    sink: &'s mut R,
    skip: u64,
    max: Option<u64>,
    met: u64,
    passed: u64,
}

impl<R: Results> Take for Direct<'_, R> {
    async fn take(&mut self, hits: Vec<Hit>) -> Result<ControlFlow<()>, Stop> {
        let max = self.max.unwrap_or(u64::MAX);
        let mut rows = Vec::with_capacity(hits.len());
        for hit in hits {
            if self.passed == max {
                break;
            }
            self.met += 1;
            if self.met > self.skip {
                self.passed += 1;
                rows.push((hit.key, Some(hit.row)));
            }
        }
        self.sink.pass(rows).await?;
        Ok(if self.passed == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

/// Sorts rows. A walk in the order of the query ends once enough are met.
struct Sorting<'s, R> {
    sink: &'s mut R,
    plan: &'s Plan,
    order: &'s SortOrder,
    wanted: Option<u64>,
    sorter: Sorter,
    /// Value of the last row that was met, if it is cut.
    last: Option<Vec<u8>>,
}

impl<R: Results> Take for Sorting<'_, R> {
    async fn take(&mut self, hits: Vec<Hit>) -> Result<ControlFlow<()>, Stop> {
        self.sink.check()?;
        Ok(block_in_place(|| self.push_all(hits))?)
    }
}

impl<R> Sorting<'_, R> {
    fn push_all(&mut self, hits: Vec<Hit>) -> Result<ControlFlow<()>, Error> {
        for hit in hits {
            // Values that are cut to the same beginning are in no order among them.
            if self.is_enough() && self.last != hit.value {
                return Ok(ControlFlow::Break(()));
            }
            self.last = hit.value.clone().filter(|_| self.plan.is_cut(&hit));
            let mut key = sort_key(self.order, &hit.key, Some(&hit.row));
            if self.plan.is_descending() {
                // Rows of one value keep the order of the walk, also from page to page.
                key.extend_from_slice(&self.sorter.count().to_be_bytes());
            }
            self.sorter.push(&key, &hit.key)?;
            if self.is_enough() && self.last.is_none() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns whether further rows would come after those that are wanted.
    fn is_enough(&self) -> bool {
        self.plan.is_in_order && self.wanted.is_some_and(|wanted| self.sorter.count() >= wanted)
    }
}

/// Adds results to the sets of several queries.
struct SetSink<'s, 'r> {
    sink: &'s mut Sink<'r>,
    sets: &'s mut ResultSets,
    number: usize,
}

impl Results for SetSink<'_, '_> {
    fn check(&mut self) -> Result<(), Stop> {
        self.sink.check()
    }

    async fn pass(&mut self, rows: FoundRows) -> Result<(), Stop> {
        self.check()?;
        let push = |(key, _): &(Vec<u8>, _)| self.sets.push(self.number, key);
        Ok(block_in_place(|| rows.iter().try_for_each(push))?)
    }
}

/// Elements of the answer to a search.
struct Sink<'r> {
    completion: &'r mut Completion,
    rows: &'r Arc<Rows>,
    request: &'r SearchRequest,
    /// Conditions that rows to be removed must still meet.
    filter: Option<Arc<Filter>>,
    elements: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
    count: u64,
    has_removed: bool,
    hint: String,
}

impl<'r> Sink<'r> {
    fn new(
        rows: &'r Arc<Rows>,
        request: &'r SearchRequest,
        bytes_max: usize,
        completion: &'r mut Completion,
    ) -> Self {
        Self {
            completion,
            rows,
            request,
            filter: None,
            elements: Vec::new(),
            bytes: 0,
            bytes_max,
            count: 0,
            has_removed: false,
            hint: String::new(),
        }
    }

    /// Forgets the elements so far.
    fn clear(&mut self) {
        self.elements.clear();
        (self.bytes, self.count) = (0, 0);
        self.hint.clear();
    }

    fn push(&mut self, element: Vec<u8>) {
        self.bytes += element.len();
        if self.bytes <= self.bytes_max {
            self.elements.push(element);
        }
    }

    /// Adds the element of a row.
    fn push_row(&mut self, key: &[u8], row: &[u8]) {
        if self.request.columns.is_some() {
            self.push(self.request.row_element(key, &RowView::new(row).to_row()));
        }
    }

    fn answer(mut self) -> StoreAnswer {
        if self.request.count {
            self.push(self.count.to_string().into_bytes());
        }
        if self.request.hint {
            self.push(SearchRequest::hint_element(&self.hint));
        }
        let is_complete = self.bytes <= self.bytes_max;
        StoreAnswer::Elements { elements: self.elements, is_complete }
    }

    /// Removes rows at the same time. A failure after the first removal leaves it unknown which of
    /// them were removed.
    async fn remove(&mut self, keys: Vec<Vec<u8>>, filter: &Arc<Filter>) -> Result<(), Stop> {
        for keys in keys.chunks(REMOVED_AT_ONCE) {
            let mut removals = JoinSet::new();
            for (number, key) in keys.iter().enumerate() {
                let (rows, filter, key) = (Arc::clone(self.rows), Arc::clone(filter), key.clone());
                removals.spawn(async move { (number, rows.remove(&key, &filter).await) });
            }
            let mut removed: Vec<Option<StoredRow>> = vec![None; keys.len()];
            let mut failure = None;
            while let Some(removal) = removals.join_next().await {
                match removal {
                    Ok((number, Ok(row))) => removed[number] = row,
                    Ok((_, Err(StoreFailure::Unknown))) | Err(_) => {
                        failure = Some(StoreFailure::Unknown);
                    }
                    Ok((_, Err(other))) => failure = failure.or(Some(other)),
                }
            }
            for (key, row) in keys.iter().zip(removed) {
                let Some(value) = row.and_then(|row| row.value) else { continue };
                self.has_removed = true;
                self.count += 1;
                if !self.request.count {
                    self.push_row(key, &value);
                }
            }
            if let Some(failure) = failure {
                return Err(Stop::Failed(failure));
            }
        }
        Ok(())
    }
}

impl Results for Sink<'_> {
    fn check(&mut self) -> Result<(), Stop> {
        if self.bytes > self.bytes_max && !self.request.out {
            return Err(Stop::Full);
        }
        let memory_bytes = self.bytes.min(self.bytes_max) + size_of_val(&self.elements[..]);
        if !self.completion.is_awaited() {
            return Err(Stop::Failed(StoreFailure::Unavailable));
        }
        match self.completion.reserve(memory_bytes) {
            true => Ok(()),
            false => Err(Stop::Failed(StoreFailure::NoMemory)),
        }
    }

    async fn pass(&mut self, rows: FoundRows) -> Result<(), Stop> {
        self.check()?;
        if let Some(filter) = self.filter.clone() {
            return self.remove(rows.into_iter().map(|(key, _)| key).collect(), &filter).await;
        }
        self.count += rows.len() as u64;
        if self.request.count {
            return Ok(());
        }
        if self.request.columns.is_none() {
            rows.into_iter().for_each(|(key, _)| self.push(key));
            return Ok(());
        }
        let unread: Vec<Vec<u8>> =
            rows.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key.clone()).collect();
        let mut read = self.rows.read_all(&unread).await?.into_iter();
        for (key, row) in rows {
            let row = row.or_else(|| read.next().flatten().and_then(|row| row.value));
            // A row that was removed a moment ago is left out.
            if let Some(row) = row {
                self.push_row(&key, &row);
            }
        }
        Ok(())
    }
}

impl From<StoreFailure> for Stop {
    fn from(failure: StoreFailure) -> Self {
        Self::Failed(failure)
    }
}
