"""Kills: a process that writes is killed at any time, and nothing that it has said is lost."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from cabinet import _cache_storage
from cabinet.cache import Cache

#: Writes without an end. Before a change it writes what it begins to do, and after it that it is
#: done. Line N is the change number N: its kind and seed are those of N.
WRITER = """
import sys
from cabinet.cache import Cache

cache = Cache(sys.argv[1], cull_limit=0, eviction_policy=sys.argv[3])
number = int(sys.argv[2])
while True:
    key = f"key{number % 50}"
    large = b"%d," % number * 8000
    if number % 7 == 6:
        cache.delete(key)
    elif number % 7 == 5:
        with cache.transact():
            cache[key] = number
            cache.incr("total")
            cache.push(number)
            if number % 2:
                cache.pull()
    else:
        cache.set(key, large if number % 3 == 0 else number, tag=number % 5)
        cache.get(key)
    print(number, flush=True)
    number += 1
"""


def value_of(number):
    """Returns the value that a change leaves, or None."""
    if number % 7 == 6:
        return None
    is_large = number % 7 != 5 and number % 3 == 0
    return b"%d," % number * 8000 if is_large else number


@pytest.mark.parametrize("policy", ["least-recently-stored", "least-recently-used"])
def test_killed_writers_lose_nothing(tmp_path, policy):
    seeded = random.Random(5)
    last = -1
    for _ in range(8):
        command = [sys.executable, "-c", WRITER, tmp_path / "cache", str(last + 1), policy]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = writer.stdout.readline()
        time.sleep(seeded.uniform(0, 0.3))
        writer.send_signal(signal.SIGKILL)
        lines = [line, *writer.stdout]
        writer.wait()
        writer.stdout.close()
        done = [int(line) for line in lines if line.endswith("\n")]
        assert done == list(range(last + 1, last + 1 + len(done)))
        last = done[-1]
        with Cache(tmp_path / "cache") as cache:
            assert [str(found.message) for found in cache.check()] == []
            # The change after the last one may have been made or not.
            is_next = cache.get(f"key{(last + 1) % 50}", "none") == (value_of(last + 1) or "none")
            total = cache.get("total", 0)
            if (last + 1) % 7 == 5:
                is_next = total == count(last + 1)
            last += is_next
            for number in range(max(last - 49, 0), last + 1):
                assert cache.get(f"key{number % 50}") == value_of(number), number
            assert total == count(last)
    assert last > 8


def count(last):
    """Returns the number of increments until a change."""
    return sum(1 for number in range(last + 1) if number % 7 == 5)


def test_files_without_a_row_are_removed_by_the_next_opening(tmp_path):
    script = """
import os, sys
from cabinet.cache import Cache

cache = Cache(sys.argv[1])
cache["kept"] = b"x" * 100_000
with cache.transact():
    cache["lost"] = b"x" * 100_000
    cache.set("kept", 1)
    print(len(list(cache._storage.files())), flush=True)
    os.kill(os.getpid(), 9)
"""
    folder = tmp_path / "cache"
    command = [sys.executable, "-c", script, folder]
    writer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert writer.returncode == -signal.SIGKILL and writer.stdout == "2\n"
    (folder / "mine.txt").write_text("a file of the user's is not removed")
    with Cache(folder) as cache:
        assert cache["kept"] == b"x" * 100_000 and "lost" not in cache
        assert len(list(cache._storage.files())) == 2
        (found,) = cache.check()
        assert "mine.txt" in str(found.message)
    assert sorted(os.listdir(folder))[-1] == "mine.txt"
    assert os.path.isdir(folder / _cache_storage.TREE_NAME)
