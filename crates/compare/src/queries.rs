//! Rows and queries for the tables of cabinet and Tokyo Cabinet.

use crate::random::{Permutation, Random, mix};
use cabinet::table::{IndexKind, Operator, SortKind};

/// Words of the vocabularies of tags and of text.
const TAGS: u64 = 2000;
const WORDS: u64 = 5000;

/// Upper bound of numbers.
const NUMBERS: u64 = 1_000_000;

/// Columns with an index, and its kind.
pub const INDICES: [(&str, IndexKind); 4] = [
    ("name", IndexKind::Lexical),
    ("number", IndexKind::Decimal),
    ("tags", IndexKind::Token),
    ("text", IndexKind::Gram),
];

/// Order in which rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrival {
    /// The order of primary keys.
    Rising,
    /// Random order.
    Random,
}

/// Rows of a table.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    count: u64,
    arrival: Arrival,
}

/// A row: its primary key, and names and values of its columns.
#[derive(Clone, Debug)]
pub struct MadeRow {
    /// The primary key.
    pub primary: String,
    /// Columns.
    pub columns: [(&'static str, String); 4],
}

impl MadeRow {
    /// Returns names and values joined by NUL.
    #[must_use]
    pub fn joined(&self) -> Vec<u8> {
        let parts =
            self.columns.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        parts.collect::<Vec<_>>().join(&0)
    }
}

/// Returns a word of two to four syllables.
fn word(number: u64) -> String {
    const FIRST: &[u8] = b"bcdfghklmnprstvz";
    const SECOND: &[u8] = b"aeiou";
    let mut bits = mix(number ^ 0x5eed);
    let syllables = 2 + bits % 3;
    bits >>= 8;
    let mut word = String::new();
    for _ in 0..syllables {
        word.push(FIRST[(bits % 16) as usize].into());
        word.push(SECOND[(bits / 16 % 5) as usize].into());
        bits >>= 8;
    }
    word
}

/// Returns a number below `count`, small ones more often, like the frequencies of words.
fn skewed(random: &mut Random, count: u64) -> u64 {
    let fraction = random.fraction();
    (fraction * fraction * count as f64) as u64
}

fn words(random: &mut Random, count: u64, vocabulary: u64, seed: u64) -> String {
    let words: Vec<_> = (0..count).map(|_| word(seed + skewed(random, vocabulary))).collect();
    words.join(" ")
}

impl Rows {
    /// Describes `count` rows.
    #[must_use]
    pub fn new(count: u64, arrival: Arrival) -> Self {
        Self { count, arrival }
    }

    /// Returns all rows in the order of `arrival`.
    pub fn all(self) -> impl Iterator<Item = MadeRow> {
        let order = Permutation::new(self.count, 7);
        (0..self.count).map(move |place| match self.arrival {
            Arrival::Rising => self.row(place),
            Arrival::Random => self.row(order.at(place)),
        })
    }

    fn row(self, number: u64) -> MadeRow {
        let mut random = Random::new(number);
        let random = &mut random;
        let names = (self.count / 10).max(1);
        let columns = [
            ("name", format!("{}-{}", word(random.below(names)), random.below(10))),
            ("number", random.below(NUMBERS).to_string()),
            ("tags", words(random, 4, TAGS, 1 << 32)),
            ("text", words(random, 6, WORDS, 2 << 32)),
        ];
        MadeRow { primary: format!("row{number:09}"), columns }
    }
}

/// A query that is run with many operands.
#[derive(Clone, Debug)]
pub struct Question {
    /// Name in the tables.
    pub name: &'static str,
    /// Column and operator.
    pub condition: Option<(&'static str, Operator)>,
    /// Column and kind of the order.
    pub order: Option<(&'static str, SortKind)>,
    /// Most results.
    pub max: Option<u64>,
    /// Operands, one per run.
    pub operands: Vec<String>,
}

/// Returns the queries of a table of `rows` rows.
#[must_use]
pub fn questions(rows: u64, times: u64) -> Vec<Question> {
    let made = |seed: u64, make: &dyn Fn(&mut Random) -> String| {
        let mut random = Random::new(seed);
        (0..times).map(|_| make(&mut random)).collect::<Vec<_>>()
    };
    let some_row = |random: &mut Random| Rows::new(rows, Arrival::Rising).row(random.below(rows));
    // About 100 rows.
    let span = (NUMBERS * 100 / rows.max(1)).max(1);
    let ask = |name, column, operator, operands| Question {
        name,
        condition: Some((column, operator)),
        order: None,
        max: None,
        operands,
    };
    vec![
        ask(
            "equality",
            "name",
            Operator::StringEqual,
            made(1, &|random| some_row(random).columns[0].1.clone()),
        ),
        ask(
            "numeric range of 100",
            "number",
            Operator::NumberBetween,
            made(2, &|random| {
                let start = random.below(NUMBERS);
                format!("{start} {}", start + span)
            }),
        ),
        ask(
            "numeric range of a tenth",
            "number",
            Operator::NumberBetween,
            made(3, &|random| {
                let start = random.below(NUMBERS);
                format!("{start} {}", start + NUMBERS / 10)
            })
            .into_iter()
            .take(usize::try_from(times / 20).unwrap_or(1).max(1))
            .collect(),
        ),
        Question {
            order: Some(("number", SortKind::NumberDescending)),
            max: Some(10),
            condition: None,
            name: "ordered, 10 of all",
            operands: made(4, &|_| String::new()),
        },
        Question {
            order: Some(("number", SortKind::NumberAscending)),
            max: Some(10),
            ..ask(
                "ordered, 10 of a range",
                "number",
                Operator::NumberGreaterEqual,
                made(5, &|random| random.below(NUMBERS).to_string()),
            )
        },
        ask(
            "one token",
            "tags",
            Operator::StringAllTokens,
            made(6, &|random| word((1 << 32) + skewed(random, TAGS))),
        ),
        ask(
            "two tokens",
            "tags",
            Operator::StringAllTokens,
            made(7, &|random| {
                let row = some_row(random);
                row.columns[2].1.split(' ').take(2).collect::<Vec<_>>().join(" ")
            }),
        ),
        ask(
            "phrase of a word",
            "text",
            Operator::TextPhrase,
            made(8, &|random| word((2 << 32) + skewed(random, WORDS))),
        ),
        ask(
            "phrase of two words",
            "text",
            Operator::TextPhrase,
            made(9, &|random| {
                let row = some_row(random);
                row.columns[3].1.split(' ').take(2).collect::<Vec<_>>().join(" ")
            }),
        ),
    ]
}
