"""The memcached protocols as pylibmc, by way of libmemcached in C, speaks them.

Arguments: port of a running server, folder of the programs.
"""

import sys
import time

import promises
import pylibmc

PORT = int(sys.argv[1])


def each_protocol(test):
    """The same over the text and the binary protocol."""

    def both():
        for binary in [False, True]:
            client = pylibmc.Client([f"127.0.0.1:{PORT}"], binary=binary)
            client.behaviors = {"cas": True, "tcp_nodelay": True}
            client.flush_all()
            test(client)

    return both


def not_there(call):
    try:
        return not call()
    except pylibmc.NotFound:
        return True


@each_protocol
def test_values_of_every_kind_come_back(client):
    for value in [b"bytes", "text", 5, 2**70, True, ["a", {"b": 1}], b"\0\r\n" * 1000]:
        assert client.set("value", value)
        assert client.get("value") == value, value
    long = bytes(index * 7 % 256 for index in range(256)) * 3500
    assert client.set("long", long) and client.get("long") == long
    assert client.set("packed", long, min_compress_len=1000) and client.get("packed") == long
    assert client.get("missing") is None


@each_protocol
def test_add_and_replace_look_whether_there_is_a_record(client):
    assert client.add("once", "1") and not client.add("once", "2")
    assert client.replace("once", "3")
    # Over the text protocol the answer is that nothing was stored, over the binary one why.
    assert not_there(lambda: client.replace("never", "4"))
    assert client.get("once") == "3" and client.get("never") is None


@each_protocol
def test_append_and_prepend_extend_a_value(client):
    assert not client.append("extended", b"x")
    client.set("extended", b"b")
    assert client.append("extended", b"c") and client.prepend("extended", b"a")
    assert client.get("extended") == b"abc"


@each_protocol
def test_many_keys_are_read_and_removed_at_once(client):
    records = {f"many-{index}": index for index in range(500)}
    assert client.set_multi(records) == []
    assert client.get_multi([*records, "many-missing"]) == records
    assert client.delete_multi(list(records))
    assert client.get_multi(list(records)) == {}
    assert not client.delete("many-1")


@each_protocol
def test_cas_stores_only_over_what_was_read(client):
    client.set("swapped", "1")
    value, version = client.gets("swapped")
    assert value == "1"
    assert client.cas("swapped", "2", version)
    assert not client.cas("swapped", "3", version)
    assert client.get("swapped") == "2"


@each_protocol
def test_counters_count_and_stop_at_zero(client):
    client.set("counter", 10)
    assert client.incr("counter", 5) == 15
    assert client.decr("counter", 4) == 11
    assert client.decr("counter", 100) == 0
    assert not_there(lambda: client.incr("counter-missing"))


@each_protocol
def test_a_record_expires(client):
    client.set("brief", "v", time=1)
    client.set("longer", "v", time=1000)
    assert client.get("brief") == "v"
    assert client.touch("longer", 1) and not client.touch("missing", 1)
    deadline = time.monotonic() + 30
    while client.get("brief") is not None or client.get("longer") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@each_protocol
def test_stats_and_flush_answer(client):
    client.set("counted", "v")
    [(_server, stats)] = client.get_stats()
    assert int(stats["curr_items"]) == 1 and stats["version"]
    assert client.flush_all()
    assert client.get("counted") is None


promises.keep(dict(globals()))
