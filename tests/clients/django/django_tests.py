"""Plugin of pytest for Django's own tests, with this server as the cache of both backends."""

import os

import django
from django.conf import settings
from django.db import connection
from django.test.utils import setup_test_environment

BACKENDS = ["django.core.cache.backends.redis.RedisCache", "django_redis.cache.RedisCache"]


def pytest_configure(config):
    url = f"redis://127.0.0.1:{os.environ['TYRANT_PORT']}"
    names = ["default", "django-redis"]
    settings.configure(
        CACHES={
            name: {"BACKEND": backend, "LOCATION": url} for name, backend in zip(names, BACKENDS)
        },
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3"}},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        INSTALLED_APPS=["django.contrib.sessions", "cache", "sessions_tests"],
        SECRET_KEY="tests",
        USE_TZ=False,
    )
    django.setup()
    setup_test_environment()
    # In memory.
    connection.creation.create_test_db(verbosity=0, serialize=False)
