"""Plugin of pytest for django-redis's own tests, with this server's port in their settings."""

import importlib
import os
import re

# Settings of the tests, of which each process uses one.
NAME = os.environ["TYRANT_SETTINGS"]


def redirected(value):
    """The value with this server and its only database in place of Redis on its usual port."""
    match value:
        case str():
            return re.sub(r":6379\?db=\d+", f":{os.environ['TYRANT_PORT']}", value)
        case list():
            return [redirected(one) for one in value]
        case dict():
            return {name: redirected(one) for name, one in value.items()}
    return value


def pytest_collection(session):
    settings = importlib.import_module(f"settings.{NAME}")
    settings.CACHES = redirected(settings.CACHES)


def settings_of(item):
    return item.callspec.params.get("cache_settings") if hasattr(item, "callspec") else None


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if settings_of(item) in (None, NAME)]
