"""Storage of a cache: one tree whose keys hold rows and the indices of them.

Rows are what diskcache has in its SQL table. All entries of a change are written in one batch, so
that a kill at any time leaves either all of them or none. The keys of the tree (integers in them
are big-endian, so that they sort):

    k KEY            row: its header (see `_HEADER`), and the variable parts
    r ROWID          kind of KEY (a byte), KEY        order of insertion
    e TIME ROWID     KEY                              order of expiry, of rows that expire
    t TAG ROWID      KEY                              rows with a tag
    o RANK ROWID     KEY                              order of eviction, see `POLICIES`
    u ROWID          RANK                             rank, if it is not that of a new row
    f NAME           KEY                              files of values
    c                counts (see `_COUNTS`); not there after removals on a full disk
    s NAME           setting, as JSON
    w                present while a process has the cache open
    x                present while the order of eviction is being rebuilt
    v                mark that each change of a cache that processes share leaves as it is

One lock orders the changes of a process, and those of several processes are ordered by another one
(see `_cache_processes`). Reads take no lock. If processes share the cache, a transaction begins
with a look at the number of the last change. If another process has made that, what this one has in
memory of the cache is read again.

A process may be killed within a commit, which the server may then do later than the lock is
released. So a commit expects the version of the mark `v`, and a process that finds that another one
has not ended its commit replaces the mark before it reads: the commit is done by then, or fails.
"""

from __future__ import annotations

import atexit
import bisect
import errno
import hashlib
import json
import math
import os
import os.path
import re
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from threading import get_ident
from typing import Any, Callable, NoReturn, Optional, Union

from . import _cabinet, _errors

#: Name of the tree in the folder of a cache.
TREE_NAME = "cache.tcb"

#: Name of the file in the folder of the tree that processes lock which share the cache.
LOCK_NAME = "cache.lock"

#: Ranks of the eviction policies: the row with the lowest one is evicted first.
POLICIES: dict[str, Optional[str]] = {
    "none": None,
    "least-recently-stored": "store_time",
    "least-recently-used": "access_time",
    "least-frequently-used": "access_count",
}

#: Bytes of a row besides those of its parts, as `volume` counts them: about what the entries of
#: the indices take.
ROW_BYTES = 128

#: Longest key, in bytes. Of a longer one the tree has the beginning and a digest, and the row has
#: it in full.
KEY_BYTES_MAX = 4000

#: Longest tag, in bytes, likewise.
TAG_BYTES_MAX = 1000

#: Accesses that are noted in memory before their ranks are written.
NOTES_MAX = 1000

#: Ranges whose ends are noted.
EDGES_MAX = 32

#: Entries that a scan reads at a time.
PORTION = 256

#: Rows that are changed in one transaction where all of them are.
ROWS_AT_ONCE = 500

#: Seconds that the end of the program waits for a transaction of another thread.
EXIT_SECONDS = 1

#: Seconds that an opening waits for a transaction of another process.
OPEN_SECONDS = 60

#: Files of values, as `Disk.filename` names them, and their folders.
FILE_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val")
FOLDER_NAME = re.compile(r"[0-9a-f]{2}(/[0-9a-f]{2})?")

ENTRY_ROW, ENTRY_ORDER, ENTRY_EXPIRY, ENTRY_TAG = b"k", b"r", b"e", b"t"
ENTRY_RANK, ENTRY_RERANK, ENTRY_FILE = b"o", b"u", b"f"
_COUNTS_KEY, _SETTING, _IN_USE, _REBUILDING, _MARK = b"c", b"s", b"w", b"x", b"v"

#: Kinds of keys and of the parts of a row.
_NONE, _INT, _FLOAT, _STR, _BYTES = range(5)

# Bits of the byte of a row that has the kind of its key.
_KIND_BITS = 0x0F
_IS_LONG = 0x10

# Version of the row, kind of the key, mode and kind of the value, kind of the tag, bytes of the
# tag, of the name of the file, and of the full key (if it is long), ROWID, store time, expire time
# (infinity is never), bytes of the file.
_HEADER = struct.Struct("<5BxHIIQddQ")
_EXPIRE_TIME_AT = 32
_HEADER_BYTES = _HEADER.size
_ROW_VERSION = 1

_LITTLE_DOUBLE = struct.Struct("<d")

# Stands for changes without the counts.
_NO_COUNTS = object()

# Rows, volume in bytes, hits, misses.
_COUNTS = struct.Struct("<4Q")

_ROWID = struct.Struct(">Q")
_NUMBER = struct.Struct(">QH")
_DOUBLE = struct.Struct(">d")
_BIAS = 1 << 15

_INFINITY = math.inf


#: What a `Disk` has made of a value: bytes of its file, mode, name of the file, value.
Stored = tuple[int, int, Optional[str], Any]

#: Key of a row, kind of the key, and all of it if it is long.
PackedKey = tuple[bytes, int, bytes]


class Timeout(Exception):
    """Another thread or process has held the cache longer than the timeout."""


def ordered_float(number: Union[int, float]) -> bytes:
    """Returns 8 bytes that sort as the numbers do."""
    bits = _ROWID.unpack(_DOUBLE.pack(number + 0.0))[0]
    return _ROWID.pack(bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | 1 << 63)


