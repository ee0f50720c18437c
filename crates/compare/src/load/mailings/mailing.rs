//! Load of mailings: which addresses get one on which dates. The example `cluster_beside` in `bin`
//! has the same load.

use crate::random::mix;

/// One of this many addresses gets a second mailing.
const SECOND_MAILINGS: u64 = 8;

/// Number of dates.
const DATES: u64 = 30;

/// A mailing to one address.
pub struct Mailing {
    /// Number of the address.
    pub address: u64,
    /// Number of the date.
    pub date: u64,
}

impl Mailing {
    /// Returns the number of mailings to so many addresses.
    pub fn count(addresses: u64) -> u64 {
        addresses + addresses / SECOND_MAILINGS
    }

    /// Returns a mailing. The first ones go to every address once, the others to some a second
    /// time.
    pub fn of(number: u64, addresses: u64) -> Self {
        let address = if number < addresses { number } else { mix(number) % addresses };
        // A different date than the first one's.
        let again = u64::from(number >= addresses) * (DATES / 2);
        Self { address, date: (address + again) % DATES }
    }

    /// Returns the line of a hash database.
    pub fn line(&self) -> String {
        format!("{}\t1\n", date(self.date))
    }
}

/// Returns the address that is looked up in this turn.
pub fn looked_up(turn: u64, addresses: u64) -> u64 {
    mix(turn ^ 0x5eed) % addresses
}

/// Returns the text of an address. Texts are scattered, so that addresses are not in order.
pub fn address(number: u64) -> Vec<u8> {
    format!("{:07x}.{number}@example.com", mix(number) >> 36).into_bytes()
}

/// Returns the text of the date of the first mailing to an address.
pub fn first_date(address: u64) -> String {
    date(address % DATES)
}

/// Returns the text of a date.
pub fn date(number: u64) -> String {
    format!("2026-11-{:02}", number + 1)
}
