"""`Cache`: changes, expiry, eviction, queues, transactions, files, check."""

import contextlib
import io
import multiprocessing
import os
import pathlib
import pickle
import random
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import cabinet
import pytest
from cabinet import _cache_storage
from cabinet._cache_processes import Processes
from cabinet.cache import ENOVAL, Cache, EmptyDirWarning, FanoutCache, Timeout, UnknownFileWarning
from cabinet.persistent import Deque, Index
from test_shared import server_of, wait_until

pytestmark = pytest.mark.usefixtures("cache_mode")

LARGE = b"large" * 10_000

#: Seconds that a test waits before it fails.
LIMIT = 60

POLICIES = list(_cache_storage.POLICIES)


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "cache") as cache:
        yield cache


def entries(cache):
    """Returns all entries of the tree but counts, settings and marks."""
    storage = cache._storage
    with storage.transaction(-1):
        storage.write_notes()
    found = storage.store.iter_items()
    return {key: value for key, value in found if key[:1] not in b"cswv"}


def texts(found):
    return [str(warning.message) for warning in found]


def files(cache):
    return sorted(cache._storage.files())


# Changes, compared with a model.


class Model:
    """The same operations over a dict, in memory."""

    def __init__(self, cache, now):
        self.cache = cache
        self.rows = {}
        self.now = now

    def live(self, key):
        row = self.rows.get(key)
        return row if row is not None and (row[1] is None or row[1] > self.now) else None

    def step(self, seeded):
        cache, key = self.cache, seeded.choice([1, 2.5, "a", "b", b"c", ("d",), "e" * 5000])
        value = seeded.choice([0, 7, "text", b"bytes", (1, [2]), LARGE, "long" * 20_000])
        expire = seeded.choice([None, None, 5, 50])
        tag = seeded.choice([None, None, "red", 5, b"blue"])
        end = None if expire is None else self.now + expire
        row = self.live(key)
        kind = seeded.randrange(10)
        if kind < 4:
            assert cache.set(key, value, expire, tag=tag) is True
            self.rows[key] = (value, end, tag)
        elif kind == 4:
            assert cache.add(key, value, expire, tag=tag) is (row is None)
            if row is None:
                self.rows[key] = (value, end, tag)
        elif kind == 5:
            default = (None, None, None)
            assert cache.pop(key, expire_time=True, tag=True) == (row or default)
            if row is not None:
                del self.rows[key]
        elif kind == 6:
            assert cache.delete(key) is (row is not None)
            if row is not None:
                del self.rows[key]
        elif kind == 7:
            assert cache.touch(key, expire) is (row is not None)
            if row is not None:
                self.rows[key] = (row[0], end, row[2])
        elif kind == 8:
            if row is None or type(row[0]) is int:
                old, old_end, old_tag = row or (10, None, None)
                assert cache.incr(key, 3, default=10) == old + 3
                self.rows[key] = (old + 3, old_end, old_tag)
        else:
            self.now += 3
            if not seeded.randrange(4):
                of_tag = [
                    key for key, row in self.rows.items() if row[2] == tag and tag is not None
                ]
                assert cache.evict(tag) == len(of_tag)
                for key in of_tag:
                    del self.rows[key]

    def compare(self):
        assert len(self.cache) == len(self.rows)
        for key in [1, 2.5, "a", "b", b"c", ("d",), "e" * 5000]:
            expected = self.live(key) or (None, None, None)
            assert self.cache.get(key, expire_time=True, tag=True) == expected
            assert (key in self.cache) is (self.live(key) is not None)
        assert set(self.cache) == set(self.rows)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_agree_with_a_model(tmp_path, policy, seed):
    seeded = random.Random(seed)
    with mock.patch("time.time") as clock:
        clock.return_value = now = 1e9
        with Cache(tmp_path, cull_limit=0, eviction_policy=policy) as cache:
            model = Model(cache, now)
            for _ in range(6):
                saved = dict(model.rows)
                try:
                    with cache.transact() if seeded.randrange(2) else mock.MagicMock():
                        for _ in range(seeded.randrange(1, 25)):
                            model.step(seeded)
                            clock.return_value = model.now
                        if seeded.randrange(2) and cache._storage.depth:
                            raise InterruptedError
                except InterruptedError:
                    model.rows = saved
                model.compare()
                assert texts(cache.check()) == []
        with Cache(tmp_path) as cache:
            model.cache = cache
            model.compare()
            assert texts(cache.check()) == []
            assert cache.clear() == len(model.rows)
            assert entries(cache) == {} and files(cache) == []
            assert cache.volume() == len(cache) == 0


# Expiry and eviction.


def test_a_change_removes_a_few_that_have_expired(cache):
    with mock.patch("time.time", return_value=1e9) as clock:
        for number in range(30):
            cache.set(number, number, expire=number + 1)
        clock.return_value = 1e9 + 29
        assert cache.get(28) is None and 28 not in cache and cache[29] == 29
        cache["new"] = 1
        assert list(cache) == [*range(10, 30), "new"]
        assert cache.expire() == 18 and list(cache) == [28, 29, "new"]
    assert texts(cache.check()) == []


def test_expiry_is_found_again_after_a_rollback(cache):
    cache.reset("cull_limit", 5)
    with mock.patch("time.time", return_value=1e9):
        cache.set("old", 1, expire=1)
    with mock.patch("time.time", return_value=1e9 + 5):
        with pytest.raises(InterruptedError):
            with cache.transact():
                cache["one"] = 1
                assert "old" not in list(cache)
                raise InterruptedError
        assert list(cache) == ["old"]
        cache["one"] = 1
        assert list(cache) == ["one"]


