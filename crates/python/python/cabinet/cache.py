"""Caches on disk, shaped like diskcache's, without pickle unless it is asked for by name.

>>> import cabinet
>>> with cabinet.Cache() as cache:
...     cache.set("greeting", {"text": "hello"}, expire=60, tag="words")
...     cache["greeting"]
True
{'text': 'hello'}
"""

from __future__ import annotations

import errno
import functools
import io
import json
import math
import os
import os.path as op
import pickle
import tempfile
import time
import warnings
import zlib
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import groupby, islice
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from . import _cabinet, _errors, _values
from ._cache_queue import Queue
from ._cache_storage import (
    ENTRY_EXPIRY,
    ENTRY_ORDER,
    ENTRY_RANK,
    ENTRY_ROW,
    KEY_BYTES_MAX,
    POLICIES,
    PackedKey,
    Row,
    Storage,
    Stored,
    Timeout,
    after,
    close_storage,
    open_storage,
    opening_lock,
    is_long,
    ordered_float,
    pack_key,
    remove_empty_folders,
    tag_prefix,
    unpack_key,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from .persistent import Deque, Index

__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "UNKNOWN",
    "Cache",
    "Disk",
    "EmptyDirWarning",
    "FanoutCache",
    "JSONDisk",
    "PickleDisk",
    "Timeout",
    "UnknownFileWarning",
]


_Function = TypeVar("_Function", bound=Callable[..., Any])


class Constant(tuple):  # type: ignore[type-arg]
    """A constant with a name."""

    def __new__(cls, name: str) -> Constant:
        return tuple.__new__(cls, (name,))

    def __repr__(self) -> str:
        return str(self[0])


#: Stands for no value, where None may be one.
ENOVAL = Constant("ENOVAL")

#: Stands for a key or value that is not known.
UNKNOWN = Constant("UNKNOWN")

#: Settings of a new cache. They are stored with it.
DEFAULT_SETTINGS = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "size_limit": 1 << 30,
    "cull_limit": 10,
    "disk_min_file_size": 32 << 10,
    "disk_pickle_protocol": pickle.HIGHEST_PROTOCOL,
}

#: Names of the eviction policies, and by which number of a row they choose.
EVICTION_POLICY = POLICIES

# Forms of values. The first five have the numbers of diskcache's.
MODE_NONE, MODE_RAW, MODE_BINARY, MODE_TEXT, MODE_PICKLE, MODE_PLAIN, MODE_TAGGED = range(7)

# First bytes of keys that are encoded.
_KEY_FORMS = {b"J": MODE_PLAIN, b"T": MODE_TAGGED, b"P": MODE_PICKLE}
_KEY_LETTERS = {mode: letter for letter, mode in _KEY_FORMS.items()}

#: Bytes that are copied at a time from a file to a file.
COPY_BYTES = 1 << 20

#: Times that a file is written again if another thread has removed its empty folder meanwhile.
WRITE_TRIES = 10

# Rows that `clear`, `evict`, `expire` and `cull` remove in one transaction.
_REMOVED_AT_ONCE = 100

_INFINITY = math.inf


class UnknownFileWarning(UserWarning):
    """There is a file that no row of the cache has."""


class EmptyDirWarning(UserWarning):
    """There is an empty folder."""


