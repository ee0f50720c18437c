"""Runs Django's own tests of caches and of sessions in them over `cabinet.django.CabinetCache`.

    python run_django.py FOLDER

The tests come from Django's source distribution at PyPI, which is stored in FOLDER. That release
must be installed, with pytest.
"""

import os
import sys
import tempfile
from pathlib import Path

import pytest
import run

ARCHIVE = (
    "django",
    "5.2.19",
    "ad03d8abc51dbff95ebf34b27123cf0c26a3b62db7ba0cd520783686362533d1",
)
PASSED_MIN = 190

HERE = Path(__file__).parent


class Plugin:
    """Sets Django up, and counts the tests that pass."""

    passed = 0

    def __init__(self, folder):
        self.folder = folder

    def pytest_configure(self, config):
        import django
        from django.conf import settings
        from django.test.utils import setup_test_environment

        settings.configure(
            CACHES={
                "default": {
                    "BACKEND": "cabinet.django.CabinetCache",
                    "LOCATION": os.path.join(self.folder, "default"),
                    "OPTIONS": {"pickle": True},
                }
            },
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3"}},
            DEFAULT_AUTO_FIELD="django.db.models.AutoField",
            INSTALLED_APPS=["django.contrib.sessions", "cache", "sessions_tests"],
            SECRET_KEY="tests",
            USE_TZ=False,
        )
        django.setup()
        setup_test_environment()
        from django.db import connection

        # In memory.
        connection.creation.create_test_db(verbosity=0, serialize=False)

    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed


def main():
    tests = run.fetch(Path(sys.argv[1]).resolve(), *ARCHIVE)
    for folder in (tests, HERE):
        sys.path.insert(0, str(folder))
    os.chdir(tests)
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        plugin = Plugin(folder)
        selected = [
            str(HERE / "django_backend.py"),
            "sessions_tests/tests.py::CacheSessionTests",
            "sessions_tests/tests.py::CacheDBSessionTests",
        ]
        arguments = ["-q", "-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider"]
        status = pytest.main([*arguments, "--tb=short", *selected], plugins=[plugin])
    if plugin.passed < PASSED_MIN:
        print(f"{plugin.passed} tests passed, and at least {PASSED_MIN} are expected")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
