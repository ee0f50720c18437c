"""Redis's protocol in both versions as redis-py speaks it, and the example for it.

EVAL, CLIENT LIST, CLIENT KILL and OBJECT are not tested here.

Arguments: port of a running server, folder of the programs.
"""

import pathlib
import subprocess
import sys
import time

import promises
import redis

PORT = int(sys.argv[1])
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "redis"


def each_version(test):
    def both():
        for protocol in (2, 3):
            client = redis.Redis(port=PORT, protocol=protocol, socket_timeout=30)
            client.flushall()
            test(client)
            client.close()

    return both


@each_version
def test_strings_of_any_bytes_and_length_come_back(client):
    for length in [0, 1, 255, 65536, 3_000_000]:
        value = (bytes(range(256)) * (length // 256 + 1))[:length]
        assert client.set(b"bytes\r\n\0", value)
        assert client.get(b"bytes\r\n\0") == value, length
    assert client.get("missing") is None
    assert client.set("once", "1", nx=True) and client.set("once", "2", nx=True) is None
    assert client.set("once", "3", xx=True, get=True) == b"1"
    assert client.append("once", "45") == 3 and client.getrange("once", 1, -1) == b"45"
    assert client.setrange("once", 1, "xy") == 3 and client.strlen("once") == 3
    assert client.mset({"a": 1, "b": 2}) and client.mget("a", "no", "b") == [b"1", None, b"2"]
    assert client.getdel("a") == b"1" and client.exists("a", "b") == 1
    assert client.rename("b", "c") and client.copy("c", "d") and client.type("d") == b"string"


@each_version
def test_records_expire(client):
    client.set("brief", "v", px=50)
    client.set("longer", "v", ex=1000)
    assert 0 < client.ttl("longer") <= 1000 and client.ttl("missing") == -2
    assert client.expire("longer", 2000, gt=True) and not client.expire("longer", 1, gt=True)
    assert client.getex("longer", persist=True) == b"v" and client.ttl("longer") == -1
    assert client.pexpireat("longer", 4102444800123)
    assert client.pexpiretime("longer") == 4102444800123
    deadline = time.monotonic() + 30
    while client.get("brief") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@each_version
def test_counters_and_bits_count(client):
    assert client.incr("n") == 1 and client.incrby("n", 10) == 11 and client.decr("n", 2) == 9
    assert client.incrbyfloat("f", 1.5) == 1.5
    assert client.setbit("bits", 7, 1) == 0 and client.getbit("bits", 7) == 1
    assert client.bitcount("bits") == 1 and client.bitpos("bits", 1) == 7
    assert client.bitfield("field").set("u8", 0, 200).incrby("u8", 0, 100).execute() == [0, 44]
    client.set("text", "x")
    try:
        client.incr("text")
        raise AssertionError("a text was counted")
    except redis.ResponseError as error:
        assert "not an integer" in str(error)


@each_version
def test_pipelines_and_transactions_are_whole(client):
    pipe = client.pipeline(transaction=False)
    for number in range(2000):
        pipe.set(f"k{number}", number)
    assert pipe.execute() == [True] * 2000
    with client.pipeline() as pipe:
        pipe.watch("k1")
        client.set("k1", "changed")
        pipe.multi()
        pipe.set("k1", "lost")
        try:
            pipe.execute()
            raise AssertionError("a watched key had changed")
        except redis.WatchError:
            pass
    client.transaction(lambda pipe: pipe.multi() or pipe.incr("k2"), "k2")
    assert client.get("k1") == b"changed" and client.get("k2") == b"3"
    replies = client.pipeline().set("k3", "text").incr("k3").get("k3").execute(raise_on_error=False)
    assert isinstance(replies[1], redis.ResponseError) and replies[2] == b"text"


@each_version
def test_scans_find_each_key(client):
    keys = {f"scan:{number}".encode() for number in range(3000)}
    client.mset({key: "v" for key in keys})
    client.set("other", "v")
    assert set(client.scan_iter(match="scan:*", count=100)) == keys
    assert client.dbsize() == 3001 and set(client.keys("scan:1?")) <= keys
    assert client.delete(*keys) == 3000


@each_version
def test_messages_reach_subscribers(client):
    listener = client.pubsub(ignore_subscribe_messages=False)
    listener.subscribe("news")
    listener.psubscribe("new*")
    assert [listener.get_message(timeout=30)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
    assert client.publish("news", "hello") == 2
    found = [listener.get_message(timeout=30) for _ in range(2)]
    assert {(one["type"], one["data"]) for one in found} == {
        ("message", b"hello"),
        ("pmessage", b"hello"),
    }
    listener.unsubscribe()
    listener.punsubscribe()
    assert [listener.get_message(timeout=30)["type"] for _ in range(2)] == [
        "unsubscribe",
        "punsubscribe",
    ]
    listener.close()


@each_version
def test_dumps_go_from_key_to_key(client):
    client.set("dumped", "value" * 100)
    assert client.restore("again", 0, client.dump("dumped"))
    assert client.get("again") == b"value" * 100


def test_the_example_runs():
    url = f"redis://127.0.0.1:{PORT}"
    done = subprocess.run(
        [sys.executable, EXAMPLES / "page_cache.py", url], capture_output=True, timeout=60
    )
    assert done.returncode == 0 and b"from the cache" in done.stdout, done


promises.keep(dict(globals()))
