"""Caches that several processes share."""

import json
import os
import signal
import time

import pytest
from processes import child_of_killed_parent, in_child, in_process
from test_shared import KILL_SECONDS, LIMIT, PROCESSES, SECONDS, Proxy, kill_server
from test_shared import server_of, wait_until

import cabinet
import cabinet._server
from cabinet import _cache_storage


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def share(folder, **options):
    return cabinet.Cache(folder, shared=True, **options)


def test_processes_see_values_counts_and_settings_of_each_other(folder):
    program = """if True:
        import sys, cabinet
        with cabinet.Cache(sys.argv[1], shared=True) as cache:
            assert cache["a"] == 1 and len(cache) == 1
            cache.set("b", b"x" * 100_000, tag="t")
            cache.reset("size_limit", 1 << 20)
            cache.reset("eviction_policy", "least-recently-used")
            assert list(cache) == ["a", "b"]
    """
    with share(folder) as cache:
        cache["a"] = 1
        assert in_process(program, folder).wait() == 0
        assert cache["b"] == b"x" * 100_000 and len(cache) == 2
        assert cache.size_limit == 1 << 20
        assert cache.eviction_policy == "least-recently-used"
        cache["c"] = 3
        assert list(cache) == ["a", "b", "c"] and cache.evict("t") == 1
        assert cache.check() == []


