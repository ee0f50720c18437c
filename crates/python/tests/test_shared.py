"""Databases that several processes share, by a server."""

import contextlib
import fcntl
import json
import os
import pathlib
import queue
import signal
import socket
import sys
import threading
import time

import pytest
from processes import in_process

import cabinet
import cabinet._server

#: Seconds in which a server ends, if it is to.
LIMIT = 60

#: Processes that write, seconds for which they do, and seconds between two kills of the server:
#: those of a short run, or of the environment.
PROCESSES = int(os.environ.get("SHARED_PROCESSES", 4))
SECONDS = float(os.environ.get("SHARED_SECONDS", 5))
KILL_SECONDS = float(os.environ.get("SHARED_KILL_SECONDS", 1))


def server_of(folder):
    """Returns the process that serves a database; None without one."""
    with socket.socket(socket.AF_UNIX) as probe:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            probe.connect(f"/proc/self/fd/{descriptor}/server.socket")
        except OSError:
            return None
        finally:
            os.close(descriptor)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def kill_server(folder):
    process = server_of(folder)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    return process


def wait_until(is_true):
    end = time.monotonic() + LIMIT
    while not is_true():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.tcb"


def share(path, **options):
    return cabinet.open(path, shared=True, **{"idle_seconds": 0, **options})


def test_processes_see_the_changes_of_each_other(path):
    program = """if True:
        import cabinet, sys
        with cabinet.open(sys.argv[1], shared=True, idle_seconds=0) as database:
            assert database["a"] == b"1"
            database["b"] = b"2"
            assert database.add_int("n") == 2
    """
    with share(path) as database:
        database["a"] = b"1"
        assert database.add_int("n") == 1
        assert in_process(program, path).wait() == 0
        assert database["b"] == b"2" and database.get_int("n") == 2


def test_the_server_ends_when_it_is_idle_and_leaves_no_socket(path):
    with share(path) as database:
        database["a"] = b"1"
        assert server_of(path) is not None
        mode = os.stat(path / "server.socket").st_mode
        assert mode & 0o777 == 0o600
    wait_until(lambda: not (path / "server.socket").exists() and server_of(path) is None)

    def opens():
        try:
            cabinet.open(path).close()
        except cabinet.InUseError:
            return False
        return True

    wait_until(opens)
    assert cabinet.check(path)["damages"] == []


def test_openings_and_ends_at_the_same_moment_lose_nothing(path):
    """With no idle time, each closing races with the next opening."""
    failures = []

    def work(thread):
        try:
            for number in range(20):
                with share(path) as database:
                    database[f"{thread}-{number}"] = b"x"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with share(path) as database:
        assert len(database) == 80


def test_racing_processes_start_one_server(path):
    program = """if True:
        import cabinet, sys
        with cabinet.open(sys.argv[1], shared=True, idle_seconds=0) as database:
            for _ in range(10):
                database.add_int("n")
    """
    processes = [in_process(program, path) for _ in range(6)]
    assert [process.wait() for process in processes] == [0] * 6
    with share(path) as database:
        assert database.get_int("n") == 60


def test_after_a_kill_the_next_operation_starts_the_server_again(path):
    with share(path) as database:
        database["a"] = b"1"
        first = kill_server(path)
        wait_until(lambda: server_of(path) is None)
        assert database["a"] == b"1"
        assert server_of(path) not in (None, first)
        kill_server(path)
        wait_until(lambda: server_of(path) is None)
        assert database.add_int("n") == 1
        kill_server(path)
        wait_until(lambda: server_of(path) is None)
        assert list(database) == [b"a", b"n"]


def test_a_transaction_ends_with_the_server_and_is_begun_again(path):
    with share(path) as database:
        database["a"] = b"1"
        transaction = database.transaction()
        transaction["a"] = b"2"
        kill_server(path)
        wait_until(lambda: server_of(path) is None)
        with pytest.raises(cabinet.ConflictError, match="server"):
            transaction.commit()
        assert database["a"] == b"1"
        tries = []

        def change(transaction):
            tries.append(transaction["a"])
            transaction["a"] = b"3"
            if len(tries) == 1:
                kill_server(path)
                wait_until(lambda: server_of(path) is None)

        database.transact(change)
        assert tries == [b"1", b"1"] and database["a"] == b"3"


