"""Databases, transactions and batches: the classes of the extension, and the methods in Python."""

from __future__ import annotations

import atexit
import os
import random
import struct
import time
import weakref
from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from itertools import chain
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar

from . import _cabinet
from ._errors import ConflictError, MissingKeyError, NotANumberError

_T = TypeVar("_T")

#: Times that `Database.transact` tries again after a conflict.
TRIES = 100

#: Longest pause between two tries, in seconds.
_PAUSE_MAX = 0.05


class _Values(ValuesView):  # type: ignore[type-arg]
    """Values of a mapping, read without their keys."""

    _mapping: Any

    def __iter__(self) -> Iterator[Any]:
        return self._mapping.iter_values()  # type: ignore[no-any-return]

    def __contains__(self, value: object) -> bool:
        return any(other is value or other == value for other in self)


class _Items(ItemsView):  # type: ignore[type-arg]
    """Pairs of keys and values of a mapping, read together."""

    _mapping: Any

    def __iter__(self) -> Iterator[Any]:
        return self._mapping.iter_items()  # type: ignore[no-any-return]


class _Records(_cabinet.Store, MutableMapping):  # type: ignore[type-arg]
    """The face that databases and transactions have in common."""

    def keys(self) -> KeysView[Any]:
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:
        return _Items(self)

    def popitem(self) -> Any:
        """Removes some record, and returns its key and value."""
        for key in self:
            try:
                return key, self.pop(key)
            except MissingKeyError:
                # Another thread has removed it.
                continue
        raise MissingKeyError("the database is empty")

    def update(self, other: Any = (), /, **records: Any) -> None:
        """Stores several records, all together or none of them."""
        if records:
            pairs = [(key, other[key]) for key in other.keys()] if hasattr(other, "keys") else other
            other = chain(pairs, records.items())
        self.put_many(other)

    def modify(
        self,
        key: Any,
        function: Callable[[Any], Any],
        default: Any = None,
        *,
        ttl: Optional[float] = None,
    ) -> Any:
        """Replaces the value of a key by the result of `function`, and returns that.

        `function` gets the value, or `default` if there is none. It is called again if another
        writer has changed the record meanwhile, and may use the database.
        """
        while True:
            found = self.get_with_meta(key)
            value, meta = (default, None) if found is None else found
            value = function(value)
            expires_at = meta.expires_at if meta is not None and ttl is None else None
            version, flags = (0, 0) if meta is None else (meta.version, meta.flags)
            if self.put_if_version(
                key, version, value, ttl=ttl, expires_at=expires_at, flags=flags
            ):
                return value

    def get_int(self, key: Any, default: Any = None) -> Any:
        """Returns a counter of `add_int`, or `default`."""
        data = self._counter(key, (4, 8))
        return default if data is None else int.from_bytes(data, "little", signed=True)

    def get_float(self, key: Any, default: Any = None) -> Any:
        """Returns a number of `add_float`, or `default`."""
        data = self._counter(key, (8,))
        return default if data is None else struct.unpack("<d", data)[0]

    def _counter(self, key: Any, sizes: tuple[int, ...]) -> Optional[bytes]:
        """Returns the bytes of a counter, which has one of these sizes."""
        buffer = bytearray(8)
        size = self.size(key)
        if size in sizes:
            size = self.get_into(key, buffer)
        if size is None:
            return None
        if size not in sizes:
            raise NotANumberError(
                f"the record {key!r} has {size} bytes, and such a counter has "
                f"{' or '.join(map(str, sizes))}: read it by get"
            )
        return bytes(buffer[:size])

    def batch(self) -> Batch:
        """Returns a batch, whose changes are applied together at the end of a `with`."""
        return Batch(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.path!r}"
        return f"<cabinet.{type(self).__name__} {state}>"


class Database(_Records):
    """An open database: a mapping of keys (bytes or str) to values, see `cabinet.open`.

    All methods may be called from any number of threads at once.
    """

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def transaction(self) -> Transaction:
        """Begins a transaction, which is committed at the end of a `with`.

        It is rolled back if an exception leaves the `with`. The commit fails with
        `ConflictError`, and writes nothing, if another writer has changed a record that the
        transaction has read.
        """
        return Transaction(self)

    def transact(self, function: Callable[[Transaction], _T], *, tries: int = TRIES) -> _T:
        """Calls `function` with a transaction, commits it, and returns the result.

        After a conflict with another writer it does so again, at most `tries` times.
        """
        for number in range(tries):
            try:
                with self.transaction() as transaction:
                    return function(transaction)
            except ConflictError:
                if number + 1 == tries:
                    raise
            time.sleep(random.uniform(0, min(_PAUSE_MAX, 0.0001 * 2 ** min(number, 20))))
        raise ValueError(f"tries={tries}: it is at least 1")


class Transaction(_Records):
    """Changes that become visible to others all at once, on `commit`.

    All operations on records work within it, and see its own changes. Iterations see the
    database without them.
    """

    #: Whether its owner has ended it, and not the end of its database.
    _is_ended = False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is not None:
            self.close()
        elif not self._is_ended:
            self.commit()

    def commit(self) -> None:
        """Writes the changes, and ends the transaction."""
        self._is_ended = True
        self._commit()

    def rollback(self) -> None:
        """Discards the changes, and ends the transaction."""
        self.close()

    def close(self) -> None:
        """Discards the changes, and ends the transaction."""
        self._is_ended = True
        super().close()


class Batch(_cabinet.Batch):
    """Changes that are collected, and then applied together or not at all."""

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.write()
        else:
            self.clear()


_opened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    for database in list(_opened.values()):
        database.close()


#: Suffixes of tables.
_TABLES = (".tct", ".tdb")


def open(name: Any, *, codec: Any = None, keys: Any = None, **options: Any) -> Any:
    """Opens a database, and creates it if it does not exist.

    `name` is a path whose suffix names the kind, with settings after `#`: `casket.tch` is a hash,
    `casket.tcb` a B+ tree, `casket.tcf` an array of fixed-length values, `casket.tct` a table,
    `*` a hash in memory, `+` a tree in memory. `codec` is the form of the values: "raw" (bytes),
    "str", "json", "msgpack", "pickle", or an object with `dumps` and `loads`. `keys` is the form
    of keys that are returned: "bytes" or "str". For a table, both are "str" or "raw" and "bytes".

    Returns a `Database`, which is a `Table` for a table.
    """
    from ._table import Table

    given = {"codec": codec, "keys": keys}
    given = {argument: value for argument, value in given.items() if value is not None}
    path = os.fsdecode(name).partition("#")[0] if isinstance(name, (str, os.PathLike)) else ""
    is_table = options.get("kind") == "table" or path.lower().endswith(_TABLES)
    if is_table:
        options.pop("kind", None)
    database = (Table if is_table else Database)(name, **given, **options)
    _opened[id(database)] = database
    return database