def fill(cache, count):
    with mock.patch("time.time") as clock:
        for number in range(count):
            clock.return_value = 1e9 + number
            cache[number] = b"x" * 1000


@pytest.mark.parametrize("is_late", [False, True], ids=["at first", "set later"])
@pytest.mark.parametrize(
    "policy, left",
    [
        ("none", range(20)),
        ("least-recently-stored", [*range(11, 20), 0]),
        ("least-recently-used", [*range(12, 20), 3, 0]),
        ("least-frequently-used", [*range(12, 20), 3, 0]),
    ],
)
def test_each_policy_evicts_in_its_order(tmp_path, policy, left, is_late):
    with Cache(tmp_path, cull_limit=0, eviction_policy="none" if is_late else policy) as cache:
        fill(cache, 20)
        if is_late:
            cache.reset("eviction_policy", policy)
        cache[0] = b"x" * 1000
        for _ in range(3):
            cache[3], cache[0]
        cache.reset("size_limit", cache.volume() // 2)
    with Cache(tmp_path) as cache:
        assert cache.eviction_policy == policy
        cache.cull()
        assert set(cache) == set(left)
        assert texts(cache.check()) == []


def test_reads_are_written_before_there_are_too_many(cache):
    cache.reset("eviction_policy", "least-frequently-used")
    for number in range(_cache_storage.NOTES_MAX + 10):
        cache[number] = number
    for number in range(_cache_storage.NOTES_MAX + 10):
        cache[number]
    assert len(cache._storage._notes) < 10
    assert texts(cache.check()) == []


@pytest.mark.alone
def test_a_kill_while_the_order_is_rebuilt_is_repaired(tmp_path):
    with Cache(tmp_path) as cache:
        fill(cache, 50)
        expected = entries(cache)
        storage = cache._storage
        with storage.transaction(-1):
            storage.put(_cache_storage._REBUILDING, b"")
            for key in [key for key in expected if key[:1] == b"o"][:20]:
                storage.remove(key)
            storage.put(b"o" + bytes(16), b"k")
    with Cache(tmp_path) as cache:
        assert entries(cache) == expected
        assert texts(cache.check()) == []


def test_an_unknown_policy_is_refused(tmp_path, cache):
    with pytest.raises(ValueError, match="least-recently-used"):
        Cache(tmp_path / "other", eviction_policy="best")
    with pytest.raises(ValueError, match="least-recently-used"):
        cache.reset("eviction_policy", "best")
    cache["a"] = 1
    assert texts(cache.check()) == [] and cache.eviction_policy == "least-recently-stored"


# Queues.


def test_a_tag_may_be_a_bool(cache):
    cache.set("a", 1, tag=True)
    cache.set("b", 1, tag=1)
    cache.set("c", 1, tag=False)
    assert cache.get("a", tag=True) == (1, 1)
    assert texts(cache.check()) == []
    assert cache.evict(True) == 2 and list(cache) == ["c"]
    assert cache.evict(0) == 1 and entries(cache) == {}


def test_seconds_and_sizes_are_not_bools(tmp_path, cache):
    for use in (
        lambda: cache.set("a", 1, expire=True),
        lambda: cache.add("a", 1, expire=False),
        lambda: cache.touch("b", True),
        lambda: cache.push(1, expire=True),
        lambda: cache.memoize(expire=True),
        lambda: cache.expire(True),
        lambda: Cache(tmp_path / "b", timeout=True),
        lambda: Cache(tmp_path / "b", durability=True),
        lambda: Cache(tmp_path / "b", size_limit=True),
        lambda: cache.reset("cull_limit", False),
    ):
        cache["b"] = 1
        with pytest.raises(TypeError, match="bool|durability"):
            use()
    with pytest.raises(ValueError, match="expire=nan"):
        cache.set("a", 1, expire=float("nan"))
    assert list(cache) == ["b"]


def test_an_unknown_setting_is_refused_by_its_name(tmp_path):
    with pytest.raises(TypeError, match="'sizelimit'.*size_limit"):
        Cache(tmp_path / "a", sizelimit=5)
    with Cache(tmp_path / "a", sqlite_mmap_size=5, disk_min_file_size=5) as cache:
        assert cache.disk_min_file_size == 5


def test_a_queue_agrees_with_a_model(cache):
    seeded = random.Random(5)
    models = {None: [], "a": [], "a-b": []}
    for _ in range(300):
        prefix, model = seeded.choice(list(models.items()))
        side = seeded.choice(["front", "back"])
        at = 0 if side == "front" else -1
        value = seeded.choice([1, "two", (3,), LARGE])
        kind = seeded.randrange(5)
        if kind < 2:
            key = cache.push(value, prefix, side)
            model.insert(0 if side == "front" else len(model), (key, value))
        elif kind < 4:
            default = (None, None)
            assert cache.peek(prefix, side=side) == (model[at] if model else default)
            assert cache.pull(prefix, side=side) == (model.pop(at) if model else default)
        else:
            with cache.transact():
                cache.push(value, prefix, side)
                assert cache.pull(prefix, side=side)[1] == value
    assert len(cache) == sum(map(len, models.values()))
    assert texts(cache.check()) == []
    with pytest.raises(ValueError, match="side"):
        cache.push(1, side="left")


@pytest.mark.parametrize("prefix", [None, "q"])
@pytest.mark.parametrize("side", ["front", "back"])
def test_a_push_never_replaces_a_value(cache, prefix, side):
    def key(number):
        return number if prefix is None else f"{prefix}-{number:015d}"

    ends = [key(number) for number in (0, 1, 999999999999998, 999999999999999)]
    others = [5.5, -1, "q-5", "q-7-000000000000009", "q-00000000000009a", "q-", "q-5x"]
    for end in ends:
        for name in others:
            cache[name] = "other"
        cache[end] = "end"
        pushed = {}
        for number in range(3):
            try:
                pushed[cache.push(number, prefix, side)] = number
            except cabinet.TooManyError as error:
                assert "no key is left" in str(error)
        assert all(cache[name] == "other" for name in others) and cache[end] == "end"
        assert [cache[name] for name in pushed] == list(pushed.values())
        assert len(cache) == len(others) + 1 + len(pushed)
        found = [cache.pull(prefix, side="back" if side == "front" else "front") for _ in range(5)]
        assert {name for name, _ in found} - {None} <= {end, *pushed}
        assert texts(cache.check()) == []
        cache.clear()


def test_queues_whose_prefix_begins_another_one_are_apart(cache):
    for prefix in ("a", "a-5", "a-"):
        for number in range(3):
            cache.push(f"{prefix}{number}", prefix)
    for prefix in ("a", "a-5", "a-"):
        assert [cache.pull(prefix)[1] for _ in range(3)] == [f"{prefix}{n}" for n in range(3)]
        assert cache.pull(prefix) == (None, None)


def test_a_prefix_has_a_limit(cache):
    longest = _cache_storage.KEY_BYTES_MAX - 16
    keys = [cache.push(number, "p" * longest) for number in range(3)]
    assert [cache.pull("p" * longest) for _ in range(3)] == list(zip(keys, range(3)))
    for use in (lambda prefix: cache.push(1, prefix), cache.pull, cache.peek):
        with pytest.raises(cabinet.KeyTooLongError, match="prefix"):
            use("p" * (longest + 1))
        with pytest.raises(TypeError, match="prefix=5"):
            use(5)
    assert len(cache) == 0


def test_a_queue_of_another_disk_has_the_same_keys(tmp_path):
    with Cache(tmp_path / "json", disk=cabinet.cache.JSONDisk) as cache:
        keys = [cache.push([number], "q") for number in range(2)]
        assert cache.peek("q") == (keys[0], [0]) and cache.pull("q") == (keys[0], [0])


def test_a_value_whose_file_is_gone_is_passed_over(cache):
    for value in (LARGE, LARGE + b"2", "small"):
        cache.push(value)
    with cache.read(500000000000000) as reader:
        os.remove(reader.name)
    assert cache.get(500000000000000) is None
    assert cache.pull() == (500000000000001, LARGE + b"2")
    cache.push(LARGE, side="front")
    with cache.read(500000000000001) as reader:
        os.remove(reader.name)
    assert cache.peek() == (500000000000002, "small")
    assert cache.peekitem(last=False) == (500000000000002, "small")


# Transactions.


def test_a_transaction_is_seen_by_its_thread_alone_until_its_end(cache):
    cache["old"], cache["gone"] = 1, LARGE
    seen = {}

    def look():
        seen.update({key: cache[key] for key in cache}, keys=list(cache.iterkeys()))

    with cache.transact():
        with cache.transact():
            cache["new"] = LARGE
        del cache["gone"]
        cache.incr("old")
        assert list(cache) == ["old", "new"] and list(reversed(cache)) == ["new", "old"]
        assert list(cache.iterkeys()) == ["new", "old"]
        assert cache["old"] == 2 and cache["new"] == LARGE and "gone" not in cache
        assert cache.peekitem() == ("new", LARGE)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == {"old": 1, "gone": LARGE, "keys": ["gone", "old"]}
    look()
    assert seen["new"] == LARGE and seen["old"] == 2
    assert len(files(cache)) == 1


def test_long_iterations_within_a_transaction_see_its_changes(cache):
    for number in range(0, 1500, 2):
        cache[number] = number
    with cache.transact():
        for number in range(1, 1500, 2):
            cache[number] = number
        for number in range(0, 1500, 3):
            del cache[number]
        expected = [number for number in range(1500) if number % 3]
        assert list(cache.iterkeys()) == expected
        assert list(cache.iterkeys(reverse=True)) == expected[::-1]
        assert set(cache) == set(expected)
    assert texts(cache.check()) == []


def test_a_rollback_undoes_everything(cache):
    cache.set("kept", LARGE, tag="tag")
    before, before_files, volume = entries(cache), files(cache), cache.volume()
    with pytest.raises(InterruptedError):
        with cache.transact():
            cache["new"] = LARGE
            cache["kept"] = 1
            cache.evict("tag")
            cache.push(LARGE)
            cache.pull()
            cache.pop("new")
            cache.add("other", LARGE)
            raise InterruptedError
    assert entries(cache) == before and files(cache) == before_files
    assert (len(cache), cache.volume()) == (1, volume)
    assert cache["kept"] == LARGE and texts(cache.check()) == []


def test_a_failed_change_leaves_nothing(cache):
    with pytest.raises(TypeError):
        cache.set("key", LARGE, tag=object())
    with pytest.raises(TypeError):
        cache.set("key", LARGE, expire="soon")
    assert files(cache) == [] and len(cache) == 0 and texts(cache.check()) == []
    with pytest.raises(TypeError):
        with cache.transact():
            cache["before"] = LARGE
            cache.set("key", LARGE, tag=object())
    assert files(cache) == [] and len(cache) == 0 and texts(cache.check()) == []


def hold(cache):
    """Begins a transaction in a thread. Returns a function that ends it."""
    held, done = threading.Event(), threading.Event()

    def run():
        with cache.transact():
            held.set()
            done.wait()

    thread = threading.Thread(target=run)
    thread.start()
    held.wait()

    def release():
        done.set()
        thread.join()

    return release


def test_a_change_waits_for_the_timeout(tmp_path):
    with Cache(tmp_path, timeout=0.01) as cache, FanoutCache(tmp_path, timeout=0.01) as fanout:
        cache["key"] = 1
        release = hold(cache)
        for change in (
            lambda: cache.set("key", LARGE),
            lambda: cache.add("new", LARGE),
            lambda: cache.incr("key"),
            lambda: cache.delete("key"),
            lambda: cache.clear(),
            lambda: cache.push(1),
        ):
            with pytest.raises(Timeout):
                change()
        assert cache["key"] == 1 and files(cache) == []
        assert fanout.set("key", 2) is False and fanout.add("new", 2) is False
        assert fanout.delete("key") is False and fanout.incr("key") is None
        assert fanout.clear() == 0 and fanout.get("key") == 1 and fanout.pop("key", 5) == 5
        threading.Timer(0.05, release).start()
        assert cache.set("key", 3, retry=True) is True
        assert cache["key"] == 3


# Objects, threads, processes.


def test_objects_of_one_folder_share_what_is_open(tmp_path):
    one, two = Cache(tmp_path), Cache(os.path.join(tmp_path, "..", tmp_path.name))
    one["a"] = 1
    two.reset("eviction_policy", "least-recently-used")
    assert two["a"] == 1 and one.eviction_policy == "least-recently-used" and len(two) == 1
    one.close()
    two["b"] = 2
    assert one["b"] == 2  # It is opened again.
    one.close()
    two.close()
    two.close()
    assert _cache_storage._opened.get(os.path.realpath(tmp_path)) is None
    with Cache(tmp_path) as cache:
        assert list(cache) == ["a", "b"]


def test_a_cache_that_is_dropped_is_closed(tmp_path):
    Cache(tmp_path)["a"] = 1
    assert _cache_storage._opened.get(os.path.realpath(tmp_path)) is None


def test_a_folder_that_was_removed_may_be_made_again(tmp_path):
    import shutil

    old = Cache(tmp_path / "cache")
    old["a"] = 1
    shutil.rmtree(old.directory)
    with Cache(tmp_path / "cache") as new:
        assert len(new) == 0
        new["b"] = 2
        old.close()
        assert new["b"] == 2


def test_settings_are_kept_and_set_by_reset_alone(tmp_path):
    with Cache(tmp_path, size_limit=1000, sqlite_mmap_size=5) as cache:
        assert cache.reset("cull_limit", 3) == cache.reset("cull_limit") == 3
        with pytest.raises(AttributeError, match="reset"):
            cache.cull_limit = 5
        with pytest.raises(AttributeError):
            cache.unknown  # noqa: B018
    with Cache(tmp_path, size_limit=2000) as cache:
        assert (cache.cull_limit, cache.size_limit, cache.sqlite_mmap_size) == (3, 2000, 5)
        assert cache.statistics == 0
        cache.stats(enable=True)
        cache.get(1)
    with Cache(tmp_path) as cache:
        assert cache.stats() == (0, 1)


def test_caches_deques_and_indices_are_pickled_as_their_folder(tmp_path):
    cache = Cache(tmp_path / "cache", timeout=5, pickle=True)
    fanout = FanoutCache(tmp_path / "fanout", shards=3)
    deque = Deque("abc", tmp_path / "deque", maxlen=2)
    index = Index(str(tmp_path / "index"), a=1)
    cache["a"] = fanout["a"] = {1}
    again = [pickle.loads(pickle.dumps(each)) for each in (cache, fanout, deque, index)]
    assert again[0]["a"] == again[1]["a"] == {1} and type(again[1]) is FanoutCache
    assert again[0].timeout == 5 and type(again[0].disk) is type(cache.disk)
    assert again[2] == ["b", "c"] and again[2].maxlen == 2 and again[3] == {"a": 1}


def test_threads_lose_no_change(cache):
    def work(number):
        for step in range(60):
            cache.incr("total")
            cache.set((number, step), LARGE if step % 10 == 0 else step, tag=number)
            cache.push(step, prefix="queue")
            if step % 3 == 0:
                cache.pull(prefix="queue")
                cache.pop((number, step - 3))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache["total"] == 360
    assert texts(cache.check()) == []
    for number in range(6):
        assert cache.evict(number) == 60 - 19
    assert len(cache) == 1 + 240


def test_readers_never_miss_a_value_that_is_replaced(cache):
    cache["key"] = LARGE
    done = threading.Event()
    seen = []

    def read():
        while not done.is_set():
            seen.append(len(cache.get("key", b"")))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(100):
        cache["key"] = LARGE + b"x" * number
    done.set()
    for thread in threads:
        thread.join()
    assert min(seen) >= len(LARGE)
    assert len(files(cache)) == 1


@pytest.mark.alone
def test_another_process_gets_a_clear_error(tmp_path, cache):
    script = "import sys, cabinet.cache\ncabinet.cache.Cache(sys.argv[1], shared=False)"
    command = [sys.executable, "-c", script, cache.directory]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and "InUseError" in run.stderr
    cache.close()
    assert subprocess.run(command).returncode == 0
    cache["a"] = 1


def in_child(cache, folder, results):
    try:
        cache["b"] = 2
    except cabinet.Error as error:
        results.put(type(error).__name__)
    with Cache(folder) as other:
        other["c"] = 3
        results.put(other["c"])


@pytest.mark.alone
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_of_a_fork_opens_caches_of_its_own(tmp_path, cache):
    cache["a"] = 1
    release = hold(cache)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = context.Process(target=in_child, args=(cache, tmp_path / "other", results))
        child.start()
    assert results.get(timeout=60) == "ForkedError"
    assert results.get(timeout=60) == 3
    child.join()
    assert child.exitcode == 0
    release()
    cache["b"] = 2
    assert dict((key, cache[key]) for key in cache) == {"a": 1, "b": 2}
    assert texts(cache.check()) == []


# Files.


class Chunks:
    """A file of many bytes, which are made as they are read."""

    def __init__(self, size):
        self.left = size

    def read(self, size=-1):
        size = min(size, self.left)
        self.left -= size
        return b"x" * size


def test_a_large_value_goes_through_a_file(cache):
    tracemalloc.start()
    try:
        cache.set("large", Chunks(50_000_000), read=True, tag="tag")
        with cache.get("large", read=True) as reader:
            assert reader.read(5) == b"xxxxx"
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert cache.volume() > 50_000_000
    reader, tag = cache.get("large", read=True, tag=True)
    with reader:
        assert tag == "tag" and os.path.getsize(reader.name) == 50_000_000
    assert cache.get("none", read=True) is None
    with pytest.raises(KeyError):
        cache.read("none")
    cache["small"] = b"small"
    assert cache.read("small") == b"small"
    del cache["large"]
    assert files(cache) == [] and os.listdir(cache.directory) == [_cache_storage.TREE_NAME]


def test_a_file_that_was_cut_is_a_miss(cache):
    cache["key"] = LARGE
    with open(os.path.join(cache.directory, files(cache)[0]), "r+b") as file:
        file.truncate(100)
    assert cache.get("key") is None and cache.get("key", read=True) is None
    assert len(cache.check()) == 1
    cache.check(fix=True)
    assert len(cache) == 0 and files(cache) == [] and texts(cache.check()) == []


def test_a_file_of_a_failed_write_is_removed(cache):
    class Broken:
        def read(self, size=-1):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        cache.set("key", Broken(), read=True)
    assert files(cache) == []


def test_a_row_cannot_name_a_file_outside(cache, tmp_path):
    (tmp_path / "secret").write_bytes(LARGE)
    storage = cache._storage
    with storage.transaction(-1):
        packed = _cache_storage.pack_key("key", True)
        storage.set_row(packed, None, 0, float("inf"), None, (len(LARGE), 2, "../secret", None))
    with pytest.raises(ValueError, match="outside"):
        cache["key"]


# Check.


def test_check_finds_and_repairs_damage(cache):
    for number in range(5):
        cache.set(number, LARGE if number % 2 else number, expire=1000, tag="tag")
    cache.reset("eviction_policy", "least-recently-used")
    cache[1], cache[2]
    assert texts(cache.check()) == []
    good, good_files, volume = entries(cache), files(cache), cache.volume()
    storage = cache._storage
    for key in good:
        if key[:1] in b"kf":
            continue
        storage.store.remove(key)
        if key[:1] != b"u":
            assert len(cache.check()) >= 1, key
        cache.check(fix=True)
        assert texts(cache.check()) == []
    for key in [*good, b"u" + bytes(8)]:
        stray = key[:-8] + bytes(8)
        if key[:1] != b"k":
            storage.store.put(stray, good.get(key, b""))
            assert len(cache.check()) == 1, key
            cache.check(fix=True)
            assert texts(cache.check()) == []
    storage.store.put(b"kbroken", b"broken")
    cache.reset("count", 100)
    cache.reset("size", 5)
    assert len(cache.check()) == 3
    cache.check(fix=True)
    assert texts(cache.check()) == [] and len(cache) == 5 and cache.volume() == volume
    assert files(cache) == good_files


def test_check_finds_files_and_folders_that_no_value_has(cache):
    cache["key"] = LARGE
    folder = os.path.join(cache.directory, "some", "folder")
    os.makedirs(folder)
    os.makedirs(os.path.join(cache.directory, "empty"))
    with open(os.path.join(folder, "file"), "w") as file:
        file.write("text")
    assert [warning.category for warning in cache.check()] == [UnknownFileWarning, EmptyDirWarning]
    cache.check(fix=True)
    assert texts(cache.check()) == []
    assert len(files(cache)) == 1 and sorted(os.listdir(cache.directory))[-1] != "some"


# Memoizing, names.


def test_the_package_has_the_names_of_caches():
    assert cabinet.Cache is Cache and cabinet.FanoutCache is FanoutCache
    assert cabinet.Deque is Deque and cabinet.Index is Index
    assert {"Cache", "Deque", "FanoutCache", "Index"} <= set(cabinet.__all__)
    with pytest.raises(AttributeError):
        cabinet.Cachet  # noqa: B018


def test_memoize_makes_keys_of_arguments(cache):
    calls = []

    @cache.memoize(name="work", typed=True, ignore={"skipped", 1}, tag="tag")
    def work(*args, **kwargs):
        calls.append(args)
        return args, kwargs

    assert (
        work(1, 2, a=3, skipped=4) == work(1, 5, skipped=6, a=3) == ((1, 2), {"a": 3, "skipped": 4})
    )
    assert len(calls) == 1
    work(1.0, 2, a=3)
    assert len(calls) == 2
    assert work.__wrapped__(7) == ((7,), {}) and len(cache) == 2
    assert cache[work.__cache_key__(1, 2, a=3)] == ((1, 2), {"a": 3, "skipped": 4})
    with pytest.raises(TypeError, match="callable"):
        cache.memoize(work)
    assert cache.evict("tag") == 2

    @cache.memoize(expire=0)
    def none():
        return calls.append(0)

    none(), none()
    assert len(cache) == 0 and cache.get(none.__cache_key__(), ENOVAL) is ENOVAL


def test_a_stored_file_may_come_from_any_reader(cache):
    assert cache.push(io.BytesIO(LARGE), read=True) and cache.pull()[1] == LARGE
    assert cache.add("key", io.BytesIO(b""), read=True) and cache["key"] == b""
    assert not cache.add("key", io.BytesIO(LARGE), read=True)
    assert len(files(cache)) == 1


def test_settings_are_rolled_back(cache):
    cache["a"] = 1
    with pytest.raises(InterruptedError):
        with cache.transact():
            cache.reset("size_limit", 5)
            cache.reset("eviction_policy", "least-frequently-used")
            raise InterruptedError
    assert cache.size_limit == 1 << 30 and cache.eviction_policy == "least-recently-stored"
    cache["b"] = 1
    assert texts(cache.check()) == []


def test_an_interrupted_commit_leaves_one_state(cache):
    cache["old"] = LARGE

    write = cache._storage._write

    def interrupt(changes):
        write(changes)
        raise KeyboardInterrupt

    with mock.patch.object(cache._storage, "_write", interrupt):
        with pytest.raises(KeyboardInterrupt):
            cache["new"] = LARGE
    assert cache["old"] == cache["new"] == LARGE and len(cache) == 2
    assert texts(cache.check()) == []


def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Cache("cache") as cache:
        cache["key"] = LARGE
        monkeypatch.chdir("/")
        cache.close()
        assert cache["key"] == LARGE and cache.directory == str(tmp_path / "cache")
    index = Index(os.fsencode(tmp_path / "index"), a=1)
    assert index == {"a": 1} == Index(tmp_path / "index")


def test_a_damaged_row_is_an_error(cache):
    cache["key"] = 1
    key = _cache_storage.pack_key("key", True)[0]
    for data in (b"", b"x" * 100, cache._storage.get(key)[:40]):
        cache._storage.store.put(key, data)
        with pytest.raises(ValueError, match="row"):
            cache["key"]


def test_the_program_of_the_page_runs(tmp_path):
    page = pathlib.Path(__file__).parents[3] / "docs" / "diskcache.md"
    program = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert "/tmp/example-cache" in program
    exec(program.replace("/tmp/example-cache", str(tmp_path / "cache")), {})


def test_opening_a_cache_does_not_wait_for_a_transaction(tmp_path, cache):
    release = hold(cache)
    with Cache(cache.directory) as same, Cache(tmp_path / "other") as other:
        same.get("key")
        other["key"] = 1
        with other.transact(), Cache(tmp_path / "third") as third:
            third["key"] = 1
    setter = threading.Thread(target=Cache, args=(cache.directory,), kwargs={"cull_limit": 1})
    setter.start()
    Cache(tmp_path / "fourth")["key"] = 1
    assert setter.is_alive() and cache.cull_limit == 10
    release()
    setter.join()
    assert cache.cull_limit == 1


def test_a_policy_is_set_while_others_use_the_cache(cache):
    done = threading.Event()

    def work():
        number = 0
        while not done.is_set():
            cache.set(number % 700, number, tag=number % 3)
            cache.get(number % 500)
            if number % 5 == 0:
                cache.delete((number + 9) % 700)
            number += 1

    threads = [threading.Thread(target=work) for _ in range(2)]
    for number in range(1200):
        cache[number] = number
    for thread in threads:
        thread.start()
    for policy in POLICIES * 2:
        cache.reset("eviction_policy", policy)
    done.set()
    for thread in threads:
        thread.join()
    assert texts(cache.check()) == [] and cache.eviction_policy == POLICIES[-1]


@pytest.mark.parametrize("side", ["front", "back"])
def test_a_long_queue_is_not_passed_over_again(cache, side):
    class Counting:
        """A cursor whose movements are counted."""

        def __init__(self, cursor):
            self.cursor = cursor
            self.steps = 0

        def __getattr__(self, name):
            self.steps += name in ("next", "prev")
            return getattr(self.cursor, name)

    with cache.transact():
        for number in range(1000):
            cache.push(number)
    cursor = Counting(cache._storage._cursor)
    cache._storage._cursor = cursor
    with cache.transact():
        for _ in range(500):
            cache.pull(side=side)
        # Those that were found before are removed in the transaction.
        assert cursor.steps < 1500
        cache.push("new", side=side)
        assert cache.pull(side=side)[1] == "new"
    with pytest.raises(InterruptedError):
        with cache.transact():
            first = [cache.pull(side=side) for _ in range(5)]
            raise InterruptedError
    assert [cache.pull(side=side) for _ in range(5)] == first
    assert len(cache) == 495 and texts(cache.check()) == []


def test_check_leaves_other_caches_below_the_folder(tmp_path):
    fanout = FanoutCache(tmp_path / "fanout")
    users, jobs, names = fanout.cache("users"), fanout.deque("jobs"), fanout.index("names")
    users["a"], names["b"] = "x" * 100_000, "y" * 100_000
    jobs.append("z" * 100_000)
    stray = tmp_path / "fanout" / "stray"
    stray.write_text("of no row")
    found = texts(fanout.check(fix=True))
    assert len(found) == 1 and "stray" in found[0]
    assert not stray.exists()
    assert fanout.check() == []
    assert users["a"] == "x" * 100_000 and names["b"] == "y" * 100_000
    assert list(jobs) == ["z" * 100_000]


@pytest.mark.alone
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_is_read_only(tmp_path, policy):
    folder = tmp_path / "cache"
    with Cache(folder, eviction_policy=policy, size_limit=1 << 20, cull_limit=0) as cache:
        cache.push("gone", "q", expire=-1)
        cache.push("left", "q")
        cache.set("a", LARGE, tag="t")
        cache.set("b", 2, expire=3600)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in paths}
    with Cache(folder, read_only=True) as cache, Cache(folder, read_only=True) as other:
        assert cache["a"] == other["a"] == LARGE and cache["b"] == 2 and "x" not in cache
        assert cache.size_limit == 1 << 20 and cache.get("a", tag=True)[1] == "t"
        assert len(cache) == len(list(cache)) == len(list(cache.iterkeys())) > 2
        assert cache.peek("q") == ("q-500000000000001", "left") == cache.peek("q")
        assert cache.peekitem() == ("b", 2) and texts(cache.check()) == []
        for _ in range(_cache_storage.NOTES_MAX + 5):
            cache["b"]
        with cache.transact():
            assert cache["b"] == 2
        for change in (
            lambda: cache.set("a", 1),
            lambda: cache.set("c", LARGE),
            lambda: cache.add("c", 1),
            lambda: cache.incr("b"),
            lambda: cache.touch("b"),
            lambda: cache.push(1),
            lambda: cache.pull("q"),
            lambda: cache.pop("b"),
            lambda: cache.delete("b"),
            lambda: cache.evict("t"),
            cache.clear,
            lambda: cache.expire(1 << 40),
            lambda: cache.reset("cull_limit", 5),
            lambda: cache.check(fix=True),
        ):
            with pytest.raises(cabinet.ReadOnlyError, match="without read_only=True"):
                change()
        with pytest.raises(cabinet.InUseError):
            Cache(folder)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert before == {path: path.read_bytes() for path in paths}
    with pytest.raises(cabinet.IoError, match="missing"):
        Cache(tmp_path / "missing", read_only=True)
    assert not (tmp_path / "missing").exists()
    with pytest.raises(ValueError, match="directory"):
        Cache(read_only=True)


