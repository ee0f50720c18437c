"""Runs diskcache's own tests over `cabinet.Cache`, which they see under diskcache's name.

    python run.py FOLDER

The tests come from diskcache's source distribution at PyPI, which is stored in FOLDER. The file
`differences.txt` has the tests that do not pass, with the reasons. Fails if another one fails, or
if one of these passes.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

ARCHIVE = (
    "diskcache",
    "5.6.3",
    "2c3a3fa2743d8535d832ec61c2054a1641f41775aa7c556758a109941e33e4fc",
)
FILES = ["test_core.py", "test_deque.py", "test_index.py", "test_recipes.py", "test_fanout.py"]

#: Tests that pass at least, without those of test_fanout.py.
PASSED_MIN = 130

HERE = Path(__file__).parent


def fetch(folder, name, version, digest):
    """Returns the folder of the tests of a source distribution, whose SHA-256 is known."""
    archive = folder / f"{name}-{version}.tar.gz"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
            + [f"--dest={folder}", f"{name}=={version}"],
            check=True,
        )
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != digest:
        raise SystemExit(f"{archive} is not the known archive: its SHA-256 is {found}")
    prefix = f"{name}-{version}/tests/"
    with tarfile.open(archive) as opened:
        members = [member for member in opened if member.name.startswith(prefix)]
        options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        opened.extractall(folder, members, **options)
    return folder / prefix


def read_differences():
    """Returns the tests that fail, and those that need pickle."""
    kinds = {"fails": set(), "pickle": set()}
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            test, reason = line.split(": ", 1)
            kind, name = test.split(" ")
            assert reason
            kinds[kind].add(name)
    return kinds["fails"], kinds["pickle"]


class Outcomes:
    """Plugin of pytest: notes the tests that fail, and lets those that need it use pickle."""

    def __init__(self, pickled):
        self.pickled = pickled
        self.run = set()
        self.failed = set()

    def pytest_runtest_setup(self, item):
        self._set_pickle(name_of(item.nodeid) in self.pickled)

    def pytest_runtest_logreport(self, report):
        self.run.add(name_of(report.nodeid))
        if report.failed:
            self.failed.add(name_of(report.nodeid))

    @staticmethod
    def _set_pickle(is_pickle):
        import cabinet.cache

        cabinet.cache.Cache.__init__.__kwdefaults__["pickle"] = is_pickle


def name_of(node):
    return node.rsplit("/", 1)[-1]


def main():
    tests = fetch(Path(sys.argv[1]).resolve(), *ARCHIVE)
    fails, pickled = read_differences()
    sys.path.insert(0, str(HERE / "shim"))
    import cabinet.cache

    # One of them copies the folder of a closed cache, which a server may be about to close.
    cabinet.cache.Cache.__init__.__kwdefaults__["shared"] = False
    outcomes = Outcomes(pickled)
    arguments = ["-q", "-p", "no:cacheprovider", f"--rootdir={tests}", "--tb=short"]
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        pytest.main(arguments + [str(tests / name) for name in FILES], plugins=[outcomes])
    passed = outcomes.run - outcomes.failed
    print(f"{len(passed)} of {len(outcomes.run)} tests of diskcache pass")
    errors = [f"{name} fails, and is not listed" for name in sorted(outcomes.failed - fails)]
    errors += [f"{name} passes, and is listed as one that fails" for name in sorted(fails & passed)]
    unknown = sorted((fails | pickled) - outcomes.run)
    errors += [f"{name} is listed, and did not run" for name in unknown]
    count = sum(not name.startswith("test_fanout") for name in passed)
    if count < PASSED_MIN:
        errors.append(f"only {count} pass without test_fanout.py, and {PASSED_MIN} should")
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
