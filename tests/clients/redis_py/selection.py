"""Plugin of pytest that leaves out the tests of redis-py for what this server does not have.

Each is named by its function, or a pattern of it, in the file `left_out.txt`, below its reason. A
name that is that of no test is an error, and so is a run of few tests.
"""

import fnmatch
import pathlib

import pytest

# Least number of tests that pass, so that a change of the marks cannot leave out most of them.
PASSED_MIN = 400

passed = 0


def names():
    """Patterns of the names of tests that are left out."""
    lines = pathlib.Path(__file__).with_name("left_out.txt").read_text(encoding="ascii")
    return [line.strip() for line in lines.splitlines() if line and not line.startswith("#")]


def pytest_collection_modifyitems(config, items):
    patterns, used, kept, left_out = names(), set(), [], []
    for item in items:
        name = item.originalname or item.name
        file = item.path.stem
        found = [one for one in patterns if fnmatch.fnmatchcase(f"{file}::{name}", one)]
        used.update(found)
        (left_out if found else kept).append(item)
    unknown = [one for one in patterns if one not in used]
    if unknown:
        raise pytest.UsageError(f"left_out.txt names tests that are not there: {unknown}")
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_runtest_logreport(report):
    global passed
    passed += report.when == "call" and report.passed


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 0 and passed < PASSED_MIN:
        print(f"\n{passed} tests passed, and at least {PASSED_MIN} are expected")
        session.exitstatus = 1
