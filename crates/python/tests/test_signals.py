"""Signals during long operations."""

import os
import signal
import threading
import time

import pytest

import cabinet

#: Seconds that an operation takes at least, if nothing ends it, and until the signal is sent.
LONG, DELAY = 0.4, 0.05


@pytest.fixture
def interrupt():
    """Returns a function that sends this process the signal of Ctrl-C a little later."""
    timers = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def later():
        timer = threading.Timer(DELAY, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        timers.append(timer)

    yield later
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGINT, before)


def seconds_of(operation):
    begun = time.monotonic()
    operation()
    return time.monotonic() - begun


def test_ctrl_c_ends_a_long_scan(opened, interrupt):
    database = opened("*")
    scan = lambda: next(database.iter_keys(pattern="^(x|y)*z$"), None)  # noqa: E731
    count = 0
    while seconds_of(scan) < LONG:
        more = max(10000, count)
        database.put_many((b"%d" % number, b"") for number in range(count, count + more))
        count += more
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        scan()
    assert database[b"5"] == b""


def test_ctrl_c_ends_a_verification(opened, interrupt):
    database = opened("a.tch")
    database.put_many((b"%d" % number, os.urandom(1000)) for number in range(3000))
    interrupt()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
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
        signal.setitimer(signal.ITIMER_REAL, DELAY)
        with pytest.raises(KeyboardInterrupt):
            database.verify(bytes_per_second=1 << 16)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(raised) == 1
    assert database[b"5"]
