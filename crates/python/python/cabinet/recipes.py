"""Locks, rates and averages that are kept in a cache.

Their keys must not be evicted: the eviction policy of the cache should be "none".
"""

import functools
import math
import os
import random
import threading
import time

from .cache import ENOVAL, args_to_key, full_name

__all__ = [
    "Averager",
    "BoundedSemaphore",
    "Lock",
    "RLock",
    "barrier",
    "memoize_stampede",
    "throttle",
]

#: Seconds between two tries to get a lock.
PAUSE = 0.001


class Averager:
    """Average of numbers."""

    def __init__(self, cache, key, expire=None, tag=None):
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def add(self, value):
        """Adds a number."""
        with self._cache.transact(retry=True):
            total, count = self._cache.get(self._key, default=(0.0, 0))
            state = total + value, count + 1
            self._cache.set(self._key, state, self._expire, tag=self._tag)

    def get(self):
        """Returns the average; None without numbers."""
        return self._average(self._cache.get(self._key, default=(0.0, 0), retry=True))

    def pop(self):
        """Returns the average, and removes its numbers."""
        return self._average(self._cache.pop(self._key, default=(0.0, 0), retry=True))

    @staticmethod
    def _average(state):
        total, count = state
        return total / count if count else None


class _Lock:
    """What locks have in common: `acquire` tries again until it succeeds."""

    def __init__(self, cache, key, expire=None, tag=None):
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def acquire(self):
        """Waits until the lock is free, and takes it."""
        while not self._try():
            time.sleep(PAUSE)

    def _put(self, value):
        self._cache.set(self._key, value, self._expire, tag=self._tag, retry=True)

    def __enter__(self):
        self.acquire()

    def __exit__(self, *raised):
        self.release()


class Lock(_Lock):
    """A lock, which any thread may release. It is free again after `expire` seconds."""

    def _try(self):
        return self._cache.add(self._key, None, self._expire, tag=self._tag, retry=True)

    def release(self):
        """Frees the lock."""
        self._cache.delete(self._key, retry=True)

    def locked(self):
        """Returns whether the lock is taken."""
        return self._key in self._cache


class RLock(_Lock):
    """A lock that its thread may take again, and then releases as often."""

    def _try(self):
        me = _thread()
        with self._cache.transact(retry=True):
            owner, count = self._cache.get(self._key, default=(None, 0))
            if count and owner != me:
                return False
            self._put((me, count + 1))
            return True

    def release(self):
        """Frees the lock once. Fails with AssertionError if this thread does not have it."""
        with self._cache.transact(retry=True):
            owner, count = self._cache.get(self._key, default=(None, 0))
            if owner != _thread() or not count:
                raise AssertionError("cannot release un-acquired lock")
            self._put((owner, count - 1))


class BoundedSemaphore(_Lock):
    """A lock that as many threads as `value` have at once."""

    def __init__(self, cache, key, value=1, expire=None, tag=None):
        super().__init__(cache, key, expire, tag)
        self._value = value

    def _try(self):
        with self._cache.transact(retry=True):
            value = self._cache.get(self._key, default=self._value)
            if value <= 0:
                return False
            self._put(value - 1)
            return True

    def release(self):
        """Frees it once. Fails with AssertionError if nobody has it."""
        with self._cache.transact(retry=True):
            value = self._cache.get(self._key, default=self._value)
            if value >= self._value:
                raise AssertionError("cannot release un-acquired semaphore")
            self._put(value + 1)


def _thread():
    return f"{os.getpid()}-{threading.get_ident()}"


def throttle(
    cache,
    count,
    seconds,
    name=None,
    expire=None,
    tag=None,
    time_func=time.time,
    sleep_func=time.sleep,
):
    """Returns a decorator: the function is called at most `count` times per `seconds`.

    Calls beyond that wait. After a pause, `count` calls may follow at once.
    """

    def decorator(function):
        rate = count / float(seconds)
        key = full_name(function) if name is None else name

        def delay():
            """Takes a call, and returns 0; or the seconds until one is free."""
            with cache.transact(retry=True):
                now = time_func()
                last, free = cache.get(key, default=(now, count))
                free = min(free + max(now - last, 0) * rate, count)
                if free < 1:
                    return (1 - free) / rate
                cache.set(key, (now, free - 1), expire, tag=tag, retry=True)
                return 0

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            while True:
                seconds_left = delay()
                if not seconds_left:
                    return function(*args, **kwargs)
                sleep_func(seconds_left)

        return wrapper

    return decorator


def barrier(cache, lock_factory, name=None, expire=None, tag=None):
    """Returns a decorator: the function is called with a lock of the class `lock_factory`."""

    def decorator(function):
        key = full_name(function) if name is None else name
        lock = lock_factory(cache, key, expire=expire, tag=tag)

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with lock:
                return function(*args, **kwargs)

        return wrapper

    return decorator


def memoize_stampede(cache, expire, name=None, typed=False, tag=None, beta=1, ignore=()):
    """Returns a decorator like `Cache.memoize`, which computes results again before they expire.

    So not all threads do so at once when one expires. One of them begins earlier, in a thread of
    its own, the more probably the longer the function takes and the sooner the result expires. A
    larger `beta` makes it earlier. After A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal
    Probabilistic Cache Stampede Prevention", VLDB 2015.
    """

    def decorator(function):
        base = full_name(function) if name is None else name

        def timed_call(*args, **kwargs):
            start = time.time()
            result = function(*args, **kwargs)
            return result, time.time() - start

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            key = wrapper.__cache_key__(*args, **kwargs)
            pair, expire_time = cache.get(key, default=ENOVAL, expire_time=True, retry=True)
            if pair is not ENOVAL:
                result, seconds = pair
                ahead = -seconds * beta * math.log(1 - random.random())
                if time.time() + ahead >= expire_time:
                    # The other threads go on with the old result for as long as it takes.
                    is_first = cache.add((*key, "again"), None, expire=seconds, tag=tag, retry=True)
                    if is_first:
                        threading.Thread(
                            target=compute, args=(key, args, kwargs), daemon=True
                        ).start()
                return result
            return compute(key, args, kwargs)

        def compute(key, args, kwargs):
            pair = timed_call(*args, **kwargs)
            cache.set(key, pair, expire=expire, tag=tag, retry=True)
            return pair[0]

        wrapper.__cache_key__ = lambda *args, **kwargs: args_to_key(
            base, args, kwargs, typed, ignore
        )
        return wrapper

    return decorator
