"""Opening, closing, transactions, batches, durability, copies, damage, errors."""

import gc
import os
import pathlib

import pytest

import cabinet

FIXTURES = pathlib.Path(__file__).parents[2] / "cabinet/tests/fixtures/tokyocabinet"


def test_names_have_settings(tmp_path):
    with cabinet.open(f"{tmp_path}/a.tch#durability=always#compression=lz4") as database:
        assert database.durability == "always" and database.kind == "hash"
        database["a"] = b"1"
        assert database.durable >= database.appended > 0
    with cabinet.open(tmp_path / "a.tch", durability=0.5) as database:
        assert database.durability == "interval:500" and database["a"] == b"1"
    with cabinet.open(f"{tmp_path}/a.tch#mode=r") as database:
        assert database.read_only
        with pytest.raises(cabinet.ReadOnlyError):
            database["a"] = b"2"
    with cabinet.open(tmp_path / "plain#order=decimal", kind="tree") as database:
        assert database.kind == "tree" and database.path == str(tmp_path / "plain")
        database.update({"10": b"", "9": b""})
        assert list(database) == [b"9", b"10"]
    for name, kind in (("*", "memory-hash"), ("+#capnum=10", "memory-tree")):
        with cabinet.open(name) as database:
            assert database.kind == kind


def test_options(tmp_path):
    path = tmp_path / "a.tch"
    with pytest.raises(cabinet.IoError) as raised:
        cabinet.open(path, create=False)
    assert isinstance(raised.value, OSError)
    assert raised.value.errno == 2 and "check the path" in str(raised.value)
    assert str(path) in os.fspath(raised.value.filename)
    with cabinet.open(path, compression="zstd", capacity_bytes=8 << 20, durability="none") as it:
        it["a"] = b"x" * 10000
    with cabinet.open(path, read_only=True) as database:
        assert database["a"] == b"x" * 10000
    with cabinet.open(path, truncate=True) as database:
        assert len(database) == 0
    with cabinet.open(tmp_path / "a.tcf", width=4) as database:
        database["7"] = b"1234"
        assert database["7"] == b"1234" and database.width == 4
        with pytest.raises(cabinet.NoIdError):
            database["x"] = b"1"
    for error, name, options in (
        (cabinet.BadNameError, "a.xyz", {}),
        (cabinet.BadNameError, "a.tch#nonsense=1", {}),
        (cabinet.BadNameError, "a.tch", {"durability": "sometimes"}),
        (ValueError, "a.tch", {"compression": "zip"}),
        (ValueError, "a.tch", {"kind": "heap"}),
        (ValueError, "a.tch", {"keys": "int"}),
        (cabinet.InvalidArgumentError, "a.tch", {"kind": "tree"}),
        (cabinet.InvalidArgumentError, "a.tch", {"dead_percent_max": 5}),
        (TypeError, "a.tch", {"nonsense": 1}),
        (TypeError, 5, {}),
    ):
        with pytest.raises(error):
            cabinet.open(name if name == 5 else tmp_path / name, **options)


@pytest.mark.alone
@pytest.mark.parametrize("name", ["a.tch", "a.tcb", "a.tcf", "a.tct"])
def test_nothing_is_changed_by_an_opening_for_reading_only(opened, tmp_path, name):
    opened(name).close()
    before = {file: file.read_bytes() for file in (tmp_path / name).iterdir()}
    for options in ({"truncate": True}, {"create": True}, {"indices": {"a": "lex"}}):
        if "indices" in options and name != "a.tct":
            continue
        for given in ({"read_only": True, **options}, {**options, "read_only": True}):
            with pytest.raises(cabinet.InvalidArgumentError, match=[*options][0]):
                opened(name, **given)
    with opened(name, read_only=True, create=False) as database:
        assert len(database) == 0
    with pytest.raises(cabinet.IoError, match="missing"):
        opened("missing" + name, read_only=True)
    assert before == {file: file.read_bytes() for file in (tmp_path / name).iterdir()}
    assert not (tmp_path / ("missing" + name)).exists()


