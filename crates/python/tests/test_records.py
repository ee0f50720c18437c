"""Single records: keys, values, changes, counters, expiry."""

import array
import collections.abc
import json
import time

import pytest

import cabinet


def test_a_database_is_a_mutable_mapping(keyed):
    assert isinstance(keyed, collections.abc.MutableMapping)
    model = {}
    for number in range(300):
        key, value = b"key%d" % number, b"value" * (number % 7)
        keyed[key] = value
        model[key] = value
    for number in range(0, 300, 3):
        del keyed[b"key%d" % number]
        del model[b"key%d" % number]
    assert len(keyed) == len(model)
    assert dict(keyed) == model
    assert keyed == model
    assert set(keyed) == set(model)
    assert sorted(keyed.values()) == sorted(model.values())
    assert set(keyed.items()) == set(model.items())
    assert keyed.keys() & {b"key1", b"key3", b"none"} == {b"key1"}
    assert b"key1" in keyed and b"key0" not in keyed
    assert keyed.get(b"key0") is None and keyed.get(b"key0", 5) == 5
    key, value = keyed.popitem()
    assert model.pop(key) == value
    keyed.update({b"x": b"1"}, y=b"2")
    assert keyed[b"y"] == b"2"
    with pytest.raises(TypeError):
        keyed.update([(b"z", b"3")], w=5)
    assert b"z" not in keyed
    keyed.clear()
    assert len(keyed) == 0 and not keyed and list(keyed) == []
    with pytest.raises(KeyError):
        keyed.popitem()


def test_a_missing_key_is_a_key_error(keyed):
    for operation in (
        lambda: keyed[b"none"],
        lambda: keyed.__delitem__("none"),
        lambda: keyed.pop("none"),
    ):
        with pytest.raises(KeyError) as raised:
            operation()
        assert isinstance(raised.value, cabinet.MissingKeyError)
        assert isinstance(raised.value, cabinet.Error)
    assert keyed.pop("none", 3) == 3


def test_keys_are_bytes_or_text_in_utf_8(keyed):
    keyed["\u00e4pfel"] = b"1"
    assert keyed["\u00e4pfel".encode()] == b"1"
    assert keyed[bytearray(b"\xc3\xa4pfel")] == b"1"
    assert list(keyed) == [b"\xc3\xa4pfel"]
    for key in (5, None, 1.5, ("a",)):
        with pytest.raises(TypeError, match="key"):
            keyed[key] = b"1"
        with pytest.raises(TypeError):
            keyed[key]
    with pytest.raises(UnicodeEncodeError):
        keyed["\ud800"] = b"1"


