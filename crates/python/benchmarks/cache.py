"""Measures `cabinet.Cache` beside diskcache, side by side in one run.

Prints microseconds of processor time per operation, of all threads of the process. Values of 100
bytes are set under random keys of 16 bytes and read in another order, and so are files of 100,000
bytes. diskcache is installed from PyPI unless `--no-install` is given:

    python crates/python/benchmarks/cache.py
    python crates/python/benchmarks/cache.py --records 1000
"""

import argparse
import importlib
import os
import random
import sys
import tempfile

from compare import SEED, installed, microseconds

#: Operations on files, for each one hundred of others.
FILES_PER_CENT = 2

FILE = b"x" * 100_000

POLICIES = ["least-recently-stored", "least-recently-used", "none"]


def measure(cache, records):
    """Returns the times of each operation by its name."""
    chance = random.Random(SEED)
    keys = [chance.randbytes(16) for _ in range(records)]
    value = chance.randbytes(100)
    few = keys[: max(records * FILES_PER_CENT // 100, 1)]
    times = {}

    def put(keys, value):
        for key in keys:
            cache[key] = value

    def get(keys):
        for key in keys:
            cache[key]

    def together():
        with cache.transact():
            put(keys, value)

    def delete(keys):
        for key in keys:
            del cache[key]

    def push():
        for _ in keys:
            cache.push(value, prefix="queue")

    def pull():
        for _ in keys:
            cache.pull(prefix="queue")

    times["set"] = microseconds(lambda: put(keys, value), records)
    chance.shuffle(keys)
    times["get"] = microseconds(lambda: get(keys), records)
    times["replace"] = microseconds(lambda: put(keys, value), records)
    times["set in one transaction"] = microseconds(together, records)
    times["set a file"] = microseconds(lambda: put(few, FILE), len(few))
    times["get a file"] = microseconds(lambda: get(few), len(few))
    times["delete"] = microseconds(lambda: delete(keys), records)
    times["push"] = microseconds(push, records)
    times["pull"] = microseconds(pull, records)
    assert len(cache) == 0
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    columns = {}
    for module in ("cabinet", "diskcache"):
        if not installed(module, not options.no_install):
            continue
        for policy in POLICIES:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                kind = importlib.import_module(module).Cache
                with kind(os.path.join(folder, "cache"), eviction_policy=policy) as cache:
                    columns[f"{module}, {policy}"] = measure(cache, options.records)
    print(
        f"CPU microseconds per operation, {options.records} records of 16 + 100 bytes, Python "
        f"{sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}"
    )
    print("| operation |", " | ".join(columns), "|")
    print("|---|" + "---:|" * len(columns))
    for name in next(iter(columns.values())):
        print(f"| {name} |", " | ".join(f"{times[name]:.1f}" for times in columns.values()), "|")


if __name__ == "__main__":
    main()
