"""Tables: rows as dicts, and queries that are built from conditions on columns."""

from __future__ import annotations

import copy
import datetime
import numbers
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import IO, Any, NamedTuple, Optional, Union

from . import _frames
from ._codecs import Codec
from ._database import Database

#: Rows that an iteration over results reads at a time.
_ROWS = 256

_Condition = tuple[bytes, str, bytes]

#: Bytes that separate the tokens of an operand.
_SEPARATOR = re.compile(rb"[\x00-\x20,]")

#: Digits before the point that count in comparisons of numbers.
_DIGITS_MAX = 38


def _number_text(value: Union[int, float, numbers.Real]) -> str:
    """Returns a number without an exponent, which queries do not read."""
    if isinstance(value, (int, numbers.Integral)):
        return str(int(value))
    text = repr(float(value))
    return format(Decimal(text), "f") if "e" in text else text


def _bytes_of(value: Any, what: str) -> bytes:
    if isinstance(value, str):
        data = value.encode()
    elif isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif isinstance(value, (int, float, numbers.Real)):
        data = _number_text(value).encode()
    elif isinstance(value, Decimal):
        data = format(value, "f").encode()
    elif isinstance(value, (datetime.date, datetime.time)):
        data = value.isoformat().encode()
    else:
        raise TypeError(
            f"{what} is str, bytes, a number, a date or a time, not {type(value).__name__}"
        )
    if b"\0" in data:
        raise ValueError(f"{what} has a NUL, which separates columns: encode it, such as in base64")
    return data


def _dumps(row: Any) -> bytes:
    parts = []
    for name, value in row.items():
        if value is not None:
            parts.append(_bytes_of(name, "the name of a column"))
            parts.append(_bytes_of(value, "the value of a column"))
    return b"\0".join(parts)


def _loads_text(data: bytes) -> dict[str, str]:
    parts = data.decode().split("\0")
    return dict(zip(parts[::2], parts[1::2]))


def _loads_bytes(data: bytes) -> dict[bytes, bytes]:
    parts = data.split(b"\0")
    return dict(zip(parts[::2], parts[1::2]))


_CODECS = {"str": Codec(_dumps, _loads_text), "raw": Codec(_dumps, _loads_bytes)}


class Condition:
    """A condition of rows. `&` joins conditions, and `~` negates a single one."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[_Condition]) -> None:
        self.parts = tuple(parts)

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.parts + other.parts)

    def __or__(self, other: Any) -> Any:
        raise TypeError("conditions are joined by &: make two queries, and join them by |")

    def __invert__(self) -> Condition:
        if len(self.parts) != 1:
            raise TypeError("only a single condition is negated: negate each, or subtract a query")
        column, operator, operand = self.parts[0]
        is_negated = operator.startswith("!")
        return Condition([(column, operator[1:] if is_negated else "!" + operator, operand)])

    def __bool__(self) -> bool:
        raise TypeError("a condition is neither true nor false: join conditions by &, not by `and`")

    def without_index(self) -> Condition:
        """Returns the condition, which then reads rows and no index."""
        return Condition(
            [
                (column, "!+" + operator[1:] if operator[0] == "!" else "+" + operator, operand)
                for column, operator, operand in self.parts
            ]
        )

    def __repr__(self) -> str:
        parts = (
            f"{column.decode(errors='replace') or '(key)'} {operator} {operand!r}"
            for column, operator, operand in self.parts
        )
        return f"<{' and '.join(parts)}>"


def _are_numbers(values: Sequence[Any]) -> bool:
    """Returns whether all values are numbers. Fails with TypeError if only some are."""
    numbers = sum(isinstance(value, (int, float)) for value in values)
    if 0 < numbers < len(values):
        raise TypeError(f"{list(values)!r}: give numbers, which are compared as such, or texts")
    return numbers > 0


def _tokens(values: Iterable[Any]) -> bytes:
    """Returns values as an operand of tokens, which white space and commas separate."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{values!r} is one text: give a list of texts")
    tokens = [_bytes_of(value, "an operand") for value in values]
    for token in tokens:
        if not token or _SEPARATOR.search(token):
            raise ValueError(
                f"{token.decode(errors='replace')!r} is not one token, as white space and commas "
                "separate tokens: compare the column by ==, and join queries by |"
            )
    return b",".join(tokens)


