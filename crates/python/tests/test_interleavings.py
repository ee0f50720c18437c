"""Random interleavings of threads, a close under them, and forks.

`INTERLEAVINGS` is the range of seeds, such as `0..10000`. `cargo xtask python --interleavings N`
runs them under AddressSanitizer.
"""

import os
import random
import sys
import threading

import pytest

import cabinet

#: Seconds that a thread or child may take before the test fails.
LIMIT = 120

NAMES = ["a.tch", "a.tcb", "a.tcf", "a.tct", "*", "+"]

#: What a thread may get from an operation beside a close, a fork or another thread.
EXPECTED = (
    cabinet.BusyError,
    cabinet.ClosedError,
    cabinet.ConflictError,
    cabinet.MissingKeyError,
    cabinet.NotANumberError,
    cabinet.UnsupportedError,
    cabinet.ValueTooLongError,
)


def seeds():
    first, last = os.environ.get("INTERLEAVINGS", "0..60").split("..")
    return range(int(first), int(last))


class Shared:
    """A database and what threads have in common of it."""

    def __init__(self, database, name):
        self.database = database
        self.is_table = name.endswith(".tct")
        self.iterators = [iter(database), database.iter_items()]
        self.transactions = [database.transaction() for _ in range(2)]
        self.batches = [database.batch() for _ in range(2)]
        self.cursors = [database.cursor()] if name == "a.tcb" else []
        self.buffer = bytearray(200)

    def value(self, chance):
        length = chance.choice([0, 3, 40, 150])
        return {"n": length, "t": "x" * length} if self.is_table else b"x" * length

    def operate(self, chance):
        """Does one operation that the seed chooses."""
        database, key = self.database, str(chance.randrange(1, 60))
        kind = chance.randrange(22)
        if kind == 0:
            self.batches[chance.randrange(2)][key] = self.value(chance)
        elif kind == 1:
            self.batches[chance.randrange(2)].write()
        elif kind == 2:
            transaction = self.transactions[chance.randrange(2)]
            transaction[key] = transaction.get(key, self.value(chance))
        elif kind == 3:
            number = chance.randrange(2)
            ended, self.transactions[number] = self.transactions[number], database.transaction()
            ended.commit()
        elif kind == 4:
            next(self.iterators[chance.randrange(2)])
        elif kind == 5:
            self.iterators[chance.randrange(2)] = chance.choice([iter, reversed])(database)
        elif kind == 6 and self.cursors:
            cursor = self.cursors[0]
            chance.choice([cursor.first, cursor.next, cursor.last, cursor.prev])()
            cursor.key
        elif kind == 7 and self.is_table:
            database.query(cabinet.column("n") > 10).keys()
        elif kind == 8:
            database.put_many((str(number), self.value(chance)) for number in range(1, 20))
        elif kind == 9:
            database.get_many([key, "1", "2"])
        elif kind == 10:
            database.get_into(key, self.buffer)
        elif kind == 11:
            database.remove(key)
        elif kind == 12 and not self.is_table:
            database.append(key, b"x" * chance.choice([0, 3, 40]))
        elif kind == 13:
            database.add_int("59")
        elif kind == 14:
            database.modify(key, lambda value: self.value(chance))
        elif kind == 15:
            database.put(key, self.value(chance), ttl=chance.choice([0.001, 60]))
        elif kind == 16:
            chance.choice([database.sync, database.stats, database.verify, database.clear])()
        elif kind == 17:
            list(database.iter_keys("2", "4"))
        elif kind == 18:
            len(database), key in database, database.meta(key), repr(database)
        elif kind < 21:
            database[key] = self.value(chance)
        else:
            database[key]


def work(shared, seed, others, ended):
    chance = random.Random(seed)
    while not ended.is_set():
        try:
            shared.operate(chance)
        except EXPECTED as error:
            if isinstance(error, cabinet.ClosedError) and shared.database.closed:
                return
        except StopIteration:
            pass
        except BaseException as error:
            others.append(error)
            return


def fork(shared, chance):
    """Forks beside the threads. The child tries the database, and ends without a clean-up."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for _ in range(20):
                try:
                    shared.operate(chance)
                except Exception:
                    pass
            status = 0 if refuses(shared.database) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"


def refuses(database):
    try:
        database["1"]
    except (cabinet.ForkedError, cabinet.ClosedError):
        return True
    return False


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_interleavings_crash_nothing(tmp_path):
    interval = sys.getswitchinterval()
    for seed in seeds():
        chance = random.Random(seed)
        name = chance.choice(NAMES)
        path = name if len(name) == 1 else str(tmp_path / f"{seed}{name}")
        database = cabinet.open(path, **({"width": 100} if name == "a.tcf" else {}))
        shared, others, ended = Shared(database, name), [], threading.Event()
        threads = [
            threading.Thread(target=work, args=(shared, f"{seed} {number}", others, ended))
            for number in range(chance.randrange(2, 5))
        ]
        sys.setswitchinterval(chance.choice([1e-6, 1e-5, 1e-4]))
        try:
            for thread in threads:
                thread.start()
            for _ in range(chance.randrange(30)):
                try:
                    shared.operate(chance)
                except (*EXPECTED, StopIteration):
                    pass
            if not chance.randrange(4):
                fork(shared, chance)
            database.close()
            for thread in threads:
                thread.join(LIMIT)
                assert not thread.is_alive(), f"seed {seed} of {name} hangs"
        finally:
            ended.set()
            sys.setswitchinterval(interval)
        assert others == [], f"seed {seed} of {name}"
        if len(name) > 1:
            assert cabinet.check(path)["damages"] == [], f"seed {seed} of {name}"