def test_conflicts_of_transactions_are_found(path):
    with share(path) as database:
        database["a"] = b"1"
        transaction = database.transaction()
        assert transaction["a"] == b"1"
        database["a"] = b"2"
        transaction["b"] = b"3"
        with pytest.raises(cabinet.ConflictError):
            transaction.commit()
        assert "b" not in database


class Silent(threading.Thread):
    """A server that takes a request, and ends before it replies."""

    def __init__(self, path, greeting):
        super().__init__()
        self.listener = socket.socket(socket.AF_UNIX)
        self.greeting = greeting
        os.makedirs(path, exist_ok=True)
        self.listener.bind(str(path / "server.socket"))
        self.listener.listen()

    def run(self):
        connection, _ = self.listener.accept()
        with self.listener, connection:
            connection.recv(1 << 16)
            connection.sendall(len(self.greeting).to_bytes(4, "little") + self.greeting)
            connection.recv(1 << 16)


def test_another_version_gets_a_clear_error(path):
    server = Silent(path, b"0.0.9-1\0whatever")
    server.start()
    with pytest.raises(cabinet.ServerError, match=r"version \"0.0.9-1\".*one version"):
        share(path)
    server.join()


@pytest.mark.parametrize("sent", [b"", b"\xff" * 4, b"\x05\0\0\0hello", b"\0" * 100, b"\x10"])
def test_bytes_of_others_do_no_harm(path, sent):
    with share(path) as database:
        database["a"] = b"1"
        process = server_of(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(path / "server.socket"))
            other.sendall(sent)
            other.shutdown(socket.SHUT_WR)
            while other.recv(1 << 16):
                pass
        assert database["a"] == b"1" and server_of(path) == process


def test_a_stale_socket_is_replaced(path):
    share(path).close()
    wait_until(lambda: server_of(path) is None)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path / "server.socket"))
    with share(path) as database:
        database["a"] = b"1"
        assert database["a"] == b"1"


def test_a_path_that_is_too_long_for_a_socket_is_none_for_a_database(tmp_path):
    path = tmp_path / ("x" * 100) / ("y" * 100)
    path.mkdir(parents=True)
    path = path / "a.tcb"
    with share(path) as database:
        database["a"] = b"1"
        kill_server(path)
        wait_until(lambda: server_of(path) is None)
        assert database["a"] == b"1"


def test_one_process_and_several_exclude_each_other(path):
    with share(path) as database:
        process = server_of(path)
        with pytest.raises(cabinet.InUseError, match=f"process {process}, the server.*shared=True"):
            cabinet.open(path)
        assert database.kind == "tree"
    program = """if True:
        import cabinet, sys
        database = cabinet.open(sys.argv[1])
        print("open", flush=True)
        sys.stdin.read()
    """
    path = path.with_name("b.tch")
    owner = in_process(program, path)
    assert owner.stdout.readline() == "open\n"
    with pytest.raises(cabinet.InUseError, match=f"in process {owner.pid}: close it there"):
        share(path)
    owner.communicate()


def test_options_are_the_same_for_all(path):
    with share(path, compression="lz4"):
        with pytest.raises(cabinet.InvalidArgumentError, match="Lz4 there.* None here"):
            share(path)
        share(path, compression="lz4").close()


def test_what_is_not_shared_gets_a_clear_error(path):
    with pytest.raises(cabinet.InvalidArgumentError, match="in memory"):
        cabinet.open("*", shared=True)
    with pytest.raises(cabinet.InvalidArgumentError, match="truncate"):
        share(path, truncate=True)
    with pytest.raises(TypeError, match="shared=True"):
        cabinet.open(path, idle_seconds=1)
    with pytest.raises(ValueError, match="idle_seconds"):
        share(path, idle_seconds=-1)
    with pytest.raises(cabinet.IoError):
        share(path, create=False)
    with share(path) as database:
        with pytest.raises(cabinet.UnsupportedError, match="shared=True"):
            cabinet.salvage(path, database)


def test_a_folder_of_another_user_is_refused(path, monkeypatch):
    path.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(cabinet.ServerError, match="belongs to the user"):
        share(path)


def test_a_file_system_of_several_machines_is_refused(path, monkeypatch):
    monkeypatch.setattr(cabinet._server, "_file_system", lambda device: "nfs4")
    with pytest.raises(cabinet.ServerError, match="nfs4.*tyrant"):
        share(path)


