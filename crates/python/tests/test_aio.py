"""`cabinet.aio`: databases for programs of asyncio."""

import asyncio
import os
import inspect
import pathlib
import threading
import time

import pytest

import cabinet
import cabinet.aio
from conftest import KEYED

#: Seconds that a test waits before it fails.
LIMIT = 60


def run(main):
    return asyncio.run(asyncio.wait_for(main, LIMIT))


@pytest.fixture(params=KEYED)
def name(request, tmp_path):
    return request.param if request.param in "*+" else str(tmp_path / request.param)


def handed_over(database):
    """Returns a list that gets the name of each operation that is handed to a thread."""
    names, submit = [], database._pool.submit

    def note(call, *args):
        names.append(getattr(call.func, "__name__", "?"))
        return submit(call, *args)

    database._pool.submit = note
    return names


def test_operations_on_records(name):
    async def main():
        async with cabinet.aio.open(name, codec="json", keys="str") as database:
            names = handed_over(database)
            version = await database.put("a", 1, flags=7)
            assert await database.get("a") == 1 and await database.get("x", 5) == 5
            assert await database.contains("a") and not await database.contains("x")
            assert (await database.meta("a")).flags == 7 and await database.size("a") == 1
            assert (await database.get_with_meta("a"))[0] == 1
            await database.put_many((str(number), number) for number in range(300))
            await database.put_many({"b": 2})
            assert await database.get_many((key for key in ["a", "x", "299"]), 0) == [1, 0, 299]
            assert not await database.add("a", 2) and await database.replace("a", 2)
            assert await database.compare_and_swap("a", 2, 3)
            assert not await database.put_if_version("a", version, 4)
            assert await database.setdefault("c", [1]) == [1]
            assert await database.touch("c", 60) and (await database.meta("c")).expires_at
            assert await database.pop("c") == [1] and await database.pop("c", 0) == 0
            with pytest.raises(KeyError):
                await database.pop("c")
            assert await database.compare_and_remove("b", 2) and await database.remove("a")
            assert await database.add_int("n", 5) == 5 and await database.add_float("f", 1.5) == 1.5
            await database.append("s", "5")
            assert await database.get("s") == 5
            for removed in "nfs":
                await database.remove(removed)
            assert not {"get", "size", "meta", "add", "put_many"} <= set(names)
            assert await database.modify("0", lambda value: value + 1) == 1
            assert await database.run(lambda inner, key: inner[key], "0") == 1
            assert len(database) == 300
            assert {key async for key in database} == set(map(str, range(300)))
            items = {key: value async for key, value in database.iter_items(prefix="29")}
            assert items["299"] == 299 and len(items) == 11
            assert sorted([value async for value in database.iter_values()])[-1] == 299
            await database.sync()
            await database.clear()
            assert len(database) == 0 and "closed" not in repr(database)
        with pytest.raises(cabinet.ClosedError):
            await database.get("a")
        with pytest.raises(cabinet.ClosedError):
            await database.put("a", 1)
        assert database.closed and "closed" in repr(database)
        await database.close()

    run(main())


def test_what_is_in_memory_is_read_without_a_thread(name):
    async def main():
        database = await cabinet.aio.open(name)
        await database.put("a", b"1")
        names = handed_over(database)
        for _ in range(1000):
            assert await database.get("a") == b"1"
        # Reads never wait for anything but the disk.
        assert names == []
        await database.close()

    run(main())


@pytest.mark.parametrize("kind", ["tch", "tcb"])
def test_a_read_from_the_disk_does_not_hold_up_the_loop(tmp_path, kind):
    async def main():
        options = {"tch": {"index_bytes": 64 << 10}, "tcb": {"cache_bytes": 64 << 10}}[kind]
        async with cabinet.aio.open(tmp_path / f"a.{kind}", **options) as database:
            await database.put_many((b"%06d" % number, b"x" * 2000) for number in range(5000))
            await database.sync()
        async with cabinet.aio.open(tmp_path / f"a.{kind}", **options) as database:
            names = handed_over(database)
            keys = [b"%06d" % (number * 7919 % 5000) for number in range(500)]
            deadline = time.monotonic() + LIMIT / 2
            while "get" not in names and time.monotonic() < deadline:
                for file in pathlib.Path(database.database.path).iterdir():
                    descriptor = os.open(file, os.O_RDONLY)
                    os.fsync(descriptor)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(descriptor)
                # The database looks now and then which of its files are in memory.
                await asyncio.sleep(0.5)
                values = await asyncio.gather(*map(database.get, keys))
                assert values == [b"x" * 2000] * 500
            assert "get" in names

    run(main())


def test_durable_changes_of_tasks_share_a_sync(tmp_path):
    async def main():
        async with cabinet.aio.open(tmp_path / "a.tch", durability="always") as database:
            names = handed_over(database)
            await database.put("a", b"1")
            inner = database.database
            assert inner.durable >= inner.appended and "wait_durable" in names
            names.clear()
            await asyncio.gather(*(database.put(str(number), b"1") for number in range(200)))
            assert inner.durable >= inner.appended
            assert len(names) < 100
            one = asyncio.create_task(database.put("b", b"1"))
            two = asyncio.create_task(database.put("c", b"1"))
            await asyncio.sleep(0)
            one.cancel()
            await two
            assert await database.get("c") == b"1"

    run(main())


