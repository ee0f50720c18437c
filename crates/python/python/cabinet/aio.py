"""Databases for programs of asyncio: no operation makes the event loop wait.

>>> import asyncio, cabinet.aio
>>> async def main():
...     async with cabinet.aio.open("*", codec="json") as database:
...         await database.put("a", [1, 2])
...         return await database.get("a")
>>> asyncio.run(main())
[1, 2]

Each operation is tried at once, in the event loop. Most are done then, in about a microsecond. One
that would wait for the disk or another thread is handed to a thread, and so are all of a
transaction. An operation that is done at once does not give way to other tasks. If a task is
cancelled, an operation that a thread has begun goes on, and one that no thread has begun does not.

An object belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union

from . import _database
from ._cabinet import Meta
from ._errors import BusyError, ClosedError, ConflictError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Database", "Transaction", "open"]

_T = TypeVar("_T")
_Store = TypeVar("_Store", bound=_database._Records)

#: Threads of a database, for the operations that wait.
THREADS = 8

#: Records that an iteration reads at a time.
PORTION = 256


class _Records(Generic[_Store]):
    """The face that databases and transactions have in common."""

    def __init__(self, store: _Store, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool

    async def _run(self, function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Calls a function in a thread."""
        call = functools.partial(function, *args, **kwargs)
        loop = asyncio.get_running_loop()
        try:
            result = loop.run_in_executor(self._pool, call)
        except RuntimeError as error:
            # The threads end with the database.
            raise ClosedError("the database is closed: open it again") from error
        return await result

    async def _read(self, name: str, *args: Any) -> Any:
        return await self._run(getattr(self._store, name), *args)

    async def _change(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self._run(getattr(self._store, name), *args, **kwargs)

    async def get(self, key: Any, default: Any = None) -> Any:
        """Returns the value of a key, or `default`."""
        return await self._read("get", key, default)

    async def contains(self, key: Any) -> bool:
        """Returns whether there is a record with a key."""
        return await self.size(key) is not None

    async def size(self, key: Any) -> Optional[int]:
        """Returns the bytes of a value as it is stored; `None` without a record."""
        size: Optional[int] = await self._read("size", key)
        return size

    async def meta(self, key: Any) -> Optional[Meta]:
        """Returns flags, expiry and version of a record; `None` without one."""
        meta: Optional[Meta] = await self._read("meta", key)
        return meta

    async def get_with_meta(self, key: Any) -> Optional[tuple[Any, Meta]]:
        """Returns a value with its flags, expiry and version; `None` without a record."""
        found: Optional[tuple[Any, Meta]] = await self._read("get_with_meta", key)
        return found

    async def get_many(self, keys: Iterable[Any], default: Any = None) -> list[Any]:
        """Returns the values of several keys, in their order, with `default` for the others."""
        values: list[Any] = await self._read("get_many", list(keys), default)
        return values

    async def put(
        self,
        key: Any,
        value: Any,
        *,
        ttl: Optional[float] = None,
        expires_at: Optional[float] = None,
        flags: int = 0,
    ) -> int:
        """Stores a record, and replaces the one that the key has. Returns its version."""
        version: int = await self._change(
            "put", key, value, ttl=ttl, expires_at=expires_at, flags=flags
        )
        return version

    async def put_many(
        self,
        records: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        *,
        ttl: Optional[float] = None,
        expires_at: Optional[float] = None,
        flags: int = 0,
    ) -> None:
        """Stores several records, given as a mapping or as pairs, all together or none of them."""
        if not hasattr(records, "keys"):
            # An iterator is read once.
            records = list(records)
        await self._change("put_many", records, ttl=ttl, expires_at=expires_at, flags=flags)

    async def add(
        self,
        key: Any,
        value: Any,
        *,
        ttl: Optional[float] = None,
        expires_at: Optional[float] = None,
        flags: int = 0,
    ) -> bool:
        """Stores a record if the key has none. Returns whether it did."""
        is_done: bool = await self._change(
            "add", key, value, ttl=ttl, expires_at=expires_at, flags=flags
        )
        return is_done

    async def replace(
        self,
        key: Any,
        value: Any,
        *,
        ttl: Optional[float] = None,
        expires_at: Optional[float] = None,
        flags: int = 0,
    ) -> bool:
        """Stores a record if the key has one. Returns whether it did."""
        is_done: bool = await self._change(
            "replace", key, value, ttl=ttl, expires_at=expires_at, flags=flags
        )
        return is_done

    async def put_if_version(
        self,
        key: Any,
        version: int,
        value: Any,
        *,
        ttl: Optional[float] = None,
        expires_at: Optional[float] = None,
        flags: int = 0,
    ) -> bool:
        """Stores a value if the record has this version; 0 stands for no record."""
        is_done: bool = await self._change(
            "put_if_version", key, version, value, ttl=ttl, expires_at=expires_at, flags=flags
        )
        return is_done

    async def compare_and_swap(
        self,
        key: Any,
        expected: Any,
        value: Any,
        *,
        ttl: Optional[float] = None,
        expires_at: Optional[float] = None,
        flags: int = 0,
    ) -> bool:
        """Stores a value if the key has the value `expected`. Returns whether it did."""
        is_done: bool = await self._change(
            "compare_and_swap", key, expected, value, ttl=ttl, expires_at=expires_at, flags=flags
        )
        return is_done

    async def compare_and_remove(self, key: Any, expected: Any) -> bool:
        """Removes a record if it has the value `expected`. Returns whether it did."""
        is_done: bool = await self._change("compare_and_remove", key, expected)
        return is_done

    async def setdefault(self, key: Any, default: Any = None) -> Any:
        """Returns the value of a key. Stores `default` first if there is none."""
        return await self._change("setdefault", key, default)

    async def append(self, key: Any, part: Any) -> None:
        """Appends bytes (or a `str` as UTF-8) to a value. Creates the record without one."""
        await self._change("append", key, part)

    async def remove(self, key: Any) -> bool:
        """Removes a record. Returns whether there was one."""
        is_done: bool = await self._change("remove", key)
        return is_done

    async def pop(self, key: Any, *default: Any) -> Any:
        """Removes a record and returns its value, or `default`, if it is given."""
        return await self._change("pop", key, *default)

    async def touch(
        self, key: Any, ttl: Optional[float] = None, *, expires_at: Optional[float] = None
    ) -> bool:
        """Sets the expiry of a record. Returns whether there was one."""
        is_done: bool = await self._change("touch", key, ttl, expires_at=expires_at)
        return is_done

    async def add_int(self, key: Any, by: int = 1, *, bits: int = 32) -> int:
        """Adds to an integer of `bits` bits (32 or 64), and returns the sum."""
        total: int = await self._change("add_int", key, by, bits=bits)
        return total

    async def add_float(self, key: Any, by: float = 1.0) -> float:
        """Adds to a double, and returns the sum."""
        total: float = await self._change("add_float", key, by)
        return total

    def __repr__(self) -> str:
        return f"<cabinet.aio.{type(self).__name__} of {self._store!r}>"


class Database(_Records[_database.Database]):
    """An open database, see `open`. Its methods are those of `cabinet.Database`."""

    def __init__(self, database: _database.Database) -> None:
        super().__init__(database, ThreadPoolExecutor(THREADS, thread_name_prefix="cabinet"))
        self._now = database._nonblocking()
        self._is_durable = database.durability == "always"
        #: The sync that is running, and the position that it makes durable.
        self._syncing: Optional[asyncio.Future[None]] = None
        self._syncing_to = 0
        #: Number of changes that were made and wait for a sync, and what is done at its end.
        self._unsynced = 0
        self._all_synced: Optional[asyncio.Future[None]] = None
        self._closing: Optional[asyncio.Future[None]] = None

    @property
    def database(self) -> _database.Database:
        """The `cabinet.Database`, or `cabinet.Table`. Its methods may make the loop wait."""
        return self._store

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._store.closed

    def __len__(self) -> int:
        return len(self._store)

    async def _read(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self._now, name)(*args)
        except BusyError:
            return await super()._read(name, *args)

    async def get(self, key: Any, default: Any = None) -> Any:
        """Returns the value of a key, or `default`."""
        # The same as `_read`, which takes a third more.
        try:
            return self._now.get(key, default)
        except BusyError:
            return await self._run(self._store.get, key, default)

    async def _change(self, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            result = getattr(self._now, name)(*args, **kwargs)
        except BusyError:
            return await super()._change(name, *args, **kwargs)
        if self._is_durable:
            await self._wait_until_durable(self._store.appended)
        return result

    async def _wait_until_durable(self, position: int) -> None:
        """Waits for a position in the log. Tasks that wait at once have one sync in common."""
        if self._store.durable >= position:
            return
        self._unsynced += 1
        try:
            synced = 0
            while synced < position:
                if self._syncing is None or self._syncing.done():
                    self._syncing_to = self._store.appended
                    call = functools.partial(self._store.wait_durable, self._syncing_to)
                    loop = asyncio.get_running_loop()
                    self._syncing = loop.run_in_executor(self._pool, call)
                syncing_to = self._syncing_to
                # A task that is cancelled must not cancel it for the others.
                await asyncio.shield(self._syncing)
                synced = syncing_to
        finally:
            self._unsynced -= 1
            if self._unsynced == 0 and self._all_synced is not None:
                self._all_synced.set_result(None)
                self._all_synced = None

    async def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """Returns `function(database, *args)`, which a thread calls with the `cabinet.Database`.

        It serves for all that has no method here: queries, cursors, batches, copies.
        """
        return await self._run(function, self._store, *args)

    async def modify(
        self,
        key: Any,
        function: Callable[[Any], Any],
        default: Any = None,
        *,
        ttl: Optional[float] = None,
    ) -> Any:
        """Replaces the value of a key by the result of `function`, see `cabinet.Database.modify`.

        `function` is called by a thread.
        """
        return await self._run(self._store.modify, key, function, default, ttl=ttl)

    def transaction(self) -> Transaction:
        """Begins a transaction, which is committed at the end of an `async with`."""
        return Transaction(self._store.transaction(), self._pool)

    async def transact(
        self,
        function: Callable[[Transaction], Awaitable[_T]],
        *,
        tries: int = _database.TRIES,
    ) -> _T:
        """Awaits `function` with a transaction, commits it, and returns the result.

        After a conflict with another writer it does so again, at most `tries` times.
        """
        for number in range(tries):
            try:
                async with self.transaction() as transaction:
                    return await function(transaction)
            except ConflictError:
                if number + 1 == tries:
                    raise
            await asyncio.sleep(random.uniform(0, min(0.05, 0.0001 * 2 ** min(number, 20))))
        raise ValueError(f"tries={tries}: it is at least 1")

    def iter_keys(self, start: Any = None, stop: Any = None, **options: Any) -> AsyncIterator[Any]:
        """Iterates over keys, see `cabinet.Database.iter_keys`."""
        return self._iterate(self._store.iter_keys, start, stop, options)

    def iter_values(
        self, start: Any = None, stop: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Iterates over values, see `cabinet.Database.iter_keys`."""
        return self._iterate(self._store.iter_values, start, stop, options)

    def iter_items(
        self, start: Any = None, stop: Any = None, **options: Any
    ) -> AsyncIterator[tuple[Any, Any]]:
        """Iterates over pairs of keys and values, see `cabinet.Database.iter_keys`."""
        return self._iterate(self._store.iter_items, start, stop, options)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.iter_keys()

    async def _iterate(
        self, begin: Callable[..., Any], start: Any, stop: Any, options: dict[str, Any]
    ) -> AsyncIterator[Any]:
        scan = begin(start, stop, **options)
        while True:
            portion: list[Any] = await self._run(list, islice(scan, PORTION))
            for item in portion:
                yield item
            if len(portion) < PORTION:
                return

    async def clear(self) -> None:
        """Removes all records."""
        await self._run(self._store.clear)

    async def sync(self) -> None:
        """Makes everything that was written so far durable."""
        await self._run(self._store.sync)

    async def close(self) -> None:
        """Closes the database, after the operations that are running. May be called again.

        A task that is cancelled meanwhile does not end it.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
            self._closing.add_done_callback(lambda _: self._pool.shutdown(wait=False))
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._unsynced > 0:
            self._all_synced = asyncio.get_running_loop().create_future()
            await self._all_synced
        await self._run(self._store.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.close()


class Transaction(_Records[_database.Transaction]):
    """Changes that become visible to others all at once, on `commit`.

    Its operations are handed to a thread: they may read from the disk.
    """

    async def commit(self) -> None:
        """Writes the changes, and ends the transaction."""
        await self._run(self._store.commit)

    async def rollback(self) -> None:
        """Discards the changes, and ends the transaction."""
        await self._run(self._store.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            await self.rollback()
        elif not self._store._is_ended:
            await self.commit()


class _Opening:
    """An opening, which is awaited, or is the context of an `async with`."""

    def __init__(self, open_database: Callable[[], Any]) -> None:
        self._open = open_database
        self._database: Optional[Database] = None

    async def _start(self) -> Database:
        # The threads of the database begin with it.
        opened = await asyncio.get_running_loop().run_in_executor(None, self._open)
        return Database(opened)

    def __await__(self) -> Generator[Any, None, Database]:
        return self._start().__await__()

    async def __aenter__(self) -> Database:
        self._database = await self._start()
        return self._database

    async def __aexit__(self, *raised: Any) -> None:
        if self._database is not None:
            await self._database.close()


def open(name: Any, **options: Any) -> _Opening:  # noqa: A001
    """Opens a database by a thread, with the arguments of `cabinet.open`.

    The result is awaited, which returns a `Database`, or used in an `async with`.
    """
    return _Opening(functools.partial(_database.open, name, **options))