def test_values_are_buffers(keyed):
    for value in (b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a_b_c_")[::2]):
        keyed["a"] = value
        assert keyed["a"] == b"abc"
    keyed["a"] = array.array("H", [1, 2])
    assert keyed["a"] == array.array("H", [1, 2]).tobytes()
    for value in ("text", 5, None, [1]):
        with pytest.raises(TypeError, match="codec"):
            keyed["b"] = value
    assert "b" not in keyed


def test_a_value_is_read_into_a_buffer(keyed):
    keyed["a"] = b"hello"
    buffer = bytearray(b"........")
    assert keyed.get_into("a", buffer) == 5
    assert buffer == b"hello..."
    assert keyed.get_into("a", memoryview(buffer)[3:]) == 5
    assert buffer == b"helhello"
    assert keyed.get_into("none", buffer) is None
    with pytest.raises(ValueError, match="5 bytes"):
        keyed.get_into("a", memoryview(buffer)[:4])
    assert buffer == b"helhello"
    for unfit in (b"read-only", memoryview(buffer)[::2], "text", None):
        with pytest.raises((BufferError, TypeError)):
            keyed.get_into("a", unfit)
    buffer.append(1)  # It is not held any more.


def test_many_records_at_once(keyed):
    keyed.put_many({"a": b"1", b"b": b"2"})
    keyed.put_many((("c", b"3"), ("d", b"4")), ttl=1000)
    assert keyed.get_many(["d", "x", b"a"]) == [b"4", None, b"1"]
    assert keyed.get_many(iter(["x"]), default=b"-") == [b"-"]
    assert keyed.get_many([]) == []
    assert keyed.meta("d").expires_at > time.time()
    assert keyed.remove_many(["a", "x", "c"]) == 2
    assert sorted(keyed) == [b"b", b"d"]
    with pytest.raises(TypeError):
        keyed.put_many([("e", b"5"), ("f", 6)])
    assert "e" not in keyed


def test_conditional_changes(keyed):
    assert keyed.add("a", b"1") and not keyed.add("a", b"2")
    assert keyed["a"] == b"1"
    assert keyed.replace("a", b"3") and not keyed.replace("b", b"3")
    assert "b" not in keyed
    assert keyed.compare_and_swap("a", b"3", b"4")
    assert not keyed.compare_and_swap("a", b"3", b"5")
    assert not keyed.compare_and_swap("b", b"3", b"5")
    assert not keyed.compare_and_remove("a", b"3")
    version = keyed.meta("a").version
    assert keyed.put_if_version("a", version, b"6")
    assert not keyed.put_if_version("a", version, b"7")
    assert not keyed.put_if_version("a", 0, b"7")
    assert keyed.put_if_version("b", 0, b"8")
    assert keyed.compare_and_remove("a", b"6")
    assert dict(keyed) == {b"b": b"8"}
    assert keyed.setdefault("b", b"9") == b"8"
    assert keyed.setdefault("c", b"9") == b"9"
    assert keyed["c"] == b"9"
    keyed.append("c", "10")
    keyed.append("d", b"11")
    assert (keyed["c"], keyed["d"]) == (b"910", b"11")


def test_counters_count_and_do_not_wrap(keyed):
    assert keyed.add_int("n") == 1
    assert keyed.add_int("n", -5) == -4
    assert keyed.get_int("n") == -4
    assert len(keyed["n"]) == 4
    assert keyed.add_int("n", 2**31 + 3) == 2**31 - 1
    with pytest.raises(OverflowError):
        keyed.add_int("n")
    assert keyed.get_int("n") == 2**31 - 1
    assert keyed.add_int("wide", 2**40, bits=64) == 2**40
    assert keyed.add_int("wide", -(2**41), bits=64) == -(2**40)
    assert keyed.get_int("wide") == -(2**40)
    with pytest.raises(OverflowError):
        keyed.add_int("wide", -(2**63), bits=64)
    with pytest.raises(cabinet.NotANumberError):
        keyed.add_int("wide")
    with pytest.raises(ValueError):
        keyed.add_int("wide", bits=16)
    assert keyed.add_float("x", 1.5) == 1.5
    assert keyed.add_float("x", 0.25) == keyed.get_float("x") == 1.75
    assert keyed.get_int("none") is None and keyed.get_float("none", 0.0) == 0.0


def test_records_expire(keyed):
    keyed.put("a", b"1", ttl=1000, flags=7)
    meta = keyed.meta("a")
    assert meta.flags == 7 and meta.size == 1 and meta.version > 0
    assert abs(meta.expires_at - time.time() - 1000) < 100
    keyed.put("b", b"1", expires_at=1.0)
    keyed.put("c", b"1", ttl=-5)
    keyed.put("d", b"1", ttl=0.001)
    keyed.put("e", b"1", ttl=float("inf"))
    time.sleep(0.01)
    assert [key in keyed for key in "abcde"] == [True, False, False, False, True]
    assert keyed.meta("e").expires_at is None
    assert keyed.meta("b") is None
    assert keyed.touch("a") and keyed.meta("a").expires_at is None
    assert keyed.touch("a", ttl=-1) and "a" not in keyed
    assert not keyed.touch("a", ttl=5)
    with pytest.raises(TypeError):
        keyed.put("a", b"1", ttl=1, expires_at=1)
    with pytest.raises(ValueError):
        keyed.put("a", b"1", ttl=float("nan"))


def test_modify_repeats_after_another_writer(keyed):
    calls = []

    def append(value):
        calls.append(value)
        if len(calls) == 1:
            keyed["a"] = b"other"
        return value + b"!"

    assert keyed.modify("a", append, b"new") == b"other!"
    assert calls == [b"new", b"other"]
    keyed.put("b", b"1", ttl=1000, flags=3)
    keyed.modify("b", append)
    assert keyed.meta("b").flags == 3 and keyed.meta("b").expires_at is not None


def test_codecs(opened):
    values = {"a": 1, "b": [1, "zwei", None], "c": {"d": 2.5}}
    for codec in ("json", "msgpack", "pickle"):
        if codec == "msgpack":
            pytest.importorskip("msgpack")
        database = opened("*", codec=codec, keys="str")
        database.update(values)
        assert dict(database) == values
        assert database.pop("a") == 1
        assert database.get_with_meta("c")[0] == {"d": 2.5}
        assert database.compare_and_swap("c", {"d": 2.5}, "new")
        assert database.get_many(["c", "x"]) == ["new", None]
        with database.transaction() as transaction:
            assert transaction["c"] == "new"
            transaction["e"] = [3]
        assert database["e"] == [3]
    text = opened("*", codec="str")
    text["a"] = "\u00e4"
    assert text["a"] == "\u00e4" and list(text.values()) == ["\u00e4"]
    with pytest.raises(TypeError):
        text["b"] = b"bytes"


def test_values_that_a_codec_cannot_read_are_errors(tmp_path):
    path = str(tmp_path / "a.tch")
    with cabinet.open(path) as raw:
        raw["a"] = b"\xff{"
    for codec in ("str", "json"):
        with cabinet.open(path, codec=codec) as database:
            with pytest.raises(ValueError):
                database["a"]
            with pytest.raises(ValueError):
                list(database.values())
    with cabinet.open(path, codec="json") as database:
        with pytest.raises(TypeError):
            database["b"] = {1, 2}
        assert "b" not in database


def test_a_codec_of_the_callers(opened):
    class Reversed:
        @staticmethod
        def dumps(value):
            return value[::-1]

        @staticmethod
        def loads(value):
            return value[::-1]

    database = opened("*", codec=Reversed)
    database["a"] = b"abc"
    assert database["a"] == b"abc" and database.size("a") == 3
    for wrong in ("zip", ""):
        with pytest.raises(ValueError, match="codec"):
            cabinet.open("*", codec=wrong)
    with pytest.raises(TypeError, match="codec"):
        cabinet.open("*", codec=5)


def test_a_codec_without_its_module_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ImportError, match="pip install msgpack"):
        cabinet.open("*", codec="msgpack")