def _pack_number(number: Union[int, float]) -> bytes:
    """Returns bytes that sort as the numbers do. Equal ones have the same, int or float."""
    if number != number:
        number = _INFINITY  # As no double is above it, the offset tells them apart.
        offset = _BIAS
    else:
        near = float(number)
        offset = number - int(near) if type(number) is int else 0
        number = near
    return ordered_float(number) + (offset + _BIAS if offset < _BIAS else 0xFFFF).to_bytes(2, "big")


def _unpack_number(data: bytes, kind: int) -> Union[int, float]:
    bits, offset = _NUMBER.unpack(data)
    number: Union[int, float]
    bits = bits & ~(1 << 63) if bits >> 63 else bits ^ 0xFFFFFFFFFFFFFFFF
    number = _DOUBLE.unpack(_ROWID.pack(bits))[0]
    if kind == _INT:
        number = int(number) + int(offset) - _BIAS
    elif offset == 0xFFFF:
        number = math.nan
    return number


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def pack_key(key: Any, raw: bool) -> PackedKey:
    """Returns the key of the row in the tree, the kind of the key, and all of it if it is long.

    Numbers sort before texts, and those before bytes; what a `Disk` has encoded (`raw` is false)
    is last.
    """
    cls = type(key)
    if cls is str:
        kind, packed, family = _STR, _text(key), 0x20
    elif cls is int or cls is float:
        kind, packed, family = _INT if cls is int else _FLOAT, _pack_number(key), 0x10
    elif cls is bytes:
        kind, packed, family = _BYTES, key, 0x30
    else:
        raise TypeError(f"a key is stored as int, float, str or bytes, not {cls!r}")
    if not raw:
        family += 0x40
    if len(packed) <= KEY_BYTES_MAX:
        return b"k" + bytes((family,)) + packed, kind, b""
    short = packed[:KEY_BYTES_MAX] + hashlib.sha256(packed).digest()
    return b"k" + bytes((family,)) + short, kind | _IS_LONG, packed


def is_long(kind: int) -> bool:
    """Returns whether the tree has the beginning alone of keys of a kind."""
    return bool(kind & _IS_LONG)


def unpack_key(tree_key: bytes, kind: int, full: bytes = b"") -> tuple[Any, bool]:
    """Returns a key and whether it is raw."""
    family = tree_key[1]
    packed = full if kind & _IS_LONG else tree_key[2:]
    kind &= _KIND_BITS
    key: Any
    if kind == _STR:
        key = packed.decode("utf-8", "surrogatepass")
    elif kind == _BYTES:
        key = packed
    else:
        key = _unpack_number(packed, kind)
    return key, family < 0x40


def number_of_key(tree_key: bytes) -> float:
    """Returns the number of a key that is one, as a float."""
    return float(_unpack_number(tree_key[2:], _FLOAT))


def pack_part(value: Any) -> tuple[int, bytes]:
    """Returns kind and bytes of a value or tag. Fails with TypeError for other classes."""
    kind = type(value)
    if kind is bytes:
        return _BYTES, value
    if kind is str:
        return _STR, _text(value)
    if value is None:
        return _NONE, b""
    if kind is int:
        return _INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if kind is float:
        return _FLOAT, _DOUBLE.pack(value)
    if kind is bool:
        return pack_part(int(value))
    if isinstance(value, (bytearray, memoryview)):
        return _BYTES, bytes(value)
    raise TypeError(f"it is stored as None, int, float, str or bytes, not {kind!r}")


def unpack_part(kind: int, data: bytes) -> Any:
    if kind == _BYTES:
        return data
    if kind == _STR:
        return data.decode("utf-8", "surrogatepass")
    if kind == _NONE:
        return None
    if kind == _INT:
        return int.from_bytes(data, "little", signed=True)
    return _DOUBLE.unpack(data)[0]


def tag_prefix(tag: Any) -> bytes:
    """Returns the beginning of the entries of a tag in its index."""
    if type(tag) is bool:
        # It is stored as a number, and so it comes back.
        tag = int(tag)
    if type(tag) is int or type(tag) is float:
        kind, data = _INT, _pack_number(tag) if -(1 << 63) <= tag < 1 << 63 else pack_part(tag)[1]
    else:
        kind, data = pack_part(tag)
    if len(data) > TAG_BYTES_MAX:
        kind, data = kind | _IS_LONG, hashlib.sha256(data).digest()
    return b"t" + bytes((kind,)) + len(data).to_bytes(2, "big") + data


def after(prefix: bytes) -> bytes:
    """Returns the first key after all those that begin with a prefix."""
    prefix = prefix.rstrip(b"\xff")
    return prefix[:-1] + bytes((prefix[-1] + 1,))


class Row:
    """A row as it is stored."""

    __slots__ = (
        "data",
        "expire_time",
        "file_bytes",
        "filename",
        "full_key",
        "kind",
        "mode",
        "rowid",
        "store_time",
        "tag",
        "value",
    )

    def __init__(self, data: bytes) -> None:
        try:
            self._unpack(data)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"a row of the cache is damaged: {error}") from error

    def _unpack(self, data: bytes) -> None:
        (
            version,
            self.kind,
            self.mode,
            value_kind,
            tag_kind,
            name_bytes,
            tag_bytes,
            key_bytes,
            self.rowid,
            self.store_time,
            self.expire_time,
            self.file_bytes,
        ) = _HEADER.unpack_from(data)
        if version != _ROW_VERSION:
            raise ValueError(f"a row of the cache has version {version}: a newer release wrote it")
        self.data = data
        at = _HEADER_BYTES
        self.full_key = b""
        if key_bytes:
            self.full_key, at = data[at : at + key_bytes], at + key_bytes
        self.filename = self.tag = None
        if tag_kind:
            self.tag, at = unpack_part(tag_kind, data[at : at + tag_bytes]), at + tag_bytes
        if name_bytes:
            self.filename, at = data[at : at + name_bytes].decode("utf-8"), at + name_bytes
        self.value = unpack_part(value_kind, data[at:])

    def volume(self, tree_key: bytes) -> int:
        return len(tree_key) + len(self.data) + int(self.file_bytes) + ROW_BYTES


