"""Rate limiters, locks, caches and task results of Python frameworks over Redis's protocol.

Arguments: port of a running server, folder of the programs.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import celery
import flask
import flask_caching
import limits
import promises
import redis
from celery.contrib.testing.worker import start_worker
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)
from pottery import ExtendUnlockedLock, Redlock, ReleaseUnlockedLock, TooManyExtensions

PORT = int(sys.argv[1])
URL = f"redis://127.0.0.1:{PORT}"
WORKERS = 8
PATIENCE_S = 60

client = redis.Redis(port=PORT)


def until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def together(call):
    """Calls a function by many threads at once. Returns all results."""
    barrier = threading.Barrier(WORKERS)

    def work(_):
        barrier.wait()
        return [call() for _ in range(20)]

    with ThreadPoolExecutor(WORKERS) as pool:
        return [one for some in pool.map(work, range(WORKERS)) for one in some]


def raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind}")


def limiter(strategy):
    client.flushall()
    return strategy(limits.storage.RedisStorage(URL))


def test_limits_of_fixed_and_sliding_windows_hold_for_concurrent_clients():
    for strategy in (FixedWindowRateLimiter, SlidingWindowCounterRateLimiter):
        limited, limit = limiter(strategy), limits.parse("100 per hour")
        hits = together(lambda: limited.hit(limit, "user"))
        assert (sum(hits), len(hits)) == (100, 160)
        stats = limited.get_window_stats(limit, "user")
        assert stats.remaining == 0 and 3000 < stats.reset_time - time.time() < 3601, stats
        assert not limited.test(limit, "user") and limited.test(limit, "another")
        limited.clear(limit, "user")
        assert limited.hit(limit, "user")
        assert limited.get_window_stats(limit, "user").remaining == 99


def test_a_fixed_window_ends():
    limited, limit = limiter(FixedWindowRateLimiter), limits.parse("2 per second")
    assert limited.hit(limit, "user", cost=2)
    until(lambda: limited.hit(limit, "user", cost=2))


def test_a_sliding_window_counts_a_part_of_the_one_before():
    limited, limit = limiter(SlidingWindowCounterRateLimiter), limits.parse("10 per 1000 seconds")
    assert limited.hit(limit, "user", cost=8) and not limited.hit(limit, "user", cost=3)
    (key,) = client.keys("LIMITS:*")
    # The record is that of a window that ended half a window ago.
    assert client.pexpire(key, 500_000)
    assert limited.hit(limit, "user", cost=6)
    assert sorted(client.keys("LIMITS:*")) == sorted([key, key + b"/-1"])
    assert (client.get(key), client.get(key + b"/-1")) == (b"6", b"8")
    assert 1_000_000 < client.pttl(key) <= 1_500_000 and client.pttl(key + b"/-1") <= 500_000
    assert not limited.hit(limit, "user", cost=2)


def test_limits_are_reset_by_their_prefix():
    limited = limiter(FixedWindowRateLimiter)
    client.set("other", "v")
    for user in range(100):
        assert limited.hit(limits.parse("1 per hour"), str(user))
    assert limited.storage.reset() == 100 and client.keys() == [b"other"]


def test_a_moving_window_is_refused_as_it_is_a_list():
    limited = limiter(MovingWindowRateLimiter)
    error = raises(redis.ResponseError, lambda: limited.hit(limits.parse("1 per hour"), "user"))
    assert "LINDEX is not supported" in error, error


def redlock(**options):
    return Redlock(key="printer", masters={client}, raise_on_redis_errors=True, **options)


def test_a_redlock_excludes_is_extended_and_is_released():
    client.flushall()
    first, second = redlock(auto_release_time=1000), redlock(auto_release_time=1000)
    assert first.acquire() and not second.acquire(blocking=False)
    assert 900 < first.locked() <= 1000 and not second.locked()
    raises(ReleaseUnlockedLock, second.release)
    raises(ExtendUnlockedLock, second.extend)
    assert client.pexpire("redlock:printer", 100_000)
    first.extend()
    assert 900 < first.locked() <= 1000
    first.release()
    raises(ReleaseUnlockedLock, first.release)
    assert second.acquire(blocking=False)
    for _ in range(3):
        second.extend()
    raises(TooManyExtensions, second.extend)


def test_a_redlock_expires():
    client.flushall()
    first = redlock(auto_release_time=0.2)
    until(first.acquire)
    assert redlock().acquire(timeout=PATIENCE_S)
    raises(ReleaseUnlockedLock, first.release)


def test_one_thread_at_a_time_has_a_redlock():
    client.flushall()
    client.set("counter", 0)

    def add():
        with redlock(auto_release_time=1000):
            client.set("counter", int(client.get("counter")) + 1)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda _: add(), range(2 * WORKERS)))
    assert client.get("counter") == b"%d" % (2 * WORKERS)


def test_flask_caches_what_functions_return():
    client.flushall()
    app = flask.Flask("test")
    options = {"CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": URL, "CACHE_DEFAULT_TIMEOUT": 1000}
    cache = flask_caching.Cache(app, config=options)
    calls = []

    @cache.memoize()
    def double(number):
        calls.append(number)
        return 2 * number

    @app.route("/page")
    @cache.cached(timeout=500)
    def page():
        calls.append("page")
        return "text"

    with app.app_context():
        assert [double(2), double(2), double(3)] == [4, 4, 6] and calls == [2, 3]
        cache.delete_memoized(double, 2)
        assert [double(2), double(3)] == [4, 6] and calls == [2, 3, 2]
        assert cache.set_many({"a": 1, "b": [2]})
        assert cache.get_many("a", "missing", "b") == [1, None, [2]]
        assert cache.add("once", "v") and not cache.add("once", "w") and cache.get("once") == "v"
        assert cache.delete_many("a", "b") and not cache.has("a")
    pages = [app.test_client().get("/page").text for _ in range(3)]
    assert pages == ["text"] * 3 and calls[3:] == ["page"]
    (key,) = client.keys("*view*")
    assert 400 < client.ttl(key) <= 500
    client.set("other", "v")
    with app.app_context():
        assert cache.clear()
        assert double(3) == 6 and calls[4:] == [3]


def test_celery_stores_results_and_waits_for_them():
    client.flushall()
    app = celery.Celery("test", broker="memory://", backend=URL)
    app.conf.update(result_expires=1000, worker_hijack_root_logger=False)
    app.conf.broker_transport_options = {"polling_interval": 0.01}

    @app.task
    def divide(left, right):
        return left / right

    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="CRITICAL"):
        result = divide.delay(6, 2)
        assert result.get(timeout=PATIENCE_S) == 3 and result.successful()
        assert 900 < client.ttl(f"celery-task-meta-{result.id}") <= 1000
        failed = divide.delay(1, 0)
        raises(ZeroDivisionError, lambda: failed.get(timeout=PATIENCE_S))
        assert failed.failed() and "divide" in failed.traceback
        # Each result is announced on a channel of its own.
        group = celery.group(divide.s(number, 1) for number in range(50)).delay()
        assert group.get(timeout=PATIENCE_S) == list(range(50))
        group.save()
        again = app.GroupResult.restore(group.id)
        assert again.completed_count() == 50 and again.join(timeout=PATIENCE_S)[49] == 49
        result.forget()
        assert app.AsyncResult(result.id).state == "PENDING"


promises.keep(dict(globals()))