# Closing.


def check_when_closed(path):
    """Checks a tree. The server of a shared one ends a moment after the cache is closed."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            return cabinet.check(path)
        except cabinet.InUseError:
            if time.monotonic() > end:
                raise
        time.sleep(0.01)


def run_threads(*functions):
    """Runs functions in threads at once, and raises what one of them has raised."""
    with ThreadPoolExecutor(len(functions)) as pool:
        for future in [pool.submit(function) for function in functions]:
            future.result(LIMIT)


def test_closing_in_one_thread_leaves_the_others_at_work(tmp_path):
    cache = Cache(tmp_path, statistics=True, eviction_policy="least-recently-used")
    for number in range(1000):
        cache[number] = number
    is_ended = threading.Event()

    def close():
        for _ in range(100):
            cache.close()
            cache[0]
        is_ended.set()

    def read():
        while not is_ended.is_set():
            assert cache[5] == 5 and 5 in cache and cache.get(-1) is None
            assert len(cache) >= 1000 and cache.peek(side="front") is not None

    def write():
        number = 0
        while not is_ended.is_set():
            number += 1
            cache.set("a", number)
            assert cache["a"] == number and cache.incr("n") == number
            with cache.transact():
                cache["b"] = number
                cache["c"] = number
            with cache.transact():
                assert cache["b"] == cache["c"] == number
            cache.push(LARGE, "q")
            assert cache.pull("q")[1] == LARGE
            cache.reset("cull_limit", number % 5)

    def iterate():
        while not is_ended.is_set():
            assert set(range(1000)) <= set(cache) and set(range(1000)) <= set(cache.iterkeys())

    run_threads(close, read, write, iterate)
    assert texts(cache.check()) == []
    cache.close()
    check_when_closed(tmp_path / "cache.tcb")


def test_the_end_of_a_transaction_closes_what_another_thread_has_closed(tmp_path):
    cache = Cache(tmp_path)
    with cache.transact():
        cache["a"] = 1
        start = time.monotonic()
        run_threads(cache.close)
        assert time.monotonic() - start < LIMIT / 2
        with pytest.raises(cabinet.InUseError):
            cabinet.check(tmp_path / "cache.tcb")
        cache["b"] = 2
        assert cache["a"] == 1
    # The write in the transaction has opened it for this thread.
    cache.close()
    check_when_closed(tmp_path / "cache.tcb")
    assert dict((key, cache[key]) for key in cache) == {"a": 1, "b": 2}
    cache.close()
    with cache.transact():
        run_threads(cache.close)
    check_when_closed(tmp_path / "cache.tcb")


def test_an_object_is_closed_in_its_own_transaction(tmp_path):
    cache = Cache(tmp_path)
    with cache.transact():
        cache["a"] = 1
        cache.close()
    check_when_closed(tmp_path / "cache.tcb")
    assert cache["a"] == 1


def test_an_iteration_goes_on_after_closing(tmp_path):
    cache = Cache(tmp_path)
    for number in range(1000):
        cache[number] = number
    for iterate in (iter, reversed, Cache.iterkeys):
        found = iterate(cache)
        first = next(found)
        cache.close()
        assert len({first, *found}) == 1000


SLEEPER = """
import sys, threading, time
import cabinet
cache = cabinet.Cache(sys.argv[1], shared=sys.argv[2] == "shared")
entered = threading.Event()
def work():
    with cache.transact():
        cache["a"] = 1
        entered.set()
        time.sleep(600)
