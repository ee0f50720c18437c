"""The GIL, threads, and closing under readers."""

import contextlib
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import pytest

import cabinet

#: Seconds that a test waits for an event before it fails.
LIMIT = 60


class Counting:
    """A thread that counts whenever it gets the GIL, which no thread takes from its holder."""

    def __enter__(self):
        self.count = 0
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        self.is_ended = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        while not self.is_ended:
            self.count += 1
            time.sleep(0)

    def __exit__(self, *raised):
        self.is_ended = True
        self.thread.join()
        sys.setswitchinterval(self.interval)

    def is_released_by(self, operation):
        """Returns whether the GIL was released during an operation."""
        before = self.count
        operation()
        return self.count != before


def is_ever(condition):
    """Returns whether a condition becomes true within the limit."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if condition():
            return True
    return False


@pytest.mark.alone
def test_the_gil_is_kept_where_nothing_waits(keyed):
    keyed["a"] = b"1"

    def operations():
        for number in range(300):
            keyed["a"] = b"%d" % number
            keyed["a"], keyed.get("b"), "a" in keyed, keyed.meta("a"), len(keyed)
            keyed.add_int("n"), keyed.append("c", b"x"), keyed.pop("c")
            keyed.get_many(["a", "b"]), keyed.put_many({"d": b"1"}), keyed.remove("d")

    with Counting() as counting:
        # A write may have to wait for a lock that a thread of the database holds at the moment.
        assert is_ever(lambda: not counting.is_released_by(operations))


def drop_from_memory(database):
    """Asks the system to read the files of a database from the disk again."""
    database.sync()
    for file in pathlib.Path(database.path).iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def test_the_gil_is_released_for_the_disk(opened):
    durable = opened("a.tch", durability="always")
    with Counting() as counting:
        assert is_ever(lambda: counting.is_released_by(lambda: durable.put("a", b"1")))
        assert is_ever(lambda: counting.is_released_by(durable.sync))
        assert is_ever(lambda: counting.is_released_by(lambda: list(durable)))


@pytest.mark.alone
@pytest.mark.parametrize("name", ["a.tch", "a.tcb"])
def test_the_gil_is_released_for_a_read_from_the_disk(opened, tmp_path, name):
    kind = subprocess.run(["stat", "-fc", "%T", tmp_path], capture_output=True, text=True)
    if "tmpfs" in kind.stdout:
        pytest.skip("the files of this folder are always in memory")
    database = opened(name)
    database.put_many(("%06d" % number, b"x" * 2000) for number in range(5000))
    database.close()
    options = {"a.tch": {"index_bytes": 64 << 10}, "a.tcb": {"cache_bytes": 64 << 10}}
    database = opened(name, **options[name])
    chance = random.Random(1)
    with Counting() as counting:

        def is_released():
            drop_from_memory(database)
            key = "%06d" % chance.randrange(5000)
            return counting.is_released_by(lambda: database[key])

        assert is_ever(is_released)


@pytest.mark.alone
def test_what_is_not_in_memory_is_read_all_the_same(opened):
    """Every operation on a tree that is larger than its cache, which has to wait at times."""
    tree = opened("a.tcb", cache_bytes=64 << 10)
    value = lambda number: b"%06d" % number * 30  # noqa: E731
    tree.put_many(("%06d" % number, value(number)) for number in range(5000))
    numbers = random.Random(2).sample(range(5000), 1000)
    keys = ["%06d" % number for number in numbers]
    values = [value(number) for number in numbers]
    tree.close()
    tree = opened("a.tcb", cache_bytes=64 << 10)
    drop_from_memory(tree)
    assert [tree[key] for key in keys] == values
    assert tree.get_many(keys + ["none"]) == values + [None]
    drop_from_memory(tree)
    assert [tree.get_with_meta(key)[0] for key in keys] == values
    drop_from_memory(tree)
    buffer = bytearray(180)
    for key, expected in zip(keys, values):
        assert tree.get_into(key, buffer) == 180 and buffer == expected
    drop_from_memory(tree)
    assert {tree.size(key) for key in keys} == {180}
    assert all(key in tree for key in keys)
    drop_from_memory(tree)
    for key, expected in zip(keys, values):
        assert not tree.add(key, b"2")
        assert tree.compare_and_swap(key, expected, expected + b"!")
        tree.append(key, b"?")
        assert tree.setdefault(key, b"3") == expected + b"!?"
        assert tree.pop(key) == expected + b"!?"
        tree[key] = expected
    drop_from_memory(tree)
    with tree.transaction() as transaction:
        for key in keys:
            transaction[key] = transaction[key] + b"."
    assert tree.get_many(keys) == [value + b"." for value in values]


def test_threads_count_together(keyed):
    def count():
        for _ in range(500):
            keyed.add_int("n")
            keyed.modify("m", lambda value: b"%d" % (int(value) + 1), b"0")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert keyed.get_int("n") == 2000 and keyed["m"] == b"2000"


def test_transactions_of_threads_are_serial(keyed):
    keyed.put_many({"a": b"500", "b": b"500"})

    def move(number):
        source, target = ("a", "b") if number % 2 else ("b", "a")

        def transfer(transaction):
            for key, change in ((source, -1), (target, 1)):
                transaction[key] = b"%d" % (int(transaction[key]) + change)

        for _ in range(50):
            keyed.transact(transfer, tries=100_000)

    threads = [threading.Thread(target=move, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (keyed["a"], keyed["b"]) == (b"500", b"500")


def read_all(database):
    for _ in database.items():
        pass


def transact(database):
    with database.transaction() as transaction:
        transaction["t"] = transaction.get("t", b"")[:9] + b"x"


def move(database):
    cursor = database.cursor()
    while cursor.next() or cursor.first():
        assert cursor.key is not None


OPERATIONS = [
    lambda database: database.get("5"),
    lambda database: database.put("5", b"x" * 100),
    lambda database: database.get_many(["1", "2", "3"]),
    lambda database: database.sync(),
    lambda database: database.stats(),
    lambda database: database.verify(),
    read_all,
    transact,
    move,
]


@pytest.mark.parametrize("name", ["a.tch", "a.tcb", "*", "+"])
def test_closing_while_threads_are_at_work_ends_them(opened, name):
    for seed in range(6):
        chance = random.Random(seed)
        database = opened(name)
        database.clear()
        database.put_many(("%d" % number, b"x" * 100) for number in range(500))
        begun, others = threading.Semaphore(0), []

        def work(operation):
            begun.release()
            try:
                while True:
                    operation(database)
            except cabinet.ClosedError:
                pass
            except (cabinet.UnsupportedError, cabinet.ConflictError) as error:
                if "cursor" not in str(error) and not isinstance(error, cabinet.ConflictError):
                    others.append(error)
            except BaseException as error:
                others.append(error)

        threads = [
            threading.Thread(target=work, args=(operation,))
            for operation in chance.sample(OPERATIONS, 5)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            begun.acquire()
        time.sleep(chance.random() * 0.05)
        database.close()
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive()
        assert others == []


def close_beside_beginnings(database):
    """Closes a database while a thread begins transactions, all of which have to end with it."""
    begun, transactions = threading.Semaphore(0), []

    def begin():
        begun.release()
        try:
            while True:
                transactions.append(database.transaction())
        except cabinet.ClosedError:
            pass

    thread = threading.Thread(target=begin)
    thread.start()
    begun.acquire()
    database.close()
    thread.join(LIMIT)
    assert not thread.is_alive()
    for transaction in transactions:
        with pytest.raises((cabinet.ClosedError, cabinet.ConflictError)):
            transaction.get("a")
    return transactions


def test_closing_ends_transactions_that_begin_beside_it(tmp_path, mode):
    name = str(tmp_path / "a.tch")
    # One server for all openings: its starts and ends would take most of the time.
    with cabinet.open(name, **mode) if mode else contextlib.nullcontext():
        for _ in range(100):
            # Nothing has it open any more, though the transactions of the last time are there.
            database = cabinet.open(name, **mode)
            transactions = close_beside_beginnings(database)
    cabinet.open(name, **mode).close()
    del transactions


def test_an_iterator_is_used_by_one_thread_at_a_time(opened):
    """Threads that share an iterator get each key once, or an error."""
    database = opened("*")
    database.put_many(("%d" % number, b"x") for number in range(20000))
    iterator, seen = iter(database), []

    def take():
        while True:
            try:
                seen.append(next(iterator))
            except cabinet.BusyError:
                pass
            except StopIteration:
                return

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(set(seen)) == 20000
