"""Measures `cabinet` beside other embedded stores of Python, side by side in one run.

Prints microseconds of processor time per operation, of all threads of the process: 100,000 random
keys of 16 bytes with values of 100 bytes are put, read in another order, and iterated. Others are
installed from PyPI into the environment of this interpreter unless `--no-install` is given:

    python crates/python/benchmarks/compare.py
    python crates/python/benchmarks/compare.py --only cabinet,lmdb --records 10000
"""

import argparse
import asyncio
import importlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

#: Seed of the keys.
SEED = 1

#: Operations of the slow stores, whose times per operation do not depend on their number.
SLOW = 5_000


class Store:
    """A store: opens, puts, gets, iterates, closes."""

    module = None
    records = None

    def __init__(self, folder):
        self.path = str(folder / "store")
        self.open()

    def put(self, items):
        database = self.database
        for key, value in items:
            database[key] = value

    def get(self, keys):
        database = self.database
        for key in keys:
            database[key]

    def iterate(self):
        return sum(1 for _ in self.database.items())

    def close(self):
        self.database.close()


class Dict(Store):
    """The loop itself."""

    def open(self):
        self.database = {}

    def close(self):
        pass


class Cabinet(Store):
    module = "cabinet"
    suffix = ".tch"

    def open(self):
        import cabinet

        path = self.suffix if self.suffix in "*+" else self.path + self.suffix
        self.database = cabinet.open(path)


class CabinetTree(Cabinet):
    suffix = ".tcb"


class CabinetMemory(Cabinet):
    suffix = "*"


class CabinetMany(Cabinet):
    """1,000 records at a time."""

    def put(self, items):
        for start in range(0, len(items), 1000):
            self.database.put_many(items[start : start + 1000])

    def get(self, keys):
        for start in range(0, len(keys), 1000):
            self.database.get_many(keys[start : start + 1000])


class CabinetAsyncio(Cabinet):
    """Awaited one by one, in one task."""

    def open(self):
        import cabinet.aio

        self.loop = asyncio.new_event_loop()
        self.database = self.run(cabinet.aio.open(self.path + self.suffix)._start())

    def run(self, main):
        return self.loop.run_until_complete(main)

    def put(self, items):
        async def put():
            for key, value in items:
                await self.database.put(key, value)

        self.run(put())

    def get(self, keys):
        async def get():
            for key in keys:
                await self.database.get(key)

        self.run(get())

    def iterate(self):
        async def iterate():
            return len([item async for item in self.database.iter_items()])

        return self.run(iterate())

    def close(self):
        self.run(self.database.close())
        self.loop.close()


class Lmdb(Store):
    """One transaction for all."""

    module = "lmdb"

    def open(self):
        import lmdb

        self.database = lmdb.open(self.path, map_size=1 << 30, sync=False)

    def put(self, items):
        with self.database.begin(write=True) as transaction:
            for key, value in items:
                transaction.put(key, value)

    def get(self, keys):
        with self.database.begin() as transaction:
            for key in keys:
                transaction.get(key)

    def iterate(self):
        with self.database.begin() as transaction, transaction.cursor() as cursor:
            return sum(1 for _ in cursor)


class LmdbSingle(Lmdb):
    """A transaction for each."""

    def put(self, items):
        for key, value in items:
            with self.database.begin(write=True) as transaction:
                transaction.put(key, value)

    def get(self, keys):
        for key in keys:
            with self.database.begin() as transaction:
                transaction.get(key)


class RocksDict(Store):
    module = "rocksdict"

    def open(self):
        import rocksdict

        self.database = rocksdict.Rdict(self.path, rocksdict.Options(raw_mode=True))


class Plyvel(Store):
    module = "plyvel"

    def open(self):
        import plyvel

        self.database = plyvel.DB(self.path, create_if_missing=True)

    def put(self, items):
        put = self.database.put
        for key, value in items:
            put(key, value)

    def get(self, keys):
        get = self.database.get
        for key in keys:
            get(key)

    def iterate(self):
        return sum(1 for _ in self.database)


class DiskCache(Store):
    module = "diskcache"
    records = SLOW

    def open(self):
        import diskcache

        self.database = diskcache.Cache(self.path, eviction_policy="none")

    def iterate(self):
        return sum(1 for _ in self.database)


class SqliteDict(Store):
    module = "sqlitedict"
    records = SLOW

    def open(self):
        import sqlitedict

        self.database = sqlitedict.SqliteDict(self.path, outer_stack=False)

    def put(self, items):
        for key, value in items:
            self.database[key.hex()] = value
        self.database.commit()

    def get(self, keys):
        for key in keys:
            self.database[key.hex()]


STORES = {
    "dict (the loop)": Dict,
    "cabinet hash": Cabinet,
    "cabinet hash, many": CabinetMany,
    "cabinet tree": CabinetTree,
    "cabinet *": CabinetMemory,
    "cabinet hash, asyncio": CabinetAsyncio,
    "lmdb, one transaction": Lmdb,
    "lmdb, one each": LmdbSingle,
    "rocksdict raw": RocksDict,
    "plyvel": Plyvel,
    "diskcache": DiskCache,
    "sqlitedict": SqliteDict,
}


def installed(module, may_install):
    """Returns whether a module is there, after it was installed if it may be."""
    try:
        importlib.import_module(module)
    except ImportError:
        if not may_install or module == "cabinet":
            return False
        command = [sys.executable, "-m", "pip", "install", "--quiet", module]
        print("$", *command, file=sys.stderr)
        if subprocess.run(command).returncode != 0:
            return False
        importlib.invalidate_caches()
    return True


def microseconds(operation, count):
    """Returns the processor time of an operation, divided by a count."""
    begun = time.process_time()
    operation()
    return (time.process_time() - begun) / count * 1e6


def measure(store, folder, records):
    """Returns the times of put, get and iterate."""
    chance = random.Random(SEED)
    count = min(records, store.records or records)
    items = [(chance.randbytes(16), chance.randbytes(100)) for _ in range(count)]
    keys = [key for key, _ in items]
    chance.shuffle(keys)
    opened = store(folder)
    try:
        put = microseconds(lambda: opened.put(items), count)
        get = microseconds(lambda: opened.get(keys), count)
        seen = []
        iterate = microseconds(lambda: seen.append(opened.iterate()), count)
        assert seen == [count], f"{seen} in place of {count} records"
    finally:
        opened.close()
    return put, get, iterate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--only", default="", help="beginnings of names, separated by commas")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    options = parser.parse_args()
    only = tuple(options.only.split(","))
    print(f"CPU microseconds per operation, {options.records} records of 16 + 100 bytes, Python "
          f"{sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}")
    print("| store | version | put | get | iterate |")
    print("|---|---|---:|---:|---:|")
    for name, store in STORES.items():
        if not name.startswith(only):
            continue
        if store.module and not installed(store.module, not options.no_install):
            print(f"| {name} | not installed | | | |")
            continue
        version = ""
        if store.module:
            from importlib.metadata import PackageNotFoundError, version as version_of

            try:
                version = version_of(store.module)
            except PackageNotFoundError:
                version = "from its folder"
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            times = measure(store, pathlib.Path(folder), options.records)
        figures = " | ".join(f"{time:.2f}" for time in times)
        print(f"| {name} | {version} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
