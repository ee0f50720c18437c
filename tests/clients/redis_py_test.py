"""Redis's protocol in both versions as redis-py speaks it, and the example for it.

Arguments: port of a running server, folder of the programs.
"""

import pathlib
import subprocess
import sys
import time

import promises
import redis

PORT = int(sys.argv[1])

# Removes a lock if it has this token.
RELEASE = """
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0
"""

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


@each_version
def test_scripts_release_locks(client):
    client.script_flush()
    assert client.set("lock", "token", nx=True, px=100_000)
    assert client.eval(RELEASE, 1, "lock", "another") == 0
    try:
        client.evalsha("0" * 40, 1, "lock", "token")
        raise AssertionError("an unknown script was executed")
    except redis.exceptions.NoScriptError:
        pass
    # EVALSHA is refused, so that redis-py loads the script.
    client.script_flush()
    release = client.register_script(RELEASE)
    assert release(keys=["lock"], args=["token"]) == 1 and client.get("lock") is None
    assert client.script_exists(release.sha) == [True]
    assert client.evalsha(release.sha, 1, "lock", "token") == 0
    with client.lock("guarded", timeout=100, blocking_timeout=30) as lock:
        assert lock.owned() and not client.lock("guarded").acquire(blocking=False)
        assert lock.extend(100) and 100 < client.ttl("guarded") <= 200
    assert client.exists("guarded") == 0


@each_version
def test_connections_are_listed_and_closed(client):
    other = redis.Redis(port=PORT, single_connection_client=True, client_name="other")
    number = other.client_id()
    lines = {line["id"]: line for line in client.client_list()}
    assert lines[str(client.client_id())]["cmd"] == "client|list", lines
    assert lines[str(number)]["name"] == "other", lines
    assert client.client_list(client_id=[number])[0]["id"] == str(number)
    assert client.client_info()["id"] == client.client_id() != number
    assert client.client_kill_filter(_id=number) == 1
    deadline = time.monotonic() + 30
    while client.client_list(client_id=[number]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    other.close()


@each_version
def test_objects_have_encodings(client):
    client.mset({"number": "12", "short": "ab", "long": "a" * 100})
    found = [client.object("encoding", key) for key in ["number", "short", "long", "missing"]]
    assert found == [b"int", b"embstr", b"raw", None], found
    assert client.memory_usage("long") > 100


@each_version
def test_changes_of_keys_are_published(client):
    before = client.config_get("notify-keyspace-events")["notify-keyspace-events"]
    assert client.config_set("notify-keyspace-events", "KEA")
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.psubscribe("__key*@0__:*")
    # The reply to the subscription is ignored.
    assert listener.get_message(timeout=30) is None
    client.set("seen", "v", ex=1000)
    client.delete("seen")
    events = ["set", "expire", "del"]
    expected = [
        one
        for event in events
        for one in [
            ("__keyspace@0__:seen", event),
            (f"__keyevent@0__:{event}", "seen"),
        ]
    ]
    found = [listener.get_message(timeout=30) for _ in expected]
    assert [(one["channel"].decode(), one["data"].decode()) for one in found] == expected, found
    listener.close()
    assert client.config_set("notify-keyspace-events", before)


def test_the_example_runs():
    url = f"redis://127.0.0.1:{PORT}"
    done = subprocess.run(
        [sys.executable, EXAMPLES / "page_cache.py", url], capture_output=True, timeout=60
    )
    assert done.returncode == 0 and b"from the cache" in done.stdout, done


promises.keep(dict(globals()))