def _pack_row(
    kind: int, full_key: bytes, rowid: int, now: float, expire_time: float, tag: Any, stored: Stored
) -> bytes:
    size, mode, filename, value = stored
    value_kind, value = pack_part(value)
    tag_kind, tag = pack_part(tag)
    name = b"" if filename is None else filename.encode("utf-8")
    header = _HEADER.pack(
        _ROW_VERSION,
        kind,
        mode,
        value_kind,
        tag_kind,
        len(name),
        len(tag),
        len(full_key),
        rowid,
        now,
        expire_time,
        size if name else 0,
    )
    return b"".join((header, full_key, tag, name, value))


def _entries(
    tree_key: bytes,
    kind: int,
    suffix: bytes,
    expire_time: float,
    tag: Any,
    rank: Optional[bytes],
    filename: Optional[str],
) -> dict[bytes, bytes]:
    """Returns the entries of the indices for a row."""
    entries = {b"r" + suffix: bytes((kind,)) + tree_key}
    if expire_time != _INFINITY:
        entries[b"e" + ordered_float(expire_time) + suffix] = tree_key
    if tag is not None:
        entries[tag_prefix(tag) + suffix] = tree_key
    if rank is not None:
        entries[b"o" + rank + suffix] = tree_key
    if filename is not None:
        entries[b"f" + filename.encode("utf-8")] = tree_key
    return entries