threading.Thread(target=work, daemon=True).start()
entered.wait()
cache.close()
"""


def test_a_program_ends_beside_a_transaction_of_a_daemon(tmp_path, mode):
    start = time.monotonic()
    command = [sys.executable, "-c", SLEEPER, tmp_path, "shared" if mode else "alone"]
    subprocess.run(command, check=True, timeout=LIMIT)
    assert time.monotonic() - start < LIMIT / 2
    with Cache(tmp_path) as cache:
        assert len(cache) == 0 and texts(cache.check()) == []


# Handlers of signals.


class Interruption:
    """Raises KeyboardInterrupt at a step of a transaction, as the handler of a signal may."""

    FUNCTIONS = {"enter", "leave", "commit", "abandon", "roll_back", "acquire", "release", "_lock"}
    FUNCTIONS |= {"_write", "_end", "_catch_up", "begin_change", "end_change", "last_change"}

    def __init__(self, step):
        self.steps_left = step

    def trace(self, frame, event, _):
        module = os.path.basename(frame.f_code.co_filename)
        if frame.f_code.co_name not in self.FUNCTIONS or not module.startswith("_cache_"):
            return None
        frame.f_trace_opcodes = True
        self.steps_left -= 1
        if self.steps_left == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return self.trace


def test_an_interrupted_transaction_keeps_no_lock(tmp_path):
    cache = Cache(tmp_path, cull_limit=0)
    storage, number, step = cache._storage, 0, 0
    cache["n"] = 0
    is_interrupted = True
    while is_interrupted:
        step += 1
        interruption = Interruption(step)
        sys.settrace(interruption.trace)
        try:
            with cache.transact():
                cache.set("n", number + 1)
                cache.set(number, b"x" * 100_000)
            is_interrupted = False
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert storage.depth == 0 and storage.pending is None and storage.owner is None
        assert not storage.lock._is_owned()
        if storage.shared:
            other = Processes(os.path.join(tmp_path, "cache.tcb", "cache.lock"))
            assert other.acquire(0), step
            other.close()
        is_done = cache["n"] == number + 1
        assert (number in cache) == is_done and len(cache) == number + 1 + is_done
        assert is_done or is_interrupted
        number += is_done
    assert step > 100 and number > 1
    # Files of what was not stored may be left.
    left = UnknownFileWarning, EmptyDirWarning
    assert [found for found in cache.check() if found.category not in left] == []
    cache.close()


# Full disks.


@pytest.fixture
def small_disk(tmp_path):
    """Folder of a file system of 16 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("length", [1000, 100_000])
