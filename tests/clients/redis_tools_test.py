"""Redis's own tools, and copies of records from and to a real Redis.

Arguments: port of a running server, folder of the programs.
"""

import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import promises
import redis

PORT = int(sys.argv[1])
PROGRAMS = pathlib.Path(sys.argv[2])
URL = f"redis://127.0.0.1:{PORT}"

# A time at which a record expires, in milliseconds since 1970.
LATER_MS = 4102444800123


def run(*command, stdin=None, status=0):
    """Runs a program. Returns its standard output and standard error."""
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)
    assert done.returncode == status, (command, done)
    return done.stdout, done.stderr.decode()


def cli(*arguments, stdin=None):
    return run("redis-cli", "-p", str(PORT), *arguments, stdin=stdin)[0]


def test_redis_cli_talks_in_both_versions():
    for version in (["-2"], ["-3"]):
        assert cli(*version, "set", "k", "v") == b"OK\n"
        assert cli(*version, "get", "k") == b"v\n"
        assert b"redis_version" in cli(*version, "info")
    assert cli(stdin=b"set words 'a b'\nget words\n").splitlines() == [b"OK", b"a b"]


def test_redis_cli_loads_and_lists_many_records():
    cli("flushall")
    requests = b"".join(
        b"*3\r\n$3\r\nSET\r\n$6\r\np%05d\r\n$1\r\nv\r\n" % number for number in range(20000)
    )
    assert b"errors: 0, replies: 20000" in cli("--pipe", stdin=requests)
    assert len(set(cli("--scan", "--pattern", "p*").split())) == 20000
    assert b"20000 keys" in cli("--bigkeys")


def test_redis_cli_subscribes():
    subscriber = subprocess.Popen(
        ["redis-cli", "-p", str(PORT), "subscribe", "news"], stdout=subprocess.PIPE
    )
    try:
        lines = [subscriber.stdout.readline().strip() for _ in range(3)]
        assert lines[:2] == [b"subscribe", b"news"], lines
        assert cli("publish", "news", "hello") == b"1\n"
        lines = [subscriber.stdout.readline().strip() for _ in range(3)]
        assert lines == [b"message", b"news", b"hello"], lines
    finally:
        subscriber.kill()
        subscriber.wait()


def test_redis_benchmark_runs():
    out, error = run(
        *["redis-benchmark", "-p", str(PORT), "-q", "-n", "2000", "-P", "10"],
        *["-t", "ping,set,get,incr,mset"],
    )
    assert out.count(b"requests per second") == 6 and "rror" not in error, (out, error)


class RealRedis:
    """A Redis on a free port, in a folder of its own."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(
            ["redis-server", *options, "--dir", self.folder.name], stdout=subprocess.DEVNULL
        )
        self.url = f"redis://127.0.0.1:{self.port}"
        self.client = redis.Redis(port=self.port)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client.ping()
                return self
            except redis.ConnectionError:
                assert time.monotonic() < deadline and self.process.poll() is None
                time.sleep(0.02)

    def __exit__(self, *_):
        self.client.close()
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def fill(client):
    client.flushall()
    pipe = client.pipeline(transaction=False)
    for number in range(5000):
        pipe.set(f"k{number}", number)
    pipe.execute()
    client.set(b"bytes\r\n\0\xff", bytes(range(256)) * 1000)
    client.set("number", 12345)
    client.set("brief", "v", pxat=LATER_MS)


def check(client):
    assert client.get(b"bytes\r\n\0\xff") == bytes(range(256)) * 1000
    assert client.get("number") == b"12345" and client.get("k4999") == b"4999"
    assert client.pexpiretime("brief") == LATER_MS and client.ttl("number") == -1
    assert client.dbsize() == 5003


def test_strings_come_from_redis_and_go_back():
    for kind in ("tch", "tcb"):
        with RealRedis() as real, tempfile.TemporaryDirectory() as folder:
            fill(real.client)
            name = f"{folder}/a.{kind}"
            run(PROGRAMS / "tyrant", "import", real.url, "--into", name)
            real.client.flushall()
            run(PROGRAMS / "tyrant", "export", name, "--to", real.url)
            check(real.client)


def test_strings_go_between_redis_and_the_running_server():
    ours = redis.Redis(port=PORT)
    with RealRedis() as real:
        fill(real.client)
        ours.flushall()
        run(PROGRAMS / "tyrant", "import", real.url, "--into", URL)
        check(ours)
        real.client.flushall()
        run(PROGRAMS / "tyrant", "import", URL, "--into", real.url)
        check(real.client)


def test_other_types_and_a_value_that_is_too_long_are_named():
    with RealRedis() as real, tempfile.TemporaryDirectory() as folder:
        fill(real.client)
        real.client.lpush("a list", "x")
        for number in range(3000):
            real.client.hset(f"hash{number % 7}", number, "x")
        real.client.setrange("long", 256 << 20, "x")
        name = f"{folder}/a.tch"
        program = PROGRAMS / "tyrant"
        out, error = run(program, "import", real.url, "--into", name, status=1)
        assert out.startswith(b"5003 records from redis://"), out
        assert 'key "long": its value has 268435457 bytes' in error, error
        assert "7 of type hash (as \"hash" in error and '1 of type list (as "a list")' in error, error


def test_passwords_and_databases_of_redis_are_used():
    with RealRedis() as real, tempfile.TemporaryDirectory() as folder:
        third = redis.Redis(port=real.port, db=3)
        third.set("k", "v")
        third.config_set("requirepass", "p@ss word")
        place, name = f"127.0.0.1:{real.port}/3", f"{folder}/a.tch"
        tyrant = PROGRAMS / "tyrant"
        _, error = run(tyrant, "import", f"redis://{place}", "--into", name, status=1)
        assert "NOAUTH" in error, error
        for login in (":p%40ss%20word", "default:p%40ss%20word"):
            out, _ = run(tyrant, "import", f"redis://{login}@{place}", "--into", name)
            assert out.startswith(b"1 record from redis://") and b"p@ss" not in out and b"%40ss" not in out, out


promises.keep(dict(globals()))