def test_options_that_a_kind_lacks_are_refused_by_name(tmp_path):
    for name, options in (
        ("a.tch", {"width": 5}),
        ("a.tch", {"cache_bytes": 1 << 20}),
        ("a.tch", {"order": "decimal"}),
        ("a.tch", {"indices": {"a": "lex"}}),
        ("a.tch", {"capacity_records": 5}),
        ("a.tcb", {"index_bytes": 1 << 20}),
        ("a.tcb", {"compaction_bytes_per_second": 1 << 20}),
        ("a.tcf", {"compression": "lz4"}),
        ("a.tct", {"capacity_records": 5}),
        ("a.tct", {"limit_bytes": 5}),
        ("*", {"durability": "always"}),
        ("*", {"read_only": True}),
        ("+", {"create": False}),
        ("+", {"leaf_bytes": 512}),
    ):
        path = name if name in "*+" else tmp_path / name
        with pytest.raises(cabinet.UnsupportedError, match=f"{[*options][0]}=.*kind"):
            cabinet.open(path, **options)
    assert os.listdir(tmp_path) == []
    cabinet.open("*", create=True, read_only=False, durability="none", width=None).close()
    with pytest.warns(UserWarning, match="bnum") as warned:
        cabinet.open("*#bnum=5").close()
    assert warned[0].filename == __file__
    with cabinet.open(tmp_path / "b.tch") as database:
        with pytest.raises(cabinet.UnsupportedError, match="width"):
            database.optimize("width=5")
        with pytest.raises(cabinet.BadNameError, match="nonsense"):
            database.optimize("nonsense=5")


@pytest.mark.alone
def test_an_existing_database_keeps_its_shape_or_says_so(opened):
    opened("a.tcf", width=4, limit_bytes=1 << 20).close()
    opened("a.tct", indices={"a": "lex"}).close()
    opened("a.tcb", order="decimal").close()
    for name, options, error in (
        ("a.tcf", {"width": 8}, cabinet.InvalidArgumentError),
        ("a.tcf", {"limit_bytes": 1 << 21}, cabinet.InvalidArgumentError),
        ("a.tct", {"indices": {"a": "dec", "b": "lex"}}, cabinet.InvalidArgumentError),
        ("a.tcb", {"order": "int64"}, cabinet.WrongKindError),
    ):
        with pytest.raises(error, match="width=8|limit_bytes=2097152|remove_index|decimal"):
            opened(name, **options)
    opened("a.tcb", order="decimal").close()
    opened("a.tct", indices={"a": "lex", "c": "dec"}).close()
    with opened("a.tcf", width=4, limit_bytes=1 << 20) as database:
        database.optimize("width=8")
    assert opened("a.tcf", width=8).width == 8


def test_numbers_and_seconds_are_not_bools(tmp_path):
    path = tmp_path / "a.tch"
    for options in (
        {"durability": True},
        {"dead_percent_max": True},
        {"capacity_bytes": False},
        {"compression": True},
        {"capacity_bytes": 1.5},
        {"create": 1},
        {"read_only": "no"},
    ):
        with pytest.raises(TypeError, match=f"{[*options][0]}=.*give"):
            cabinet.open(path, **options)
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="durability"):
            cabinet.open(path, durability=seconds)
    with pytest.raises(ValueError, match="range"):
        cabinet.open(path, capacity_bytes=1 << 65)
    with cabinet.open(path) as database:
        database["a"] = b"1"
        for use in (
            lambda: database.put("a", b"2", ttl=True),
            lambda: database.put("a", b"2", expires_at=True),
            lambda: database.put_many({"a": b"2"}, ttl=True),
            lambda: database.add("b", b"2", ttl=False),
            lambda: database.touch("a", True),
            lambda: database.modify("a", bytes.upper, ttl=True),
            lambda: database.batch().put("a", b"2", ttl=True),
        ):
            with pytest.raises(TypeError, match="seconds"):
                use()
        assert dict(database) == {b"a": b"1"} and database.meta("a").expires_at is None


def test_a_fixed_length_database_truncates_nothing(opened, tmp_path):
    database = opened("a.tcf", width=4)
    database["5"] = b"12"
    for use in (
        lambda: database.put("5", b"12345"),
        lambda: database.__setitem__("5", b"12345"),
        lambda: database.put_many({"6": b"1", "7": b"12345"}),
        lambda: database.add("6", b"12345"),
        lambda: database.replace("5", b"12345"),
        lambda: database.setdefault("6", b"12345"),
        lambda: database.append("5", b"345"),
        lambda: database.append("6", b"12345"),
        lambda: database.compare_and_swap("5", b"12", b"12345"),
        lambda: database.put_if_version("6", 0, b"12345"),
        lambda: database.modify("5", lambda value: value + b"345"),
        lambda: database.add_int("6", bits=64),
        lambda: database.add_float("6"),
        lambda: database.batch().put("6", b"12345"),
        lambda: database.transact(lambda transaction: transaction.put("6", b"12345")),
        lambda: database.transact(lambda transaction: transaction.append("5", b"345")),
    ):
        with pytest.raises(cabinet.ValueTooLongError, match="at most 4"):
            use()
    assert dict(database) == {b"5": b"12"}
    database.append("5", b"34")
    assert database["5"] == b"1234" and database.add_int("6", 7) == 7
    database.optimize("width=8")
    database["7"] = b"12345678"
    assert database.add_int("8", bits=64) == 1


