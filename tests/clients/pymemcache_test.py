"""The memcached protocol as pymemcache, a client in wide use, speaks it.

Arguments: port of a running server, folder of the programs.
"""

import sys
import time

import promises
from pymemcache.client.base import Client

PORT = int(sys.argv[1])


def connect(**options):
    return Client(("127.0.0.1", PORT), timeout=10, default_noreply=False, **options)


def test_values_of_any_bytes_and_length_come_back():
    client = connect()
    for length in [0, 1, 255, 65536, 3_000_000]:
        value = bytes(index * 7 % 256 for index in range(256)) * (length // 256 + 1)
        assert client.set("bytes", value[:length])
        assert client.get("bytes") == value[:length], length


def test_flags_belong_to_the_record():
    client = connect()
    assert client.set("flagged", "v", flags=4294967295)
    assert client.raw_command("get flagged", end_tokens="END\r\n").startswith(
        b"VALUE flagged 4294967295 1"
    )


def test_add_and_replace_look_whether_there_is_a_record():
    client = connect()
    assert client.add("once", "1")
    assert not client.add("once", "2")
    assert client.replace("once", "3")
    assert not client.replace("never", "4")
    assert client.get("once") == b"3" and client.get("never") is None


def test_append_and_prepend_extend_a_value():
    client = connect()
    assert not client.append("extended", "x")
    client.set("extended", "b")
    assert client.append("extended", "c") and client.prepend("extended", "a")
    assert client.get("extended") == b"abc"


def test_many_keys_are_read_and_removed_at_once():
    client = connect()
    records = {f"many-{index}": f"value-{index}".encode() for index in range(500)}
    assert client.set_many(records) == []
    assert client.get_many([*records, "many-missing"]) == records
    assert client.delete_many(records)
    assert client.get_many(list(records)) == {}


def test_cas_stores_only_over_what_was_read():
    client = connect()
    client.set("swapped", "1")
    value, version = client.gets("swapped")
    assert value == b"1"
    assert client.cas("swapped", "2", version) is True
    assert client.cas("swapped", "3", version) is False
    assert client.cas("swap-missing", "3", version) is None
    assert client.get("swapped") == b"2"


def test_counters_count_and_stop_at_zero():
    client = connect()
    client.set("counter", "10")
    assert client.incr("counter", 5) == 15
    assert client.decr("counter", 4) == 11
    assert client.decr("counter", 100) == 0
    assert client.incr("counter-missing", 1) is None


def test_a_record_expires():
    client = connect()
    client.set("brief", "v", expire=1)
    client.set("longer", "v", expire=1000)
    assert client.get("brief") == b"v"
    assert client.touch("longer", 1)
    deadline = time.monotonic() + 30
    while client.get("brief") is not None or client.get("longer") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_noreply_stores_without_an_answer():
    client = connect()
    client.set("quiet", "v", noreply=True)
    assert client.get("quiet") == b"v"
    client.delete("quiet", noreply=True)
    assert client.get("quiet") is None




def test_stats_and_version_answer():
    client = connect()
    client.set("counted", "v")
    assert client.version()
    assert int(client.stats()[b"curr_items"]) >= 1


def test_flush_all_removes_everything():
    client = connect()
    client.set("flushed", "v")
    assert client.flush_all()
    assert client.get("flushed") is None
    assert int(client.stats()[b"curr_items"]) == 0


promises.keep(dict(globals()))
