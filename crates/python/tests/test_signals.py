"""Signals during long operations."""

import contextlib
import os
import signal
import threading
import time

import pytest

import cabinet

#: Seconds of processor time that an operation takes, if nothing ends it, and until the signal is
#: sent.
LONG, DELAY = 0.25, 0.05

#: Seconds until a signal that is to come within an operation, however slow the machine is.
WAIT = 0.5


def processor_seconds(operation):
    """Returns the processor time of an operation, which does not depend on other programs."""
    begun = time.process_time()
    operation()
    return time.process_time() - begun


@contextlib.contextmanager
def interrupted():
    """Raises `KeyboardInterrupt` as Ctrl-C does, after some processor time of this process."""
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, DELAY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture
def interrupt():
    """Returns a function that sends this process the signal of Ctrl-C a little later."""
    timers = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def later():
        timer = threading.Timer(WAIT, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        timers.append(timer)

    yield later
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_long_scan(opened):
    database = opened("*")
    scan = lambda: next(database.iter_keys(pattern="^(x|y)*z$"), None)  # noqa: E731
    count = 0
    while processor_seconds(scan) < LONG:
        more = max(10000, count)
        database.put_many((b"%d" % number, b"") for number in range(count, count + more))
        count += more
    with interrupted():
        with pytest.raises(KeyboardInterrupt):
            scan()
    assert database[b"5"] == b""


@pytest.mark.alone
def test_ctrl_c_ends_a_long_query(opened):
    table = opened("a.tct")
    query = table.query(cabinet.column("a").matches("^(x|y)*z$"))
    count = 0
    while processor_seconds(query.count) < LONG:
        # A batch has a limit.
        more = min(max(5000, count), 200_000)
        table.put_many(("%d" % number, {"a": "x" * 20}) for number in range(count, count + more))
        count += more
    for call in (query.count, query.keys, query.remove):
        with interrupted():
            with pytest.raises(KeyboardInterrupt):
                call()
    assert len(table) == count


def test_ctrl_c_ends_a_verification(opened, interrupt):
    database = opened("a.tch")
    database.put_many((b"%d" % number, os.urandom(1000)) for number in range(3000))
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupt()
        database.verify(bytes_per_second=1 << 16)
    # At this rate it would take 45 s.
    assert time.monotonic() - begun < 30


def test_a_handler_that_closes_gets_an_error_where_it_would_wait_for_itself(opened):
    database = opened("a.tch")
    database.put_many((b"%d" % number, os.urandom(1000)) for number in range(3000))
    raised = []

    def handler(number, frame):
        try:
            database.close()
        except cabinet.ReentrantError as error:
            raised.append(error)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, WAIT)
            database.verify(bytes_per_second=1 << 16)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(raised) == 1
    assert database[b"5"]
