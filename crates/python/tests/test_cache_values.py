"""Values and keys of caches: what comes back as it was, and what is refused."""

import collections
import datetime
import decimal
import enum
import os
import random
import pickle
import uuid

import cabinet.cache
import pytest
from cabinet import _cache_storage, _values

pytestmark = pytest.mark.usefixtures("cache_mode")

ZONE = datetime.timezone(datetime.timedelta(hours=-3, seconds=5))

VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    2**512,
    -(2**20000),
    1.5,
    -0.0,
    float("inf"),
    float("nan"),
    "",
    "text",
    "\ud83d\ude00",
    "\ud800",
    "\U0001f600",
    b"",
    b"\x00\xff",
    bytearray(b"bytes"),
    [],
    (),
    {},
    [1, [2, [None]]],
    (1, (2, [3, (4,)])),
    {"a": {"b": [1.0, True]}},
    {1: 2, (1, 2): {b"c"}, None: "d"},
    ["t", 1],
    {"t": ["t"]},
    {1, "a", b"b", None},
    frozenset(((1, 2), "x")),
    datetime.datetime(2026, 11, 29, 1, 2, 3, 4),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZONE),
    datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc),
    datetime.date(2026, 11, 29),
    datetime.time(1, 2, 3, 4, fold=1),
    datetime.timedelta(-1, 2, 3),
    decimal.Decimal("1.10"),
    decimal.Decimal("-Infinity"),
    uuid.UUID(int=5),
    [float("nan"), "a" * 100_000, (b"b" * 100_000,)],
]


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    pass


Point = collections.namedtuple("Point", "x y")

REFUSED = [
    object(),
    Number.ONE,
    Text("text"),
    Point(1, 2),
    collections.OrderedDict(a=1),
    [Number.ONE],
    {"a": object},
    {Text("a"): 1},
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(0), "name")),
]


def is_same(one, two):
    return type(one) is type(two) and (pickle.dumps(one) == pickle.dumps(two) or one == two)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(type(value).__name__))
def test_values_come_back_as_they_were(tmp_path, value):
    for min_file_size in (0, 32 << 10):
        with cabinet.cache.Cache(tmp_path, disk_min_file_size=min_file_size) as cache:
            cache.set("key", value)
        with cabinet.cache.Cache(tmp_path) as cache:
            assert is_same(cache["key"], value) or value != value and cache["key"] != cache["key"]
            assert cache.check() == []


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: repr(type(value).__name__))
def test_what_needs_pickle_is_refused_by_an_error_that_names_the_option(tmp_path, value):
    with cabinet.cache.Cache(tmp_path) as cache:
        with pytest.raises(TypeError, match="pickle=True"):
            cache["key"] = value
        if value.__hash__ is not None:
            with pytest.raises(TypeError, match="pickle=True"):
                cache[value] = 1
            with pytest.raises(TypeError, match="pickle=True"):
                cache.get(value)
        assert len(cache) == 0 and cache.check() == []


def test_pickle_is_used_only_with_the_option(tmp_path):
    with cabinet.cache.Cache(tmp_path, pickle=True) as cache:
        cache["point"] = Point(1, 2)
        cache["plain"] = (1, 2)
        cache[Number.ONE] = 1
        assert cache["point"] == Point(1, 2) and type(cache["point"]) is Point
        assert list(cache) == ["point", "plain", Number.ONE]
    with cabinet.cache.Cache(tmp_path) as cache:
        assert cache["plain"] == (1, 2)
        with pytest.raises(TypeError, match="pickle=True"):
            cache["point"]
        with pytest.raises(TypeError, match="pickle=True"):
            list(cache)
        assert cache.check() == []


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_planted_pickle_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cabinet.cache.Cache(tmp_path / "cache", pickle=True) as cache:
        cache["evil"] = Evil()
        cache[(Evil(),)] = 1
    with cabinet.cache.Cache(tmp_path / "cache") as cache:
        with pytest.raises(TypeError):
            cache["evil"]
        with pytest.raises(TypeError):
            list(cache)
        with pytest.raises(TypeError):
            cache.peekitem()
    assert not os.path.exists("evil")


def test_a_disk_must_be_a_class_and_fit_the_option(tmp_path):
    with pytest.raises(ValueError, match="class below"):
        cabinet.cache.Cache(tmp_path, disk=cabinet.cache.Disk(tmp_path))
    with pytest.raises(ValueError, match="PickleDisk"):
        cabinet.cache.Cache(tmp_path, disk=cabinet.cache.JSONDisk, pickle=True)
    with cabinet.cache.Cache(tmp_path, disk=cabinet.cache.PickleDisk) as cache:
        cache["point"] = Point(1, 2)
        assert cache["point"] == Point(1, 2)


