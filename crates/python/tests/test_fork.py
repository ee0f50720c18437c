"""Forks after a database was opened."""

import os
import subprocess
import sys
import threading

import pytest
from processes import child_of_killed_parent, in_child

import cabinet

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks"),
    pytest.mark.alone,
]


@pytest.mark.parametrize("name", ["a.tch", "a.tcb", "a.tcf", "*", "+"])
def test_the_child_gets_an_error_and_the_parent_goes_on(opened, tmp_path, name):
    database = opened(name)
    database.put_many(("%d" % number, b"x" * 50) for number in range(1, 1000))
    iterator = iter(database)
    next(iterator)
    transaction = database.transaction()
    transaction["1"] = b"changed"
    has_cursor = name == "a.tcb"
    cursor = database.cursor() if has_cursor else None
    batch = database.batch()
    batch["2"] = b"changed"

    def use():
        nonlocal database, transaction, iterator, cursor, batch
        calls = [
            lambda: database["1"],
            lambda: database.put("1", b"child"),
            lambda: len(database),
            lambda: list(database),
            lambda: list(iterator),
            lambda: database.transaction(),
            lambda: transaction["1"],
            lambda: transaction.commit(),
            lambda: batch.write(),
            lambda: database.sync(),
            lambda: database.clear(),
            lambda: database.optimize(),
        ]
        if has_cursor:
            calls += [cursor.first, lambda: cursor.key]
        for call in calls:
            with pytest.raises(cabinet.ForkedError, match="after the fork"):
                call()
        assert database.closed
        transaction.close()
        database.close()
        with cabinet.open(tmp_path / f"child-{name}.tch") as own:
            own["a"] = b"1"
            assert own["a"] == b"1"
        del database, transaction, iterator, cursor, batch, calls

    in_child(use)
    if name[0] not in "*+":
        # The child does not hold the lock of the parent's files.
        reading, writing = os.pipe()
        waiting = os.fork()
        if waiting == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
    assert database["1"] == b"x" * 50 and len(list(iterator)) == 998
    database["3"] = b"parent"
    transaction.commit()
    batch.write()
    database.close()
    if name[0] not in "*+":
        assert cabinet.check(tmp_path / name)["damages"] == []
        again = opened(name)
        assert again.get_many(["1", "2", "3"]) == [b"changed", b"changed", b"parent"]
        os.close(writing)
        os.waitpid(waiting, 0)


def test_a_fork_while_threads_are_at_work_is_harmless(opened, tmp_path):
    database = opened("a.tch")
    is_ended = threading.Event()

    def work(thread):
        number = 0
        while not is_ended.is_set():
            number += 1
            database[f"{thread}-{number % 100}"] = b"x" * 500
            for _ in database.iter_items(prefix="0"):
                pass

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()

    def use():
        for call in (lambda: database["0-1"], lambda: database.put("0-1", b""), database.sync):
            with pytest.raises(cabinet.ForkedError):
                call()
        database.close()

    try:
        for _ in range(20):
            in_child(use)
    finally:
        is_ended.set()
        for thread in threads:
            thread.join()
    database.close()
    assert cabinet.check(tmp_path / "a.tch")["damages"] == []


SCRIPT = """
import os, sys
import cabinet
database = cabinet.open(sys.argv[1])
database["a"] = b"1"
transaction = database.transaction()
transaction["b"] = b"2"
child = os.fork()
if child == 0:
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.WEXITSTATUS(status) == 7, status
database["c"] = b"3"
transaction.commit()
"""


def test_a_child_that_ends_like_any_program_does_no_harm(tmp_path):
    path = tmp_path / "a.tch"
    ended = subprocess.run([sys.executable, "-c", SCRIPT, path], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert cabinet.check(path)["damages"] == []
    with cabinet.open(path) as database:
        assert dict(database) == {b"a": b"1", b"b": b"2", b"c": b"3"}


@pytest.mark.parametrize("name", ["a.tch", "a.tcf", "cache"])
def test_a_child_does_not_hold_the_lock_of_a_killed_parent(tmp_path, name):
    program = """if True:
        import sys, cabinet
        database = getattr(cabinet, sys.argv[1])(sys.argv[2])
        database["1"] = b"1"
        fork_and_die()
    """
    path, opening = tmp_path / name, "Cache" if name == "cache" else "open"
    with child_of_killed_parent(program, opening, path):
        with getattr(cabinet, opening)(path) as database:
            assert database["1"] == b"1"