def _checked(number: Any) -> Union[int, float]:
    """Returns a number that columns are compared with."""
    if not isinstance(number, (int, float)):
        raise TypeError(f"columns are compared with numbers, not {type(number).__name__}")
    if number != number:
        raise ValueError(f"{number}: no number equals it, and none is greater or less")
    if abs(number) >= 10**_DIGITS_MAX and abs(number) != float("inf"):
        raise ValueError(f"{number}: numbers are compared by {_DIGITS_MAX} digits at most")
    return number


class Column:
    """A column by its name, from which conditions are made; the empty name is the primary key."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: Union[str, bytes]) -> None:
        self.name = _bytes_of(name, "the name of a column")

    def _condition(self, operator: str, operand: Any) -> Condition:
        return Condition([(self.name, operator, _bytes_of(operand, "an operand"))])

    def _number(self, operator: str, operand: Any) -> Condition:
        return self._condition(operator, _checked(operand))

    def __eq__(self, other: Any) -> Condition:  # type: ignore[override]
        if isinstance(other, (int, float)):
            return self._number("NUMEQ", other)
        return self._condition("STREQ", other)

    def __ne__(self, other: Any) -> Condition:  # type: ignore[override]
        if isinstance(other, (int, float)):
            return self._number("!NUMEQ", other)
        return self._condition("!STREQ", other)

    def __gt__(self, number: float) -> Condition:
        return self._number("NUMGT", number)

    def __ge__(self, number: float) -> Condition:
        return self._number("NUMGE", number)

    def __lt__(self, number: float) -> Condition:
        return self._number("NUMLT", number)

    def __le__(self, number: float) -> Condition:
        return self._number("NUMLE", number)

    def between(self, least: float, greatest: float) -> Condition:
        """The value is a number between two, both included."""
        return self._condition("NUMBT", _tokens([_checked(least), _checked(greatest)]))

    def is_in(self, values: Iterable[Any]) -> Condition:
        """The value is one of these texts without white space and commas, or of these numbers."""
        values = values if isinstance(values, (str, bytes)) else list(values)
        if _are_numbers(values):
            return self._condition("NUMOREQ", _tokens(map(_checked, values)))
        return self._condition("STROREQ", _tokens(values))

    def contains(self, text: Any) -> Condition:
        """The value contains a text."""
        return self._condition("STRINC", text)

    def startswith(self, text: Any) -> Condition:
        """The value begins with a text."""
        return self._condition("STRBW", text)

    def endswith(self, text: Any) -> Condition:
        """The value ends with a text."""
        return self._condition("STREW", text)

    def matches(self, pattern: str) -> Condition:
        """The value matches a POSIX extended regular expression; a leading `*` ignores case."""
        return self._condition("STRRX", pattern)

    def has_all(self, tokens: Iterable[Any]) -> Condition:
        """All of these are tokens of the value, which spaces or commas separate."""
        return self._condition("STRAND", _tokens(tokens))

    def has_any(self, tokens: Iterable[Any]) -> Condition:
        """One of these is a token of the value, which spaces or commas separate."""
        return self._condition("STROR", _tokens(tokens))

    def text(self, expression: str) -> Condition:
        """The text meets an expression of phrases with `&&`, `||` and `!!`; case and accents do
        not count."""
        return self._condition("FTSEX", expression)


def column(name: Union[str, bytes]) -> Column:
    """Returns a column, from which conditions are made, such as `column("age") >= 18`."""
    return Column(name)


#: The primary key, as a column.
KEY = Column("")


def _check_limit(maximum: Optional[int], skip: int) -> None:
    for name, number in (("the limit", maximum), ("skip", skip)):
        if number is not None and (type(number) is bool or not isinstance(number, int)):
            raise TypeError(f"{name} is {number!r}: give an int")
        if number is not None and number < 0:
            raise ValueError(f"{name} is {number}: give 0 or more")


class Plan(NamedTuple):
    """How a query was executed."""

    #: Number of results.
    results: int
    #: Steps of the search, one line each: indices that were used, rows that were sorted.
    steps: str
    #: Rows that were read to test or to sort them.
    rows_read: int
    #: Entries of indices that led to a row.
    postings_read: int

    def __str__(self) -> str:
        read = f"{self.rows_read} rows and {self.postings_read} entries of indices read"
        return f"{self.steps}{self.results} results, {read}"


class Query:
    """A query of a table. It is executed again whenever its results are asked for.

    Iterating over it gives pairs of primary keys and rows. `|`, `&` and `-` combine the results of
    queries, in the order of the first one. The combination is limited, not a part of it.
    """

    def __init__(
        self,
        table: Table,
        parts: Sequence[_Condition] = (),
        order: Optional[tuple[bytes, str]] = None,
        maximum: Optional[int] = None,
        skipped: int = 0,
    ) -> None:
        self._table = table
        self._given = (list(parts), order, maximum, skipped)

    def _queries(self) -> tuple[list[Any], str]:
        return self._all_parts()

    def _all_parts(self) -> tuple[list[Any], str]:
        return [self._given], "union"

    def where(self, *conditions: Condition) -> Query:
        """Adds conditions, all of which must hold."""
        parts, order, maximum, skipped = self._given
        added = [part for condition in conditions for part in condition.parts]
        return Query(self._table, parts + added, order, maximum, skipped)

    def order_by(
        self, name: Union[str, bytes, Column], *, descending: bool = False, numeric: bool = False
    ) -> Query:
        """Orders the results by a column, as text or as numbers. Rows without it come last."""
        name = name.name if isinstance(name, Column) else _bytes_of(name, "the name of a column")
        kind = ("NUM" if numeric else "STR") + ("DESC" if descending else "ASC")
        parts, _, maximum, skipped = self._given
        return Query(self._table, parts, (name, kind), maximum, skipped)

    def limit(self, maximum: Optional[int], *, skip: int = 0) -> Query:
        """Limits the number of results, after the first ones are skipped."""
        _check_limit(maximum, skip)
        parts, order, *_ = self._given
        return Query(self._table, parts, order, maximum, skip)

    def keys(self) -> list[Any]:
        """Returns the primary keys of the results."""
        return self._table._search(*self._queries())[0]

    def rows(self) -> Iterator[dict[Any, Any]]:
        """Returns an iterator over the rows of the results."""
        return (row for _, row in self)

    def __iter__(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        keys = self.keys()
        for start in range(0, len(keys), _ROWS):
            portion = keys[start : start + _ROWS]
            for key, row in zip(portion, self._table.get_many(portion)):
                # A row may have been removed since.
                if row is not None:
                    yield key, row

    def first(self) -> Optional[tuple[Any, dict[Any, Any]]]:
        """Returns the first key and row; `None` if there is none."""
        return next(iter(self), None)

    def count(self) -> int:
        """Returns the number of results."""
        return self._table._count(*self._queries())[0]

    def explain(self) -> Plan:
        """Executes the query without returning its results, and returns how that was done."""
        return Plan(*self._table._count(*self._queries()))

    def to_pandas(self, *, key: str = "key") -> Any:
        """Returns the results as a `pandas.DataFrame` of texts, whose index `key` has the primary
        keys. A column that a row does not have is missing there."""
        return _frames.to_pandas(self, key)

    def to_arrow(self, *, key: str = "key") -> Any:
        """Returns the results as a `pyarrow.Table` of texts, with the primary keys in the column
        `key`. A column that a row does not have is null there."""
        return _frames.to_arrow(self, key)

    def remove(self) -> int:
        """Removes the rows of the results. Returns their number."""
        return self._table._search_out(self._given)[0]

    def __or__(self, other: Query) -> Query:
        return _Combined(self, other, "union")

    def __and__(self, other: Query) -> Query:
        return _Combined(self, other, "intersection")

    def __sub__(self, other: Query) -> Query:
        return _Combined(self, other, "difference")


class _Combined(Query):
    """Results of several queries, combined by one operation."""

    def __init__(self, first: Query, second: Query, operation: str) -> None:
        super().__init__(first._table)
        queries, own = first._all_parts()
        if len(queries) > 1 and own != operation:
            raise TypeError("queries are combined by one operation: |, & or -")
        others, own = second._all_parts()
        if len(others) > 1 and (own != operation or operation == "difference"):
            raise TypeError("queries are combined by one operation: |, & or -")
        for _, order, maximum, skipped in others:
            if order is not None:
                raise TypeError("results are in the order of the first query: order that alone")
            self._check_unlimited(maximum, skipped)
        self._check_unlimited(*queries[0][2:])
        self._parts = queries + others
        self._operation = operation
        self._limits: tuple[Optional[int], int] = None, 0

    @staticmethod
    def _check_unlimited(maximum: Optional[int], skipped: int) -> None:
        if maximum is not None or skipped:
            raise TypeError(
                "a query with a limit is not combined: limit the combination, as in "
                "(first | second).limit(10)"
            )

    def _all_parts(self) -> tuple[list[Any], str]:
        self._check_unlimited(*self._limits)
        return self._parts, self._operation

    def _queries(self) -> tuple[list[Any], str]:
        # The library has an intersection in the order of the last query.
        is_reversed = self._operation == "intersection"
        parts = self._parts[::-1] if is_reversed else self._parts
        conditions, order, _, _ = parts[0]
        return [(conditions, order, *self._limits), *parts[1:]], self._operation

    def where(self, *conditions: Condition) -> Query:
        raise TypeError("conditions are added to a query before it is combined")

    def order_by(self, name: Any, *, descending: bool = False, numeric: bool = False) -> Query:
        raise TypeError("the first query is ordered before it is combined")

    def limit(self, maximum: Optional[int], *, skip: int = 0) -> Query:
        _check_limit(maximum, skip)
        limited = copy.copy(self)
        limited._limits = maximum, skip
        return limited

    def remove(self) -> int:
        raise TypeError("rows are removed by a single query")


class Table(Database):
    """A table: a mapping of primary keys to rows, which are dicts of columns.

    Values are `str`; numbers, dates and times are stored as text. A column of which the value is
    `None` is left out.
    """

    def __new__(
        cls, name: Any, *, codec: Any = "str", keys: str = "str", **options: Any
    ) -> Table:
        if codec not in _CODECS:
            raise ValueError(f'codec={codec!r}: that of a table is "str" or "raw"')
        return super().__new__(
            cls, name, codec=_CODECS[codec], keys=keys, kind="table", **options
        )

    def query(self, *conditions: Condition) -> Query:
        """Returns a query of the rows that meet all conditions."""
        return Query(self).where(*conditions)

    def new_id(self) -> int:
        """Returns a number that the table has not returned before, for a primary key."""
        return self._new_id()

    def insert(self, row: Any) -> str:
        """Stores a row under a new primary key, and returns that."""
        key = str(self.new_id())
        self[key] = row
        return key

    def put_rows(self, rows: Any, *, key: Any = "key", new_keys: bool = False) -> int:
        """Stores rows: a `DataFrame` of pandas or polars, a table of pyarrow, or dicts.

        The column `key` (or the named index of pandas) has the primary keys; with `new_keys` they
        are new ids. What is missing in a frame is a column that the row does not have. Returns the
        number of rows. They are stored in portions, and an error names the row: those before it
        are stored.
        """
        return _frames.put(self, _frames.rows_of(rows), key, new_keys)

    def put_csv(
        self,
        file: Union[str, os.PathLike[str], IO[str]],
        *,
        key: str = "key",
        new_keys: bool = False,
        **form: Any,
    ) -> int:
        """Stores the rows of a CSV file (a path, or an open text file), as `put_rows` does.

        The first line names the columns. An empty field is a column that the row does not have.
        `form` goes to `csv.reader`, as `delimiter=";"` does.
        """
        return _frames.put(self, _frames.rows_of_csv(file, **form), key, new_keys)

    def set_index(self, name: Union[str, bytes], kind: str) -> None:
        """Builds an index of a column: "lex" by text, "dec" by number, "tok" by token, "qgr" for
        full text."""
        self._set_index(name, kind)

    def remove_index(self, name: Union[str, bytes]) -> None:
        """Removes the index of a column."""
        self._set_index(name, "void")

    @property
    def indices(self) -> dict[str, str]:
        """Types of the indices by column."""
        return {name.decode(errors="replace"): kind for name, kind in self._indices().items()}