def test_reads_and_removals_work_on_a_full_disk(small_disk, length):
    folder = small_disk / "cache"
    seeded, stored = random.Random(1), {}

    def close():
        # So many removals need an opening of the tree now and then: the server has to end.
        cache.close()
        wait_until(lambda: server_of(folder / _cache_storage.TREE_NAME) is None)

    def stores():
        # The tree looks for space now and then.
        with contextlib.suppress(cabinet.NoSpaceError):
            return cache.set("again", stored[0])

    cache = Cache(folder, cull_limit=0, statistics=True)
    with pytest.raises(cabinet.NoSpaceError, match="free space") as raised:
        while True:
            value = seeded.randbytes(length)
            cache.set(len(stored), value, tag="even" if len(stored) % 2 == 0 else None)
            stored[len(stored)] = value
    assert isinstance(raised.value, OSError) and str(folder) in str(raised.value.filename)
    (small_disk / "rest").write_bytes(b"")
    with contextlib.suppress(OSError), open(small_disk / "rest", "wb", buffering=0) as rest:
        while True:
            rest.write(bytes(512))
    for _ in range(2):
        assert all(cache[key] == value for key, value in stored.items())
        assert texts(cache.check()) == [] and len(cache) == len(stored)
        close()
    assert cache.delete(1) and cache.pop(3) == stored[3] and cache.evict("even") > 3
    left = {key: stored[key] for key in stored if key % 2 and key > 3}
    for _ in range(2):
        assert {key: cache[key] for key in cache} == left
        assert texts(cache.check()) == [] and len(cache) == len(left)
        close()
    assert cache.clear() == len(left) and len(cache) == 0 == cache.volume()
    (small_disk / "rest").unlink()
    wait_until(stores)
    close()
    assert cache["again"] == stored[0] and len(cache) == 1 and texts(cache.check()) == []
    cache.close()
