"""Cache of Django in a folder: one database for all threads of a process.

    CACHES = {
        "default": {
            "BACKEND": "cabinet.django.CabinetCache",
            "LOCATION": "/var/cache/site",
            "OPTIONS": {"size_limit": 1 << 30, "pickle": True},
        },
    }

The options are those of `cabinet.Cache`. Without `pickle`, values are None, numbers, texts (also
safe ones, as fragments of templates are), bytes, lists, dicts and others of `cabinet.cache.Disk`.
Objects that Django itself stores need it, such as responses and lazy texts.
"""

# mypy: ignore-errors
# Django has no types, and is not installed where they are checked.

import os
import threading

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.utils.safestring import SafeString

from .cache import Cache, Disk, PickleDisk

__all__ = ["CabinetCache"]

# Form of safe texts, beside those of `cabinet.cache`.
_MODE_SAFE = 32

# Options of Django's own, which its base class takes.
_DJANGO_OPTIONS = {"MAX_ENTRIES", "CULL_FREQUENCY"}

# Caches of this process by folder and options. They stay open: Django closes its caches after
# each request, and has one object of each for each thread.
_caches = {}
_caches_lock = threading.Lock()


class _SafeTexts:
    """Stores safe texts without pickle."""

    def _dumps(self, value, what):
        if type(value) is SafeString:
            return _MODE_SAFE, value.encode("utf-8", "surrogatepass")
        return super()._dumps(value, what)

    def _loads(self, mode, data):
        if mode == _MODE_SAFE:
            return SafeString(data.decode("utf-8", "surrogatepass"))
        return super()._loads(mode, data)


class _Disk(_SafeTexts, Disk):
    pass


class _PickleDisk(_SafeTexts, PickleDisk):
    pass


def _open(directory, options):
    key = os.getpid(), os.path.realpath(directory), repr(sorted(options.items()))
    with _caches_lock:
        if key not in _caches:
            options = dict(options)
            is_pickle = options.pop("pickle", False)
            options.setdefault("disk", _PickleDisk if is_pickle else _Disk)
            _caches[key] = Cache(directory, **options)
        return _caches[key]


class CabinetCache(BaseCache):
    """Backend of Django's caches. Its methods have the arguments of `cabinet.Cache` as well."""

    def __init__(self, directory, params):
        super().__init__(params)
        options = params.get("OPTIONS", {})
        options = {name: value for name, value in options.items() if name not in _DJANGO_OPTIONS}
        self._cache = _open(directory, options)

    @property
    def cache(self):
        """The `cabinet.Cache` with the values."""
        return self._cache

    @property
    def directory(self):
        """Folder of the cache."""
        return self._cache.directory

    def get_backend_timeout(self, timeout=DEFAULT_TIMEOUT):
        """Returns the seconds until a value expires; None for never."""
        return self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout

    def add(self, key, value, timeout=DEFAULT_TIMEOUT, version=None, read=False, tag=None):
        key = self.make_and_validate_key(key, version)
        expire = self.get_backend_timeout(timeout)
        return self._cache.add(key, value, expire, read, tag, retry=True)

    def get(self, key, default=None, version=None, read=False, expire_time=False, tag=False):
        key = self.make_and_validate_key(key, version)
        return self._cache.get(key, default, read, expire_time, tag, retry=True)

    def read(self, key, version=None):
        """Returns the file of a value, see `cabinet.Cache.read`."""
        return self._cache.read(self.make_and_validate_key(key, version))

    def set(self, key, value, timeout=DEFAULT_TIMEOUT, version=None, read=False, tag=None):
        key = self.make_and_validate_key(key, version)
        expire = self.get_backend_timeout(timeout)
        return self._cache.set(key, value, expire, read, tag, retry=True)

    def touch(self, key, timeout=DEFAULT_TIMEOUT, version=None):
        key = self.make_and_validate_key(key, version)
        return self._cache.touch(key, self.get_backend_timeout(timeout), retry=True)

    def pop(self, key, default=None, version=None, expire_time=False, tag=False):
        """Removes a value, and returns it, see `cabinet.Cache.pop`."""
        key = self.make_and_validate_key(key, version)
        return self._cache.pop(key, default, expire_time, tag, retry=True)

    def delete(self, key, version=None):
        return self._cache.delete(self.make_and_validate_key(key, version), retry=True)

    def incr(self, key, delta=1, version=None):
        made = self.make_and_validate_key(key, version)
        try:
            return self._cache.incr(made, delta, default=None, retry=True)
        except KeyError:
            raise ValueError(f"Key {key!r} not found") from None

    def has_key(self, key, version=None):
        return self.make_and_validate_key(key, version) in self._cache

    def expire(self):
        """Removes the values that have expired. Returns their number."""
        return self._cache.expire(retry=True)

    def cull(self):
        """Removes values down to the size limit, see `cabinet.Cache.cull`."""
        return self._cache.cull(retry=True)

    def evict(self, tag):
        """Removes the values with a tag. Returns their number."""
        return self._cache.evict(tag, retry=True)

    def stats(self, enable=True, reset=False):
        """Returns the numbers of hits and misses, see `cabinet.Cache.stats`."""
        return self._cache.stats(enable, reset)

    def memoize(
        self, name=None, timeout=DEFAULT_TIMEOUT, version=None, typed=False, tag=None, ignore=()
    ):
        """Returns a decorator that stores the results of a function, see `cabinet.Cache.memoize`.

        The keys are not those of `make_key`; a version is a part of the name.
        """
        if name is not None and version is not None:
            name = self.make_key(name, version)
        expire = self.get_backend_timeout(timeout)
        return self._cache.memoize(name, typed, expire, tag, ignore)

    def clear(self):
        self._cache.clear(retry=True)