class Disk:
    """How keys and values are stored: small values in the row, others in files of the folder.

    Subclasses may change each step. By this class, values are those of `cabinet._values.dumps`:
    None, bool, numbers, str, bytes, lists, tuples, dicts, sets and those of a few classes of the
    standard library. `PickleDisk` takes any object.
    """

    def __init__(self, directory: Any, min_file_size: int = 0, pickle_protocol: int = 0) -> None:
        self._directory = directory
        self.min_file_size = min_file_size
        self.pickle_protocol = pickle_protocol

    def hash(self, key: Any) -> int:
        """Returns a number of 32 bits of a key, which is the same in each process."""
        return zlib.adler32(pack_key(*self.put(key))[0]) & 0xFFFFFFFF

    def put(self, key: Any) -> tuple[Any, bool]:
        """Returns what is stored for a key: int, float, str or bytes, and whether it is the key."""
        kind = type(key)
        if kind is str or kind is bytes or kind is float:
            return key, True
        if kind is int and -(1 << 63) <= key < 1 << 63:
            return key, True
        mode, data = self._dumps(key, "key")
        return _KEY_LETTERS[mode] + data, False

    def get(self, key: Any, raw: bool) -> Any:
        """Returns the key of what `put` has returned."""
        if raw:
            return key
        return self._loads(_KEY_FORMS.get(key[:1], MODE_NONE), key[1:])

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Stored:
        """Returns what is stored for a value: (bytes of the file, mode, name of the file, value).

        The value is None, int, float, str or bytes. Without a file, there are no bytes of it and
        no name. With `read`, the value is a file that is open for reading bytes.
        """
        if read:
            filename, path = self.filename(key, value)
            chunks = iter(functools.partial(value.read, COPY_BYTES), b"")
            return self._write(path, chunks), MODE_BINARY, filename, None
        kind = type(value)
        if kind is bytes:
            mode, data = MODE_BINARY, value
        elif kind is str:
            if len(value) < self.min_file_size // 4:
                return 0, MODE_RAW, None, value
            mode, data = MODE_TEXT, value.encode("utf-8", "surrogatepass")
        elif kind is int or kind is float:
            return 0, MODE_RAW, None, value
        else:
            mode, data = self._dumps(value, "value")
        if len(data) < self.min_file_size:
            if mode == MODE_BINARY or mode == MODE_TEXT:
                return 0, MODE_RAW, None, value
            return 0, mode, None, data
        filename, path = self.filename(key, value)
        return self._write(path, (data,)), mode, filename, None

    def fetch(self, mode: int, filename: Optional[str], value: Any, read: bool) -> Any:
        """Returns the value of what `store` has returned; with `read` and a file, that file.

        Fails with FileNotFoundError if the file has been removed.
        """
        if mode == MODE_RAW:
            return value
        if filename is not None:
            path = op.join(self._directory, filename)
            if read:
                return open(path, "rb")
            with open(path, "rb") as reader:
                value = reader.read()
        if mode == MODE_BINARY:
            return value
        if mode == MODE_TEXT:
            return value.decode("utf-8", "surrogatepass")
        return self._loads(mode, value)

    def filename(self, key: Any = UNKNOWN, value: Any = UNKNOWN) -> tuple[str, str]:
        """Returns the name of a new file in the folder, with /, and its whole path."""
        name = os.urandom(16).hex()
        filename = f"{name[:2]}/{name[2:4]}/{name[4:]}.val"
        return filename, op.join(self._directory, filename)

    def remove(self, file_path: str) -> None:
        """Removes a file by its name in the folder. It need not exist."""
        path = op.join(self._directory, file_path)
        try:
            os.remove(path)
        except FileNotFoundError:
            pass
        remove_empty_folders(path, file_path.count("/"))

    def _write(self, path: str, chunks: Iterable[bytes]) -> Any:
        try:
            return self._write_file(path, chunks)
        except OSError as error:
            name = op.relpath(path, self._directory)
            remove_empty_folders(path, name.count(os.sep))
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            text = f"no space left for {path}: free space on its file system, or remove values"
            raise _errors.NoSpaceError(error.errno, text, path) from error

    def _write_file(self, path: str, chunks: Iterable[bytes]) -> int:
        size = 0
        for tries_left in reversed(range(WRITE_TRIES)):
            os.makedirs(op.dirname(path), exist_ok=True)
            try:
                # A name of `filename` of a subclass may be that of an earlier value.
                target = path + ".new" if op.exists(path) else path
                writer = open(target, "wb")
                break
            except FileNotFoundError:
                # Another thread has removed the folder, as it was empty.
                if not tries_left:
                    raise
        try:
            with writer:
                for chunk in chunks:
                    size += writer.write(chunk)
            if target != path:
                os.replace(target, path)
        except BaseException:
            os.remove(target)
            raise
        return size

    def _dumps(self, value: Any, what: str) -> tuple[int, bytes]:
        try:
            form, data = _values.dumps(value)
        except TypeError as error:
            raise TypeError(
                f"this {what} is stored only by pickle: {error}. Pass pickle=True if none but "
                "you can write to the folder of the cache, as pickle runs what it finds there; or "
                "a disk= with an encoding of your own"
            ) from None
        return MODE_PLAIN + form, data

    def _loads(self, mode: int, data: bytes) -> Any:
        if mode == MODE_PLAIN or mode == MODE_TAGGED:
            return _values.loads(mode - MODE_PLAIN, data)
        if mode == MODE_PICKLE:
            raise TypeError(
                "it was stored by pickle, which runs what it finds: pass pickle=True to read it, "
                "if none but you can write to the folder of the cache"
            )
        raise ValueError(f"a stored key or value has the unknown form {mode!r}")


class PickleDisk(Disk):
    """Stores any object: by pickle what `Disk` does not take.

    Reading runs what it finds, so none but you may be able to write to the folder.
    """

    def _dumps(self, value: Any, what: str) -> tuple[int, bytes]:
        try:
            form, data = _values.dumps(value)
            return MODE_PLAIN + form, data
        except TypeError:
            return MODE_PICKLE, pickle.dumps(value, protocol=self.pickle_protocol)

    def _loads(self, mode: int, data: bytes) -> Any:
        if mode == MODE_PICKLE:
            return pickle.load(io.BytesIO(data))
        return super()._loads(mode, data)


class JSONDisk(Disk):
    """Stores keys and values as JSON, compressed by zlib.

    Tuples come back as lists, and keys of dicts as str; bytes and others are refused.
    """

    def __init__(self, directory: Any, compress_level: int = 1, **kwargs: Any) -> None:
        self.compress_level = compress_level
        super().__init__(directory, **kwargs)

    def put(self, key: Any) -> tuple[Any, bool]:
        return super().put(self._compress(key))

    def get(self, key: Any, raw: bool) -> Any:
        return self._decompress(super().get(key, raw))

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Stored:
        if not read:
            value = self._compress(value)
        return super().store(value, read, key=key)

    def fetch(self, mode: int, filename: Optional[str], value: Any, read: bool) -> Any:
        data = super().fetch(mode, filename, value, read)
        return data if read else self._decompress(data)

    def _compress(self, value: Any) -> bytes:
        return zlib.compress(json.dumps(value).encode("utf-8"), self.compress_level)

    def _decompress(self, data: bytes) -> Any:
        return json.loads(zlib.decompress(data).decode("utf-8"))


def full_name(function: Callable[..., Any]) -> str:
    """Returns the name of a function with that of its module."""
    return f"{function.__module__}.{function.__qualname__}"