def test_a_server_that_does_not_start_says_why(path, monkeypatch):
    monkeypatch.setattr(cabinet._server, "_PROGRAM", "raise SystemExit('no such module')")
    with pytest.raises(cabinet.ServerError, match="no such module"):
        share(path)


def test_an_opening_for_reading_only_refuses_changes(path):
    share(path).close()
    with share(path, read_only=True) as database, share(path) as writer:
        assert database.read_only and not writer.read_only
        writer["a"] = b"1"
        assert database["a"] == b"1"
        for change in (
            lambda: database.put("a", b"2"),
            lambda: database.remove("a"),
            lambda: database.update({"a": b"2"}),
            lambda: database.clear(),
        ):
            with pytest.raises(cabinet.ReadOnlyError):
                change()
        assert writer["a"] == b"1"


def test_children_of_forks_use_it_and_their_transactions_are_their_own(path):
    database = share(path)
    database["a"] = b"1"
    transaction = database.transaction()
    transaction["b"] = b"parent"
    cursor = database.cursor()
    cursor.first()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert database["a"] == b"1"
            database["c"] = b"child"
            for call in (lambda: transaction["b"], transaction.commit):
                try:
                    call()
                except cabinet.ForkedError:
                    continue
                os._exit(2)
            with database.transaction() as own:
                own["d"] = own["c"]
            assert list(database) == [b"a", b"c", b"d"]
            database.close()
            try:
                database["a"]
            except cabinet.ClosedError:
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    transaction.commit()
    assert dict(database) == {b"a": b"1", b"b": b"parent", b"c": b"child", b"d": b"child"}
    database.close()


