"""Processor time per operation of shared databases and caches, of this process and its server
together.

    python benchmarks/shared.py [RECORDS]

Keys have 16 bytes and values 100, in a random order. The first lines are the same database or cache
without a server. The loop itself is in all figures.
"""

import os
import random
import resource
import socket
import sys
import tempfile
import time

import cabinet
from cabinet._cache_storage import TREE_NAME

TICKS = os.sysconf("SC_CLK_TCK")

VALUE = b"x" * 100


def server_of(path):
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(os.path.join(path, "server.socket"))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def seconds(server):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    own = usage.ru_utime + usage.ru_stime
    if server is None:
        return own, 0.0
    with open(f"/proc/{server}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return own, (int(fields[11]) + int(fields[12])) / TICKS


def measure_all(runs, number, path, is_shared):
    """Measures functions that each do `number` operations, over the database at `path`."""
    server = server_of(path) if is_shared else None
    for run in runs:
        measure(run.__name__, number, run, server)


def measure(name, number, run, server):
    before, begun = seconds(server), time.perf_counter()
    run()
    elapsed, after = time.perf_counter() - begun, seconds(server)
    own, served = ((a - b) / number * 1e6 for a, b in zip(after, before))
    clock = elapsed / number * 1e6
    print(f"  {name:24}{own + served:8.2f} us, server {served:.2f}; by the clock {clock:.2f}")


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    chance = random.Random(1)
    keys = [chance.randbytes(16) for _ in range(number)]
    order = chance.sample(keys, number)
    for measured in (measure_database, measure_cache):
        for is_shared in (False, True):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                print(measured.__name__, "shared" if is_shared else "alone")
                measured(folder, is_shared, keys, order)


def measure_database(folder, is_shared, keys, order):
    path, number, value = os.path.join(folder, "a.tch"), len(keys), VALUE
    options = {"shared": True, "idle_seconds": 0} if is_shared else {}
    with cabinet.open(path, **options) as database:

        def put():
            for key in keys:
                database[key] = value

        def get():
            for key in order:
                database[key]

        def iterate():
            for _ in database.iter_items():
                pass

        def get_many():
            for at in range(0, number, 100):
                database.get_many(order[at : at + 100])

        def put_many():
            for at in range(0, number, 100):
                database.put_many((key, value) for key in order[at : at + 100])

        measure_all((put, get, iterate, get_many, put_many), number, path, is_shared)


def measure_cache(folder, is_shared, keys, order):
    tree, number, value = os.path.join(folder, TREE_NAME), len(keys), VALUE
    with cabinet.Cache(folder, shared=is_shared) as cache:

        def set_new():
            for key in keys:
                cache[key] = value

        def get():
            for key in order:
                cache[key]

        def replace():
            for key in order:
                cache[key] = value

        def incr():
            for _ in range(number):
                cache.incr("number")

        measure_all((set_new, get, replace, incr), number, tree, is_shared)


main()
