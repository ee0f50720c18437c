"""Tests of a cache of Django, with this server in place of Redis.

Arguments: folder of Django's source distribution and `django`, for its own tests with its backend
and with that of django-redis; or folder of django-redis's and a name of settings of its own tests;
port of a running server.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import upstream  # noqa: E402

TESTS = [
    "cache/tests.py::RedisCacheTests",
    "sessions_tests/tests.py::CacheSessionTests",
    "sessions_tests/tests.py::CacheDBSessionTests",
    str(HERE / "django_redis_backend.py"),
]

folder, name, port = sys.argv[1:]
folder, variables = pathlib.Path(folder), {"TYRANT_PORT": port, "TYRANT_SETTINGS": name}
tests = folder / "tests"
# In place of the configuration in a distribution.
alone = ["-c", "/dev/null", "--rootdir=."]
if name == "django":
    left_out, plugins = HERE / "django_left_out.txt", ["django_tests"]
    upstream.run(tests, left_out, 200, alone + TESTS, plugins, [tests], variables)
left_out, plugins = HERE / "django_redis_left_out.txt", ["django_redis_tests"]
upstream.run(folder, left_out, 120, [*alone, "tests"], plugins, [tests], variables)