@pytest.mark.parametrize(
    "data", [b"", b"[", b'["?",1]', b'["t",["i"]]', b'["i","zz"]', b"[[1]]", b'["date","x"]']
)
def test_damaged_values_are_an_error(data):
    with pytest.raises(ValueError, match="damaged"):
        _values.loads(_values.TAGGED, data)


def test_equal_sets_are_the_same_key():
    for forward, back in ((range(50), reversed(range(50))), ("abc", "cba")):
        one, two = frozenset(map(str, forward)), frozenset(map(str, back))
        assert _values.dumps(one) == _values.dumps(two)


NUMBERS = [
    float("-inf"),
    -1e300,
    -(2**63),
    -(2**53) - 1,
    -(2**53),
    -1.5,
    -1,
    -5e-324,
    0,
    5e-324,
    0.5,
    1,
    1.5,
    2**53,
    2**53 + 1,
    2**63 - 2,
    2**63 - 1,
    float(2**63),
    float("inf"),
]


def test_keys_sort_as_numbers_texts_bytes_others(tmp_path):
    keys = [*NUMBERS, "", "a", "b", "b\0", "\xe4", "\U0001f600", b"", b"a", b"\xff"]
    with cabinet.cache.Cache(tmp_path) as cache:
        for key in reversed(keys):
            cache[key] = repr(key)
        cache[(1, 2)] = "tuple"
        assert list(cache.iterkeys()) == [*keys, (1, 2)]
        assert list(cache.iterkeys(reverse=True)) == [(1, 2), *reversed(keys)]
        assert list(map(type, cache.iterkeys()))[: len(keys)] == list(map(type, keys))
        assert list(cache) == [*reversed(keys), (1, 2)]
        assert all(cache[key] == repr(key) for key in keys)


def test_equal_numbers_are_the_same_key(tmp_path):
    with cabinet.cache.Cache(tmp_path) as cache:
        cache[1], cache[0.0], cache[True] = "one", "zero", "true"
        assert cache[1.0] == "one" and cache[-0.0] == cache[0] == "zero"
        assert cache[True] == "true"
        cache[1.0] = "new"
        assert len(cache) == 3 and cache[1] == "new"
        assert [type(key) for key in cache] == [int, float, bool]
        cache[float("nan")] = "nan"
        assert cache[float("nan")] == "nan" and len(cache) == 4


@pytest.mark.parametrize("by", [-1, 0, 1])
def test_long_keys_are_kept_in_full(tmp_path, by):
    length = _cache_storage.KEY_BYTES_MAX + by
    keys = ["a" * length, b"a" * length, "a" * (length - 1) + "b", "a" * 200_000, ("a" * 200_000,)]
    with cabinet.cache.Cache(tmp_path) as cache:
        for number, key in enumerate(keys):
            cache.set(key, number, tag="tag" * number * 1000)
        assert [cache[key] for key in keys] == list(range(len(keys)))
        assert list(cache) == keys and set(cache.iterkeys()) == set(keys)
        assert cache.peekitem() == (keys[-1], len(keys) - 1)
        assert cache.evict("tag" * 2000) == 1
        assert cache.check() == []
        del cache[keys[0]]
        assert len(cache) == len(keys) - 2 and cache.check() == []


def test_what_cannot_be_read_is_not_removed(tmp_path):
    with cabinet.cache.Cache(tmp_path, pickle=True) as cache:
        key = cache.push(Point(1, 2))
        cache["large"] = Point("a" * 100_000, 2)
    with cabinet.cache.Cache(tmp_path) as cache:
        for remove in (cache.pull, lambda: cache.pop(key), lambda: cache.pop("large")):
            with pytest.raises(TypeError, match="pickle=True"):
                remove()
        assert len(cache) == 2 and cache.check() == []
    with cabinet.cache.Cache(tmp_path, pickle=True) as cache:
        assert cache.pull() == (key, Point(1, 2))
        assert cache.pop("large") == Point("a" * 100_000, 2)
        assert len(cache) == 0 and os.listdir(tmp_path) == ["cache.tcb"]


@pytest.mark.parametrize("cls", [str, bytes])
def test_long_keys_sort_in_full(tmp_path, cls):
    def key(text):
        return text if cls is str else text.encode()

    keys = [key("a" * 4000 + end) for end in ("", "0", "b", "c" * 5000, "c" * 5000 + "d", "z")]
    keys = [key("a"), *keys, key("a" * 3999 + "b"), key("b" * 5000), key("b" * 5000 + "a")]
    with cabinet.cache.Cache(tmp_path) as cache:
        for item in random.Random(1).sample(keys, len(keys)):
            cache[item] = 1
        assert list(cache.iterkeys()) == keys
        assert list(cache.iterkeys(reverse=True)) == keys[::-1]
        with cache.transact():
            del cache[keys[3]]
            assert list(cache.iterkeys()) == keys[:3] + keys[4:]