def test_keys_of_a_fixed_length_database_are_ids(opened):
    database = opened("a.tcf")
    database["next"] = b"1"
    database["007"] = b"7"
    for key in ("-1", "1.5", "1e3", " 1", "+1", "a1", "", "minx1", b"\xff1"):
        for use in (
            database.__getitem__,
            database.get,
            database.remove,
            lambda key: database.put(key, b"2"),
            lambda key: database.put_many({key: b"2"}),
            lambda key: database.get_many(["1", key]),
            lambda key: database.pop(key, None),
            lambda key: database.batch().remove(key),
            lambda key: database.transact(lambda transaction: transaction.put(key, b"2")),
        ):
            with pytest.raises(cabinet.NoIdError, match="not an id"):
                use(key)
    assert dict(database) == {b"1": b"1", b"7": b"7"}
    assert database["max"] == b"7" and database.get("min") == b"1"


def test_a_database_is_open_once(tmp_path):
    path = tmp_path / "a.tch"
    database = cabinet.open(path)
    with pytest.raises(cabinet.InUseError):
        cabinet.open(path)
    database.close()
    database.close()
    assert database.closed and "closed" in repr(database)
    for call in (
        lambda: database["a"],
        lambda: database.put("a", b"1"),
        lambda: len(database),
        lambda: list(database),
        lambda: database.transaction(),
        lambda: database.batch(),
        lambda: database.sync(),
        lambda: database.path,
    ):
        with pytest.raises(cabinet.ClosedError):
            call()
    cabinet.open(path).close()


def test_a_database_without_references_is_closed(tmp_path):
    database = cabinet.open(tmp_path / "a.tch")
    database["a"] = b"1"
    del database
    gc.collect()
    with cabinet.open(tmp_path / "a.tch") as database:
        assert database["a"] == b"1"


def test_a_transaction_is_committed_or_rolled_back(keyed):
    keyed["a"] = b"1"
    with keyed.transaction() as transaction:
        transaction["b"] = b"2"
        transaction.add_int("n", 5)
        assert transaction["a"] == b"1" and transaction["b"] == b"2"
        assert "b" not in keyed
    assert keyed["b"] == b"2" and keyed.get_int("n") == 5
    with pytest.raises(RuntimeError, match="on purpose"):
        with keyed.transaction() as transaction:
            del transaction["a"]
            raise RuntimeError("on purpose")
    assert keyed["a"] == b"1"
    assert transaction.closed
    with pytest.raises(cabinet.ClosedError):
        transaction["a"]
    transaction = keyed.transaction()
    transaction["c"] = b"3"
    transaction.rollback()
    assert "c" not in keyed
    with pytest.raises(cabinet.UnsupportedError):
        cabinet.Transaction(keyed.transaction())


def test_a_conflict_is_an_error_and_transact_repeats(keyed):
    keyed["a"] = b"1"
    with pytest.raises(cabinet.ConflictError):
        with keyed.transaction() as transaction:
            value = transaction["a"]
            keyed["a"] = b"2"
            transaction["a"] = value + b"!"
    assert keyed["a"] == b"2"
    tries = []

    def append(transaction):
        tries.append(1)
        value = transaction["a"]
        if len(tries) < 3:
            keyed["a"] = b"%d" % len(tries)
        transaction["a"] = value + b"!"
        return value

    assert keyed.transact(append) == b"2"
    assert keyed["a"] == b"2!" and len(tries) == 3
    tries.clear()
    with pytest.raises(cabinet.ConflictError):
        keyed.transact(append, tries=2)


def test_closing_ends_transactions(opened):
    database = opened("a.tch")
    transaction = database.transaction()
    transaction["a"] = b"1"
    database.close()
    with pytest.raises(cabinet.ClosedError):
        transaction["a"]
    with pytest.raises(cabinet.ClosedError):
        transaction.commit()
    assert "a" not in opened("a.tch")


def test_a_batch_is_applied_together_or_not_at_all(keyed):
    keyed["a"] = b"1"
    with keyed.batch() as batch:
        batch["b"] = b"2"
        batch.put("c", b"3", ttl=1000, flags=9)
        del batch["a"]
        assert "b" not in keyed and len(batch) == 3
    assert sorted(keyed) == [b"b", b"c"] and keyed.meta("c").flags == 9
    with pytest.raises(RuntimeError):
        with keyed.batch() as batch:
            batch["d"] = b"4"
            raise RuntimeError
    assert "d" not in keyed
    batch = keyed.batch()
    batch.expect("b", keyed.meta("b").version)
    batch.expect("e", 0)
    batch["e"] = b"5"
    batch.write()
    batch.expect("e", 0)
    batch["e"] = b"6"
    with pytest.raises(cabinet.ConflictError):
        batch.write()
    assert keyed["e"] == b"5"