def test_changes_of_processes_are_one_after_the_other(folder):
    program = """if True:
        import sys, cabinet
        with cabinet.Cache(sys.argv[1], shared=True) as cache:
            for number in range(50):
                cache.incr("n", retry=True)
                cache.push(number, retry=True)
                with cache.transact(retry=True):
                    cache["sum"] = cache.get("sum", 0) + 1
    """
    processes = [in_process(program, folder) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with share(folder) as cache:
        assert cache["n"] == cache["sum"] == 200 and len(cache) == 202
        assert cache.check() == []


def test_a_transaction_of_another_process_is_waited_for_until_the_timeout(folder):
    program = """if True:
        import sys, cabinet
        cache = cabinet.Cache(sys.argv[1], timeout=0.1, shared=True)
        print("open", flush=True)
        sys.stdin.readline()
        try:
            cache.set("a", 2)
        except cabinet.cache.Timeout as error:
            sys.exit(7 if "process" in str(error) else 8)
    """
    with share(folder) as cache:
        process = in_process(program, folder)
        assert process.stdout.readline() == "open\n"
        with cache.transact():
            cache["a"] = 1
            process.communicate("go\n")
            assert process.returncode == 7
        assert cache["a"] == 1


def test_a_transaction_goes_on_after_a_kill_of_the_server(folder):
    with share(folder) as cache:
        with cache.transact():
            cache["a"] = 1
            kill_server(folder / _cache_storage.TREE_NAME)
            cache["b"] = cache["a"] + 1
        assert cache["b"] == 2 and len(cache) == 2 and cache.check() == []


def test_a_commit_is_repeated_within_the_lock_of_the_cache(folder, monkeypatch):
    monkeypatch.setattr(cabinet._server, "IDLE_SECONDS", 60.0)
    tree = folder / _cache_storage.TREE_NAME
    share(folder).close()
    proxy = Proxy(tree)
    proxy.start()
    with share(folder) as cache:
        cache["a"] = 1
        with cache.transact():
            cache["b"] = 2
            cache["a"]
            proxy.loses = "reply"
        assert proxy.loses is None and cache["b"] == 2 and len(cache) == 2
    os.rename(proxy.real, proxy.socket)
    kill_server(tree)


@pytest.mark.parametrize("is_within", [False, True])
def test_a_commit_of_a_killed_process_is_not_done_later(folder, monkeypatch, is_within):
    """The server gets it after the next process has begun or ended its own transaction."""
    monkeypatch.setattr(cabinet._server, "IDLE_SECONDS", 60.0)
    program = """if True:
        import sys, cabinet
        cache = cabinet.Cache(sys.argv[1], shared=True)
        with cache.transact():
            cache["a"] = 2
            cache["new"] = 1
            print("begun", flush=True)
            sys.stdin.readline()
    """
    tree = folder / _cache_storage.TREE_NAME
    with share(folder) as cache:
        cache["a"] = 1
    proxy = Proxy(tree)
    proxy.start()
    process = in_process(program, folder)
    assert process.stdout.readline() == "begun\n"
    proxy.loses = "later"
    process.stdin.write("go\n")
    process.stdin.flush()
    wait_until(lambda: not proxy.kept.empty())
    process.kill()
    process.communicate()
    with share(folder) as cache:
        with cache.transact():
            cache["b"] = cache["a"] + len(cache)
            if is_within:
                assert b"ConflictError" in proxy.deliver()
        if not is_within:
            assert b"ConflictError" in proxy.deliver()
        assert {key: cache[key] for key in cache} == {"a": 1, "b": 2} and len(cache) == 2
        cache["c"] = 3
        assert len(cache) == 3 and cache.check() == []
    os.rename(proxy.real, proxy.socket)
    kill_server(tree)


def test_a_commit_that_an_exception_has_left_is_not_done_later(folder):
    with share(folder) as cache:
        cache["a"] = 1
        storage, late = cache._storage, []
        write = storage._write

        def interrupt(changes):
            late.append((changes, storage._mark_version))
            raise KeyboardInterrupt

        storage._write = interrupt
        with pytest.raises(KeyboardInterrupt):
            cache["a"] = 2
        storage._write = write
        assert cache.incr("a") == 2
        (changes, storage._mark_version), version = late[0], storage._mark_version
        with pytest.raises(cabinet.ConflictError):
            write(changes)
        storage._mark_version = version
        assert cache.incr("a") == 3 and len(cache) == 1 and cache.check() == []


def test_one_process_alone_makes_others_read_again_and_their_commits_fail(folder):
    """They have begun before, with a server that was killed."""
    tree = folder / _cache_storage.TREE_NAME
    with share(folder) as cache:
        cache["a"] = 1
        with pytest.raises(cabinet.ConflictError):
            with cache.transact():
                cache["b"] = cache["a"] + 1
                kill_server(tree)
                wait_until(lambda: server_of(tree) is None)
                with cabinet.Cache(folder, shared=False) as alone:
                    alone["c"] = 3
        assert len(cache) == 2 and cache["c"] == 3 and "b" not in cache
        cache["b"] = 2
        assert len(cache) == 3 and cache.check() == []


def test_a_file_stays_if_it_is_not_known_whether_its_row_was_stored(folder, monkeypatch):
    with share(folder) as cache:
        write = cache._storage._write

        def lose(changes):
            write(changes)
            raise cabinet.OutcomeUnknownError("the reply was lost")

        with monkeypatch.context() as patch:
            patch.setattr(cache._storage, "_write", lose)
            with pytest.raises(cabinet.OutcomeUnknownError):
                cache["a"] = b"x" * 100_000
        assert cache["a"] == b"x" * 100_000 and len(cache) == 1
        assert cache.check() == []


def test_a_killed_process_loses_its_transaction_and_no_lock(folder):
    program = """if True:
        import os, sys, cabinet
        cache = cabinet.Cache(sys.argv[1], shared=True)
        cache["a"] = b"x" * 100_000
        with cache.transact():
            cache["b"] = b"y" * 100_000
            os.kill(os.getpid(), 9)
    """
    with share(folder) as cache:
        assert in_process(program, folder).wait() == -signal.SIGKILL
        assert list(cache) == ["a"] and cache["a"] == b"x" * 100_000
        cache["c"] = 3
        assert len(list(cache._storage.files())) == 2
    wait_until(lambda: server_of(folder / _cache_storage.TREE_NAME) is None)
    with share(folder) as cache:
        assert len(cache) == 2


def test_files_of_values_of_others_are_none_without_a_row(folder):
    """A process that opens the cache leaves the files that another one is about to store."""
    with share(folder) as cache:
        stored = cache._disk.store(b"x" * 100_000, False, key="a")
        program = """if True:
            import sys, cabinet
            with cabinet.Cache(sys.argv[1], shared=True) as cache:
                assert cache.check(fix=True) == []
        """
        assert in_process(program, folder).wait() == 0
        assert os.path.exists(folder / stored[2])


def lock_of(folder):
    return folder / _cache_storage.TREE_NAME / _cache_storage.LOCK_NAME


OTHER = """if True:
    import sys
    from cabinet._cache_processes import Processes
    assert not Processes(sys.argv[1]).acquire(0)
"""


def test_children_of_forks_open_the_cache_again(folder):
    with share(folder) as cache:
        cache["a"] = 1

        def run():
            assert cache["a"] == 1 and len(cache) == 1
            cache["b"] = 2
            cache.incr("a")
            cache.close()

        in_child(run)
        assert dict((key, cache[key]) for key in cache) == {"a": 2, "b": 2}
        with cache.transact():
            cache["c"] = 3
            in_child(lambda: None)
            # The child did not release the lock of its parent.
            assert in_process(OTHER, lock_of(folder)).wait() == 0
        assert len(cache) == 3 and cache.check() == []


def test_a_copy_of_the_folder_by_the_process_itself_releases_no_lock(folder, tmp_path):
    with share(folder) as cache, cache.transact():
        cache["a"] = 1
        with open(lock_of(folder), "rb") as lock:
            lock.read()
        assert in_process(OTHER, lock_of(folder)).wait() == 0


def test_a_child_does_not_hold_the_locks_of_a_killed_parent(folder):
    program = """if True:
        import sys, cabinet
        cache = cabinet.Cache(sys.argv[1], shared=True)
        with cache.transact():
            cache["a"] = 1
            fork_and_die()
    """
    with child_of_killed_parent(program, folder):
        with share(folder, timeout=LIMIT) as cache:
            cache.set("b", 2)
            assert list(cache) == ["b"] and cache._storage.is_alone()


def test_a_child_leaves_a_transaction_of_its_parent_without_a_change(folder):
    with share(folder) as cache:
        with cache.transact():
            cache["a"] = 1
            child = os.fork()
        if child == 0:
            try:
                with cache.transact():
                    cache["b"] = 2
                cache.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert sorted(cache) == ["a", "b"] and len(cache) == 2 and cache.check() == []


def test_hits_and_misses_of_processes_are_added(folder):
    program = """if True:
        import sys, cabinet
        with cabinet.Cache(sys.argv[1], shared=True) as cache:
            for _ in range(10):
                cache.get("a"), cache.get("none")
    """
    with share(folder, statistics=1) as cache:
        cache["a"] = 1
        cache.get("a")
        processes = [in_process(program, folder) for _ in range(3)]
        assert [process.wait() for process in processes] == [0] * 3
        assert cache.stats() == (31, 30)


def test_one_process_and_several_exclude_each_other(folder):
    with share(folder):
        with pytest.raises(cabinet.InUseError, match="shared=True"):
            cabinet.Cache(folder, shared=False)


def test_a_cache_is_shared_by_default(folder):
    with cabinet.Cache(folder) as cache, cabinet.FanoutCache(folder / "fanout") as fanout:
        cache["a"] = 1
        part = fanout.cache("part")
        part["b"] = 2
        program = """if True:
            import sys, cabinet
            with cabinet.Cache(sys.argv[1]) as cache:
                cache.incr("a")
            with cabinet.Cache(sys.argv[2]) as part:
                part.incr("b")
            deque = cabinet.Deque([1, 2], sys.argv[3])
            index = cabinet.Index(sys.argv[4], a=1)
        """
        folders = folder, part.directory, folder / "deque", folder / "index"
        with cabinet.Deque([], folders[2]).cache, cabinet.Index(os.fspath(folders[3])).cache:
            assert in_process(program, *folders).wait() == 0
            assert cache["a"] == 2 and part["b"] == 3
            assert list(cabinet.Deque([], folders[2])) == [1, 2]
            assert dict(cabinet.Index(os.fspath(folders[3]))) == {"a": 1}


def test_a_reader_shares_a_cache_that_is_shared_and_writes_nothing_else(folder):
    def is_free():
        try:
            cabinet.Cache(folder, read_only=True, shared=False).close()
        except cabinet.InUseError:
            return False
        return True

    with cabinet.Cache(folder) as cache:
        cache["a"] = 1
        with cabinet.Cache(folder, read_only=True) as reader:
            cache["b"] = 2
            assert reader["b"] == 2 and len(reader) == 2
            with pytest.raises(cabinet.ReadOnlyError):
                reader["b"] = 3
    wait_until(is_free)
    with cabinet.Cache(folder, read_only=True) as reader:
        assert reader["a"] == 1 and len(reader) == 2
        assert server_of(folder / _cache_storage.TREE_NAME) is None


WRITER = """if True:
    import json, sys, time
    import cabinet, cabinet._server
    cabinet._server.IDLE_SECONDS = 5.0
    folder, writer, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    cache = cabinet.Cache(folder, shared=True, eviction_policy="none")
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        cache[f"{writer}-{number}"] = f"{writer}-{number}".encode() * 10
        cache.incr(f"n-{writer}", retry=True)
        number += 1
    cache.close()
    print(json.dumps(number))
"""


def test_what_is_acknowledged_survives_kills_of_the_server(folder):
    tree = folder / _cache_storage.TREE_NAME
    writers = [in_process(WRITER, folder, number, SECONDS) for number in range(PROCESSES)]
    end, kills = time.monotonic() + SECONDS, 0
    while time.monotonic() + KILL_SECONDS < end:
        time.sleep(KILL_SECONDS)
        process = server_of(tree) if tree.exists() else None
        if process is not None:
            os.kill(process, signal.SIGKILL)
            kills += 1
    counts = [json.loads(writer.communicate()[0]) for writer in writers]
    assert kills > 0 and [writer.returncode for writer in writers] == [0] * PROCESSES
    with share(folder) as cache:
        for writer, count in enumerate(counts):
            assert cache.get(f"n-{writer}", 0) == count
            for number in range(count):
                assert cache[f"{writer}-{number}"] == f"{writer}-{number}".encode() * 10
        assert cache.check() == []
