"""Locks, rates and averages that are kept in a cache.

Their keys must not be evicted: the eviction policy of the cache should be "none".
"""

from __future__ import annotations

import abc
import functools
import math
import os
import random
import threading
import time
from collections.abc import Container
from typing import Any, Callable, Optional

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

_Decorator = Callable[[Callable[..., Any]], Any]

#: Seconds between two tries to get a lock.
PAUSE = 0.001


class Averager:
    """Average of numbers."""

    def __init__(
        self, cache: Any, key: Any, expire: Optional[float] = None, tag: Any = None
    ) -> None:
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def add(self, value: Any) -> None:
        """Adds a number."""
        with self._cache.transact(retry=True):
            total, count = self._cache.get(self._key, default=(0.0, 0))
            state = total + value, count + 1
            self._cache.set(self._key, state, self._expire, tag=self._tag)

    def get(self) -> Optional[float]:
        """Returns the average; None without numbers."""
        return self._average(self._cache.get(self._key, default=(0.0, 0), retry=True))

    def pop(self) -> Optional[float]:
        """Returns the average, and removes its numbers."""
        return self._average(self._cache.pop(self._key, default=(0.0, 0), retry=True))

    @staticmethod
    def _average(state: Any) -> Optional[float]:
        total, count = state
        return total / count if count else None


class _Lock(abc.ABC):
    """What locks have in common: `acquire` tries again until it succeeds."""

    def __init__(
        self, cache: Any, key: Any, expire: Optional[float] = None, tag: Any = None
    ) -> None:
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def acquire(self) -> None:
        """Waits until the lock is free, and takes it."""
        while not self._try():
            time.sleep(PAUSE)

    @abc.abstractmethod
    def _try(self) -> bool:
        """Takes the lock. Returns False if it is not free."""

    @abc.abstractmethod
    def release(self) -> None:
        """Frees the lock."""

    def _put(self, value: Any) -> None:
        self._cache.set(self._key, value, self._expire, tag=self._tag, retry=True)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *raised: Any) -> None:
        self.release()


class Lock(_Lock):
    """A lock, which any thread may release. It is free again after `expire` seconds."""

    def _try(self) -> bool:
        return bool(self._cache.add(self._key, None, self._expire, tag=self._tag, retry=True))

    def release(self) -> None:
        """Frees the lock."""
        self._cache.delete(self._key, retry=True)

    def locked(self) -> bool:
        """Returns whether the lock is taken."""
        return self._key in self._cache


class RLock(_Lock):
    """A lock that its thread may take again, and then releases as often."""

    def _try(self) -> bool:
        me = _thread()
        with self._cache.transact(retry=True):
            owner, count = self._cache.get(self._key, default=(None, 0))
            if count and owner != me:
                return False
            self._put((me, count + 1))
            return True

    def release(self) -> None:
        """Frees the lock once. Fails with AssertionError if this thread does not have it."""
        with self._cache.transact(retry=True):
            owner, count = self._cache.get(self._key, default=(None, 0))
            if owner != _thread() or not count:
                raise AssertionError("cannot release un-acquired lock")
            self._put((owner, count - 1))


class BoundedSemaphore(_Lock):
    """A lock that as many threads as `value` have at once."""

    def __init__(
        self, cache: Any, key: Any, value: Any = 1, expire: Optional[float] = None, tag: Any = None
    ) -> None:
        super().__init__(cache, key, expire, tag)
        self._value = value

    def _try(self) -> bool:
        with self._cache.transact(retry=True):
            value = self._cache.get(self._key, default=self._value)
            if value <= 0:
                return False
            self._put(value - 1)
            return True

    def release(self) -> None:
        """Frees it once. Fails with AssertionError if nobody has it."""
        with self._cache.transact(retry=True):
            value = self._cache.get(self._key, default=self._value)
            if value >= self._value:
                raise AssertionError("cannot release un-acquired semaphore")
            self._put(value + 1)


def _thread() -> str:
    return f"{os.getpid()}-{threading.get_ident()}"


def throttle(
    cache: Any,
    count: int,
    seconds: float,
    name: Optional[str] = None,
    expire: Optional[float] = None,
    tag: Any = None,
    time_func: Callable[[], float] = time.time,
    sleep_func: Callable[[float], Any] = time.sleep,
) -> _Decorator:
    """Returns a decorator: the function is called at most `count` times per `seconds`.

    Calls beyond that wait. After a pause, `count` calls may follow at once.
    """

    def decorator(function: Callable[..., Any]) -> Any:
        rate = count / float(seconds)
        key = full_name(function) if name is None else name

        def delay() -> float:
            """Takes a call, and returns 0; or the seconds until one is free."""
            with cache.transact(retry=True):
                now = time_func()
                last, free = cache.get(key, default=(now, count))
                free = min(free + max(now - last, 0) * rate, count)
                if free < 1:
                    return float((1 - free) / rate)
                cache.set(key, (now, free - 1), expire, tag=tag, retry=True)
                return 0

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            while True:
                seconds_left = delay()
                if not seconds_left:
                    return function(*args, **kwargs)
                sleep_func(seconds_left)

        return wrapper

    return decorator


def barrier(
    cache: Any,
    lock_factory: Callable[..., Any],
    name: Optional[str] = None,
    expire: Optional[float] = None,
    tag: Any = None,
) -> _Decorator:
    """Returns a decorator: the function is called with a lock of the class `lock_factory`."""

    def decorator(function: Callable[..., Any]) -> Any:
        key = full_name(function) if name is None else name
        lock = lock_factory(cache, key, expire=expire, tag=tag)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return function(*args, **kwargs)

        return wrapper

    return decorator


def memoize_stampede(
    cache: Any,
    expire: float,
    name: Optional[str] = None,
    typed: bool = False,
    tag: Any = None,
    beta: float = 1,
    ignore: Container[Any] = (),
) -> _Decorator:
    """Returns a decorator like `Cache.memoize`, which computes results again before they expire.

    So not all threads do so at once when one expires. One of them begins earlier, in a thread of
    its own, the more probably the longer the function takes and the sooner the result expires. A
    larger `beta` makes it earlier. After A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal
    Probabilistic Cache Stampede Prevention", VLDB 2015.
    """

    def decorator(function: Callable[..., Any]) -> Any:
        base = full_name(function) if name is None else name

        def timed_call(*args: Any, **kwargs: Any) -> tuple[Any, float]:
            start = time.time()
            result = function(*args, **kwargs)
            return result, time.time() - start

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            key = cache_key(*args, **kwargs)
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

        def compute(key: Any, args: Any, kwargs: Any) -> Any:
            pair = timed_call(*args, **kwargs)
            cache.set(key, pair, expire=expire, tag=tag, retry=True)
            return pair[0]

        def cache_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args_to_key(base, args, kwargs, typed, ignore)

        wrapper.__cache_key__ = cache_key  # type: ignore[attr-defined]
        return wrapper

    return decorator