def test_the_loop_goes_on_while_a_thread_works(tmp_path):
    async def main():
        async with cabinet.aio.open(tmp_path / "a.tch") as database:
            is_begun, may_end = threading.Event(), threading.Event()

            def work(inner):
                is_begun.set()
                assert may_end.wait(LIMIT)
                return inner.path

            task = asyncio.create_task(database.run(work))
            while not is_begun.is_set():
                await asyncio.sleep(0.001)
            await database.put("a", b"1")
            assert await database.get("a") == b"1" and not task.done()
            may_end.set()
            assert (await task).endswith("a.tch")

    run(main())


def test_transactions(name):
    async def main():
        async with cabinet.aio.open(name, codec="json") as database:
            await database.put_many({"a": 10, "b": 0})
            async with database.transaction() as transaction:
                assert await transaction.get("a") == 10
                await transaction.put("a", 9)
                assert await transaction.get("a") == 9 and await database.get("a") == 10
            assert await database.get("a") == 9
            with pytest.raises(cabinet.ClosedError):
                await transaction.get("a")
            with pytest.raises(ZeroDivisionError):
                async with database.transaction() as transaction:
                    await transaction.put("a", 1 / 0)
            with pytest.raises(cabinet.ConflictError):
                async with database.transaction() as transaction:
                    await transaction.put("a", await transaction.get("a") + 1)
                    await database.put("a", 5)

            async def transfer(transaction):
                await transaction.put("a", await transaction.get("a") - 1)
                await asyncio.sleep(0)
                await transaction.put("b", await transaction.get("b") + 1)

            await asyncio.gather(*(database.transact(transfer) for _ in range(10)))
            assert await database.get_many(["a", "b"]) == [-5, 10]
            async with database.transaction() as transaction:
                await transaction.remove("a")
                await transaction.rollback()
            assert await database.contains("a")

    run(main())


def test_tables_and_errors(tmp_path):
    async def main():
        async with cabinet.aio.open(tmp_path / "a.tct", indices={"n": "dec"}) as table:
            await table.put("p", {"n": 5})
            assert await table.get("p") == {"n": "5"}
            query = await table.run(lambda inner: inner.query(cabinet.column("n") > 4).keys())
            assert query == ["p"]
            with pytest.raises(cabinet.UnsupportedError):
                await table.put("p", {"n": 5}, ttl=5)
        with pytest.raises(cabinet.BadNameError):
            await cabinet.aio.open("a.nonsense")
        with pytest.raises(cabinet.IoError):
            async with cabinet.aio.open(tmp_path / "missing.tch", create=False):
                pass
        async with cabinet.aio.open("*", codec="json") as database:
            await database.append("a", "{")
            with pytest.raises(ValueError):
                await database.pop("a")
            assert await database.contains("a")

    run(main())


def test_methods_are_documented():
    for owner in (cabinet.aio.Database, cabinet.aio.Transaction):
        for method, function in inspect.getmembers(owner, inspect.isfunction):
            assert method.startswith("_") or inspect.getdoc(function), method


def test_all_of_a_transaction_is_handed_to_threads(name):
    async def main():
        async with cabinet.aio.open(name) as database:
            await database.put("a", b"1")
            names = handed_over(database)
            async with database.transaction() as transaction:
                del names[:]
                assert await transaction.get("a") == b"1"
                assert await transaction.size("a") == 1
                await transaction.put("a", b"2")
                assert names == ["get", "size", "put"]
            assert await database.get("a") == b"2"

    run(main())


def test_a_cancelled_close_goes_on_and_later_operations_say_closed(tmp_path):
    async def main():
        name = str(tmp_path / "a.tch")
        database = await cabinet.aio.open(name)
        await database.put("a", b"1")
        may_end = threading.Event()
        wait = [database.run(lambda _: may_end.wait(LIMIT)) for _ in range(cabinet.aio.THREADS)]
        busy = asyncio.gather(*wait)
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(database.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        may_end.set()
        await busy
        await database.close()
        async with cabinet.aio.open(name) as again:
            assert await again.get("a") == b"1"
        for operation in [database.sync, database.clear, lambda: database.run(len)]:
            with pytest.raises(cabinet.ClosedError):
                await operation()

    run(main())


def test_changes_that_wait_for_their_sync_return_before_a_close(tmp_path):
    async def main():
        for number in range(20):
            name = str(tmp_path / f"{number}.tch")
            database = await cabinet.aio.open(name, durability="always")
            changes = [database.put(str(number), b"1") for number in range(5)]
            counts = [database.add_int("n") for _ in range(3)]
            tasks = [asyncio.ensure_future(change) for change in (*changes, *counts)]
            await asyncio.sleep(0)
            await database.close()
            assert (await asyncio.gather(*tasks))[5:] == [1, 2, 3]

    run(main())
