"""Locks of a cache among processes, and the number of its last change.

They are those of one file, by ranges of it: byte 0 is locked by the process that changes the cache,
and byte 1 by all that have it open, so that the first one knows that it is alone. They do not
depend on the server of the tree: a transaction goes on if that is killed.

They belong to the description of the open file, and not to the process: another descriptor of the
file may be closed, as a copy of the folder does. A process that is killed loses them, unless the
child of a fork has its descriptor. So a child closes it, which releases no lock of the parent.

The file has two little-endian numbers of 8 bytes: that of the last change, which begins at any
number, and 1 while a change is being committed. It stays 1 if the process does not learn whether
the change was done, or is killed. An empty file stands for that, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import threading
import time
from typing import Optional

#: Pauses between two tries to lock, in seconds.
PAUSE_MIN, PAUSE_MAX = 20e-6, 0.002

_CHANGES, _USE = 0, 1

#: Command of `fcntl`, which has its name in Python since 3.9.
_SET_LOCK: int = getattr(fcntl, "F_OFD_SETLK", 37)

#: Type of the lock, from where its first byte is counted, this byte, bytes, process (none).
_LOCK = struct.Struct("@hhqqi4x")

_STATE = struct.Struct("<QQ")


#: Descriptors of this process, and the lock by which a fork waits for one that is being opened.
_files: set[int] = set()
_files_lock = threading.RLock()


def _after_fork_in_child() -> None:
    for file in _files:
        os.close(file)
    _files.clear()
    _files_lock.release()


os.register_at_fork(
    before=_files_lock.acquire,
    after_in_parent=_files_lock.release,
    after_in_child=_after_fork_in_child,
)


class Processes:
    """The locks of one process, whose threads exclude each other by themselves."""

    def __init__(self, path: str) -> None:
        self._process = os.getpid()
        with _files_lock:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _files.add(self._file)
        self._change = 0

    def _lock(self, byte: int, kind: int) -> bool:
        """Locks a byte, or unlocks it. Returns False if another process has locked it."""
        try:
            fcntl.fcntl(self._file, _SET_LOCK, _LOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def acquire(self, timeout: float) -> bool:
        """Waits for the changes of others, for ever if the timeout is negative.

        Returns whether it has the lock. It may have had it before. A closed cache has none.
        """
        if self._file < 0 or self._lock(_CHANGES, fcntl.F_WRLCK):
            return True
        end = time.monotonic() + timeout
        pause = PAUSE_MIN
        while not self._lock(_CHANGES, fcntl.F_WRLCK):
            if 0 <= timeout and end < time.monotonic():
                return False
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, PAUSE_MAX)
        return True

    def release(self) -> None:
        """Releases the lock, if the process has it."""
        if self._file >= 0:
            self._lock(_CHANGES, fcntl.F_UNLCK)

    def last_change(self) -> Optional[int]:
        """Returns the number of the last change; None if a later one has begun."""
        state = b"" if self._file < 0 else os.pread(self._file, _STATE.size, 0)
        if len(state) < _STATE.size:
            return None
        self._change, is_begun = _STATE.unpack(state)
        return None if is_begun else self._change

    def begin_change(self) -> None:
        """Notes that a change is being committed, after `last_change` and with the lock."""
        self._write_state(self._change, True)

    def end_change(self) -> int:
        """Notes that the change was done. Returns its number."""
        self._change += 1
        self._write_state(self._change, False)
        return self._change

    def end_unknown_change(self) -> int:
        """Notes that a change has ended, whether it was done or not. Returns a new number."""
        self._change = int.from_bytes(os.urandom(_STATE.size // 2), "little") >> 1
        self._write_state(self._change, False)
        return self._change

    def _write_state(self, change: int, is_begun: bool) -> None:
        if self._file < 0:
            return
        try:
            os.pwrite(self._file, _STATE.pack(change, is_begun), 0)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Each process replaces the mark, and reads again.
            os.ftruncate(self._file, 0)

    def enter(self) -> bool:
        """Notes that this process has the cache open. Returns whether no other one has."""
        return self.is_alone()

    def leave(self) -> bool:
        """Notes that this process closes the cache. Returns whether no other one has it open."""
        is_alone = self.is_alone()
        self._lock(_USE, fcntl.F_UNLCK)
        return is_alone

    def is_alone(self) -> bool:
        """Returns whether no other process has the cache open."""
        is_alone = self._lock(_USE, fcntl.F_WRLCK)
        self._lock(_USE, fcntl.F_RDLCK)
        return is_alone

    def close(self) -> None:
        """Releases all locks. In the child of a fork there are none."""
        with _files_lock:
            if self._file in _files and self._process == os.getpid():
                _files.remove(self._file)
                os.close(self._file)
            self._file = -1
