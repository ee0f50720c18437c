//! Pages of a scan of a table, range of tokens by range of tokens. A range in which nodes end a
//! read is halved, see [`TokenRanges`].

use crate::session::{Cluster, Failure, PageFailure};
use crate::token_ranges::TokenRanges;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::prepared::PreparedStatement;

/// Next page of a scan.
#[derive(Debug)]
pub(crate) enum TokenPage {
    /// Rows, or none. Those of the last token that was reached may come again.
    Rows(Box<QueryResult>),
    /// Nodes have ended the read. The next one is of a narrower range.
    Narrower,
    /// There are no more rows.
    End,
}

/// Pages from a token on.
#[derive(Debug)]
pub(crate) struct TokenPages {
    ranges: TokenRanges,
    /// Place in the present range.
    state: PagingState,
    /// Token of the last row that was read.
    reached: Option<i64>,
    has_ended: bool,
}

impl TokenPages {
    /// Begins at a token, or at the first one.
    pub(crate) fn from(token: Option<i64>) -> Self {
        Self {
            ranges: TokenRanges::from(token),
            state: PagingState::start(),
            reached: token,
            has_ended: false,
        }
    }

    /// Reads a page by a statement whose values are the first and the last token. After a failure
    /// it may be read again.
    pub(crate) async fn next(
        &mut self,
        cluster: &Cluster,
        statement: &PreparedStatement,
    ) -> Result<TokenPage, Failure> {
        if self.has_ended {
            return Ok(TokenPage::End);
        }
        let values = self.ranges.present();
        match cluster.try_page(statement, values, self.state.clone()).await {
            Ok((page, next)) => {
                self.go_on(next);
                Ok(TokenPage::Rows(Box::new(page)))
            }
            Err(failed) => self.narrow(failed).map(|()| TokenPage::Narrower),
        }
    }

    /// Notes the token of the last row of a page. A narrower range begins with it.
    pub(crate) fn reach(&mut self, token: i64) {
        self.reached = Some(token);
    }

    fn go_on(&mut self, next: PagingStateResponse) {
        self.state = match next {
            PagingStateResponse::HasMorePages { state } => state,
            PagingStateResponse::NoMorePages => {
                self.has_ended = !self.ranges.advance();
                PagingState::start()
            }
        };
    }

    /// Halves the range if the nodes have ended a read. Fails if that is not possible.
    fn narrow(&mut self, failed: PageFailure) -> Result<(), Failure> {
        let PageFailure { failure, is_ended_read } = failed;
        if !is_ended_read {
            return Err(failure);
        }
        // A place in the range is none in another one.
        self.state = PagingState::start();
        let (from, _) = self.ranges.present();
        let at = self.reached.map_or(from, |token| from.max(token));
        if self.ranges.halve(at) { Ok(()) } else { Err(failure) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: PageFailure = PageFailure { failure: Failure::GivenUp, is_ended_read: true };

    fn is_at_start(state: &PagingState) -> bool {
        state.as_bytes_slice().is_none()
    }

    #[test]
    fn a_range_in_which_nodes_end_a_read_is_halved_from_the_last_row_on() {
        let mut pages = TokenPages::from(Some(-100));
        let state = PagingState::new_from_raw_bytes(&b"place"[..]);
        pages.go_on(PagingStateResponse::HasMorePages { state });
        assert!(!is_at_start(&pages.state));
        pages.reach(50);
        let (_, last) = pages.ranges.present();
        pages.narrow(ENDED).unwrap();
        let (from, narrower) = pages.ranges.present();
        assert_eq!(from, 50);
        assert!(narrower < last && is_at_start(&pages.state));
        // All ranges together have all tokens.
        while !pages.has_ended {
            let (_, last) = pages.ranges.present();
            pages.go_on(PagingStateResponse::NoMorePages);
            let (from, _) = pages.ranges.present();
            assert!(pages.has_ended || from == last + 1);
        }
        assert_eq!(pages.ranges.present().1, i64::MAX);
    }

    #[test]
    fn other_failures_change_nothing_and_a_range_is_not_halved_without_end() {
        let mut pages = TokenPages::from(None);
        let range = pages.ranges.present();
        let away = PageFailure { failure: Failure::Lost, is_ended_read: false };
        assert_eq!(pages.narrow(away), Err(Failure::Lost));
        assert_eq!(pages.ranges.present(), range);
        let halved = (0..100).take_while(|_| pages.narrow(ENDED).is_ok()).count();
        assert!((30..50).contains(&halved), "{halved}");
    }
}
