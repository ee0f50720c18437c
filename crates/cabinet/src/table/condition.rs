//! Conditions of queries: a column, an operator and an operand.

use super::number::Number;
use super::tokens::{before_nul, of_numbers};

/// Test that a condition applies to a column. The numbers are Tokyo Cabinet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operator {
    /// The value equals the operand.
    StringEqual = 0,
    /// The value contains the operand.
    StringIncludes = 1,
    /// The value begins with the operand.
    StringBegins = 2,
    /// The value ends with the operand.
    StringEnds = 3,
    /// All tokens of the operand are tokens of the value.
    StringAllTokens = 4,
    /// One of the tokens of the operand is a token of the value.
    StringAnyToken = 5,
    /// The value is one of the tokens of the operand.
    StringEqualAny = 6,
    /// The value matches a POSIX extended regular expression; a leading `*` ignores case.
    StringMatches = 7,
    /// The value equals this number.
    NumberEqual = 8,
    /// The value is a number greater than this.
    NumberGreater = 9,
    /// The value is a number greater than or equal to this.
    NumberGreaterEqual = 10,
    /// The value is a number less than this.
    NumberLess = 11,
    /// The value is a number less than or equal to this.
    NumberLessEqual = 12,
    /// The value is a number from the lesser of two numbers to the greater, both included.
    NumberBetween = 13,
    /// The value is one of these numbers.
    NumberEqualAny = 14,
    /// The text contains the phrase, both normalised.
    TextPhrase = 15,
    /// The normalised text contains all tokens of the operand, which is not normalised.
    TextAll = 16,
    /// The normalised text contains one of the tokens of the operand, which is not normalised.
    TextAny = 17,
    /// The text meets an expression with `&&`, `||` and `!!`.
    TextExpression = 18,
}

/// Operators by number, each with its name and its aliases.
const OPERATORS: [(Operator, &[&str]); 19] = [
    (Operator::StringEqual, &["STREQ", "STR", "EQ"]),
    (Operator::StringIncludes, &["STRINC", "INC"]),
    (Operator::StringBegins, &["STRBW", "BW"]),
    (Operator::StringEnds, &["STREW", "EW"]),
    (Operator::StringAllTokens, &["STRAND", "AND"]),
    (Operator::StringAnyToken, &["STROR", "OR"]),
    (Operator::StringEqualAny, &["STROREQ", "OREQ"]),
    (Operator::StringMatches, &["STRRX", "RX"]),
    (Operator::NumberEqual, &["NUMEQ", "NUM", "=", "=="]),
    (Operator::NumberGreater, &["NUMGT", ">"]),
    (Operator::NumberGreaterEqual, &["NUMGE", ">="]),
    (Operator::NumberLess, &["NUMLT", "<"]),
    (Operator::NumberLessEqual, &["NUMLE", "<="]),
    (Operator::NumberBetween, &["NUMBT"]),
    (Operator::NumberEqualAny, &["NUMOREQ"]),
    (Operator::TextPhrase, &["FTSPH", "FTS"]),
    (Operator::TextAll, &["FTSAND"]),
    (Operator::TextAny, &["FTSOR"]),
    (Operator::TextExpression, &["FTSEX"]),
];

/// Maximum bytes of an operand that an error shows.
const SHOWN_BYTES_MAX: usize = 40;

/// Flags that may be added to the number of an operator.
const NEGATE: u64 = 1 << 24;
const NO_INDEX: u64 = 1 << 25;

impl Operator {
    /// Returns Tokyo Cabinet's name of the operator.
    pub fn name(self) -> &'static str {
        OPERATORS[self as usize].1[0]
    }

    /// Returns the operator with a number; `None` if there is none.
    pub fn from_number(number: u64) -> Option<Self> {
        OPERATORS.get(usize::try_from(number).ok()?).map(|(operator, _)| *operator)
    }

    fn from_name(name: &str) -> Option<Self> {
        let known = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        OPERATORS.iter().find(|(_, names)| known(names)).map(|(operator, _)| *operator)
    }
}

/// Condition that a row meets if the value of a column passes the operator's test. A row without
/// the column only meets negated conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Name of the column; empty is the primary key.
    pub column: Vec<u8>,
    /// Test that is applied to the column.
    pub operator: Operator,
    /// Operand that the column is compared with.
    pub operand: Vec<u8>,
    /// Whether the condition is negated.
    pub negate: bool,
    /// Whether the condition must not use an index.
    pub no_index: bool,
}