def test_forks_while_threads_are_at_work_are_harmless(path):
    database = share(path)
    is_ended = threading.Event()

    def work(thread):
        number = 0
        while not is_ended.is_set():
            number += 1
            database[f"{thread}-{number % 100}"] = b"x"

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(10):
            child = os.fork()
            if child == 0:
                database[f"child-{number}"] = b"y"
                os._exit(0 if database[f"child-{number}"] == b"y" else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        is_ended.set()
        for thread in threads:
            thread.join()
    assert len(list(database.iter_keys(prefix="child-"))) == 10
    database.close()


def states_of(process):
    """Returns the letters of the states of a process's threads."""
    states = set()
    for path in pathlib.Path(f"/proc/{process}/task").glob("*/stat"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            states.add(path.read_text().rpartition(")")[2].split()[0])
    return states


def test_ctrl_c_ends_a_wait(path):
    """The server is stopped, so that no reply comes."""
    with share(path) as database:
        process = server_of(path)
        os.kill(process, signal.SIGSTOP)
        # Threads of the server go on until the first of them has taken the signal.
        wait_until(lambda: states_of(process) == {"T"})
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                database["a"]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.kill(process, signal.SIGCONT)
            signal.signal(signal.SIGALRM, before)
        database["a"] = b"1"
        assert database["a"] == b"1"


class Proxy(threading.Thread):
    """Takes the place of a server, and may lose a request or its reply, or keep the request."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.real, self.socket = str(path / "real.socket"), str(path / "server.socket")
        os.rename(self.socket, self.real)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket)
        self.listener.listen()
        #: What the next request loses: "request" or "reply", or that and the server with "server".
        #: With "later", `deliver` sends it.
        self.loses = None
        self.kept = queue.Queue()

    @staticmethod
    def frame(connection):
        length = connection.recv(4, socket.MSG_WAITALL)
        return length + connection.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL)

    def deliver(self):
        server, request = self.kept.get(timeout=LIMIT)
        with server:
            server.sendall(request)
            return self.frame(server)

    def run(self):
        while True:
            client, _ = self.listener.accept()
            with client, socket.socket(socket.AF_UNIX) as server:
                server.connect(self.real)
                while request := self.frame(client):
                    loses, self.loses = self.loses, None
                    if loses == "request":
                        break
                    if loses == "later":
                        self.kept.put((server.dup(), request))
                        # Until the process is killed.
                        client.recv(1)
                        break
                    server.sendall(request)
                    reply = self.frame(server)
                    if loses == "server":
                        self.listener.close()
                        return
                    if loses == "reply":
                        break
                    client.sendall(reply)


@pytest.mark.parametrize("loses", ["request", "reply"])
def test_reads_are_repeated_and_changes_are_not(path, loses):
    share(path, idle_seconds=60).close()
    proxy = Proxy(path)
    proxy.start()
    with share(path, idle_seconds=60) as database:

        def losing(operation, *arguments):
            if getattr(operation, "__self__", database) is database:
                # There is a connection then, whose first message is not the one that is lost.
                database.get("a")
            proxy.loses = loses
            return operation(*arguments)

        database.update({"a": b"1", "b": b"2", "c": b"3", "e": b"4"})
        assert losing(database.get, "a") == b"1" and losing(len, database) == 4
        assert losing(list, database) == [b"a", b"b", b"c", b"e"]
        is_done = loses == "reply"
        for operation, arguments in (
            (database.put, ("f", b"6")),
            (database.update, ({"g": b"7"},)),
            (database.remove, ("c",)),
            (database.compare_and_remove, ("e", b"4")),
            (database.touch, ("b", 1000)),
            (database.add_int, ("n",)),
            (database.append, ("a", b"!")),
            (database.add, ("d", b"4")),
            (database.compare_and_swap, ("b", b"2", b"5")),
        ):
            with pytest.raises(cabinet.OutcomeUnknownError, match="not known"):
                losing(operation, *arguments)
        assert database.get_int("n", 0) == is_done and ("d" in database) == is_done
        assert database["a"] == (b"1!" if is_done else b"1")
        assert database["b"] == (b"5" if is_done else b"2")
        assert ("f" in database) == ("g" in database) == is_done
        assert ("c" in database) == ("e" in database) == (not is_done)
        transaction = database.transaction()
        transaction["i"] = b"9"
        with pytest.raises(cabinet.OutcomeUnknownError):
            losing(transaction.commit)
        assert ("i" in database) == is_done
        transaction = database.transaction()
        with pytest.raises(cabinet.ConflictError):
            losing(transaction.put, "j", b"0")
        assert "j" not in database
        database._repeat_changes()
        losing(database.put, "j", b"0")
        losing(database.update, {"k": b"1"})
        assert database["j"] == b"0" and database["k"] == b"1"
        with pytest.raises(cabinet.OutcomeUnknownError):
            losing(database.remove, "j")
    os.rename(proxy.real, proxy.socket)
    kill_server(path)


def test_an_outcome_stays_unknown_if_no_server_starts_after_it(path, monkeypatch):
    share(path, idle_seconds=60).close()
    proxy = Proxy(path)
    proxy.start()
    database = share(path, idle_seconds=60)
    database["a"] = b"1"
    database._repeat_changes()
    with monkeypatch.context() as patch:
        patch.setattr(cabinet._server, "_PROGRAM", "raise SystemExit('no such module')")
        proxy.loses = "server"
        with pytest.raises(cabinet.OutcomeUnknownError) as raised:
            database["a"] = b"2"
        assert "no such module" in str(raised.value.__cause__)
    proxy.join()
    os.rename(proxy.real, proxy.socket)
    assert database["a"] == b"2"
    database.close()
    kill_server(path)


def test_a_mode_in_the_name_is_kept(path):
    with pytest.raises(cabinet.IoError):
        share(f"{path}#mode=w")
    assert not path.exists()
    with share(f"{path}#mode=wc") as database:
        database["a"] = b"1"
    with share(f"{path}#mode=r") as database:
        assert database["a"] == b"1"
        with pytest.raises(cabinet.ReadOnlyError):
            database["a"] = b"2"
        with share(path) as writer:
            writer["a"] = b"2"
        assert database["a"] == b"2"


def test_the_start_of_a_server_is_in_a_group_of_its_own(path, monkeypatch):
    program = "import os; raise SystemExit(f'group {os.getpgrp() == os.getpid()}')"
    monkeypatch.setattr(cabinet._server, "_PROGRAM", program)
    with pytest.raises(cabinet.ServerError, match="group True"):
        share(path)


def test_the_lock_of_a_start_is_released_after_an_error_though_there_is_a_copy(tmp_path):
    copy = None
    with pytest.raises(ZeroDivisionError):
        with cabinet._server._locked(str(tmp_path)):
            (lock,) = cabinet._server._locks
            copy = os.dup(lock)
            raise ZeroDivisionError
    with open(tmp_path / "server.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(copy)


def test_the_child_of_a_fork_has_no_copy_of_the_lock_of_a_start(tmp_path):
    with cabinet._server._locked(str(tmp_path)):
        (lock,) = cabinet._server._locks
        child = os.fork()
        if child == 0:
            try:
                os.fstat(lock)
            except OSError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_handler_cannot_close_what_waits_for_a_server(path):
    """The socket is one whose connections end at once."""
    database = share(path)
    kill_server(path)
    wait_until(lambda: server_of(path) is None)
    os.remove(path / "server.socket")
    is_ended = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path / "server.socket"))
        listener.listen()
        listener.settimeout(0.01)

        def refuse():
            while not is_ended.is_set():
                try:
                    listener.accept()[0].close()
                except TimeoutError:
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        before = signal.signal(signal.SIGALRM, lambda *_: database.close())
        try:
            # The handler runs within the operation, however slow the machine is.
            signal.setitimer(signal.ITIMER_REAL, 1)
            with pytest.raises(cabinet.ReentrantError):
                database["a"]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            is_ended.set()
            thread.join()
            signal.signal(signal.SIGALRM, before)
    database["a"] = b"1"
    database.close()


def test_each_connection_has_one_descriptor_and_none_too_many_a_clear_error(path):
    """The server has the limits of the process that starts it."""
    program = """if True:
        import cabinet, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
        database = cabinet.open(sys.argv[1], shared=True, idle_seconds=0)
        print("open", flush=True)
        sys.stdin.read()
    """
    process = in_process(program, path)
    assert process.stdout.readline() == "open\n"
    with share(path) as database:
        transactions = []
        with pytest.raises(cabinet.TooManyError, match="open files"):
            for _ in range(80):
                transactions.append(database.transaction())
        assert len(transactions) > 45
        for transaction in transactions:
            transaction.close()

        def stores():
            # The server notices the ends of connections one by one.
            try:
                database["a"] = b"1"
            except cabinet.TooManyError:
                return False
            return True

        wait_until(stores)
        assert database["a"] == b"1"
    process.communicate()


def test_memory_of_long_values_is_given_back(tmp_path):
    def memory(process):
        with open(f"/proc/{process}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

    path = tmp_path / "a.tch"
    with share(path) as database:
        process = server_of(path)
        before = memory(process), memory("self")
        database["a"] = b"x" * (64 << 20)
        assert len(database["a"]) == 64 << 20
        wait_until(lambda: memory(process) < before[0] + (48 << 10))
        assert memory("self") < before[1] + (48 << 10)


WRITER = """if True:
    import cabinet, json, sys, time
    path, writer, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    database = cabinet.open(path, shared=True, idle_seconds=5)
    end, number, sums, unknown = time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < end:
        key = f"{writer}-{number}"
        while True:
            try:
                database[key] = key.encode()
                break
            except cabinet.OutcomeUnknownError:
                pass
        def move(transaction):
            transaction[key + "-a"] = b"1"
            transaction[key + "-b"] = b"1"
        try:
            database.transact(move)
        except cabinet.OutcomeUnknownError:
            unknown += 1
        try:
            database.add_int("sum", bits=64)
            sums += 1
        except cabinet.OutcomeUnknownError:
            unknown += 1
        number += 1
    print(json.dumps([number, sums, unknown]))
"""


def test_what_is_acknowledged_survives_kills_of_the_server(path):
    """Of records, transactions and counters, by processes whose server is killed now and then."""
    share(path, idle_seconds=5).close()
    writers = [in_process(WRITER, path, number, SECONDS) for number in range(PROCESSES)]
    end, kills = time.monotonic() + SECONDS, 0
    while time.monotonic() + KILL_SECONDS < end:
        time.sleep(KILL_SECONDS)
        process = server_of(path)
        if process is not None:
            os.kill(process, signal.SIGKILL)
            kills += 1
    counts = [json.loads(writer.communicate()[0]) for writer in writers]
    assert kills > 0 and [writer.returncode for writer in writers] == [0] * PROCESSES
    with share(path, idle_seconds=5) as database:
        for writer, (number, _, _) in enumerate(counts):
            for record in range(number):
                key = f"{writer}-{record}"
                assert database[key] == key.encode()
                assert database.get(key + "-a") == database.get(key + "-b")
        sums, unknown = sum(count[1] for count in counts), sum(count[2] for count in counts)
        assert sums <= database.get_int("sum") <= sums + unknown
        assert database.verify()["damages"] == []