def test_writes_are_made_durable(opened):
    database = opened("a.tch")
    database["a"] = b"1"
    position = database.appended
    database.sync()
    assert database.durable >= position
    database["b"] = b"1"
    database.wait_durable()
    assert database.durable >= database.appended
    assert opened("*").appended == 0


def test_a_backup_is_a_database(opened, tmp_path):
    for name in ("a.tch", "a.tcb"):
        database = opened(name)
        database.put_many(("%d" % number, b"x" * 100) for number in range(1000))
        database.backup(tmp_path / f"copy-{name}")
        database["later"] = b"1"
        with cabinet.open(tmp_path / f"copy-{name}") as copy:
            assert len(copy) == 1000 and copy["7"] == b"x" * 100
        with pytest.raises(cabinet.IoError):
            database.backup(tmp_path / f"copy-{name}")
    memory = opened("*")
    memory["a"] = b"1"


@pytest.mark.alone
def test_damage_is_found_and_the_rest_salvaged(opened, tmp_path):
    database = opened("a.tch")
    for number in range(1000):
        database["%d" % number] = b"value%d" % number
    database.sync()
    verified = database.verify(bytes_per_second=1 << 30)
    assert verified["damages"] == [] and verified["records"] >= 1000
    assert database.damages == []
    database.close()
    path = tmp_path / "a.tch"
    assert cabinet.check(path)["damages"] == []
    segment = max(path.iterdir(), key=lambda file: file.read_bytes().count(b"value"))
    data = bytearray(segment.read_bytes())
    data[data.index(b"value500")] ^= 1
    segment.write_bytes(data)
    checked = cabinet.check(path)
    assert len(checked["damages"]) == 1 and "byte" in checked["damages"][0]
    into = opened("b.tch")
    salvaged = cabinet.salvage(path, into)
    assert salvaged["damages"] == checked["damages"] and salvaged["may_be_stale"]
    assert 900 < len(into) < 1000


def test_maintenance(keyed):
    keyed.put_many(("%d" % number, b"x" * 100) for number in range(100))
    keyed.optimize()
    if keyed.kind in ("hash", "tree"):
        keyed.optimize("dead=50")
    assert len(keyed) == 100 and keyed.size_bytes > 0
    stats = keyed.stats()
    assert stats and all(isinstance(text, str) for pair in stats.items() for text in pair)


@pytest.mark.alone
@pytest.mark.parametrize(
    "file, suffix", [("be/hash-numbers.tch", "tch"), ("be/btree-dups.tcb", "tcb")]
)
def test_files_of_tokyo_cabinet_are_imported(opened, file, suffix):
    with pytest.raises(cabinet.LegacyFileError):
        cabinet.open(FIXTURES / file)
    database = opened(f"new.{suffix}")
    imported = cabinet.import_tokyo_cabinet(FIXTURES / file, database)
    assert imported["damages"] == []
    assert imported["records"] == len(database) > 0
    with pytest.raises(cabinet.Error):
        cabinet.import_tokyo_cabinet(FIXTURES / "none.tch", database)
    if suffix == "tcb":
        with pytest.raises(cabinet.InvalidArgumentError):
            cabinet.import_tokyo_cabinet(FIXTURES / file, opened("other.tch"))


def test_limits_are_errors(keyed):
    keyed["k" * 65536] = b"1"
    with pytest.raises(cabinet.KeyTooLongError):
        keyed["k" * 65537] = b"1"
    with pytest.raises(ValueError):
        keyed.get("k" * 65537)


def test_a_transaction_whose_database_was_closed_is_not_said_to_be_committed(tmp_path):
    name = str(tmp_path / "closed.tch")
    database = cabinet.open(name)

    def change(transaction):
        transaction["a"] = b"1"
        database.close()

    with pytest.raises(cabinet.ClosedError):
        database.transact(change)
    database = cabinet.open(name)
    with pytest.raises(cabinet.ClosedError):
        with database.transaction() as transaction:
            change(transaction)
    with cabinet.open(name) as database:
        assert len(database) == 0
        # Its owner may end it before the block does.
        with database.transaction() as transaction:
            transaction["a"] = b"1"
            transaction.commit()
        with database.transaction() as transaction:
            transaction["b"] = b"2"
            transaction.rollback()
        with database.transaction() as transaction:
            transaction["c"] = b"3"
            transaction.close()
        assert dict(database) == {b"a": b"1"}
