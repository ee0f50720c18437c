"""Locks of a cache among processes.

They are those of one file, by ranges of it, which a process that is killed loses, and which the
child of a fork does not have: byte 0 is locked by the process that changes the cache, and byte 1 by
all that have it open, so that the first one knows that it is alone. They do not depend on the
server of the tree: a transaction goes on if that is killed.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Name of the file in the folder of the tree.
FILE_NAME = "cache.lock"

#: Pauses between two tries to lock, in seconds.
PAUSE_MIN, PAUSE_MAX = 20e-6, 0.002

_CHANGES, _USE = 0, 1


class Processes:
    """The locks of one process, whose threads exclude each other by themselves."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, FILE_NAME)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._depth = 0

    def _try_lock(self, byte: int, operation: int) -> bool:
        try:
            fcntl.lockf(self._file, operation | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def acquire(self, timeout: float) -> bool:
        """Waits for the changes of others, for ever if the timeout is negative.

        Returns whether it has the lock, which it may take several times. A closed cache has nothing
        to lock.
        """
        end = time.monotonic() + timeout
        pause = PAUSE_MIN
        while self._depth == 0 and self._file >= 0 and not self._try_lock(_CHANGES, fcntl.LOCK_EX):
            if 0 <= timeout and end < time.monotonic():
                return False
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, PAUSE_MAX)
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._file >= 0:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _CHANGES)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Returns a context in which no other process changes the cache."""
        self.acquire(-1)
        try:
            yield
        finally:
            self.release()

    def enter(self) -> bool:
        """Notes that this process has the cache open. Returns whether no other one has."""
        return self.is_alone()

    def leave(self) -> bool:
        """Notes that this process closes the cache. Returns whether no other one has it open."""
        is_alone = self.is_alone()
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _USE)
        return is_alone

    def is_alone(self) -> bool:
        """Returns whether no other process has the cache open."""
        is_alone = self._try_lock(_USE, fcntl.LOCK_EX)
        fcntl.lockf(self._file, fcntl.LOCK_SH, 1, _USE)
        return is_alone

    def close(self) -> None:
        """Releases all locks."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
