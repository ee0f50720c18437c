//! Load of `tyrant bench mailings`: which addresses get a mailing on which dates. The example
//! `cluster_beside` has the same load.

use super::scatter::scatter;

/// One of this many addresses gets a second mailing.
const SECOND_MAILINGS: u64 = 8;

/// Number of dates.
const DATES: u64 = 30;

/// A mailing to one address.
pub(super) struct Mailing {
    pub(super) address: u64,
    pub(super) date: u64,
}

impl Mailing {
    /// Returns the number of mailings to so many addresses.
    pub(super) fn count(addresses: u64) -> u64 {
        addresses + addresses / SECOND_MAILINGS
    }

    /// Returns a mailing. The first ones go to every address once, the others to some a second
    /// time.
    pub(super) fn of(number: u64, addresses: u64) -> Self {
        let address = if number < addresses { number } else { scatter(number) % addresses };
        // A different date than the first one's.
        let again = u64::from(number >= addresses) * (DATES / 2);
        Self { address, date: (address + again) % DATES }
    }

    /// Returns the line of a hash database.
    pub(super) fn line(&self) -> String {
        format!("{}\t1\n", date(self.date))
    }
}

/// Returns the address that is looked up in this turn.
pub(super) fn looked_up(turn: u64, addresses: u64) -> u64 {
    scatter(turn ^ 0x5eed) % addresses
}

/// Returns the text of an address. Texts are scattered, so that addresses are not in order.
pub(super) fn address(number: u64) -> Vec<u8> {
    format!("{:07x}.{number}@example.com", scatter(number) >> 36).into_bytes()
}

/// Returns the text of the date of the first mailing to an address.
pub(super) fn first_date(address: u64) -> String {
    date(address % DATES)
}

/// Returns the text of a date.
pub(super) fn date(number: u64) -> String {
    format!("2026-11-{:02}", number + 1)
}
