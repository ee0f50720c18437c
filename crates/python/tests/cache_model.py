"""Model of a cache, a dict, and processes that do operations on a cache one at a time.

Operations are tuples of literals: the name of a method, its arguments, and those with names.
"""

import ast
import contextlib
import copy
import os
import random
import signal
import sys
import time
from unittest import mock

import cabinet
import cabinet._server
from cabinet._cache_processes import Processes
from cabinet.cache import EmptyDirWarning, UnknownFileWarning

#: Settings of the caches. Nothing is culled by changes, so that the time does not matter.
SETTINGS = {"eviction_policy": "none", "cull_limit": 0, "disk_min_file_size": 1000}

#: Seconds to live of what has expired.
EXPIRED = -1000.0

#: Number of the first item of a queue, and the digits of one.
FIRST, DIGITS = 500_000_000_000_000, 15


class Undo(Exception):
    """Ends a transaction, whose changes are not made."""


class Model:
    """Does what a cache does."""

    def __init__(self):
        #: Value, whether it has expired, and tag by key, in the order of insertion.
        self.rows = {}

    @contextlib.contextmanager
    def transact(self, retry=False):
        before = copy.copy(self.rows)
        try:
            yield
        except BaseException:
            self.rows = before
            raise

    def set(self, key, value, expire=None, tag=None):
        self.rows[key] = value, expire == EXPIRED, tag
        return True

    def _live(self, key):
        row = self.rows.get(key)
        return None if row is None or row[1] else row

    def add(self, key, value, expire=None, tag=None):
        return self._live(key) is None and self.set(key, value, expire, tag)

    def incr(self, key, delta):
        value, _, tag = self._live(key) or (0, False, None)
        self.rows[key] = value + delta, False, tag
        return value + delta

    def touch(self, key, expire):
        row = self._live(key)
        if row is not None:
            self.rows[key] = row[0], expire == EXPIRED, row[2]
        return row is not None

    def get(self, key, tag=False):
        row = self._live(key)
        value = None if row is None else row[0]
        return (value, row and row[2]) if tag else value

    def pop(self, key):
        row = self._live(key)
        return None if row is None else self.rows.pop(key)[0]

    def delete(self, key):
        row = self._live(key)
        return row is not None and bool(self.rows.pop(key))

    def _remove(self, is_wanted):
        removed = [key for key, row in self.rows.items() if is_wanted(row)]
        for key in removed:
            del self.rows[key]
        return len(removed)

    def evict(self, tag):
        return self._remove(lambda row: row[2] == tag)

    def expire(self):
        return self._remove(lambda row: row[1])

    cull = expire

    def clear(self):
        return self._remove(lambda row: True)

    def _items(self, prefix):
        return sorted(key for key in self.rows if key.startswith(f"{prefix}-"))

    def push(self, value, prefix, side="back", expire=None, tag=None):
        items = self._items(prefix)
        number = FIRST
        if items:
            number = int(items[-1][-DIGITS:]) + 1 if side == "back" else int(items[0][-DIGITS:]) - 1
        key = f"{prefix}-{number:0{DIGITS}d}"
        self.set(key, value, expire, tag)
        return key

    def pull(self, prefix, side="front"):
        pair = self.peek(prefix, side)
        self.rows.pop(pair[0], None)
        return pair

    def peek(self, prefix, side="front"):
        return self._first_live(self._items(prefix)[:: 1 if side == "front" else -1])

    def peekitem(self, last=True):
        return self._first_live(list(self.rows)[:: -1 if last else 1])

    def _first_live(self, keys):
        for key in keys:
            if not self.rows[key][1]:
                return key, self.rows[key][0]
            del self.rows[key]
        return None, None

    def iterkeys(self, reverse=False):
        return sorted(self.rows, reverse=reverse)

    def check(self):
        return []

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)

    def close(self):
        pass


def apply(cache, operation):
    """Does an operation on a cache or model. Returns what can be compared."""
    name, arguments, named = operation
    if name == "transact":
        results = []
        operations, is_committed = arguments
        with contextlib.suppress(Undo), cache.transact(retry=True):
            results.extend(apply(cache, operation) for operation in operations)
            if not is_committed:
                raise Undo
        return results
    if name == "all":
        return len(cache), [(key, cache.get(key, tag=True)) for key in cache]
    if name == "check":
        # A process that was killed may have left a file without a row.
        left = UnknownFileWarning, EmptyDirWarning
        return [str(found.message) for found in cache.check() if found.category not in left]
    try:
        result = getattr(cache, name)(*arguments, **named)
    except KeyError:
        return None, None
    return list(result) if name == "iterkeys" else result


#: Steps of a change at which a process may end: before and after it is done, and before others may
#: change something.
STEPS = ["begin_change", "end_change", "release"]


def work():
    """Does the operations of the standard input, on the cache of a folder each.

    With a step, the process is killed when an operation comes there.
    """
    cabinet._server.IDLE_SECONDS = 5.0
    folder = cache = None
    for line in sys.stdin:
        name, operation, step = ast.literal_eval(line)
        if name != folder:
            if cache is not None:
                cache.close()
            folder, cache = name, cabinet.Cache(name, shared=True, **SETTINGS)
        with mock.patch.object(Processes, step, die) if step else contextlib.nullcontext():
            result = apply(cache, operation)
        print(repr(result), flush=True)
    if cache is not None:
        cache.close()


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def race(folder, name, seconds):
    """Changes what other processes change at the same time, and prints what it has done.

    A victim only does what can be left at any time.
    """
    cabinet._server.IDLE_SECONDS = 5.0
    chance, end = random.Random(name), time.monotonic() + float(seconds)
    done = {"n": 0, "pushed": [], "pulled": []}
    cache = cabinet.Cache(folder, shared=True, **SETTINGS)
    print("open", flush=True)

    def move():
        with cache.transact(retry=True):
            accounts = cache["accounts"]
            assert sum(accounts) == 100
            accounts[chance.randrange(3)] -= 1
            accounts[chance.randrange(3)] += 1
            cache["accounts"] = accounts

    def store():
        key, value = f"{name}-{chance.randrange(20)}", chance.randbytes(chance.choice([10, 5000]))
        cache.set(key, value, tag=name, retry=True)
        assert cache[key] == value

    def evict():
        cache.evict(name, retry=True)
        assert f"{name}-1" not in cache

    def count():
        cache.incr("n", retry=True)
        done["n"] += 1

    def push():
        item = name, len(done["pushed"])
        cache.push(item, "q", retry=True)
        done["pushed"].append(item)

    def pull():
        item = cache.pull("q", retry=True)[1]
        if item is not None:
            done["pulled"].append(item)

    def lock():
        if cache.add("lock", name, retry=True):
            assert cache["lock"] == name and cache.delete("lock", retry=True)

    changes = [move, store, store, evict]
    if name != "victim":
        changes += [count, push, push, pull, lock]
    while time.monotonic() < end:
        chance.choice(changes)()
    cache.close()
    print(done)
