"""twemproxy (Debian's nutcracker) spreads keys over three servers, and goes on when one goes.

Arguments: port of a running server (not used), folder of the programs.
"""

import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

import promises
from pymemcache.client.base import Client

PROGRAMS = pathlib.Path(sys.argv[2])
RECORDS = {f"key-{number}": f"value-{number}".encode() for number in range(900)}
PATIENCE_SECONDS = 60

# A server that fails once is left out, and tried again after so many milliseconds.
RETRY_MS = 500

CONFIGURATION = """
pool:
  listen: 127.0.0.1:{proxy}
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: true
  server_retry_timeout: {retry}
  server_failure_limit: 1
  timeout: 10000
  servers:
"""


def free_ports(count):
    """Ports that nobody listens on, below those that systems give to the clients' ends: one of
    those connects to itself when it is tried before the server listens."""
    ports = []
    for port in random.sample(range(10_000, 30_000), 1000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError("no free ports")


def connect(port):
    return Client(("127.0.0.1", port), timeout=10, connect_timeout=10, default_noreply=False)


def wait(condition):
    """Waits until a condition holds; while servers come and go it may also fail."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if condition():
                return
        except Exception:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


class Pool:
    """Three servers behind a proxy."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        *self.ports, self.proxy, statistics = free_ports(5)
        self.servers = {}
        for port in self.ports:
            self.start(port)
        configuration = CONFIGURATION.format(proxy=self.proxy, retry=RETRY_MS)
        for number, port in enumerate(self.ports):
            configuration += f"   - 127.0.0.1:{port}:1 server{number}\n"
        (self.folder / "nutcracker.yml").write_text(configuration)
        self.nutcracker = subprocess.Popen(
            ["nutcracker", "-c", self.folder / "nutcracker.yml", "-o", self.folder / "log"]
            + ["-a", "127.0.0.1", "-s", str(statistics)]
        )
        wait(lambda: connect(self.proxy).set("first", "v"))

    def start(self, port):
        database = self.folder / f"{port}.tch"
        self.servers[port] = subprocess.Popen(
            [PROGRAMS / "tyrant", "serve", database, "--host", "127.0.0.1", "--port", str(port)]
            + ["--log", self.folder / f"{port}.log"]
        )
        wait(lambda: connect(port).version())

    def kill(self, port):
        self.servers[port].kill()
        self.servers[port].wait()

    def records_of(self, port):
        return int(connect(port).stats()[b"curr_items"])

    def stop(self):
        for process in [self.nutcracker, *self.servers.values()]:
            process.kill()
            process.wait()


def test_keys_are_spread_and_stay_served_when_a_server_goes_and_returns():
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(folder)
        try:
            spread_and_serve(pool)
        finally:
            pool.stop()


def store(client, records):
    for key, value in records.items():
        assert client.set(key, value), key


def spread_and_serve(pool):
    client = connect(pool.proxy)
    store(client, RECORDS)
    assert client.get_many(list(RECORDS)) == RECORDS
    counts = [pool.records_of(port) for port in pool.ports]
    assert min(counts) >= len(RECORDS) // 10, counts
    assert sum(counts) in [len(RECORDS), len(RECORDS) + 1], counts

    gone = pool.ports[1]
    theirs = {key for key in RECORDS if connect(gone).get(key) is not None}
    pool.kill(gone)
    # Its keys are served by the others once the proxy has noticed; those of the others always are.
    # The proxy tries the server again from time to time, and one request fails then.
    for key in theirs:
        wait(lambda: connect(pool.proxy).set(key, b"meanwhile"))
    client = connect(pool.proxy)
    others = [key for key in RECORDS if key not in theirs]
    wait(lambda: connect(pool.proxy).get_many(others) == {key: RECORDS[key] for key in others})

    pool.start(gone)
    # It has kept what it had, and its keys go to it again.
    wait(lambda: connect(pool.proxy).get_many(list(RECORDS)) == RECORDS)
    client = connect(pool.proxy)
    store(client, {key: b"again" for key in theirs})
    assert all(connect(gone).get(key) == b"again" for key in theirs)


promises.keep(dict(globals()))