impl Condition {
    /// Returns a condition that may use an index.
    pub fn new(column: &[u8], operator: Operator, operand: &[u8]) -> Self {
        Self {
            column: column.to_vec(),
            operator,
            operand: operand.to_vec(),
            negate: false,
            no_index: false,
        }
    }

    /// Returns the opposite condition.
    pub fn negated(self) -> Self {
        Self { negate: !self.negate, ..self }
    }

    /// Returns the condition, without the use of indices.
    pub fn without_index(self) -> Self {
        Self { no_index: true, ..self }
    }

    /// Parses an operator: its name in either case, or its number with flags. A leading `~` or `!`
    /// negates, and then a `+` forbids the use of indices. Returns `None` if there is no such
    /// operator.
    pub fn parse(column: &[u8], operator: &[u8], operand: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(operator).ok()?;
        let stripped = text.strip_prefix(['~', '!']);
        let negate = stripped.is_some();
        let text = stripped.unwrap_or(text);
        let no_index = text.starts_with('+');
        let text = text.strip_prefix('+').unwrap_or(text);
        let (operator, flags) = match Operator::from_name(text) {
            Some(operator) => (operator, 0),
            None => {
                let number = text.parse::<u64>().ok()?;
                let flags = number & (NEGATE | NO_INDEX);
                (Operator::from_number(number - flags)?, flags)
            }
        };
        Some(Self {
            negate: negate || flags & NEGATE != 0,
            no_index: no_index || flags & NO_INDEX != 0,
            ..Self::new(column, operator, operand)
        })
    }

    /// Returns a description of an invalid operand: a pattern that does not parse, or text in place
    /// of a number. In a search, such a pattern matches nothing, and such text counts as 0.
    pub fn flaw(&self) -> Option<String> {
        use Operator as O;
        let operand = before_nul(&self.operand);
        let text = || operand[..operand.len().min(SHOWN_BYTES_MAX)].escape_ascii();
        let are_numbers = || of_numbers(operand).all(Number::is_number);
        match self.operator {
            O::StringMatches => {
                let error = crate::base::pattern::compile(operand).err()?;
                Some(format!("the pattern \"{}\" is invalid: {error}", text()))
            }
            O::NumberEqual
            | O::NumberGreater
            | O::NumberGreaterEqual
            | O::NumberLess
            | O::NumberLessEqual => {
                (!Number::is_number(operand)).then(|| format!("\"{}\" is not a number", text()))
            }
            O::NumberBetween => (of_numbers(operand).count() < 2 || !are_numbers())
                .then(|| format!("\"{}\" is not two numbers", text())),
            O::NumberEqualAny => {
                (!are_numbers()).then(|| format!("\"{}\" is not a list of numbers", text()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(operator: &str) -> Option<(Operator, bool, bool)> {
        Condition::parse(b"c", operator.as_bytes(), b"")
            .map(|condition| (condition.operator, condition.negate, condition.no_index))
    }

    #[test]
    fn operators_are_parsed_by_names_and_by_the_numbers_of_tokyo_cabinet() {
        for (number, (operator, names)) in OPERATORS.iter().enumerate() {
            assert_eq!(*operator as usize, number);
            assert_eq!(operator.name(), names[0]);
            assert_eq!(parse(&number.to_string()), Some((*operator, false, false)));
            for name in *names {
                assert_eq!(parse(&name.to_lowercase()), Some((*operator, false, false)));
            }
        }
    }

    #[test]
    fn flags_are_parsed_as_prefixes_and_in_numbers() {
        let number = Operator::NumberEqual;
        assert_eq!(parse("!NUMEQ"), Some((number, true, false)));
        assert_eq!(parse("~+numeq"), Some((number, true, true)));
        assert_eq!(parse("+=="), Some((number, false, true)));
        assert_eq!(parse("16777224"), Some((number, true, false)));
        assert_eq!(parse("50331656"), Some((number, true, true)));
        for unknown in ["", "+!NUMEQ", "BOGUS", "19", "67108864", "-1", "!!EQ", "\u{e9}"] {
            assert_eq!(parse(unknown), None, "{unknown}");
        }
    }
}
