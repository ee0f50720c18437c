"""Fixtures of the tests."""

import pytest

import cabinet
import cabinet._server

#: Names of the kinds of databases that hold any keys and values.
KEYED = ["a.tch", "a.tcb", "*", "+"]

#: Those whose keys have an order.
ORDERED = ["a.tcb", "+"]


#: How databases on the disk are opened: by this process alone, or shared with others.
MODES = [
    pytest.param({}, id="alone"),
    pytest.param({"shared": True, "idle_seconds": 0}, id="shared"),
]


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: databases are opened by this process alone")


def pytest_collection_modifyitems(config, items):
    def is_wanted(item):
        call = getattr(item, "callspec", None)
        mode = call.params.get("mode") if call else None
        return not mode or not item.get_closest_marker("alone")

    items[:] = [item for item in items if is_wanted(item)]


@pytest.fixture(params=MODES)
def mode(request):
    """The arguments of an opening, by one process and by several, in turn."""
    return request.param


@pytest.fixture(autouse=True)
def short_idle(monkeypatch):
    """Ends servers as soon as no process is connected."""
    monkeypatch.setattr(cabinet._server, "IDLE_SECONDS", 0.0)


@pytest.fixture
def cache_mode(mode, monkeypatch):
    """Opens caches by one process and by several, in turn."""
    defaults = {**cabinet.Cache.__init__.__kwdefaults__, "shared": bool(mode)}
    monkeypatch.setattr(cabinet.Cache.__init__, "__kwdefaults__", defaults)


@pytest.fixture
def opened(tmp_path, mode):
    """Returns a function that opens a database in a folder of the test, and closes it after it."""
    databases = []

    def open_database(name="a.tch", **options):
        if name[0] in "*+":
            if mode:
                pytest.skip("databases in memory are not shared")
            database = cabinet.open(name, **options)
        else:
            database = cabinet.open(str(tmp_path / name), **mode, **options)
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