def args_to_key(
    base: str, args: tuple[Any, ...], kwargs: dict[str, Any], typed: bool, ignore: Container[Any]
) -> tuple[Any, ...]:
    """Returns the key of a call: (name, positional arguments, named arguments, names of types).

    The arguments that `ignore` names, by position or name, are left out.
    """
    args = tuple(arg for position, arg in enumerate(args) if position not in ignore)
    pairs = tuple((name, kwargs[name]) for name in sorted(kwargs) if name not in ignore)
    if not typed:
        return base, args, pairs
    types = (*(type(arg) for arg in args), *(type(value) for _, value in pairs))
    return base, args, pairs, tuple(map(full_name, types))


class Cache:
    """Cache in a folder: a mapping with expiry, tags, a limit of its size, and queues.

    Its objects may be used by any number of threads and processes, also by children of forks. Those
    for one folder share what is open. With `shared=False`, one process at a time has the cache
    open, and the next one gets `InUseError`.
    """

    _storage: Optional[Storage] = None

    def __init__(
        self,
        directory: Any = None,
        timeout: float = 60,
        disk: Optional[type[Disk]] = None,
        *,
        pickle: bool = False,
        durability: Any = None,
        read_only: bool = False,
        shared: Optional[bool] = None,
        **settings: Any,
    ) -> None:
        """Opens a cache, and creates it if it does not exist.

        `directory` is a new one for temporary files by default. Changes wait `timeout` seconds
        for a transaction of another thread. `disk` is a class below `Disk`. `durability` says when
        a write is acknowledged, as in `cabinet.open`; an object for a folder that is open already
        has that of the first one. The `settings` are those of `DEFAULT_SETTINGS`; those that are
        given replace the stored ones.

        With `read_only`, the cache must exist, all changes fail with `ReadOnlyError`, and nothing
        is written to its folder; other processes may have it open in this way too.

        By default, several processes may have the cache open: the first one starts a server for it.
        A transaction of one makes the others wait, as those of threads do. With `shared=False`,
        this process alone has it open, without a server, and each operation takes less time. So it
        is with `read_only`, unless the cache is shared already or `shared=True` is given.

        `pickle=True` stores any object. None but you may be able to write to the folder then.
        """
        disk = Disk if disk is None else disk
        if not (isinstance(disk, type) and issubclass(disk, Disk)):
            raise ValueError(f"disk={disk!r}: give a class below cabinet.cache.Disk")
        if pickle and not issubclass(disk, PickleDisk):
            if disk is not Disk:
                raise ValueError(f"pickle=True with disk={disk!r}: inherit it from PickleDisk")
            disk = PickleDisk
        if directory is None and read_only:
            raise ValueError("read_only=True without a directory: give that of a cache")
        if directory is None:
            directory = tempfile.mkdtemp(prefix="cabinet-")
        folder = op.expandvars(op.expanduser(os.fsdecode(directory)))
        self._directory = op.abspath(folder)
        self._timeout: float = _seconds("timeout", timeout)
        self._options = {"durability": durability, "read_only": read_only, "shared": shared}
        if not read_only:
            os.makedirs(self._directory, 0o755, exist_ok=True)
        kwargs = {
            name[len("disk_") :]: value
            for name, value in self._open(settings).settings.items()
            if name.startswith("disk_")
        }
        self._disk = disk(self._directory, **kwargs)

    def _open(self, settings: dict[str, Any]) -> Storage:
        with opening_lock():
            if self._storage is None:
                self._storage = self._open_storage()
            storage = self._storage
        # The thread that this one waits for may be waiting for the lock above.
        try:
            for name, value in settings.items():
                self._set(storage, name, value)
        except BaseException:
            self.close()
            raise
        return storage

    def _open_storage(self) -> Storage:
        options = self._options
        if options["shared"] is None:
            if options["read_only"]:
                alone = {**options, "shared": False}
                with suppress(_errors.InUseError):
                    return open_storage(self._directory, alone, DEFAULT_SETTINGS)
            options = {**options, "shared": True}
        return open_storage(self._directory, options, DEFAULT_SETTINGS)

    def _live(self) -> Storage:
        """Returns the storage, which another thread may close before it is used."""
        return self._storage or self._open({})

    def _storage_to_use(self, closed: Optional[Storage]) -> Storage:
        """Likewise, for a transaction, another one than that which was closed."""
        if closed is not None:
            self._forget(closed)
        return self._live()

    def _current(self) -> Storage:
        """Returns the storage, with counts and settings as other processes have left them."""
        while True:
            storage = self._live()
            try:
                return storage.current()
            except _errors.ClosedError:
                self._forget(storage)

    def _in_use(self) -> AbstractContextManager[Storage]:
        """Returns a context of the storage, which no other thread closes meanwhile."""
        with opening_lock():
            return self._live().in_use()

    def _forget(self, storage: Storage) -> None:
        """Gives a storage back, in order to open another one."""
        with opening_lock():
            if self._storage is storage:
                self._storage = None
                close_storage(storage)

    def _look_up(self, tree_key: bytes) -> tuple[Storage, Optional[bytes]]:
        """Returns the value of an entry, and the storage that has it."""
        while True:
            storage = self._storage or self._open({})
            try:
                return storage, storage.get(tree_key)
            except _errors.ClosedError:
                self._forget(storage)

    def _row(self, tree_key: bytes) -> Optional[Row]:
        data = self._look_up(tree_key)[1]
        return None if data is None else Row(data)

    def _scan(
        self, start: bytes, stop: bytes, reverse: bool
    ) -> Iterator[tuple[Storage, bytes, bytes]]:
        """Like `Storage.scan`, with the storage of each entry."""
        rest: Optional[tuple[bytes, bytes]] = start, stop
        while rest is not None:
            storage = self._live()
            try:
                entries, rest = storage.portion(*rest, reverse)
            except _errors.ClosedError:
                self._forget(storage)
                continue
            for key, value in entries:
                yield storage, key, value

    @staticmethod
    def _set(storage: Storage, name: str, value: Any) -> None:
        is_others = name.startswith(("disk_", "sqlite_"))
        if name not in DEFAULT_SETTINGS and not is_others:
            names = ", ".join(DEFAULT_SETTINGS)
            raise TypeError(f"there is no setting {name!r}: known are {names}")
        if type(value) is bool and name not in ("statistics", "tag_index") and not is_others:
            raise TypeError(f"{name}={value}: give a value of the setting, not a bool")
        if name in storage.settings and storage.settings[name] == value:
            return
        if name == "eviction_policy":
            storage.set_policy(value)
        else:
            with storage.transaction(-1):
                storage.put_setting(name, value)

    @property
    def directory(self) -> str:
        """Folder of the cache."""
        return self._directory

    @property
    def timeout(self) -> float:
        """Seconds that a change waits for a transaction of another thread."""
        return self._timeout

    @property
    def disk(self) -> Disk:
        """The `Disk` of the cache."""
        return self._disk

    def __setattr__(self, name: str, value: Any) -> None:
        if name in DEFAULT_SETTINGS:
            raise AttributeError(
                f"{name} is a setting of the cache: use reset({name!r}, {value!r})"
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Settings.
        if not name.startswith("_"):
            storage = self._current()
            if name in storage.settings:
                return storage.settings[name]
            if name in ("count", "size", "hits", "misses"):
                return storage.volume if name == "size" else getattr(storage, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _transact(self, retry: bool = False) -> Any:
        return _cabinet.Context(self, -1 if retry else self._timeout)

    def transact(self, retry: bool = False) -> Any:
        """Returns a context of a transaction: its changes are made together, or none of them.

        Other threads may read meanwhile, without its changes, and wait to change something. It
        may be within another one. The commit of a transaction fails with `BatchTooLongError` if
        its keys and values, without the longest one, have more than 60 MiB.
        """
        return self._transact(retry)

    # Storing.

    def set(
        self,
        key: Any,
        value: Any,
        expire: Optional[float] = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Stores a value, and returns True.

        It expires after `expire` seconds. With `read`, the value is a file that is open for
        reading bytes. `evict` removes values by `tag`: int, float, str or bytes.
        """
        now = time.time()
        packed = pack_key(*self._disk.put(key))
        self._write(key, value, read, retry, self._set_row, packed, now, expire, tag)
        return True

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value, retry=True)

    def _set_row(
        self,
        storage: Storage,
        stored: Stored,
        packed: PackedKey,
        now: float,
        expire: Optional[float],
        tag: Any,
    ) -> None:
        storage.set_row(packed, storage.row(packed[0]), now, _end(now, expire), tag, stored)
        self._cull(storage, now)

    def _write(
        self, key: Any, value: Any, read: bool, retry: bool, change: Callable[..., Any], *args: Any
    ) -> Any:
        """Calls `change` with a stored value in a transaction. Returns what it does.

        The file of the value is removed if that fails, or returns False.
        """
        thread = get_ident()
        # It knows that a file is being written.
        with self._in_use() as opened:
            opened.check_writable()
            opened.writing.add(thread)
            try:
                stored = self._disk.store(value, read, key=key)
                filename = stored[2]
                if filename is None:
                    with self._transact(retry) as storage:
                        return change(storage, stored, *args)
                changed = False
                try:
                    with self._transact(retry) as storage:
                        # For a transaction around this one.
                        storage.note_file(filename)
                        changed = change(storage, stored, *args)
                        return changed
                finally:
                    if changed is False:
                        self._disk.remove(filename)
            finally:
                opened.writing.discard(thread)

    def add(
        self,
        key: Any,
        value: Any,
        expire: Optional[float] = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Stores a value if the key has none. Returns whether it did."""
        now = time.time()
        packed = pack_key(*self._disk.put(key))
        row = self._row(packed[0])
        if row is not None and row.expire_time > now:
            return False
        is_added: bool = self._write(
            key, value, read, retry, self._add_row, packed, now, expire, tag
        )
        return is_added

    def _add_row(
        self,
        storage: Storage,
        stored: Stored,
        packed: PackedKey,
        now: float,
        expire: Optional[float],
        tag: Any,
    ) -> bool:
        row = storage.row(packed[0])
        if row is not None and row.expire_time > now:
            return False
        storage.set_row(packed, row, now, _end(now, expire), tag, stored)
        self._cull(storage, now)
        return True

    def incr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """Adds to a number, and returns the sum.

        Begins at `default` without one, or fails with KeyError if that is None.
        """
        now = time.time()
        packed = pack_key(*self._disk.put(key))
        with self._transact(retry) as storage:
            row = storage.row(packed[0])
            if row is None or row.expire_time <= now:
                if default is None:
                    raise KeyError(key)
                value, expire_time, tag = default + delta, _INFINITY, None
            else:
                value = self._fetch(row, False) + delta
                expire_time, tag = row.expire_time, row.tag
            stored = self._disk.store(value, False, key=key)
            if stored[2] is not None:
                storage.note_file(stored[2])
            storage.set_row(packed, row, now, expire_time, tag, stored)
            self._cull(storage, now)
            return value

    def decr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """Subtracts from a number, like `incr`. It may become negative."""
        return self.incr(key, -delta, default, retry)

    def touch(self, key: Any, expire: Optional[float] = None, retry: bool = False) -> bool:
        """Sets the expiry of a value. Returns whether there is one."""
        now = time.time()
        packed = pack_key(*self._disk.put(key))
        with self._transact(retry) as storage:
            row = storage.row(packed[0])
            if row is None or row.expire_time <= now:
                return False
            storage.set_expiry(packed[0], row, _end(now, expire))
            return True

    # Reading.

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: Any = False,
        retry: bool = False,
    ) -> Any:
        """Returns a value, or `default`; with its expire time and tag in a tuple if asked for.

        With `read`, returns the file of a value that has one.
        """
        tree_key = pack_key(*self._disk.put(key))[0]
        value = row = None
        is_hit = False
        storage, data = self._look_up(tree_key)
        while data is not None:
            row = Row(data)
            now = time.time()
            if row.expire_time <= now:
                break
            try:
                value = self._fetch(row, read)
                is_hit = True
                break
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
            # Another thread has removed the file since: look again, unless the row is the same.
            old = data
            storage, data = self._look_up(tree_key)
            if data == old:
                break
        if storage.settings["statistics"]:
            storage.count_read(is_hit)
        if row is None or not is_hit:
            return _result(default, expire_time, None, tag, None)
        if storage.notes_reads:
            storage.note_read(tree_key, now)
        return _result(value, expire_time, _public(row.expire_time), tag, row.tag)

    def _fetch(self, row: Row, read: bool) -> Any:
        if row.filename is not None:
            path = op.join(self._directory, row.filename)
            if op.isabs(row.filename) or ".." in row.filename.split("/"):
                raise ValueError(f"a row has the file {row.filename!r}, outside of the cache")
            if os.stat(path).st_size != row.file_bytes:
                # The machine went down before the file was on the disk.
                raise FileNotFoundError(errno.ENOENT, "the file of a value is cut", path)
        return self._disk.fetch(row.mode, row.filename, row.value, read)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, default=ENOVAL, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def read(self, key: Any, retry: bool = False) -> Any:
        """Returns the file of a value, open for reading bytes. Fails with KeyError without one."""
        value = self.get(key, default=ENOVAL, read=True, retry=retry)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        row = self._row(pack_key(*self._disk.put(key))[0])
        return row is not None and row.expire_time > time.time()

    def __len__(self) -> int:
        """Returns the number of values, with those that have expired and are not removed yet."""
        return int(self._current().count)

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the keys in the order of insertion, also those of expired values."""
        return self._iterate(False)

    def __reversed__(self) -> Iterator[Any]:
        """Like `__iter__`, in the reverse order."""
        return self._iterate(True)

    def _iterate(self, is_reverse: bool) -> Iterator[Any]:
        stop = ENTRY_ORDER + self._current().next_rowid.to_bytes(8, "big")
        for _, _, entry in self._scan(ENTRY_ORDER, stop, is_reverse):
            kind, tree_key = entry[0], entry[1:]
            full_key = b""
            if is_long(kind):
                row = self._row(tree_key)
                if row is None:
                    continue
                full_key = row.full_key
            yield self._disk.get(*unpack_key(tree_key, kind, full_key))

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """Iterates over the keys in their order: numbers, str, bytes, others."""
        scan = self._scan(ENTRY_ROW, after(ENTRY_ROW), reverse)
        # The tree has the beginning of long keys alone: those with the same one are sorted here.
        for _, entries in groupby(scan, key=lambda entry: entry[1][: KEY_BYTES_MAX + 2]):
            rows = ((tree_key, Row(data)) for _, tree_key, data in entries)
            keys = [(row.full_key or key[2:], key, row.kind) for key, row in rows]
            keys.sort(reverse=reverse)
            for full_key, tree_key, kind in keys:
                yield self._disk.get(*unpack_key(tree_key, kind, full_key))

    def peekitem(
        self, last: bool = True, expire_time: bool = False, tag: Any = False, retry: bool = False
    ) -> Any:
        """Returns the last or first key and value in the order of insertion.

        Fails with KeyError without one. Removes those that have expired.
        """
        start, stop = ENTRY_ORDER, after(ENTRY_ORDER)
        found = self._edge(start, stop, last, None, False, retry)
        if found is None:
            raise KeyError("dictionary is empty")
        pair, row = found
        return _result(pair, expire_time, _public(row.expire_time), tag, row.tag)

    def _edge(
        self,
        start: bytes,
        stop: bytes,
        last: bool,
        queue: Optional[Queue],
        remove: bool,
        retry: bool,
    ) -> Any:
        """Returns the first or last pair of a range, and its row; None without one.

        The range is that of a queue, or of the order of insertion.
        """
        is_item = None if queue is None else queue.is_item
        failed = None
        # For reading only, what has expired is removed until the end of a transaction alone.
        outer: Any = self._transact(retry) if self._options["read_only"] else nullcontext()
        with outer:
            while True:
                with self._transact(retry) as storage, storage.peeking(not remove):
                    entry = storage.edge(start, stop, last, is_item)
                    if entry is None:
                        return None
                    tree_key = entry[1][1:] if queue is None else entry[0]
                    row = storage.indexed_row(entry[0], tree_key)
                    if row is None:
                        continue
                    if row.expire_time <= time.time():
                        storage.remove_row(tree_key, row)
                        continue
                    try:
                        key, raw = unpack_key(tree_key, row.kind, row.full_key)
                        # Keys of queues are stored as they are, whatever the disk makes of others.
                        key = self._disk.get(key, raw) if queue is None else key
                        pair = key, self._fetch(row, False)
                    except OSError as error:
                        if error.errno != errno.ENOENT:
                            raise
                        if remove or row.data == failed:
                            storage.remove_row(tree_key, row)
                        failed = row.data
                        continue
                    if remove:
                        storage.remove_row(tree_key, row)
                    return pair, row

    # Removing.

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Removes a value. Returns whether there was one."""
        try:
            self.__delitem__(key, retry)
        except KeyError:
            return False
        return True

    def __delitem__(self, key: Any, retry: bool = True) -> None:
        tree_key = pack_key(*self._disk.put(key))[0]
        with self._transact(retry) as storage:
            row = storage.row(tree_key)
            if row is None or row.expire_time <= time.time():
                raise KeyError(key)
            storage.remove_row(tree_key, row)

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: Any = False,
        retry: bool = False,
    ) -> Any:
        """Removes a value, and returns it, or `default`."""
        tree_key = pack_key(*self._disk.put(key))[0]
        with self._transact(retry) as storage:
            row = storage.row(tree_key)
            if row is None or row.expire_time <= time.time():
                return _result(default, expire_time, None, tag, None)
            # If it cannot be decoded, it is not removed.
            try:
                value = self._fetch(row, False)
                result = _result(value, expire_time, _public(row.expire_time), tag, row.tag)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                result = _result(default, expire_time, None, tag, None)
            storage.remove_row(tree_key, row)
            return result

    def clear(self, retry: bool = False) -> int:
        """Removes all values, a few in each transaction. Returns their number."""
        return self._remove(ENTRY_ORDER, after(ENTRY_ORDER), retry, lambda value: value[1:])

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Removes the values with a tag, a few in each transaction. Returns their number."""
        if tag is None:
            return 0
        prefix = tag_prefix(tag)
        return self._remove(prefix, after(prefix), retry)

    def expire(self, now: Optional[float] = None, retry: bool = False) -> int:
        """Removes the values that have expired, a few in each transaction. Returns their number."""
        now = time.time() if now is None else _seconds("now", now)
        return self._remove(ENTRY_EXPIRY, ENTRY_EXPIRY + ordered_float(now), retry)

    def cull(self, retry: bool = False) -> int:
        """Removes expired values, and then more by the policy, down to `size_limit`.

        Returns their number.
        """
        stop = ENTRY_EXPIRY + ordered_float(time.time())
        removed = self._remove(ENTRY_EXPIRY, stop, retry)
        while True:
            try:
                with self._transact(retry) as storage:
                    limit = storage.settings["size_limit"]
                    if storage.policy == "none" or storage.volume <= limit:
                        break
                    storage.write_notes()
                    count = self._evict(storage, 10)
            except Timeout:
                raise Timeout(removed) from None
            if not count:
                break
            removed += count
        return removed

    def _remove(
        self,
        start: bytes,
        stop: bytes,
        retry: bool,
        tree_key_of: Callable[[Any], bytes] = lambda value: value,
    ) -> int:
        removed = 0
        while True:
            try:
                with self._transact(retry) as storage:
                    entries = list(islice(storage.scan(start, stop), _REMOVED_AT_ONCE))
                    count = 0
                    for entry_key, value in entries:
                        tree_key = tree_key_of(value)
                        row = storage.indexed_row(entry_key, tree_key)
                        if row is not None:
                            storage.remove_row(tree_key, row)
                            count += 1
            except Timeout:
                raise Timeout(removed) from None
            removed += count
            if len(entries) < _REMOVED_AT_ONCE:
                return removed

    def _cull(self, storage: Storage, now: float) -> None:
        """Removes a few expired values, and more by the policy if the cache is too large."""
        settings = storage.settings
        limit = settings["cull_limit"]
        if limit and storage.first_expiry < now:
            for _ in range(limit):
                entry = storage.edge(ENTRY_EXPIRY, after(ENTRY_EXPIRY), False)
                if entry is None:
                    storage.first_expiry = _INFINITY
                    break
                row = storage.indexed_row(*entry)
                if row is None:
                    continue
                storage.first_expiry = row.expire_time
                if row.expire_time >= now:
                    break
                storage.remove_row(entry[1], row)
                limit -= 1
        if limit and storage.volume > settings["size_limit"] and storage.policy != "none":
            storage.write_notes()
            self._evict(storage, limit)

    def _evict(self, storage: Storage, limit: int) -> int:
        """Removes values by the policy. Returns their number."""
        count = 0
        while count < limit:
            entry = storage.edge(ENTRY_RANK, after(ENTRY_RANK), False)
            if entry is None:
                break
            row = storage.indexed_row(*entry)
            if row is not None:
                storage.remove_row(entry[1], row)
                count += 1
        return count

    # Queues.

    def push(
        self,
        value: Any,
        prefix: Optional[str] = None,
        side: str = "back",
        expire: Optional[float] = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> Any:
        """Stores a value at a side ("back" or "front") of a queue, and returns its key.

        The keys are integers, or texts such as "prefix-500000000000000". Fails with
        `TooManyError` if no key is left beyond the last one of the side.
        """
        now = time.time()
        is_back = _is_back(side)
        return self._write(
            UNKNOWN, value, read, retry, self._push_row, Queue(prefix), is_back, now, expire, tag
        )

    def _push_row(
        self,
        storage: Storage,
        stored: Stored,
        queue: Queue,
        is_back: bool,
        now: float,
        expire: Optional[float],
        tag: Any,
    ) -> Any:
        entry = storage.edge(queue.start, queue.stop, is_back, queue.is_item)
        key = queue.next_key(None if entry is None else entry[0], is_back)
        storage.set_row(pack_key(key, True), None, now, _end(now, expire), tag, stored)
        self._cull(storage, now)
        return key

    def pull(
        self,
        prefix: Optional[str] = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: Any = False,
        retry: bool = False,
    ) -> Any:
        """Removes the pair at a side of a queue, and returns it, or `default`."""
        return self._look(prefix, default, side, expire_time, tag, retry, True)

    def peek(
        self,
        prefix: Optional[str] = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: Any = False,
        retry: bool = False,
    ) -> Any:
        """Returns the pair at a side of a queue, or `default`. Removes those that have expired."""
        return self._look(prefix, default, side, expire_time, tag, retry, False)

    def _look(
        self,
        prefix: Optional[str],
        default: Any,
        side: str,
        expire_time: bool,
        tag: Any,
        retry: bool,
        remove: bool,
    ) -> Any:
        queue = Queue(prefix)
        found = self._edge(queue.start, queue.stop, _is_back(side), queue, remove, retry)
        if found is None:
            return _result(default, expire_time, None, tag, None)
        pair, row = found
        return _result(pair, expire_time, _public(row.expire_time), tag, row.tag)

    # The cache as a whole.

    def memoize(
        self,
        name: Optional[str] = None,
        typed: bool = False,
        expire: Optional[float] = None,
        tag: Any = None,
        ignore: Container[Any] = (),
    ) -> Callable[[_Function], Any]:
        """Returns a decorator that stores the results of a function by its arguments.

        The key begins with `name`, or the name of the function. With `typed`, arguments of
        different types have different keys. Those in `ignore`, by position or name, do not count.
        With `expire=0` results are looked for, and not stored. The decorated function has
        `__wrapped__` and `__cache_key__`, which returns the key of arguments.
        """
        return self._memoize(lambda key: key, name, typed, expire, tag, ignore)

    def _memoize(
        self,
        make_key: Callable[[tuple[Any, ...]], Any],
        name: Optional[str],
        typed: bool,
        expire: Optional[float],
        tag: Any,
        ignore: Container[Any],
    ) -> Callable[[_Function], Any]:
        """Like `memoize`, with the keys that `make_key` makes."""
        if callable(name):
            raise TypeError("name cannot be callable: call memoize, as in @cache.memoize()")
        if expire is not None:
            _seconds("expire", expire)

        def decorator(function: _Function) -> Any:
            base = full_name(function) if name is None else name

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                key = make_key(cache_key(*args, **kwargs))
                result = self.get(key, default=ENOVAL, retry=True)
                if result is ENOVAL:
                    result = function(*args, **kwargs)
                    if expire is None or expire > 0:
                        self.set(key, result, expire, tag=tag, retry=True)
                return result

            def cache_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
                return args_to_key(base, args, kwargs, typed, ignore)

            wrapper.__cache_key__ = cache_key  # type: ignore[attr-defined]
            return wrapper

        return decorator

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Returns the numbers of hits and misses. From then on they are counted, or not."""
        with self._transact(True) as storage:
            result = storage.hits, storage.misses
            if reset:
                storage.set_counts(hits=0, misses=0)
            self._set(storage, "statistics", int(bool(enable)))
        return result

    def volume(self) -> int:
        """Returns the bytes of all values, with their keys, files, and indices by estimation."""
        return int(self._current().volume)

    def reset(self, key: str, value: Any = ENOVAL, update: bool = True) -> Any:
        """Sets a setting, or reads it without a value. Returns it.

        Those that begin with `disk_` are also set in the `Disk`; the stored ones stay as they are
        with `update=False`.
        """
        if value is ENOVAL:
            return getattr(self, key)
        if key in ("count", "size", "hits", "misses"):
            with self._transact(True) as storage:
                storage.set_counts(**{"volume" if key == "size" else key: value})
        elif update:
            with self._in_use() as storage:
                self._set(storage, key, value)
        if key.startswith("disk_"):
            setattr(self._disk, key[len("disk_") :], value)
        return value

    def create_tag_index(self) -> None:
        """Sets `tag_index`. Tags always have an index."""
        self.reset("tag_index", 1)

    def drop_tag_index(self) -> None:
        """Resets `tag_index`. Tags keep their index."""
        self.reset("tag_index", 0)

    def check(self, fix: bool = False, retry: bool = False) -> list[warnings.WarningMessage]:
        """Returns warnings about whatever is inconsistent, which it repairs with `fix`.

        Files of the folder that no value has are removed then. Changes wait meanwhile.
        """
        from ._cache_check import check

        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            with self._transact(retry) as storage:
                check(storage, fix, warnings.warn)
        return found

    def close(self) -> None:
        """Closes the cache. The next operation of any thread opens it again.

        If another thread is in a transaction, its end closes the cache.
        """
        storage = self._storage
        if storage is not None:
            self._forget(storage)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # The interpreter may be half gone.
            pass

    def __getstate__(self) -> Any:
        return self._directory, self._timeout, type(self._disk), self._options

    def __setstate__(self, state: Any) -> None:
        directory, timeout, disk, options = state
        Cache.__init__(self, directory, timeout, disk, **options)


class FanoutCache(Cache):
    """A `Cache` under the name that diskcache has for several of them, its shards.

    One is enough here, so `shards` is not used. Its operations fail silently, as there, if another
    thread holds the cache longer than the timeout: `set` returns False, `get` the default.
    """

    def __init__(
        self,
        directory: Any = None,
        shards: int = 8,
        timeout: float = 0.010,
        disk: Optional[type[Disk]] = None,
        **settings: Any,
    ) -> None:
        super().__init__(directory, timeout, disk, **settings)
        self._shards = shards
        self._parts: dict[tuple[str, str], Any] = {}

    def transact(self, retry: bool = True) -> Any:
        return super().transact(retry)

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        try:
            return super().pop(key, default, expire_time, tag, retry)
        except Timeout:
            return _result(default, expire_time, None, tag, None)

    def cache(
        self, name: str, timeout: float = 60, disk: Optional[type[Disk]] = None, **settings: Any
    ) -> Cache:
        """Returns the cache of a folder within this one."""
        part: Cache = self._part("cache", name, self._new_cache, timeout, disk, settings)
        return part

    def _sharing(self) -> dict[str, Any]:
        return {"shared": self._options["shared"]}

    def _new_cache(
        self, directory: Any, timeout: float, disk: Optional[type[Disk]], settings: dict[str, Any]
    ) -> Cache:
        disk = type(self._disk) if disk is None else disk
        return Cache(directory, timeout, disk, **{**self._sharing(), **settings})

    def deque(self, name: str, maxlen: Optional[int] = None) -> Deque:
        """Returns the `Deque` of a folder within this one."""
        part: Deque = self._part("deque", name, self._new_deque, maxlen)
        return part

    def _new_deque(self, directory: Any, maxlen: Optional[int]) -> Deque:
        from .persistent import Deque

        return Deque.fromcache(self._new_persistent(directory), maxlen=maxlen)

    def index(self, name: str) -> Index:
        """Returns the `Index` of a folder within this one."""
        part: Index = self._part("index", name, self._new_index)
        return part

    def _new_index(self, directory: Any) -> Index:
        from .persistent import Index

        return Index.fromcache(self._new_persistent(directory))

    def _new_persistent(self, directory: Any) -> Cache:
        return Cache(
            directory, disk=type(self._disk), eviction_policy="none", **self._sharing()
        )

    def _part(self, kind: str, name: str, new: Callable[..., Any], *args: Any) -> Any:
        key = kind, name
        if key not in self._parts:
            self._parts[key] = new(op.join(self._directory, kind, *name.split("/")), *args)
        return self._parts[key]

    def close(self) -> None:
        for part in getattr(self, "_parts", {}).values():
            (part if isinstance(part, Cache) else part.cache).close()
        super().close()

    def __getstate__(self) -> Any:
        directory, timeout, disk, options = super().__getstate__()
        return directory, self._shards, timeout, disk, options

    def __setstate__(self, state: Any) -> None:
        directory, shards, timeout, disk, options = state
        FanoutCache.__init__(self, directory, shards, timeout, disk, **options)


def _silent(name: str, failed: Callable[[Timeout], Any]) -> Any:
    operation = getattr(Cache, name)

    @functools.wraps(operation)
    def method(self: FanoutCache, *args: Any, **kwargs: Any) -> Any:
        try:
            return operation(self, *args, **kwargs)
        except Timeout as error:
            return failed(error)

    return method


for _name in ("set", "add", "touch", "delete"):
    setattr(FanoutCache, _name, _silent(_name, lambda error: False))
for _name in ("incr", "decr"):
    setattr(FanoutCache, _name, _silent(_name, lambda error: None))
for _name in ("clear", "cull", "evict", "expire"):
    setattr(FanoutCache, _name, _silent(_name, lambda error: error.args[0]))


def _end(now: float, expire: Optional[float]) -> float:
    return _INFINITY if expire is None else now + _seconds("expire", expire)


def _seconds(name: str, value: Any) -> Any:
    """Returns a number of seconds, which is not a bool and not NaN."""
    if type(value) is bool:
        raise TypeError(f"{name}={value}: give a number of seconds, not a bool")
    if value != value:
        raise ValueError(f"{name}={value}: give a number of seconds")
    return value


def _public(expire_time: float) -> Optional[float]:
    return None if expire_time == _INFINITY else expire_time


def _result(
    value: Any, with_expire_time: bool, expire_time: Optional[float], with_tag: bool, tag: Any
) -> Any:
    if with_expire_time and with_tag:
        return value, expire_time, tag
    if with_expire_time:
        return value, expire_time
    if with_tag:
        return value, tag
    return value


def _is_back(side: str) -> bool:
    if side not in ("back", "front"):
        raise ValueError(f'side={side!r}: choose "front" or "back"')
    return side == "back"
