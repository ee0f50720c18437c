"""Rows from CSV, pandas and pyarrow into tables, and results of queries into frames.

pandas and pyarrow are imported where a result of theirs is asked for. Their frames are known by
their methods, so that storing one imports nothing.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from ._table import Query, Table

#: Rows that are stored together, and those of a frame that are converted at a time.
PORTION = 500

#: Where a row comes from, in words, and the row.
_Placed = tuple[str, dict[Any, Any]]

#: The same, with the primary key of the row between them.
_Record = tuple[str, Any, dict[Any, Any]]


def put(table: Table, rows: Iterator[_Placed], key: Any, new_keys: bool) -> int:
    """Stores rows under the values of their column `key`, or under new ids. Returns their number.

    An error names the row; those before it are stored.
    """
    records = (_record(table, placed, key, new_keys) for placed in rows)
    number = 0
    for portion in _portions(records):
        _put_portion(table, portion)
        number += len(portion)
    return number


def _portions(records: Iterator[_Record]) -> Iterator[list[_Record]]:
    """Returns the records in portions. An error comes after those before it."""
    portion: list[_Record] = []
    try:
        for record in records:
            portion.append(record)
            if len(portion) == PORTION:
                yield portion
                portion = []
    except ValueError:
        yield portion
        raise
    yield portion


def _record(table: Table, placed: _Placed, key: Any, new_keys: bool) -> _Record:
    place, row = placed
    if new_keys:
        return place, str(table.new_id()), row
    row = dict(row)
    primary = row.pop(key, None)
    if primary is None or primary == "":
        raise ValueError(
            f"{place} has no value in the column {key!r}, which is its primary key: name another "
            "one by key=, or pass new_keys=True for new ids"
        )
    return place, primary if isinstance(primary, bytes) else str(primary), row


def _put_portion(table: Table, portion: list[_Record]) -> None:
    try:
        table.put_many((key, row) for _, key, row in portion)
    except (TypeError, ValueError):
        # One of them is wrong, or they are too long together.
        for place, key, row in portion:
            try:
                table[key] = row
            except (TypeError, ValueError) as error:
                raise ValueError(f"{place}: {error} (the rows before it are stored)") from error


def rows_of(source: Any) -> Iterator[_Placed]:
    """Returns the rows of a frame of pandas, polars or pyarrow, or of an iterable of dicts."""
    return ((f"row {number}", row) for number, row in enumerate(_dicts(source)))


def _dicts(source: Any) -> Iterable[dict[Any, Any]]:
    if hasattr(source, "to_batches"):
        batches = source.to_batches(max_chunksize=PORTION)
        return (row for batch in batches for row in batch.to_pylist())
    if hasattr(source, "to_pylist"):
        return source.to_pylist()  # type: ignore[no-any-return]
    if hasattr(source, "iter_rows"):
        return source.iter_rows(named=True)  # type: ignore[no-any-return]
    if hasattr(source, "iloc"):
        return _rows_of_pandas(source)
    if isinstance(source, (str, bytes, os.PathLike, dict)):
        raise TypeError(
            f"{type(source).__name__} is not rows: give dicts or a frame, and a file to put_csv"
        )
    return source  # type: ignore[no-any-return]


def _rows_of_pandas(frame: Any) -> Iterator[dict[Any, Any]]:
    if frame.index.name is not None:
        frame = frame.reset_index()
    for start in range(0, len(frame), PORTION):
        portion = frame.iloc[start : start + PORTION]
        # Values of Python, and None for all that stands for a missing one.
        yield from portion.astype(object).where(portion.notna(), None).to_dict("records")


def rows_of_csv(file: Union[str, os.PathLike[str], IO[str]], **form: Any) -> Iterator[_Placed]:
    """Returns the rows of a CSV file whose first line names the columns.

    An empty field is a column that the row does not have.
    """
    opened: Any = nullcontext(file)
    if isinstance(file, (str, os.PathLike)):
        opened = open(file, encoding="utf-8-sig", newline="")
    with opened as lines:
        reader = csv.reader(lines, strict=True, **form)
        try:
            names = next(reader, [])
            if len(set(names)) != len(names) or "" in names:
                raise ValueError(f"the header {names!r} has a name twice, or an empty one")
            for fields in reader:
                place = f"line {reader.line_num}"
                if len(fields) != len(names):
                    if not fields:
                        continue
                    raise ValueError(
                        f"{place} has {len(fields)} fields, and the header has {len(names)}"
                    )
                yield place, {name: field for name, field in zip(names, fields) if field}
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num}: {error}") from error


def _columns(query: Query, key: str) -> tuple[list[Any], dict[Any, list[Any]]]:
    """Returns the primary keys of the results, and the values of each column, `None` for none."""
    keys: list[Any] = []
    columns: dict[Any, list[Any]] = {}
    for number, (primary, row) in enumerate(query):
        keys.append(primary)
        for name, value in row.items():
            columns.setdefault(name, [None] * number).append(value)
        for values in columns.values():
            if len(values) == number:
                values.append(None)
    if key in columns or key.encode() in columns:
        raise ValueError(f"the rows have a column {key!r}: name that of the keys otherwise by key=")
    return keys, columns


def to_pandas(query: Query, key: str) -> Any:
    pandas = import_module("pandas")
    keys, columns = _columns(query, key)
    return pandas.DataFrame(columns, index=pandas.Index(keys, name=key))


def to_arrow(query: Query, key: str) -> Any:
    pyarrow = import_module("pyarrow")
    keys, columns = _columns(query, key)
    # It takes names that are not UTF-8, and fails only when they are read.
    texts = {name.decode() if isinstance(name, bytes) else name: columns[name] for name in columns}
    return pyarrow.table({key: keys, **texts})
