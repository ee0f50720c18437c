"""Fixtures of the tests."""

import pytest

import cabinet

#: Names of the kinds of databases that hold any keys and values.
KEYED = ["a.tch", "a.tcb", "*", "+"]

#: Those whose keys have an order.
ORDERED = ["a.tcb", "+"]


@pytest.fixture
def opened(tmp_path):
    """Returns a function that opens a database in a folder of the test, and closes it after it."""
    databases = []

    def open_database(name="a.tch", **options):
        path = name if name[0] in "*+" else str(tmp_path / name)
        database = cabinet.open(path, **options)
        databases.append(database)
        return database

    yield open_database
    for database in databases:
        database.close()


@pytest.fixture(params=KEYED)
def keyed(request, opened):
    """An open database of each kind in turn."""
    return opened(request.param)


@pytest.fixture(params=ORDERED)
def ordered(request, opened):
    """An open database of each kind with an order in turn."""
    return opened(request.param)
