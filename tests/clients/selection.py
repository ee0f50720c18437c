"""Plugin of pytest that leaves out the tests of a client for what this server does not have.

Each is named by its function, or a pattern of it, in a file, below its reason. A name that is that
of no test is an error, and so is a run of few tests.
"""

import fnmatch
import pathlib

import pytest

passed = 0


def pytest_addoption(parser):
    parser.addoption("--left-out", type=pathlib.Path, help="file with the names of tests")
    help = "least number of tests that pass, so that a change of the marks cannot leave out most"
    parser.addoption("--passed-min", type=int, help=help)


def names(file):
    """Patterns of the names of tests that are left out."""
    lines = file.read_text(encoding="ascii").splitlines()
    return [line.strip() for line in lines if line and not line.startswith("#")]


def pytest_collection_modifyitems(config, items):
    patterns, used, kept, left_out = names(config.option.left_out), set(), [], []
    for item in items:
        name = item.originalname or item.name
        file = item.path.stem
        found = [one for one in patterns if fnmatch.fnmatchcase(f"{file}::{name}", one)]
        used.update(found)
        (left_out if found else kept).append(item)
    unknown = [one for one in patterns if one not in used]
    if unknown:
        raise pytest.UsageError(f"{config.option.left_out} names no tests by {unknown}")
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_runtest_logreport(report):
    global passed
    passed += report.when == "call" and report.passed


def pytest_sessionfinish(session, exitstatus):
    least = session.config.option.passed_min
    if exitstatus == 0 and passed < least:
        print(f"\n{passed} tests passed, and at least {least} are expected")
        session.exitstatus = 1
