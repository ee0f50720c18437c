"""The interface of `dbm`, and CPython's own tests over it."""

import os
import pathlib
import shelve
import stat
import subprocess
import sys

import pytest

import cabinet
import cabinet.dbm


def test_cpythons_own_tests_pass(tmp_path):
    pytest.importorskip("test.test_dbm", reason="Debian has them in libpython3-testsuite")
    script = pathlib.Path(__file__).with_name("cpython.py")
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    print(ended.stderr.splitlines()[-3:])


def test_flags(tmp_path):
    path = tmp_path / "database"
    for flag in ("r", "w"):
        with pytest.raises(cabinet.dbm.error) as raised:
            cabinet.dbm.open(path, flag)
        assert isinstance(raised.value, OSError) and raised.value.errno == 2
        assert not path.exists()
    with cabinet.dbm.open(path, "c") as database:
        database["a"] = "1"
        assert database.keys() == [b"a"]
    assert cabinet.dbm.whichdb(path) == "cabinet.dbm"
    assert cabinet.dbm.whichdb(tmp_path) is None
    with cabinet.dbm.open(path) as database:
        assert database["a"] == b"1"
        with pytest.raises(cabinet.dbm.error, match="reading only"):
            database["a"] = b"2"
    with cabinet.dbm.open(os.fsencode(path), "w") as database:
        del database["a"]
        with pytest.raises(KeyError):
            del database["a"]
        database["b"] = b"2"
        database.sync()
        database.reorganize()
    for call in (lambda: database["b"], lambda: len(database), lambda: list(database)):
        with pytest.raises(cabinet.dbm.error, match="closed"):
            call()
    with cabinet.dbm.open(path, "n") as database:
        assert len(database) == 0
    for flag in ("x", "", "rw", "cf"):
        with pytest.raises(ValueError):
            cabinet.dbm.open(path, flag)
    with pytest.raises(cabinet.dbm.error, match="#"):
        cabinet.dbm.open(tmp_path / "a#b", "c")
    for name in ("a.tct", "a.tcf"):
        with pytest.raises(cabinet.dbm.error, match="rename it"):
            cabinet.dbm.open(tmp_path / name, "c")
        assert not (tmp_path / name).exists()


UMASK = os.umask(0)
os.umask(UMASK)


def test_the_mode_is_that_of_the_folder(tmp_path):
    cabinet.dbm.open(tmp_path / "private", "c", 0o600).close()
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    for mode, expected in ((0o400, 0o700), (0o444, 0o755), (0o660, 0o770), (0o666, 0o777)):
        path = tmp_path / f"{mode:o}"
        cabinet.dbm.open(path, "c", mode).close()
        assert stat.S_IMODE(path.stat().st_mode) == expected & ~UMASK
        with cabinet.dbm.open(path, "n", 0o600) as database:
            database["a"] = b"1"
        assert stat.S_IMODE(path.stat().st_mode) == expected & ~UMASK
    for wrong in ("600", True, 0o1000, -1):
        with pytest.raises(ValueError, match="mode="):
            cabinet.dbm.open(tmp_path / "wrong", "c", wrong)
    with pytest.raises(cabinet.dbm.error, match="nowhere"):
        cabinet.dbm.open(tmp_path / "nowhere/a", "c")


def test_a_shelf(tmp_path):
    with shelve.Shelf(cabinet.dbm.open(tmp_path / "shelf", "c"), writeback=True) as shelf:
        shelf["a"] = [1]
        shelf["a"].append({"b": 2})
    with shelve.Shelf(cabinet.dbm.open(tmp_path / "shelf")) as shelf:
        assert dict(shelf) == {"a": [1, {"b": 2}]}
