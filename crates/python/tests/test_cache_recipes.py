"""`Deque`, `Index` and the recipes."""

import collections
import random
import threading
import time
from unittest import mock

import pytest
from cabinet.cache import Cache
from cabinet.persistent import Deque, Index
from cabinet.recipes import (
    Averager,
    BoundedSemaphore,
    Lock,
    RLock,
    barrier,
    memoize_stampede,
    throttle,
)

pytestmark = pytest.mark.usefixtures("cache_mode")


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "cache", eviction_policy="none") as cache:
        yield cache


@pytest.mark.parametrize("maxlen", [None, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_deque_agrees_with_that_of_collections(cache, seed, maxlen):
    seeded = random.Random(seed)
    deque, model = Deque.fromcache(cache, maxlen=maxlen), collections.deque(maxlen=maxlen)
    for step in range(150):
        name = seeded.choice(
            ["append", "appendleft", "extend", "extendleft", "pop", "popleft", "remove"]
            + ["rotate", "reverse", "set", "delete", "get", "count"]
        )
        index = seeded.randrange(-3, 3)
        argument = {
            "append": (step,),
            "appendleft": (step,),
            "extend": ([step, "text"],),
            "extendleft": ([step, "text"],),
            "remove": ("text",),
            "rotate": (seeded.randrange(-7, 7),),
            "set": (index, step),
            "delete": (index,),
            "get": (index,),
            "count": ("text",),
        }.get(name, ())
        name = {"set": "__setitem__", "delete": "__delitem__", "get": "__getitem__"}.get(name, name)
        results = []
        for each in (deque, model):
            try:
                results.append(getattr(each, name)(*argument))
            except (IndexError, ValueError) as error:
                results.append(type(error))
        assert results[0] == results[1], name
        assert list(deque) == list(model) and list(reversed(deque)) == list(reversed(model))
        assert len(deque) == len(model)
    assert cache.check() == []


def test_a_deque_compares_and_peeks_like_a_sequence(cache):
    deque = Deque.fromcache(cache, [1, 2, 3])
    assert deque == [1, 2, 3] and deque != [1, 2] and deque < [1, 3] and deque >= (1, 2)
    assert deque.peek() == 3 and deque.peekleft() == 1 and 2 in deque
    with pytest.raises(InterruptedError):
        with deque.transact():
            deque.pop()
            raise InterruptedError
    assert deque.copy() == [1, 2, 3]
    deque.clear()
    with pytest.raises(IndexError, match="peek"):
        deque.peek()
    with pytest.raises(TypeError):
        hash(deque)


def test_an_index_agrees_with_an_ordered_dict(cache):
    seeded = random.Random(3)
    index, model = Index.fromcache(cache), collections.OrderedDict()
    for step in range(300):
        key = seeded.choice("abcdefgh")
        kind = seeded.randrange(7)
        if kind < 3:
            index[key] = model[key] = step
        elif kind == 3:
            assert index.pop(key, None) == model.pop(key, None)
        elif kind == 4:
            assert index.setdefault(key, step) == model.setdefault(key, step)
        elif kind == 5 and model:
            last = seeded.choice([True, False])
            assert index.popitem(last) == model.popitem(last)
        elif model:
            assert index.peekitem() == next(reversed(model.items()))
        assert index == model and list(index.items()) == list(model.items())
    assert list(reversed(index)) == list(reversed(model))
    other = collections.OrderedDict(reversed(model.items()))
    assert index != other and index == dict(other)
    with pytest.raises(KeyError):
        index.pop("none")
    index.clear()
    with pytest.raises(KeyError):
        index.popitem()


def run_together(function, count):
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("allowed", [1, 2])
@pytest.mark.parametrize("kind", [Lock, RLock, BoundedSemaphore])
def test_locks_exclude_threads(cache, kind, allowed):
    if kind is BoundedSemaphore:
        lock = BoundedSemaphore(cache, "lock", value=allowed)
    else:
        lock, allowed = kind(cache, "lock"), 1
    inside, most = [], []

    def work():
        for _ in range(5):
            with lock:
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    run_together(work, 4)
    assert max(most) <= allowed and len(most) == 20


def test_locks_are_released_only_by_those_that_have_them(cache):
    for lock in (RLock(cache, "a"), BoundedSemaphore(cache, "b")):
        with pytest.raises(AssertionError):
            lock.release()
        with lock:
            pass
        with pytest.raises(AssertionError):
            lock.release()
    with mock.patch("time.time", return_value=1e9) as clock:
        lock = Lock(cache, "c", expire=1)
        lock.acquire()
        assert lock.locked()
        clock.return_value += 2
        lock.acquire()  # It has expired.


def test_an_averager_adds_up(cache):
    average = Averager(cache, "key")
    assert average.get() is None
    run_together(lambda: [average.add(number) for number in range(10)], 3)
    assert average.get() == 4.5 and average.pop() == 4.5 and average.get() is None


def test_throttle_spaces_calls(cache):
    now, calls = [0.0], []

    def sleep(seconds):
        now[0] += seconds

    @throttle(cache, 2, 1, time_func=lambda: now[0], sleep_func=sleep)
    def work():
        calls.append(round(now[0], 6))

    for _ in range(6):
        work()
    assert calls == [0, 0, 0.5, 1, 1.5, 2]
    now[0] += 100
    calls.clear()
    for _ in range(3):
        work()
    assert calls == [102, 102, 102.5]


def test_barrier_lets_one_call_at_a_time(cache):
    inside = []

    @barrier(cache, Lock)
    def work():
        inside.append(1)
        assert len(inside) == 1
        time.sleep(0.005)
        inside.pop()

    run_together(work, 5)
    assert len(cache) == 0


def test_memoize_stampede_computes_again_before_the_end(cache):
    calls = []

    @memoize_stampede(cache, expire=3600, beta=1e12)
    def work(number):
        calls.append(number)
        time.sleep(0.001)
        return number, len(calls)

    assert work(5) == (5, 1)
    assert work(5) == (5, 1)  # The old result, while a thread computes the new one.
    deadline = time.monotonic() + 60
    while cache[work.__cache_key__(5)][0] == (5, 1) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert cache[work.__cache_key__(5)][0][0] == 5 and len(calls) >= 2

    @memoize_stampede(cache, expire=3600, name="calm", beta=0)
    def calm():
        calls.append(0)

    calls.clear()
    calm(), calm(), calm()
    assert calls == [0]
