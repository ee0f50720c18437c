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

import functools
import os
import threading

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.utils.safestring import SafeString

from .cache import Disk, FanoutCache, PickleDisk

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
            _caches[key] = FanoutCache(directory, **options)
        return _caches[key]


class CabinetCache(BaseCache):
    """Backend of Django's caches. Its methods have the arguments of `cabinet.Cache` as well."""

    def __init__(self, directory, params):
        super().__init__(params)
        options = params.get("OPTIONS", {})
        options = {name: value for name, value in options.items() if name not in _DJANGO_OPTIONS}
        self._cache = _open(directory, options)

    def cache(self, name):
        """Returns the `cabinet.Cache` of a folder within this one."""
        return self._cache.cache(name)

    def deque(self, name, maxlen=None):
        """Returns the `cabinet.Deque` of a folder within this one."""
        return self._cache.deque(name, maxlen)

    def index(self, name):
        """Returns the `cabinet.Index` of a folder within this one."""
        return self._cache.index(name)

    @property
    def directory(self):
        """Folder of the cache."""
        return self._cache.directory

    def get_backend_timeout(self, timeout=DEFAULT_TIMEOUT):
        """Returns the seconds until a value expires; None for never."""
        return self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout

    def add(
        self, key, value, timeout=DEFAULT_TIMEOUT, version=None, read=False, tag=None, retry=True
    ):
        key = self.make_and_validate_key(key, version)
        expire = self.get_backend_timeout(timeout)
        return self._cache.add(key, value, expire, read, tag, retry)

    def get(
        self,
        key,
        default=None,
        version=None,
        read=False,
        expire_time=False,
        tag=False,
        retry=True,
    ):
        key = self.make_and_validate_key(key, version)
        return self._cache.get(key, default, read, expire_time, tag, retry)

    def read(self, key, version=None):
        """Returns the file of a value, see `cabinet.Cache.read`."""
        return self._cache.read(self.make_and_validate_key(key, version))

    def set(
        self, key, value, timeout=DEFAULT_TIMEOUT, version=None, read=False, tag=None, retry=True
    ):
        key = self.make_and_validate_key(key, version)
        expire = self.get_backend_timeout(timeout)
        return self._cache.set(key, value, expire, read, tag, retry)

    def touch(self, key, timeout=DEFAULT_TIMEOUT, version=None, retry=True):
        key = self.make_and_validate_key(key, version)
        return self._cache.touch(key, self.get_backend_timeout(timeout), retry)

    def pop(
        self, key, default=None, version=None, expire_time=False, tag=False, retry=True
    ):
        """Removes a value, and returns it, see `cabinet.Cache.pop`."""
        key = self.make_and_validate_key(key, version)
        return self._cache.pop(key, default, expire_time, tag, retry)

    def delete(self, key, version=None, retry=True):
        return self._cache.delete(self.make_and_validate_key(key, version), retry)

    def incr(self, key, delta=1, version=None, default=None, retry=True):
        made = self.make_and_validate_key(key, version)
        try:
            return self._cache.incr(made, delta, default, retry)
        except KeyError:
            raise ValueError(f"Key {key!r} not found") from None

    def decr(self, key, delta=1, version=None, default=None, retry=True):
        return self.incr(key, -delta, version, default, retry)

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

    def create_tag_index(self):
        """Sets `tag_index`, see `cabinet.Cache.create_tag_index`."""
        self._cache.create_tag_index()

    def drop_tag_index(self):
        """Clears `tag_index`, see `cabinet.Cache.drop_tag_index`."""
        self._cache.drop_tag_index()

    def memoize(
        self, name=None, timeout=DEFAULT_TIMEOUT, version=None, typed=False, tag=None, ignore=()
    ):
        """Returns a decorator that stores the results of a function, see `cabinet.Cache.memoize`.

        The keys are those that `make_key` makes of its keys.
        """
        expire = self.get_backend_timeout(timeout)
        make_key = functools.partial(self.make_key, version=version)
        return self._cache._memoize(make_key, name, typed, expire, tag, ignore)

    def clear(self):
        self._cache.clear(retry=True)