class Storage:
    """Open tree of a cache, and the changes of it. `Cache` objects of one folder share it.

    Everything that a cache stores goes through `get`, `scan`, `edge`, and a transaction of `put`
    and `remove`.
    """

    def __init__(self, directory: str, options: dict[str, Any], defaults: dict[str, Any]) -> None:
        self.directory = directory
        self.process = os.getpid()
        self.read_only = bool(options.get("read_only"))
        self.shared = bool(options.get("shared"))
        #: Locks among the processes that share it and change it.
        self.processes: Optional[Any] = None
        #: Whether it keeps the lock between transactions.
        self._is_held = False
        #: Number of the last change that is in memory.
        self._change: Optional[int] = None
        #: Version of the mark that commits expect; 0 without one.
        self._mark_version = 0
        self._is_peeking = False
        #: Whether the next change has to store the mark of use.
        self._is_mark_due = False
        #: Counts that the tree has; None if it has none.
        self._stored: Optional[tuple[int, ...]] = None
        self.users = 0
        #: Whether it is to be closed, at the end of the transaction of another thread.
        self.is_unused = False
        self.lock = threading.RLock()
        self.depth = 0
        self.owner: Optional[int] = None
        self.pending: Optional[dict[bytes, Any]] = None
        self._pending_keys: Optional[list[bytes]] = None
        self._settings_before: Optional[dict[str, Any]] = None
        #: Ranges (start, stop, whether from the end): no entry of it is beyond this key.
        self._edges: dict[tuple[bytes, bytes, bool], bytes] = {}
        self._edges_before: Optional[dict[tuple[bytes, bytes, bool], bytes]] = None
        self._files_written: list[str] = []
        self._files_left: list[str] = []
        self._counts_lock = threading.Lock()
        self._notes: dict[bytes, Any] = {}
        self.policy: Optional[str] = None
        self._rank: Optional[str] = None
        self.notes_reads = False
        #: Threads that are storing a value, and so may have written its file already.
        self.writing: set[int] = set()
        path = os.path.join(directory, TREE_NAME)
        self.store = _cabinet.Store(path, **options)
        try:
            if self.read_only:
                self._load(defaults, True)
            elif not self.shared:
                lock = os.path.join(path, LOCK_NAME)
                if os.path.exists(lock):
                    # A process that shared it before, with a server that was killed, may go on.
                    os.truncate(lock, 0)
                    self._replace_mark()
                self._load(defaults, True)
            else:
                from ._cache_processes import Processes

                self.processes = Processes(os.path.join(path, LOCK_NAME))
                # It changes the tree with the lock of all processes.
                self.store._repeat_changes()
                with self._held(OPEN_SECONDS):
                    self._load(defaults, self.processes.enter())
        except BaseException:
            self._close_store()
            raise
        self._identity = self._find_identity()

    def _load(self, defaults: dict[str, Any], is_alone: bool) -> None:
        self._cursor = self.store.cursor()
        self._load_state()
        if self.read_only:
            self._restore_settings({**defaults, **self.settings})
            return
        with self.transaction(-1):
            for name in defaults.keys() - self.settings.keys():
                self.put_setting(name, defaults[name])
        self._use_policy(self.settings["eviction_policy"])
        if self.store.get(_REBUILDING) is not None:
            self._rebuild_ranks()
        if is_alone and self.store.get(_IN_USE) is not None:
            self.remove_orphans()
        try:
            self.store.put(_IN_USE, b"")
        except _errors.NoSpaceError:
            # Reads and removals work. The next change that is stored has it.
            self._is_mark_due = True

    def _load_state(self) -> None:
        data = self.store.get(_COUNTS_KEY)
        if data is None:
            self.count = self.volume = self.hits = self.misses = 0
            for tree_key, row in self.store.iter_items(prefix=ENTRY_ROW):
                # What is damaged is counted by `check`, which also removes it.
                with suppress(ValueError):
                    self.volume += Row(row).volume(tree_key)
                    self.count += 1
            self._stored = None if self.count else (0, 0, 0, 0)
        else:
            self._stored = _COUNTS.unpack(data)
            self.count, self.volume, self.hits, self.misses = self._stored
        if self.shared:
            mark = self.store.meta(_MARK)
            self._mark_version = 0 if mark is None else mark.version
        last = self.edge(ENTRY_ORDER, after(ENTRY_ORDER), True)
        self.next_rowid = 1 if last is None else _ROWID.unpack(last[0][1:])[0] + 1
        self.first_expiry = -_INFINITY
        settings = {
            key[1:].decode(): json.loads(value)
            for key, value in self.store.iter_items(prefix=_SETTING)
        }
        self._restore_settings(settings)

    def _restore_settings(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        if "eviction_policy" in settings:
            self._use_policy(settings["eviction_policy"])

    def _find_identity(self) -> Optional[tuple[int, int]]:
        try:
            status = os.stat(os.path.join(self.directory, TREE_NAME))
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def is_in_place(self) -> bool:
        """Returns whether the folder still is the one that was opened."""
        return self._identity is not None and self._find_identity() == self._identity

    def is_closed(self) -> bool:
        """Returns whether it was closed, and not inherited by the child of a fork."""
        return self.store.closed and self.process == os.getpid()

    def close(self) -> None:
        if self.process == os.getpid() and not self.store.closed and not self.read_only:
            try:
                with self.transaction(EXIT_SECONDS):
                    self.write_notes()
                    self._put_counts()
                    if self.processes is None or self.processes.leave():
                        self.remove(_IN_USE)
            except (OSError, Timeout, _errors.Error):
                # The folder may have been removed. If not, the next opening repairs the rest.
                pass
        self._close_store()

    def _close_store(self) -> None:
        self.store.close()
        if self.processes is not None and self.process == os.getpid():
            self.processes.close()

    def after_fork(self) -> None:
        """Makes the copy that the child of a fork has one that is closed, if it is shared.

        The child opens the cache again when it uses it. A cache that is not shared belongs to the
        parent.
        """
        self.lock = threading.RLock()
        self.depth = 0
        self.pending = self.owner = None
        if self.shared:
            self.process = os.getpid()
            self._close_store()

    @contextmanager
    def _using(self) -> Iterator[Storage]:
        try:
            yield self
        finally:
            close_storage(self)

    def in_use(self) -> AbstractContextManager[Storage]:
        """Returns a context, which keeps it open from now on, whatever other threads close."""
        with _opened_lock:
            self.users += 1
        return self._using()

    # Transactions.

    def transaction(self, timeout: float) -> _cabinet.Context:
        """Returns a context of a transaction, which waits `timeout` seconds, or for ever if -1."""
        return _cabinet.Context(self, timeout)

    # What the context calls, with the lock above.

    def _storage_to_use(self, closed: Optional[Storage]) -> Storage:
        return self

    def time_out(self, timeout: float) -> NoReturn:
        raise Timeout(f"another thread has held the cache for {timeout} seconds")

    def enter(self, timeout: float) -> None:
        """Begins a transaction, or a part of one."""
        if self.depth == 0:
            self._acquire(timeout)
            self._catch_up(True)
            self._pending_keys = None
            self._files_written = []
            self._files_left = []
            self._before = self.count, self.volume, self.next_rowid
            self.pending = {}
            self.owner = get_ident()
        self.depth += 1

    def leave(self, is_done: bool) -> None:
        """Ends what `enter` has begun: commits the changes, or discards them."""
        if self.depth == 1:
            if is_done:
                self.commit()
            else:
                self.roll_back()
        # The child of a fork has no transaction.
        self.abandon(max(self.depth - 1, 0))

    def abandon(self, depth: int) -> None:
        """Ends what is within a number of transactions, wherever the handler of a signal was."""
        if depth == 0:
            if self.pending is not None:
                self.roll_back()
            if self.processes is not None and not self._is_held:
                self.processes.release()
        self.depth = depth

    def end_use(self) -> None:
        """Closes it if nothing uses it any more."""
        _close_if_unused(self)

    def _catch_up(self, is_locked: bool) -> None:
        """Reads again what is in memory, if another process has changed the cache since."""
        if not self.shared or self.store.closed:
            return
        change = None if self.processes is None else self.processes.last_change()
        if change is None and self.processes is not None and is_locked:
            self._replace_mark()
            change = self.processes.end_unknown_change()
        if change is not None and change == self._change:
            return
        hits, misses = (0, 0) if self._stored is None else self._stored[2:]
        # Those of this process that are not stored yet.
        hits, misses = self.hits - hits, self.misses - misses
        self._edges.clear()
        self._load_state()
        self.hits += hits
        self.misses += misses
        self._change = change

    def _replace_mark(self) -> None:
        """Makes the commit fail that a process has begun, unless it is done already."""
        try:
            self.store.put(_MARK, os.urandom(16))
        except _errors.NoSpaceError:
            # The commit of another one that expects no mark, on a full disk, only removes.
            self.store._write({_MARK: None})

    def current(self) -> Storage:
        """Returns itself, with counts and settings as other processes have left them.

        Within a transaction of this or another thread they are those of its beginning.
        """
        if self.shared and self.lock.acquire(blocking=False):
            try:
                if self.depth == 0:
                    self._catch_up(False)
            finally:
                self.lock.release()
        return self

    def is_alone(self) -> bool:
        """Returns whether no other process has the cache open."""
        return self.processes is None or bool(self.processes.is_alone())

    def check_writable(self) -> None:
        """Fails if the cache is open for reading only."""
        if self.read_only:
            raise _errors.ReadOnlyError(
                f"the cache {self.directory} is open for reading only: open it without "
                "read_only=True to change it"
            )

    @contextmanager
    def peeking(self, is_peek: bool) -> Iterator[None]:
        """Returns a context of a read that removes what has expired, if it can be removed."""
        self._is_peeking = is_peek
        try:
            yield
        finally:
            self._is_peeking = False

    def commit(self) -> None:
        if self.read_only:
            # Those of `peeking`.
            self.roll_back()
            return
        pending = self.pending
        # From here on, `abandon` leaves the files.
        files, self._files_written = self._files_written, []
        is_written = False
        try:
            if pending:
                if self._stored is None or self._stored[:2] != (self.count, self.volume):
                    self._put_counts()
                if self._is_mark_due:
                    pending[_IN_USE] = b""
                if self.processes is not None:
                    self.processes.begin_change()
                try:
                    self._write(pending)
                except _errors.NoSpaceError:
                    if not self._leave_removals(pending):
                        raise
                    self._write(pending)
                if self.processes is not None:
                    self._change = self.processes.end_change()
                self._is_mark_due &= _IN_USE not in pending
                data = pending.get(_COUNTS_KEY, _NO_COUNTS)
                if data is None:
                    self._stored = None
                elif data is not _NO_COUNTS:
                    self._stored = _COUNTS.unpack(data)
            is_written = True
            self._end(self._files_left)
        except BaseException as error:
            is_raised = not isinstance(error, Exception)
            if not (is_written or is_raised or isinstance(error, _errors.OutcomeUnknownError)):
                self._files_written = files
                self.roll_back()
                raise
            # The handler of a signal has raised it, before the write or after it, or the server
            # does not say. Files that no row has then are removed later.
            self._end([])
            self._change = None
            self._edges.clear()
            try:
                self._load_state()
            except _errors.Error:
                # The next transaction of a shared cache does it.
                if not self.shared:
                    raise
            raise

    def _write(self, changes: dict[bytes, Any]) -> None:
        self.store._write(changes, (_MARK, self._mark_version) if self.shared else None)

    @staticmethod
    def _leave_removals(changes: dict[bytes, Any]) -> bool:
        """Makes changes only remove entries, so that they need no space on a full disk.

        Returns False, and changes nothing, if they do more than that. The counts are removed too:
        they are counted again by the next opening, unless a later change stores them.
        """
        own = (_COUNTS_KEY, _IN_USE)
        if any(value is not None and key not in own for key, value in changes.items()):
            return False
        changes.pop(_IN_USE, None)
        changes[_COUNTS_KEY] = None
        return any(value is None and key not in own for key, value in changes.items())

    def roll_back(self) -> None:
        self._change = None
        self.count, self.volume, self.next_rowid = self._before
        self.first_expiry = -_INFINITY
        if self._edges_before is not None:
            self._edges = self._edges_before
        if self._settings_before is not None:
            self._restore_settings(self._settings_before)
        self._end(self._files_written)

    def _end(self, files: Iterable[str]) -> None:
        self.owner = self._pending_keys = self._settings_before = self._edges_before = None
        self.pending = None
        for path in files:
            self.remove_file(path)

    def _put_counts(self) -> None:
        # Damage may have made one negative.
        count, volume = max(self.count, 0), max(self.volume, 0)
        self.put(_COUNTS_KEY, _COUNTS.pack(count, volume, self.hits, self.misses))

    def put(self, key: bytes, value: Any) -> None:
        """Stores an entry, within a transaction."""
        pending = self.pending
        if pending is None:
            raise RuntimeError("a change is made outside of a transaction")
        if not self._is_peeking:
            self.check_writable()
        if self._pending_keys is not None and key not in pending:
            bisect.insort(self._pending_keys, key)
        pending[key] = value
        if self._edges and value is not None:
            self._note_edges(key)

    def remove(self, key: bytes) -> None:
        """Removes an entry, within a transaction."""
        self.put(key, None)

    # Reading.

    def get(self, key: bytes) -> Optional[bytes]:
        """Returns the value of an entry, or None."""
        pending = self.pending
        if pending and self.owner == get_ident() and key in pending:
            found: Optional[bytes] = pending[key]
        else:
            found = self.store.get(key)
        return found

    def scan(
        self, start: bytes, stop: bytes, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Iterates over the entries from `start` on and before `stop`, in portions."""
        rest: Optional[tuple[bytes, bytes]] = start, stop
        while rest is not None:
            entries, rest = self.portion(*rest, reverse)
            yield from entries

    def portion(
        self, start: bytes, stop: bytes, reverse: bool
    ) -> tuple[list[tuple[bytes, bytes]], Optional[tuple[bytes, bytes]]]:
        """Returns the first entries of a range, and the rest of the range; None at its end."""
        entries = list(islice(self.store.iter_items(start, stop, reverse=reverse), PORTION))
        is_last = len(entries) < PORTION
        low, high = start, stop
        if not is_last and reverse:
            low = entries[-1][0]
        elif not is_last:
            high = entries[-1][0] + b"\0"
        if self.pending and self.owner == get_ident():
            pending = self.pending
            entries = [entry for entry in entries if entry[0] not in pending]
            found = ((key, pending[key]) for key in self._pending_between(low, high))
            entries += (entry for entry in found if entry[1] is not None)
            entries.sort(reverse=reverse)
        if is_last:
            return entries, None
        return entries, (start, low) if reverse else (high, stop)

    def edge(
        self,
        start: bytes,
        stop: bytes,
        last: bool,
        is_wanted: Optional[Callable[[bytes], bool]] = None,
    ) -> Optional[tuple[bytes, bytes]]:
        """Returns the first or last entry from `start` on and before `stop`, or None.

        Only within a transaction. Passes over the keys that are not wanted, which must be the same
        in each search of a range.
        """
        # A tree passes over its emptied leaves, and this over removed entries of `pending`: so
        # where the last search ended is noted, and the next one begins there.
        bound = self._edges.get((start, stop, last), stop if last else start)
        cursor = self._cursor
        is_found = cursor.jump_back(bound) if last else cursor.jump(bound)
        entry = None
        pending = self.pending
        while is_found:
            key = cursor.key
            if not last and key >= stop or last and key < start:
                break
            is_in_range = not (last and key >= stop) and not (pending and key in pending)
            if is_in_range and (is_wanted is None or is_wanted(key)):
                entry = key, cursor.value
                break
            is_found = cursor.prev() if last else cursor.next()
        if pending:
            keys = self._sorted_pending()
            step = -1 if last else 1
            at = bisect.bisect_right(keys, bound) - 1 if last else bisect.bisect_left(keys, bound)
            while 0 <= at < len(keys) and start <= keys[at]:
                key = keys[at]
                if not last and key >= stop:
                    break
                is_there = key < stop and pending[key] is not None
                if is_there and (is_wanted is None or is_wanted(key)):
                    if entry is None or (key > entry[0]) == last:
                        entry = key, pending[key]
                    break
                at += step
            if self._edges_before is None:
                self._edges_before = dict(self._edges)
        if len(self._edges) >= EDGES_MAX:
            self._edges.clear()
        empty = start if last else stop
        self._edges[start, stop, last] = empty if entry is None else entry[0]
        return entry

    def _note_edges(self, key: bytes) -> None:
        for (start, stop, last), bound in self._edges.items():
            if start <= key < stop and (key > bound if last else key < bound):
                self._edges[start, stop, last] = key

    def _sorted_pending(self) -> list[bytes]:
        if self._pending_keys is None:
            self._pending_keys = sorted(self.pending or ())
        return self._pending_keys

    def _pending_between(self, start: bytes, stop: bytes) -> list[bytes]:
        keys = self._sorted_pending()
        return keys[bisect.bisect_left(keys, start) : bisect.bisect_left(keys, stop)]

    # Rows.

    def row(self, tree_key: bytes) -> Optional[Row]:
        data = self.get(tree_key)
        return None if data is None else Row(data)

    def set_row(
        self,
        packed_key: PackedKey,
        old: Optional[Row],
        now: float,
        expire_time: float,
        tag: Any,
        stored: Stored,
    ) -> None:
        """Stores a row in the place of an old one, if there is one, within a transaction."""
        tree_key, kind, full_key = packed_key
        if old is None:
            rowid = self.next_rowid
        else:
            rowid, kind, full_key = old.rowid, old.kind, old.full_key
        data = _pack_row(kind, full_key, rowid, now, expire_time, tag, stored)
        suffix = _ROWID.pack(rowid)
        if old is None:
            self.next_rowid += 1
            self.count += 1
        else:
            self._remove_indices(tree_key, old, suffix, stored[2])
        rank = None if self._rank is None else self._new_rank(now)
        self.put(tree_key, data)
        entries = _entries(tree_key, kind, suffix, expire_time, tag, rank, stored[2])
        for key, value in entries.items():
            self.put(key, value)
        self.first_expiry = min(self.first_expiry, expire_time)
        file_bytes = 0 if stored[2] is None else stored[0]
        self.volume += len(tree_key) + len(data) + file_bytes + ROW_BYTES

    def entries_of(self, tree_key: bytes, row: Row) -> dict[bytes, bytes]:
        """Returns the entries of the indices that a row has."""
        suffix = _ROWID.pack(row.rowid)
        rank = None if self._rank is None else self._rank_of(row, suffix)
        return _entries(tree_key, row.kind, suffix, row.expire_time, row.tag, rank, row.filename)

    def set_expiry(self, tree_key: bytes, row: Row, expire_time: float) -> None:
        """Sets the expiry of a row, within a transaction."""
        suffix = _ROWID.pack(row.rowid)
        end = _EXPIRE_TIME_AT + _LITTLE_DOUBLE.size
        new = _LITTLE_DOUBLE.pack(expire_time)
        self.put(tree_key, row.data[:_EXPIRE_TIME_AT] + new + row.data[end:])
        if row.expire_time != _INFINITY:
            self.remove(b"e" + ordered_float(row.expire_time) + suffix)
        if expire_time != _INFINITY:
            self.put(b"e" + ordered_float(expire_time) + suffix, tree_key)
        self.first_expiry = min(self.first_expiry, expire_time)

    def indexed_row(self, entry_key: bytes, tree_key: bytes) -> Optional[Row]:
        """Returns the row of an entry of an index, within a transaction.

        Returns None, and removes the entry, if it is not one of the row's: after damage.
        """
        row = self.row(tree_key)
        if row is not None and (entry_key == tree_key or entry_key[-8:] == _ROWID.pack(row.rowid)):
            return row
        self.remove(entry_key)
        return None

    def remove_row(self, tree_key: bytes, row: Row) -> None:
        """Removes a row, within a transaction. Its file is removed after the commit."""
        self.count -= 1
        self._remove_indices(tree_key, row, _ROWID.pack(row.rowid), None)
        self.remove(tree_key)

    def _remove_indices(
        self, tree_key: bytes, row: Row, suffix: bytes, next_filename: Optional[str]
    ) -> None:
        self._notes.pop(tree_key, None)
        for key in self.entries_of(tree_key, row):
            self.remove(key)
        if self.notes_reads:
            self.remove(b"u" + suffix)
        if row.filename is not None and row.filename != next_filename:
            self._files_left.append(row.filename)
        self.volume -= row.volume(tree_key)

    # Ranks: the order of eviction.

    def _use_policy(self, policy: str) -> None:
        if policy not in POLICIES:
            names = ", ".join(map(repr, POLICIES))
            raise ValueError(f"eviction_policy={policy!r}: choose one of {names}")
        self.policy = policy
        self._rank = POLICIES[policy]
        # Reads of a row are noted only if they count for the order.
        self.notes_reads = self._rank not in (None, "store_time") and not self.read_only

    def set_policy(self, policy: str) -> None:
        """Sets the eviction policy, and ranks the rows by it, in several transactions."""
        with self.in_use(), self.lock, self._held(-1):
            with self.transaction(-1):
                self._use_policy(policy)
                self.put_setting("eviction_policy", policy)
                self.put(_REBUILDING, b"")
                self._notes = {}
            self._rebuild_ranks()

    @contextmanager
    def _held(self, timeout: float) -> Iterator[None]:
        """Returns a context of transactions between which no other process changes anything."""
        self._is_held = True
        try:
            self._acquire(timeout)
            yield
        finally:
            self._is_held = False
            if self.processes is not None and self.depth == 0:
                self.processes.release()

    def _acquire(self, timeout: float) -> None:
        if self.processes is not None and not self.processes.acquire(timeout):
            raise Timeout(f"another process has held the cache for {timeout} seconds")

    def _rebuild_ranks(self) -> None:
        for prefix in (ENTRY_RANK, ENTRY_RERANK):
            self._in_portions(prefix, lambda key, _value: self.remove(key))
        if self._rank is not None:
            self._in_portions(ENTRY_ORDER, self._rank_anew)
        with self.transaction(-1):
            self.remove(_REBUILDING)

    def _rank_anew(self, key: bytes, value: Any) -> None:
        row = self.indexed_row(key, value[1:])
        if row is not None:
            self.put(b"o" + self._new_rank(row.store_time) + key[1:], value[1:])

    def _in_portions(self, prefix: bytes, change: Callable[[bytes, bytes], None]) -> None:
        start, stop = prefix, after(prefix)
        while True:
            with self.transaction(-1):
                entries = list(islice(self.scan(start, stop), ROWS_AT_ONCE))
                for key, value in entries:
                    change(key, value)
            if len(entries) < ROWS_AT_ONCE:
                return
            start = entries[-1][0] + b"\0"

    def _new_rank(self, now: float) -> bytes:
        return bytes(8) if self._rank == "access_count" else ordered_float(now)

    def _rank_of(self, row: Row, suffix: bytes) -> bytes:
        rank = None if self._rank == "store_time" else self.get(b"u" + suffix)
        return self._new_rank(row.store_time) if rank is None else rank

    def note_read(self, tree_key: bytes, now: float) -> None:
        """Notes that a row was read. Its rank is written later."""
        notes = self._notes
        if self._rank == "access_time":
            notes[tree_key] = now
        else:
            with self._counts_lock:
                notes[tree_key] = notes.get(tree_key, 0) + 1
        if len(notes) > NOTES_MAX:
            # A read does not wait, or fail for the lack of space. The notes are of use, no more.
            with suppress(Timeout, _errors.ClosedError, _errors.NoSpaceError):
                with self.transaction(0):
                    self.write_notes()

    def write_notes(self) -> None:
        """Writes the ranks of the rows that were read, within a transaction."""
        with self._counts_lock:
            notes, self._notes = self._notes, {}
        for tree_key, note in notes.items():
            row = self.row(tree_key)
            if row is None:
                continue
            suffix = _ROWID.pack(row.rowid)
            rank = self._rank_of(row, suffix)
            if self._rank == "access_count":
                new = _ROWID.pack(_ROWID.unpack(rank)[0] + note)
            else:
                new = ordered_float(note)
            if new != rank:
                self.remove(b"o" + rank + suffix)
                self.put(b"o" + new + suffix, tree_key)
                self.put(b"u" + suffix, new)

    # Counts and settings.

    def count_read(self, is_hit: bool) -> None:
        with self._counts_lock:
            if is_hit:
                self.hits += 1
            else:
                self.misses += 1

    def set_counts(self, **counts: int) -> None:
        """Sets counts by name, within a transaction."""
        for name, value in counts.items():
            setattr(self, name, value)
        self._put_counts()

    def put_setting(self, name: str, value: Any) -> None:
        """Stores a setting, within a transaction."""
        self.put(_SETTING + name.encode(), json.dumps(value).encode())
        if self._settings_before is None:
            self._settings_before = self.settings
        self.settings = {**self.settings, name: value}

    # Files of values.

    def note_file(self, filename: str) -> None:
        """Notes a file that was written, which is removed unless the transaction is committed."""
        self._files_written.append(filename)

    def remove_file(self, filename: str) -> None:
        """Removes a file, and the folders above it that are empty then."""
        path = os.path.join(self.directory, filename)
        try:
            os.remove(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            # Windows refuses it while a reader has the file open. The next opening removes it.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EBUSY):
                raise
            return
        remove_empty_folders(path, filename.count("/"))

    def remove_orphans(self) -> None:
        """Removes the files of values that no row has, and empty folders: what a kill has left."""
        for filename in self.files():
            if FILE_NAME.fullmatch(filename) and self.get(b"f" + filename.encode("utf-8")) is None:
                self.remove_file(filename)
        for folder in self.empty_folders():
            if FOLDER_NAME.fullmatch(folder):
                os.rmdir(os.path.join(self.directory, folder))

    def files(self) -> Iterator[str]:
        """Iterates over the files below the folder, without those of trees and other caches."""
        for folder, names in self._own_folders():
            for name in names:
                yield self._name_of(os.path.join(folder, name))

    def empty_folders(self) -> Iterator[str]:
        """Iterates over the empty folders below the folder. They may be removed meanwhile."""
        # A folder follows those in it, which its reader may have removed.
        for folder, _ in reversed(list(self._own_folders())):
            if folder != self.directory and not os.listdir(folder):
                yield self._name_of(folder)

    def _own_folders(self) -> Iterator[tuple[str, list[str]]]:
        """Iterates over the folders of this cache, with the names of their files.

        Other caches may lie below it, as those of a `FanoutCache` do.
        """
        for folder, folders, names in os.walk(self.directory):
            if folder == self.directory:
                folders[:] = [name for name in folders if name != TREE_NAME]
            elif TREE_NAME in folders:
                folders.clear()
                continue
            yield folder, names

    def _name_of(self, path: str) -> str:
        return os.path.relpath(path, self.directory).replace(os.sep, "/")


def remove_empty_folders(path: str, levels: int) -> None:
    """Removes the folders above a file that are empty."""
    for _ in range(levels):
        path = os.path.dirname(path)
        try:
            os.rmdir(path)
        except OSError:
            return


# Storages of this process that are open, by the real path of their folder, and whether they are for
# reading only, and shared.
_opened: dict[tuple[str, bool, bool], Storage] = {}
# The collector may drop a cache, and so close its storage, at any place.
_opened_lock = threading.RLock()


def opening_lock() -> Any:
    """Returns the lock of `open_storage`. It may be taken again by its thread."""
    return _opened_lock


def open_storage(directory: str, options: dict[str, Any], defaults: dict[str, Any]) -> Storage:
    """Returns the open storage of a folder, which must be given back to `close_storage`."""
    path = os.path.realpath(directory)
    key = path, bool(options.get("read_only")), bool(options.get("shared"))
    with _opened_lock:
        storage = _opened.get(key)
        if storage is not None:
            storage.users += 1
            storage.is_unused = False
            if not storage.store.closed and storage.is_in_place():
                return storage
            # The folder was removed, and perhaps made again.
            storage._close_store()
        storage = _opened[key] = Storage(path, options, defaults)
        storage.users = 1
        return storage


def close_storage(storage: Storage) -> None:
    """Gives a storage back, which is closed with its last user.

    If another thread is in a transaction then, the end of that closes it.
    """
    with _opened_lock:
        storage.users -= 1
        storage.is_unused = storage.users <= 0
    if storage.is_unused:
        _close_if_unused(storage)


def _close_if_unused(storage: Storage) -> None:
    with _opened_lock:
        # Waiting with the lock above for a thread that may need it would never end.
        if not storage.is_unused or not storage.lock.acquire(blocking=False):
            return
        try:
            if storage.depth == 0:
                storage.is_unused = False
                key = storage.directory, storage.read_only, storage.shared
                if _opened.get(key) is storage:
                    del _opened[key]
                storage.close()
        finally:
            storage.lock.release()


@atexit.register
def _close_all() -> None:
    with _opened_lock:
        for storage in _opened.values():
            storage.close()
        _opened.clear()


def _after_fork_in_child() -> None:
    # Locks are as other threads of the parent held them. Its storages belong to the parent.
    global _opened_lock
    _opened_lock = threading.RLock()
    for storage in _opened.values():
        storage.after_fork()
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