@pytest.mark.parametrize("name", ["a.tch", "a.tcb", "a.tcf", "*", "+"])
def test_a_value_that_cannot_be_decoded_is_not_removed(opened, name):
    database = opened(name, codec="json", keys="str")
    for key in ("1", "2"):
        database.append(key, b"{")
    for use in (lambda: database.pop("1"), lambda: database.pop("1", None), database.popitem):
        with pytest.raises(ValueError):
            use()
    with pytest.raises(ValueError):
        database.transact(lambda transaction: transaction.pop("1"))
    assert len(database) == 2 and database.size("1") == 1
    database["1"] = [1]
    assert database.pop("1") == [1] and database.pop("1", 5) == 5
    with pytest.raises(KeyError):
        database.pop("1")


def test_a_pop_returns_what_it_removes_beside_other_writers(opened):
    calls = []

    def load(value):
        calls.append(value)
        if len(calls) == 1:
            database["a"] = 1
        return json.loads(value)

    database = opened("*", codec=cabinet.Codec(json.dumps, load))
    database["a"] = 0
    assert database.pop("a") == 1 and "a" not in database


def test_a_counter_is_not_read_out_of_other_values(keyed):
    for value in (b"", b"abc", b"a" * 9, b"a" * 5):
        keyed["a"] = value
        with pytest.raises(cabinet.NotANumberError, match="bytes"):
            keyed.get_int("a")
        with pytest.raises(cabinet.NotANumberError, match="bytes"):
            keyed.get_float("a")
    keyed.add_int("n", -5)
    with pytest.raises(cabinet.NotANumberError):
        keyed.get_float("n")
    assert keyed.get_int("n") == -5 and keyed.get_int("x", 7) == 7 and keyed.get_float("x") is None
